"""The cluster as compact records and the snapshot that decisions read."""
