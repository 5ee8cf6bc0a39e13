"""Which nodes to take, for which reason, and what to bring up first (02)."""
