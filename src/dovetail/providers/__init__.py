"""Who makes and ends the machines: the implementations of the port CloudProvider."""
