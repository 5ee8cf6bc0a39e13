"""Which scheduling problem belongs to a seed? Every feature occurs, from nowhere to everywhere, with all the others."""

from typing import Final

from dovetail.scheduling.node_affinity import ParsedNodeAffinity
from dovetail.scheduling.placement import NodeInfo, PlacementRequest, PodInfo
from dovetail.scheduling.requirements import of_labels
from tests.scheduling.dice import HOST, VALUES, ZONE, Dice, amounts
from tests.scheduling.places import random_daemons, random_nodes, random_options, random_pools, random_types
from tests.scheduling.pods import random_pods
from tests.unit.scheduling.problems import machine, pool

MAX_NODES: Final = 60
MAX_PODS: Final = 300
# How large problems are, each as likely as the others: most are small, so that many can be tried.
_SIZES: Final = (*((3, 8),) * 4, *((6, 15),) * 4, *((12, 40),) * 2, (20, 100))
_LARGE: Final = 40  # one problem in so many is of any size


def random_problem(seed: int, *, nodes: int = MAX_NODES, pods: int = MAX_PODS) -> PlacementRequest:
    """Of at most so many nodes and pods."""
    dice = Dice(seed)
    most_nodes, most_pods = (MAX_NODES, MAX_PODS) if dice.between(1, _LARGE) == 1 else dice.one(_SIZES)
    node_count = dice.between(0, min(nodes, most_nodes))
    pod_count = dice.between(min(2, pods), min(pods, most_pods))
    placed = random_pods(dice.thrown("pods"), pod_count, [f"node-{number:02}" for number in range(node_count)])
    pools = random_pools(dice.thrown("pools"))
    return PlacementRequest(
        pods=placed,
        nodes=random_nodes(dice.thrown("nodes"), node_count, placed),
        pools=pools,
        types=random_types(dice.thrown("types"), pools),
        daemons=random_daemons(dice.thrown("daemons")),
        options=random_options(dice.thrown("options")),
    )


def big_problem(seed: int, *, nodes: int, pods: int) -> PlacementRequest:
    """Of exactly so many nodes and pods, with nothing but sizes and zones: to compare speeds."""
    dice = Dice(seed)
    sizes = [(dice.one((100, 250, 500, 1000, 1500)), dice.one((128, 512, 2048))) for _ in range(12)]
    return PlacementRequest(
        pods=tuple(_plain_pod(dice, number, *dice.one(sizes)) for number in range(pods)),
        nodes=tuple(_plain_node(dice, f"node-{number:05}") for number in range(nodes)),
        pools=(pool(),),
        types={"default": tuple(machine(f"type-{cpu:02}", cpu) for cpu in range(2, 33, 2))},
    )


def _plain_pod(dice: Dice, number: int, cpu: int, mebibytes: int) -> PodInfo:
    affinity = (
        ParsedNodeAffinity(of_labels({ZONE: dice.one(VALUES[ZONE])})) if dice.chance(0.1) else ParsedNodeAffinity()
    )
    return PodInfo(uid=f"pod-{number:06}", request=amounts(cpu, mebibytes, pods=1), affinity=affinity)


def _plain_node(dice: Dice, name: str) -> NodeInfo:
    room = amounts(16_000, 65_536, pods=110)
    used = amounts(dice.between(8_000, 16_000), dice.between(16_384, 65_536), pods=20)
    labels = {HOST: name, ZONE: dice.one(VALUES[ZONE])}
    return NodeInfo(name=name, labels=labels, allocatable=room, capacity=room, requested=used)
