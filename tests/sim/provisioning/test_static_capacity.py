"""Pools with replicas in the simulated cluster (06 §9)."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.assembly import FeatureGates
from dovetail.ports import NODECLAIMS, NODEPOOLS, Delete, OutcomeUnknown
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import Manifest
from tests.harness.provisioning import BIG, Setting, play, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)


def static(replicas: int, **fields: Any) -> Manifest:
    return pool_of_four("static", replicas=replicas, **fields)


async def grown(setting: Setting, count: int) -> None:
    """Until so many nodes are up, and no other claims are left."""

    def there() -> bool:
        names_ = [claim["metadata"]["name"] for claim in setting.claims("static")]
        up = [name for name in names_ if setting.condition(ConditionType.INITIALIZED, name).get("status") == "True"]
        return len(up) == len(names_) == count

    await setting.sim.wait_until(there)


async def test_as_many_nodes_as_replicas_whatever_pods_there_are(setting: Setting) -> None:
    await setting.begin(static(3))
    await grown(setting, 3)
    claim = setting.claims("static")[0]
    assert "resources" not in claim["spec"]
    assert [each["key"] for each in claim["spec"]["requirements"]] == [names.INSTANCE_TYPE_LABEL]
    assert claim["metadata"]["annotations"].keys() >= {names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION}
    await setting.sim.run_for("10m")
    assert len(setting.requests("create", NODECLAIMS)) == 3


async def test_pods_use_its_nodes_but_do_not_make_them(setting: Setting) -> None:
    await setting.begin(static(1))
    await grown(setting, 1)
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu=BIG))
    await setting.runs_all("web", 1)
    await setting.sim.run_for("5m")
    assert len(setting.claims()) == 1
    (note,) = [event["note"] for event in setting.events("FailedScheduling")]
    assert "no dynamic nodepools found" in note


async def test_more_and_fewer_replicas_are_followed_at_once(setting: Setting) -> None:
    await setting.begin(static(1))
    await grown(setting, 1)
    await setting.sim.apply(static(4))
    assert await setting.seconds_until(lambda: len(setting.claims("static")) == 4) < 2
    await grown(setting, 4)
    await setting.sim.apply(static(2))
    await grown(setting, 2)
    await setting.sim.apply(static(0))
    await grown(setting, 0)


async def test_a_claim_that_is_deleted_is_replaced(setting: Setting) -> None:
    await setting.begin(static(2))
    await grown(setting, 2)
    await setting.delete_claim(setting.claims("static")[0]["metadata"]["name"])
    await setting.sim.run_for("3s")
    assert len(setting.requests("create", NODECLAIMS)) == 3
    await grown(setting, 2)


async def test_the_limit_counts_what_is_going_too(setting: Setting) -> None:
    await setting.begin(static(5, limits={"nodes": "3"}))
    await grown(setting, 3)
    setting.cloud.delete_seconds = 120
    await setting.delete_claim(setting.claims("static")[0]["metadata"]["name"])
    await setting.sim.run_for("1m")
    assert len(setting.requests("create", NODECLAIMS)) == 3
    await setting.sim.wait_until(lambda: len(setting.requests("create", NODECLAIMS)) == 4)
    await grown(setting, 3)
    await setting.sim.apply(static(5, limits={"nodes": "4"}))
    await grown(setting, 4)


async def test_what_is_empty_goes_first(setting: Setting) -> None:
    await setting.begin(static(3))
    await grown(setting, 3)
    await setting.sim.apply(manifests.deployment("web", replicas=1, cpu=BIG))
    await setting.runs_all("web", 1)
    pod = setting.sim.pods(app="web")[0]["metadata"]["name"]
    await setting.sim.apply(static(1))
    await grown(setting, 1)
    assert setting.runs(pod)


async def test_what_has_no_machine_yet_goes_before(setting: Setting) -> None:
    await setting.begin(static(1))
    await grown(setting, 1)
    first = setting.claims("static")[0]["metadata"]["name"]
    setting.cloud.next_launches(Launch(seconds=100))
    await setting.sim.apply(static(2))
    await setting.sim.wait_until(lambda: len(setting.claims("static")) == 2)
    await setting.sim.apply(static(1))
    await grown(setting, 1)
    assert setting.claims("static")[0]["metadata"]["name"] == first


async def test_a_pool_that_is_not_ready_or_going_does_not_grow(setting: Setting) -> None:
    await setting.sim.apply(static(2))
    await setting.sim.run_for("5m")
    assert not setting.claims()
    await setting.begin(static(2))
    await grown(setting, 2)
    await setting.sim.api.write(Delete(NODEPOOLS, "static"))
    await setting.sim.wait_until(lambda: not setting.claims())
    await setting.sim.run_for("5m")
    assert not setting.claims()


@pytest.mark.parametrize("after", [True, False])
@stage(latency_seconds=0.2)
async def test_a_create_whose_outcome_is_unknown_is_not_made_twice(setting: Setting, after: bool) -> None:
    fault = Fault(error=OutcomeUnknown("no answer"), after=after)
    setting.sim.server.faults.add(fault, verb="create", resource=NODECLAIMS, client=names.COMPONENT, times=4)
    await setting.begin(static(2))
    await grown(setting, 2)
    assert len(setting.cloud.machines) == 2


@stage(gates=FeatureGates(static_capacity=False))
async def test_without_the_gate_nothing_is_made(setting: Setting) -> None:
    await setting.begin(static(2))
    await setting.sim.run_for("5m")
    assert not setting.claims()
