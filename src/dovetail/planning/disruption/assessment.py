"""Assesses for which reasons each node may be disrupted now (02 §3), and decides.

Inputs are copied on the event loop; the evaluation runs on a worker thread: inputs, assessments, board, decision.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConsolidationPolicy, Reason
from dovetail.api.objects import why_not_ready
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.refs import Sentence
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.backoff import WorkloadKey, left_alone
from dovetail.planning.disruption.board import BlockedNode, Candidate, DisruptionBoard, PoolFacts, blocked_for
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.consolidation import GoOn
from dovetail.planning.disruption.evaluation import NodeEvaluation, NodeEvaluator
from dovetail.planning.disruption.landing import Waves, still_without_room
from dovetail.planning.disruption.methods import Decision, decide_pass
from dovetail.planning.disruption.pending_pods import PendingPods, held_back, pending_pods
from dovetail.planning.disruption.pool_budgets import ParsedPool, PoolAllowances, PoolBudgets
from dovetail.planning.disruption.quiet import LastChanges
from dovetail.planning.disruption.records import record_on
from dovetail.planning.disruption.replaceable import ReplacementVerdicts, blocked_by_pool, without_place
from dovetail.planning.disruption.replacing import ConsolidationOptions, NotConsolidatable
from dovetail.planning.disruption.savings_backoff import SavingsBackoff, without_moves
from dovetail.planning.disruption.validation import ValidationResult, validated
from dovetail.planning.nodepool.static_capacity import node_limit
from dovetail.rules.nodes import (
    CONSOLIDATION,
    ReasonVerdict,
    StartingNodes,
    budget_rule,
    judge_reasons,
    marked_reasons,
    own_verdicts,
)
from dovetail.rules.reasons import DISRUPTION_REASONS, MARKED
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule, Verdict, refuse
from dovetail.scheduling.fast import IncrementalWorld, World
from dovetail.scheduling.placement import PodInfo, SchedulingOptions
from dovetail.state.instance_types import OfferingKey, bought_as
from dovetail.state.protections import PodProtections, standing_of
from dovetail.state.schedulable_nodes import is_daemon
from dovetail.state.scheduling import ClusterSnapshot, MovablePods, NodePods, SchedulingInputs, moving
from dovetail.state.store import StoredValue

_NO_PRICES: Final[Mapping[OfferingKey, int]] = {}


class ClosedPool(msgspec.Struct, frozen=True):
    """A NodePool in which no command begins, why, and until when (None: until an object changes)."""

    why: str
    until: datetime | None = None


class DisruptionInputs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The inputs of a pass: the cluster, the commands under way, and the back-offs."""

    snapshot: ClusterSnapshot
    in_commands: frozenset[str] = frozenset()
    """NodeClaims of commands under way."""
    pools_in_backoff: Mapping[str, datetime | None] = {}
    """Pools whose last replacements failed: the end of the back-off (R23); None: until these are gone (R52)."""
    pods_in_backoff: Mapping[WorkloadKey, datetime] = {}
    """Pods whose consolidation saved nothing, and when their back-off ends."""
    savings_backoffs: Mapping[str, SavingsBackoff] = {}
    """Pools whose commands realised too little of what they promised."""
    closed_pools: Mapping[str, ClosedPool] = {}
    """Pools in which no command begins for now."""

    @property
    def at(self) -> datetime:
        return self.snapshot.at


class NodeFacts(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is known about a node until it changes."""

    standing: NodeEvaluation
    moving: MovablePods
    blockers: tuple[Verdict, ...]
    cost: float
    disruption: float


class NodeCandidacy(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The reasons for which nothing but budgets blocks a node, and those for which a rule does."""

    of: NodeFacts
    pool: PoolRecord | None
    prices: Mapping[OfferingKey, int]
    candidates: tuple[tuple[Reason, Candidate], ...]
    left: tuple[BlockedNode, ...]
    until: datetime | None  # when time alone changes the verdicts of the candidates
    starting: StartingNodes | None

    def is_current(
        self,
        of: NodeFacts,
        pool: PoolRecord | None,
        prices: Mapping[OfferingKey, int],
        starting: StartingNodes | None,
        now: datetime,
    ) -> bool:
        """A blocked node's message contains budget usage, so it cannot be cached."""
        same = self.of is of and self.pool is pool and self.prices is prices and self.starting == starting
        return same and not self.left and (self.until is None or now < self.until)


class DisruptionAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates for each reason, and the blocked nodes. `wake_at`: when time alone changes something."""

    inputs: DisruptionInputs
    candidates: Mapping[Reason, tuple[Candidate, ...]]
    spending: Mapping[str, PoolAllowances]
    pools: Mapping[str, PoolFacts]
    left: tuple[BlockedNode, ...]
    read_pools: Mapping[str, ParsedPool]
    pending: PendingPods
    wake_at: datetime | None

    @property
    def at(self) -> datetime:
        return self.inputs.at

    @property
    def places(self) -> SchedulingInputs:
        return self.inputs.snapshot.places


class PassOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The result of a pass.

    `staying`: why nodes with a reason to be disrupted stay. `replacements`: the blocking verdicts of the rule
    `replacement`, by node and reason. `changed_at`: for each command, when something that it reads changed last (R46).
    """

    assessment: DisruptionAssessment
    decision: Decision
    staying: Mapping[str, Sentence]
    replacements: ReplacementVerdicts
    changed_at: tuple[datetime, ...]


class ValidationOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The results of validated commands, in their order."""

    assessment: DisruptionAssessment
    results: tuple[ValidationResult, ...]


class DisruptionPlanner:
    """Assesses nodes and decides which to disrupt. Used by one thread at a time.

    It caches the assessment of a node until its objects, its pods or the verdicts about them change.
    """

    def __init__(self, *, options: SchedulingOptions, settings: RuleSettings = DEFAULT_SETTINGS) -> None:
        self._budgets = PoolBudgets(settings)
        self._options = msgspec.structs.replace(options, strict_reserved=False, refuse_uninitialized=True)
        self.forget()

    def forget(self) -> None:
        """Drops all caches."""
        self._pods = PodProtections()
        self._standing = NodeEvaluator(self._pods)
        self._known: dict[str, NodeFacts] = {}
        self._assessments: dict[str, NodeCandidacy] = {}
        self._world = IncrementalWorld(self._options)
        self._changes = LastChanges()

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self,
        inputs: DisruptionInputs,
        rules: ConsolidationOptions,
        waiting: Sequence[Command] = (),
        go_on: GoOn = lambda: True,
    ) -> PassOutcome:
        """Decides as if the commands that wait for validation were executed."""
        assessment = self.assess(inputs)
        board = self.board(assessment)
        for command in waiting:
            board = validated(command, board, rules).board
        decision = decide_pass(board.without_decided(), rules, go_on=go_on)
        replacements = _not_replaced(board, decision, inputs.pools_in_backoff)
        staying = self._staying(assessment, decision, replacements)
        return PassOutcome(
            assessment=assessment,
            decision=decision,
            staying=staying,
            replacements=replacements,
            changed_at=tuple(map(self._changes.before, decision.commands)),
        )

    def _staying(
        self, assessment: DisruptionAssessment, decision: Decision, replacements: ReplacementVerdicts
    ) -> dict[str, Sentence]:
        """Why each node stays. Of several reasons that a node has, consolidation counts last."""
        taken = {node for command in decision.commands for node in command.nodes}
        sentences: dict[str, Sentence] = {}
        wanted: set[str] = set()
        closed = assessment.inputs.closed_pools
        for name, facts in self._known.items() if closed else ():
            if facts.standing.wanted and (pool := facts.standing.member.pool) in closed:
                sentences[name] = Sentence(f"NodePool {pool}: {closed[pool].why}")
        for reason in MARKED:
            for blocked in assessment.left:
                if blocked.verdict.reason is reason:
                    wanted.add(blocked.node)
                    sentences.setdefault(blocked.node, blocked.sentence)
            for candidate in assessment.candidates.get(reason, ()):
                wanted.add(candidate.node)
                verdict = self._out_of_budget(candidate, reason, assessment) or replacements.get(
                    (candidate.node, reason)
                )
                if verdict is not None and candidate.node not in taken:
                    sentences.setdefault(candidate.node, blocked_for(reason, verdict))
        for blocked in assessment.left:
            if blocked.node not in wanted:
                sentences.setdefault(blocked.node, blocked.sentence)
        return sentences | {node: why for node, why in decision.refused.items() if node not in wanted}

    def _out_of_budget(self, candidate: Candidate, reason: Reason, assessment: DisruptionAssessment) -> Verdict | None:
        """The verdict of a budget of 0. One that is used up is silent: the node only waits for its turn (04 §8.3)."""
        allowance = assessment.spending[candidate.pool].allowances[reason]
        if allowance.limit > 0:
            return None
        return budget_rule(self._known[candidate.node].standing.member, reason, allowance, assessment.at)

    def validate(
        self, inputs: DisruptionInputs, rules: ConsolidationOptions, commands: Sequence[Command]
    ) -> ValidationOutcome:
        """Validates the commands, each as if those before it were executed."""
        assessment = self.assess(inputs)
        board, results = self.board(assessment), list[ValidationResult]()
        for command in commands:
            results.append(validated(command, board, rules))
            board = results[-1].board
        return ValidationOutcome(assessment=assessment, results=tuple(results))

    def without_room(
        self, snapshot: ClusterSnapshot, pods: Collection[str], staying: Collection[str], waves: Waves
    ) -> PodInfo | None:
        """The last look before a drain: the pod of a command that would find no room; None: all do (R55).

        `staying`: pods of other commands, which have not had this look yet.
        """
        owed = tuple(pod for pod in snapshot.owed if pod.uid not in staying)
        return still_without_room(self._world_of(snapshot), owed, pods, waves)

    # -- assessment ----------------------------------------------------------------------------------------------------

    def assess(self, inputs: DisruptionInputs) -> DisruptionAssessment:
        """Assesses every node."""
        snapshot, now = inputs.snapshot, inputs.at
        self._pods.know(snapshot.pdbs)
        pools = self._budgets.read(snapshot.pools)
        nodes = self._standing.at(now, snapshot.nodes, {name: pool.record for name, pool in pools.items()})
        spending = self._budgets.spending(pools, nodes, now, inputs.in_commands.__contains__)
        self._changes.observe(snapshot, pools, spending)
        candidates: dict[Reason, list[Candidate]] = {}
        left: list[BlockedNode] = []
        self._known = facts = {
            standing.member.name: self._look(standing, read, now)
            for standing, read in zip(nodes, map(snapshot.movable.get, snapshot.nodes), strict=True)
            if read is not None
        }
        ends = [*filter(None, inputs.pools_in_backoff.values()), *inputs.pods_in_backoff.values()]
        ends += [backoff.until for backoff in inputs.savings_backoffs.values()]
        ends += [closed.until for closed in inputs.closed_pools.values() if closed.until is not None]
        judgements: dict[str, NodeCandidacy] = {}
        awaited = _awaited(snapshot.claims.items.values())
        for name, node_facts in sorted(facts.items()):
            claim = node_facts.standing.claim
            if claim is None or claim.metadata.name in awaited or claim.metadata.name in inputs.in_commands:
                continue
            if node_facts.standing.member.pool in inputs.closed_pools:
                continue
            nominated_until = snapshot.nominations.get(claim.metadata.name) or snapshot.nominations.get(name)
            if nominated_until is not None:  # a pending pod is nominated to this node
                ends.append(nominated_until)
                continue
            judgements[name] = judged = self._judged(node_facts, inputs, pools, spending)
            for reason, candidate in judged.candidates:
                candidates.setdefault(reason, []).append(candidate)
            left += judged.left
            if judged.until is not None:
                ends.append(judged.until)
        self._assessments = judgements
        pending = PendingPods()
        if any(reason in CONSOLIDATION for reason in candidates):
            pending = pending_pods(self._world_of(snapshot), snapshot.owed, now)
        return DisruptionAssessment(
            inputs=inputs,
            candidates={reason: tuple(some) for reason, some in candidates.items()},
            spending=spending,
            pools=self._facts(inputs, pools, facts.values(), awaited),
            left=tuple(left),
            read_pools=pools,
            pending=pending,
            wake_at=_next_change(left, candidates, spending, [*ends, *filter(None, [pending.until()])], now),
        )

    def _look(self, one: NodeEvaluation, read: NodePods, now: datetime) -> NodeFacts:
        cached = self._known.get(one.member.name)
        if cached is not None and cached.standing is one and cached.moving.of is read and cached.moving.is_current(now):
            return cached
        pods, moves = one.member.pods, moving(read, self._pods, now)
        costs = [(pod, max(0.0, pod.eviction_cost)) for pod in pods]
        return NodeFacts(
            standing=one,
            moving=moves,
            blockers=self._blockers(pods, now) if any(each.blockers for each in moves.judged) else (),
            cost=1.0 + sum(cost for pod, cost in costs if pod.reschedulable),
            disruption=1.0 + sum(cost for pod, cost in costs if not is_daemon(pod)),
        )

    def _blockers(self, pods: Iterable[PodRecord], now: datetime) -> tuple[Verdict, ...]:
        """Similar pods share a verdict that names one of them. Here each verdict names the pod of this node."""
        return tuple(
            msgspec.structs.replace(verdict, object=pod.object)
            for pod in pods
            for group in self._pods.groups_of((pod,))
            for verdict in group.judged(now).blockers
        )

    def _judged(
        self,
        known: NodeFacts,
        inputs: DisruptionInputs,
        pools: Mapping[str, ParsedPool],
        spending: Mapping[str, PoolAllowances],
    ) -> NodeCandidacy:
        """Applies the rules for each reason that the node has."""
        standing, pool = known.standing, known.standing.member.pool
        snapshot = inputs.snapshot
        read, flaw = pools.get(pool), snapshot.places.left_out.get(pool)
        record = None if read is None else read.record
        prices = snapshot.prices.get(pool, _NO_PRICES)
        was = self._assessments.get(standing.member.name)
        spent = spending.get(pool)
        starting = None if spent is None else spent.starting
        if was is not None and flaw is None and was.is_current(known, record, prices, starting, inputs.at):
            return was
        verdicts = _verdicts(known, record, spent, flaw, inputs.at)
        open_ = [verdict for verdict in verdicts if _blocked_by_budget_alone(verdict)]
        # When one of these changes, the node may no longer be a candidate.
        ends = [rule.until for verdict in open_ for rule in verdict.verdicts if rule.rule is not Rule.BUDGET]
        ends += [judgement.until for judgement in known.moving.judged] if open_ else []
        return NodeCandidacy(
            of=known,
            pool=record,
            prices=prices,
            candidates=tuple((verdict.reason, self._candidate(known, verdict.reason, prices)) for verdict in open_),
            left=tuple(
                BlockedNode(node=standing.member.name, verdict=verdict)
                for verdict in verdicts
                if not _blocked_by_budget_alone(verdict)
            ),
            until=min((at for at in ends if at is not None), default=None),
            starting=starting,
        )

    def _candidate(self, known: NodeFacts, reason: Reason, prices: Mapping[OfferingKey, int]) -> Candidate:
        member = known.standing.member
        claim, node = known.standing.claim, known.standing.node
        assert claim is not None and node is not None and member.claim is not None  # noqa: PT018
        type_, zone, capacity_type = offer = bought_as(node.metadata.labels)
        price = prices.get(offer)
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
            pods=known.moving.to_place.pods,
            unmovable=self._why_not(known, reason, offer, price) if reason in CONSOLIDATION else (),
            since=member.claim.true_since(DISRUPTION_REASONS[reason].condition),
        )

    @staticmethod
    def _why_not(known: NodeFacts, reason: Reason, offer: OfferingKey, price: int | None) -> tuple[Sentence, ...]:
        """Why the node cannot be consolidated (02 §7.1). Other reasons are not affected."""
        if price is None and reason is Reason.UNDERUTILIZED:
            type_, zone, capacity_type = (part or "?" for part in offer)
            what = f"instance type {type_} in {zone} as {capacity_type}"
            return (Sentence(f"{what} is not offered, so its price is not known"),)
        return tuple(refusal.sentence for refusal in known.moving.to_place.refused.values())

    def _facts(
        self,
        inputs: DisruptionInputs,
        pools: Mapping[str, ParsedPool],
        nodes: Iterable[NodeFacts],
        awaited: Collection[str],
    ) -> dict[str, PoolFacts]:
        """The facts of each pool. `awaited`: the replacements of commands under way."""
        claims: dict[str, list[objects.NodeClaim]] = defaultdict(list)
        for stored in inputs.snapshot.claims.items.values():
            claims[stored.value.metadata.labels.get(names.NODEPOOL_LABEL, "")].append(stored.value)
        disruption: dict[str, float] = defaultdict(float)
        for node in nodes:
            disruption[node.standing.member.pool] += node.disruption
        return {
            name: self._facts_of(pool, inputs, claims[name], awaited, disruption[name]) for name, pool in pools.items()
        }

    def _facts_of(
        self,
        pool: ParsedPool,
        inputs: DisruptionInputs,
        claims: Sequence[objects.NodeClaim],
        awaited: Collection[str],
        disruption: float,
    ) -> PoolFacts:
        record = pool.record
        staying = [claim for claim in claims if claim.metadata.deletion_timestamp is None]
        prices = inputs.snapshot.prices.get(record.name, _NO_PRICES)
        limit = node_limit(pool.pool)
        # A command of a pool with replicas creates one claim for each node, some time after its start.
        present = [claim.metadata.name for claim in staying]
        coming = sum(name in inputs.in_commands for name in present) - sum(name in awaited for name in present)
        return PoolFacts(
            name=record.name,
            not_ready=why_not_ready(pool.pool),
            policy=record.consolidation_policy or ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED,
            replicas=record.replicas,
            claims=len(staying),
            node_limit=limit,
            free_claims=None if limit is None else limit - len(claims) - max(0, coming),
            total_cost=sum(prices.get(bought_as(claim.metadata.labels), 0) for claim in staying),
            total_disruption=disruption,
        )

    def _world_of(self, snapshot: ClusterSnapshot) -> World:
        places = snapshot.places
        return self._world.now(places.nodes, places.pools, places.types, places.daemons)

    def board(self, assessment: DisruptionAssessment) -> DisruptionBoard:
        """The board for the methods. Scheduling reads only what has changed since the last pass."""
        inputs, candidates, pending = assessment.inputs, assessment.candidates, assessment.pending
        undone, vain = inputs.pods_in_backoff, inputs.savings_backoffs
        if undone or vain or pending != PendingPods():
            spared = {
                reason: tuple(
                    held_back(left_alone(without_moves(candidate, vain), undone), reason, pending) for candidate in some
                )
                for reason, some in candidates.items()
                if reason in CONSOLIDATION
            }
            candidates = {**candidates, **spared}
        allowances = {
            (pool, reason): allowed
            for pool, spent in assessment.spending.items()
            for reason, allowed in spent.allowances.items()
        }
        return DisruptionBoard(
            at=inputs.at,
            world=self._world_of(inputs.snapshot),
            owed=inputs.snapshot.owed,
            candidates=candidates,
            allowances=allowances,
            pools=assessment.pools,
            pools_in_backoff=frozenset(inputs.pools_in_backoff),
        )


def _verdicts(
    known: NodeFacts,
    pool: PoolRecord | None,
    spent: PoolAllowances | None,
    flaw: str | None,
    now: datetime,
) -> list[ReasonVerdict]:
    """`flaw`: why the instance types of the pool are unknown."""
    member = known.standing.member
    if member.claim is None or known.standing.state in IN_DISRUPTION:
        return []
    reasons = list(marked_reasons(member, pool))
    if not reasons:
        return []
    pods = standing_of(known.moving.judged, known.blockers, len(member.pods))
    own = own_verdicts(member, pool, now)
    allowances, starting = (None, None) if spent is None else (spent.allowances, spent.starting)
    verdicts = judge_reasons(
        member, pool, now, pods=pods, allowances=allowances, own=own, reasons=reasons, starting=starting
    )
    return verdicts if flaw is None else [_without_types(verdict, member, flaw) for verdict in verdicts]


def _without_types(verdict: ReasonVerdict, member: ClusterNode, flaw: str) -> ReasonVerdict:
    """Nodes of a pool with unknown instance types stay (02 §3)."""
    blocked = refuse(Rule.NODEPOOL, member.object, f"NodePool {member.pool} is left out: {flaw}")
    return msgspec.structs.replace(verdict, allowed=False, verdicts=(blocked, *verdict.verdicts))


def _blocked_by_budget_alone(verdict: ReasonVerdict) -> bool:
    return all(rule.allowed or rule.rule is Rule.BUDGET for rule in verdict.verdicts)


def _not_replaced(
    board: DisruptionBoard, decision: Decision, backoffs: Mapping[str, datetime | None]
) -> dict[tuple[str, Reason], Verdict]:
    """Why nodes are not replaced, as far as the pass has found out."""
    taken = {node for command in decision.commands for node in command.nodes}
    verdicts: dict[tuple[str, Reason], Verdict] = {}
    for reason in MARKED:
        for candidate in board.of(reason):
            why, verdict = (
                decision.unreplaced.get((candidate.node, reason)),
                blocked_by_pool(board, candidate, backoffs),
            )
            if why is not None:
                verdict = without_place(candidate, NotConsolidatable(why), board.pools[candidate.pool])
            if candidate.node not in taken and verdict is not None and not verdict.allowed:
                verdicts[candidate.node, reason] = verdict
    return verdicts


def _next_change(
    left: Iterable[BlockedNode],
    candidates: Mapping[Reason, Iterable[Candidate]],
    spending: Mapping[str, PoolAllowances],
    others: Iterable[datetime],
    now: datetime,
) -> datetime | None:
    """When a rule that blocks a node ends, the budget of a candidate changes, or one of the other instants comes.

    Budgets matter to candidates only: a node that another rule blocks stays, and the message is about that rule.
    """
    verdicts = (verdict for node in left for verdict in node.verdict.verdicts)
    blocking = (verdict for verdict in verdicts if not verdict.allowed and verdict.rule is not Rule.BUDGET)
    ends = [*others, *(blocker.until for verdict in blocking for blocker in (verdict, *verdict.blockers))]
    budgets = {(candidate.pool, reason) for reason, some in candidates.items() for candidate in some}
    ends += [spending[pool].allowances[reason].until for pool, reason in budgets]
    return min((at for at in ends if at is not None and at > now), default=None)


def _awaited(claims: Iterable[StoredValue[objects.NodeClaim]]) -> set[str]:
    """The replacements of commands under way. They are empty at first, and must not be disrupted for that."""
    records = (record_on(claim.value) for claim in claims if claim.value.metadata.deletion_timestamp is None)
    return {name for record in records if record is not None for name in record.replacements}
