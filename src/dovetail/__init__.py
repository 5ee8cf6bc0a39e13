"""Node disruptions that fit around your workloads."""

__version__ = "0.1.0"
