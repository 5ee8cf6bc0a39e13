"""The kwok provider: Nodes without machines, in any cluster in which kwok runs."""
