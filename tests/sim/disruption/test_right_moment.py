"""Consolidation waits for a scale-out to end, not for pods that nothing can take, and leaves NotReady nodes alone."""

from dovetail.api.names import ConditionType
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.ports import NODECLAIMS, InsufficientCapacity
from dovetail.sim.actors import wire
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.disruption import edit_pool, found, in_disruption, is_true, node_of, play, pool, scale, stand
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)


def left_alone(setting: Setting) -> dict[str, str]:
    """By node: why it stays."""
    (engine,) = (each for each in setting.program.controllers if isinstance(each, DisruptionController))
    return {node: str(why) for node, why in engine.left_alone.items()}


async def half_empty(setting: Setting) -> list[str]:
    """Four nodes with a small pod each, which a budget keeps for now."""
    claims = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=4)
    await setting.sim.apply(manifests.deployment("small", replicas=4, cpu="500m"))
    await setting.runs_all("small", 4)
    await scale(setting, 0)
    await setting.sim.run_for("1m")
    assert all(is_true(setting, claim, ConditionType.CONSOLIDATABLE) for claim in claims)
    return claims


async def test_nothing_is_consolidated_in_the_middle_of_a_scale_out(setting: Setting) -> None:
    """The pods that come fit on none of the four nodes, which one node could replace all the time."""
    claims = await half_empty(setting)
    setting.cloud.next_launches(Launch(seconds=120), times=3)
    await setting.sim.apply(manifests.deployment("large", replicas=3, cpu="3600m"))
    await setting.sim.run_for("5s")
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    while len(setting.sim.pods(app="large", ready=True)) < 3:
        assert not any(in_disruption(found(setting, claim)) for claim in claims)
        waits = list(left_alone(setting).values())
        await setting.sim.run_for("1s")
    assert any("starting for pending pods" in why for why in waits), waits
    await setting.sim.wait_until(lambda: len(setting.claims()) == 4, timeout="2m")


async def test_a_pod_that_nothing_can_take_does_not_hold_consolidation_back(setting: Setting) -> None:
    await half_empty(setting)
    await setting.sim.apply(manifests.pod("huge", cpu="1000"))
    await setting.sim.run_for("30s")
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="5m")
    assert [wire.name_of(each) for each in setting.sim.pods(node="")] == ["huge"]


async def test_a_pod_whose_node_cannot_be_launched_holds_consolidation_back_for_a_while(setting: Setting) -> None:
    """Ten minutes from its creation, while the controller tries again and again."""
    claims = await half_empty(setting)
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("none left")), times=10_000)
    await setting.sim.apply(manifests.pod("large", cpu="3600m"))
    await setting.sim.run_for("5s")
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.sim.run_for("9m50s")
    assert not any(in_disruption(found(setting, claim)) for claim in claims)
    assert any("pending pods like default/large need new nodes" in why for why in left_alone(setting).values())
    await setting.sim.wait_until(lambda: sum(setting.gone(NODECLAIMS, claim) for claim in claims) == 3, timeout="2m")
    assert [wire.name_of(each) for each in setting.sim.pods(node="")] == ["large"]


async def test_a_node_that_is_not_ready_is_not_consolidated(setting: Setting) -> None:
    first, *others = await half_empty(setting)
    setting.sim.set_node_ready(node_of(setting, first), ready=False)
    await setting.sim.run_for("10s")
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.sim.run_for("2m")
    assert not setting.gone(NODECLAIMS, first)
    assert "the node is NotReady" in left_alone(setting)[node_of(setting, first)]
    assert sum(setting.gone(NODECLAIMS, claim) for claim in others) == 2
