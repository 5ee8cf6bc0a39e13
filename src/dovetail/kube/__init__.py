"""The real API server: configuration, credentials and transport behind the port KubeApi. The only sockets."""

from dovetail.kube.client import RealApi, connect
from dovetail.kube.kubeconfig import KubeConfigError
from dovetail.kube.retrying import NO_PATIENCE, RetryPolicy

__all__ = ["NO_PATIENCE", "KubeConfigError", "RealApi", "RetryPolicy", "connect"]
