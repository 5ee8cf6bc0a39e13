"""Writes to the status of each NodePool what its budgets allow for each reason, and until when (R1, R25–R27)."""

from datetime import datetime
from typing import Any

from dovetail.api import objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import seconds_until
from dovetail.controllers.base.writing import about_pool, warn
from dovetail.controllers.nodepool.base import PoolController
from dovetail.model.pool_records import pool_record
from dovetail.planning.timings import Timings
from dovetail.rules.budgets import (
    GROWN,
    PoolCounts,
    allowances,
    budget_problems,
    counts_of,
    read_budgets,
)
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import format_time


class NodePoolDisruptions(PoolController):
    """The status is for people; decisions never read it. Changes within a few seconds are written together."""

    name = "nodepool.disruptions"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__(cluster, after_seconds=timings.pool_counter_seconds)
        self._warned: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {}
        self.follow_nodes(after_seconds=timings.pool_counter_seconds)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        await self.cluster.settled()
        nodes = self.cluster.managed.in_pool(pool.metadata.name)
        now, counts = self.clock.now(), counts_of((node.record, node.state) for node in nodes)
        self._warn_problems(pool, counts, now)
        disruptions, changes_at = self._allowed(pool, counts, now)
        if disruptions != pool.status.disruptions:
            await self.write_status(pool, {"disruptions": [_body(entry) for entry in disruptions]})
        return Done(seconds_until(changes_at, now))

    def forget(self, key: str) -> None:
        self._warned.pop(key, None)

    def _warn_problems(self, pool: objects.NodePool, counts: PoolCounts, now: datetime) -> None:
        """Warns about the budgets (R25, R28, R29) when a problem is first seen and when it changes."""
        meta, record = pool.metadata, pool_record(pool, self.cluster.settings)
        problems = budget_problems(
            record.object,
            read_budgets(record.budgets, self.cluster.settings),
            graceful_expiry=record.graceful_expire_after_ns is not None,
            now=now,
            node_counts=[counts.nodes, *GROWN],
            settings=self.cluster.settings,
        )
        said = tuple((problem.rule, problem.field) for problem in problems)
        if self._warned.get(meta.name, ()) == (meta.uid, said):
            return
        self._warned[meta.name] = (meta.uid, said)
        about = about_pool(pool)
        for problem in problems:
            note = f"{problem.field}: {problem.message}; {problem.remedy}"
            warn(self.recorder, about, EventReason(problem.rule), note, meta.uid, problem.rule, problem.field)

    def _allowed(
        self, pool: objects.NodePool, counts: PoolCounts, now: datetime
    ) -> tuple[tuple[objects.PoolDisruptions, ...], datetime | None]:
        budgets = read_budgets(pool_record(pool, self.cluster.settings).budgets, self.cluster.settings)
        allowed = allowances(budgets, now=now, counts=counts, reading=self.cluster.settings.budgets).values()
        shown = tuple(
            objects.PoolDisruptions(
                reason=allowance.reason,
                limit=allowance.limit,
                in_use=len(counts.consumers),
                allowed=allowance.allowed,
                next_change=allowance.until,
            )
            for allowance in allowed
        )
        return shown, min((allowance.until for allowance in allowed if allowance.until is not None), default=None)


def _body(shown: objects.PoolDisruptions) -> dict[str, Any]:
    body = {"reason": shown.reason, "limit": shown.limit, "inUse": shown.in_use, "allowed": shown.allowed}
    return body if shown.next_change is None else {**body, "nextChange": format_time(shown.next_change)}
