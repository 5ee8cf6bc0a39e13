"""Evictions in waves in a running cluster (R55). They order pods, and nothing else waits for them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import NODECLAIMS, PODS, EventType, Resource
from dovetail.sim.actors.wire import SHUTDOWN
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.store import Change
from tests.harness import manifests
from tests.harness.disruption import drift, edit_pool, is_true, play, pool
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, is_deleting

pytestmark = stage(play)

OF_SIXTEEN = {**OF_FOUR, "values": ["s-16x-amd64-linux"]}
BOTH = {**OF_FOUR, "values": ["s-4x-amd64-linux", "s-16x-amd64-linux"]}
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}


class Asked:
    """When the pods of each app were first asked to go and when the next ones were bound, and the order of it all."""

    def __init__(self, setting: Setting) -> None:
        self.to_go: dict[str, datetime] = {}
        self.order: list[str] = []
        self._setting = setting
        self._known = {pod["metadata"]["uid"] for pod in setting.sim.pods()}
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural != PODS.plural:
            return
        pod, now = change.new.body, self._setting.now()
        app = pod["metadata"]["labels"]["app"]
        if pod["metadata"]["uid"] in self._known:
            if is_deleting(pod) or change.type is EventType.DELETED:
                self.to_go.setdefault(app, now)
                self._note(f"{app} goes")
        elif pod["spec"].get("nodeName"):
            self._note(f"{app} is bound")

    def _note(self, what: str) -> None:
        if what not in self.order:
            self.order.append(what)


async def prepare(setting: Setting, *, shutdown: int = 30, kind: str = "Deployment", **claim: Any) -> None:
    """Have `large` and `small` on the node `old`, of 16 cpus. There is room for `small` elsewhere, not for `large`.

    Unless `large` goes first, `small` takes the replacement, which is the emptiest node.
    """
    template = {"requirements": [BOTH, ON_DEMAND]}
    await setting.begin(pool(template=template, consolidateAfter="Never"))
    await setting.launch("old", requirements=[OF_SIXTEEN, ON_DEMAND], **claim)
    large: dict[str, Any] = {
        "cpu": "3",
        "terminationGracePeriodSeconds": shutdown,
        "annotations": {SHUTDOWN: f"{shutdown}s"},
    }
    await setting.sim.apply(
        manifests.workload(kind, "large", fields={"replicas": 1}, **large), manifests.deployment("small", cpu="2")
    )
    await setting.runs_all("large", 1)
    await setting.runs_all("small", 1)
    guarded = manifests.pod("p-room", cpu="1500m", annotations=GUARDED)
    await setting.launch("room", pods=[guarded], requirements=[OF_FOUR, ON_DEMAND])


async def gone(setting: Setting) -> None:
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"), timeout="30m")
    await setting.runs_all("large", 1)
    await setting.runs_all("small", 1)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_a_drifted_node_is_drained_in_waves_and_needs_one_new_node(setting: Setting, kind: str) -> None:
    await prepare(setting, kind=kind)
    asked = Asked(setting)
    await drift(setting, "old")
    await gone(setting)
    assert asked.order == ["large goes", "large is bound", "small goes", "small is bound"]
    assert len(setting.cloud.machines) == 3


async def test_a_node_that_expires_gracefully_is_drained_in_waves(setting: Setting) -> None:
    await prepare(setting)
    asked = Asked(setting)
    await edit_pool(setting, gracefulExpireAfter="5m")
    await setting.sim.wait_until(lambda: is_true(setting, "old", ConditionType.EXPIRED))
    await gone(setting)
    assert asked.order == ["large goes", "large is bound", "small goes", "small is bound"]
    assert len(setting.cloud.machines) == 3


@pytest.mark.parametrize("seconds", [0, 1, 15, 29, 31])
async def test_a_new_leader_continues_the_waves(setting: Setting, seconds: int) -> None:
    """The successor of `large` comes when it has ended, after 30 s."""
    await prepare(setting, kind="StatefulSet")
    asked = Asked(setting)
    await drift(setting, "old")
    await setting.sim.wait_until(lambda: "large" in asked.to_go, timeout="5m")
    await setting.sim.run_for(f"{seconds}s")
    await setting.program.kill()
    await setting.sim.run_for("100ms")
    await setting.program.start()
    await gone(setting)
    assert asked.order == ["large goes", "large is bound", "small goes", "small is bound"]
    assert len(setting.cloud.machines) == 3


async def test_a_deadline_that_comes_during_a_wave_is_kept(setting: Setting) -> None:
    """The wave would end after 10 min. The deadline comes after 5 min, and `small` has its grace of 30 s before it."""
    await prepare(setting, kind="StatefulSet", shutdown=3600, terminationGracePeriod="5m")
    asked = Asked(setting)
    await drift(setting, "old")
    await setting.sim.wait_until(lambda: setting.deadline("old") is not None, timeout="5m")
    deadline = setting.deadline("old")
    assert deadline is not None
    await setting.sim.wait_until(lambda: "small" in asked.to_go, timeout="10m")
    assert asked.to_go["small"] == deadline - timedelta(seconds=30)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"), timeout="10m")
    assert setting.now() <= deadline + timedelta(minutes=1)


async def test_a_node_that_must_go_before_its_replacement_is_there_is_drained_without_waves(setting: Setting) -> None:
    """As for `expireAfter`: its pods are evicted together, although the command has waves."""
    await prepare(setting, kind="StatefulSet", expireAfter="5m")
    asked = Asked(setting)
    setting.cloud.next_launches(Launch(registers=False))
    await drift(setting, "old")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("old")), timeout="10m")
    await setting.sim.wait_until(lambda: len(asked.to_go) == 2)
    assert asked.to_go["small"] - asked.to_go["large"] < timedelta(seconds=1)
