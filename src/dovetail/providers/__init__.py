"""Implementations of the port CloudProvider."""
