"""Which fields must an object have, which the rules pass over, and those who play it cannot do without?

The structs of `api` are lenient, so that a rule can tell what is wrong with one field of an object. Here is what a real
API server refuses: an affinity without a topology key, a condition without a type, a grace period of ages.
"""

from typing import Annotated, Any

import msgspec

from dovetail.api.objects import Instant, Wire

Count = Annotated[int, msgspec.Meta(ge=0)]
# No cluster runs more; to play them one by one would take for ever.
Pods = Annotated[int, msgspec.Meta(ge=0, le=150_000)]
# In years more than anybody waits, and still within the calendar.
Seconds = Annotated[int, msgspec.Meta(ge=-(10**10), le=10**10)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Owner(Wire, frozen=True):
    api_version: _Text
    kind: _Text
    name: _Text
    uid: _Text
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(Wire, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Count = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: Seconds | None = None
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(Wire, frozen=True):
    type: _Text
    status: _Text
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class Status(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Conditioned(Wire, frozen=True):
    """What every object has."""

    metadata: Meta = Meta()
    status: Status = Status()


# -- selectors ---------------------------------------------------------------------------------------------------------


class Expression(Wire, frozen=True):
    key: _Text
    operator: _Text
    values: tuple[str, ...] = ()


class Field(Wire, frozen=True):
    key: _Text
    operator: _Text
    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Selector(Wire, frozen=True):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()


class NodeTerm(Wire, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Field, ...] = ()


class RequiredNodes(Wire, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...]


class PreferredNodes(Wire, frozen=True):
    weight: int
    preference: NodeTerm


class NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: RequiredNodes | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] = ()


class PodTerm(Wire, frozen=True):
    topology_key: _Text
    label_selector: Selector | None = None
    namespace_selector: Selector | None = None


class PreferredPods(Wire, frozen=True):
    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] = ()


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Spread(Wire, frozen=True):
    topology_key: _Text
    max_skew: Annotated[int, msgspec.Meta(ge=1)]
    min_domains: Annotated[int, msgspec.Meta(ge=1)] | None = None
    label_selector: Selector | None = None


# -- pods --------------------------------------------------------------------------------------------------------------


class Toleration(Wire, frozen=True):
    toleration_seconds: Seconds | None = None


class ClaimVolume(Wire, frozen=True):
    claim_name: _Text


class Volume(Wire, frozen=True):
    name: _Text
    persistent_volume_claim: ClaimVolume | None = None


class Gate(Wire, frozen=True):
    condition_type: _Text


class Sleep(Wire, frozen=True):
    seconds: Seconds = 0


class Hook(Wire, frozen=True):
    sleep: Sleep = Sleep()


class Lifecycle(Wire, frozen=True):
    pre_stop: Hook | None = None


class Container(Wire, frozen=True):
    name: _Text
    image: str = ""
    lifecycle: Lifecycle | None = None


class PodSpec(Wire, frozen=True):
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()
    volumes: tuple[Volume, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    readiness_gates: tuple[Gate, ...] = ()
    scheduling_gates: tuple[dict[str, Any], ...] = ()
    termination_grace_period_seconds: Seconds | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""


class Ended(Wire, frozen=True):
    finished_at: Instant | None = None


class ContainerState(Wire, frozen=True):
    terminated: Ended | None = None


class ContainerStatus(Wire, frozen=True):
    restart_count: Count = 0
    state: ContainerState = ContainerState()


class PodStatus(Status, frozen=True):
    phase: str = ""
    start_time: Instant | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# -- workloads ---------------------------------------------------------------------------------------------------------

_Share = Count | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}%$")]


class RollingUpdate(Wire, frozen=True):
    max_surge: _Share | None = None
    max_unavailable: _Share | None = None
    partition: Count | None = None


class Strategy(Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(Wire, frozen=True):
    start: Count = 0


class ClaimMeta(Wire, frozen=True):
    name: _Text
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class ClaimTemplate(Wire, frozen=True):
    metadata: ClaimMeta
    spec: dict[str, Any]


class WorkloadSpec(Wire, frozen=True):
    """Of all kinds of workloads together."""

    selector: Selector | None = None
    template: Pod | None = None
    replicas: Pods | None = None
    min_ready_seconds: Seconds | None = None
    progress_deadline_seconds: Seconds | None = None
    revision_history_limit: Count | None = None
    paused: bool | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    ordinals: Ordinals | None = None
    pod_management_policy: str = ""
    service_name: str = ""
    volume_claim_templates: tuple[ClaimTemplate, ...] | None = None
    parallelism: Pods | None = None
    completions: Count | None = None
    backoff_limit: Count | None = None
    active_deadline_seconds: Seconds | None = None
    ttl_seconds_after_finished: Seconds | None = None
    suspend: bool | None = None


class WorkloadStatus(Status, frozen=True):
    replicas: Count = 0
    ready_replicas: Count = 0
    available_replicas: Count = 0
    updated_replicas: Count = 0
    observed_generation: Count = 0
    collision_count: Count = 0
    current_revision: str = ""
    update_revision: str = ""
    active: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    start_time: Instant | None = None


class Workload(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


# -- others ------------------------------------------------------------------------------------------------------------


class NodeAddress(Wire, frozen=True):
    type: _Text
    address: str


class NodeStatus(Status, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()


class NodeSpec(Wire, frozen=True):
    unschedulable: bool | None = None


class Node(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class BudgetStatus(Status, frozen=True):
    disruptions_allowed: Count = 0
    current_healthy: Count = 0
    desired_healthy: Count = 0
    expected_pods: Count = 0
    observed_generation: Count = 0
    disrupted_pods: dict[str, Instant] = msgspec.field(default_factory=dict)


_Few = int | Annotated[str, msgspec.Meta(max_length=20)] | None


class BudgetSpec(Wire, frozen=True):
    min_available: _Few = None
    max_unavailable: _Few = None
    selector: Selector | None = None


class PodDisruptionBudget(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class PriorityClass(Wire, frozen=True):
    metadata: Meta = Meta()
    value: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0
    preemption_policy: str = ""
    global_default: bool = False


class VolumeAffinity(Wire, frozen=True):
    required: RequiredNodes | None = None


class VolumeSpec(Wire, frozen=True):
    node_affinity: VolumeAffinity = VolumeAffinity()


class PersistentVolume(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: VolumeSpec = VolumeSpec()
