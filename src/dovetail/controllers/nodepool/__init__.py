"""Controllers of NodePools."""
