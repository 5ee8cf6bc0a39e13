"""What tests read of the engines and production does not."""

from dovetail.scheduling.existing_nodes import ExistingNode
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.groups import CountedGroup
from dovetail.scheduling.placement import PlacementRequest, PodInfo
from dovetail.scheduling.reference import Engine
from dovetail.scheduling.refusals import Refusal
from dovetail.scheduling.relaxation import RelaxedRequest, wishes


def fitting(problem: PlacementRequest, pod: PodInfo) -> tuple[str, ...]:
    """The names of the nodes that would take the pod next, at some step of relaxation."""
    engine = Engine.of(problem)
    steps = list(wishes(pod, respect_preferences=problem.options.respect_preferences))
    return tuple(sorted(site.node.name for site in engine._sites if any(_takes(engine, site, wish) for wish in steps)))


def _takes(engine: Engine, site: ExistingNode, wish: RelaxedRequest) -> bool:
    try:
        site.check(wish, engine._topology)
    except Refusal:
        return False
    return True


def groups(world: World) -> list[CountedGroup]:
    return [*world.groups._own.values(), *world.groups._inverse.values()]


def fingerprint(world: World) -> str:
    """Everything that a question to the world must not change."""
    counts = [
        (group.rule, sorted(group.counts.items()), sorted(group.support.items()), group.carriers)
        for group in groups(world)
    ]
    return repr((counts, world.left, world.rows.free))
