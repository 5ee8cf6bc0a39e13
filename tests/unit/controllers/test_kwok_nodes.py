"""Launched claims get their Nodes: at the right time, once, and whoever has crashed in between."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.objects import NodeClaim
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODECLAIMS,
    NODES,
    ApiError,
    Delete,
    InternalError,
    OutcomeUnknown,
    Patch,
    Unavailable,
)
from dovetail.providers.kwok.node_creation import KwokNodes
from dovetail.providers.kwok.nodes import name_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.claims import condition, node_class
from tests.harness.running import Program, run_controllers
from tests.harness.stage import PARAMETER, gives, stage
from tests.unit.providers.claims import claim_manifest
from tests.unit.providers.conformance import launch, nodes_of, take_over


@gives("sim", "program")
def run(scenario: Any, **options: Any) -> None:
    run_controllers(scenario, lambda program: [KwokNodes(program.cluster)], **options)


pytestmark = stage(run)


def creations(sim: SimCluster) -> int:
    """How many Nodes were ever created."""
    return sum(" create " in line and " nodes" in line for line in sim.trace)


async def register(sim: SimCluster, claim: NodeClaim) -> None:
    conditions = [condition("Launched"), condition("Registered")]
    await sim.api.write(
        Patch(NODECLAIMS, claim.metadata.name, {"status": {"conditions": conditions}}, subresource="status")
    )


async def test_a_launched_claim_gets_its_node_at_once_and_only_one(sim: SimCluster, program: Program) -> None:
    claim = await launch(sim, KwokProvider(program.api))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)), timeout="1s")
    (node,) = nodes_of(sim, claim)
    assert node["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": "web-1",
            "uid": claim.metadata.uid,
            "blockOwnerDeletion": True,
        }
    ]
    assert node["status"]["allocatable"]["cpu"] == "900m"
    await sim.run_for("1h")
    assert creations(sim) == 1


@pytest.mark.parametrize("restart", [False, True])
async def test_registration_delay_honoured_to_the_second_also_across_a_restart(
    sim: SimCluster, program: Program, restart: bool
) -> None:
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "1m30s"}))
    claim = await launch(sim, KwokProvider(program.api))
    launched_at = claim.status.conditions[0].last_transition_time
    assert launched_at is not None
    await sim.run_for("60s")
    if restart:
        await program.restart()
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    assert sim.clock.now() == launched_at + timedelta(seconds=90)


async def test_a_shorter_delay_counts_when_the_class_is_changed(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "1h"}))
    claim = await launch(sim, KwokProvider(program.api))
    await sim.run_for("10s")
    await sim.api.write(Patch(KWOK_NODECLASSES, "default", {"spec": {"nodeRegistrationDelay": "20s"}}))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)), timeout="11s")


async def test_a_class_deleted_since_the_launch_delays_nothing(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "1h"}))
    claim = await launch(sim, KwokProvider(program.api))
    await sim.api.write(Delete(KWOK_NODECLASSES, "default"))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)), timeout="1s")


@stage(started=False)
async def test_a_claim_launched_while_nobody_ran_gets_its_node(sim: SimCluster, program: Program) -> None:
    claim = await launch(sim, KwokProvider(sim.api))
    await sim.run_for("1m")
    assert creations(sim) == 0
    await program.start()
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)), timeout="1s")


async def test_a_claim_that_upstream_launched_gets_the_node_it_was_promised(sim: SimCluster) -> None:
    """The name is the one in the claim, and nothing is chosen anew."""
    await sim.apply(node_class(), claim_manifest(types=("not-in-the-catalogue",)))
    status = {"providerID": "kwok://kwok-web-1-lucky-7-abc-42", "conditions": [condition("Launched")]}
    await sim.api.write(Patch(NODECLAIMS, "web-1", {"status": status}, subresource="status"))
    await sim.wait_until(lambda: sim.object(NODES, "kwok-web-1-lucky-7-abc-42") is not None, timeout="1s")


@pytest.mark.parametrize("latency_seconds", [0.0, 0.05])
@pytest.mark.parametrize("crash_ms", range(0, 400, 45))
@stage(started=False, latency_seconds=PARAMETER)
async def test_a_crash_at_any_point_neither_loses_nor_doubles_a_node(
    sim: SimCluster, program: Program, crash_ms: int
) -> None:
    claims = [await launch(sim, KwokProvider(sim.api), f"web-{number}") for number in range(5)]
    await program.start()
    await sim.run_for(f"{crash_ms}ms")
    await program.restart()
    await sim.run_for("1m")
    assert [len(nodes_of(sim, claim)) for claim in claims] == [1] * 5
    assert creations(sim) == len(sim.objects(NODES)) == 5


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Unavailable("down"), InternalError("oops"), OutcomeUnknown("lost")])
@pytest.mark.parametrize("verb", ["create", "get"])
async def test_a_failed_request_is_tried_again_until_there_is_one_node(
    sim: SimCluster, verb: str, error: ApiError, after: bool
) -> None:
    sim.server.faults.add(Fault(error=error, after=after), verb=verb, client=names.COMPONENT, times=3)
    claim = await launch(sim, KwokProvider(sim.api))
    await sim.run_for("1m")
    assert len(nodes_of(sim, claim)) == creations(sim) == 1
    assert not sim.server.faults.pending or (verb, after) == ("create", True)


async def test_a_node_that_was_made_unheard_and_unseen_is_not_made_again(sim: SimCluster, program: Program) -> None:
    """The answer is lost, and the watch that would show the Node is down: the second try finds it there."""
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="watch", resource=NODES, client=names.COMPONENT)
    sim.server.faults.drop_watches(NODES)
    sim.server.faults.add(Fault(error=OutcomeUnknown("lost"), after=True), verb="create", client=names.COMPONENT)
    claim = await launch(sim, KwokProvider(sim.api))
    await sim.run_for("300ms")
    assert list(program.cluster.nodes.values()) == []
    await sim.run_for("1m")
    assert len(nodes_of(sim, claim)) == creations(sim) == 1
    assert len(list(program.cluster.nodes.values())) == 1


async def test_a_claim_that_is_gone_unseen_gets_no_node(sim: SimCluster) -> None:
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "1s"}))
    claim = await launch(sim, KwokProvider(sim.api))
    await sim.run_for("500ms")
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="watch", resource=NODECLAIMS, times=3)
    sim.server.faults.drop_watches(NODECLAIMS)
    await sim.api.write(Patch(NODECLAIMS, "web-1", {"metadata": {"finalizers": None}}))
    await sim.api.write(Delete(NODECLAIMS, "web-1"))
    await sim.run_for("1m")
    assert creations(sim) == 0
    assert nodes_of(sim, claim) == []


async def test_an_instance_that_vanished_stays_vanished(sim: SimCluster, program: Program) -> None:
    claim = await launch(sim, KwokProvider(program.api))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    await register(sim, claim)
    await sim.api.write(Delete(NODES, name_in(claim.status.provider_id)))
    await sim.run_for("1h")
    await program.restart()
    await sim.run_for("1h")
    assert creations(sim) == 1
    assert nodes_of(sim, claim) == []


async def test_also_if_the_caches_tell_of_the_node_before_the_claim(sim: SimCluster, program: Program) -> None:
    """The Node's end is known while the claim still looks unregistered: its watch is behind."""
    claim = await launch(sim, KwokProvider(program.api))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    await sim.run_for("1m")
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="watch", resource=NODECLAIMS, times=3)
    sim.server.faults.drop_watches(NODECLAIMS)
    await sim.run_for("100ms")
    await register(sim, claim)
    await sim.api.write(Delete(NODES, name_in(claim.status.provider_id)))
    await sim.run_for("100ms")
    stale = program.cluster.claims.get_consistent("web-1")
    assert stale is not None
    assert all(each.type != "Registered" for each in stale.status.conditions)
    await sim.run_for("10m")
    assert creations(sim) == 1


async def test_a_node_lost_before_registration_comes_back(sim: SimCluster, program: Program) -> None:
    claim = await launch(sim, KwokProvider(program.api))
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    await sim.run_for("10s")
    await sim.api.write(Delete(NODES, name_in(claim.status.provider_id)))
    await sim.run_for("10s")
    assert len(nodes_of(sim, claim)) == 1


async def test_who_gets_no_node(sim: SimCluster) -> None:
    provider = KwokProvider(sim.api)
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "1m"}))
    deleted = await launch(sim, provider, "deleted")
    await sim.api.write(Delete(NODECLAIMS, "deleted"))
    registered = await launch(sim, provider, "registered")
    await register(sim, registered)
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    await sim.apply(claim_manifest("foreign", nodeClassRef=ref))
    foreign = await sim.api.get(NODECLAIMS, "foreign")
    await take_over(sim, foreign, await provider.create(foreign))
    await sim.apply(claim_manifest("unlaunched"))
    await sim.run_for("1h")
    assert deleted.status.provider_id
    assert sim.objects(NODES) == []


async def test_a_claim_that_goes_while_its_node_is_made_takes_it_along(sim: SimCluster) -> None:
    sim.server.faults.add(Fault(delay_seconds=10), verb="create", resource=NODES)
    claim = await launch(sim, KwokProvider(sim.api))
    await sim.run_for("5s")
    await sim.api.write(Patch(NODECLAIMS, "web-1", {"metadata": {"finalizers": None}}))
    await sim.api.write(Delete(NODECLAIMS, "web-1"))
    await sim.run_for("1m")
    assert creations(sim) == 1
    assert nodes_of(sim, claim) == []


async def test_a_node_that_the_server_refuses_is_given_up_until_the_claim_changes(
    sim: SimCluster, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    await sim.apply(node_class(), claim_manifest())
    status = {"providerID": "kwok://Not_A_Name", "conditions": [condition("Launched")]}
    await sim.api.write(Patch(NODECLAIMS, "web-1", {"status": status}, subresource="status"))
    await sim.run_for("1h")
    assert sim.objects(NODES) == []
    assert program.cluster.claims.get_consistent("web-1") is not None
    refused = [record for record in caplog.records if "its Node is refused" in vars(record).get("error", "")]
    assert 1 <= len(refused) <= 3
