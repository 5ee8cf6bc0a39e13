"""Compact records of pods: 100,000 must fit into little memory.

Records keep only what a rule or scheduling reads, and share equal labels. A bad value is replaced here if it has one
safe meaning; otherwise it stays text for the rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import IntFlag
from sys import intern
from types import MappingProxyType
from weakref import ReferenceType, WeakValueDictionary, ref

import msgspec

from dovetail.api import names, objects
from dovetail.api.pod_specs import Affinity, SchedulingPod, SchedulingPodSpec, SchedulingPodStatus
from dovetail.model.record_fields import Record, finalizers, utc
from dovetail.model.refs import Ref, shared_ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings, SpanStart
from dovetail.model.spec_limits import UNCOUNTED_BYTES, within_limits
from dovetail.values import limits

# The API server's default.
DEFAULT_GRACE_SECONDS = 30
_POD_ANNOTATIONS = frozenset((*names.PROTECTION_ANNOTATIONS, names.POD_DELETION_COST, names.POD_HOLD))
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?|(?i:inf(?:inity)?))")
_NONE: Mapping[str, str] = MappingProxyType({})
_TERMINAL = frozenset(("Succeeded", "Failed"))
_STATUSES = {"True": True, "False": False}
_DISRUPTED_KEYS = frozenset(("", names.DISRUPTED_TAINT))  # without a key, all taints are tolerated
_DISRUPTED_EFFECTS = frozenset(("", names.TaintEffect.NO_SCHEDULE))
_RESIZES = frozenset(("PodResizePending", "PodResizeInProgress"))
_FEW_MAPPINGS = 1024
_AS_KEY = msgspec.msgpack.Encoder()


class Owner(IntFlag):
    """The owners of a pod that matter to disruption."""

    NONE = 0
    DAEMONSET = 1
    STATEFULSET = 2
    NODE = 4  # a static pod's mirror


_OWNERS = {
    ("apps/v1", "DaemonSet"): Owner.DAEMONSET,
    ("apps/v1", "StatefulSet"): Owner.STATEFULSET,
    ("v1", "Node"): Owner.NODE,
}
_SPREAD_OWNERS = frozenset({("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("v1", "ReplicationController")})


class PodScheduling(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What only scheduling reads of a pod. Like pods share one object.

    It leaves out what differs between replicas: volumes, whose claims the record names, and the node of a DaemonSet's
    pod. `status` is empty unless the pod is being resized.
    """

    spec: SchedulingPodSpec
    status: SchedulingPodStatus = SchedulingPodStatus()
    nominated_node: str = ""  # where it goes after a preemption
    daemon_set: str = ""  # the UID of its DaemonSet
    spread_owner: tuple[str, str] | None = None  # kind and name: whose selector default spread constraints use
    flaw: str = ""  # the limits that the spec exceeds; those parts are left out


class PodRecord(Record, frozen=True):
    namespace: str
    name: str
    uid: str
    node_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created_at: datetime | None
    deleted_at: datetime | None
    phase: str
    ready: bool | None
    owner: Owner
    grace_seconds: int
    priority: int
    critical: bool
    tolerates_disrupted: bool
    volume_claims: tuple[str, ...] = ()  # the names of its PersistentVolumeClaims
    scheduling: PodScheduling | None = None  # None: not read
    scheduled_at: datetime | None = None  # the last transition of the condition PodScheduled
    finalizers: tuple[str, ...] = ()  # of a terminating pod
    started_at: datetime | None = None  # only if protections count from it
    unscheduled: str = ""  # the reason of the condition PodScheduled, without a node
    settings: RuleSettings = DEFAULT_SETTINGS  # how its annotations are read

    @property
    def object(self) -> Ref:
        return shared_ref("Pod", self.namespace, self.name)

    @property
    def protected_from(self) -> datetime | None:
        """The instant from which a duration of do-not-disrupt counts (R2)."""
        return self.created_at if self.settings.durations is SpanStart.CREATION else self.started_at

    @property
    def terminal(self) -> bool:
        return self.phase in _TERMINAL

    @property
    def active(self) -> bool:
        """Neither finished nor terminating. Only active pods protect anything (R4)."""
        return self.deleted_at is None and self.phase not in _TERMINAL

    @property
    def reschedulable(self) -> bool:
        """Whether it needs another place when its node goes (02 §4.1)."""
        if self.owner is Owner.NONE:  # most pods; flags are slow
            return self.active
        if self.owner & (Owner.DAEMONSET | Owner.NODE):
            return False
        returns = bool(self.owner & Owner.STATEFULSET) and self.deleted_at is not None  # under the same name
        return self.active or returns

    @property
    def provisionable(self) -> bool:
        """Whether it waits for a new node (06 §1). No scheduler looks at a pod that is terminating or finished."""
        waiting = self.scheduling
        if waiting is None or self.unscheduled != "Unschedulable" or waiting.nominated_node or self.node_name:
            return False
        return self.active and not self.owner & (Owner.DAEMONSET | Owner.NODE)

    @property
    def eviction_cost(self) -> float:
        """1, plus deletion cost and priority, within ±10. An unreadable cost counts as 0 (02 §6)."""
        text = self.annotations.get(names.POD_DELETION_COST, "0")
        deletion_cost = float(text) if len(text) <= limits.VALUE and _NUMBER.fullmatch(text) else 0.0
        priority = max(-(2**31), min(2**31, self.priority))  # a file may contain a number that a float cannot hold
        return max(-10.0, min(10.0, 1.0 + deletion_cost / 2**27 + priority / 2**25))


class _SharedMapping(dict[str, str]):
    """A dict that can be weakly referenced."""

    __slots__ = ("__weakref__",)


class PodInterner:
    """Makes records, which share equal parts as long as one of them uses these.

    `spread_by_default`: keep what decides which default spread constraints a pod gets. Fewer pods share parts then.
    """

    def __init__(self, *, spread_by_default: bool = False, settings: RuleSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._from_start = settings.in_drains.durations is SpanStart.START
        self._spread_by_default = spread_by_default
        # By the hash of the items: a key with the items would be larger than the mapping. A WeakValueDictionary is
        # several times slower if every pod has different labels.
        self._mappings: dict[int, ReferenceType[_SharedMapping]] = {}
        self._sweep_above = _FEW_MAPPINGS
        self._schedulings: WeakValueDictionary[bytes, PodScheduling] = WeakValueDictionary()

    def pod(self, pod: objects.Pod) -> PodRecord:
        return self._pod(pod, None)

    def watched_pod(self, pod: SchedulingPod) -> PodRecord:
        """The record with what scheduling reads."""
        return self._pod(pod, self._scheduling(pod), _scheduled_at(pod.status))

    def _pod(
        self, pod: objects.Pod, scheduling: PodScheduling | None, scheduled_at: datetime | None = None
    ) -> PodRecord:
        meta, spec = pod.metadata, pod.spec
        owner = Owner.NONE
        for reference in meta.owner_references:
            flag = _OWNERS.get((reference.api_version, reference.kind))
            if flag is not None:  # joining flags is slow, and most pods have none of these owners
                owner |= flag
        grace = spec.termination_grace_period_seconds
        return PodRecord(
            namespace=intern(meta.namespace or "default"),
            name=meta.name,
            uid=meta.uid,
            node_name=intern(spec.node_name),
            labels=self._shared(meta.labels),
            annotations=_NONE if _POD_ANNOTATIONS.isdisjoint(meta.annotations) else self._read(meta.annotations),
            created_at=utc(meta.creation_timestamp),
            deleted_at=utc(meta.deletion_timestamp),
            phase=intern(pod.status.phase),
            ready=_condition(pod.status.conditions, "Ready"),
            owner=owner,
            grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace if grace > 0 else 0,
            priority=spec.priority or 0,
            critical=spec.priority_class_name in names.CRITICAL_PRIORITY_CLASSES,
            tolerates_disrupted=bool(spec.tolerations) and _tolerates_disrupted(spec.tolerations),
            volume_claims=tuple(_volume_claims(pod)) if spec.volumes else (),
            scheduling=scheduling,
            scheduled_at=scheduled_at,
            finalizers=finalizers(meta),
            started_at=utc(pod.status.start_time) if self._from_start else None,
            unscheduled="" if spec.node_name else _unscheduled(pod.status),
            settings=self._settings,
        )

    def _scheduling(self, pod: SchedulingPod) -> PodScheduling:
        """Found by its encoding, because its fields are not hashable."""
        spec, status = pod.spec, pod.status
        daemon_set = _daemon_set(pod.metadata.owner_references)
        nominated = "" if spec.node_name else status.nominated_node_name
        running = status.container_statuses or status.init_container_statuses
        resize = _resize(status) if running and _is_resizing(pod) else None
        by_default = self._spread_by_default and not spec.topology_spread_constraints
        owner = _spread_owner(pod.metadata.owner_references) if by_default else None
        shared = msgspec.structs.replace(
            spec,
            node_name="",
            priority_class_name="",
            priority=None,
            volumes=[],
            termination_grace_period_seconds=None,
            affinity=_of_any_node(spec.affinity) if daemon_set else spec.affinity,
            scheduler_name=spec.scheduler_name if by_default else "",
        )
        flaw, others = "", (nominated, daemon_set, resize, owner)
        key = _AS_KEY.encode((shared, others))
        scheduling = self._schedulings.get(key)
        if scheduling is None and len(key) > UNCOUNTED_BYTES:
            shared, flaw = within_limits(shared)
            if flaw:
                key = _AS_KEY.encode((shared, others, flaw))
                scheduling = self._schedulings.get(key)
        if scheduling is None:
            scheduling = PodScheduling(shared, resize or SchedulingPodStatus(), nominated, daemon_set, owner, flaw)
            self._schedulings[key] = scheduling
        return scheduling

    def _shared(self, labels: dict[str, str]) -> Mapping[str, str]:
        if not labels:
            return _NONE
        # The API server sorts the keys. A mapping in another order, or with a colliding hash, is not shared.
        key = hash(tuple(labels.items()))
        reference = self._mappings.get(key)
        shared = None if reference is None else reference()
        if shared is not None:
            return shared if shared == labels else labels
        made = _SharedMapping(labels)
        self._mappings[key] = ref(made)
        if len(self._mappings) > self._sweep_above:
            self._sweep()
        return made

    def _sweep(self) -> None:
        """Forgets mappings that no record uses. The table has to double before the next sweep, so sweeps are cheap."""
        self._mappings = {key: mapping for key, mapping in self._mappings.items() if mapping() is not None}
        self._sweep_above = _FEW_MAPPINGS + 2 * len(self._mappings)

    def _read(self, annotations: dict[str, str]) -> Mapping[str, str]:
        # Cut long texts to one character above the limit, which makes them invalid all the same.
        longest = limits.SCHEDULE + 1
        return self._shared({key: text[:longest] for key, text in annotations.items() if key in _POD_ANNOTATIONS})


def _spread_owner(owners: Sequence[objects.OwnerReference]) -> tuple[str, str] | None:
    """The controller of the pod, if kube-scheduler reads the selectors of its kind."""
    for owner in owners:
        if owner.controller and (owner.api_version, owner.kind) in _SPREAD_OWNERS:
            return owner.kind, owner.name
    return None


def _daemon_set(owners: Sequence[objects.OwnerReference]) -> str:
    for owner in owners:
        if owner.kind == "DaemonSet" and owner.api_version == "apps/v1":
            return owner.uid
    return ""


def _unscheduled(status: objects.PodStatus) -> str:
    for condition in status.conditions:
        if condition.type == "PodScheduled":
            return intern(condition.reason)
    return ""


def _scheduled_at(status: SchedulingPodStatus) -> datetime | None:
    for condition in status.conditions:
        if condition.type == "PodScheduled":
            return utc(condition.last_transition_time) if condition.status == "True" else None
    return None


def _of_any_node(affinity: Affinity) -> Affinity:
    """Without the node names in matchFields, by which each pod of a DaemonSet asks for its node."""
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None or not any(term.match_fields for term in required.node_selector_terms):
        return affinity
    replace = msgspec.structs.replace
    terms = tuple(
        replace(term, match_fields=tuple(replace(field, values=[]) for field in term.match_fields))
        for term in required.node_selector_terms
    )
    nodes = replace(
        affinity.node_affinity,
        required_during_scheduling_ignored_during_execution=replace(required, node_selector_terms=terms),
    )
    return replace(affinity, node_affinity=nodes)


def _is_resizing(pod: SchedulingPod) -> bool:
    """Whether the containers may have other resources than the spec, or the kubelet has not seen the spec yet."""
    status = pod.status
    if status.resize or pod.metadata.generation > status.observed_generation:
        return True
    return any(condition.type in _RESIZES for condition in status.conditions)


def _resize(status: SchedulingPodStatus) -> SchedulingPodStatus:
    return SchedulingPodStatus(
        # Without times, which differ between replicas.
        conditions=tuple(
            msgspec.structs.replace(condition, last_transition_time=None)
            for condition in status.conditions
            if condition.type in _RESIZES
        ),
        resize=status.resize,
        container_statuses=status.container_statuses,
        init_container_statuses=status.init_container_statuses,
    )


def _volume_claims(pod: objects.Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:  # its claim is named after both
            yield f"{pod.metadata.name}-{volume.name}"


def _condition(conditions: Sequence[objects.ConditionStatus | objects.Condition], wanted: str) -> bool | None:
    for condition in conditions:
        if condition.type == wanted:
            return _STATUSES.get(condition.status)
    return None


def _tolerates_disrupted(tolerations: Sequence[objects.Toleration]) -> bool:
    for toleration in tolerations:
        if toleration.key not in _DISRUPTED_KEYS or toleration.effect not in _DISRUPTED_EFFECTS:
            continue
        if toleration.operator == "Exists":
            return True
        if toleration.operator in {"", "Equal"} and toleration.key and not toleration.value:
            return True
    return False
