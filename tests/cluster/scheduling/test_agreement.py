"""Does the real kube-scheduler put pods where our engine says that they fit, and nowhere else?

Of every pod the scheduler is asked for all nodes that its filters leave, not only for the one that it takes in the end,
and the two sets must be the same. docs/scheduling-agreement.md has the list of what is meant to be different.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from dovetail.scheduling import fast, reference
from dovetail.scheduling.placement import NodeInfo, PlacementRequest, PodInfo
from dovetail.scheduling.resources import NOTHING
from tests.cluster.scheduling import scenarios
from tests.cluster.scheduling.comparing import Step, all_at_once, one_by_one, reasons_of, tally
from tests.cluster.scheduling.differences import Fitting
from tests.cluster.scheduling.plane import PROFILES, SchedulingPlane
from tests.cluster.scheduling.scenarios import ZONE, node, pod
from tests.cluster.scheduling.simulated import simulated_filters
from tests.cluster.scheduling.world import OWNERS, Manifest, Scenario, world
from tests.harness.stage import real_time, stage
from tests.scheduling import inspection

replace = msgspec.structs.replace

SEEDS: Final = range(40)
BATCHES: Final = range(1000, 1010)
PODS_IN_BATCH: Final = 25
SEEDS_OF_PROFILES: Final = range(2000, 2030)
PROFILE_NAMES: Final = [profile["schedulerName"] for profile in PROFILES]

pytestmark = stage(real_time)


async def test_pods_that_come_one_by_one(plane: SchedulingPlane) -> None:
    """One test, as what the scheduler says takes long to find out: the engine is right, and others would be caught."""
    steps: list[Step] = []
    async with world(plane) as cluster:
        for seed in SEEDS:
            steps += await one_by_one(cluster, f"seed {seed}", scenarios.scenario(seed))
    told = tally(steps, inspection.fitting)
    print(f"\n{len(SEEDS)} scenarios, one by one: {told}")
    assert not told.unexplained
    assert told.bound > 100
    assert told.pending > 100
    assert told.excused_steps < told.steps / 10
    assert not [step.title for step in steps if not _takes_one_of_theirs(step)]
    assert not [wrong.__name__ for wrong in WRONG_NODES if _agrees(steps, _wrong_about_nodes(wrong))]
    assert not [wrong.__name__ for wrong in WRONG_PODS if _agrees(steps, _wrong_about_pods(wrong))]


def _takes_one_of_theirs(step: Step) -> bool:
    """Both engines take a node that the scheduler would take, the same one, and none if there is none."""
    problem, pod_ = step.question.problem, step.question.pod
    chosen, fitting = frozenset(fast.solve(problem).existing), frozenset(inspection.fitting(problem, pod_))
    if (
        chosen != frozenset(reference.solve(problem).existing)
        or len(chosen) != (1 if fitting else 0)
        or not chosen <= fitting
    ):
        return False
    return chosen <= step.theirs or all(reasons_of(step, inspection.fitting).values())


async def test_pods_that_come_all_at_once(plane: SchedulingPlane) -> None:
    steps: list[Step] = []
    async with world(plane) as cluster:
        for seed in BATCHES:
            steps += await all_at_once(cluster, f"seed {seed}", scenarios.scenario(seed, pods=PODS_IN_BATCH))
    told = tally(steps, inspection.fitting)
    print(f"\n{len(BATCHES)} scenarios, all at once: {told}")
    assert not told.unexplained
    assert told.bound > 50
    assert told.pending > 50
    assert told.excused_steps < told.steps / 5


async def test_pods_with_volumes_that_are_yet_to_be_made(plane: SchedulingPlane) -> None:
    """They can be where the class of their claim makes volumes."""
    in_zones = {"key": ZONE, "values": ["a", "b"]}
    topologies = {"some": [{"matchLabelExpressions": [in_zones]}], "all": None}
    classes = tuple(
        {
            "metadata": {"name": name},
            "provisioner": scenarios.DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": allowed,
        }
        for name, allowed in topologies.items()
    )
    scenario = Scenario(
        nodes=tuple(node(zone, {ZONE: zone}) for zone in ("a", "b", "c")),
        pods=tuple(pod(name, volumes=[{"name": "data", **_claimed(name)}]) for name in topologies),
        classes=classes,
        claims=tuple(_claim(name) for name in topologies),
    )
    steps = []
    async with world(plane) as cluster, cluster.scenario(scenario):
        for body in scenario.pods:
            key = await cluster.come(body)
            steps.append(Step(key[1], cluster.question(cluster.pods[key], ()), await cluster.found(key)))
    assert [step.theirs for step in steps] == [{"a", "b"}, {"a", "b", "c"}]
    assert not tally(steps, inspection.fitting).excused_steps
    assert not tally(steps, inspection.fitting).unexplained


async def test_pods_of_several_profiles_with_default_constraints(plane: SchedulingPlane) -> None:
    """The engine and the simulated scheduler; without the defaults, the comparison fails."""
    steps: list[Step] = []
    async with world(plane) as cluster:
        simulated = await simulated_filters(cluster)
        for seed in SEEDS_OF_PROFILES:
            of_profiles = scenarios.scenario_of_profiles(seed, PROFILE_NAMES, OWNERS)
            steps += await one_by_one(cluster, f"seed {seed}", of_profiles, simulated)
    told = tally(steps, inspection.fitting)
    print(f"\n{len(SEEDS_OF_PROFILES)} scenarios of profiles: {told}")
    assert not told.unexplained
    assert not simulated.differences
    assert simulated.compared > 150
    assert told.bound > 100
    assert told.pending > 20
    assert told.excused_steps < told.steps / 5
    assert not _agrees(steps, _wrong_about_pods(_no_spread_or_affinity))


def _claimed(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}


def _claim(name: str) -> Manifest:
    """Of the class of its name."""
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"storageClassName": name, **asked}}


# -- it can fail -------------------------------------------------------------------------------------------------------


def _no_taints(node: NodeInfo) -> NodeInfo:
    return replace(node, taints=())


def _room_for_all(node: NodeInfo) -> NodeInfo:
    return replace(node, requested=NOTHING)


def _no_ports(node: NodeInfo) -> NodeInfo:
    return replace(node, ports=frozenset())


def _no_limits(node: NodeInfo) -> NodeInfo:
    return replace(node, attach_limits={})


def _no_labels(node: NodeInfo) -> NodeInfo:
    return replace(node, labels={})


def _nobody(node: NodeInfo) -> NodeInfo:
    return replace(node, pods=())


def _nobody_minds(node: NodeInfo) -> NodeInfo:
    return replace(node, pods=tuple(replace(pod, apart=()) for pod in node.pods))


def _no_spread_or_affinity(pod: PodInfo) -> PodInfo:
    return replace(pod, rules=())


def _no_selector(pod: PodInfo) -> PodInfo:
    return replace(pod, affinity=PodInfo(uid="").affinity)


def _no_volumes(pod: PodInfo) -> PodInfo:
    return replace(pod, volumes=PodInfo(uid="").volumes)


def _a_little_more(pod: PodInfo) -> PodInfo:
    return replace(pod, request=pod.request + pod.request)


WRONG_NODES: Final = (_no_taints, _room_for_all, _no_ports, _no_limits, _no_labels, _nobody, _nobody_minds)
WRONG_PODS: Final = (_no_spread_or_affinity, _no_selector, _no_volumes, _a_little_more)


def _wrong_about_nodes(wrong: Callable[[NodeInfo], NodeInfo]) -> Fitting:
    def fitting(problem: PlacementRequest, pod: PodInfo) -> tuple[str, ...]:
        return inspection.fitting(replace(problem, nodes=tuple(map(wrong, problem.nodes))), pod)

    return fitting


def _wrong_about_pods(wrong: Callable[[PodInfo], PodInfo]) -> Fitting:
    def fitting(problem: PlacementRequest, pod: PodInfo) -> tuple[str, ...]:
        changed = wrong(pod)
        return inspection.fitting(replace(problem, pods=(changed,)), changed)

    return fitting


def _agrees(steps: list[Step], fitting: Fitting) -> bool:
    return all(all(reasons_of(step, fitting).values()) for step in steps)
