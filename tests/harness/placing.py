"""A server without actors, the caches and what placing pods knows of them: everything happens when a test says so."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.model.instance_types import InstanceType, TypeCatalogue
from dovetail.planning.timings import Timings
from dovetail.ports import KWOK_NODECLASSES, PODS, CloudError, Create, Delete, NotFound, Patch, Resource
from dovetail.providers.catalogue import built_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.scheduling.placement import NodeInfo
from dovetail.sim.actors.cluster import kind_of
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.state.scheduling import SchedulingInputs, SchedulingState, Trigger
from tests.harness.builders import at
from tests.harness.claims import condition, node, node_claim, node_pool
from tests.harness.stage import gives

START = at("2026-03-01T00:00:00Z")
Manifest = dict[str, Any]

AMOUNTS = {"cpu": "4", "memory": "16Gi", "pods": "110"}
TYPES = tuple(type_ for type_ in built_in() if type_.name.startswith("s-4x-amd64"))
UNSCHEDULABLE = {"conditions": [condition("PodScheduled", "False", reason="Unschedulable")]}


class Catalogue(KwokProvider):
    """Has what it is told to have, and counts how often it is asked."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api)
        self.types: Mapping[str, Sequence[InstanceType] | CloudError] = {}
        self.asked: list[str] = []

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        self.asked.append(pool.metadata.name)
        found = self.types.get(pool.metadata.name, TYPES)
        if isinstance(found, CloudError):
            raise found
        return TypeCatalogue(len(self.asked), found)


class Scene:
    """What is put and changed has been told when the call returns."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = ApiServer(clock, collect_garbage=False)
        self.cluster = WatchedCluster(self.server, clock, KWOK_NODECLASSES.read_as(objects.NodeClass))
        self.provider = Catalogue(self.server)
        self.state = SchedulingState(self.cluster)
        self.types = InstanceTypeSource(self.cluster, self.provider, keep_seconds=Timings().instance_types_seconds)
        self.heard: list[Trigger] = []
        self.state.on_change(self.heard.append)

    async def told(self) -> None:
        await self.clock.sleep(0.1)

    async def put(self, *manifests: Manifest) -> None:
        """Create them, or change those that are there; a status is written as its owner would."""
        for manifest in manifests:
            kind = kind_of(manifest)
            name = manifest["metadata"]["name"]
            where = manifest["metadata"].get("namespace", "default") if kind.namespaced else None
            try:
                await self.server.get(kind, name, namespace=where)
                await self.server.write(Patch(kind, name, manifest, namespace=where))
            except NotFound:
                await self.server.write(Create(kind, manifest, namespace=where))
            if "status" in manifest:
                body = {"status": manifest["status"]}
                await self.server.write(Patch(kind, name, body, namespace=where, subresource="status"))
        await self.told()

    async def change(
        self, kind: Resource[Any], name: str, body: Manifest, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        where = namespace if kind.namespaced else None
        await self.server.write(Patch(kind, name, body, namespace=where, subresource=subresource))
        await self.told()

    async def delete(self, kind: Resource[Any], name: str, *, namespace: str = "default", **options: Any) -> None:
        where = namespace if kind.namespaced else None
        await self.server.write(Delete(kind, name, namespace=where, **options))
        await self.told()

    async def refreshed(self) -> SchedulingInputs:
        await self.refresh()
        return self.state.places()

    async def refresh(self) -> None:
        await self.types.refresh(self.state.usable_pools())
        await self.cluster.settled()

    def unsynced(self) -> str | None:
        return self.state.unsynced(self.clock.now())

    def nodes(self) -> dict[str, NodeInfo]:
        return {node.name: node for node in self.state.places().nodes}

    def node(self, name: str) -> NodeInfo:
        return self.nodes()[name]

    def pending(self) -> list[str]:
        return [pod.name for pod in self.state.pending().pods]

    def reasons(self) -> dict[str, str]:
        return {refused.pod.name: str(refused) for refused in self.state.pending().refused.values()}

    def leaving(self) -> list[str]:
        return sorted(pod.name for pod in self.state.leaving(self.clock.now()).pods)


@gives("world")
def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Run it in virtual time."""

    async def main(clock: VirtualClock) -> None:
        world = Scene(clock)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(cache.run()) for cache in world.cluster.reflectors]
            for cache in world.cluster.reflectors:
                await cache.wait_synced()
            await scene(world)
            for task in running:
                task.cancel()

    simulate(main, start=START)


# -- objects -----------------------------------------------------------------------------------------------------------


def a_node(name: str, *, unregistered: bool = False, **options: Any) -> Manifest:
    """A registered Node of the default pool, or before that."""
    made = node(name, labels={names.INSTANCE_TYPE_LABEL: "s-4x-amd64-linux"}, **options)
    if unregistered:
        for label in (names.REGISTERED_LABEL, names.INITIALIZED_LABEL):
            made["metadata"]["labels"].pop(label, None)
    return made


def a_stranger(name: str, **options: Any) -> Manifest:
    """A Node that nobody manages."""
    made = node(name, **options)
    for label in (names.REGISTERED_LABEL, names.INITIALIZED_LABEL, names.NODEPOOL_LABEL, names.KWOK_NODECLASS_LABEL):
        made["metadata"]["labels"].pop(label, None)
    del made["spec"]["providerID"]
    return made


def a_claim(name: str, *, of: str = "", true: Sequence[str] = (), **options: Any) -> Manifest:
    """A claim; `of` is the Node of the instance that it has been launched as."""
    made = node_claim(name, **options)
    if of:
        made["status"] = {
            "providerID": f"{names.KWOK_PROVIDER_ID_PREFIX}{of}",
            "capacity": AMOUNTS,
            "allocatable": {**AMOUNTS, "cpu": "3900m"},
            "conditions": [condition(each) for each in ("Launched", *true)],
        }
    return made


def a_pod(
    name: str,
    *,
    on: str = "",
    namespace: str = "default",
    phase: str = "Running",
    owner: tuple[str, str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "1",
    finalizers: Sequence[str] = (),
    **spec: Any,
) -> Manifest:
    """A pod on a node, or one that waits for one. An owner is a kind, a name and a UID."""
    meta: Manifest = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "finalizers": list(finalizers),
    }
    if owner is not None:
        kind, called, uid = owner
        version = "v1" if kind == "Node" else "apps/v1"
        meta["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": called, "uid": uid}]
    container = {"name": "main", "image": "example.invalid/main", "resources": {"requests": {"cpu": cpu}}}
    body = {"containers": [container], **({"nodeName": on} if on else {}), **spec}
    status = {"phase": phase} if on else UNSCHEDULABLE
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": meta, "spec": body, "status": status}


def a_pool(name: str = "default", *, ready: bool = True, **fields: Any) -> Manifest:
    made = node_pool(name, **fields)
    made["status"] = {"conditions": [condition("Ready", "True" if ready else "False")]}
    return made


def a_daemon_set(name: str, *, cpu: str = "100m", **spec: Any) -> Manifest:
    container = {"name": "main", "image": "example.invalid/main", "resources": {"requests": {"cpu": cpu}}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}},
        },
    }


def with_claim(name: str) -> list[Manifest]:
    """The volumes of a pod that uses this claim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def a_volume_claim(name: str, *, class_: str = "", volume: str = "") -> Manifest:
    meta: Manifest = {"name": name, "namespace": "default"}
    if volume:
        meta["annotations"] = {names.PVC_BIND_COMPLETED: "yes"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"storageClassName": class_, **({"volumeName": volume} if volume else {})}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def a_volume(name: str, *, driver: str, zone: str = "") -> Manifest:
    expression = {"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": driver}}
    spec |= {"nodeAffinity": affinity} if zone else {}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def a_storage_class(name: str, *, provisioner: str, mode: str = "WaitForFirstConsumer") -> Manifest:
    meta = {"name": name}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta,
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def a_csi_node(name: str, **counts: int) -> Manifest:
    drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": count}} for driver, count in counts.items()]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }
