"""Consolidation comes to rest: what was moved in vain is not moved again and again."""

from dovetail.api.names import EventReason
from dovetail.ports import NODES
from tests.harness import manifests
from tests.harness.disruption import disrupted, nodes, play, pool, scale
from tests.harness.provisioning import Setting


def test_pods_that_needed_a_new_node_after_all_are_left_where_they_are_for_ever_longer() -> None:
    """The scheduler puts a small pod where a large one was planned, every time."""
    apps, left = {"a0": (5, "1"), "a1": (4, "700m"), "a2": (7, "1500m")}, {"a0": 2, "a1": 0, "a2": 5}
    moves: list[int] = []

    async def scenario(setting: Setting) -> None:
        await setting.begin(pool())
        for app, (replicas, cpu) in apps.items():
            await setting.sim.apply(manifests.deployment(app, replicas=replicas, cpu=cpu))
        for app, (replicas, _) in apps.items():
            await setting.runs_all(app, replicas)
        for app, replicas in left.items():
            await scale(setting, replicas, app)
        for _ in range(3):
            before = disrupted(setting, "underutilized")
            await setting.sim.run_for("2h")
            moves.append(disrupted(setting, "underutilized") - before)
        assert not setting.sim.pods(node="")
        assert len(setting.sim.objects(NODES)) == 4
        notes = [note for node in nodes(setting) for note in setting.notes(EventReason.UNCONSOLIDATABLE, node)]
        assert any("were moved in vain, as they needed a new node; again from 2" in note for note in notes)

    play(scenario, except_for=["rescheduled"])  # that a moved pod has no place for a while is what this is about
    assert moves[0] > 3  # at first there is much to be gained; a round takes a minute
    assert sum(moves[1:]) <= 3
