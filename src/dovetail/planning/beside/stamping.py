"""Which NodeClaims guard marks as drifted, so that Karpenter replaces them gracefully (10 §I.3).

Claims that are older than `gracefulExpireAfter`, and those that somebody asked to have replaced, go under the budgets
of their NodePool. Stamped claims use up budget until they are gone.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.api.names import ConditionType, Reason
from dovetail.model.beside import RollCause
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.beside.holding import respected_by_karpenter
from dovetail.rules.budgets import BudgetConsumer, PoolCounts, allowance, pool_counts, read_budgets
from dovetail.rules.deadlines import gracefully_expires_at
from dovetail.rules.protection import node_do_not_disrupt
from dovetail.rules.states import IN_DISRUPTION, NodeState, state_of


class GuardedNode(msgspec.Struct, frozen=True):
    """A node of a NodePool, and whether guard wants to hold it now."""

    member: ClusterNode
    held: bool


class StampOrder(msgspec.Struct, frozen=True):
    """A NodeClaim to mark, and why."""

    claim: str
    why: RollCause


class StampPlan(msgspec.Struct, frozen=True):
    """The claims to mark, those to take the mark back from, and when time alone changes that."""

    stamps: tuple[StampOrder, ...] = ()
    undo: tuple[str, ...] = ()
    until: datetime | None = None


def stamp_plan(
    pool: PoolRecord,
    nodes: Sequence[GuardedNode],
    now: datetime,
    reading: BudgetSemantics = BudgetSemantics.SEED,
) -> StampPlan:
    """The oldest claims go first; whoever asked goes before those that have expired."""
    undo = [node for node in nodes if is_pending(node.member) and (node.held or not _cause(node.member, pool, now))]
    names = {node.member.claim.name for node in undo if node.member.claim is not None}
    stamped = [node.member for node in nodes if _is_stamped(node.member) and _claim_name(node.member) not in names]
    counts = with_stamped(pool_counts(node.member for node in nodes), stamped)
    stamps: list[StampOrder] = []
    ahead: list[datetime | None] = []
    for cause, reason in ((RollCause.ASKED, Reason.DRIFTED), (RollCause.EXPIRED, Reason.EXPIRED)):
        waiting = [
            node.member for node in nodes if _is_candidate(node, now) and _cause(node.member, pool, now) is cause
        ]
        if waiting:
            allowed = allowance(read_budgets(pool.budgets), reason=reason, now=now, counts=counts, reading=reading)
            chosen = sorted(waiting, key=_age)[: max(0, allowed.allowed - len(stamps))]
            stamps += [StampOrder(_claim_name(member), cause) for member in chosen]
            ahead.append(allowed.until)
    ahead += [_expires_later(node.member, pool, now) for node in nodes]
    return StampPlan(tuple(stamps), tuple(sorted(names)), min((at for at in ahead if at is not None), default=None))


def is_pending(member: ClusterNode) -> bool:
    """Whether the claim is stamped, and Karpenter has not begun."""
    return _is_stamped(member) and not _has_begun(member)


def with_stamped(counts: PoolCounts, stamped: Iterable[ClusterNode]) -> PoolCounts:
    """Stamped claims count as disrupting, once."""
    consuming = {consumer.node for consumer in counts.consumers}
    more = tuple(
        BudgetConsumer(node=member.name, state=NodeState.DISRUPTING, unhealthy=False)
        for member in stamped
        if member.name not in consuming
    )
    return msgspec.structs.replace(counts, consumers=(*counts.consumers, *more))


def _cause(member: ClusterNode, pool: PoolRecord, now: datetime) -> RollCause | None:
    """Why the claim is to be replaced, if it is."""
    claim = member.claim
    if claim is None:
        return None
    if claim.roll is not None and claim.roll.why is RollCause.ASKED:
        return RollCause.ASKED
    at = gracefully_expires_at(claim, pool)
    return RollCause.EXPIRED if at is not None and at <= now else None


def _is_candidate(each: GuardedNode, now: datetime) -> bool:
    """Whether Karpenter would take the node, and nothing else is under way."""
    member = each.member
    claim, node = member.claim, member.node
    if claim is None or node is None or each.held or claim.stamped or claim.is_true(ConditionType.DRIFTED):
        return False
    if not claim.hashed:  # somebody else has made it, and Karpenter would not find it drifted
        return False
    if not claim.is_true(ConditionType.INITIALIZED) or _has_begun(member):
        return False
    if node.hold is not None or not node_do_not_disrupt(node, now).allowed:
        return False
    # With a termination grace period Karpenter takes drifted nodes also from pods that are protected for good.
    eventual = claim.grace_period_ns is not None
    return eventual or not any(pod.active and respected_by_karpenter(pod) for pod in member.pods)


def _has_begun(member: ClusterNode) -> bool:
    claim = member.claim
    begun = claim is not None and claim.is_true(ConditionType.DISRUPTION_REASON)
    return begun or member.deleting or state_of(member) in IN_DISRUPTION


def _is_stamped(member: ClusterNode) -> bool:
    return member.claim is not None and member.claim.stamped


def _expires_later(member: ClusterNode, pool: PoolRecord, now: datetime) -> datetime | None:
    at = None if member.claim is None else gracefully_expires_at(member.claim, pool)
    return at if at is not None and at > now else None


def _age(member: ClusterNode) -> tuple[float, str]:
    claim = _claim(member)
    return (0.0 if claim.created_at is None else claim.created_at.timestamp(), claim.name)


def _claim_name(member: ClusterNode) -> str:
    return _claim(member).name


def _claim(member: ClusterNode) -> ClaimRecord:
    assert member.claim is not None
    return member.claim
