"""Checks the rules of a command again, right before its nodes are drained (R50).

While replacements start, a window may close, somebody may protect a pod, a budget may shrink, or the reason may end.

A PodDisruptionBudget that allows no eviction at the moment does not block: the drain waits for it. A budget that can
never allow an eviction does.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pool_records import pool_record
from dovetail.planning.disruption.assessment import DisruptionPlanner
from dovetail.planning.disruption.board import blocked_sentence
from dovetail.planning.disruption.landing import Waves
from dovetail.planning.disruption.pool_budgets import count_with
from dovetail.ports import Compute
from dovetail.rules.budgets import counts_of, limit_at, read_budgets
from dovetail.rules.nodes import still_allowed
from dovetail.rules.verdict import Verdict
from dovetail.state.protections import PodProtections
from dovetail.state.scheduling import SchedulingState


class LandingCheck:
    """Checks once more that the pods of a command find room (R55)."""

    def __init__(
        self, cluster: WatchedCluster, state: SchedulingState, planner: DisruptionPlanner, compute: Compute
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._planner = planner
        self._compute = compute

    async def why_not(
        self,
        claims: Iterable[objects.NodeClaim],
        waves: Waves,
        now: datetime,
        staying: Iterable[objects.NodeClaim] = (),
    ) -> str | None:
        """Why the nodes must not be drained now; None: all pods find room. `staying`: claims that wait for it, too."""
        await self._cluster.settled()
        snapshot, rest = self._state.snapshot(now), self._pods_of(staying)
        pod = await self._compute.run(self._planner.without_room, snapshot, self._pods_of(claims), rest, waves)
        return None if pod is None else f"{pod.ref}: it would find no room once the others have landed"

    def _pods_of(self, claims: Iterable[objects.NodeClaim]) -> frozenset[str]:
        nodes = [node for claim in claims for node in self._cluster.node_names(claim)]
        return frozenset(pod.uid for node in nodes for pod in self._cluster.pods_on[node])


class Recheck:
    """Checks nodes in S3."""

    def __init__(
        self,
        cluster: WatchedCluster,
        landing: LandingCheck,
        halted: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`halted`: why no node can be drained at all."""
        self.halted = halted
        self._cluster = cluster
        self.landing = landing
        self._alike = PodProtections()

    async def over_budget(
        self, pools: Iterable[str], reason: Reason, now: datetime, in_command: Callable[[str], bool]
    ) -> Mapping[str, str]:
        """By pool, a sentence if more nodes are disrupted or unhealthy than its budgets allow for the reason."""
        await self._cluster.settled()
        sentences = {}
        for name in sorted(pools):
            pool = self._cluster.pools.value(name)
            if pool is None:
                continue  # the rules of the node report it
            members = [(node.record, node.state) for node in self._cluster.managed.in_pool(name)]
            counts = count_with(counts_of(members), members, in_command)
            budgets = read_budgets(pool_record(pool, self._cluster.settings).budgets, self._cluster.settings)
            limit, binding = limit_at(budgets, reason, now, counts.nodes, self._cluster.settings.budgets)
            if len(counts.consumers) > limit:
                by = "" if binding is None else f" by budgets[{binding}]"
                sentences[name] = (
                    f"NodePool/{name}: the number of nodes that are disrupted or unhealthy is {len(counts.consumers)}, "
                    f"and the limit for {reason.value} is {limit}{by}"
                )
        return sentences

    def why_not(
        self, claim: objects.NodeClaim, reason: Reason, over_budget: Mapping[str, str], now: datetime
    ) -> str | None:
        """Why the node must not be drained now; None: it may."""
        member = self._cluster.member(claim)
        if member.pool in over_budget:
            return over_budget[member.pool]
        pool = self._cluster.pools.value(member.pool)
        self._alike.know(self._cluster.pdbs.snapshot())
        blockers = [
            verdict
            for group in self._alike.groups_of(member.pods)
            if (judged := group.judged(now)).keeps
            for verdict in judged.blockers
        ]
        record = None if pool is None else pool_record(pool, self._cluster.settings)
        verdicts = still_allowed(member, record, reason, now, blockers)
        return next((_sentence(verdict) for verdict in verdicts if not verdict.allowed), None)


def _sentence(verdict: Verdict) -> str:
    first = verdict.blockers[0] if verdict.blockers else verdict
    said = str(blocked_sentence(first))
    return said if first.object.path in said else f"{first.object}: {said}"  # a command may have several nodes
