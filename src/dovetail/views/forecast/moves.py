"""Decides which parts of a forecast are exact.

Until the controller moves something for the first time, only time changes, so everything that the rules say comes true.
After that pods may be anywhere, and only what depends on a node's own clock is certain.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.api.names import Reason
from dovetail.model.pod_records import PodRecord
from dovetail.rules.budgets import BUDGETED, is_initialized, limit_below
from dovetail.rules.nodes import CONSOLIDATION, costs_to_move, drain_limit, standing_rules, when_wanted
from dovetail.rules.states import IN_DISRUPTION, NodeState
from dovetail.rules.verdict import Rule, together
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of, complement
from dovetail.views.assessment import Assessment, NodeAssessment, PoolAssessment

# A node that may go so soon after another one is not alone: the pods of the other are still moving.
SETTLED_AFTER = timedelta(minutes=5)


class Moves:
    """The first moves of all nodes, and what stays certain after them."""

    def __init__(self, assessment: Assessment, firsts: Iterable[datetime]) -> None:
        """`firsts`: the first instant at which something may happen to each node, or in its drain."""
        self._assessment = assessment
        at, snapshot, nodes = assessment.at, assessment.snapshot, list(assessment.nodes)
        self._highest = max((pod.priority for pod in snapshot.pods if pod.reschedulable), default=0)
        unknown = not snapshot.pods or any(node.record is None and node.member.pool for node in nodes)
        unsettled = unknown or any(map(_is_unsettled, snapshot.pods)) or any(map(_is_off, assessment.pools.values()))
        firsts = list(firsts)
        self.earliest = at if unsettled else min(firsts, default=None)
        """None: nothing ever moves."""
        # A node that looks as if it could go may be kept for the pods of a drain.
        owing = any(pod.reschedulable for node in nodes if node.state in IN_DISRUPTION for pod in node.member.pods)
        soon = sum(self.earliest is not None and first <= self.earliest + SETTLED_AFTER for first in firsts)
        self._alone = soon == 1 and not owing
        self.said = (
            self.earliest if self.earliest is None or self.earliest > at else True,
            self._alone,
            self._highest,
        )
        """While this stays the same, the answers about future instants do too."""

    def is_exact(self, at: datetime) -> bool:
        """Whether nothing has moved by then."""
        return self.earliest is None or at <= self.earliest

    def is_alone(self, at: datetime) -> bool:
        """Whether the node that goes then is the first, and goes alone."""
        return self._assessment.at < at == self.earliest and self._alone

    def stays_until(self, node: NodeAssessment, at: datetime) -> bool:
        """Whether only its expiration can remove the node before then, whatever else moves."""
        if self.is_exact(at):
            return True
        pool = self._assessment.pool(node)
        if pool is None or node.state in IN_DISRUPTION or not _is_steady(node):
            return False
        now = self._assessment.at
        return all(
            (first := self._could_go(node, pool, reason).first(now)) is None or first >= at for reason in BUDGETED
        )

    def has_pods_until(self, node: NodeAssessment, at: datetime) -> bool:
        """Whether no other pod can preempt its pods before then."""
        return self.is_exact(at) or all(pod.priority >= self._highest for pod in node.member.pods if pod.reschedulable)

    def _could_go(self, node: NodeAssessment, pool: PoolAssessment, reason: Reason) -> Instants:
        """When the node could go, by its own rules and its pods that cannot be preempted."""
        wanted = when_wanted(node.member, node.record, reason)
        if reason in CONSOLIDATION:
            stays_busy = any(costs_to_move(pod) and self._is_firm(pod) for pod in node.member.pods)
            wanted = NEVER if reason is Reason.EMPTY and stays_busy else ALWAYS
        if wanted is NEVER:
            return NEVER
        parts = [wanted, together(standing_rules(node.member, node.record, reason, self._assessment.at, node.own))]
        if drain_limit(node.member, reason) is None:
            parts += [
                verdict.when
                for pod, verdict in node.limiting
                if self._is_firm(pod) and verdict.rule is not Rule.POD_DISRUPTION_BUDGET
            ]
        # The number of nodes may change: only a budget of 0 blocks in any case.
        parts.append(complement(limit_below(pool.budgets, reason, 1, 1, pool.settings.budgets)))
        return all_of(parts)

    def _is_firm(self, pod: PodRecord) -> bool:
        """Whether no other pod can preempt it."""
        return pod.priority >= self._highest


def first_move(assessment: Assessment, node: NodeAssessment) -> datetime | None:
    """The first instant at which something may happen to the node itself. None: never, or it is draining."""
    at = assessment.at
    if node.state in IN_DISRUPTION - {NodeState.DRAINING} or not _is_steady(node):
        return at
    if node.state is NodeState.DRAINING:
        return None
    taken = [goes.first(at) for reason in BUDGETED if (goes := may_go(assessment, node, reason)) is not NEVER]
    expires_at = None if node.expires_at is None else max(at, node.expires_at)
    return min((instant for instant in (expires_at, *taken) if instant is not None), default=None)


def may_go(assessment: Assessment, node: NodeAssessment, reason: Reason) -> Instants:
    """When the node has the reason and all rules allow it, with the present use of budgets."""
    wanted = when_wanted(node.member, node.record, reason)
    return NEVER if wanted is NEVER else all_of([wanted, assessment.reasons(node)[reason].when])


def _is_steady(node: NodeAssessment) -> bool:
    """Whether the node is initialized and Ready; else it may be removed, or lose its pods."""
    return is_initialized(node.member) and node.member.node is not None and node.member.node.ready


def _is_unsettled(pod: PodRecord) -> bool:
    """Whether the pod is pending or terminating."""
    return (not pod.node_name and pod.active) or (pod.deleted_at is not None and not pod.terminal)


def _is_off(pool: PoolAssessment) -> bool:
    """Whether the number of nodes of the pool is about to change."""
    record = pool.record
    return record.deleted_at is not None or (record.replicas is not None and record.replicas != pool.claims)
