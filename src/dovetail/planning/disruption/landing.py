"""Checks that the pods of a command find room in every order in which they may arrive (R55).

If they do not, the pods without room are evicted earlier than the others, in waves: the next wave begins when the
successors of the last one are bound. If that does not help either, the command is not worth trying.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from dovetail.model.refs import Redactable, Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, NotConsolidatable, decide
from dovetail.planning.landing import arrival_orders, coming_nodes
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ComingNode, without_room
from dovetail.scheduling.placement import NewClaim, PodInfo, price_text

# UIDs of the pods of each wave. The last wave, with all other pods, is left out.
Waves: TypeAlias = tuple[tuple[str, ...], ...]

_MOST_WAVES: Final = 6
# Very large commands are checked with fewer waves.
_MOST_CHECKS, _PODS_IN_CHECKS = 36, 40_000
_MOST_TRIES: Final = 12
_FEW: Final = 8  # nodes


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that arrive together: those of a command, and others whose order nobody chooses."""

    pods: tuple[PodInfo, ...]
    others: tuple[PodInfo, ...] = ()
    homeless: frozenset[str] = frozenset()  # UIDs of others without room in any case
    without: tuple[str, ...] = ()
    coming: tuple[ComingNode, ...] = ()


def in_waves(board: DisruptionBoard, rules: ConsolidationOptions, move: Move) -> Move | NotConsolidatable:
    """The move with the waves that it needs, or why it may need a further node."""
    arrival = _arrival(board, move)
    if not arrival.pods:
        return move
    waves = find_waves(board.world, arrival, rules)
    if isinstance(waves, PodInfo):
        return NotConsolidatable(_without_room(waves, move.savings), pod=waves.ref)
    return msgspec.structs.replace(move, waves=waves)


def waves_of_replaced(
    board: DisruptionBoard, rules: ConsolidationOptions, candidate: Candidate, replacements: Sequence[NewClaim]
) -> Waves | PodInfo:
    """The waves with which the pods of one node that must be replaced find room, or the pod that finds none.

    Pods that all go to the same new node fit there in any order.
    """
    own = {pod.uid for pod in candidate.pods}
    if not replacements or any(own <= set(claim.pods) for claim in replacements):
        return ()
    arrival = Arrival(
        pods=candidate.pods,
        without=(*sorted(board.gone), candidate.node),
        coming=replacement_nodes(board, replacements),
    )
    return find_waves(board.world, arrival, rules)


def no_room_at_once(pod: PodInfo) -> NotConsolidatable:
    """For drains without waves."""
    return NotConsolidatable(
        Sentence(
            Redactable(pod.ref, str(pod)),
            " would find no room once the others have landed: all pods of the node are evicted at once",
        ),
        pod=pod.ref,
    )


def largest_that_holds(board: DisruptionBoard, rules: ConsolidationOptions, move: Move) -> Move | None:
    """The move, or one with fewer nodes, whose pods find room; None: there is none with two nodes and more."""
    for _ in range(_MOST_TRIES):
        held = in_waves(board, rules, move)
        if isinstance(held, Move):
            return held
        rest = _smaller(move.candidates, held)
        smaller = decide(board, rest, rules) if len(rest) > 1 else None
        if not isinstance(smaller, Move):
            return None
        move = smaller
    return None


def _smaller(candidates: Sequence[Candidate], why: NotConsolidatable) -> list[Candidate]:
    """Without the node whose pod finds no room. A large set becomes half as large, so that few checks suffice."""
    rest = [candidate for candidate in candidates if all(pod.ref != why.pod for pod in candidate.pods)]
    return rest[: len(rest) // 2] if len(rest) > _FEW or len(rest) == len(candidates) else rest


def _without_room(pod: PodInfo, savings: int) -> Sentence:
    would = f"would save ${price_text(savings)}/h, but "
    return Sentence(would, Redactable(pod.ref, str(pod)), " would find no room once the others have landed")


def find_waves(world: World, arrival: Arrival, rules: ConsolidationOptions) -> Waves | PodInfo:
    """The waves with which all pods find room, or the pod that finds none.

    A pod that finds no room moves to an earlier wave, together with all pods like it.
    """
    turns: dict[str, int] = defaultdict(int)
    own = {pod.uid for pod in arrival.pods}
    most = _MOST_WAVES if rules.in_waves else 0
    checks = max(2, min(_MOST_CHECKS, _PODS_IN_CHECKS // max(1, len(own))))
    for left in range(checks, 0, -1):
        waves = _grouped(arrival.pods, turns)
        pod = _first_without_room(world, arrival, waves)
        if pod is None:
            return tuple(tuple(sorted(member.uid for member in wave)) for wave in waves[:-1])
        if left == 1 or pod.uid not in own or turns[pod.uid] == most:
            return pod
        earlier = turns[pod.uid] + 1
        for other in arrival.pods:
            if other.request == pod.request and other.rules == pod.rules:
                turns[other.uid] = earlier
    raise AssertionError("the last check returns")


def still_without_room(world: World, owed: tuple[PodInfo, ...], pods: Collection[str], waves: Waves) -> PodInfo | None:
    """The pod of a command that finds no room now that its replacements are there; None: all do.

    `owed`: pods that need a place, of which these UIDs belong to the command.
    """
    arrival = Arrival(
        pods=tuple(pod for pod in owed if pod.uid in pods),
        others=tuple(pod for pod in owed if pod.uid not in pods),
        homeless=_homeless(world, owed).difference(pods),
    )
    turns = {uid: len(waves) - number for number, wave in enumerate(waves) for uid in wave}
    # Not by chance: the command has passed that before, and a rollback costs more than the doubt.
    return _first_without_room(world, arrival, _grouped(arrival.pods, turns), by_chance=False)


def replacement_nodes(board: DisruptionBoard, claims: Iterable[NewClaim]) -> tuple[ComingNode, ...]:
    return coming_nodes(board.world, claims, before=len(board.coming))


def _first_without_room(
    world: World, arrival: Arrival, waves: Sequence[Sequence[PodInfo]], *, by_chance: bool = True
) -> PodInfo | None:
    pods = without_room(
        world,
        arrival_orders(waves, arrival.others, by_chance=by_chance),
        without=arrival.without,
        coming=arrival.coming,
        homeless=arrival.homeless,
    )
    return pods[0] if pods else None


def _arrival(board: DisruptionBoard, move: Move) -> Arrival:
    return Arrival(
        pods=tuple(pod for candidate in move.candidates for pod in candidate.pods),
        others=(*board.arriving, *board.owed),
        homeless=_homeless(board.world, board.owed),
        without=(*sorted(board.gone), *(candidate.node for candidate in move.candidates)),
        coming=(*board.coming, *replacement_nodes(board, move.replacements)),
    )


def _homeless(world: World, owed: tuple[PodInfo, ...]) -> frozenset[str]:
    """The UIDs of the pods that have no room anyway."""
    return frozenset(pod.uid for pod in owed) - world.with_room(owed)


def _grouped(pods: Iterable[PodInfo], turns: dict[str, int]) -> list[list[PodInfo]]:
    waves: dict[int, list[PodInfo]] = {0: []}
    for pod in pods:
        waves.setdefault(turns.get(pod.uid, 0), []).append(pod)
    return [waves[turn] for turn in sorted(waves, reverse=True)]
