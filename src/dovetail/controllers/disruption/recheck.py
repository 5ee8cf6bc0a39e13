"""Do the rules that let a command begin still allow it, right before its nodes are drained (R50)?

Minutes pass while replacements boot. Meanwhile a window may close, somebody may protect a pod, a budget may shrink, and
the reason itself may go. Draining all the same would close the node to new pods and evict nothing.

A PodDisruptionBudget that allows no eviction at the moment does not count here: the drain waits for it, and drains that
run side by side take turns. One that can never allow an eviction does.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.records import pool_record
from dovetail.planning.disruption.board import told_until
from dovetail.planning.disruption.pool_budgets import count_with
from dovetail.rules.budgets import BudgetSemantics, counts_of, limit_at, read_budgets
from dovetail.rules.nodes import still_allowed
from dovetail.rules.verdict import Verdict
from dovetail.state.protections import PodProtections


class Recheck:
    """Asks the rules about nodes in S3. Make it before the caches run."""

    def __init__(self, cluster: WatchedCluster, reading: BudgetSemantics) -> None:
        self._cluster = cluster
        self._reading = reading
        self._alike = PodProtections()

    async def over_budget(
        self, pools: Iterable[str], reason: Reason, now: datetime, in_command: Callable[[str], bool]
    ) -> Mapping[str, str]:
        """By pool, what is wrong where more nodes are disrupted or unhealthy than its budgets allow for the reason."""
        await self._cluster.settled()
        found = {}
        for name in sorted(pools):
            pool = self._cluster.pools.get(("", name))
            if pool is None:
                continue  # the rules about the node say so
            members = [(each.record, each.state) for each in self._cluster.managed.in_pool(name)]
            counts = count_with(counts_of(members), members, in_command)
            limit, binding = limit_at(
                read_budgets(pool_record(pool.value).budgets), reason, now, counts.nodes, self._reading
            )
            if len(counts.consumers) > limit:
                by = "" if binding is None else f" by budgets[{binding}]"
                found[name] = (
                    f"NodePool/{name}: the number of nodes that are disrupted or unhealthy is {len(counts.consumers)}, "
                    f"and the limit for {reason.value} is {limit}{by}"
                )
        return found

    def why_not(
        self, claim: objects.NodeClaim, reason: Reason, over_budget: Mapping[str, str], now: datetime
    ) -> str | None:
        """Why the node must stay for now; None: it may be drained."""
        member = self._cluster.member(claim)
        if member.pool in over_budget:
            return over_budget[member.pool]
        pool = self._cluster.pools.get(("", member.pool))
        self._alike.know(self._cluster.pdbs.snapshot())
        blockers = [
            verdict
            for group in self._alike.groups_of(member.pods)
            if (judged := group.judged(now)).keeps
            for verdict in judged.blockers
        ]
        record = None if pool is None else pool_record(pool.value)
        blocked = next(
            (each for each in still_allowed(member, record, reason, now, blockers) if not each.allowed), None
        )
        return None if blocked is None else _sentence(blocked)


def _sentence(verdict: Verdict) -> str:
    first = verdict.blockers[0] if verdict.blockers else verdict
    return str(told_until(first.object, first.message, first.until))
