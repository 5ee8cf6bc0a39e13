"""The kube-scheduler: what a pod demands, which node it gets, and whom it preempts."""
