"""Do the real scheduler and an engine of ours say the same of pods and nodes?"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tests.cluster.scheduling.differences import Fitting, differing
from tests.cluster.scheduling.plane import any_of_them
from tests.cluster.scheduling.scenarios import pod
from tests.cluster.scheduling.simulated import SimulatedFilters
from tests.cluster.scheduling.world import Manifest, Named, Question, Scenario, World


class Step(msgspec.Struct, frozen=True):
    """One pod on its way: what our engine is asked, and the nodes that the real scheduler would have taken."""

    title: str
    question: Question
    theirs: frozenset[str]


class Tally(msgspec.Struct):
    """What came of many steps. `unexplained`: where the two do not agree, and no difference is meant to be."""

    steps: int = 0
    bound: int = 0
    pending: int = 0
    answers: int = 0  # of a pod and a node
    excused: Counter[str] = msgspec.field(default_factory=Counter)
    excused_steps: int = 0
    unexplained: list[str] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        told = (
            f"{self.steps} steps compared ({self.answers} answers about a pod and a node), {self.bound} bound, "
            f"{self.pending} pending, {self.excused_steps} excused"
        )
        return "\n  ".join([told, *(f"{count} nodes: {name}" for name, count in sorted(self.excused.items()))])


def tally(steps: Iterable[Step], fitting: Fitting) -> Tally:
    """All steps, with what `fitting` says of them."""
    told = Tally()
    for step in steps:
        reasons = reasons_of(step, fitting)
        told.steps += 1
        told.answers += len(step.question.problem.nodes)
        told.bound += bool(step.theirs)
        told.pending += not step.theirs
        told.excused.update(filter(None, reasons.values()))
        told.excused_steps += bool(reasons) and all(reasons.values())
        if not all(reasons.values()):
            told.unexplained.append(f"{step.title}: nodes {reasons}, theirs {sorted(step.theirs)}")
    return told


def reasons_of(step: Step, fitting: Fitting) -> dict[str, str]:
    """Of each node of which the two do not say the same, why that is meant to be; empty if it is not."""
    ours = frozenset(fitting(step.question.problem, step.question.pod))
    return differing(step.question, ours, step.theirs, fitting)


def by_lot(pod: str, nodes: frozenset[str]) -> frozenset[str]:
    """One of the nodes, always the same, so that a scenario goes the same way each time."""
    return frozenset({min(nodes, key=lambda node: hashlib.sha256(f"{pod} {node}".encode()).digest())})


async def one_by_one(
    world: World, title: str, scenario: Scenario, simulated: SimulatedFilters | None = None
) -> list[Step]:
    """Its pods, each after the one before has a node or, as there is none for it, is gone again.

    `simulated`: asked about them, too.
    """
    steps = []
    world.extender.choose = by_lot
    async with world.scenario(scenario):
        for body in scenario.pods:
            others = world.bound()
            key = await world.come(body)
            theirs = await world.decided(key)
            steps.append(Step(f"{title}, {'/'.join(key)}", world.question(world.pods[key], others), theirs))
            if simulated is not None:
                there = {(pod.metadata.namespace, pod.metadata.name) for pod in others}
                await simulated.compare(title, key, there, theirs)
            if not theirs:
                await world.go(key)
    return steps


async def all_at_once(world: World, title: str, scenario: Scenario) -> list[Step]:
    """Its pods in the order in which the scheduler placed them where it liked, then those for which it has no node."""
    world.extender.choose = any_of_them
    async with world.scenario(scenario):
        placed = world.bound()
        bodies = {await world.come(body): body for body in scenario.pods}
        await world.until(lambda: all(map(world.is_decided, bodies)), f"{title}: each pod is scheduled, or not")
        left = await _asked_again(world, bodies)
        order = {verdict.pod: index for index, verdict in enumerate(world.extender.verdicts)}
        bound = sorted(bodies.keys() - left, key=lambda key: order[world.pods[key].metadata.uid])
        steps = []
        for key in bound:
            steps.append(Step(f"{title}, {'/'.join(key)}", world.question(world.pods[key], placed), world.verdict(key)))
            placed = [*placed, world.pods[key]]
        return steps + [
            Step(f"{title}, {'/'.join(key)}", world.question(world.pods[key], placed), frozenset())
            for key in sorted(left)
        ]


async def _asked_again(world: World, bodies: Mapping[Named, Manifest]) -> set[Named]:
    """The pods for which there is still no node when a whole round of questions has placed nobody.

    The scheduler tries again by itself what may fit by now, but it overlooks some of that for minutes: a pod that
    waits for others in namespaces that a selector names. So each comes anew.
    """

    def pending() -> set[Named]:
        return {key for key in bodies if not world.pods[key].spec.node_name}

    before: set[Named] = set()
    while before != (left := pending()):
        before = left
        for key in left:
            await world.go(key)
        await world.go(await _nowhere(world))
        for key in sorted(left):
            await world.come(bodies[key])
            await world.decided(key)
    return left


async def _nowhere(world: World) -> Named:
    """A pod that no node takes: once that is said, the scheduler has done with pods that went before."""
    key = await world.come(pod("nowhere", nodeSelector={"example.com/nowhere": "true"}))
    await world.decided(key)
    return key
