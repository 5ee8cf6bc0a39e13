"""Claims that have lost their instance, and instances that have lost their claim (02 §11; 03 §10.60–62)."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.nodeclaim.garbage import GarbageCollection
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES, CloudError, Delete, Forbidden, Patch, Unavailable
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import KUBELET
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.server.faults import Fault
from tests.harness.claims import (
    condition,
    launched,
    node,
    node_claim,
    node_class,
    put_status,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.harness.termination import FOR_EVER, counted, is_deleting

REGISTERED = ("Launched", "Registered")


class Book(SimCloud):
    """A cloud whose list can be out of order."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, launch_seconds=0)
        self.failures = 0

    async def list(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise CloudError("throttled")
        return await super().list()


class Running:
    """The controller alone, with a cloud."""

    cloud: Book
    metrics: Metrics

    def controllers(self, program: Program) -> list[GarbageCollection]:
        self.metrics = Metrics(CollectorRegistry())
        return [GarbageCollection(program.cluster, self.cloud, self.metrics, Timings())]

    @property
    def collected(self) -> float:
        return counted(self.metrics.nodeclaims_disrupted, reason="garbage_collected")


@gives("sim", "running", "program")
def run(scenario: Any) -> None:
    running = Running()

    async def within(sim: SimCluster, program: Program) -> None:
        running.cloud = Book(sim)
        async with running.cloud:
            await sim.apply(node_class())
            await program.start()
            await sim.run_for("1s")  # the first round is over
            await scenario(sim, running, program)
            await program.stop()

    run_controllers(within, running.controllers, started=False)


pytestmark = stage(run)


async def add_claim(sim: SimCluster, name: str = "c1", *, true: tuple[str, ...] = REGISTERED) -> None:
    """A claim whose instance the cloud does not know; its Node would be called after it."""
    await sim.apply(node_claim(name, finalizers=True))
    await launched(sim, name, node=f"of-{name}", true=true)


async def add_node(sim: SimCluster, name: str = "c1", *, ready: str | None) -> None:
    """Its Node, which says this of itself for good."""
    body = node(f"of-{name}")
    body["metadata"]["annotations"] = {KUBELET: "none"}
    await sim.apply(body)
    if ready is not None:
        await put_status(sim, NODES, f"of-{name}", {"conditions": [condition("Ready", ready)]})


async def add_instance(sim: SimCluster, running: Running, name: str) -> str:
    """A claim with an instance that the cloud knows; the instance's provider ID."""
    type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]}
    await sim.apply(node_claim(name, requirements=[type_], finalizers=True))
    instance = await running.cloud.create(await sim.api.get(NODECLAIMS, name))
    conditions = [condition(each, observedGeneration=1) for each in REGISTERED]
    await put_status(sim, NODECLAIMS, name, {"providerID": instance.provider_id, "conditions": conditions})
    return instance.provider_id


async def lose_claim(sim: SimCluster, name: str) -> None:
    """Somebody takes the finalizer off a claim, and it is gone."""
    await sim.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": None}}))
    await sim.api.write(Delete(NODECLAIMS, name))
    assert sim.object(NODECLAIMS, name) is None


def deleting(sim: SimCluster, name: str = "c1") -> bool:
    return is_deleting(sim.object(NODECLAIMS, name))


# -- claims without instance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [None, "False", "Unknown"])
async def test_a_claim_without_instance_is_collected_in_the_next_round(
    sim: SimCluster, running: Running, program: Program, ready: str | None
) -> None:
    await sim.run_for("30s")
    await add_claim(sim)
    await add_node(sim, ready=ready)
    await sim.run_for("88s")
    assert not deleting(sim)
    await sim.run_for("2s")  # two minutes from the start
    assert deleting(sim)
    assert running.collected == 1
    await sim.run_for("10m")
    assert program.requests("delete nodeclaims") == 1
    assert running.collected == 1


async def test_a_claim_without_node_is_collected(sim: SimCluster, running: Running) -> None:
    await add_claim(sim)
    await sim.run_for("121s")
    assert deleting(sim)
    assert running.collected == 1


@pytest.mark.parametrize("true", [(), ("Launched",), ("Launched", "Initialized")])
async def test_a_claim_that_is_not_registered_is_not(sim: SimCluster, running: Running, true: tuple[str, ...]) -> None:
    await add_claim(sim, true=true)
    await sim.run_for("1h")
    assert not deleting(sim)
    assert running.collected == 0


async def test_a_claim_whose_node_is_ready_is_not(sim: SimCluster, running: Running) -> None:
    await add_claim(sim)
    await add_node(sim, ready="True")
    await sim.run_for("1h")
    assert not deleting(sim)
    # Once it no longer speaks for itself, it is.
    await put_status(sim, NODES, "of-c1", {"conditions": [condition("Ready", "Unknown")]})
    await sim.run_for("2m")
    assert deleting(sim)
    assert running.collected == 1


async def test_a_claim_whose_instance_is_there_is_not(sim: SimCluster, running: Running) -> None:
    provider_id = await add_instance(sim, running, "c1")
    await sim.run_for("1h")
    assert not deleting(sim)
    running.cloud.vanish(provider_id)
    await sim.run_for("3m")
    assert deleting(sim)


async def test_a_claim_that_is_going_anyway_is_left_alone(sim: SimCluster, running: Running, program: Program) -> None:
    await add_claim(sim)
    await sim.api.write(Delete(NODECLAIMS, "c1"))
    await sim.run_for("10m")
    assert program.requests("delete nodeclaims") == 0
    assert running.collected == 0


async def test_claims_of_others_are_left_alone(sim: SimCluster, running: Running, program: Program) -> None:
    theirs = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    await sim.apply(node_claim("c1", finalizers=True, nodeClassRef=theirs))
    await launched(sim, "c1", node="of-c1", true=REGISTERED)
    await sim.run_for("10m")
    assert (program.requests("delete"), running.collected) == (0, 0)


async def test_a_cloud_that_does_not_answer_has_lost_nothing(sim: SimCluster, running: Running) -> None:
    await add_claim(sim)
    running.cloud.failures = 3
    await sim.run_for("6m")
    assert not deleting(sim)
    await sim.run_for("2m")
    assert deleting(sim)


async def test_a_claim_that_cannot_be_deleted_does_not_hold_up_the_others(sim: SimCluster, running: Running) -> None:
    for name in ("c1", "c2", "c3"):
        await add_claim(sim, name)
    refused = Fault(error=Forbidden("a webhook says no"))
    sim.server.faults.add(refused, verb="delete", resource=NODECLAIMS, name="c1", times=FOR_EVER)
    await sim.run_for("121s")
    assert [deleting(sim, name) for name in ("c1", "c2", "c3")] == [False, True, True]
    assert running.collected == 2


# -- instances without claim ------------------------------------------------------------------------------------------


async def test_an_instance_without_claim_is_ended_when_two_rounds_have_seen_it(
    sim: SimCluster, running: Running
) -> None:
    provider_id = await add_instance(sim, running, "c1")
    kept = await add_instance(sim, running, "c2")
    await sim.run_for("1m")
    await lose_claim(sim, "c1")
    await sim.run_for("2m30s")  # one round, at two minutes
    assert running.cloud.calls["delete"] == 0
    await sim.run_for("1m")  # another one, at four
    assert running.cloud.machines[provider_id].deleting
    assert not running.cloud.machines[kept].deleting
    await sim.run_for("10m")
    assert running.cloud.calls["delete"] == 1  # it was asked for
    assert [each.provider_id for each in await running.cloud.list()] == [kept]


async def test_a_restart_counts_anew(sim: SimCluster, running: Running, program: Program) -> None:
    await add_instance(sim, running, "c1")
    await lose_claim(sim, "c1")
    for _ in range(3):
        await sim.run_for("10s")
        await program.restart()  # a round each
    await sim.run_for("119s")
    assert running.cloud.calls["delete"] == 0
    await sim.run_for("2s")
    assert running.cloud.calls["delete"] == 1


async def test_an_instance_whose_claim_is_being_launched_is_nobodys_orphan(sim: SimCluster, running: Running) -> None:
    type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]}
    await sim.apply(node_claim("c1", requirements=[type_], finalizers=True))
    await running.cloud.create(await sim.api.get(NODECLAIMS, "c1"))  # and nobody has written it down yet
    await sim.run_for("1h")
    assert running.cloud.calls["delete"] == 0


async def test_an_instance_whose_claim_cannot_be_read_is_no_orphan(
    sim: SimCluster, running: Running, program: Program
) -> None:
    await program.stop()
    await add_instance(sim, running, "c1")
    found = sim.object(NODECLAIMS, "c1")
    assert found is not None
    # As an older CRD may have let it in.
    body = {**found, "spec": {**found["spec"], "taints": "none"}}
    sim.server.registry.store.put(NODECLAIMS, ("", "c1"), body, "test")
    await program.start()
    assert program.cluster.claims.get(("", "c1")) is None
    await sim.run_for("1h")
    assert running.cloud.calls["delete"] == 0


async def test_an_instance_that_cannot_be_ended_is_tried_again_and_does_not_hold_up_the_others(
    sim: SimCluster, running: Running
) -> None:
    ids = [await add_instance(sim, running, name) for name in ("c1", "c2", "c3")]
    for name in ("c1", "c2", "c3"):
        await lose_claim(sim, name)
    running.cloud.next_deletions(CloudError("throttled"))
    await sim.run_for("4m1s")
    assert sorted(running.cloud.machines[each].deleting for each in ids) == [False, True, True]
    await sim.run_for("2m")
    assert all(running.cloud.machines[each].deleting for each in ids)


async def test_a_round_that_fails_is_no_round(sim: SimCluster, running: Running) -> None:
    await add_claim(sim)
    down = Fault(error=Unavailable("down"))
    sim.server.faults.add(down, verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=1)
    await sim.run_for("121s")
    assert not deleting(sim)
    await sim.run_for("2m")
    assert deleting(sim)
    assert running.collected == 1
