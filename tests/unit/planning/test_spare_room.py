"""Do new nodes have room for all pods, in whatever order kube-scheduler takes them (R55)?"""

from random import Random
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.planning.landing import coming_nodes
from dovetail.planning.provisioning.spare_room import WaitingPods, with_spare_room
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.landing import ArrivalOrder, draw, without_room
from dovetail.scheduling.placement import BoundPod, NodeInfo, PodInfo, Pool, SchedulingOptions, Solution
from tests.unit.planning.disruption.boards import room
from tests.unit.scheduling.problems import machine, pod, pool, spread

_TYPES: Final = (machine("two", 2, price=2), machine("four", 4, price=4))


def planned(
    *pods: PodInfo, nodes: tuple[NodeInfo, ...] = (), of: Pool | None = None, in_time: bool = True
) -> tuple[Solution, Solution, frozenset[str]]:
    """The solution of the solver, the same with room to spare, and for whom that is."""
    made = of or pool()
    world = World(nodes, [made], {made.name: _TYPES}, (), SchedulingOptions())
    solved = world.what_if(pods)
    spared, for_whom = with_spare_room(world, WaitingPods(pods), solved, lambda: in_time)
    return solved, spared, for_whom


def uids(solution: Solution) -> list[str]:
    return sorted(
        uid for uids in (*solution.existing.values(), *(claim.pods for claim in solution.new_claims)) for uid in uids
    )


def test_pods_that_fit_in_any_order_get_no_spare_room() -> None:
    solved, spared, for_whom = planned(*(pod(f"p{number}", cpu="1") for number in range(4)))
    assert spared is solved
    assert not for_whom


def test_a_pod_whose_room_others_may_take_gets_a_node_of_its_own() -> None:
    """Two nodes of four: 3 + 1 and 2 + 2. If the small ones come first, the large one finds no room."""
    pods = [pod("large", cpu="3"), pod("small", cpu="1"), pod("m1", cpu="2"), pod("m2", cpu="2")]
    solved, spared, for_whom = planned(*pods)
    assert len(spared.new_claims) == len(solved.new_claims) + 1
    assert for_whom
    assert uids(spared) == uids(solved) == ["large", "m1", "m2", "small"]


def test_room_on_a_node_that_is_there_counts() -> None:
    pods = [pod("large", cpu="3"), pod("small", cpu="1")]
    _, spared, for_whom = planned(*pods, nodes=(room("z", 4),))
    assert not spared.new_claims
    assert not for_whom


def test_limits_leave_no_room_to_spare() -> None:
    pods = [pod("large", cpu="3"), pod("small", cpu="1"), pod("m1", cpu="2"), pod("m2", cpu="2")]
    solved, spared, for_whom = planned(*pods, of=pool(limits={"cpu": 8_000}))
    assert spared == solved
    assert not for_whom


def test_a_pod_without_a_place_keeps_its_error() -> None:
    solved, spared, _ = planned(pod("huge", cpu="9"), pod("p1", cpu="1"))
    assert list(spared.errors) == list(solved.errors) == ["huge"]


def test_nodes_that_start_one_by_one_take_other_pods_than_all_at_once() -> None:
    """Three nodes of four are filled to the brim. Only if the nodes come one by one is a pod left over."""
    cpus = ("1", "2500m", "1", "1500m", "1500m", "1500m", "3")
    solved, spared, for_whom = planned(*(pod(f"p{number}", cpu=cpu) for number, cpu in enumerate(cpus)))
    assert len(spared.new_claims) == len(solved.new_claims) + 1 == 4
    assert for_whom == {"p6"}


def crowded(times: int) -> list[PodInfo]:
    """Pods that the solver packs to the brim."""
    sizes = {"large": "3", "small": "1", "m1": "2", "m2": "2"}
    return [pod(f"{name}-{number:03}", cpu=cpu) for number in range(times) for name, cpu in sizes.items()]


def test_large_batches_get_no_spare_room() -> None:
    solved, spared, for_whom = planned(*crowded(76))
    assert spared is solved
    assert not for_whom


def test_no_spare_room_is_sought_after_the_time_limit() -> None:
    solved, spared, for_whom = planned(*crowded(1), in_time=False)
    assert spared is solved
    assert not for_whom


def test_the_order_of_the_pods_counts() -> None:
    """The large one first: kube-scheduler fills the nodes as they are planned."""
    pods = [pod("large", cpu="3"), pod("m1", cpu="2"), pod("m2", cpu="2"), pod("small", cpu="1")]
    solved, in_order, _ = planned(*pods)
    _, reverse, _ = planned(*reversed(pods))
    assert len(in_order.new_claims) <= len(reverse.new_claims) == len(solved.new_claims) + 1


def test_with_spare_nodes_fewer_pods_are_left_over() -> None:
    """Also where a spread needs them in a zone that the solver would not choose."""
    left_before = left_then = 0
    for seed in range(12):
        pods = _mixed(Random(seed))
        world = World((), [pool()], {"default": _TYPES}, (), SchedulingOptions())
        solved = world.what_if(pods)
        spared, for_whom = with_spare_room(world, WaitingPods(pods), solved, lambda: True)
        before, then = _left_over(world, pods, solved), _left_over(world, pods, spared)
        assert for_whom or spared == solved
        assert uids(spared) == uids(solved)
        left_before, left_then = left_before + len(before), left_then + len(then)
    assert 3 * left_then < 2 * left_before


def _mixed(chance: Random) -> list[PodInfo]:
    """Four apps. Some are spread over zones."""
    pods = []
    for app in "abcd":
        cpu = chance.choice(("500m", "1", "1500m", "2", "3"))
        spreads = [spread(names.ZONE_LABEL, app)] if chance.random() < 0.5 else []
        pods += [
            pod(f"{app}{number}", {"app": app}, cpu=cpu, topologySpreadConstraints=spreads)
            for number in range(chance.randint(2, 8))
        ]
    return pods


def _left_over(world: World, pods: list[PodInfo], solution: Solution) -> list[PodInfo]:
    coming = [looks[:1] for looks in coming_nodes(world, solution.new_claims)]
    return without_room(world, [ArrivalOrder(pods, seed=str(draw(" ".join(pod.uid for pod in pods))))], coming=coming)


def test_spare_nodes_are_few() -> None:
    """There are none that no pod needs, because its spread is what it waits for."""
    added = []
    for seed in (4, 5, 40):
        solved, spared, _ = planned(*_mixed(Random(seed)))
        added.append(len(spared.new_claims) - len(solved.new_claims))
    assert added == [1, 1, 1]


# -- several rounds ----------------------------------------------------------------------------------------------------


def later(
    *pods: PodInfo, starting: tuple[NodeInfo, ...], expected: dict[str, PodInfo], spare: int = 0, owed: bool = False
) -> tuple[Solution, Solution]:
    """What the solver plans for the pods, and the same with room to spare, while nodes of an earlier plan start."""
    pool_, reserved = pool(), dict(expected)
    nodes = tuple(
        msgspec.structs.replace(
            node,
            requested=node.requested + reserved[node.name].request,
            pods=(BoundPod(uid=reserved[node.name].uid, namespace="default", labels={}),),
        )
        if node.name in reserved
        else node
        for node in starting
    )
    world = World(nodes, [pool_], {pool_.name: _TYPES}, (), SchedulingOptions())
    solved = world.what_if(pods)
    waiting = WaitingPods((*expected.values(), *pods), starting, spare, owed)
    return solved, with_spare_room(world, waiting, solved, lambda: True)[0]


_TIGHT: Final = (pod("m1", cpu="2"), pod("m2", cpu="2"), pod("small", cpu="1"))
_LARGE: Final = pod("large", cpu="3")


def test_room_to_spare_of_an_earlier_plan_serves_the_next() -> None:
    """The large pod was expected on the first node. On the second, which is spare, it finds room all the same."""
    nodes = (room("n1", 4), room("n2", 4))
    without, with_one = (
        later(*reversed(_TIGHT), starting=nodes[:count], expected={"n1": _LARGE}, spare=count - 1) for count in (1, 2)
    )
    assert len(without[1].new_claims) == len(without[0].new_claims) + 1
    assert len(with_one[1].new_claims) == len(with_one[0].new_claims)


def test_all_rounds_together_have_a_bounded_number_of_spare_nodes() -> None:
    solved, spared = later(*reversed(_TIGHT), starting=(room("n1", 4),), expected={"n1": _LARGE}, spare=1)
    assert len(spared.new_claims) == len(solved.new_claims)


def test_what_a_plan_owes_is_made_good_without_new_pods() -> None:
    expected = {"n1": _LARGE, "n2": pod("m", cpu="2")}
    nodes = (room("n1", 3), room("n2", 2))
    ordered = dict(reversed(expected.items()))  # the smaller one takes the room of the larger one
    assert not later(starting=nodes, expected=ordered)[1].new_claims
    assert len(later(starting=nodes, expected=ordered, owed=True)[1].new_claims) == 1
