"""What every provider has to do: a test class to inherit from, with nothing but the port in it.

@stage(with_mine)  # gives a fresh simulated cluster, and the provider with whatever makes its Nodes
class TestMine(ProviderConformance): ...
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.objects import NodeClaim, NodePool, NodeSelectorRequirement
from dovetail.planning.nodeclaim.lifecycle import why_not_initialized
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODECLAIMS,
    NODES,
    CloudError,
    CloudProvider,
    Delete,
    Instance,
    InstanceGone,
    InsufficientCapacity,
    NodeClassNotReady,
    Patch,
    Unavailable,
)
from dovetail.providers.catalogue import allocatable
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import condition_status, deleting, node_of
from dovetail.sim.server.faults import Fault
from dovetail.values.quantity import parse_quantity
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.claims import node_class
from tests.unit.providers.claims import OTHER, SMALL, claim_manifest, labels_of, requirement

Scenario = Callable[[SimCluster, CloudProvider], Coroutine[Any, Any, None]]

RAW_CLAIMS = NODECLAIMS.read_as(dict[str, Any])
DELETIONS_AT_MOST = 100


async def make_claim(
    sim: SimCluster, name: str = "web-1", *requirements: NodeSelectorRequirement, **options: Any
) -> NodeClaim:
    """A claim on the server, held by our finalizer, with its node class."""
    await sim.apply(node_class(), claim_manifest(name, *requirements, finalizers=True, **options))
    return await sim.api.get(NODECLAIMS, name)


async def take_over(sim: SimCluster, claim: NodeClaim, instance: Instance) -> NodeClaim:
    """Write onto the claim what its lifecycle would after a launch."""
    metadata = {
        "labels": {**instance.labels, **claim.metadata.labels},
        "annotations": {**claim.metadata.annotations, **instance.annotations},
    }
    await sim.api.write(Patch(RAW_CLAIMS, claim.metadata.name, {"metadata": metadata}))
    launched = {
        "type": "Launched",
        "status": "True",
        "reason": "Launched",
        "lastTransitionTime": format_time(sim.clock.now().replace(microsecond=0)),
    }
    status = {
        "providerID": instance.provider_id,
        "capacity": dict(instance.capacity),
        "allocatable": dict(instance.allocatable),
        "conditions": [launched],
    }
    return await sim.api.write(Patch(NODECLAIMS, claim.metadata.name, {"status": status}, subresource="status"))


async def launch(sim: SimCluster, provider: CloudProvider, name: str = "web-1", **options: Any) -> NodeClaim:
    claim = await make_claim(sim, name, **options)
    return await take_over(sim, claim, await provider.create(claim))


def nodes_of(sim: SimCluster, claim: NodeClaim) -> list[Any]:
    return [node for node in sim.objects(NODES) if node["spec"].get("providerID") == claim.status.provider_id]


async def launch_node(sim: SimCluster, provider: CloudProvider, name: str = "web-1", **options: Any) -> NodeClaim:
    """Launch, and wait for the Node to be Ready."""
    claim = await launch(sim, provider, name, **options)

    def ready() -> bool:
        return any(condition_status(node, "Ready") == "True" for node in nodes_of(sim, claim))

    await sim.wait_until(ready)
    return claim


async def end(sim: SimCluster, provider: CloudProvider, claim: NodeClaim) -> None:
    """Delete until the machine is gone, as the lifecycle does for a claim that is being deleted."""
    await sim.api.write(Delete(NODECLAIMS, claim.metadata.name))
    for _ in range(DELETIONS_AT_MOST):
        try:
            await provider.delete(claim)
        except InstanceGone:
            return
        await sim.run_for("5s")
    raise AssertionError("the machine does not go")


async def free_node(sim: SimCluster, claim: NodeClaim) -> None:
    """Take off the taint, as registration does."""
    (node,) = nodes_of(sim, claim)
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] != names.UNREGISTERED_TAINT]
    await sim.api.write(Patch(NODES, node["metadata"]["name"], {"spec": {"taints": taints or None}}))


class ProviderConformance:
    """The port's contract (07 §8), on any provider whose node class is a KWOKNodeClass."""

    # -- launching ----------------------------------------------------------------------------------------------------

    async def test_a_launch_says_what_the_claim_has_got(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim = await make_claim(sim, requests={"cpu": "500m", "example.com/gpu": "1"})
        got = await provider.create(claim)
        assert got.provider_id
        assert got.claim_uid == claim.metadata.uid
        assert got.labels[names.INSTANCE_TYPE_LABEL] == SMALL
        assert {names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL, names.ARCH_LABEL, names.OS_LABEL} < got.labels.keys()
        assert got.labels[names.NODEPOOL_LABEL] == "default"
        assert {"cpu", "memory", "pods", "example.com/gpu"} <= got.allocatable.keys()
        assert got.capacity["cpu"] == "500m"
        assert not got.deleting

    async def test_a_launch_that_is_repeated_is_the_same_launch(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim = await make_claim(sim)
        first, second = await provider.create(claim), await provider.create(claim)
        assert first == second
        claim = await take_over(sim, claim, first)
        await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
        assert await provider.create(claim) == first
        await sim.run_for("5m")
        assert len(sim.objects(NODES)) == len(await provider.list()) == 1

    async def test_two_claims_are_two_machines(self, sim: SimCluster, provider: CloudProvider) -> None:
        one, two = await launch_node(sim, provider, "one"), await launch_node(sim, provider, "two")
        found = {instance.provider_id: instance.claim_uid for instance in await provider.list()}
        assert found == {each.status.provider_id: each.metadata.uid for each in (one, two)}

    async def test_the_cheapest_listed_type_that_fits_is_taken(self, sim: SimCluster, provider: CloudProvider) -> None:
        cheap = await provider.create(await make_claim(sim, "cheap", types=(OTHER, SMALL)))
        pinned = await provider.create(
            await make_claim(
                sim,
                "pinned",
                requirement(names.ZONE_LABEL, "In", "test-zone-b"),
                requirement(names.CAPACITY_TYPE_LABEL, "In", "on-demand"),
            )
        )
        assert cheap.labels[names.INSTANCE_TYPE_LABEL] == SMALL
        assert cheap.labels[names.CAPACITY_TYPE_LABEL] == "spot"
        assert pinned.labels[names.ZONE_LABEL] == "test-zone-b"
        assert pinned.labels[names.CAPACITY_TYPE_LABEL] == "on-demand"

    async def test_nothing_that_fits_is_insufficient_capacity(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim = await make_claim(sim, "web-1", requirement(names.ZONE_LABEL, "In", "elsewhere"))
        with pytest.raises(InsufficientCapacity):
            await provider.create(claim)

    async def test_node_class_deleted_is_insufficient_capacity_and_not_ready_is_not_ready(
        self, sim: SimCluster, provider: CloudProvider
    ) -> None:
        claim = await make_claim(sim)
        for status, kind in (("False", NodeClassNotReady), ("Unknown", None)):
            ready = {
                "type": "Ready",
                "status": status,
                "reason": "Broken",
                "message": "no subnet",
                "lastTransitionTime": "2026-03-01T00:00:00Z",
            }
            await sim.api.write(
                Patch(KWOK_NODECLASSES, "default", {"status": {"conditions": [ready]}}, subresource="status")
            )
            if kind is None:
                await provider.create(claim)
                continue
            with pytest.raises(kind, match="no subnet"):
                await provider.create(claim)
        await sim.api.write(Delete(KWOK_NODECLASSES, "default"))
        with pytest.raises(InsufficientCapacity, match="default"):
            await provider.create(claim)

    async def test_trouble_with_the_api_server_is_the_clouds_error(
        self, sim: SimCluster, provider: CloudProvider
    ) -> None:
        claim = await make_claim(sim)
        sim.server.faults.add(Fault(error=Unavailable("down")), verb="get", resource=KWOK_NODECLASSES)
        with pytest.raises(CloudError, match="down") as failed:
            await provider.create(claim)
        assert type(failed.value) is CloudError
        await provider.create(claim)

    # -- Nodes --------------------------------------------------------------------------------------------------------

    async def test_its_node_appears_and_is_kept_from_pods_until_registered(
        self, sim: SimCluster, provider: CloudProvider
    ) -> None:
        claim = await launch_node(sim, provider, requests={"cpu": "500m"})
        (node,) = nodes_of(sim, claim)
        assert {"key": "karpenter.sh/unregistered", "effect": "NoExecute"} in node["spec"]["taints"]
        assert node["metadata"]["labels"].items() >= dict(claim.metadata.labels).items()
        assert node["metadata"]["name"] != claim.metadata.name
        assert node["metadata"]["labels"][names.HOSTNAME_LABEL] == claim.metadata.name
        assert node["status"]["capacity"] == {"cpu": "500m"}
        assert node["status"]["allocatable"] == dict(claim.status.allocatable)

    async def test_registration_delay_is_honoured_while_the_claim_has_its_capacity(
        self, sim: SimCluster, provider: CloudProvider
    ) -> None:
        await sim.apply(node_class(spec={"nodeRegistrationDelay": "7m"}))
        await sim.apply(claim_manifest(requests={"cpu": "500m"}))
        claim = await sim.api.get(NODECLAIMS, "web-1")
        claim = await take_over(sim, claim, await provider.create(claim))
        launched_at = sim.clock.now()
        assert (claim.status.capacity["cpu"], claim.status.allocatable["cpu"]) == ("500m", "900m")
        await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
        assert 415 <= (sim.clock.now() - launched_at).total_seconds() <= 500

    async def test_topology_by_hostname_works(self, sim: SimCluster, provider: CloudProvider) -> None:
        for name in ("one", "two"):
            await free_node(sim, await launch_node(sim, provider, name))
        spread = {
            "maxSkew": 1,
            "topologyKey": names.HOSTNAME_LABEL,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        await sim.apply(manifests.deployment("web", replicas=4, topologySpreadConstraints=[spread]))
        await sim.wait_until(lambda: len(sim.pods(app="web", ready=True)) == 4)
        placed = sorted(node_of(pod) for pod in sim.pods(app="web"))
        assert placed[0] == placed[1] != placed[2] == placed[3]

    async def test_an_extended_resource_does_not_hold_up_initialization(
        self, sim: SimCluster, provider: CloudProvider
    ) -> None:
        claim = await launch_node(sim, provider, requests={"example.com/gpu": "1"})
        await free_node(sim, claim)
        await sim.run_for("10s")
        (node,) = nodes_of(sim, claim)
        assert why_not_initialized(claim, await sim.api.get(NODES, node["metadata"]["name"])) is None

    # -- the end ------------------------------------------------------------------------------------------------------

    async def test_deleting_ends_in_gone(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim, other = await launch_node(sim, provider), await launch_node(sim, provider, "other")
        assert (await provider.get(claim.status.provider_id)).provider_id == claim.status.provider_id
        await end(sim, provider, claim)
        with pytest.raises(InstanceGone):
            await provider.get(claim.status.provider_id)
        with pytest.raises(InstanceGone):
            await provider.delete(claim)
        assert [instance.provider_id for instance in await provider.list()] == [other.status.provider_id]
        await sim.run_for("5m")
        assert nodes_of(sim, claim) == []  # nothing held it
        assert len(nodes_of(sim, other)) == 1

    async def test_a_node_that_is_held_stays_until_it_is_let_go(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim = await launch_node(sim, provider)
        (node,) = nodes_of(sim, claim)
        name = node["metadata"]["name"]
        await sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
        await sim.api.write(Delete(NODES, name))
        await end(sim, provider, claim)
        assert [deleting(each) for each in nodes_of(sim, claim)] == [True]

    async def test_what_is_not_there_is_gone(self, sim: SimCluster, provider: CloudProvider) -> None:
        claim = await make_claim(sim)
        for provider_id in ("", "kwok://", "kwok://nobody", "sim://nobody", "aws:///i-1"):
            with pytest.raises(InstanceGone):
                await provider.get(provider_id)
        with pytest.raises(InstanceGone):
            await provider.delete(claim)
        assert list(await provider.list()) == []

    # -- what there is ------------------------------------------------------------------------------------------------

    async def test_instance_types_are_whole(self, provider: CloudProvider) -> None:
        types = (await provider.instance_types(NodePool())).types
        assert len({type_.name for type_ in types}) == len(types) > 0
        for type_ in types:
            labels = labels_of(type_.requirements)
            assert labels[names.INSTANCE_TYPE_LABEL] == [type_.name]
            assert {names.ARCH_LABEL, names.OS_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL} <= labels.keys()
            assert all(parse_quantity(amount).nano >= 0 for amount in allocatable(type_).values())
            for offering in type_.offerings:
                offered = labels_of(offering.requirements)
                assert offering.price >= 0
                assert set(offered[names.ZONE_LABEL]) <= set(labels[names.ZONE_LABEL])
                assert set(offered[names.CAPACITY_TYPE_LABEL]) <= set(labels[names.CAPACITY_TYPE_LABEL])

    async def test_a_fresh_machine_has_not_drifted(self, sim: SimCluster, provider: CloudProvider) -> None:
        assert await provider.drift_reason(await launch(sim, provider)) == ""

    async def test_it_has_a_name_a_node_class_and_says_what_is_unhealthy(self, provider: CloudProvider) -> None:
        assert provider.name
        assert provider.node_classes.kind == names.KWOK_NODECLASS_KIND
        policies = {(each.condition, each.status): each.toleration_seconds for each in provider.repair_policies()}
        assert policies == {("Ready", "False"): 600, ("Ready", "Unknown"): 600}
