"""Pods of a graceful command that are left on a Node that is let go."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.ports import NODES, Patch
from tests.harness import manifests
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import Ground, play

pytestmark = stage(play)

RULE = "evicted"
LEFT = ("Pod/default/p", "was neither evicted nor deleted, and its Node a is let go")


async def begin(ground: Ground, *, tolerations: list[dict[str, Any]] | None = None) -> None:
    """Node a with pod p, in a command that has reached S4."""
    await ground.begin()
    await ground.nodes("a")
    pod = manifests.pod("p", tolerations=tolerations or [])
    await ground.sim.apply({**pod, "spec": {**pod["spec"], "nodeName": "a"}})
    await ground.sim.run_for("5s")
    await ground.write_down("a")
    await ground.drain("a")


async def let_go(ground: Ground) -> None:
    await ground.us.write(Patch(NODES, "a", {"metadata": {"finalizers": None}}))


async def test_a_node_that_is_let_go_with_a_running_pod_is_caught(ground: Ground) -> None:
    await begin(ground)
    await let_go(ground)
    assert ground.violations(RULE) == [LEFT]


async def test_a_node_that_is_let_go_because_of_a_late_heartbeat_is_caught(ground: Ground) -> None:
    await begin(ground)
    ground.sim.set_node_ready("a", ready=False)
    await ground.sim.run_for("59s")
    await let_go(ground)
    assert ground.violations(RULE) == [LEFT]


@stage(except_for=("explained",))
async def test_a_node_that_is_not_ready_for_a_minute_has_no_instance(ground: Ground) -> None:
    await begin(ground)
    ground.sim.set_node_ready("a", ready=False)
    await ground.sim.run_for("61s")
    await let_go(ground)
    checkers = ground.finish()
    assert (checkers.violations, checkers.not_applied[RULE]) == ([], 1)


@pytest.mark.parametrize("way", ["evict", "delete_pod"])
async def test_a_pod_that_was_told_to_go_is_not(ground: Ground, way: str) -> None:
    await begin(ground)
    await getattr(ground, way)("p")
    await let_go(ground)
    assert ground.violations(RULE) == []


async def test_a_pod_that_tolerates_the_taint_stays_until_the_node_goes(ground: Ground) -> None:
    await begin(ground, tolerations=[{"key": names.DISRUPTED_TAINT, "operator": "Exists"}])
    await let_go(ground)
    assert ground.violations(RULE) == []


@stage(except_for=("explained",))
async def test_a_node_that_somebody_else_lets_go_is_theirs(ground: Ground) -> None:
    await begin(ground)
    await ground.sim.api.write(Patch(NODES, "a", {"metadata": {"finalizers": None}}))
    assert ground.finish().violations == []


async def test_a_node_without_a_command_is_not_looked_at(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.drain("a")
    await let_go(ground)
    checkers = ground.finish()
    assert (checkers.applied[RULE], checkers.violations) == (0, [])
