"""Compact records of the objects that decisions read: 100,000 pods must fit into little memory.

Records keep only what a rule reads, and share equal labels. A bad value is replaced here if it has one safe meaning (an
unreadable duration is none); otherwise it stays text for the rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntFlag
from sys import intern
from types import MappingProxyType
from weakref import ReferenceType, WeakValueDictionary, ref

import msgspec

from dovetail.api import names, objects
from dovetail.api.pod_specs import Affinity, SchedulingPod, SchedulingPodSpec, SchedulingPodStatus
from dovetail.model.beside import OFF, Hold, Roll, read_hold, read_roll
from dovetail.model.refs import Ref, shared_ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings, SpanStart
from dovetail.model.spec_limits import UNCOUNTED_BYTES, within_limits
from dovetail.values import limits
from dovetail.values.duration import DurationError, parse_nillable, parse_simple
from dovetail.values.selector import Selector, SelectorError, make_selector

# The API server's default.
DEFAULT_GRACE_SECONDS = 30
# The API refuses more (R30).
MAX_BUDGETS = 50

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


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of all records. They have no cycles, so the garbage collector can ignore them."""


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


class InstanceLabels(Record, frozen=True, kw_only=True):
    """The machine of a node, by the labels of its Node or NodeClaim.

    `group`: who made it, if no NodePool did: Fargate, or a node group of the cloud.
    """

    instance_type: str | None = None
    capacity_type: str | None = None
    zone: str | None = None
    group: str | None = None


class NodeRecord(Record, frozen=True):
    name: str
    uid: str
    pool: str
    provider_id: str
    created_at: datetime | None
    deleted_at: datetime | None
    do_not_disrupt: str | None
    do_not_repair: str | None
    registered: bool
    initialized: bool
    ready: bool
    taints: tuple[tuple[str, str], ...]
    held: str | None = None  # the mark of a hold of ours, as it was written
    machine: InstanceLabels = InstanceLabels()
    ready_changed_at: datetime | None = None  # the last transition of the condition Ready
    unready_message: str = ""  # of the condition Ready, unless it is True
    cordoned: bool = False
    cordoned_at: datetime | None = None
    finalizers: tuple[str, ...] = ()  # of a Node that is being deleted
    settings: RuleSettings = DEFAULT_SETTINGS  # how its annotations are read

    @property
    def hold(self) -> Hold | None:
        """Our hold, if the annotation do-not-disrupt is ours and not a user's."""
        return None if self.held is None or self.do_not_disrupt != "true" else read_hold(self.held)

    @property
    def object(self) -> Ref:
        return shared_ref("Node", "", self.name)


class AwaitedReplacements(Record, frozen=True, rename="camel"):
    """The part of the annotation of a command that rules read: what it waits for, and until when (R23)."""

    deadline: objects.Instant
    replacements: tuple[str, ...] = ()


class ClaimRecord(Record, frozen=True):
    name: str
    uid: str
    pool: str
    provider_id: str
    created_at: datetime | None
    deleted_at: datetime | None
    expire_after_ns: int | None
    grace_period_ns: int | None
    termination_timestamp: str | None
    last_pod_event_at: datetime | None
    conditions: Mapping[str, objects.Condition]
    awaits: AwaitedReplacements | None = None
    replacement: bool = False  # of a command
    rolled: str | None = None  # the mark of a graceful replacement that was asked for or stamped, as it was written
    stamped: bool = False  # our stamp makes it drift
    machine: InstanceLabels = InstanceLabels()
    finalizers: tuple[str, ...] = ()  # of a NodeClaim that is being deleted

    @property
    def roll(self) -> Roll | None:
        """The graceful replacement that was asked for or stamped."""
        return None if self.rolled is None else read_roll(self.rolled)

    @property
    def object(self) -> Ref:
        return shared_ref("NodeClaim", "", self.name)

    def is_true(self, condition: names.ConditionType) -> bool:
        entry = self.conditions.get(condition)
        return entry is not None and entry.status == "True"

    def true_since(self, condition: names.ConditionType) -> datetime | None:
        entry = self.conditions.get(condition)
        return _utc(entry.last_transition_time) if entry is not None and entry.status == "True" else None


class PoolRecord(Record, frozen=True):
    name: str
    uid: str
    deleted_at: datetime | None
    consolidate_after_ns: int | None
    consolidation_policy: str
    graceful_expire_after_ns: int | None
    replicas: int | None
    grace_period_ns: int | None
    budgets: tuple[objects.Budget, ...]
    beside: bool = True  # guard and drive may write to its nodes
    settings: RuleSettings = DEFAULT_SETTINGS  # how it is read
    unread_graceful: bool = False  # it asks for graceful expiry, which is not in force

    @property
    def object(self) -> Ref:
        return Ref("NodePool", "", self.name)


class PdbRecord(Record, frozen=True):
    namespace: str
    name: str
    selector: Selector | None
    selector_problem: str | None
    min_available: int | str | None
    max_unavailable: int | str | None
    always_allow: bool
    disruptions_allowed: int | None
    expected_pods: int | None
    current_healthy: int | None
    desired_healthy: int | None

    @property
    def object(self) -> Ref:
        return Ref("PodDisruptionBudget", self.namespace, self.name)


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
            created_at=_utc(meta.creation_timestamp),
            deleted_at=_utc(meta.deletion_timestamp),
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
            finalizers=_finalizers(meta),
            started_at=_utc(pod.status.start_time) if self._from_start else None,
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
            return _utc(condition.last_transition_time) if condition.status == "True" else None
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


def node_record(node: objects.Node, settings: RuleSettings = DEFAULT_SETTINGS) -> NodeRecord:
    meta = node.metadata
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    initialized = meta.labels.get(names.INITIALIZED_LABEL) == "true"
    return NodeRecord(
        name=meta.name,
        uid=meta.uid,
        pool=meta.labels.get(names.NODEPOOL_LABEL, ""),
        provider_id=node.spec.provider_id,
        created_at=_utc(meta.creation_timestamp),
        deleted_at=_utc(meta.deletion_timestamp),
        do_not_disrupt=meta.annotations.get(names.DO_NOT_DISRUPT),
        do_not_repair=meta.annotations.get(names.DO_NOT_REPAIR),
        # An initialized Node is registered, even if the label has been edited.
        registered=initialized or meta.labels.get(names.REGISTERED_LABEL) == "true",
        initialized=initialized,
        ready=ready is not None and ready.status == "True",
        taints=tuple((taint.key, taint.effect) for taint in node.spec.taints),
        held=_cut(meta.annotations.get(names.HELD)),
        machine=_machine(meta.labels),
        ready_changed_at=None if ready is None else _utc(ready.last_transition_time),
        unready_message="" if ready is None or ready.status == "True" else ready.message or ready.reason,
        cordoned=node.spec.unschedulable,
        cordoned_at=_cordoned_at(node) if node.spec.unschedulable else None,
        finalizers=_finalizers(meta),
        settings=settings,
    )


def _machine(labels: Mapping[str, str]) -> InstanceLabels:
    group = next((labels[label] for label in names.NODE_GROUP_LABELS if labels.get(label)), None)
    return InstanceLabels(
        instance_type=labels.get(names.INSTANCE_TYPE_LABEL),
        capacity_type=labels.get(names.CAPACITY_TYPE_LABEL),
        zone=labels.get(names.ZONE_LABEL),
        group="Fargate" if labels.get(names.EKS_COMPUTE_TYPE_LABEL) == "fargate" else group,
    )


def _cordoned_at(node: objects.Node) -> datetime | None:
    return next((_utc(taint.time_added) for taint in node.spec.taints if taint.key == names.UNSCHEDULABLE_TAINT), None)


def _finalizers(meta: objects.ObjectMeta) -> tuple[str, ...]:
    """What holds the deletion up."""
    return () if meta.deletion_timestamp is None else tuple(map(intern, meta.finalizers))


def claim_record(claim: objects.NodeClaim) -> ClaimRecord:
    meta, status = claim.metadata, claim.status
    return ClaimRecord(
        name=meta.name,
        uid=meta.uid,
        pool=meta.labels.get(names.NODEPOOL_LABEL, ""),
        provider_id=status.provider_id,
        created_at=_utc(meta.creation_timestamp),
        deleted_at=_utc(meta.deletion_timestamp),
        expire_after_ns=_nillable(claim.spec.expire_after),
        grace_period_ns=_simple(claim.spec.termination_grace_period),
        termination_timestamp=meta.annotations.get(names.TERMINATION_TIMESTAMP),
        last_pod_event_at=_utc(status.last_pod_event_time),
        conditions={condition.type: condition for condition in status.conditions},
        awaits=awaited_replacements(meta.annotations.get(names.DISRUPTION_COMMAND)),
        replacement=names.REPLACEMENT_OF in meta.annotations,
        rolled=_cut(meta.annotations.get(names.ROLLED)),
        stamped=meta.annotations.get(names.NODEPOOL_HASH, "").startswith(names.STAMP_PREFIX),
        machine=_machine(meta.labels),
        finalizers=_finalizers(meta),
    )


def awaited_replacements(command: str | None) -> AwaitedReplacements | None:
    """What the annotation of a command says, if it can be read."""
    if command is None or len(command) > limits.COMMAND:
        return None
    try:
        return msgspec.json.decode(command, type=AwaitedReplacements)
    except (msgspec.MsgspecError, RecursionError):
        return None


def pool_record(pool: objects.NodePool, settings: RuleSettings = DEFAULT_SETTINGS) -> PoolRecord:
    disruption, graceful = pool.spec.disruption, _graceful_expire_after(pool)
    return PoolRecord(
        name=pool.metadata.name,
        uid=pool.metadata.uid,
        deleted_at=_utc(pool.metadata.deletion_timestamp),
        consolidate_after_ns=_nillable(disruption.consolidate_after),
        consolidation_policy=disruption.consolidation_policy,
        graceful_expire_after_ns=graceful if settings.graceful_expiry else None,
        replicas=pool.spec.replicas,
        grace_period_ns=_simple(pool.spec.template.spec.termination_grace_period),
        budgets=disruption.budgets[:MAX_BUDGETS],
        beside=pool.metadata.annotations.get(names.BESIDE) != OFF,
        settings=settings,
        unread_graceful=graceful is not None and not settings.graceful_expiry,
    )


def _graceful_expire_after(pool: objects.NodePool) -> int | None:
    """The field, or the annotation for CRDs that do not have the field."""
    by_field = _nillable(pool.spec.disruption.graceful_expire_after)
    annotation = pool.metadata.annotations.get(names.GRACEFUL_EXPIRE_AFTER)
    return by_field if by_field is not None or annotation is None else _nillable(annotation[: limits.DURATION + 1])


def pdb_record(pdb: objects.PodDisruptionBudget) -> PdbRecord:
    spec = pdb.spec
    selector, problem = None, None
    if spec.selector is not None:
        expressions = [(entry.key, entry.operator, entry.values) for entry in spec.selector.match_expressions]
        try:
            selector = make_selector(spec.selector.match_labels, expressions)
        except SelectorError as error:
            problem = str(error)
    return PdbRecord(
        namespace=pdb.metadata.namespace or "default",
        name=pdb.metadata.name,
        selector=selector,
        selector_problem=problem,
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        always_allow=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        disruptions_allowed=pdb.status.disruptions_allowed,
        expected_pods=pdb.status.expected_pods,
        current_healthy=pdb.status.current_healthy,
        desired_healthy=pdb.status.desired_healthy,
    )


def _cut(text: str | None) -> str | None:
    """A long text stays unreadable without using memory."""
    return None if text is None else text[: limits.VALUE + 1]


def _utc(at: datetime | None) -> datetime | None:
    if at is None or at.tzinfo is UTC:
        return at
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first or last hours of the calendar, in another zone
        return at.replace(tzinfo=UTC)


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


def _nillable(text: str) -> int | None:
    """An unreadable duration disables, so that no mistake expires or consolidates a node; `lint` reports it."""
    try:
        return parse_nillable(text)
    except DurationError:
        return None


def _simple(text: str | None) -> int | None:
    """An unreadable grace period counts as none, so that no mistake forces a drain; `lint` reports it."""
    try:
        return None if text is None else parse_simple(text)
    except DurationError:
        return None
