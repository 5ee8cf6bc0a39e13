"""Plans new nodes so that all pods find room in whatever order kube-scheduler takes them (R55).

The solver fills nodes to the brim in an order of its own. kube-scheduler fills them in another one, and some pod may be
left over. It would wait for a second node to start. Such pods get nodes of their own in the first place.

Nodes that an earlier plan has ordered count, with the pods that they were ordered for: if pods arrive in several
rounds, the room to spare of one round serves the next ones.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from hashlib import blake2b
from operator import or_
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.planning.landing import coming_nodes
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ArrivalOrder, draw, without_room
from dovetail.scheduling.new_nodes import offers, types_of, use_up
from dovetail.scheduling.placement import NewClaim, NodeInfo, PodInfo, Solution
from dovetail.scheduling.requirements import one_of
from dovetail.scheduling.resources import NOTHING

_MOST_TRIES: Final = 6
_DRAWS: Final = 10
# New pods wait while this is computed, so it takes some tenths of a second at most.
_ONE_BY_ONE: Final = 5_000  # the most pods times nodes for which nodes that start one after the other are tried
# With more pods than this, one pod more or less without room is a small part, and spare nodes would cost more.
_MOST_PODS: Final = 300
# If pods arrive in several rounds, no round knows all of them. All have one spare node, and one more for so many
# others.
_ONE_FOR: Final = 4


class WaitingPods(msgspec.Struct, frozen=True):
    """All pods that wait for nodes, in the order in which kube-scheduler is expected to take them.

    `starting`: nodes of earlier plans, without the pods that are expected there. `spare`: how many of them are room to
    spare. `owed`: the last plan left no room to spare, because more pods were arriving.
    """

    pods: Sequence[PodInfo]
    starting: Sequence[NodeInfo] = ()
    spare: int = 0
    owed: bool = False


def with_spare_room(
    world: World, waiting: WaitingPods, planned: Solution, go_on: Callable[[], bool]
) -> tuple[Solution, frozenset[str]]:
    """The solution with room to spare, and the UIDs of the pods that it is for."""
    pods = [pod for pod in waiting.pods if pod.uid not in planned.errors]
    if not (planned.new_claims or waiting.owed) or len(waiting.pods) > _MOST_PODS:
        return planned, frozenset()
    nodes = len(planned.new_claims) + len(waiting.starting)
    most = 1 + (nodes - waiting.spare) // _ONE_FOR - waiting.spare if waiting.starting else len(pods)
    spare = _Spare(world, waiting.starting, planned, most, go_on)
    for order in _orders(pods, nodes) if most > 0 else ():
        spare.add_for(order)
    return _together(planned, spare.claims), frozenset(uid for claim in spare.claims for uid in claim.pods)


class _Spare:
    """The new nodes beyond those that are planned."""

    def __init__(
        self, world: World, starting: Sequence[NodeInfo], planned: Solution, most: int, go_on: Callable[[], bool]
    ) -> None:
        self._most = most
        self._world = world
        self._starting = [(node,) for node in starting]
        self._planned = planned
        self._go_on = go_on
        self.claims: tuple[NewClaim, ...] = ()

    def add_for(self, order: ArrivalOrder) -> None:
        """Nodes for the pods that are left over, as long as they help: fewer pods must be left over then."""
        left = self._left_over(order, self.claims)
        for _ in range(_MOST_TRIES):
            for more in _new_nodes(self._world, left) if left else ():
                if not self._go_on():
                    return
                rest = self._left_over(order, (*self.claims, *more)) if self._allowed(more) else left
                if len(rest) < len(left):
                    needed, rest = self._needed(order, more, rest)
                    if len(self.claims) + len(needed) <= self._most:
                        self.claims, left = (*self.claims, *needed), rest
                        break
            else:
                return

    def _needed(
        self, order: ArrivalOrder, more: tuple[NewClaim, ...], rest: list[PodInfo]
    ) -> tuple[tuple[NewClaim, ...], list[PodInfo]]:
        """Without the nodes that are not needed. Pods that wait for room elsewhere, because of a spread, need none."""
        for claim in more:
            fewer = tuple(other for other in more if other is not claim)
            without = self._left_over(order, (*self.claims, *fewer)) if fewer and self._go_on() else None
            if without is not None and len(without) <= len(rest):
                more, rest = fewer, without
        return more, rest

    def _left_over(self, order: ArrivalOrder, claims: tuple[NewClaim, ...]) -> list[PodInfo]:
        """Of offers that cost the same, in different zones, each launch takes any."""
        new = coming_nodes(self._world, _together(self._planned, claims).new_claims)
        coming = [(looks[_drawn(f"{order.seed} {number}") % len(looks)],) for number, looks in enumerate(new)]
        without = [node.name for (node,) in self._starting]
        return without_room(self._world, [order], without=without, coming=(*self._starting, *coming))

    def _allowed(self, more: Sequence[NewClaim]) -> bool:
        return _within_limits(self._world, _together(self._planned, (*self.claims, *more)))


def _new_nodes(world: World, left: Sequence[PodInfo]) -> Iterator[tuple[NewClaim, ...]]:
    """New nodes for the pods: in the zones that the solver chooses, then for the first of them in each zone.

    The solver does not know where the other pods arrive, so a spread over zones may need another zone than it chooses.
    """
    claims = world.what_if(left, only_new=True).new_claims
    if not claims:
        return
    yield claims
    first = next((pod for pod in left if any(rule.key == names.ZONE_LABEL for rule in pod.rules)), None)
    if first is None:
        return
    for claim in world.what_if([first], only_new=True).new_claims:
        for zone in _zones(world, claim, first):
            pinned = claim.requirements.without(names.ZONE_LABEL).add(one_of(names.ZONE_LABEL, (zone,)))
            types = tuple(type_.name for type_ in types_of(world.types, claim) if any(offers(type_, pinned)))
            if types:
                yield (msgspec.structs.replace(claim, requirements=pinned, types=types),)


def _zones(world: World, claim: NewClaim, pod: PodInfo) -> list[str]:
    """The zones of the pool that the pod itself allows."""
    pool = next(table.pool for table in world.tables if table.pool.name == claim.pool)
    own = [
        (nodes & place).get(names.ZONE_LABEL)
        for nodes in pod.affinity.alternatives()
        for place in pod.volumes.alternatives
    ]
    of_pool = pool.requirements.get(names.ZONE_LABEL)
    offered = {
        zone for type_ in types_of(world.types, claim) for zone in type_.requirements.get(names.ZONE_LABEL).values
    }
    return sorted(zone for zone in offered if of_pool.has(zone) and any(requirement.has(zone) for requirement in own))


def _drawn(text: str) -> int:
    """Unlike those of `draw`, the numbers of similar texts have nothing in common."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _orders(pods: Sequence[PodInfo], nodes: int) -> Iterator[ArrivalOrder]:
    """The order that is expected, with all nodes there and with one node after the other, and one by chance.

    The zones of new nodes, and which of equally good nodes takes a pod, are drawn. So the first is tried several times.
    """
    seed = str(draw(" ".join(pod.uid for pod in pods)))
    expected = ArrivalOrder(pods, seed=seed)
    yield expected
    if len(pods) * nodes <= _ONE_BY_ONE:
        yield msgspec.structs.replace(expected, one_by_one=True, seed=f"{seed} one")
    yield ArrivalOrder(sorted(pods, key=lambda pod: draw(f"{seed} {pod.uid}")), seed=f"{seed} any")
    for number in range(_DRAWS):
        yield msgspec.structs.replace(expected, seed=f"{seed} {number}")


def _within_limits(world: World, solution: Solution) -> bool:
    """Whether the limits of the pools allow all new nodes, whichever of their types are launched."""
    left = {table.pool.name: dict(amounts) for table, amounts in world.left.items()}
    for claim in solution.new_claims:
        largest = reduce(or_, (type_.capacity for type_ in types_of(world.types, claim)), NOTHING)
        use_up(left[claim.pool], largest)
    return all(amount >= 0 for amounts in left.values() for amount in amounts.values())


def _together(planned: Solution, spare: Sequence[NewClaim]) -> Solution:
    """All new nodes. A pod goes to the last spare node that is for it."""
    if not spare:
        return planned
    last = {uid: claim for claim in spare for uid in claim.pods}
    existing = {node: tuple(uid for uid in uids if uid not in last) for node, uids in planned.existing.items()}
    claims = [_for_pods(claim, [uid for uid in claim.pods if uid not in last]) for claim in planned.new_claims]
    claims += [_for_pods(claim, [uid for uid in claim.pods if last[uid] is claim]) for claim in spare]
    return msgspec.structs.replace(
        planned,
        existing={node: uids for node, uids in existing.items() if uids},
        new_claims=tuple(claim for claim in claims if claim.pods),
    )


def _for_pods(claim: NewClaim, pods: Sequence[str]) -> NewClaim:
    return claim if len(pods) == len(claim.pods) else msgspec.structs.replace(claim, pods=tuple(pods))
