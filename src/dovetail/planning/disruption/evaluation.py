"""Which disruptions each node has a reason for, and which rules block them now.

Runs on any thread. Results are cached until something changes, so that 5,000 nodes are cheap.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.deadlines import expires_at, gracefully_expires_at
from dovetail.rules.nodes import is_wanted, pods_rule, standing_rules, when_forced
from dovetail.rules.states import IN_DISRUPTION, NodeState
from dovetail.rules.verdict import Rule
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.protections import PodGroup, PodProtections, blockers, standing_of


class NodeEvaluation(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A node with its reasons."""

    of: ManagedNode
    pool: PoolRecord | None
    wanted: tuple[Reason, ...]
    wanted_until: datetime | None  # when time alone adds a reason
    groups: tuple[PodGroup, ...]  # of the pods, if the node has a reason and is not being disrupted

    @property
    def member(self) -> ClusterNode:
        return self.of.record

    @property
    def state(self) -> NodeState:
        return self.of.state

    @property
    def claim(self) -> objects.NodeClaim | None:
        return self.of.claim

    @property
    def node(self) -> objects.Node | None:
        return self.of.node


class BlockedDisruption(NamedTuple):
    """A blocked reason: the rules that block it now, and when the first of them ends."""

    reason: Reason
    rules: set[Rule]
    until: datetime | None  # None: only an edit ends it


class NodeEvaluator:
    """Caches the results. Used by one thread at a time."""

    def __init__(self, pods: PodProtections) -> None:
        self._pods = pods
        self._known: dict[NodeKey, NodeEvaluation] = {}

    def at(
        self, now: datetime, members: Mapping[NodeKey, ManagedNode], pools: Mapping[str, PoolRecord]
    ) -> list[NodeEvaluation]:
        """All nodes at that instant."""
        evaluations: dict[NodeKey, NodeEvaluation] = {}
        for key, member in members.items():
            evaluation = self._known.get(key)
            if evaluation is None or evaluation.of is not member or not _holds(evaluation, pools, now):
                evaluation = self._look(member, pools, now)
            evaluations[key] = evaluation
        self._known = evaluations
        return list(evaluations.values())

    def blocked_reasons(self, standing: NodeEvaluation, now: datetime) -> Iterator[BlockedDisruption]:
        """The blocked reasons of a node, without budgets."""
        if standing.state in IN_DISRUPTION:
            return
        member, pool = standing.member, standing.pool
        verdicts = blockers(standing.groups, now)
        pods = standing_of([group.judged(now) for group in standing.groups], verdicts, len(member.pods))
        for reason in standing.wanted:
            if when_forced(member, pool, reason).contains(now):
                continue
            blocking = [verdict for verdict in standing_rules(member, pool, reason, now) if not verdict.allowed]
            if not (judged := pods_rule(member, reason, pods, now)).allowed:
                blocking += verdicts or [judged]
            until = min((verdict.until for verdict in blocking if verdict.until is not None), default=None)
            yield BlockedDisruption(reason, {verdict.rule for verdict in blocking}, until)

    def _look(self, of: ManagedNode, pools: Mapping[str, PoolRecord], now: datetime) -> NodeEvaluation:
        member, claim = of.record, of.record.claim
        pool = pools.get(member.pool)
        ends = () if claim is None else (expires_at(claim), gracefully_expires_at(claim, pool))
        wanted = tuple(reason for reason in BUDGETED if is_wanted(member, pool, reason, now))
        return NodeEvaluation(
            of=of,
            pool=pool,
            wanted=wanted,
            groups=self._pods.groups_of(member.pods) if wanted and of.state not in IN_DISRUPTION else (),
            wanted_until=min((at for at in ends if at is not None and at > now), default=None),
        )


def _holds(known: NodeEvaluation, pools: Mapping[str, PoolRecord], now: datetime) -> bool:
    same_pool = known.pool is pools.get(known.member.pool)
    return same_pool and (known.wanted_until is None or now < known.wanted_until)
