"""The real API server: configuration, credentials and transport behind the port KubeApi. The only sockets."""

from dovetail.kube.access import context_info, contexts
from dovetail.kube.client import RealApi, connect
from dovetail.kube.kubeconfig import ContextInfo, KubeConfigError
from dovetail.kube.retrying import NO_PATIENCE, RetryPolicy

__all__ = [
    "NO_PATIENCE",
    "ContextInfo",
    "KubeConfigError",
    "RealApi",
    "RetryPolicy",
    "connect",
    "context_info",
    "contexts",
]
