"""What a NodePool says, counts and is worth: its hash, usage, readiness and replicas."""
