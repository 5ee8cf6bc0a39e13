"""The Kubernetes API server in memory."""
