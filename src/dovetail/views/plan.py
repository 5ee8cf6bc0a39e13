"""Shows what one pass of the engine decides: commands, savings, and why other nodes stay."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dovetail.api.names import Reason
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.planning.disruption.board import BlockedNode, DisruptionBoard
from dovetail.planning.disruption.commands import Command, PodDestination
from dovetail.planning.disruption.methods import Decision
from dovetail.planning.disruption.replacing import launch_price
from dovetail.scheduling.placement import MachineType, NewClaim, PodError, PodInfo, Solution
from dovetail.views.explain.data import View
from dovetail.views.explain.pending import PendingSummary

_BILLIONTH = 1e-9
_TYPES_NAMED = 10


class NodeOutcome(StrEnum):
    """What happens to a node now."""

    GOES = "goes"
    WAITS = "waits"  # it could go, but not now: time, or the end of something that is under way
    STUCK = "stuck"  # it could go, but somebody has to act first
    LEAVING = "leaving"  # it goes already
    STAYS = "stays"


class GoingView(View, frozen=True):
    name: str
    node_claim: str
    nodepool: str
    instance_type: str
    zone: str
    capacity_type: str
    price_per_hour: float | None
    pods: int


class NewNodeView(View, frozen=True):
    """A node that would be launched. Names at most ten of its types, the cheapest first."""

    nodepool: str
    instance_types: tuple[str, ...]
    types: int
    price_per_hour: float
    pods: tuple[str, ...]


class MoveView(View, frozen=True):
    """Where a pod is and where it would go; `to` is None if it has no place, `why` says the reason."""

    pod: str
    source: str
    to: str | None
    why: str = ""


class UseView(View, frozen=True):
    nodepool: str
    limit: int
    allowed: int
    takes: int


class CommandView(View, frozen=True):
    """`confirmed_after_seconds`: it is validated after this or earlier, and started only if it is still right."""

    id: str
    reason: str
    method: str
    decision: str
    nodes: tuple[GoingView, ...]
    replacements: tuple[NewNodeView, ...]
    savings_per_hour: float | None
    pods: tuple[MoveView, ...]
    budgets: tuple[UseView, ...]
    confirmed_after_seconds: float | None


class NodeOutcomeView(View, frozen=True):
    """`reasons` for which it could go; `why` it stays or waits."""

    name: str
    nodepool: str
    fate: NodeOutcome
    reasons: tuple[str, ...]
    why: tuple[str, ...]


class NodeAnswer(NamedTuple):
    """What `explain` says of a node that leaves, waits or is stuck."""

    fate: NodeOutcome
    why: str


class RemovalView(View, frozen=True):
    """The result of draining one node now; `possible`: all its pods have a place."""

    node: str
    possible: bool
    pods: tuple[MoveView, ...]
    new_nodes: tuple[NewNodeView, ...]
    cost_change_per_hour: float | None
    blockers: tuple[str, ...]
    """The rules that would block the drain, and until when."""


class PriceView(View, frozen=True):
    """Where prices come from. `known_share`: the part of the nodes' cost whose prices are no guesses."""

    source: str
    known_share: float | None


class PlanView(View, frozen=True):
    at: datetime
    decider: Decider
    prices: PriceView
    commands: tuple[CommandView, ...]
    nodes: tuple[NodeOutcomeView, ...]
    removals: tuple[RemovalView, ...]
    complete: bool
    """False: the time limit was reached before everything was examined."""
    problems: tuple[Finding, ...]
    pending: PendingSummary = PendingSummary()


def plan_view(
    board: DisruptionBoard,
    decision: Decision,
    *,
    pools: Mapping[str, str],
    left: Sequence[BlockedNode],
    answers: Mapping[str, NodeAnswer],
    validation_seconds: float,
    decider: Decider,
    prices: PriceView,
    removals: Iterable[RemovalView] = (),
    problems: Sequence[Finding] = (),
    pending: PendingSummary = PendingSummary(),  # noqa: B008
) -> PlanView:
    """`pools`: of every node to show, by name. `left`: nodes with a reason to go that rules block.

    `answers`: what `explain` says of nodes that leave, wait or are stuck.
    """
    confirmed = validation_seconds if decision.validated_first else None
    return PlanView(
        at=board.at,
        decider=decider,
        prices=prices,
        commands=tuple(_command(board, command, confirmed) for command in decision.commands),
        nodes=tuple(node_outcomes(board, decision, pools, left, answers)),
        removals=tuple(removals),
        complete=decision.complete,
        problems=tuple(problems),
        pending=pending,
    )


# -- commands ----------------------------------------------------------------------------------------------------------


def _command(board: DisruptionBoard, command: Command, confirmed: float | None) -> CommandView:
    names = {pod.uid: str(pod) for candidate in command.candidates for pod in candidate.pods}
    return CommandView(
        id=command.id,
        reason=command.reason.value,
        method=command.method.value,
        decision=command.decision,
        nodes=tuple(
            GoingView(
                name=candidate.node,
                node_claim=candidate.claim,
                nodepool=candidate.pool,
                instance_type=candidate.type,
                zone=candidate.zone,
                capacity_type=candidate.capacity_type,
                price_per_hour=_dollars(candidate.price),
                pods=len(candidate.pods),
            )
            for candidate in command.candidates
        ),
        replacements=tuple(new_node(board.world.types, claim, names) for claim in command.replacements),
        savings_per_hour=_dollars(command.savings),
        pods=tuple(
            MoveView(pod=str(pod), source=candidate.node, to=_text(command.landing.get(pod.uid)))
            for candidate in command.candidates
            for pod in candidate.pods
        ),
        budgets=tuple(
            UseView(nodepool=pool, limit=used.limit, allowed=used.allowed, takes=used.takes)
            for pool, used in command.budgets.items()
        ),
        confirmed_after_seconds=confirmed,
    )


def _text(where: PodDestination | None) -> str | None:
    return None if where is None else str(where)


def new_node(types: Mapping[str, Sequence[MachineType]], claim: NewClaim, names: Mapping[str, str]) -> NewNodeView:
    """`names`: of pods by UID; other pods of the claim are not named."""
    return NewNodeView(
        nodepool=claim.pool,
        instance_types=claim.types[:_TYPES_NAMED],
        types=len(claim.types),
        price_per_hour=_dollars(launch_price(types, claim)) or 0.0,
        pods=tuple(names[uid] for uid in claim.pods if uid in names),
    )


def _dollars(billionths: int | None) -> float | None:
    return None if billionths is None else round(billionths * _BILLIONTH, 6)


# -- the others --------------------------------------------------------------------------------------------------------


def node_outcomes(
    board: DisruptionBoard,
    decision: Decision,
    pools: Mapping[str, str],
    left: Sequence[BlockedNode],
    answers: Mapping[str, NodeAnswer],
) -> Iterable[NodeOutcomeView]:
    """What happens to each of the nodes of `pools`."""
    going = {node: command for command in decision.commands for node in command.nodes}
    blocked_by_node: dict[str, list[BlockedNode]] = defaultdict(list)
    for blocked in left:
        blocked_by_node[blocked.node].append(blocked)
    wanted: dict[str, list[Reason]] = defaultdict(list)
    for reason, candidates in board.candidates.items():
        for candidate in candidates:
            wanted[candidate.node].append(reason)
    for name, pool in sorted(pools.items()):
        reasons = [*wanted[name], *(blocked.verdict.reason for blocked in blocked_by_node[name])]
        if name in going:
            fate, why = NodeOutcome.GOES, [f"{going[name].reason.value}: in command {going[name].id}"]
        elif name in answers:
            fate, why = answers[name].fate, [answers[name].why]
        elif name in decision.standing or (wanted[name] and name not in decision.refused):
            fate, why = NodeOutcome.WAITS, [_waits(board, pool, wanted[name])]
        else:
            fate, why = (
                NodeOutcome.STAYS,
                [*map(str, filter(None, [decision.refused.get(name)])), *_blockers(blocked_by_node[name])],
            )
        yield NodeOutcomeView(
            name=name,
            nodepool=pool,
            fate=fate,
            reasons=tuple(dict.fromkeys(reason.value for reason in reasons)),
            why=tuple(why) or ("it has no reason to go",),
        )


def _blockers(blocked_nodes: Iterable[BlockedNode]) -> Iterable[str]:
    """Each rule once, with all reasons that it blocks."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for blocked in blocked_nodes:
        reasons[str(blocked.blocker)].append(blocked.verdict.reason.value)
    return (f"{', '.join(named)}: {blocker}" for blocker, named in reasons.items())


def _waits(board: DisruptionBoard, pool: str, reasons: Sequence[Reason]) -> str:
    spent = [
        f"{reason.value}: the limit of NodePool {pool} is {allowance.limit}"
        + (", and all of it is used" if allowance.limit else " now")
        for reason in reasons
        if (allowance := board.allowances.get((pool, reason))) is not None and allowance.allowed < 1
    ]
    named = ", ".join(reason.value for reason in reasons)
    return "; ".join(spent) or f"{named}: it waits for the commands above, then the next pass decides again"


# -- one node drained --------------------------------------------------------------------------------------------------


def _why(error: PodError, pool: str) -> str:
    return error.reason if error.no_place is None else error.no_place.told(pool)


class DrainedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node to be removed: its pods that would have to move, and those that cannot be placed."""

    node: str
    price: int | None
    pods: tuple[PodInfo, ...]
    unplaceable: Mapping[str, str] = {}  # why, by pod


def removal_view(
    board: DisruptionBoard, drained: DrainedNode, solution: Solution, *, pool: str, blockers: Sequence[str]
) -> RemovalView:
    """Where each pod of the node would go. `pool`: of the node."""
    names = {pod.uid: str(pod) for pod in drained.pods}
    new = solution.new_for(names)
    to = {uid: f"node/{where}" for where, uids in solution.existing.items() for uid in uids}
    for number, claim in enumerate(new, 1):
        to |= dict.fromkeys(claim.pods, f"new node {number}")
    moves = [
        MoveView(
            pod=names[pod.uid],
            source=drained.node,
            to=to.get(pod.uid),
            why=_why(solution.errors[pod.uid], pool) if pod.uid in solution.errors else "",
        )
        for pod in drained.pods
    ]
    moves += [MoveView(pod=pod, source=drained.node, to=None, why=why) for pod, why in drained.unplaceable.items()]
    price = drained.price
    cost = None if price is None else sum(launch_price(board.world.types, claim) for claim in new) - price
    return RemovalView(
        node=drained.node,
        possible=all(move.to is not None for move in moves),
        pods=tuple(moves),
        new_nodes=tuple(new_node(board.world.types, claim, names) for claim in new),
        cost_change_per_hour=_dollars(cost),
        blockers=tuple(blockers),
    )
