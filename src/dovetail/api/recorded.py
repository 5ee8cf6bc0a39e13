"""The fields that a recorded dump keeps of each kind, as partial structs.

For the kinds that rules and engines read, these are the structs that they read. This module adds the fields that a
simulation needs to recreate the pods of workloads.
"""

from typing import Any, Final

import msgspec

from dovetail.api import names, objects, pod_specs, storage
from dovetail.api.objects import ApiObject, Instant, LabelSelector, ObjectMeta, Quantities, Wire


class RollingUpdate(Wire, frozen=True):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    partition: int | None = None


class Strategy(Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(Wire, frozen=True):
    start: int = 0


class RecordedVolumeClaimSpec(storage.PersistentVolumeClaimSpec, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: pod_specs.ContainerResources = pod_specs.ContainerResources()
    volume_mode: str = ""


class RecordedVolumeClaim(storage.PersistentVolumeClaim, frozen=True):
    spec: RecordedVolumeClaimSpec = RecordedVolumeClaimSpec()


class EphemeralVolume(Wire, frozen=True):
    volume_claim_template: RecordedVolumeClaim = RecordedVolumeClaim()


class RecordedPodTemplate(ApiObject, frozen=True):
    spec: pod_specs.SchedulingPodSpec = pod_specs.SchedulingPodSpec()


class RecordedWorkloadSpec(Wire, frozen=True):
    """Of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: RecordedPodTemplate = RecordedPodTemplate()
    min_ready_seconds: int | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    revision_history_limit: int | None = None
    paused: bool | None = None
    service_name: str | None = None
    pod_management_policy: str | None = None
    ordinals: Ordinals | None = None
    volume_claim_templates: list[RecordedVolumeClaim] | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None


class WorkloadStatus(Wire, frozen=True):
    replicas: int | None = None
    observed_generation: int | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    start_time: Instant | None = None
    completion_time: Instant | None = None
    conditions: tuple[objects.ConditionStatus, ...] = ()


class RecordedWorkload(ApiObject, frozen=True):
    spec: RecordedWorkloadSpec = RecordedWorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ClaimReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class RecordedVolumeSpec(storage.PersistentVolumeSpec, frozen=True):
    claim_ref: ClaimReference | None = None
    capacity: Quantities = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""


class RecordedVolume(storage.PersistentVolume, frozen=True):
    spec: RecordedVolumeSpec = RecordedVolumeSpec()


class PriorityClass(ApiObject, frozen=True):
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


def _fields(**types: Any) -> type[Any]:
    return msgspec.defstruct("Fields", [(name, type_ | None, None) for name, type_ in types.items()], bases=(Wire,))


_CORE: Final = ""
_APPS: Final = "apps"
_STORAGE: Final = "storage.k8s.io"

# By API group and kind.
RECORDED: Final[dict[tuple[str, str], type[Any]]] = {
    (names.GROUP, names.NODEPOOL_KIND): objects.NodePool,
    (names.GROUP, names.NODECLAIM_KIND): objects.NodeClaim,
    (names.KWOK_GROUP, names.KWOK_NODECLASS_KIND): objects.KWOKNodeClass,
    (_CORE, "Node"): objects.Node,
    (_CORE, "Pod"): pod_specs.SchedulingPod,
    ("policy", "PodDisruptionBudget"): objects.PodDisruptionBudget,
    (_CORE, "Namespace"): objects.Namespace,
    (_CORE, "Service"): pod_specs.Service,
    (_CORE, "PersistentVolumeClaim"): RecordedVolumeClaim,
    (_CORE, "PersistentVolume"): RecordedVolume,
    (_STORAGE, "StorageClass"): storage.StorageClass,
    (_STORAGE, "CSINode"): storage.CSINode,
    (_APPS, "Deployment"): RecordedWorkload,
    (_APPS, "ReplicaSet"): RecordedWorkload,
    (_APPS, "StatefulSet"): RecordedWorkload,
    (_APPS, "DaemonSet"): RecordedWorkload,
    ("batch", "Job"): RecordedWorkload,
    ("scheduling.k8s.io", "PriorityClass"): PriorityClass,
}

# Fields that no rule reads, but a simulated cluster does.
ALSO: Final[dict[type[Any], type[Any]]] = {
    ObjectMeta: _fields(generate_name=str, deletion_grace_period_seconds=int),
    objects.NodeSpec: _fields(unschedulable=bool),
    objects.PodSpec: _fields(restart_policy=str, preemption_policy=str, scheduling_gates=tuple[SchedulingGate, ...]),
    objects.PodStatus: _fields(reason=str),
    objects.PodDisruptionBudgetStatus: _fields(observed_generation=int),
}

# Open mappings of which some fields are kept. Of others only their presence is.
INSTEAD: Final[dict[tuple[type[Any], str], type[Any]]] = {(objects.Volume, "ephemeral"): EphemeralVolume}

# Fields that no reader of a dump needs.
LEFT_OUT: Final = frozenset({(objects.NodeClaimStatus, "imageID")})

# Annotations that are kept, apart from those of the domains below.
ANNOTATIONS: Final = frozenset(
    {
        names.POD_DELETION_COST,
        names.STATIC_POD_MIRROR,
        names.PVC_BIND_COMPLETED,
        names.KWOK_NODE,
        "storageclass.kubernetes.io/is-default-class",
        "deployment.kubernetes.io/revision",
    }
)
# In dumps, on Nodes: the number of pods that `record --namespace` has left out.
PODS_NOT_RECORDED: Final = "dovetail.dev/pods-not-recorded"
ANNOTATION_DOMAINS: Final = (names.GROUP, names.KWOK_GROUP, "dovetail.dev")
