"""Is "impossible" always true, and does it say what people can check?"""

import random

import msgspec
import pytest

from dovetail.scheduling import reference
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.bounds import witness
from dovetail.scheduling.fast.witness import Witness
from dovetail.scheduling.placement import (
    BoundPod,
    MachineType,
    NodeInfo,
    Offer,
    Origin,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
)
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, one_of
from dovetail.scheduling.resources import Resources
from tests.scheduling.generator import random_problem

_SEEDS = 250
_AT_ONCE = 25


def moved(problem: PlacementRequest, nodes: list[NodeInfo], dice: random.Random) -> PlacementRequest:
    """The pods of these nodes go; they are bound there, and ask for what some pods of the problem ask for."""
    asking = [pod for pod in problem.pods if not pod.resource_claims]
    pods = []
    closed = {}
    for node in nodes:
        on = [
            msgspec.structs.replace(dice.choice(asking), uid=f"{node.name}-{number}")
            for number in range(dice.randint(1, 6))
        ]
        pods += [msgspec.structs.replace(pod, origin=Origin.CANDIDATE) for pod in on]
        apart = [tuple(rule.inverse() for rule in pod.rules if rule.kind.value == "anti-affinity") for pod in on]
        bound = [
            BoundPod(uid=pod.uid, namespace=pod.namespace, labels=pod.labels, apart=rules)
            for pod, rules in zip(on, apart, strict=True)
        ]
        closed[node.name] = msgspec.structs.replace(node, pods=(*node.pods, *bound), open=True)
    there = tuple(closed.get(node.name, node) for node in problem.nodes)
    return msgspec.structs.replace(problem, pods=tuple(pods), nodes=there)


def lowest_price(problem: PlacementRequest, solution: Solution) -> int | None:
    """Of the one new node, if there is no more than that; nothing for none."""
    if not solution.all_scheduled or len(solution.new_claims) > 1:
        return None
    if not solution.new_claims:
        return -1
    claim = solution.new_claims[0]
    types = {type_.name: type_ for type_ in problem.types[claim.pool]}
    offers = (offer for name in claim.types for offer in types[name].offers)
    return min(offer.price for offer in offers if offer.available and claim.requirements.intersects(offer.requirements))


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_what_is_called_impossible_is_not_found(first: int) -> None:
    impossible = possible = 0
    for seed in range(first, first + _AT_ONCE):
        problem, dice = random_problem(seed, nodes=20, pods=60), random.Random(seed)
        open_ = [node for node in problem.nodes if node.open]
        if not open_ or not problem.pods or all(pod.resource_claims for pod in problem.pods):
            continue
        going = dice.sample(open_, min(len(open_), dice.randint(1, 3)))
        problem = moved(problem, going, dice)
        names = [node.name for node in going]
        price = dice.choice((0, 50, 200, 10**9))
        found = witness(
            World(problem.nodes, problem.pools, problem.types, problem.daemons, problem.options),
            problem.pods,
            names,
            price,
        )
        closed = tuple(
            msgspec.structs.replace(node, open=False) if node.name in names else node for node in problem.nodes
        )
        best = lowest_price(problem, reference.solve(msgspec.structs.replace(problem, nodes=closed)))
        possible += best is not None
        impossible += found is not None
        if found is not None and best is not None:
            assert best >= 0, f"seed {seed}: no new node is needed, but {found}"
            assert found.dearer is None or best >= price, f"seed {seed}: one for {best} is enough, but {found}"
    assert impossible > 0
    assert possible > 0


def changed(nodes: tuple[NodeInfo, ...], dice: random.Random) -> tuple[NodeInfo, ...]:
    """Some have other pods and more or less room, one is shut, and one is gone."""
    found = []
    for each in nodes:
        chance = dice.random()
        if 0.1 <= chance < 0.2:
            found.append(msgspec.structs.replace(each, open=False))
        elif 0.2 <= chance < 0.4:
            kept = tuple(pod for pod in each.pods if dice.random() < 0.5)
            found.append(msgspec.structs.replace(each, pods=kept, requested=dice.choice(nodes).requested))
        elif chance >= 0.4:
            found.append(each)
    return tuple(found)


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_what_is_kept_is_what_would_be_found_anew(first: int) -> None:
    kept = 0
    for seed in range(first, first + _AT_ONCE):
        problem, dice = random_problem(seed, nodes=12, pods=40), random.Random(seed)
        asking = [pod for pod in problem.pods if not pod.resource_claims]
        if not asking or not problem.nodes:
            continue
        going = {
            each.name: tuple(
                msgspec.structs.replace(dice.choice(asking), uid=f"{each.name}-{number}", origin=Origin.CANDIDATE)
                for number in range(dice.randint(1, 5))
            )
            for each in problem.nodes
        }
        parts = (problem.pools, problem.types, problem.daemons, problem.options)
        nodes = problem.nodes
        world = World(nodes, *parts)
        for _ in range(4):
            anew = World(nodes, *parts)
            for each in nodes:
                known = world.seen.get((each.name,))
                found = witness(world, going[each.name], [each.name], 100)
                assert found == witness(anew, going[each.name], [each.name], 100), f"seed {seed}, {each.name}"
                kept += known is not None and world.seen[each.name,] is known
            nodes = changed(nodes, dice)
            world.update(nodes)
    assert kept > 0


# -- what people read --------------------------------------------------------------------------------------------------


def pod(name: str, cpu: int, app: str = "web") -> PodInfo:
    return PodInfo(
        uid=name,
        name=name,
        labels={"app": app},
        origin=Origin.CANDIDATE,
        request=Resources({"cpu": cpu, "memory": 1 << 30, "pods": 1}),
    )


def node(name: str, free_cpu: int) -> NodeInfo:
    return NodeInfo(
        name=name, allocatable=Resources({"cpu": free_cpu, "memory": 64 << 30, "pods": 110}), pool="default"
    )


def type_(name: str, cpu: int, price: int) -> MachineType:
    has = Resources({"cpu": cpu, "memory": 64 << 30, "pods": 110})
    offer = Offer(requirements=NO_REQUIREMENTS, price=price)
    return MachineType(name=name, requirements=NO_REQUIREMENTS, capacity=has, allocatable=has, offers=(offer,))


def shown(pods: list[PodInfo], nodes: list[NodeInfo], types: list[MachineType], price: int) -> Witness | None:
    world = World(
        [*nodes, node("going", 0)], (Pool(name="default"),), {"default": tuple(types)}, (), SchedulingOptions()
    )
    return witness(world, pods, ["going"], price)


def test_the_sentence_names_the_pods_the_room_and_the_price() -> None:
    found = shown(
        [pod(f"web-{number}", 2000) for number in range(3)],
        [node("a", 2500), node("b", 1900), node("c", 1900)],
        [type_("small", 2000, 100_000_000), type_("large", 4000, 230_000_000)],
        price=210_000_000,
    )
    assert str(found) == (
        "3 pods like default/web-0 need 2 cpu and 1Gi memory each; only one fits on another node; the cheapest new "
        "node for the rest (large, $0.23/h) is no cheaper than what it replaces ($0.21/h)"
    )


def test_one_that_is_cheaper_is_not_ruled_out() -> None:
    types = [type_("large", 4000, 200_000_000)]
    found = shown([pod("web-0", 2000)], [node("a", 100)], types, price=210_000_000)
    assert found is not None
    assert found.dearer is None
    assert str(found) == "pod default/web-0 needs 2 cpu and 1Gi memory; it fits on no other node"


def test_nothing_is_said_where_there_is_room() -> None:
    assert shown([pod("web-0", 2000)], [node("a", 2000)], [], price=1) is None


def test_the_sum_of_all_can_be_too_much_where_each_kind_has_room() -> None:
    found = shown([pod("web-0", 2000), pod("db-0", 1500, "db")], [node("a", 2000)], [], price=1)
    assert str(found) == (
        "its pods need 3500m cpu, and all other nodes that could take any have 2 left; "
        "no instance type would take what is left over"
    )


def test_a_type_that_the_pods_cannot_be_on_is_no_way_out() -> None:
    zone = Requirements((one_of("topology.kubernetes.io/zone", ("a",)),))
    picky = msgspec.structs.replace(
        pod("web-0", 2000), affinity=msgspec.structs.replace(PodInfo(uid="").affinity, selector=zone)
    )
    elsewhere = msgspec.structs.replace(
        type_("large", 4000, 1), requirements=Requirements((one_of("topology.kubernetes.io/zone", ("b",)),))
    )
    found = shown([picky], [], [elsewhere], price=100)
    assert found is not None
    assert found.dearer is not None
    assert found.dearer.price is None
