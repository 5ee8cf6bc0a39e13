"""Records of Nodes and NodeClaims: the fields that decisions read."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.api import names, objects
from dovetail.model.beside import Hold, Roll, is_stamped, read_hold, read_roll
from dovetail.model.record_fields import Record, cut, finalizers, nillable_ns, simple_ns, utc
from dovetail.model.refs import Ref, shared_ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.values import limits


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
    hashed: bool = False  # it has a hash with a version, which Karpenter compares with that of its NodePool
    machine: InstanceLabels = InstanceLabels()
    finalizers: tuple[str, ...] = ()  # of a NodeClaim that is being deleted
    node_name: str = ""  # of its Node, also if that is gone

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
        return utc(entry.last_transition_time) if entry is not None and entry.status == "True" else None


def node_record(node: objects.Node, settings: RuleSettings = DEFAULT_SETTINGS) -> NodeRecord:
    meta = node.metadata
    ready = objects.condition_in(node.status.conditions, names.ConditionType.READY)
    initialized = meta.labels.get(names.INITIALIZED_LABEL) == "true"
    return NodeRecord(
        name=meta.name,
        pool=meta.pool,
        provider_id=node.spec.provider_id,
        created_at=utc(meta.creation_timestamp),
        deleted_at=utc(meta.deletion_timestamp),
        do_not_disrupt=meta.annotations.get(names.DO_NOT_DISRUPT),
        do_not_repair=meta.annotations.get(names.DO_NOT_REPAIR),
        # An initialized Node is registered, even if the label has been edited.
        registered=initialized or meta.labels.get(names.REGISTERED_LABEL) == "true",
        initialized=initialized,
        ready=ready is not None and ready.status == "True",
        taints=tuple((taint.key, taint.effect) for taint in node.spec.taints),
        held=cut(meta.annotations.get(names.HELD)),
        machine=_machine(meta.labels),
        ready_changed_at=None if ready is None else utc(ready.last_transition_time),
        unready_message="" if ready is None or ready.status == "True" else ready.message or ready.reason,
        cordoned=node.spec.unschedulable,
        cordoned_at=_cordoned_at(node) if node.spec.unschedulable else None,
        finalizers=finalizers(meta),
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
    return next((utc(taint.time_added) for taint in node.spec.taints if taint.key == names.UNSCHEDULABLE_TAINT), None)


def claim_record(claim: objects.NodeClaim) -> ClaimRecord:
    meta, status = claim.metadata, claim.status
    return ClaimRecord(
        name=meta.name,
        uid=meta.uid,
        pool=meta.pool,
        provider_id=status.provider_id,
        created_at=utc(meta.creation_timestamp),
        deleted_at=utc(meta.deletion_timestamp),
        expire_after_ns=nillable_ns(claim.spec.expire_after),
        grace_period_ns=simple_ns(claim.spec.termination_grace_period),
        termination_timestamp=meta.annotations.get(names.TERMINATION_TIMESTAMP),
        last_pod_event_at=utc(status.last_pod_event_time),
        conditions={condition.type: condition for condition in status.conditions},
        awaits=awaited_replacements(meta.annotations.get(names.DISRUPTION_COMMAND)),
        replacement=names.REPLACEMENT_OF in meta.annotations,
        rolled=cut(meta.annotations.get(names.ROLLED)),
        stamped=is_stamped(meta.annotations),
        hashed=names.NODEPOOL_HASH in meta.annotations and names.NODEPOOL_HASH_VERSION in meta.annotations,
        machine=_machine(meta.labels),
        finalizers=finalizers(meta),
        node_name=status.node_name,
    )


def awaited_replacements(command: str | None) -> AwaitedReplacements | None:
    """What the annotation of a command says, if it can be read."""
    if command is None or len(command) > limits.COMMAND:
        return None
    try:
        return msgspec.json.decode(command, type=AwaitedReplacements)
    except (msgspec.MsgspecError, RecursionError):
        return None
