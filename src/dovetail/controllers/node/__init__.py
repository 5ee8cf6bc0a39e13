"""Controllers of Nodes."""
