"""Validates commands before they start (02 §8)."""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import REASONS, Candidate, DisruptionBoard, Method, RemainingBudgets
from dovetail.planning.disruption.commands import Command, make_command, saved_by_deleting
from dovetail.planning.disruption.emptiness import without_replacement
from dovetail.planning.disruption.landing import in_waves, replacement_nodes
from dovetail.planning.disruption.replacing import (
    ConsolidationOptions,
    NotConsolidatable,
    decide,
    launch_price,
    too_few_kinds,
)

_SMALLER: Final = "the budget has become smaller"


class RejectionCause(StrEnum):
    """What has changed since the decision, in upstream's words."""

    CHURN = "churn"
    BUDGET = "budget"
    SCHEDULING = "scheduling"


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command, or a part of it, is not started. `nodes`: the rejected nodes."""

    cause: RejectionCause
    message: Sentence
    nodes: tuple[str, ...]


class ValidationResult(NamedTuple):
    """The command as it can start now, and what was rejected. `board`: with the command executed."""

    started: Command | None
    rejected: Rejection | None
    board: DisruptionBoard


def validated(command: Command, board: DisruptionBoard, rules: ConsolidationOptions) -> ValidationResult:
    """Validates one command."""
    if command.method is Method.EMPTINESS:
        return _still_empty(command, board)
    if command.method in (Method.MULTI_NODE, Method.SINGLE_NODE):
        return _still_consolidating(command, board, rules)
    return ValidationResult(command, None, board)


def _present(command: Command, board: DisruptionBoard) -> list[Candidate]:
    """The current versions of its candidates, as far as they are still candidates."""
    now = {candidate.node: candidate for candidate in board.of(REASONS[command.method])}
    same = ((candidate, now.get(candidate.node)) for candidate in command.candidates)
    return [new for old, new in same if new and new.claim_uid == old.claim_uid and board.is_open(new)]


def _still_empty(command: Command, board: DisruptionBoard) -> ValidationResult:
    """Keeps the nodes that are still empty."""
    result = without_replacement(board, _present(command, board))
    going = {candidate.node for candidate in result.taken}
    lost = tuple(node for node in command.nodes if node not in going)
    cause, message = RejectionCause.CHURN, Sentence("pods have come, or something else holds it back now")
    if result.waiting:
        cause, message = RejectionCause.BUDGET, Sentence(_SMALLER)
    elif result.refused:
        cause, message = RejectionCause.SCHEDULING, next(iter(result.refused.values()))
    started = None
    if result.taken:
        savings = saved_by_deleting(result.taken)
        started = make_command(board, command.method, result.taken, solution=result.landing, savings=savings)
    rejected = Rejection(cause=cause, message=message, nodes=lost) if lost else None
    return ValidationResult(started, rejected, result.board)


def _still_consolidating(command: Command, board: DisruptionBoard, rules: ConsolidationOptions) -> ValidationResult:
    """All or nothing. The planned types must be among those that are found now."""
    nodes = tuple(command.nodes)

    def refused(cause: RejectionCause, message: str | Sentence) -> ValidationResult:
        return ValidationResult(None, Rejection(cause=cause, message=Sentence(message), nodes=nodes), board)

    present = _present(command, board)
    if len(present) < len(nodes):
        going = {candidate.node for candidate in present}
        lost = tuple(node for node in nodes if node not in going)
        return refused(RejectionCause.CHURN, f"{', '.join(lost)} cannot go any more")
    if not RemainingBudgets(board, command.reason).within(present):
        return refused(RejectionCause.BUDGET, _SMALLER)
    move = decide(board, present, rules)
    if isinstance(move, NotConsolidatable):
        return refused(RejectionCause.SCHEDULING, move.message)
    if len(move.replacements) > len(command.replacements):
        return refused(RejectionCause.SCHEDULING, "a new node is needed now")
    replacements = [
        msgspec.structs.replace(claim, types=planned.types)
        for planned, claim in zip(command.replacements, move.replacements, strict=False)
        if set(planned.types) <= set(claim.types) and not too_few_kinds(board.world.types, claim, planned.types)
    ]
    if len(replacements) < len(move.replacements):
        return refused(RejectionCause.SCHEDULING, "some of the planned instance types would not do any more")
    held = in_waves(board, rules, msgspec.structs.replace(move, replacements=tuple(replacements)))
    if isinstance(held, NotConsolidatable):
        return refused(RejectionCause.SCHEDULING, held.message)
    price = sum(launch_price(board.world.types, claim) for claim in replacements)
    deleted = saved_by_deleting(present)
    started = make_command(
        board,
        command.method,
        present,
        solution=move.solution,
        replacements=replacements,
        savings=None if deleted is None else deleted - price,
        waves=held.waves,
    )
    return ValidationResult(started, None, board.after(present, move.solution, replacement_nodes(board, replacements)))
