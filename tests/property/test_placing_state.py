"""After any changes in any order, what placing pods knows is what it would know had it begun only now."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.ports import (
    CSI_NODES,
    DAEMONSETS,
    KWOK_NODECLASSES,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    ApiError,
    Resource,
)
from dovetail.state.scheduling import PodsToPlace, SchedulingInputs, SchedulingState
from tests.harness import manifests
from tests.harness.claims import condition
from tests.harness.placing import (
    Manifest,
    Scene,
    a_claim,
    a_csi_node,
    a_daemon_set,
    a_node,
    a_pod,
    a_pool,
    a_storage_class,
    a_stranger,
    a_volume,
    a_volume_claim,
    play,
    with_claim,
)
from tests.harness.soak import examples
from tests.harness.stage import stage

pytestmark = stage(play)

CHANGES = 300
LOOK_EVERY = 10
TAINTS = [
    {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"},
    {"key": names.NOT_READY_TAINT, "effect": "NoSchedule"},
    {"key": names.CANDIDATE_TAINT, "effect": "PreferNoSchedule"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
]
LABELS = [names.REGISTERED_LABEL, names.INITIALIZED_LABEL, names.INSTANCE_TYPE_LABEL]
CONDITIONS = ["Registered", "DisruptionReason", "InstanceTerminating", "Drifted"]
KINDS: list[Resource[Any]] = [
    PODS,
    PODS,
    NODES,
    NODECLAIMS,
    DAEMONSETS,
    NODEPOOLS,
    VOLUME_CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    NAMESPACES,
]


class Changes:
    """Draws the next change. There are few names, so that objects meet."""

    def __init__(self, world: Scene, seed: int) -> None:
        self.world = world
        self.chance = Random(seed)
        self.daemon_sets = ["gone"]  # their UIDs, and one that nobody has
        self.refused = 0

    def some(self, *things: Any) -> list[Any]:
        return [thing for thing in things if self.chance.random() < 0.4]

    def one(self, *things: Any) -> Any:
        return self.chance.choice(things)

    async def next(self) -> None:
        """Put or delete something. What the server refuses is no change."""
        put = self.one(
            *(self.pod, self.pod, self.pod, self.node, self.node, self.claim, self.claim),
            *(self.daemon_set, self.other, self.other),
        )
        try:
            if self.chance.random() < 0.7:
                await self.world.put(put())
            elif self.chance.random() < 0.7:
                await self.delete()
            elif self.chance.random() < 0.5:
                labels = dict.fromkeys(self.some(*LABELS))
                await self.world.change(NODES, self.one("n0", "n1", "n2"), {"metadata": {"labels": labels}})
            else:
                self.mark()
        except ApiError:
            self.refused += 1
            await self.world.told()
        there = [kept.uid for kept in self.world.cluster.daemon_sets.snapshot().items.values()]
        self.daemon_sets = [*self.daemon_sets[:1], *there]

    def mark(self) -> None:
        self.one(self.world.state.mark, self.world.state.unmark)(self.one("c0", "c1", "c2"))

    async def delete(self) -> None:
        kind = self.one(*KINDS)
        there = self.world.server.registry.store.collection(kind).objects
        if there:
            namespace, name = self.one(*there)
            if (kind, name) != (NAMESPACES, "default"):
                grace = self.one(None, 0) if kind is PODS else None
                await self.world.delete(kind, name, namespace=namespace, grace_seconds=grace)

    # -- objects ------------------------------------------------------------------------------------------------------

    def node(self) -> Manifest:
        make: Callable[..., Manifest] = self.one(a_node, a_node, a_stranger)
        made = make(self.one("n0", "n1", "n2"), taints=self.some(*TAINTS), cpu=self.one("4", "8"))
        for label in self.some(*LABELS):
            made["metadata"]["labels"].pop(label, None)
        if self.chance.random() < 0.2:
            made["spec"]["providerID"] = f"kwok://{self.one('n0', 'n1', 'other')}"
        made["metadata"]["finalizers"] = self.some("example.com/hold")
        made["spec"].setdefault("taints", [])
        return made

    def claim(self) -> Manifest:
        made = a_claim(
            self.one("c0", "c1", "c2", "n0"),
            of=self.one("n0", "n1", "n2", "n9", ""),
            true=self.some(*CONDITIONS),
            labels={"drawn": self.one("a", "b")},
            startupTaints=[TAINTS[3]],
        )
        made["metadata"]["finalizers"] = self.some(names.TERMINATION_FINALIZER)
        return made

    def pod(self) -> Manifest:
        apart = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "a"}}}
        apart |= self.one({}, {"namespaceSelector": {"matchLabels": {"tier": "db"}}}, {"matchLabelKeys": ["rev"]})
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        node = self.one("n0", "n1", "n2", "nowhere", "", "")
        owner = self.one(None, None, ("StatefulSet", "s", "s"), ("DaemonSet", "d", self.one(*self.daemon_sets)))
        return a_pod(
            f"p{self.chance.randrange(12)}",
            on=node,
            phase=self.one("Running", "Running", "Succeeded"),
            owner=owner,
            labels={"app": self.one("a", "b"), "rev": self.one("1", "2")},
            annotations=self.one({}, {}, {names.DO_NOT_DISRUPT: "true"}),
            cpu=self.one("1", "500m", "much"),
            finalizers=self.some("example.com/hold"),
            affinity=self.one({}, {"podAntiAffinity": terms}),
            volumes=self.one([], with_claim("v0"), with_claim("v1")),
            nodeSelector=self.one({}, {"team": "a"}, {names.HOSTNAME_LABEL: "n0"}),
        )

    def daemon_set(self) -> Manifest:
        return a_daemon_set(self.one("d", "e"), cpu=self.one("100m", "200m", "much"))

    def other(self) -> Manifest:
        volume = self.one("", "", "pv0", "pv1")
        tier = {"tier": self.one("db", "web")}
        made: Manifest = self.one(
            a_volume_claim(self.one("v0", "v1"), class_=self.one("", "fast", "fast"), volume=volume),
            a_volume(self.one("pv0", "pv1"), driver=self.one("disks", "files"), zone=self.one("", "z")),
            a_storage_class("fast", provisioner=self.one("disks", "files"), mode="WaitForFirstConsumer"),
            a_csi_node(self.one("n0", "n1"), disks=self.one(1, 2)),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.one("x", "y"), "labels": tier}},
            a_pool(self.one("default", "second"), ready=self.one(True, False), weight=self.one(1, 2)),
            manifests.pdb(self.one("a", "b"), maxUnavailable=self.one(0, 1)),
        )
        return made


async def from_scratch(world: Scene, marked: set[str]) -> tuple[SchedulingInputs, PodsToPlace, PodsToPlace]:
    """As a process that starts now sees it."""
    cluster = WatchedCluster(world.server, world.clock, KWOK_NODECLASSES.read_as(objects.NodeClass))
    state = SchedulingState(cluster)
    types = InstanceTypeSource(cluster, world.provider, keep_seconds=300)
    running = [asyncio.ensure_future(cache.run()) for cache in cluster.reflectors]
    try:
        for cache in cluster.reflectors:
            await cache.wait_synced()
        for claim in sorted(marked):
            state.mark(claim)
        await types.refresh(state.usable_pools())
        return state.places(), state.pending(), state.leaving(world.clock.now())
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("seed", range(examples(12, quick=4)))
async def test_the_state_is_what_it_would_be_had_it_begun_now(world: Scene, seed: int) -> None:
    changes = Changes(world, seed)
    seen = 0
    for number in range(1, CHANGES + 1):
        await changes.next()
        if changes.chance.random() < 0.5:
            world.state.places()  # so that it is made in many small steps as well as in few large ones
        if number % LOOK_EVERY == 0:
            await world.refresh()
            here = (world.state.places(), world.state.pending(), world.state.leaving(world.clock.now()))
            there = await from_scratch(world, world.state._nodes._marked)
            assert here[0].nodes == there[0].nodes
            assert here[0] == there[0]
            assert here[1:] == there[1:]
            seen += len(here[0].nodes) + len(here[1].pods) + len(here[1].refused) + len(here[2].pods)
    assert changes.refused < CHANGES / 3
    assert seen > CHANGES / LOOK_EVERY  # it was about something


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_kept_of_what_is_gone(world: Scene, seed: int) -> None:
    changes = Changes(world, seed)
    for _ in range(CHANGES):
        await changes.next()
        world.state.places(), world.state.pending(), world.state.leaving(world.clock.now())
    for kind in dict.fromkeys(KINDS):
        for namespace, name in list(world.server.registry.store.collection(kind).objects):
            if kind is NAMESPACES:
                continue
            await world.change(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            options = {"grace_seconds": 0} if kind is PODS else {}
            if (namespace, name) in world.server.registry.store.collection(kind).objects:
                await world.delete(kind, name, namespace=namespace, **options)
    await world.refreshed()
    nodes, daemons = world.state._nodes, world.state._daemons
    assert world.state.places() == SchedulingInputs()
    assert world.state.pending() == world.state.leaving(world.clock.now()) == PodsToPlace()
    readings, types = nodes.readings, world.cluster.instance_types
    left = [nodes.derived.all(), nodes._names, nodes._shown, nodes._volume_users, nodes._marked]
    left += [readings._specs, readings._placed, daemons._pods, daemons._newest, daemons._sets, daemons._flaws]
    left += [world.state._waiting, world.state._unlaunched, types._answers, types._read_last]
    assert not any(left), left


def test_conditions_of_claims_are_drawn() -> None:
    """What the tests above draw has to be what the rules look for."""
    assert {condition(each)["type"] for each in CONDITIONS} <= set(names.ConditionType)
