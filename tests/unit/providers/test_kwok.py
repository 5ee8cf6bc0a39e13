"""The kwok provider, by the contract of all providers and by what is its own."""

import asyncio
import logging
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.objects import Node, NodeSpec, ObjectMeta
from dovetail.ports import (
    NODES,
    CloudError,
    CloudProvider,
    Conflict,
    Delete,
    InstanceGone,
    InsufficientCapacity,
    NodeClassNotReady,
    NotFound,
    OutcomeUnknown,
    Patch,
    Unavailable,
)
from dovetail.providers.kwok.node_creation import KwokNodes, follow_interruptions
from dovetail.providers.kwok.nodes import name_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import deleting
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.unit.providers.conformance import (
    ProviderConformance,
    Scenario,
    launch,
    launch_node,
    make_claim,
    nodes_of,
)


@gives("sim", "provider")
def with_nodes(scenario: Scenario) -> None:
    """With the controller that makes the Nodes."""

    async def run_scenario(sim: SimCluster, program: Program) -> None:
        await scenario(sim, KwokProvider(program.api))

    run_controllers(run_scenario, lambda program: [KwokNodes(program.cluster)])


pytestmark = stage(with_nodes)


class TestConformance(ProviderConformance):
    """With kwok."""


async def test_a_claim_that_lists_no_types_gets_a_clear_error(sim: SimCluster, provider: CloudProvider) -> None:
    with pytest.raises(CloudError, match="instance type requirement not found") as failed:
        await provider.create(await make_claim(sim, types=()))
    assert not isinstance(failed.value, InsufficientCapacity | NodeClassNotReady | InstanceGone)


# -- machines ----------------------------------------------------------------------------------------------------------


@stage(run, gives=("sim",))
async def test_a_launch_writes_nothing(sim: SimCluster) -> None:
    claim = await make_claim(sim)
    before = len(sim.trace)
    await KwokProvider(sim.api).create(claim)
    assert len(sim.trace) == before


@stage(run, gives=("sim",))
async def test_another_process_chooses_the_same(sim: SimCluster) -> None:
    claim = await make_claim(sim)
    assert await KwokProvider(sim.api, seed=3).create(claim) == await KwokProvider(sim.api, seed=3).create(claim)


async def test_get_during_node_deletion_says_since_when_it_is_not_ready(
    sim: SimCluster, provider: CloudProvider
) -> None:
    claim = await launch_node(sim, provider)
    name = name_in(claim.status.provider_id)
    assert (await provider.get(claim.status.provider_id)).labels[names.HOSTNAME_LABEL] == "web-1"
    await sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
    await sim.api.write(Delete(NODES, name))
    deleted_at = sim.clock.now()
    assert (await provider.get(claim.status.provider_id)).silent_since is None
    await sim.run_for("10s")
    sim.set_node_ready(name, ready=False)
    await sim.run_for("10s")
    silent = await provider.get(claim.status.provider_id)
    assert silent.silent_since == deleted_at + timedelta(seconds=10)
    assert [(each.provider_id, each.deleting) for each in await provider.list()] == [(claim.status.provider_id, True)]


async def test_delete_removes_the_node_and_answers_gone_at_once(sim: SimCluster, provider: CloudProvider) -> None:
    claim = await launch_node(sim, provider)
    with pytest.raises(InstanceGone):
        await provider.delete(claim)
    assert nodes_of(sim, claim) == []


async def test_delete_of_a_registered_node_begins_its_drain_and_does_not_cut_it_short(
    sim: SimCluster, provider: CloudProvider
) -> None:
    claim = await launch_node(sim, provider)
    name = name_in(claim.status.provider_id)
    await sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
    for _ in range(2):
        with pytest.raises(InstanceGone):
            await provider.delete(claim)
    assert [deleting(node) for node in nodes_of(sim, claim)] == [True]


@stage(run, gives=("sim",))
async def test_a_node_of_this_name_that_is_somebody_elses_is_left_alone(sim: SimCluster) -> None:
    provider = KwokProvider(sim.api)
    claim = await launch(sim, provider)
    name = name_in(claim.status.provider_id)
    await sim.apply(manifests.node(name))
    with pytest.raises(InstanceGone):
        await provider.delete(claim)
    with pytest.raises(InstanceGone):
        await provider.get(claim.status.provider_id)
    assert sim.object(NODES, name) is not None
    assert list(await provider.list()) == []


@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("another one")])
async def test_a_node_that_goes_meanwhile_is_gone(sim: SimCluster, provider: CloudProvider, error: Exception) -> None:
    claim = await launch_node(sim, provider)
    assert isinstance(error, NotFound | Conflict)
    sim.server.faults.add(Fault(error=error), verb="delete", resource=NODES)
    with pytest.raises(InstanceGone):
        await provider.delete(claim)


@pytest.mark.parametrize("error", [Unavailable("down"), OutcomeUnknown("lost")])
@pytest.mark.parametrize("verb", ["get", "delete"])
async def test_a_node_that_cannot_be_asked_for_is_not_gone(
    sim: SimCluster, provider: CloudProvider, verb: str, error: Unavailable | OutcomeUnknown
) -> None:
    claim = await launch_node(sim, provider)
    sim.server.faults.add(Fault(error=error), verb=verb, resource=NODES)
    with pytest.raises(CloudError, match=error.message) as failed:
        await provider.delete(claim)
    assert not isinstance(failed.value, InstanceGone)
    with pytest.raises(InstanceGone):
        await provider.delete(claim)
    assert nodes_of(sim, claim) == []


@stage(run, gives=("sim",))
async def test_list_pages_through_all_nodes(sim: SimCluster) -> None:
    for number in range(1203):
        body = manifests.node(f"kwok-{number:04}")
        body["spec"]["providerID"] = f"kwok://kwok-{number:04}" if number % 3 else f"aws:///i-{number}"
        await sim.apply(body)
    found = [instance.provider_id for instance in await KwokProvider(sim.api).list()]
    assert found == [f"kwok://kwok-{number:04}" for number in range(1203) if number % 3]
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="list", resource=NODES)
    with pytest.raises(CloudError, match="down"):
        await KwokProvider(sim.api).list()


async def test_a_node_that_cannot_be_read_is_not_taken_for_gone(sim: SimCluster, provider: CloudProvider) -> None:
    claim = await launch_node(sim, provider)
    stored = sim.server.registry.store.collection(NODES).objects["", name_in(claim.status.provider_id)]
    stored.body["metadata"]["labels"] = 7
    assert [instance.provider_id for instance in await provider.list()] == [claim.status.provider_id]


# -- interruptions -----------------------------------------------------------------------------------------------------

DEADLINE = "2026-03-01T12:00:00Z"


def node(value: str | None, *, uid: str = "uid-1", provider_id: str = "", **meta: Any) -> Node:
    annotations = {} if value is None else {names.KWOK_INTERRUPTED: value}
    metadata = ObjectMeta(name=f"n-{uid}", uid=uid, annotations=annotations, **meta)
    return Node(metadata=metadata, spec=NodeSpec(provider_id=provider_id or f"kwok://n-{uid}"))


async def listened(sim: SimCluster, provider: KwokProvider) -> list[tuple[str, datetime | None]]:
    """Node and deadline of the notices that are waiting; all are dealt with."""
    found: list[tuple[str, datetime | None]] = []

    async def listen() -> None:
        async for notice in provider.interruptions():
            assert notice.kind == "Interrupted"
            found.append((name_in(notice.provider_id), notice.deadline))
            provider.dealt_with(notice)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        await sim.run_for("1s")
        task.cancel()
    return found


def seen(*nodes: Node) -> list[tuple[str, datetime | None]]:
    """What is told after the provider has seen the Nodes."""

    async def scenario(sim: SimCluster) -> list[tuple[str, datetime | None]]:
        provider = KwokProvider(sim.api)
        for each in nodes:
            provider.node_seen(each)
        return await listened(sim, provider)

    return run(scenario)


def test_an_annotated_node_is_told_once_for_each_value() -> None:
    two = node("true", uid="two")
    assert seen(node("true"), two, node("true"), node("true"), two) == [("n-uid-1", None), ("n-two", None)]
    assert seen(node("true"), node(DEADLINE)) == [("n-uid-1", at(DEADLINE))]


@stage(run, gives=("sim",))
async def test_a_changed_value_is_another_notice(sim: SimCluster) -> None:
    provider = KwokProvider(sim.api)
    for value, notices in (
        ("true", [None]),
        ("true", []),
        (DEADLINE, [at(DEADLINE)]),
        (None, []),
        ("true", [None]),
    ):
        provider.node_seen(node(value))
        assert [deadline for _, deadline in await listened(sim, provider)] == notices


def test_what_is_no_interruption() -> None:
    assert seen(node(None), node("false"), node("true", provider_id="aws:///i-1")) == []
    assert seen(node("true"), node(None)) == []


def test_a_node_that_is_going_already_can_be_hurried() -> None:
    assert seen(node(DEADLINE, deletion_timestamp=at(DEADLINE))) == [("n-uid-1", at(DEADLINE))]


def test_a_bad_value_counts_as_true_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert seen(node("tomorrow"), node("tomorrow")) == [("n-uid-1", None)]
    assert [record.getMessage().partition(": want")[0] for record in caplog.records] == [
        "n-uid-1: karpenter.kwok.sh/interrupted counts as true: 'tomorrow' is not a time"
    ]


@stage(run, gives=("sim",))
async def test_a_notice_that_is_not_dealt_with_is_told_again(sim: SimCluster) -> None:
    provider = KwokProvider(sim.api)
    provider.node_seen(node("true"))
    async with aclosing(provider.interruptions()) as notices:
        assert name_in((await anext(notices)).provider_id) == "n-uid-1"
    assert await listened(sim, provider) == [("n-uid-1", None)]
    assert await listened(sim, provider) == []


class Interruptible(KwokNodes):
    """The controller, with a provider that the cache of nodes tells of interruptions."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.cluster)
        self.provider = KwokProvider(program.api)
        follow_interruptions(program.cluster, self.provider)


def provider_of(program: Program) -> KwokProvider:
    (controller,) = program.controllers
    assert isinstance(controller, Interruptible)
    return controller.provider


@stage(run_controllers, lambda program: [Interruptible(program)])
async def test_the_cache_of_nodes_feeds_interruptions_also_after_a_restart(sim: SimCluster, program: Program) -> None:
    claim = await launch_node(sim, provider_of(program))
    name = name_in(claim.status.provider_id)
    await sim.api.write(Patch(NODES, name, {"metadata": {"annotations": {names.KWOK_INTERRUPTED: DEADLINE}}}))
    assert await listened(sim, provider_of(program)) == [(name, at(DEADLINE))]
    await program.restart()
    assert await listened(sim, provider_of(program)) == [(name, at(DEADLINE))]
    await sim.api.write(Patch(NODES, name, {"metadata": {"annotations": {names.KWOK_INTERRUPTED: "true"}}}))
    await sim.api.write(Delete(NODES, name))
    assert await listened(sim, provider_of(program)) == []
