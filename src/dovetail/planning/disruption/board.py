"""What a pass of the disruption engine looks at: one picture, taken at one instant (02 §3, §5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property

import msgspec

from dovetail.api.names import CapacityType, ConsolidationPolicy, Reason
from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.rules.budgets import Allowance
from dovetail.rules.nodes import CONSOLIDATION, ReasonVerdict
from dovetail.scheduling.fast import World
from dovetail.scheduling.placement import PodInfo, Solution
from dovetail.scheduling.resources import Resources, total
from dovetail.values.timestamp import format_time


class Candidate(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node that may be taken, and what that means."""

    node: str
    claim: str
    claim_uid: str
    pool: str
    type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int | None = None  # billionths an hour; None: its offering is not known
    cost: float = 1.0  # of moving its pods (02 §6); 1 if they cost nothing, or there are none
    pods: tuple[PodInfo, ...] = ()  # that need a place elsewhere now
    unmovable: tuple[Sentence, ...] = ()  # why pods of it can be placed nowhere, so that it cannot be consolidated
    since: datetime | None = None  # when the reason was first seen

    @cached_property
    def request(self) -> Resources:
        """What its pods ask for together."""
        return total(pod.request for pod in self.pods)

    @property
    def bare(self) -> bool:
        """Whether no pod needs a place elsewhere, whatever it costs to move."""
        return not (self.pods or self.unmovable)

    @property
    def savings_ratio(self) -> float:
        return (self.price or 0) / self.cost

    @property
    def spot(self) -> bool:
        return self.capacity_type == CapacityType.SPOT


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions ask of a NodePool besides its budgets."""

    name: str
    policy: str = ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED
    replicas: int | None = None
    claims: int = 0  # that are not being deleted, replacements of commands included
    free_claims: int | None = None  # that its limit of nodes leaves; None: no limit
    total_cost: int = 0  # of all its claims
    total_disruption: float = 0.0  # of all its nodes: 1 and what their pods cost to move


class BlockedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has a reason to go and is left alone, by what rules."""

    node: str
    verdict: ReasonVerdict

    @property
    def sentence(self) -> Sentence:
        """For which reason it would go, what keeps it, and until when."""
        return Sentence(f"{self.verdict.reason.value}: ", self.blocker)

    @property
    def blocker(self) -> Sentence:
        """Of the rules that keep it the first."""
        first = next(each for each in self.verdict.verdicts if not each.allowed)
        first = first.blockers[0] if first.blockers else first
        return told_until(first.object, first.message, first.until)


def told_until(about: Ref, message: str, until: datetime | None) -> Sentence:
    """A rule's sentence about its object, and until when it holds, if it does not say that itself."""
    stamp = "" if until is None else format_time(until)
    return Sentence(Redactable(about, f"{about}: {message}"), f", until {stamp}" if stamp not in message else "")


class DisruptionBoard(msgspec.Struct, frozen=True, kw_only=True):
    """`candidates` of each reason are held back by nothing but budgets. `owed`: pods that are to be placed anyway.

    `held`: pools whose last replacements did not come up, so that for a while none is tried (R23).
    What the same pass has decided before: `gone` are nodes, `moved` those of their pods that go to nodes that are
    there, and `landing`, by UID, to which.
    """

    at: datetime
    world: World
    owed: tuple[PodInfo, ...] = ()
    candidates: Mapping[Reason, tuple[Candidate, ...]] = {}
    allowances: Mapping[tuple[str, Reason], Allowance] = {}
    pools: Mapping[str, PoolFacts] = {}
    held: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    moved: tuple[PodInfo, ...] = ()
    landing: Mapping[str, str] = {}

    def of(self, reason: Reason) -> tuple[Candidate, ...]:
        return self.candidates.get(reason, ())

    def is_open(self, candidate: Candidate) -> bool:
        """Whether nothing that was decided in this pass is about it."""
        return candidate.node not in self.gone and candidate.node not in self.expecting

    def with_open_ones(self) -> "DisruptionBoard":
        """Without candidates that something has been decided about."""
        if not self.gone:
            return self
        found = {reason: tuple(filter(self.is_open, each)) for reason, each in self.candidates.items()}
        return msgspec.structs.replace(self, candidates=found)

    @property
    def expecting(self) -> set[str]:
        """Nodes to which pods are to go."""
        return set(self.landing.values())

    def after(self, candidates: Sequence[Candidate], solution: Solution) -> "DisruptionBoard":
        """As if they had gone, whichever reason for: all budgets of their pools have so much less."""
        its = {pod.uid: pod for each in candidates for pod in each.pods}
        its |= {pod.uid: pod for pod in self.moved}
        found = {uid: node for node, uids in solution.existing.items() for uid in uids if uid in its}
        landing = {**self.landing, **found}
        pools = Counter(each.pool for each in candidates)
        return msgspec.structs.replace(
            self,
            gone=self.gone | {each.node for each in candidates},
            moved=tuple(its[uid] for uid in landing),
            landing=landing,
            allowances={
                (pool, reason): msgspec.structs.replace(each, allowed=max(0, each.allowed - pools[pool]))
                for (pool, reason), each in self.allowances.items()
            },
        )


class RemainingBudgets:
    """What is left of the allowances while commands are put together."""

    def __init__(self, board: DisruptionBoard, reason: Reason) -> None:
        self._left = {pool: each.allowed for (pool, named), each in board.allowances.items() if named is reason}
        self._static = {name for name, pool in board.pools.items() if pool.replicas is not None}
        self._held = board.held

    def left(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def allow(self, candidate: Candidate) -> bool:
        """Whether one more of its pool may go, and this one; one that needs no replacement waits for no other (R23)."""
        replaced = bool(candidate.pods) or candidate.pool in self._static
        return self.left(candidate.pool) > 0 and not (replaced and candidate.pool in self._held)

    def take(self, candidate: Candidate) -> bool:
        """Whether it may go; then there is one less."""
        if not self.allow(candidate):
            return False
        self._left[candidate.pool] -= 1
        return True

    def within(self, candidates: "tuple[Candidate, ...] | list[Candidate]") -> bool:
        """Whether all of them may go together."""
        wanted: dict[str, int] = {}
        for each in candidates:
            wanted[each.pool] = wanted.get(each.pool, 0) + 1
        return all(map(self.allow, candidates)) and all(number <= self.left(pool) for pool, number in wanted.items())


class Method(StrEnum):
    """How a node is found; the value is upstream's `consolidation_type` where there is one."""

    EMPTINESS = "empty"
    STATIC_DRIFT = "static-drift"
    STATIC_EXPIRATION = "static-expiration"
    DRIFT = "drift"
    EXPIRATION = "expiration"
    MULTI_NODE = "multi"
    SINGLE_NODE = "single"


REASONS = {
    Method.EMPTINESS: Reason.EMPTY,
    Method.STATIC_DRIFT: Reason.DRIFTED,
    Method.STATIC_EXPIRATION: Reason.EXPIRED,
    Method.DRIFT: Reason.DRIFTED,
    Method.EXPIRATION: Reason.EXPIRED,
    Method.MULTI_NODE: Reason.UNDERUTILIZED,
    Method.SINGLE_NODE: Reason.UNDERUTILIZED,
}
# Of pools with replicas: each node that goes is replaced by one straight from the template.
STATIC = frozenset({Method.STATIC_DRIFT, Method.STATIC_EXPIRATION})
CONSOLIDATING = frozenset(method for method, reason in REASONS.items() if reason in CONSOLIDATION)


def consolidation_type(method: Method) -> str:
    """Upstream's label of metrics; it is empty for drift and expiration."""
    return method.value if method in CONSOLIDATING else ""
