"""Heartbeats of many nodes are late while nodes are being replaced: no drain is skipped, no node is bought twice."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODES, PODS, EventType, Patch, Resource
from dovetail.sim.actors.wire import Raw, condition_of
from dovetail.sim.server.store import Change
from tests.harness import manifests, termination
from tests.harness.disruption import edit_template, node_of, play, pool, running, stand, touched
from tests.harness.provisioning import Setting
from tests.harness.soak import SOAK
from tests.harness.stage import stage
from tests.harness.termination import is_deleting

pytestmark = stage(termination.play)

NODE_COUNT = 30


class Losses:
    """Pods that pod garbage collection ended although nobody had asked them to go, and claims made, from now on."""

    def __init__(self, setting: Setting) -> None:
        self.orphans: list[str] = []
        self.claims: list[str] = []
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        body = change.new.body
        if resource.plural == NODECLAIMS.plural and change.type is EventType.ADDED:
            self.claims.append(body["metadata"]["name"])
        elif resource.plural == PODS.plural and _collected(body) and not is_deleting(body):
            self.orphans.append(body["metadata"]["name"])


def _collected(pod: Raw) -> bool:
    target = condition_of(pod, "DisruptionTarget")
    return target is not None and target.get("reason") == "DeletionByPodGC"


async def slow_boot(setting: Setting, delay: str) -> None:
    """From now on a Node takes so long to appear."""
    await setting.sim.api.write(Patch(KWOK_NODECLASSES, "default", {"spec": {"nodeRegistrationDelay": delay}}))


@pytest.mark.parametrize(
    ("boot", "silent_seconds"),
    [("60s", 240), ("150s", 90), *([("60s", 90), ("150s", 240)] if SOAK else [])],
)
@stage(play, kwok=True)
async def test_heartbeats_stop_while_drifted_nodes_are_replaced(
    setting: Setting, silent_seconds: int, boot: str
) -> None:
    claims = await stand(setting, pool(), replicas=NODE_COUNT)
    await slow_boot(setting, boot)
    losses = Losses(setting)
    await edit_template(setting, metadata={"labels": {"generation": "2"}})
    await setting.sim.wait_until(lambda: len(touched(setting)) == NODE_COUNT, timeout="1m")
    silenced = [node_of(setting, claim) for claim in claims]
    for node in silenced:
        setting.sim.kill_kubelet(node)
    await setting.sim.run_for(f"{silent_seconds}s")
    for node in silenced:
        setting.sim.revive_kubelet(node)
    await setting.sim.run_for("30m")
    assert losses.orphans == []
    assert running(setting) == NODE_COUNT
    assert all(setting.claim(claim) is None for claim in claims)
    assert len(losses.claims) == NODE_COUNT  # one replacement each


# -- when an instance counts as gone ----------------------------------------------------------------------------------


def guarded() -> manifests.Manifest:
    """A pod that is never evicted, and that stays when its node is not ready."""
    stays = [{"key": key, "operator": "Exists"} for key in (names.NOT_READY_TAINT, names.UNREACHABLE_TAINT)]
    return manifests.pod("web", annotations=termination.GUARDED, tolerations=stays)


@pytest.mark.parametrize("already_seconds", [0, 30, 300])
async def test_a_node_that_is_not_ready_is_let_go_after_a_minute_of_deletion(
    setting: termination.Setting, already_seconds: int
) -> None:
    node = await setting.launch(pods=[guarded(), manifests.pod("free")])
    setting.sim.set_node_ready(node, ready=False)
    await setting.sim.run_for(f"{already_seconds}s")
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    assert (names.DISRUPTED_TAINT, "NoSchedule") in setting.taints(node)
    assert is_deleting(setting.pod("free")) or setting.gone(PODS, "free")
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 59


async def test_the_minute_starts_when_the_node_stops_being_ready(setting: termination.Setting) -> None:
    node = await setting.launch(pods=[guarded()])
    await setting.delete_claim()
    await setting.sim.run_for("5m")
    setting.sim.set_node_ready(node, ready=False)
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 60


async def test_a_node_that_is_ready_again_starts_a_new_minute(setting: termination.Setting) -> None:
    node = await setting.launch(pods=[guarded()])
    await setting.delete_claim()
    for _ in range(10):
        setting.sim.set_node_ready(node, ready=False)
        await setting.sim.run_for("55s")
        setting.sim.set_node_ready(node, ready=True)
        await setting.sim.run_for("10s")
    assert setting.runs("web")
    assert not setting.gone(NODES, node)


async def test_a_restart_within_the_minute_changes_nothing(setting: termination.Setting) -> None:
    node = await setting.launch(pods=[guarded()])
    setting.sim.set_node_ready(node, ready=False)
    await setting.delete_claim()
    await setting.sim.run_for("30s")
    await setting.program.restart()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 30


async def test_what_a_silent_node_tells_is_asked_once_and_not_for_every_change_of_its_pods(
    setting: termination.Setting,
) -> None:
    node = await setting.launch(pods=[guarded(), *(manifests.pod(f"free-{number}") for number in range(20))])
    setting.sim.set_node_ready(node, ready=False)
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    # For the deletion, for the taint, and when the minute is over.
    assert len(setting.requests("get", NODES, node)) <= 4
