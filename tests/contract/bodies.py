"""Short forms of the objects that contract tests make."""

from collections.abc import Sequence
from typing import Any, Final

from dovetail import ports
from dovetail.ports import Resource
from dovetail.sim.actors import wire

Object = dict[str, Any]
Raw = Resource[dict[str, Any]]

PODS: Final = ports.PODS.read_as(dict[str, Any])
NODES: Final = ports.NODES.read_as(dict[str, Any])
PDBS: Final = ports.PDBS.read_as(dict[str, Any])
LEASES: Final = ports.LEASES.read_as(dict[str, Any])
NODEPOOLS: Final = ports.NODEPOOLS.read_as(dict[str, Any])
NODECLAIMS: Final = ports.NODECLAIMS.read_as(dict[str, Any])
NODECLASSES: Final = ports.KWOK_NODECLASSES.read_as(dict[str, Any])
_ADMISSION: Final = ("admissionregistration.k8s.io", "v1")
POLICIES: Final = Resource(*_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", Object)
POLICY_BINDINGS: Final = Resource(
    *_ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", Object
)
DEPLOYMENTS: Final = wire.DEPLOYMENTS
REPLICASETS: Final = wire.REPLICASETS
STATEFULSETS: Final = wire.STATEFULSETS
DAEMONSETS: Final = wire.DAEMONSETS
JOBS: Final = wire.JOBS
CONFIG_MAPS: Final[Raw] = Resource("", "v1", "configmaps", "ConfigMap", dict[str, Any], namespaced=True)
NAMESPACES: Final[Raw] = Resource("", "v1", "namespaces", "Namespace", dict[str, Any])
PRIORITY_CLASSES: Final[Raw] = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", dict[str, Any])
SERVICE_ACCOUNTS: Final[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict[str, Any], namespaced=True)

OTHER_UID: Final = "11111111-2222-3333-4444-555555555555"
NOWHERE: Final = "nowhere"  # a node that does not exist: nobody but the test changes a pod there
FINALIZER: Final = "dovetail.dev/contract"
CLASS_REF: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Object:
    return {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "data": data}


def nodeclaim(name: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": {"nodeClassRef": CLASS_REF, "requirements": []}}


def nodepool(name: str, **spec: Any) -> Object:
    template = {"spec": {"nodeClassRef": CLASS_REF, "requirements": []}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def node(
    name: str, *, group: str = "", zone: str = "", cpu: str = "4", taints: Sequence[Object] = (), **spec: Any
) -> Object:
    """A Node that kwok, or the simulated kubelet, makes Ready. The taint keeps the pods of other tests away."""
    in_zone = {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": zone} if zone else {}
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    own = {"key": "test", "value": name, "effect": "NoSchedule"}
    return {
        "metadata": {
            "name": name,
            "labels": {"test": group or name, "kubernetes.io/hostname": name, **in_zone},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [own, *taints], **spec},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_spec(on: str = "", *, cpu: str = "100m", grace: int | None = None, **spec: Any) -> Object:
    """The spec of a pod that may run only on the node `on` (see `node`), if there is one."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
    bound = {"nodeSelector": {"test": on}, "tolerations": [{"key": "test", "operator": "Exists"}]} if on else {}
    grace_ = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    return {"containers": [container], **bound, **grace_, **spec}


def pod(name: str, on: str = "", *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod for the scheduler; its label `app` is its name."""
    meta = {"name": name, "labels": {"app": name}, "annotations": annotations or {}}
    return {"metadata": meta, "spec": pod_spec(on, **spec)}


def parked(name: str, *, app: str = "", **spec: Any) -> Object:
    """A pod on a node that does not exist."""
    made = pod(name, nodeName=NOWHERE, **spec)
    return made | {"metadata": {"name": name, "labels": {"app": app or name}}}


def starts_after(duration: str) -> dict[str, str]:
    """Annotations with which both kubelets start a pod so much later."""
    return {"pod-ready.stage.kwok.x-k8s.io/delay": duration, wire.START_DELAY: duration}


def ends_after(duration: str) -> dict[str, str]:
    """Annotations with which the process of a deleted pod takes so long to end, on both kubelets."""
    return {"pod-delete.stage.kwok.x-k8s.io/delay": duration, wire.SHUTDOWN: duration}


def not_ready(yes: bool) -> Object:
    """The patch that makes both kubelets report a node as not Ready, or no longer."""
    return (
        {"metadata": {"labels": {"dovetail.dev/test": "not-ready", wire.NOT_READY: "true"}}}
        if yes
        else {"metadata": {"labels": {"dovetail.dev/test": None, wire.NOT_READY: None}}}
    )


def budget(name: str, *, app: str = "", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app or name}}, **spec}}


def workload(name: str, on: str, *, annotations: dict[str, str] | None = None, **fields: Any) -> Object:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet, with its pods on the node."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": pod_spec(on, grace=1)}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **fields},
    }


def owned_by(owner: Object, resource: Resource[Any], **more: Any) -> Object:
    """An owner reference."""
    meta = owner["metadata"]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta["name"], "uid": meta["uid"], **more}
