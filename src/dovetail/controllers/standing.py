"""Where does each node of ours stand, which disruptions are wanted of it, and what holds them back now?

Kept between two looks as long as nothing changed, so that looking at 5,000 nodes is cheap.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.controllers.alike_pods import Alike, AlikePods, blockers
from dovetail.controllers.cluster import Cluster
from dovetail.model.records import PodRecord, PoolRecord, node_record
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.deadlines import expires_at, gracefully_expires_at
from dovetail.rules.nodes import (
    CONSOLIDATION,
    PodsStanding,
    consolidate_after,
    is_wanted,
    pods_rule,
    standing_rules,
    when_forced,
)
from dovetail.rules.states import IN_DISRUPTION, State, state_of
from dovetail.rules.verdict import Rule
from dovetail.runtime.reflector import Added, Change, Deleted, Updated
from dovetail.values.instants import ALWAYS, NEVER


class Standing(msgspec.Struct, frozen=True, eq=False):
    """One claim with its node and pods, as of the objects named."""

    claim: objects.NodeClaim | None
    node: objects.Node | None
    pool: PoolRecord | None
    member: ClusterNode
    state: State
    wanted: tuple[Reason, ...]
    wanted_until: datetime | None  # when time alone may add a reason
    groups: tuple[Alike, ...]  # of the pods, where something is wanted and has led to nothing yet


class HeldBack(NamedTuple):
    """A disruption that is wanted and does not happen: the rules that block it now, and when the first of them ends."""

    reason: Reason
    rules: set[Rule]
    until: datetime | None  # by the passing of time alone; None: only an edit changes it


class StandingNodes:
    """All nodes and claims of ours. Make it before the caches run."""

    def __init__(self, cluster: Cluster, pods: AlikePods) -> None:
        self._cluster = cluster
        self._pods = pods
        self._known: dict[str, Standing] = {}
        self._touched: set[str] = set()  # names of nodes whose pods have changed
        cluster.pods.subscribe(self._touch)

    def at(self, now: datetime, pools: Mapping[str, PoolRecord]) -> list[Standing]:
        """Everything as it is now."""
        found: dict[str, Standing] = {}
        for name, claim, node in self._pairs():
            known = self._known.get(name)
            if known is None or not self._holds(known, claim, node, pools, now):
                known = self._look(claim, node, pools, now)
            found[name] = known
        self._known = found
        self._touched.clear()
        return list(found.values())

    def held_back(self, standing: Standing, now: datetime) -> Iterator[HeldBack]:
        """For each reason that is held back, what blocks it now; budgets are the pool's matter."""
        if standing.state in IN_DISRUPTION:
            return
        member, pool = standing.member, standing.pool
        verdicts = blockers(standing.groups, now)
        pods = PodsStanding(NEVER if verdicts else ALWAYS, tuple(verdicts), len(member.pods))
        for reason in standing.wanted:
            if when_forced(member, pool, reason).contains(now):
                continue
            asked = standing_rules(member, pool, reason, now)
            if reason in CONSOLIDATION:
                asked.append(consolidate_after(member, pool, now))
            blocking = [verdict for verdict in asked if not verdict.allowed]
            if not pods_rule(member, reason, pods, now).allowed:
                blocking += verdicts
            until = min((verdict.until for verdict in blocking if verdict.until is not None), default=None)
            yield HeldBack(reason, {verdict.rule for verdict in blocking}, until)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _pairs(self) -> Iterator[tuple[str, objects.NodeClaim | None, objects.Node | None]]:
        for claim in self._cluster.claims.values():
            if self._cluster.manages(claim.spec.node_class_ref):
                nodes = self._cluster.nodes_of(claim)
                yield f"NodeClaim/{claim.metadata.name}", claim, nodes[0] if len(nodes) == 1 else None
        for node in self._cluster.nodes.values():
            if self._cluster.manages_node(node) and self._cluster.claim_of(node) is None:
                yield f"Node/{node.metadata.name}", None, node

    def _holds(
        self,
        known: Standing,
        claim: objects.NodeClaim | None,
        node: objects.Node | None,
        pools: Mapping[str, PoolRecord],
        now: datetime,
    ) -> bool:
        return (
            known.claim is claim
            and known.node is node
            and known.pool is pools.get(known.member.pool)
            and (node is None or node.metadata.name not in self._touched)
            and (known.wanted_until is None or now < known.wanted_until)
        )

    def _look(
        self,
        claim: objects.NodeClaim | None,
        node: objects.Node | None,
        pools: Mapping[str, PoolRecord],
        now: datetime,
    ) -> Standing:
        member = self._member(claim, node)
        pool = pools.get(member.pool)
        ends = () if member.claim is None else (expires_at(member.claim), gracefully_expires_at(member.claim, pool))
        state = state_of(member)
        wanted = tuple(reason for reason in BUDGETED if is_wanted(member, pool, reason, now))
        return Standing(
            claim=claim,
            node=node,
            pool=pool,
            member=member,
            state=state,
            wanted=wanted,
            groups=self._pods.groups_of(member.pods) if wanted and state not in IN_DISRUPTION else (),
            wanted_until=min((at for at in ends if at is not None and at > now), default=None),
        )

    def _member(self, claim: objects.NodeClaim | None, node: objects.Node | None) -> ClusterNode:
        if claim is not None:
            return self._cluster.member(claim)
        assert node is not None
        return ClusterNode(claim=None, node=node_record(node), pods=tuple(self._cluster.pods_on[node.metadata.name]))

    def _touch(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._touched.add(new.value.node_name)
            case Updated(old=old, new=new):
                self._touched.update((old.value.node_name, new.value.node_name))
            case Deleted(old=old):
                self._touched.add(old.value.node_name)
