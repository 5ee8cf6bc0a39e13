"""Loops over the ports: seeing objects, queueing work, telling people, leading alone. They run simulated too."""
