"""Where does each node of ours stand, which disruptions are wanted of it, and what holds them back now?

`Members` notes on the event loop what belongs together; only what has changed is looked up again. The rest works on
what was noted, on any thread, and keeps what it made as long as nothing changed, so that 5,000 nodes are cheap.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import Reason
from dovetail.controllers.alike_pods import Alike, AlikePods, blockers
from dovetail.controllers.cluster import Cluster
from dovetail.model.records import PodRecord, PoolRecord, claim_record, node_record
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

V = TypeVar("V")

AT_ONCE: Final = 500  # members looked up in one turn of the event loop: some 5 ms


class Member(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One claim with its Node, either of which may be missing, and the pods on it: another object if any of them is."""

    claim: objects.NodeClaim | None
    node: objects.Node | None
    pods: tuple[PodRecord, ...]


class MemberKey(NamedTuple):
    """Whom a member is named after: its claim, or its Node if it has none."""

    kind: str
    name: str


class Members:
    """All nodes and claims of ours. Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members: dict[MemberKey, Member] = {}
        self._told: Mapping[MemberKey, Member] = {}
        self._changed = False  # since it was told
        self._dirty: dict[MemberKey, None] = {}  # no set: the same events are to give the same order
        self._with_pods: dict[str, None] = {}  # names of nodes whose pods have changed
        cluster.claims.subscribe(self._claim_changed)
        cluster.nodes.subscribe(self._node_changed)
        cluster.pods.subscribe(self._pod_changed)

    async def settle(self) -> None:
        """Look up most of what has changed, in turns that are short, so that `now` has little left to do."""
        self._look_up(AT_ONCE)
        while self._dirty:
            await self._cluster.clock.sleep(0)
            self._look_up(AT_ONCE)

    def now(self) -> Mapping[MemberKey, Member]:
        """Everything as it is now; later changes do not touch it. It is the same object until something changes."""
        self._look_up()
        if self._changed:
            self._told, self._changed = self._members.copy(), False
        return self._told

    def _look_up(self, at_most: int | None = None) -> None:
        for name in self._with_pods:
            kept = self._cluster.nodes.get(("", name))
            if kept is not None:
                self._touch_node(kept.value)
        self._with_pods.clear()
        for _ in range(len(self._dirty) if at_most is None else min(at_most, len(self._dirty))):
            key, _ = self._dirty.popitem()
            found = self._claimed(key.name) if key.kind == names.NODECLAIM_KIND else self._unclaimed(key.name)
            self._changed = True
            if found is None:
                self._members.pop(key, None)
            else:
                self._members[key] = found

    def _claimed(self, name: str) -> Member | None:
        kept = self._cluster.claims.get(("", name))
        if kept is None or not self._cluster.manages(kept.value.spec.node_class_ref):
            return None
        nodes = self._cluster.nodes_of(kept.value)
        return self._member(kept.value, nodes[0] if len(nodes) == 1 else None)

    def _unclaimed(self, name: str) -> Member | None:
        kept = self._cluster.nodes.get(("", name))
        if kept is None or not self._cluster.manages_node(kept.value) or self._cluster.claim_of(kept.value) is not None:
            return None
        return self._member(None, kept.value)

    def _member(self, claim: objects.NodeClaim | None, node: objects.Node | None) -> Member:
        return Member(claim, node, () if node is None else tuple(self._cluster.pods_on[node.metadata.name]))

    # -- what changed --------------------------------------------------------------------------------------------------

    def _touch_node(self, node: objects.Node) -> None:
        self._dirty[MemberKey("Node", node.metadata.name)] = None
        for claim in self._cluster.claims_with[node.spec.provider_id]:
            self._dirty[MemberKey(names.NODECLAIM_KIND, claim.metadata.name)] = None

    def _touch_claim(self, claim: objects.NodeClaim) -> None:
        self._dirty[MemberKey(names.NODECLAIM_KIND, claim.metadata.name)] = None
        for node in self._cluster.nodes_of(claim):
            self._dirty[MemberKey("Node", node.metadata.name)] = None

    def _node_changed(self, change: Change[objects.Node]) -> None:
        for node in values_of(change):
            self._touch_node(node)

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        for claim in values_of(change):
            self._touch_claim(claim)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        for pod in values_of(change):
            if pod.node_name:
                self._with_pods[pod.node_name] = None


def values_of(change: Change[V]) -> tuple[V, ...]:
    """The object that has changed, as it was and as it is."""
    match change:
        case Added(new=new):
            return (new.value,)
        case Updated(old=old, new=new):
            return old.value, new.value
        case Deleted(old=old):
            return (old.value,)
    return ()


class Standing(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A member as the rules read it."""

    of: Member
    pool: PoolRecord | None
    member: ClusterNode
    state: State
    wanted: tuple[Reason, ...]
    wanted_until: datetime | None  # when time alone may add a reason
    groups: tuple[Alike, ...]  # of the pods, where something is wanted and has led to nothing yet

    @property
    def claim(self) -> objects.NodeClaim | None:
        return self.of.claim

    @property
    def node(self) -> objects.Node | None:
        return self.of.node


class HeldBack(NamedTuple):
    """A disruption that is wanted and does not happen: the rules that block it now, and when the first of them ends."""

    reason: Reason
    rules: set[Rule]
    until: datetime | None  # by the passing of time alone; None: only an edit changes it


class StandingNodes:
    """Of what was noted; asked by one thread at a time."""

    def __init__(self, pods: AlikePods) -> None:
        self._pods = pods
        self._known: dict[MemberKey, Standing] = {}

    def at(self, now: datetime, members: Mapping[MemberKey, Member], pools: Mapping[str, PoolRecord]) -> list[Standing]:
        """Everything as it was noted, at that instant."""
        found: dict[MemberKey, Standing] = {}
        for key, member in members.items():
            known = self._known.get(key)
            if known is None or known.of is not member or not _holds(known, pools, now):
                known = self._look(member, pools, now)
            found[key] = known
        self._known = found
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

    def _look(self, of: Member, pools: Mapping[str, PoolRecord], now: datetime) -> Standing:
        claim = None if of.claim is None else claim_record(of.claim)
        member = ClusterNode(claim=claim, node=None if of.node is None else node_record(of.node), pods=of.pods)
        pool = pools.get(member.pool)
        ends = () if claim is None else (expires_at(claim), gracefully_expires_at(claim, pool))
        state = state_of(member)
        wanted = tuple(reason for reason in BUDGETED if is_wanted(member, pool, reason, now))
        return Standing(
            of=of,
            pool=pool,
            member=member,
            state=state,
            wanted=wanted,
            groups=self._pods.groups_of(member.pods) if wanted and state not in IN_DISRUPTION else (),
            wanted_until=min((at for at in ends if at is not None and at > now), default=None),
        )


def _holds(known: Standing, pools: Mapping[str, PoolRecord], now: datetime) -> bool:
    same_pool = known.pool is pools.get(known.member.pool)
    return same_pool and (known.wanted_until is None or now < known.wanted_until)
