"""Metrics that follow from the state of the cluster."""
