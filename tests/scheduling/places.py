"""Random places for pods: nodes that are there, pools, the types that they can be made of, and daemons."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.api.names import WELL_KNOWN_LABELS
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.placement import MachineType, NodeInfo, Offer, PodInfo, Pool, SchedulingOptions
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import NOTHING, Resources
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED
from dovetail.scheduling.volumes import Attachment
from tests.scheduling.dice import (
    ARCH,
    CAPACITY_TYPE,
    GENERATION,
    GPU,
    HOST,
    MIB,
    NAMESPACES,
    POOL,
    POOLS,
    RACK,
    RESERVATION,
    TIER,
    TYPE,
    VALUES,
    ZONE,
    Dice,
    amounts,
    pinned,
    random_ports,
    random_requirement,
    random_requirements,
    random_taints,
    random_tolerations,
)
from tests.scheduling.pods import DRIVERS, random_bound_pods

_RESERVATIONS: Final = ("res-1", "res-2", "res-3")
Types = Mapping[str, tuple[MachineType, ...]]


# -- nodes -------------------------------------------------------------------------------------------------------------


def random_nodes(dice: Dice, count: int, pods: Sequence[PodInfo]) -> tuple[NodeInfo, ...]:
    """`pods`: those to be placed; some of them are still on a node."""
    crowd = dice.one((0, 1, 3, 8))
    nodes = [_node(dice, f"node-{number:02}", crowd) for number in range(count)]
    leaving: dict[str, list[PodInfo]] = {node.name: [] for node in nodes}
    closed = [node.name for node in nodes if not node.open] or list(leaving)
    for pod in pods:
        if nodes and dice.has("still bound"):
            leaving[dice.one(closed)].append(pod)
    return tuple(
        msgspec.structs.replace(
            node, pods=random_bound_pods(dice, node.name, dice.between(0, crowd), leaving[node.name])
        )
        for node in dice.shuffled(nodes)
    )


def _node(dice: Dice, name: str, crowd: int) -> NodeInfo:
    room = _room(dice)
    requested = amounts(room["cpu"] * dice.between(0, 8) // 10, room["memory"] // MIB // 2, pods=crowd)
    if dice.has("overdrawn", 0.3):
        requested += amounts(room["cpu"], 0)
    daemons = amounts(dice.one((0, 100, 200)), 64) & requested
    return NodeInfo(
        name=name,
        labels=_labels(dice, name),
        taints=random_taints(dice, "node taints"),
        allocatable=room,
        capacity=room + amounts(100, 256),
        requested=requested if dice.has("full nodes") else NOTHING,
        requested_by_daemons=daemons if dice.has("bound daemons") else NOTHING,
        pool=dice.one(("", *POOLS)),
        initialized=not dice.has("uninitialized", 0.6),
        open=not dice.has("closed", 0.6),
        ports=random_ports(dice, "node ports"),
        attachments=frozenset(
            Attachment(dice.one(DRIVERS), dice.one(NAMESPACES), f"c{dice.between(1, 6)}")
            for _ in range(dice.between(0, 3) if dice.has("attached") else 0)
        ),
        attach_limits={driver: dice.between(0, 4) for driver in DRIVERS} if dice.has("attach limits") else {},
    )


def _labels(dice: Dice, name: str) -> dict[str, str]:
    labels = {HOST: name}
    for key in (ZONE, RACK, TIER, ARCH, CAPACITY_TYPE, GENERATION):
        if not dice.has(f"no label {key}", 0.7):
            labels[key] = dice.one(VALUES[key])
    if dice.has("host unnamed", 0.5):
        del labels[HOST]
    elif dice.has("host by another name", 0.1):
        labels[HOST] = f"host-{dice.between(1, 3)}"
    return labels


def _room(dice: Dice) -> Resources:
    cpu = dice.one((1, 2, 4, 4, 8, 16))
    return amounts(
        cpu * 1000, cpu * dice.one((512, 2048, 4096)), pods=dice.one((3, 10, 110)), **_gpus(dice, "node gpus")
    )


def _gpus(dice: Dice, feature: str) -> dict[str, int]:
    return {GPU: dice.one((1, 2, 8))} if dice.has(feature) else {}


# -- pools and their types ---------------------------------------------------------------------------------------------


def random_pools(dice: Dice) -> tuple[Pool, ...]:
    return tuple(_pool(dice, name) for name in dice.shuffled(dice.some(POOLS, 0 if dice.chance(0.1) else 1)))


def _pool(dice: Dice, name: str) -> Pool:
    own = [one_of(POOL, (name,))]
    own += [pinned(dice, key, 3) for key in (ZONE, CAPACITY_TYPE, ARCH) if dice.has(f"pool says {key}")]
    own += [
        pinned(dice, key, dice.one((1, 1, 2, 4)))
        for key in (RACK, TIER)
        if dice.has("custom labels") or dice.chance(0.4)
    ]
    if dice.has("pool says anything"):
        own.append(random_requirement(dice, dice.one(tuple(VALUES))))
    if dice.has("min values"):
        key = dice.one((TYPE, TYPE, GENERATION, ZONE, CAPACITY_TYPE))
        own.append(Requirement(key, min_values=dice.between(1, 4)))
    limits = {
        "cpu": 1000 * dice.between(2, 40),
        "memory": MIB * 1024 * dice.between(2, 100),
        "nodes": dice.one((0, 1, 2, 2, 5, 5)),
    }
    return Pool(
        name=name,
        weight=dice.one((0, 0, 5, 50)),
        requirements=Requirements(own),
        taints=random_taints(dice, "pool taints"),
        limits={key: amount for key, amount in limits.items() if dice.has(f"limit of {key}", 0.6)},
    )


def random_types(dice: Dice, pools: Sequence[Pool]) -> Types:
    """Most pools are made of the same types; some of none, and some types are of a pool that is not there."""
    left = {name: dice.between(0, 3) for name in _RESERVATIONS}
    types = [_type(dice, number, left) for number in range(dice.one((0, 1, 2, 3, 3, 5, 8, 8, 8, 15, 15, 30)))]
    found = {pool.name: tuple(types) for pool in pools}
    for pool in pools:
        if dice.has("own types"):
            found[pool.name] = tuple(dice.some(types))
        if dice.has("reservations told of twice"):
            found[pool.name] = tuple(_told_again(dice, each) for each in found[pool.name])
        if dice.has("no types", 0.3):
            del found[pool.name]
    if dice.has("types of no pool", 0.5):
        found["gone"] = tuple(_told_again(dice, each) for each in types)
    return found


def _type(dice: Dice, number: int, left: Mapping[str, int]) -> MachineType:
    """A cpu costs about the same everywhere, so some prices are equal."""
    name, cpu = f"type-{number:02}", dice.one((1, 2, 4, 4, 8, 16, 32))
    ways = [(zone, how) for zone in dice.some(VALUES[ZONE], 1) for how in dice.some(VALUES[CAPACITY_TYPE][:2], 1)]
    offers = [_offer(dice, zone, how, cpu) for zone, how in ways]
    if dice.has("reservations"):
        offers += [_reserved(dice, dice.one(VALUES[ZONE]), each, left[each]) for each in dice.some(_RESERVATIONS, 1, 2)]
    own = [one_of(TYPE, (name,))]
    own += [
        one_of(key, dict.fromkeys(value for each in offers for value in sorted(each.requirements.get(key).values)))
        for key in (ZONE, CAPACITY_TYPE)
    ]
    own += [pinned(dice, ARCH, dice.one((1, 1, 2)))] if not dice.has("no arch") else []
    own += [one_of(GENERATION, (dice.one(VALUES[GENERATION]),))] if dice.has("generations") else []
    own += [random_requirement(dice, dice.one((RACK, TIER)))] if dice.has("type says anything", 0.5) else []
    capacity = amounts(
        cpu * 1000, cpu * dice.one((1024, 2048, 4096)), pods=dice.one((4, 30, 110)), **_gpus(dice, "gpus")
    )
    return MachineType(
        name=name,
        requirements=Requirements(own),
        capacity=capacity,
        allocatable=capacity - amounts(100, 128),
        offers=tuple(dice.shuffled(offers)),
    )


def _offer(dice: Dice, zone: str, how: str, cpu: int) -> Offer:
    price = cpu * (10 if how == "on-demand" else 4) + (dice.between(0, 3) if dice.has("uneven prices") else 0)
    labels = of_labels({ZONE: zone, CAPACITY_TYPE: how})
    return Offer(requirements=labels, price=price, available=not dice.has("unavailable", 0.5))


def _reserved(dice: Dice, zone: str, reservation: str, left: int) -> Offer:
    labels = of_labels({ZONE: zone, CAPACITY_TYPE: "reserved", RESERVATION: reservation})
    return Offer(
        requirements=labels,
        price=dice.between(0, 2),
        available=not dice.has("unavailable", 0.3),
        reservation=reservation,
        left=left,
    )


def _told_again(dice: Dice, type_: MachineType) -> MachineType:
    """The same type, whose reservations have more or less left."""
    offers = [
        msgspec.structs.replace(each, left=dice.between(0, 3)) if each.reservation else each for each in type_.offers
    ]
    return msgspec.structs.replace(type_, offers=tuple(offers))


# -- the rest ----------------------------------------------------------------------------------------------------------


def random_daemons(dice: Dice) -> tuple[Daemon, ...]:
    return tuple(_daemon(dice, f"daemon-{number}") for number in range(dice.one((0, 0, 1, 2, 4))))


def _daemon(dice: Dice, name: str) -> Daemon:
    ways = [random_requirements(dice) for _ in range(dice.between(1, 2) if dice.has("daemon terms") else 0)]
    return Daemon(
        name=name,
        alternatives=tuple(ways) or (NO_REQUIREMENTS,),
        tolerations=random_tolerations(dice, "daemon tolerations") | {SOFT_TAINTS_TOLERATED},
        request=amounts(dice.one((0, 100, 250)), dice.one((0, 64, 256)), pods=1),
        ports=random_ports(dice, "daemon ports"),
    )


def random_options(dice: Dice) -> SchedulingOptions:
    return SchedulingOptions(
        respect_preferences=dice.chance(0.7),
        strict_min_values=dice.chance(0.6),
        strict_reserved=dice.chance(0.5),
        refuse_uninitialized=dice.chance(0.5),
        well_known=WELL_KNOWN_LABELS | {GENERATION} if dice.chance(0.7) else WELL_KNOWN_LABELS,
        reservation_label=dice.one(("", RESERVATION)),
        max_types=dice.one((1, 2, 5, 600, 600)),
    )
