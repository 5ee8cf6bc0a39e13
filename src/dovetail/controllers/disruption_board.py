"""Which nodes may be taken now, and for which reason: the picture that a pass of the engine looks at (02 §3)?

What was found out of a node is kept as long as its objects, its pods and what the rules say of them stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import is_
from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.names import Condition, ConsolidationPolicy, Reason
from dovetail.controllers.alike_pods import Alike, AlikePods, Judgement
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.placing_state import Places, PlacingState
from dovetail.controllers.pool_budgets import PoolBudgets, ReadPool, Spending
from dovetail.controllers.prices import Offered, bought_as
from dovetail.controllers.standing import Standing, StandingNodes
from dovetail.model.records import Owner, PodRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.board import Board, Candidate, Left, PoolFacts
from dovetail.planning.disruption.records import record_on
from dovetail.rules.budgets import Reading
from dovetail.rules.nodes import PodsStanding, ReasonVerdict, judge_reason, own_verdicts
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule, Verdict, refuse
from dovetail.scheduling.fast import World
from dovetail.scheduling.problem import MachineType, Options, Pod
from dovetail.values.instants import ALWAYS, NEVER


class Looked(msgspec.Struct, frozen=True, eq=False):
    """What is known of a node until something about it changes."""

    standing: Standing
    place: object
    groups: tuple[Alike, ...]
    judged: tuple[Judgement, ...]
    blockers: tuple[Verdict, ...]
    pods: tuple[Pod, ...]
    unmovable: tuple[str, ...]
    cost: float


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A board but for its world, which is prepared aside. `wake_at`: when time alone will change something."""

    at: datetime
    places: Places
    owed: tuple[Pod, ...]
    candidates: Mapping[Reason, tuple[Candidate, ...]]
    spending: Mapping[str, Spending]
    pools: Mapping[str, PoolFacts]
    left: tuple[Left, ...]
    read_pools: Mapping[str, ReadPool]
    wake_at: datetime | None
    held: frozenset[str] = frozenset()


class BoardMaker:
    """Make it before the caches run: it subscribes to them."""

    def __init__(
        self, cluster: Cluster, state: PlacingState, *, options: Options, reading: Reading = Reading.SEED
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._pods = AlikePods(cluster)
        self._standing = StandingNodes(cluster, self._pods)
        self._budgets = PoolBudgets(cluster, reading)
        self._options = msgspec.structs.replace(options, strict_reserved=False, refuse_uninitialized=True)
        self._known: dict[str, Looked] = {}
        self._prices: dict[str, tuple[object, dict[Offered, int]]] = {}
        self._world: World | None = None
        self._made_of: tuple[Any, ...] = ()

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def picture(self, now: datetime, taken: Callable[[str], bool] = lambda _: False) -> Picture:
        """Everything as it is now. `taken`: claims of commands that have been started."""
        places = self._state.places()
        read = self._budgets.pools()
        nodes = self._standing.at(now, {name: pool.record for name, pool in read.items()})
        spending = self._budgets.spending(nodes, now, taken)
        candidates: dict[Reason, list[Candidate]] = {}
        left: list[Left] = []
        looked = {one.member.name: self._look(one, now) for one in nodes if one.node is not None}
        self._known = looked
        ends: list[datetime] = []
        awaited = self._awaited()
        for name, known in looked.items():
            claim = known.standing.claim
            if claim is None or claim.metadata.name in awaited or taken(claim.metadata.name):
                continue
            expecting = self._state.nominated_until(name, now)
            if expecting is not None:  # a pod is on its way there
                ends.append(expecting)
                continue
            for verdict in self._judged(known, read, spending, places, now):
                if _blocked_by_budget_alone(verdict):
                    candidate = self._candidate(known, verdict.reason, places)
                    candidates.setdefault(verdict.reason, []).append(candidate)
                else:
                    left.append(Left(node=known.standing.member.name, verdict=verdict))
        owed = (*self._state.pending().pods, *self._state.leaving().pods)
        return Picture(
            at=now,
            places=places,
            owed=owed,
            candidates={reason: tuple(found) for reason, found in candidates.items()},
            spending=spending,
            pools={name: self._facts(name, pool, looked.values()) for name, pool in read.items()},
            left=tuple(left),
            read_pools=read,
            wake_at=_next_change(left, spending, ends, now),
        )

    def _awaited(self) -> set[str]:
        """Replacements of commands under way: one that has to wait for the others is empty and must not go for that."""
        records = (
            record_on(each) for each in self._cluster.claims.values() if each.metadata.deletion_timestamp is None
        )
        return {name for record in records if record is not None for name in record.replacements}

    def _look(self, one: Standing, now: datetime) -> Looked:
        name = one.member.name
        known = self._known.get(name)
        place = self._state.place(name)
        if known is not None and known.standing is one and known.place is place:
            judged = tuple(group.judged(now) for group in known.groups)
            if all(map(is_, judged, known.judged)):
                return known
        groups = self._pods.groups_of(one.member.pods)
        judged = tuple(group.judged(now) for group in groups)
        moving = self._state.moving(one.member.pods)
        costs = (pod.eviction_cost for pod in one.member.pods if pod.reschedulable)
        return Looked(
            standing=one,
            place=place,
            groups=groups,
            judged=judged,
            blockers=self._blockers(one.member.pods, now) if any(each.blockers for each in judged) else (),
            pods=moving.pods,
            unmovable=tuple(str(each) for each in moving.refused.values()),
            cost=1.0 + sum(max(0.0, cost) for cost in costs),
        )

    def _blockers(self, pods: Iterable[PodRecord], now: datetime) -> tuple[Verdict, ...]:
        """Alike pods share a verdict, which names one of them: here each names the pod of this node."""
        return tuple(
            msgspec.structs.replace(verdict, object=pod.object)
            for pod in pods
            for group in self._pods.groups_of((pod,))
            for verdict in group.judged(now).blockers
        )

    def _judged(
        self,
        known: Looked,
        pools: Mapping[str, ReadPool],
        spending: Mapping[str, Spending],
        places: Places,
        now: datetime,
    ) -> Iterator[ReasonVerdict]:
        """For each reason that the node has, what the rules say."""
        one = known.standing
        member, read = one.member, pools.get(one.member.pool)
        if member.claim is None or one.state in IN_DISRUPTION:
            return
        reasons = list(_reasons(known, read))
        if not reasons:
            return
        pods = PodsStanding(NEVER if known.blockers else ALWAYS, known.blockers, len(member.pods))
        record, spent = (None, None) if read is None else (read.record, spending[member.pool])
        own = own_verdicts(member, record, now)
        flaw = places.left_out.get(member.pool)
        for reason in reasons:
            allowed = None if spent is None else spent.allowances[reason]
            verdict = judge_reason(member, record, reason, now, pods=pods, allowance=allowed, own=own)
            yield verdict if flaw is None else _without_types(verdict, member, flaw)

    def _candidate(self, known: Looked, reason: Reason, places: Places) -> Candidate:
        member = known.standing.member
        claim, node = known.standing.claim, known.standing.node
        assert claim is not None
        assert node is not None
        type_, zone, capacity_type = offer = bought_as(node.metadata.labels)
        price = self._prices_of(member.pool, places.types.get(member.pool, ())).get(offer)
        assert member.claim is not None
        condition = Condition.EXPIRED if reason is Reason.EXPIRED else Condition.DRIFTED
        return Candidate(
            node=member.name,
            claim=claim.metadata.name,
            claim_uid=claim.metadata.uid,
            pool=member.pool,
            type=type_,
            zone=zone,
            capacity_type=capacity_type,
            price=price,
            cost=known.cost,
            pods=known.pods,
            unmovable=self._why_not(known, offer, price) if reason is Reason.UNDERUTILIZED else (),
            since=member.claim.true_since(condition),
        )

    @staticmethod
    def _why_not(known: Looked, offer: Offered, price: int | None) -> tuple[str, ...]:
        """Why it cannot be consolidated (02 §7.1); for other reasons it can go all the same."""
        if price is None:
            type_, zone, capacity_type = (part or "?" for part in offer)
            return (f"instance type {type_} in {zone} as {capacity_type} is not offered, so its price is not known",)
        return known.unmovable

    def _prices_of(self, pool: str, types: tuple[MachineType, ...]) -> dict[Offered, int]:
        """Whether it can be had now does not matter: it has been bought."""
        known = self._prices.get(pool)
        if known is None or known[0] is not types:
            found = {
                (type_.name, zone, capacity_type): offer.price
                for type_ in types
                for offer in type_.offers
                for zone in offer.requirements.get(names.ZONE_LABEL).values or ("",)
                for capacity_type in offer.requirements.get(names.CAPACITY_TYPE_LABEL).values or ("",)
            }
            known = self._prices[pool] = (types, found)
        return known[1]

    def _facts(self, name: str, pool: ReadPool, looked: Iterable[Looked]) -> PoolFacts:
        record, spec = pool.record, pool.pool.spec
        of_pool = [known for known in looked if known.standing.member.pool == name]
        claims = [each for each in self._cluster.claims_in[name] if each.metadata.deletion_timestamp is None]
        types = self._state.places().types.get(name, ())
        prices = self._prices_of(name, types)
        limit = spec.limits.get(names.NODES_RESOURCE)
        return PoolFacts(
            name=name,
            policy=record.consolidation_policy or ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED,
            replicas=record.replicas,
            claims=len(claims),
            free_claims=int(str(limit)) - len(self._cluster.claims_in[name]) if _whole(limit) else None,
            total_cost=sum(prices.get(bought_as(claim.metadata.labels), 0) for claim in claims),
            total_disruption=sum(_disruption(known) for known in of_pool),
        )

    # -- aside ---------------------------------------------------------------------------------------------------------

    def board(self, picture: Picture) -> Board:
        """With the world; what has not changed since the last picture is not read again."""
        places = picture.places
        made_of = (places.pools, places.types, places.daemons)
        if self._world is None or not all(map(is_, made_of, self._made_of)):
            self._world = World(places.nodes, places.pools, places.types, places.daemons, self._options)
            self._made_of = made_of
        else:
            self._world.update(places.nodes)
        allowances = {
            (pool, reason): allowed
            for pool, spent in picture.spending.items()
            for reason, allowed in spent.allowances.items()
        }
        return Board(
            at=picture.at,
            world=self._world,
            owed=picture.owed,
            candidates=picture.candidates,
            allowances=allowances,
            pools=picture.pools,
            held=picture.held,
        )


def _reasons(known: Looked, pool: ReadPool | None) -> Iterator[Reason]:
    """Those that stand, as conditions and pods tell; whether they may be acted on is for the rules to say."""
    claim = known.standing.member.claim
    assert claim is not None
    if claim.is_true(Condition.DRIFTED):
        yield Reason.DRIFTED
    if claim.is_true(Condition.EXPIRED) and pool is not None:  # it is the pool that says when (R20)
        yield Reason.EXPIRED
    if claim.is_true(Condition.CONSOLIDATABLE) and (pool is None or pool.record.replicas is None):
        yield Reason.EMPTY if known.cost <= 1.0 else Reason.UNDERUTILIZED


def _without_types(verdict: ReasonVerdict, member: ClusterNode, flaw: str) -> ReasonVerdict:
    """02 §3: where nobody can say what machines the pool has, its nodes stay."""
    blocked = refuse(Rule.NODEPOOL, member.object, f"NodePool {member.pool} is left out: {flaw}")
    return msgspec.structs.replace(verdict, allowed=False, verdicts=(blocked, *verdict.verdicts))


def _blocked_by_budget_alone(verdict: ReasonVerdict) -> bool:
    return all(each.allowed or each.rule is Rule.BUDGET for each in verdict.verdicts)


def _next_change(
    left: Iterable[Left], spending: Mapping[str, Spending], others: Iterable[datetime], now: datetime
) -> datetime | None:
    """When a rule that blocks ends by itself, a budget's window opens or closes, or one of the other instants comes."""
    ends = list(others)
    ends += [each.until for one in left for each in one.verdict.verdicts if not each.allowed and each.until is not None]
    ends += [
        blocker.until
        for one in left
        for each in one.verdict.verdicts
        for blocker in each.blockers
        if blocker.until is not None
    ]
    ends += [allowed.until for each in spending.values() for allowed in each.allowances.values() if allowed.until]
    return min((at for at in ends if at > now), default=None)


def _disruption(known: Looked) -> float:
    pods = known.standing.member.pods
    return 1.0 + sum(max(0.0, pod.eviction_cost) for pod in pods if not pod.owner & Owner.DAEMONSET)


def _whole(limit: object) -> bool:
    return limit is not None and str(limit).isdecimal()
