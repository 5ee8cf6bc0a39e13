"""The simulator's cloud."""
