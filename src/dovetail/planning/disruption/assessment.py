"""Which nodes may be taken now, and for which reason: the picture that a pass of the engine looks at (02 §3)?

What there is is noted in one turn of the event loop; what it means is worked out aside, on what was noted. What was
found out of a node is kept as long as its objects, its pods and what the rules say of them stay as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import Condition, ConsolidationPolicy, Reason
from dovetail.model.records import PdbRecord, PodRecord, PoolRecord
from dovetail.model.refs import Sentence
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.backoff import Kind, left_alone
from dovetail.planning.disruption.board import Board, Candidate, Left, PoolFacts
from dovetail.planning.disruption.pool_budgets import PoolBudgets, ReadPool, Spending
from dovetail.planning.disruption.records import record_on
from dovetail.planning.disruption.standing import Standing, StandingNodes
from dovetail.planning.nodepool.static_capacity import node_limit
from dovetail.rules.budgets import Allowance, Reading
from dovetail.rules.nodes import (
    CONSOLIDATION,
    ReasonVerdict,
    consolidation_reason,
    judge_reason,
    own_verdicts,
)
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule, Verdict, refuse
from dovetail.scheduling.fast import LastingWorld
from dovetail.scheduling.problem import Options, Pod
from dovetail.state.cluster import ClusterState
from dovetail.state.instance_types import Offered, bought_as
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.places import is_daemon
from dovetail.state.protections import AlikePods, standing_of
from dovetail.state.scheduling import Moving, Places, PlacingState, ReadPods, moving
from dovetail.state.store import Contents, Kept

_NO_PRICES: Final[Mapping[Offered, int]] = {}


class Noted(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All that a picture is made of, as it was at one instant: nothing that happens later touches it."""

    at: datetime
    places: Places
    members: Mapping[NodeKey, ManagedNode]
    read: Mapping[NodeKey, ReadPods]  # of the members that have a Node
    claims: Iterable[Kept[objects.NodeClaim]]
    pdbs: Contents[PdbRecord]
    pools: Mapping[str, ReadPool]
    taken: frozenset[str]  # claims
    expecting: Mapping[str, datetime]  # a pod, until then; by claim or node
    prices: Mapping[str, Mapping[Offered, int]]  # by pool, of what it can be made of
    owed: tuple[Pod, ...]


class Looked(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is known of a node until something about it changes."""

    standing: Standing
    moving: Moving
    blockers: tuple[Verdict, ...]
    cost: float
    disruption: float


class Judged(msgspec.Struct, frozen=True, eq=False, gc=False):
    """For which reasons nothing but budgets holds a node back, and for which something does."""

    of: Looked
    pool: PoolRecord | None
    prices: Mapping[Offered, int]
    candidates: tuple[tuple[Reason, Candidate], ...]
    left: tuple[Left, ...]
    until: datetime | None  # when time alone changes what rules say of the candidates

    def holds(self, of: Looked, pool: PoolRecord | None, prices: Mapping[Offered, int], now: datetime) -> bool:
        """What is left says how much of which budget is used, which changes all the time."""
        same = self.of is of and self.pool is pool and self.prices is prices
        return same and not self.left and (self.until is None or now < self.until)


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
    undone: Mapping[Kind, datetime] = {}  # pods that were moved in vain, and until when they are left alone


class BoardMaker:
    """Make it before the caches run: it subscribes to them."""

    def __init__(
        self, cluster: ClusterState, state: PlacingState, *, options: Options, reading: Reading = Reading.SEED
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._budgets = PoolBudgets(cluster, reading)
        self._options = msgspec.structs.replace(options, strict_reserved=False, refuse_uninitialized=True)
        self.forget()

    def forget(self) -> None:
        """Everything that was found out before, and is kept only to save work."""
        self._alike = AlikePods()
        self._standing = StandingNodes(self._alike)
        self._known: dict[str, Looked] = {}
        self._judgements: dict[str, Judged] = {}
        self._world = LastingWorld(self._options)

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def picture(self, now: datetime) -> Picture:
        """Everything as it is now. This takes long."""
        return self.pictured_of(self.noted(now))

    def noted(self, now: datetime, taken: Callable[[str], bool] = lambda _: False) -> Noted:
        """In one turn, and no longer than it takes to look at what has changed."""
        places, members = self._state.places(), self._cluster.managed.ours()
        claims = (member.claim.metadata.name for member in members.values() if member.claim is not None)
        return Noted(
            at=now,
            places=places,
            members=members,
            read=self._state.movable(),
            claims=self._cluster.claims.snapshot().items.values(),
            pdbs=self._cluster.pdbs.snapshot(),
            pools=self._budgets.pools(),
            taken=frozenset(filter(taken, claims)),
            expecting=self._state.nominations(now),
            prices={name: self._cluster.instance_types.of(name).prices for name in places.types},
            owed=(*self._state.pending().pods, *self._state.leaving(now).pods),
        )

    # -- aside ---------------------------------------------------------------------------------------------------------

    def pictured_of(self, noted: Noted) -> Picture:
        now = noted.at
        self._alike.know(noted.pdbs)
        nodes = self._standing.at(now, noted.members, {name: pool.record for name, pool in noted.pools.items()})
        spending = self._budgets.spending(noted.pools, nodes, now, noted.taken.__contains__)
        candidates: dict[Reason, list[Candidate]] = {}
        left: list[Left] = []
        self._known = looked = {
            one.member.name: self._look(one, read, now)
            for one, read in zip(nodes, map(noted.read.get, noted.members), strict=True)
            if read is not None
        }
        ends: list[datetime] = []
        judgements: dict[str, Judged] = {}
        awaited = _awaited(noted.claims)
        for name, known in sorted(looked.items()):
            claim = known.standing.claim
            if claim is None or claim.metadata.name in awaited or claim.metadata.name in noted.taken:
                continue
            expecting = noted.expecting.get(claim.metadata.name) or noted.expecting.get(name)
            if expecting is not None:  # a pod is on its way there
                ends.append(expecting)
                continue
            judgements[name] = judged = self._judged(known, noted, spending)
            for reason, candidate in judged.candidates:
                candidates.setdefault(reason, []).append(candidate)
            left += judged.left
            if judged.until is not None:
                ends.append(judged.until)
        self._judgements = judgements
        return Picture(
            at=now,
            places=noted.places,
            owed=noted.owed,
            candidates={reason: tuple(found) for reason, found in candidates.items()},
            spending=spending,
            pools=self._facts(noted, looked.values(), awaited),
            left=tuple(left),
            read_pools=noted.pools,
            wake_at=_next_change(left, spending, ends, now),
        )

    def _look(self, one: Standing, read: ReadPods, now: datetime) -> Looked:
        known = self._known.get(one.member.name)
        if known is not None and known.standing is one and known.moving.of is read and known.moving.holds(now):
            return known
        pods, moves = one.member.pods, moving(read, self._alike, now)
        costs = [(pod, max(0.0, pod.eviction_cost)) for pod in pods]
        return Looked(
            standing=one,
            moving=moves,
            blockers=self._blockers(pods, now) if any(each.blockers for each in moves.judged) else (),
            cost=1.0 + sum(cost for pod, cost in costs if pod.reschedulable),
            disruption=1.0 + sum(cost for pod, cost in costs if not is_daemon(pod)),
        )

    def _blockers(self, pods: Iterable[PodRecord], now: datetime) -> tuple[Verdict, ...]:
        """Alike pods share a verdict, which names one of them: here each names the pod of this node."""
        return tuple(
            msgspec.structs.replace(verdict, object=pod.object)
            for pod in pods
            for group in self._alike.groups_of((pod,))
            for verdict in group.judged(now).blockers
        )

    def _judged(self, known: Looked, noted: Noted, spending: Mapping[str, Spending]) -> Judged:
        """For each reason that the node has, what the rules say."""
        one, pool = known.standing, known.standing.member.pool
        read, flaw = noted.pools.get(pool), noted.places.left_out.get(pool)
        record = None if read is None else read.record
        prices = noted.prices.get(pool, _NO_PRICES)
        was = self._judgements.get(one.member.name)
        if was is not None and flaw is None and was.holds(known, record, prices, noted.at):
            return was
        spent = spending.get(pool)
        verdicts = _verdicts(known, record, None if spent is None else spent.allowances, flaw, noted.at)
        open_ = [verdict for verdict in verdicts if _blocked_by_budget_alone(verdict)]
        # When one of these changes, it may be a candidate no more.
        ends = [each.until for verdict in open_ for each in verdict.verdicts if each.rule is not Rule.BUDGET]
        ends += [each.until for each in known.moving.judged] if open_ else []
        return Judged(
            of=known,
            pool=record,
            prices=prices,
            candidates=tuple((each.reason, self._candidate(known, each.reason, prices)) for each in open_),
            left=tuple(
                Left(node=one.member.name, verdict=each) for each in verdicts if not _blocked_by_budget_alone(each)
            ),
            until=min((at for at in ends if at is not None), default=None),
        )

    def _candidate(self, known: Looked, reason: Reason, prices: Mapping[Offered, int]) -> Candidate:
        member = known.standing.member
        claim, node = known.standing.claim, known.standing.node
        assert claim is not None
        assert node is not None
        type_, zone, capacity_type = offer = bought_as(node.metadata.labels)
        price = prices.get(offer)
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
            pods=known.moving.found.pods,
            unmovable=self._why_not(known, reason, offer, price) if reason in CONSOLIDATION else (),
            since=member.claim.true_since(condition),
        )

    @staticmethod
    def _why_not(known: Looked, reason: Reason, offer: Offered, price: int | None) -> tuple[Sentence, ...]:
        """Why it cannot be consolidated (02 §7.1); for other reasons it can go all the same."""
        if price is None and reason is Reason.UNDERUTILIZED:
            type_, zone, capacity_type = (part or "?" for part in offer)
            what = f"instance type {type_} in {zone} as {capacity_type}"
            return (Sentence(f"{what} is not offered, so its price is not known"),)
        return tuple(each.sentence for each in known.moving.found.refused.values())

    def _facts(self, noted: Noted, looked: Iterable[Looked], awaited: Collection[str]) -> dict[str, PoolFacts]:
        """Of each pool. `awaited`: names of the replacements that commands under way wait for."""
        claims: dict[str, list[objects.NodeClaim]] = defaultdict(list)
        for kept in noted.claims:
            claims[kept.value.metadata.labels.get(names.NODEPOOL_LABEL, "")].append(kept.value)
        disruption: dict[str, float] = defaultdict(float)
        for known in looked:
            disruption[known.standing.member.pool] += known.disruption
        return {
            name: self._facts_of(pool, noted, claims[name], awaited, disruption[name])
            for name, pool in noted.pools.items()
        }

    def _facts_of(
        self,
        pool: ReadPool,
        noted: Noted,
        claims: Sequence[objects.NodeClaim],
        awaited: Collection[str],
        disruption: float,
    ) -> PoolFacts:
        record = pool.record
        staying = [each for each in claims if each.metadata.deletion_timestamp is None]
        prices = noted.prices.get(record.name, _NO_PRICES)
        limit = node_limit(pool.pool)
        # A command of a pool with replicas makes one claim for each that it takes, some time after it has begun.
        held = [each.metadata.name for each in staying]
        coming = sum(name in noted.taken for name in held) - sum(name in awaited for name in held)
        return PoolFacts(
            name=record.name,
            policy=record.consolidation_policy or ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED,
            replicas=record.replicas,
            claims=len(staying),
            free_claims=None if limit is None else limit - len(claims) - max(0, coming),
            total_cost=sum(prices.get(bought_as(claim.metadata.labels), 0) for claim in staying),
            total_disruption=disruption,
        )

    def board(self, picture: Picture) -> Board:
        """With the world; what has not changed since the last picture is not read again."""
        places = picture.places
        world = self._world.now(places.nodes, places.pools, places.types, places.daemons)
        candidates = picture.candidates
        if picture.undone:
            spared = {
                reason: tuple(left_alone(each, picture.undone) for each in candidates.get(reason, ()))
                for reason in (Reason.EMPTY, Reason.UNDERUTILIZED)
            }
            candidates = {**candidates, **spared}
        allowances = {
            (pool, reason): allowed
            for pool, spent in picture.spending.items()
            for reason, allowed in spent.allowances.items()
        }
        return Board(
            at=picture.at,
            world=world,
            owed=picture.owed,
            candidates=candidates,
            allowances=allowances,
            pools=picture.pools,
            held=picture.held,
        )


def _verdicts(
    known: Looked,
    pool: PoolRecord | None,
    allowances: Mapping[Reason, Allowance] | None,
    flaw: str | None,
    now: datetime,
) -> list[ReasonVerdict]:
    """`flaw`: why nobody can say what machines the pool has."""
    member = known.standing.member
    if member.claim is None or known.standing.state in IN_DISRUPTION:
        return []
    reasons = list(_reasons(known, pool))
    if not reasons:
        return []
    pods = standing_of(known.moving.judged, known.blockers, len(member.pods))
    own = own_verdicts(member, pool, now)
    found = []
    for reason in reasons:
        allowed = None if allowances is None else allowances[reason]
        verdict = judge_reason(member, pool, reason, now, pods=pods, allowance=allowed, own=own)
        found.append(verdict if flaw is None else _without_types(verdict, member, flaw))
    return found


def _reasons(known: Looked, pool: PoolRecord | None) -> Iterator[Reason]:
    """Those that stand, as conditions and pods tell; whether they may be acted on is for the rules to say."""
    claim = known.standing.member.claim
    assert claim is not None
    if claim.is_true(Condition.DRIFTED):
        yield Reason.DRIFTED
    if claim.is_true(Condition.EXPIRED) and pool is not None:  # it is the pool that says when (R20)
        yield Reason.EXPIRED
    if claim.is_true(Condition.CONSOLIDATABLE) and (pool is None or pool.replicas is None):
        yield consolidation_reason(known.standing.member)


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


def _awaited(claims: Iterable[Kept[objects.NodeClaim]]) -> set[str]:
    """Replacements of commands under way: one that has to wait for the others is empty and must not go for that."""
    records = (record_on(each.value) for each in claims if each.value.metadata.deletion_timestamp is None)
    return {name for record in records if record is not None for name in record.replacements}
