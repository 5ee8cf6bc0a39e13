"""What the budgets of our NodePools allow now, and which nodes use them (R25–R30)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.pool_records import PoolRecord, pool_record
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.evaluation import NodeEvaluation
from dovetail.rules.budgets import (
    Allowance,
    BudgetConsumer,
    BudgetRule,
    PoolCounts,
    allowances,
    counts_of,
    read_budgets,
)
from dovetail.rules.nodes import StartingNodes, starting_nodes
from dovetail.rules.states import NodeState


class ParsedPool(msgspec.Struct, frozen=True, eq=False):
    """A NodePool with its budgets."""

    pool: objects.NodePool
    record: PoolRecord
    budgets: tuple[BudgetRule, ...]


class PoolAllowances(msgspec.Struct, frozen=True, eq=False):
    """What a pool's budgets allow for each reason, and which nodes use them.

    `starting`: new nodes for pending pods, which hold consolidation back.
    """

    counts: PoolCounts
    allowances: Mapping[Reason, Allowance]
    starting: StartingNodes | None = None


class PoolBudgets:
    """Reads the budgets of a pool again only when it changes."""

    def __init__(self, settings: RuleSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._known: dict[str, ParsedPool] = {}

    def read(self, pools: Iterable[objects.NodePool]) -> Mapping[str, ParsedPool]:
        """Returns the pools by name."""
        parsed: dict[str, ParsedPool] = {}
        for pool in pools:
            cached = self._known.get(pool.metadata.name)
            if cached is None or cached.pool is not pool:
                record = pool_record(pool, self._settings)
                if (
                    cached is not None and record == cached.record
                ):  # only its status changed, so that cached verdicts stay valid
                    cached = ParsedPool(pool, cached.record, cached.budgets)
                else:
                    cached = ParsedPool(pool, record, read_budgets(record.budgets, self._settings))
            parsed[pool.metadata.name] = cached
        self._known = parsed
        return parsed

    def spending(
        self,
        pools: Mapping[str, ParsedPool],
        nodes: Iterable[NodeEvaluation],
        now: datetime,
        taken: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, PoolAllowances]:
        """By pool. `taken`: whether a claim is in a command, also before its objects show that."""
        standing = defaultdict(list)
        for node in nodes:
            standing[node.member.pool].append((node.member, node.state))
        by_pool = {}
        for name, pool in pools.items():
            counts = count_with(counts_of(standing[name]), standing[name], taken)
            allowed = allowances(pool.budgets, now=now, counts=counts, reading=self._settings.budgets)
            starting = starting_nodes([member for member, _ in standing[name]], now)
            by_pool[name] = PoolAllowances(counts, allowed, starting)
        return by_pool


def count_with(
    counts: PoolCounts, members: Iterable[tuple[ClusterNode, NodeState]], taken: Callable[[str], bool]
) -> PoolCounts:
    """Adds the claims in commands that do not show that yet to the counts."""
    counted = {consumer.node for consumer in counts.consumers}
    more = tuple(
        BudgetConsumer(node=member.name, state=NodeState.DISRUPTING, unhealthy=False)
        for member, _ in members
        if member.claim is not None and member.name not in counted and taken(member.claim.name)
    )
    return msgspec.structs.replace(counts, consumers=(*counts.consumers, *more)) if more else counts
