"""What do the budgets of each NodePool of a snapshot allow?"""

from collections import defaultdict
from datetime import datetime

import msgspec

from dovetail.api.names import Reason
from dovetail.model.records import PoolRecord
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.rules.budgets import (
    Allowance,
    BudgetRule,
    PoolCounts,
    Reading,
    allowance,
    allowances,
    pool_counts,
    read_budgets,
)


class Pool(msgspec.Struct, frozen=True):
    """A pool with its budgets read and counted, once for all its nodes."""

    record: PoolRecord
    budgets: tuple[BudgetRule, ...]
    counts: PoolCounts
    claims: int
    reading: Reading
    allowances: dict[Reason, Allowance]

    def allowance_at(self, reason: Reason, at: datetime) -> Allowance:
        return allowance(self.budgets, reason=reason, now=at, counts=self.counts, reading=self.reading)


def read_pools(snapshot: Snapshot, at: datetime, reading: Reading) -> dict[str, Pool]:
    """Every pool of the input."""
    members: dict[str, list[ClusterNode]] = defaultdict(list)
    for member in snapshot.nodes:
        members[member.pool].append(member)
    pools = {}
    for name, record in snapshot.pools.items():
        budgets, counts = read_budgets(record.budgets), pool_counts(members[name])
        claims = sum(member.claim is not None and not member.deleting for member in members[name])
        allowed = allowances(budgets, now=at, counts=counts, reading=reading)
        pools[name] = Pool(record, budgets, counts, claims, reading, allowed)
    return pools
