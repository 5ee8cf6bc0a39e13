"""Controllers of NodeClaims."""
