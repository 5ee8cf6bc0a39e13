"""Plans new nodes so that all pods find room in whatever order kube-scheduler takes them (R55).

The solver fills nodes to the brim in an order of its own. kube-scheduler fills them in another one, and some pod may be
left over. It would wait for a second node to start. Such pods get nodes of their own in the first place.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from dovetail.planning.landing import arrival_orders, coming_nodes
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ArrivalOrder, without_room
from dovetail.scheduling.new_nodes import types_of, use_up
from dovetail.scheduling.placement import NewClaim, PodInfo, Solution
from dovetail.scheduling.resources import NOTHING

_MOST_TRIES: Final = 6
_ONE_BY_ONE: Final = 5  # orders in which the nodes come one after the other
# New pods wait while this is computed, so it takes some tenths of a second at most.
_PLACEMENTS: Final = 5_000
# With more pods than this, one pod more or less without room is a small part, and spare nodes would cost more.
_MOST_PODS: Final = 300


def with_spare_room(
    world: World, pods: Sequence[PodInfo], planned: Solution, go_on: Callable[[], bool]
) -> tuple[Solution, frozenset[str]]:
    """The solution with room to spare, and the UIDs of the pods that it is for."""
    if not planned.new_claims or len(pods) > _MOST_PODS:
        return planned, frozenset()
    placed = [pod for pod in pods if pod.uid not in planned.errors]
    found, spared = planned, set[str]()
    for _ in range(_MOST_TRIES):
        left = [pod for pod in _left_over(world, placed, found) if pod.uid not in spared]
        more = world.what_if(left, only_new=True) if left and go_on() else Solution()
        together = _together(found, more)
        if not more.new_claims or not _within_limits(world, together):
            break
        found = together
        spared.update(uid for claim in more.new_claims for uid in claim.pods)
    return found, frozenset(spared)


def _left_over(world: World, pods: Sequence[PodInfo], solution: Solution) -> list[PodInfo]:
    coming = coming_nodes(world, solution.new_claims)
    return without_room(world, _orders(pods, len(coming)), coming=coming)


def _orders(pods: Sequence[PodInfo], nodes: int) -> Iterator[ArrivalOrder]:
    orders = list(arrival_orders([pods], placements=_PLACEMENTS))
    count = min(_ONE_BY_ONE, _PLACEMENTS // (len(pods) * nodes)) if pods and nodes else 0
    for order in orders[:count]:
        yield msgspec.structs.replace(order, one_by_one=True)
    yield from orders


def _within_limits(world: World, solution: Solution) -> bool:
    """Whether the limits of the pools allow all new nodes, whichever of their types are launched."""
    left = {table.pool.name: dict(amounts) for table, amounts in world.left.items()}
    for claim in solution.new_claims:
        largest = reduce(or_, (type_.capacity for type_ in types_of(world.types, claim)), NOTHING)
        use_up(left[claim.pool], largest)
    return all(amount >= 0 for amounts in left.values() for amount in amounts.values())


def _together(planned: Solution, more: Solution) -> Solution:
    """All new nodes. A pod that is in both solutions belongs to the second one."""
    moved = {uid for claim in more.new_claims for uid in claim.pods}

    def without(claim: NewClaim) -> NewClaim:
        return msgspec.structs.replace(claim, pods=tuple(uid for uid in claim.pods if uid not in moved))

    existing = {node: tuple(uid for uid in uids if uid not in moved) for node, uids in planned.existing.items()}
    rest = [without(claim) for claim in planned.new_claims]
    return msgspec.structs.replace(
        planned,
        existing={node: uids for node, uids in existing.items() if uids},
        new_claims=(*(claim for claim in rest if claim.pods), *more.new_claims),
    )
