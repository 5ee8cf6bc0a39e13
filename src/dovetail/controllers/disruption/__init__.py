"""Decides which nodes go, and carries that out."""
