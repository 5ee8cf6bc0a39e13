"""The fields of Kubernetes objects that Dovetail reads, as partial structs. Other fields are ignored.

Values with a syntax (durations, schedules, quantities, nodes of budgets) stay text: an object with a bad value must
still be decoded, so that its rule can report the mistake (R32).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from dovetail.api import names

# A time without a zone would be a guess.
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all wire structs. They have no cycles, so the garbage collector can ignore them."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def pool(self) -> str:
        """The NodePool of a Node or NodeClaim; empty if it has none."""
        return self.labels.get(names.NODEPOOL_LABEL, "")


class ApiObject(Wire, frozen=True):
    """Base of all objects that have metadata."""

    metadata: ObjectMeta = ObjectMeta()


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None
    observed_generation: int = 0


class ConditionStatus(Wire, frozen=True):
    """A condition without times and texts: 100,000 pods have half a million of them, and few have a reason."""

    type: str = ""
    status: str = ""
    reason: str = ""


class Taint(Wire, frozen=True):
    """With all fields, because the list of a Node's taints is written as a whole."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Instant | None = None

    def matches(self, other: "Taint") -> bool:
        """By key and effect, not by value (01 §6)."""
        return (self.key, self.effect) == (other.key, other.effect)


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ClaimVolume(Wire, frozen=True):
    claim_name: str = ""


class Volume(Wire, frozen=True):
    """A volume of a pod that uses a claim, its own (`ephemeral`) or another."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, object] | None = None


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    priority_class_name: str = ""
    volumes: Sequence[Volume] = []
    termination_grace_period_seconds: int | None = None
    priority: int | None = None
    tolerations: Sequence[Toleration] = []


class PodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: Sequence[ConditionStatus] = []
    start_time: Instant | None = None


class Pod(ApiObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Wire, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[Taint] = []
    unschedulable: bool = False


# A quantity as it is written: the API takes numbers as well as text.
Quantities = dict[str, str | int | float]


class NodeStatus(Wire, frozen=True):
    conditions: list[Condition] = []
    capacity: Quantities = {}
    allocatable: Quantities = {}


class Node(ApiObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LabelSelectorRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class PodDisruptionBudgetSpec(Wire, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int | None = None
    expected_pods: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None


class PodDisruptionBudget(ApiObject, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class Budget(Wire, frozen=True):
    # A number is refused by the API but is what people write; we read it to say so (R29).
    nodes: str | int = "10%"
    reasons: list[str] = []
    schedule: str | None = None
    duration: str | None = None


class Disruption(Wire, frozen=True):
    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    graceful_expire_after: str = "Never"
    budgets: tuple[Budget, ...] = (Budget(),)


class NodeClassReference(Wire, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""


class NodeSelectorRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []
    min_values: int | None = None


class ResourceRequirements(Wire, frozen=True):
    requests: Quantities = {}


class NodeClaimTemplateSpec(Wire, frozen=True):
    """`expireAfter` has a default that the API server fills in. Lists: None is absent, which is not empty (01 §7)."""

    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: list[NodeSelectorRequirement] = []
    taints: list[Taint] | None = None
    startup_taints: list[Taint] | None = None
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimSpec(NodeClaimTemplateSpec, frozen=True):
    """The spec of the template, and the requests of the claim."""

    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    resources: ResourceRequirements = ResourceRequirements()


class TemplateMeta(Wire, frozen=True):
    """None is absent, which is not empty (01 §7)."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeClaimTemplate(Wire, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: NodeClaimTemplateSpec = NodeClaimTemplateSpec()


class NodePoolSpec(Wire, frozen=True):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    replicas: int | None = None
    limits: Quantities = {}
    weight: int | None = None


class PoolDisruptions(Wire, frozen=True):
    """The number of nodes that may be disrupted for a reason; ours."""

    reason: str = ""
    limit: int = 0
    in_use: int = 0
    allowed: int = 0
    next_change: Instant | None = None


class NodePoolStatus(Wire, frozen=True):
    conditions: list[Condition] = []
    resources: Quantities = {}
    nodes: int = 0
    disruptions: tuple[PoolDisruptions, ...] = ()
    node_class_observed_generation: int = 0


class NodePool(ApiObject, frozen=True):
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()


class NodeClaimStatus(Wire, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []
    last_pod_event_time: Instant | None = None


class NodeClaim(ApiObject, frozen=True):
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


class NodeClassStatus(Wire, frozen=True):
    conditions: list[Condition] = []


class NodeClass(ApiObject, frozen=True):
    """The common fields of all providers' node classes."""

    status: NodeClassStatus = NodeClassStatus()


class KWOKNodeClassSpec(Wire, frozen=True):
    node_registration_delay: str | None = None


class KWOKNodeClass(ApiObject, frozen=True):
    spec: KWOKNodeClassSpec = KWOKNodeClassSpec()
    status: NodeClassStatus = NodeClassStatus()


class PodTemplate(ApiObject, frozen=True):
    """The pod template inside a workload."""

    spec: PodSpec = PodSpec()


class WorkloadSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()
    replicas: int | None = None


class Workload(ApiObject, frozen=True):
    """Deployment, StatefulSet, DaemonSet, ReplicaSet or Job."""

    spec: WorkloadSpec = WorkloadSpec()


class CronJobSpec(Wire, frozen=True):
    job_template: Workload = Workload()


class CronJob(ApiObject, frozen=True):
    spec: CronJobSpec = CronJobSpec()


# The versions and kinds of objects that are a pod, or have a template of pods.
KINDS_WITH_PODS = frozenset(
    {
        *(("v1", kind) for kind in ("Pod", "PodTemplate", "ReplicationController")),
        *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
        *(("batch/v1", kind) for kind in ("Job", "CronJob")),
    }
)


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Instant | None = None
    renew_time: Instant | None = None
    lease_transitions: int | None = None


class Lease(ApiObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder_pod(self) -> str:
        """Controllers call themselves by the name of their pod, `_` and a random text."""
        return (self.spec.holder_identity or "").rpartition("_")[0]


class Namespace(ApiObject, frozen=True):
    """Only its labels are read."""


class VolumeSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    node_name: str = ""
    source: VolumeSource = VolumeSource()


class VolumeAttachment(ApiObject, frozen=True):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


def is_true(of: NodeClaim | NodePool | Node, condition: names.ConditionType) -> bool:
    """Whether the object has the condition with the status True."""
    return any(entry.type == condition and entry.status == "True" for entry in of.status.conditions)


def condition_in(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Conditions have unique types."""
    return next((condition for condition in conditions if condition.type == type_), None)


def why_not_ready(pool: NodePool) -> str:
    """Why the NodePool makes no new nodes, for people; empty if it is Ready."""
    if is_true(pool, names.ConditionType.READY):
        return ""
    causes = (names.ConditionType.VALIDATION_SUCCEEDED, names.ConditionType.NODECLASS_READY)
    failed = (condition_in(pool.status.conditions, cause) for cause in causes)
    said = [entry.message for entry in failed if entry is not None and entry.status == "False" and entry.message]
    ready = condition_in(pool.status.conditions, names.ConditionType.READY)  # whose message only names these conditions
    return ": ".join(filter(None, ["it is not Ready", "; ".join(said) or (ready.message if ready else "")]))
