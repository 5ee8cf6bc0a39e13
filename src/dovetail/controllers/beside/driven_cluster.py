"""The cluster as drive reads it: every NodePool that drive may act on is ours, whatever its node class (10 §I.2)."""

from typing import Any

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import DovetailMode
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.beside import is_opted_out, read_budgets
from dovetail.model.decider import Decider, DecidingController
from dovetail.model.rule_settings import BudgetSemantics, RuleSettings
from dovetail.ports import NODEPOOLS, Clock, KubeApi
from dovetail.state.cluster import Projection
from dovetail.state.store import Change, values_of
from dovetail.values.selector import Selector


class DrivenCluster(WatchedCluster):
    """The cluster of drive. NodePools with `replicas` stay with Karpenter, as do those opted out or not selected."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        pools: Selector = Selector(),  # noqa: B008  frozen
        budgets: BudgetSemantics = BudgetSemantics.SEED,
        **options: Any,
    ) -> None:
        self._selected = pools
        decider = Decider(DecidingController.DOVETAIL, mode=DovetailMode.DRIVE, reason="dovetail drive")
        super().__init__(api, clock, decides=True, settings=RuleSettings(decider=decider, budgets=budgets), **options)
        self.pools.subscribe(self._pool_changed)

    def drives(self, pool: objects.NodePool) -> bool:
        return pool.spec.replicas is None and not is_opted_out(pool) and self._selected.matches(pool.metadata.labels)

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        if len({self.drives(pool) for pool in values_of(change)}) != 1 or len(values_of(change)) == 1:
            for pool in values_of(change):
                self.managed.touch_pool(pool.metadata.name)

    # -- ownership -----------------------------------------------------------------------------------------------------

    def manages_pool(self, pool: objects.NodePool) -> bool:
        return self.drives(pool)

    def manages_claim(self, claim: objects.NodeClaim) -> bool:
        return self._drives_pool_of(claim.metadata)

    def manages_node(self, node: objects.Node) -> bool:
        return self._drives_pool_of(node.metadata)

    def _drives_pool_of(self, meta: objects.ObjectMeta) -> bool:
        name = meta.pool
        pool = self.pools.value(name) if name else None
        return pool is not None and self.drives(pool)

    # -- reading -------------------------------------------------------------------------------------------------------

    def reading(self, plural: str) -> Projection:
        struct, keep = super().reading(plural)
        if plural != NODEPOOLS.plural:
            return Projection(struct, keep)
        return Projection(struct, lambda pool: with_own_budgets(keep(pool)))


def with_own_budgets(pool: objects.NodePool) -> objects.NodePool:
    """The NodePool with the budgets of `dovetail.dev/budgets`, which Karpenter's CRD would refuse, in their place."""
    text = pool.metadata.annotations.get(names.OWN_BUDGETS)
    budgets = None if text is None else read_budgets(text)
    if budgets is None:
        return pool
    disruption = msgspec.structs.replace(pool.spec.disruption, budgets=budgets)
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=disruption))
