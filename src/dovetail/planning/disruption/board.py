"""The board: what the methods of a disruption pass read (02 §3, §5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property

import msgspec

from dovetail.api.names import CapacityType, ConsolidationPolicy, Reason
from dovetail.model.refs import Sentence
from dovetail.rules.budgets import Allowance
from dovetail.rules.nodes import CONSOLIDATION, ReasonVerdict
from dovetail.rules.verdict import Verdict
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ComingNode
from dovetail.scheduling.placement import PodInfo, Solution
from dovetail.scheduling.resources import Resources, total
from dovetail.values.timestamp import spoken_time


class Candidate(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node that may be disrupted."""

    node: str
    claim: str
    claim_uid: str
    pool: str
    type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int | None = None  # billionths per hour; None: unknown
    cost: float = 1.0  # of moving its pods (02 §6); 1 if they cost nothing
    pods: tuple[PodInfo, ...] = ()  # that need another place now
    unmovable: tuple[Sentence, ...] = ()  # why pods cannot be placed, so that it cannot be consolidated
    since: datetime | None = None  # when the node got the reason

    @cached_property
    def request(self) -> Resources:
        """The sum of the pods' requests."""
        return total(pod.request for pod in self.pods)

    @property
    def bare(self) -> bool:
        """Whether no pod needs another place."""
        return not (self.pods or self.unmovable)

    @property
    def savings_ratio(self) -> float:
        return (self.price or 0) / self.cost

    @property
    def spot(self) -> bool:
        return self.capacity_type == CapacityType.SPOT


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions read of a NodePool besides its budgets."""

    name: str
    not_ready: str = ""  # why it makes no new nodes
    policy: str = ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED
    replicas: int | None = None
    claims: int = 0  # not being deleted, including replacements
    node_limit: int | None = None  # of a pool with replicas
    free_claims: int | None = None  # within the limit of nodes; None: no limit
    total_cost: int = 0  # of all its claims
    total_disruption: float = 0.0  # of all its nodes: 1 plus the cost of their pods


class BlockedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with a reason to be disrupted that rules block."""

    node: str
    verdict: ReasonVerdict

    @property
    def first(self) -> Verdict:
        """The first rule that blocks it, of the first pod if pods do."""
        first = next(verdict for verdict in self.verdict.verdicts if not verdict.allowed)
        return first.blockers[0] if first.blockers else first

    @property
    def sentence(self) -> Sentence:
        """The reason, what blocks it, and until when."""
        return blocked_for(self.verdict.reason, self.first)

    @property
    def blocker(self) -> Sentence:
        """The first rule that blocks it."""
        return blocked_sentence(self.first)


def blocked_for(reason: Reason, verdict: Verdict) -> Sentence:
    """`Drifted: Pod/shop/cart-0: …`."""
    return Sentence(f"{reason.value}: ", blocked_sentence(verdict))


def blocked_sentence(verdict: Verdict) -> Sentence:
    """What blocks a node, with the end of the block if the message does not have it."""
    stamp = "" if verdict.until is None else spoken_time(verdict.until)
    return Sentence(verdict.told, f", until {stamp}" if stamp not in verdict.message else "")


class DisruptionBoard(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing but budgets blocks the `candidates` of a reason. `owed`: pods that need a place whatever is decided.

    `pools_in_backoff`: pools whose last replacements failed, so that none are created for now (R23).
    What the same pass has decided before: `gone` are nodes, `arriving` their pods, `coming` their replacements, `moved`
    those of the pods that go to existing nodes, and `landing` these nodes by pod UID.
    """

    at: datetime
    world: World
    owed: tuple[PodInfo, ...] = ()
    candidates: Mapping[Reason, tuple[Candidate, ...]] = {}
    allowances: Mapping[tuple[str, Reason], Allowance] = {}
    pools: Mapping[str, PoolFacts] = {}
    pools_in_backoff: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    moved: tuple[PodInfo, ...] = ()
    landing: Mapping[str, str] = {}
    arriving: tuple[PodInfo, ...] = ()
    coming: tuple[ComingNode, ...] = ()

    def of(self, reason: Reason) -> tuple[Candidate, ...]:
        return self.candidates.get(reason, ())

    def is_open(self, candidate: Candidate) -> bool:
        """Whether this pass has decided nothing about the node."""
        return candidate.node not in self.gone and candidate.node not in self.expecting

    def without_decided(self) -> "DisruptionBoard":
        """Without candidates that this pass has decided about."""
        if not self.gone:
            return self
        candidates = {reason: tuple(filter(self.is_open, some)) for reason, some in self.candidates.items()}
        return msgspec.structs.replace(self, candidates=candidates)

    @property
    def expecting(self) -> set[str]:
        """Nodes that moved pods go to."""
        return set(self.landing.values())

    def after(
        self, candidates: Sequence[Candidate], solution: Solution, coming: Sequence[ComingNode] = ()
    ) -> "DisruptionBoard":
        """The board as if these nodes were gone. It reduces the budgets of all reasons of their pools."""
        pods = {pod.uid: pod for pod in (*(pod for candidate in candidates for pod in candidate.pods), *self.moved)}
        targets = {uid: node for node, uids in solution.existing.items() for uid in uids if uid in pods}
        landing = {**self.landing, **targets}
        taken = Counter(candidate.pool for candidate in candidates)
        return msgspec.structs.replace(
            self,
            gone=self.gone | {candidate.node for candidate in candidates},
            arriving=(*self.arriving, *(pod for candidate in candidates for pod in candidate.pods)),
            coming=(*self.coming, *coming),
            moved=tuple(pods[uid] for uid in landing),
            landing=landing,
            allowances={
                (pool, reason): msgspec.structs.replace(allowance, allowed=max(0, allowance.allowed - taken[pool]))
                for (pool, reason), allowance in self.allowances.items()
            },
        )


class RemainingBudgets:
    """The rest of the allowances while commands are built."""

    def __init__(self, board: DisruptionBoard, reason: Reason) -> None:
        self._left = {
            pool: allowance.allowed for (pool, named), allowance in board.allowances.items() if named is reason
        }
        self._static = {name for name, pool in board.pools.items() if pool.replicas is not None}
        self._pools_in_backoff = board.pools_in_backoff

    def left(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def allow(self, candidate: Candidate) -> bool:
        """Whether the budget allows the node. A back-off only blocks nodes that need a replacement (R23)."""
        replaced = bool(candidate.pods) or candidate.pool in self._static
        return self.left(candidate.pool) > 0 and not (replaced and candidate.pool in self._pools_in_backoff)

    def take(self, candidate: Candidate) -> bool:
        """Takes one from the budget, if that allows the node."""
        if not self.allow(candidate):
            return False
        self._left[candidate.pool] -= 1
        return True

    def within(self, candidates: Sequence[Candidate]) -> bool:
        """Whether the budgets allow all of them together."""
        wanted = Counter(candidate.pool for candidate in candidates)
        return all(map(self.allow, candidates)) and all(number <= self.left(pool) for pool, number in wanted.items())


class Method(StrEnum):
    """How candidates are chosen. The value is upstream's `consolidation_type` where there is one."""

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
# For pools with replicas: each node is replaced by one from the template.
STATIC = frozenset({Method.STATIC_DRIFT, Method.STATIC_EXPIRATION})
CONSOLIDATING = frozenset(method for method, reason in REASONS.items() if reason in CONSOLIDATION)


def consolidation_type(method: Method) -> str:
    """Upstream's metric label; empty for drift and expiration."""
    return method.value if method in CONSOLIDATING else ""
