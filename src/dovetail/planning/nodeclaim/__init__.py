"""What becomes of a NodeClaim: its launch, registration, drift and consolidatability."""
