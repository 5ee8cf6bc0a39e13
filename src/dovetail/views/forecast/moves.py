"""When may the controller move something for the first time, and when may it take a node, whatever moves before?

Up to the first move nothing but time changes, so that all that the rules say comes true. After it pods may be anywhere,
and only what hangs on a node's own clock is sure.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from dovetail.api.names import Condition, Reason
from dovetail.model.records import PodRecord
from dovetail.model.snapshot import Snapshot
from dovetail.rules.budgets import BUDGETED, is_initialized, limit_below
from dovetail.rules.nodes import CONSOLIDATION, consolidation_reason, costs_to_move, drain_limit, standing_rules
from dovetail.rules.states import IN_DISRUPTION, State
from dovetail.rules.verdict import Rule, together
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of, any_of, complement, since
from dovetail.views.forecast.outlook import Outlook
from dovetail.views.pools import Pool

# Whoever may go so soon after another is not alone: the other's pods are on their way.
SETTLED_AFTER = timedelta(minutes=5)


class Moves:
    """The first moves of all nodes, and what they leave sure."""

    def __init__(
        self,
        snapshot: Snapshot,
        looks: Sequence[Outlook],
        pools: Iterable[Pool],
        at: datetime,
        *,
        drained: Iterable[datetime] = (),
    ) -> None:
        """`drained`: when something first happens in each drain that has begun."""
        self._at = at
        self._highest = max((pod.priority for pod in snapshot.pods if pod.reschedulable), default=0)
        unknown = not snapshot.pods or any(look.pool is None and look.member.pool for look in looks)
        unsettled = unknown or any(map(_is_unsettled, snapshot.pods)) or any(map(_is_off, pools))
        firsts = [*drained, *(first for look in looks if (first := self._first(look)) is not None)]
        self.earliest = at if unsettled else min(firsts, default=None)
        """None: nothing ever moves."""
        # For the pods of a drain nodes may be kept free that look as if they could go.
        self._owing = any(
            pod.reschedulable for look in looks if look.state in IN_DISRUPTION for pod in look.member.pods
        )
        self._soon = sum(self.earliest is not None and first <= self.earliest + SETTLED_AFTER for first in firsts)

    def is_exact(self, at: datetime) -> bool:
        """Whether nothing has moved by then."""
        return self.earliest is None or at <= self.earliest

    def is_alone(self, at: datetime) -> bool:
        """Whether the one who goes then is the first and goes alone."""
        return self._at < at == self.earliest and self._soon == 1 and not self._owing

    def _first(self, look: Outlook) -> datetime | None:
        """When something may first happen to the node itself."""
        if look.state in IN_DISRUPTION - {State.DRAINING} or not _is_steady(look):
            return self._at
        if look.state is State.DRAINING:
            return None  # its drain tells
        taken = [goes.first(self._at) for reason in BUDGETED if (goes := may_go(look, reason)) is not NEVER]
        expires_at = None if look.expires_at is None else max(self._at, look.expires_at)
        return min((at for at in (expires_at, *taken) if at is not None), default=None)

    def stays_until(self, look: Outlook, at: datetime) -> bool:
        """Whether nothing but its expiration can take the node before then, whatever else moves."""
        if self.is_exact(at):
            return True
        if look.pool is None or look.state in IN_DISRUPTION or not _is_steady(look):
            return False
        return all(
            (first := self._could_go(look, reason).first(self._at)) is None or first >= at for reason in BUDGETED
        )

    def has_pods_until(self, look: Outlook, at: datetime) -> bool:
        """Whether nobody can push its pods off before then."""
        return self.is_exact(at) or all(pod.priority >= self._highest for pod in look.member.pods if pod.reschedulable)

    def _could_go(self, look: Outlook, reason: Reason) -> Instants:
        """When the node could be taken even if pods came and went: what only it and its firm pods say."""
        assert look.pool is not None
        wanted, pool = _wanted(look, reason), look.pool
        if reason in CONSOLIDATION:
            stays_busy = any(costs_to_move(pod) and self._is_firm(pod) for pod in look.member.pods)
            wanted = NEVER if reason is Reason.EMPTY and stays_busy else ALWAYS
        if wanted is NEVER:
            return NEVER
        parts = [wanted, together(standing_rules(look.member, look.record, reason, self._at, look.own))]
        if drain_limit(look.member, reason) is None:
            parts += [
                verdict.when
                for pod, verdict in look.telling
                if self._is_firm(pod) and verdict.rule is not Rule.POD_DISRUPTION_BUDGET
            ]
        # With however many nodes: only a budget of nothing keeps everybody.
        parts.append(complement(limit_below(pool.budgets, reason, 1, 1, pool.reading)))
        return all_of(parts)

    def _is_firm(self, pod: PodRecord) -> bool:
        """Whether no other pod can push it off its node."""
        return pod.priority >= self._highest


def may_go(look: Outlook, reason: Reason) -> Instants:
    """When the node may be taken for the reason: it has it, and all rules allow, budgets as they are in use now."""
    wanted = _wanted(look, reason)
    return NEVER if wanted is NEVER else all_of([wanted, look.judged[reason].when])


def _wanted(look: Outlook, reason: Reason) -> Instants:
    """When the node has the reason. Whether its pods have a place elsewhere takes more than rules: at any time."""
    claim = look.member.claim
    if claim is None or look.member.node is None:
        return NEVER
    if reason in CONSOLIDATION:
        return ALWAYS if consolidation_reason(look.member) is reason else NEVER
    if reason is Reason.EXPIRED:
        ends = [at for at in (look.expires_at, look.gracefully_expires_at) if at is not None]
        return ALWAYS if claim.is_true(Condition.EXPIRED) else any_of(map(since, ends))
    return ALWAYS if look.judged[reason].wanted else NEVER


def _is_steady(look: Outlook) -> bool:
    """Whether the node has come up and is well; else it may be given up, or pods be taken off it."""
    return is_initialized(look.member) and look.member.node is not None and look.member.node.ready


def _is_unsettled(pod: PodRecord) -> bool:
    """Whether the pod is on its way: it has no place yet, or is ending."""
    return (not pod.node_name and pod.active) or (pod.deleted_at is not None and not pod.terminal)


def _is_off(pool: Pool) -> bool:
    """Whether the pool is on its way to another number of nodes, or away."""
    record = pool.record
    return record.deleted_at is not None or (record.replicas is not None and record.replicas != pool.claims)
