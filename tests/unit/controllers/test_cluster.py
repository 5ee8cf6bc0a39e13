"""What the controllers know of the cluster: own writes that the watch has not told of yet, and the indexes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODES, PODS, Create, Delete, Evict, Gone, Patch, Resource
from dovetail.runtime.reflector import Reflector
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server import eviction
from dovetail.sim.server.api_server import ApiServer
from dovetail.state.store import Change, Index, InFlight, Store
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.claims import condition, node, node_claim
from tests.harness.stage import gives, stage

START = at("2026-03-01T00:00:00Z")
HELD = ["example.com/hold"]


class Scene:
    """A server and a cache of its nodes and pods. What is done to `registry` is done before anything is told of it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = ApiServer(clock, collect_garbage=False)
        self.registry = self.server.registry
        self.reflectors = (
            Reflector[objects.Node, objects.Node](self.server, clock, NODES, lambda found: found),
            Reflector[objects.Pod, PodRecord](self.server, clock, PODS, PodInterner().pod),
        )
        self.nodes: Store[objects.Node] = self.reflectors[0].store
        self.pods: Store[PodRecord] = self.reflectors[1].store

    async def told(self) -> None:
        """Everything up to now."""
        await self.clock.sleep(1)

    def add(self, name: str, *, finalizers: list[str] | None = None) -> objects.Node:
        body = {"metadata": {"name": name, "finalizers": finalizers or []}}
        return self._node(self.registry.create(Create(NODES, body)))

    def change(self, name: str, value: str) -> objects.Node:
        body = {"metadata": {"labels": {"v": value}}}
        return self._node(self.registry.patch(Patch(NODES, name, body)))

    def delete(self, name: str) -> None:
        self.registry.delete(Delete(NODES, name))

    @staticmethod
    def _node(stored: Any) -> objects.Node:
        found: objects.Node = stored.read_as(objects.Node)
        return found

    def value(self, name: str) -> str | None:
        """What the cache shows of a node. Raises InFlight."""
        found = self.nodes.get_consistent(name)
        return None if found is None else found.metadata.labels.get("v", "")

    @contextmanager
    def answers(self, name: str) -> Iterator[list[str | None]]:
        """What whoever is told of each change is answered at that moment; `in flight` if he is not."""
        heard: list[str | None] = []

        def listen(_change: Change[objects.Node]) -> None:
            try:
                heard.append(self.value(name))
            except InFlight:
                heard.append("in flight")

        self.nodes.subscribe(listen)
        yield heard


@gives("world")
def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Scene(clock)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(cache.run()) for cache in world.reflectors]
            await world.reflectors[0].wait_synced()
            await scene(world)
            for task in running:
                task.cancel()

    simulate(main, start=START)


pytestmark = stage(play)


# -- own writes -------------------------------------------------------------------------------------------------------


async def test_a_write_is_in_flight_until_the_watch_tells_of_it(world: Scene) -> None:
    world.add("a")
    await world.told()
    world.nodes.note_write(world.change("a", "1"))
    with pytest.raises(InFlight):
        world.value("a")
    await world.told()
    assert world.value("a") == "1"


async def test_only_what_was_written_is_in_flight(world: Scene) -> None:
    world.add("a")
    world.add("b")
    await world.told()
    world.nodes.note_write(world.change("a", "1"))
    assert world.value("b") == ""
    assert world.nodes.get(("", "a")) is not None  # whoever only looks may look


async def test_an_object_that_we_created_is_in_flight_too(world: Scene) -> None:
    world.nodes.note_write(world.add("a"))
    with pytest.raises(InFlight):
        world.value("a")
    await world.told()
    assert world.value("a") == ""


async def test_what_others_wrote_before_us_does_not_settle_our_write(world: Scene) -> None:
    world.add("a")
    await world.told()
    with world.answers("a") as heard:
        world.change("a", "theirs")
        world.nodes.note_write(world.change("a", "ours"))
        world.change("a", "theirs-again")
        await world.told()
    assert heard == ["in flight", "ours", "theirs-again"]


async def test_an_answer_that_comes_after_the_watch(world: Scene) -> None:
    world.add("a")
    written = world.change("a", "1")
    await world.told()
    world.nodes.note_write(written)
    assert world.value("a") == "1"


async def test_an_answer_that_comes_when_the_object_is_gone(world: Scene) -> None:
    """As that to the patch which takes off the last finalizer: nothing would ever be told of it again."""
    world.add("a")
    await world.told()
    written = world.change("a", "1")
    world.delete("a")
    await world.told()
    world.nodes.note_write(written)
    assert world.value("a") is None


async def test_the_end_of_the_object_before_does_not_settle_the_creation_of_the_next(world: Scene) -> None:
    world.add("a")
    await world.told()
    with world.answers("a") as heard:
        world.delete("a")
        world.nodes.note_write(world.add("a"))
        await world.told()
    assert heard == ["in flight", ""]


async def test_a_write_that_changed_nothing_is_not_in_flight(world: Scene) -> None:
    world.add("a")
    world.change("a", "1")
    await world.told()
    world.nodes.note_write(world.change("a", "1"))
    assert world.value("a") == "1"


# -- deletions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finalizers", [[], HELD])
async def test_a_deletion_is_in_flight_until_the_watch_shows_it(world: Scene, finalizers: list[str]) -> None:
    added = world.add("a", finalizers=finalizers)
    await world.told()
    world.delete("a")
    world.nodes.note_delete("a", added.metadata.uid)
    with pytest.raises(InFlight):
        world.value("a")
    await world.told()
    found = world.nodes.get_consistent("a")
    assert (found is not None) == bool(finalizers)
    assert found is None or found.metadata.deletion_timestamp is not None


async def test_what_is_written_of_a_doomed_object_before_its_deletion_does_not_settle_it(world: Scene) -> None:
    added = world.add("a", finalizers=HELD)
    await world.told()
    with world.answers("a") as heard:
        world.change("a", "1")
        world.delete("a")
        world.nodes.note_delete("a", added.metadata.uid)
        await world.told()
    assert heard == ["in flight", "1"]


async def test_an_answer_to_a_deletion_that_comes_after_the_watch(world: Scene) -> None:
    gone, held = world.add("gone"), world.add("held", finalizers=HELD)
    await world.told()
    world.delete("gone")
    world.delete("held")
    await world.told()
    world.nodes.note_delete("gone", gone.metadata.uid)
    world.nodes.note_delete("held", held.metadata.uid)
    assert world.value("gone") is None
    assert world.value("held") == ""


async def test_another_object_of_the_name_is_not_doomed(world: Scene) -> None:
    first = world.add("a")
    await world.told()
    world.delete("a")
    world.add("a")
    world.nodes.note_delete("a", first.metadata.uid)
    with pytest.raises(InFlight):
        world.value("a")
    await world.told()
    assert world.value("a") == ""
    world.nodes.note_delete("a", first.metadata.uid)
    assert world.value("a") == ""


async def test_an_evicted_pod_is_doomed_until_it_is_terminating(world: Scene) -> None:
    body = manifests.pod("web", nodeName="n1")
    added = world.registry.create(Create(PODS, body, namespace="default")).read_as(objects.Pod)
    running = {"status": {"phase": "Running"}}
    world.registry.patch(Patch(PODS, "web", running, namespace="default", subresource="status"))
    await world.told()
    eviction.evict(world.registry, Evict("web", "default", added.metadata.uid))
    world.pods.note_delete("web", added.metadata.uid, "default")
    with pytest.raises(InFlight):
        world.pods.get_consistent("web", "default")
    await world.told()
    found = world.pods.get_consistent("web", "default")
    assert found is not None
    assert found.deleted_at is not None


# -- lists anew -------------------------------------------------------------------------------------------------------


async def test_a_list_settles_what_the_watch_has_missed(world: Scene) -> None:
    held = world.add("held", finalizers=HELD)
    for name in ("changed", "gone"):
        world.add(name)
    await world.told()
    world.nodes.note_write(world.change("changed", "1"))
    world.nodes.note_write(world.change("gone", "1"))
    world.delete("gone")
    world.delete("held")
    world.nodes.note_delete("held", held.metadata.uid)
    world.server.compact()
    world.server.drop_watches(NODES, Gone("too old"))
    relists = world.reflectors[0].relists
    await world.told()
    assert world.reflectors[0].relists == relists + 1
    assert (world.value("changed"), world.value("gone"), world.value("held")) == ("1", None, "")


# -- indexes ----------------------------------------------------------------------------------------------------------


async def test_an_index_follows_the_text_of_its_objects(world: Scene) -> None:
    index = Index(world.nodes, lambda found: found.metadata.labels.get("v", ""))

    def names_under(text: str) -> list[str]:
        return [found.metadata.name for found in index[text]]

    for name in ("c", "a", "b"):
        world.add(name)
    await world.told()
    assert (names_under(""), names_under("1")) == ([], [])  # without a text they are not in it
    for name in ("c", "a", "b"):
        world.change(name, "1")
    await world.told()
    assert names_under("1") == ["a", "b", "c"]
    world.change("b", "2")
    world.delete("c")
    await world.told()
    assert (names_under("1"), names_under("2")) == (["a"], ["b"])
    world.delete("b")
    world.add("b")
    await world.told()
    assert names_under("2") == []


@pytest.mark.parametrize("seed", range(10))
async def test_an_index_is_what_a_search_would_find(world: Scene, seed: int) -> None:
    chance = Random(seed)
    index = Index(world.nodes, lambda found: found.metadata.labels.get("v", ""))
    there: set[str] = set()
    for _ in range(150):
        name = f"n{chance.randrange(6)}"
        if name not in there:
            world.add(name)
            there.add(name)
        elif chance.random() < 0.3:
            world.delete(name)
            there.remove(name)
        else:
            world.change(name, chance.choice(["", "1", "2", "3"]))
        if chance.random() < 0.05:
            world.server.compact()
            world.server.drop_watches(NODES, Gone("too old"))
        if chance.random() < 0.3:
            await world.told()
    await world.told()
    for text in ("1", "2", "3"):
        found = sorted(
            (each for each in world.nodes.values() if each.metadata.labels.get("v") == text),
            key=lambda each: each.metadata.name,
        )
        assert index[text] == found


# -- what belongs together --------------------------------------------------------------------------------------------


async def put(api: ApiServer, kind: Resource[Any], body: dict[str, Any], namespace: str | None = None) -> None:
    await api.write(Create(kind.read_as(dict[str, Any]), body, namespace=namespace))


@gives("api", "cluster", "told")
def in_cluster(scene: Callable[[ApiServer, WatchedCluster, Callable[[], Coroutine[Any, Any, None]]], Any]) -> None:
    """Run a scene beside the caches of all kinds; its third argument waits until they have been told everything."""

    async def main(clock: VirtualClock) -> None:
        api = ApiServer(clock, collect_garbage=False)
        cluster = WatchedCluster(api, clock, KWOK_NODECLASSES.read_as(objects.NodeClass))
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(reflector.run()) for reflector in cluster.reflectors]
            for reflector in cluster.reflectors:
                await reflector.wait_synced()
            await scene(api, cluster, lambda: clock.sleep(1))
            for task in running:
                task.cancel()

    simulate(main, start=START)


async def launch(api: ApiServer, name: str, provider_id: str) -> None:
    await put(api, NODECLAIMS, node_claim(name))
    body = {"status": {"providerID": provider_id, "conditions": [condition("Launched")]}}
    await api.write(Patch(NODECLAIMS.read_as(dict[str, Any]), name, body, subresource="status"))


@stage(in_cluster)
async def test_a_claim_and_its_node_have_one_machine(
    api: ApiServer, cluster: WatchedCluster, told: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    await put(api, NODES, node("n1"))
    await put(api, NODES, {"metadata": {"name": "bare"}})
    await launch(api, "c1", "kwok://n1")
    await put(api, NODECLAIMS, node_claim("unlaunched"))
    await put(api, PODS, manifests.pod("web", nodeName="n1"), "default")
    await told()
    n1, bare = cluster.nodes.get_consistent("n1"), cluster.nodes.get_consistent("bare")
    c1, unlaunched = cluster.claims.get_consistent("c1"), cluster.claims.get_consistent("unlaunched")
    assert n1 is not None
    assert bare is not None
    assert c1 is not None
    assert unlaunched is not None
    assert cluster.claim_of(n1) == c1
    assert cluster.nodes_of(c1) == [n1]
    # No provider ID is no common one (03 §10.9).
    assert cluster.claim_of(bare) is None
    assert cluster.nodes_of(unlaunched) == []
    member = cluster.member(c1)
    assert member.node is not None
    assert (member.node.name, [pod.name for pod in member.pods]) == ("n1", ["web"])
    # Two claims for one machine are none (03 §10.2), and a claim with two Nodes has none that is its own.
    await launch(api, "c2", "kwok://n1")
    await told()
    assert cluster.claim_of(n1) is None
    second = node("n2")
    second["spec"]["providerID"] = "kwok://n1"
    await put(api, NODES, second)
    await told()
    assert [found.metadata.name for found in cluster.nodes_of(c1)] == ["n1", "n2"]
    assert cluster.member(c1).node is None
    assert [claim.metadata.name for claim in cluster.claims_in["default"]] == ["c1", "c2", "unlaunched"]


@stage(in_cluster)
async def test_whose_objects_are_ours(
    api: ApiServer, cluster: WatchedCluster, told: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    await put(api, NODES, node("ours"))
    await put(api, NODES, manifests.node("foreign", labels={names.NODEPOOL_LABEL: "default"}))
    await told()
    ours, foreign = cluster.nodes.get_consistent("ours"), cluster.nodes.get_consistent("foreign")
    assert ours is not None
    assert foreign is not None
    assert (cluster.manages_node(ours), cluster.manages_node(foreign)) == (True, False)
    assert cluster.node_class_label == names.KWOK_NODECLASS_LABEL
    group, kind = names.KWOK_GROUP, names.KWOK_NODECLASS_KIND
    assert cluster.manages(objects.NodeClassReference(group=group, kind=kind, name="any"))
    assert not cluster.manages(objects.NodeClassReference(group="example.com", kind=kind, name="any"))
    assert not cluster.manages(objects.NodeClassReference(group=group, kind="EC2NodeClass", name="any"))
