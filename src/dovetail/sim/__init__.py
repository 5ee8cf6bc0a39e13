"""A Kubernetes cluster in memory, on virtual time: the demo, the what-if engine and the test bed for faults."""
