"""`explain`: the verdict of every rule for each pod and node."""
