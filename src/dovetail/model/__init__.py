"""Compact records of the cluster, and the snapshot that decisions read."""
