"""Commands: the decisions of a pass, as data that is shown, recorded on objects and executed (R24, 02 §9)."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.api.names import Reason
from dovetail.planning.disruption.board import REASONS, Candidate, DisruptionBoard, Method
from dovetail.scheduling.placement import NewClaim, Solution


class BudgetUse(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of one pool at the decision, and what the command takes of it."""

    limit: int
    allowed: int
    takes: int


class PodDestination(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod is expected: an existing node, or a replacement of the command, counted from 1."""

    node: str = ""
    replacement: int | None = None

    def __str__(self) -> str:
        return f"node/{self.node}" if self.replacement is None else f"replacement {self.replacement}"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Deletes the candidates once the replacements are initialized. `landing`: by pod UID, where it is expected."""

    id: str
    at: datetime
    method: Method
    candidates: tuple[Candidate, ...]
    replacements: tuple[NewClaim, ...] = ()
    savings: int | None = None  # billionths per hour; None: some price is unknown
    landing: Mapping[str, PodDestination] = {}
    budgets: Mapping[str, BudgetUse] = {}
    waves: tuple[tuple[str, ...], ...] = ()  # UIDs of pods that are evicted before the others

    @property
    def reason(self) -> Reason:
        return REASONS[self.method]

    @property
    def decision(self) -> str:
        return "replace" if self.replacements else "delete"

    @property
    def nodes(self) -> list[str]:
        return [candidate.node for candidate in self.candidates]


def make_command(
    board: DisruptionBoard,
    method: Method,
    candidates: Sequence[Candidate],
    *,
    solution: Solution = Solution(),  # noqa: B008  frozen
    replacements: Sequence[NewClaim] = (),
    savings: int | None = None,
    waves: tuple[tuple[str, ...], ...] = (),
) -> Command:
    """Builds the command with everything that people and a later leader need."""
    reason = REASONS[method]
    used = Counter(candidate.pool for candidate in candidates)
    budgets = {
        pool: BudgetUse(limit=allowance.limit, allowed=allowance.allowed, takes=number)
        for pool, number in sorted(used.items())
        if (allowance := board.allowances.get((pool, reason))) is not None
    }
    return Command(
        id=command_id(board.at, method, candidates),
        at=board.at,
        method=method,
        candidates=tuple(candidates),
        replacements=tuple(replacements),
        savings=savings,
        landing=_landing(solution, candidates, replacements),
        budgets=budgets,
        waves=waves,
    )


def with_final_landing(commands: Iterable[Command], board: DisruptionBoard) -> tuple[Command, ...]:
    """The commands with the final landing of their pods. Each was decided before the later ones were known."""
    return tuple(
        msgspec.structs.replace(
            command,
            landing={
                uid: PodDestination(node=board.landing[uid]) if uid in board.landing else where
                for uid, where in command.landing.items()
            },
        )
        for command in commands
    )


def saved_by_deleting(candidates: Iterable[Candidate]) -> int | None:
    """Returns None if some price is unknown."""
    prices = [candidate.price for candidate in candidates]
    return None if None in prices else sum(filter(None, prices))


def command_id(at: datetime, method: Method, candidates: Sequence[Candidate]) -> str:
    """Equal for equal decisions; short, because it is a part of names."""
    said = "/".join((at.isoformat(), method.value, *sorted(candidate.claim_uid for candidate in candidates)))
    return hashlib.sha256(said.encode()).hexdigest()[:10]


def _landing(solution: Solution, candidates: Sequence[Candidate], new: Sequence[NewClaim]) -> dict[str, PodDestination]:
    moved = {pod.uid for candidate in candidates for pod in candidate.pods}
    landing = {
        uid: PodDestination(node=node) for node, uids in solution.existing.items() for uid in uids if uid in moved
    }
    for number, claim in enumerate(new, 1):
        landing |= {uid: PodDestination(replacement=number) for uid in claim.pods if uid in moved}
    return landing
