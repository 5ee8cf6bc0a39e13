"""Creates NodeClaims for pods that have no node."""
