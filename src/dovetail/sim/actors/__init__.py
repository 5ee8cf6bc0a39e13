"""The rest of a Kubernetes cluster in virtual time: scheduler, kubelets, workload controllers and their cluster."""
