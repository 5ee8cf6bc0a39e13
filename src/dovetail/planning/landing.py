"""How pods may arrive at nodes: orders, and nodes that are not there yet (R55)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from dovetail.api import names
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ArrivalOrder, ComingNode, draw
from dovetail.scheduling.new_nodes import types_of
from dovetail.scheduling.placement import MachineType, NewClaim, NodeInfo, Offer, PodInfo

_MOST_ORDERS: Final = 19
_PLACEMENTS: Final = 10_000  # of all orders together


def arrival_orders(
    waves: Sequence[Sequence[PodInfo]],
    others: Sequence[PodInfo] = (),
    *,
    by_chance: bool = True,
) -> Iterator[ArrivalOrder]:
    """The smallest pods first, the largest first, and some by chance, within each wave.

    Large waves have fewer orders, at least two. Without `by_chance` only those are tried that are the same each time,
    and that `without_room` tries with everything that a new node may look like.
    """
    smallest = [sorted(wave, key=lambda pod: (_comes_late(pod), *_size(pod), pod.uid)) for wave in waves]
    largest = [
        sorted(wave, key=lambda pod: (_comes_late(pod), *(-size for size in _size(pod)), pod.uid)) for wave in waves
    ]
    seed = str(draw(" ".join(pod.uid for wave in smallest for pod in wave)))
    yield ArrivalOrder((*chain(*smallest), *others), seed=seed)
    yield ArrivalOrder((*others, *chain(*largest)), seed=seed)
    count = min(_MOST_ORDERS, _PLACEMENTS // max(1, sum(map(len, waves)) + len(others)))
    if count > 2:
        yield ArrivalOrder((*chain(*smallest), *others), seed=seed, spread=False)
    for number in range(3, count if by_chance else 3):
        drawn = f"{seed} {number}"
        order = _drawn(smallest, others, drawn, any_time=number % 3 == 0)
        yield ArrivalOrder(order, spread=number % 2 == 0, seed=drawn, by_chance=number % 4 > 1)


def _size(pod: PodInfo) -> tuple[int, int]:
    return pod.request["cpu"], pod.request["memory"]


def _comes_late(pod: PodInfo) -> bool:
    """Whether the successor comes only when the pod has ended, as in a StatefulSet."""
    return names.STATEFULSET_POD_LABEL in pod.labels


def _drawn(
    waves: Sequence[Sequence[PodInfo]], others: Sequence[PodInfo], seed: str, *, any_time: bool
) -> list[PodInfo]:
    """Each wave in an order by chance, and the others anywhere between them. `any_time`: nobody comes late."""
    order = [
        pod
        for wave in waves
        for pod in sorted(wave, key=lambda pod: (not any_time and _comes_late(pod), draw(f"{seed} {pod.uid}")))
    ]
    for pod in others:
        order.insert(draw(f"{seed} {pod.uid}") % (len(order) + 1), pod)
    return order


def coming_nodes(world: World, claims: Iterable[NewClaim], *, before: int = 0) -> tuple[ComingNode, ...]:
    """The nodes that new claims may become, numbered from the one after `before`."""
    return tuple(_nodes(world, claim, f"new node {number}") for number, claim in enumerate(claims, before + 1))


def _nodes(world: World, claim: NewClaim, name: str) -> ComingNode:
    """A launch takes the cheapest offer. Of several that cost the same, in different zones, nobody knows which.

    Where prices are not known, it takes the smallest type.
    """
    ways = sorted(_ways(world, claim), key=lambda way: (way[1].price, *_room(way[0]), way[0].name))
    cheapest = [(type_, offer) for type_, offer in ways if (type_, offer.price) == (ways[0][0], ways[0][1].price)]
    return tuple(_node(world, claim, name, type_, offer) for type_, offer in cheapest)


def _node(world: World, claim: NewClaim, name: str, type_: MachineType, offer: Offer) -> NodeInfo:
    labels = {names.INSTANCE_TYPE_LABEL: type_.name, names.NODEPOOL_LABEL: claim.pool}
    for requirement in (*offer.requirements, *type_.requirements, *claim.requirements):
        if (value := requirement.any_value()) is not None:
            labels.setdefault(requirement.key, value)
    return NodeInfo(
        name=name,
        labels=labels | {names.HOSTNAME_LABEL: name},
        taints=next(table.pool.taints for table in world.tables if table.pool.name == claim.pool),
        allocatable=type_.allocatable,
        capacity=type_.capacity,
        pool=claim.pool,
    )


def _room(type_: MachineType) -> tuple[int, int]:
    return type_.allocatable["cpu"], type_.allocatable["memory"]


def _ways(world: World, claim: NewClaim) -> Iterator[tuple[MachineType, Offer]]:
    for type_ in types_of(world.types, claim):
        for offer in type_.offers:
            if offer.available and claim.requirements.intersects(offer.requirements):
                yield type_, offer
