"""Is a world that has followed its nodes the same as one made anew, and does asking leave no trace?"""

import random

import msgspec
import pytest

from dovetail.scheduling import reference
from dovetail.scheduling.fast import World
from dovetail.scheduling.node_affinity import ParsedNodeAffinity
from dovetail.scheduling.placement import NodeInfo, PlacementRequest, SchedulingOptions
from dovetail.scheduling.requirements import of_labels
from dovetail.scheduling.resources import NOTHING
from tests.scheduling.comparison import compared
from tests.scheduling.dice import HOST
from tests.scheduling.generator import big_problem, random_problem
from tests.scheduling.inspection import fingerprint, groups
from tests.unit.scheduling.problems import affinity, bound, node, term

_SEEDS = 200
_AT_ONCE = 20


def world_of(problem: PlacementRequest, nodes: tuple[NodeInfo, ...]) -> World:
    return World(nodes, problem.pools, problem.types, problem.daemons, problem.options)


def with_other_pods(node: NodeInfo, dice: random.Random) -> NodeInfo:
    """The same node with only some of its pods, and more room."""
    pods = tuple(pod for pod in node.pods if dice.random() < 0.5)
    return msgspec.structs.replace(node, pods=pods, requested=NOTHING, attachments=frozenset())


def earlier(problem: PlacementRequest, dice: random.Random) -> tuple[NodeInfo, ...]:
    """The nodes as they might have been before: some with other pods, now and then one more, less or different."""
    nodes = [with_other_pods(node, dice) if dice.random() < 0.5 else node for node in problem.nodes]
    if nodes and dice.random() < 0.2:
        nodes.pop(dice.randrange(len(nodes)))
    if dice.random() < 0.2:
        nodes.append(NodeInfo(name="gone since", labels={"topology.kubernetes.io/zone": "elsewhere"}))
    if nodes and dice.random() < 0.2:
        nodes[0] = msgspec.structs.replace(nodes[0], open=not nodes[0].open)
    return tuple(nodes)


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_a_world_that_was_updated_answers_as_a_new_one(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        problem, dice = random_problem(seed, nodes=20, pods=60), random.Random(seed)
        world = world_of(problem, earlier(problem, dice))
        world.what_if(problem.pods)
        world.update(problem.nodes)
        fresh = world_of(problem, problem.nodes)
        fresh.what_if(problem.pods)
        found = compared(reference.solve(problem), world.what_if(problem.pods, explain=True))
        assert found is None, f"seed {seed}: {found}"


def test_pods_that_come_and_go_do_not_make_the_world_anew() -> None:
    for seed in range(30):
        problem, dice = random_problem(seed, nodes=20, pods=60), random.Random(seed)
        world = world_of(problem, tuple(with_other_pods(node, dice) for node in problem.nodes))
        world.what_if(problem.pods)
        rows = world.rows
        world.update(problem.nodes)
        assert world.rows is rows


def test_asking_leaves_no_trace() -> None:
    for seed in range(100):
        problem = random_problem(seed, nodes=20, pods=60)
        world = world_of(problem, problem.nodes)
        without = [node.name for node in problem.nodes if node.open][:3]
        world.what_if(problem.pods, without=without)  # groups are made when they are first asked for
        before = fingerprint(world)
        world.what_if(problem.pods, without=without)
        world.what_if(problem.pods[::2], explain=True)
        assert fingerprint(world) == before, f"seed {seed}"


def test_a_question_that_fails_leaves_no_trace_either() -> None:
    problem = random_problem(3, nodes=20, pods=60)
    world = world_of(problem, problem.nodes)
    world.what_if(problem.pods)
    before = fingerprint(world)

    def give_up() -> bool:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        world.what_if(problem.pods, go_on=give_up)
    assert fingerprint(world) == before


def test_what_was_not_reached_in_time_waits() -> None:
    problem = big_problem(3, nodes=20, pods=60)
    answers = iter([True] * 5)
    found = world_of(problem, problem.nodes).what_if(problem.pods, go_on=lambda: next(answers, False), explain=True)
    waiting = [error for error in found.errors.values() if error.waiting]
    assert len(waiting) >= 55
    assert {error.reason for error in waiting} == {"it was not reached in the time given"}


def test_pods_that_are_always_asked_about_make_no_difference_to_the_answer() -> None:
    """What becomes of the first of them is found out once, and taken over where it holds."""
    taken_over = 0
    for seed in range(150):
        problem, dice = random_problem(seed, nodes=20, pods=60), random.Random(seed)
        owed = tuple(pod for pod in problem.pods if dice.random() < 0.6)
        others = tuple(pod for pod in problem.pods if pod not in owed)
        world = world_of(problem, problem.nodes)
        open_ = [node.name for node in problem.nodes if node.open]
        for without in ([], dice.sample(open_, min(len(open_), 2)), dice.sample(open_, min(len(open_), 4))):
            closed = tuple(
                msgspec.structs.replace(node, open=False) if node.name in without else node for node in problem.nodes
            )
            wanted = reference.solve(msgspec.structs.replace(problem, pods=(*others, *owed), nodes=closed))
            found = compared(wanted, world.what_if(others, without, owed=owed, explain=True))
            assert found is None, f"seed {seed} without {without}: {found}"
        taken_over += bool(owed and others and any(step.row is not None for step in world._of_owed(owed).steps[:3]))
    assert taken_over > 10


def test_pods_that_are_gone_are_not_remembered_for_ever() -> None:
    """Pods come and go under new names as long as the program runs."""
    problem = big_problem(3, nodes=5, pods=2_000)
    world = world_of(problem, problem.nodes)
    for life in range(12):
        pods = tuple(msgspec.structs.replace(pod, uid=f"{pod.uid}-{life}") for pod in problem.pods)
        world.update(problem.nodes)
        world.what_if(pods)
        assert len(world.shapes) <= 1_000 + 3 * len(pods) + 2 * sum(len(node.pods) for node in problem.nodes)
    assert len(world.shapes) < 12 * len(problem.pods)


def test_many_pods_that_wait_do_not_make_the_world_anew() -> None:
    """The same ones are asked about in each pass."""
    problem = big_problem(3, nodes=1, pods=5_000)
    world = world_of(problem, problem.nodes)
    world.what_if(problem.pods)
    shapes = world.shapes
    world.update(problem.nodes)
    assert world.shapes is shapes


def test_rules_of_pods_that_are_gone_are_not_remembered_for_ever() -> None:
    """Equal labels, and a rule of its own for each: the number of kinds does not tell."""
    world = World([node("a")], (), {}, (), SchedulingOptions())
    for life in range(40):
        rules = [affinity(apart=[term(HOST, f"job-{life}-{number}")]) for number in range(50)]
        world.update([node("a", "", *(bound(f"{life}-{number}", affinity=rule) for number, rule in enumerate(rules)))])
        assert len(groups(world)) <= 1_000 + 6 * 50


def test_node_selectors_of_pods_that_are_gone_are_not_remembered_for_ever() -> None:
    """What a new node of a pool could be like is worked out for each."""
    problem = big_problem(3, nodes=1, pods=100)
    world = world_of(problem, problem.nodes)
    for life in range(40):
        selectors = [ParsedNodeAffinity(selector=of_labels({"example.com/job": f"{life}-{n}"})) for n in range(100)]
        world.update(problem.nodes)
        world.what_if(
            [
                msgspec.structs.replace(pod, uid=f"{pod.uid}-{life}", affinity=each)
                for pod, each in zip(problem.pods, selectors, strict=True)
            ]
        )
        assert all(len(table.start.then) <= 1_000 + 3 * 100 + 100 for table in world.tables)
