"""Pods with the fields that scheduling reads, as partial structs.

`objects.Pod` has what the rules read. `SchedulingPod` adds where the pod can run: a watch decodes each pod once.
Values with a syntax (quantities, numbers in tolerations) stay text, so that an object with a bad value can be decoded.
"""

from collections.abc import Sequence

import msgspec

from dovetail.api.objects import (
    ApiObject,
    ConditionStatus,
    Instant,
    LabelSelector,
    NodeSelectorRequirement,
    Pod,
    PodSpec,
    PodStatus,
    Quantities,
    Wire,
)


class ContainerResources(Wire, frozen=True):
    requests: Quantities = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)


class ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    """`restartPolicy` is that of init containers: `Always` makes a sidecar."""

    name: str = ""
    resources: ContainerResources = ContainerResources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class ContainerStatus(Wire, frozen=True):
    """The current resources of a container, and those that the kubelet has allocated."""

    name: str = ""
    resources: ContainerResources = ContainerResources()
    allocated_resources: Quantities = msgspec.field(default_factory=dict)


class NodeSelectorTerm(Wire, frozen=True):
    """All expressions must match; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """One of the terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodes(Wire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] = ()


class PodAffinityTerm(Wire, frozen=True):
    """A missing selector matches no pod, an empty one all."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPods(Wire, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Affinity or anti-affinity."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] = ()


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpreadConstraint(Wire, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class ResourceClaim(Wire, frozen=True):
    """Of dynamic resource allocation, which is not supported (R39)."""

    name: str = ""


class SchedulingPodSpec(PodSpec, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = Affinity()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ContainerResources = ContainerResources()
    overhead: Quantities = msgspec.field(default_factory=dict)
    host_network: bool = False
    resource_claims: tuple[ResourceClaim, ...] = ()
    scheduler_name: str = ""


class PodCondition(ConditionStatus, frozen=True):
    last_transition_time: Instant | None = None


class SchedulingPodStatus(PodStatus, frozen=True):
    conditions: Sequence[PodCondition] = []
    nominated_node_name: str = ""
    resize: str = ""  # before Kubernetes 1.33; a condition since
    observed_generation: int = 0
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class SchedulingPod(Pod, frozen=True):
    """A pod, or the pod template of a workload, with everything that Dovetail reads of it."""

    spec: SchedulingPodSpec = SchedulingPodSpec()
    status: SchedulingPodStatus = SchedulingPodStatus()


class DaemonSetSpec(Wire, frozen=True):
    template: SchedulingPod = SchedulingPod()


class DaemonSet(ApiObject, frozen=True):
    spec: DaemonSetSpec = DaemonSetSpec()


class LabelsSelectorSpec(Wire, frozen=True):
    """Of Services and ReplicationControllers, whose selectors are plain labels."""

    selector: dict[str, str] | None = None


class Service(ApiObject, frozen=True):
    spec: LabelsSelectorSpec = LabelsSelectorSpec()


class ReplicationController(ApiObject, frozen=True):
    spec: LabelsSelectorSpec = LabelsSelectorSpec()


class ReplicaSetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(ApiObject, frozen=True):
    """A ReplicaSet or StatefulSet."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
