"""A scenario on a real control plane, what the scheduler says of its pods, and the question that our engine gets.

Nothing is handed from the scenario to the engine: nodes, pods, namespaces and volumes are read back from the server and
go through the same readers that the program uses.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from dovetail.api import objects
from dovetail.api.pod_specs import SchedulingPod
from dovetail.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.cli.common.scheduler_config import read_scheduler_config
from dovetail.kube import connect
from dovetail.model.pod_records import PodInterner
from dovetail.ports import (
    NODES,
    PODS,
    REPLICASETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFULSETS,
    VOLUME_CLAIMS,
    AlreadyExists,
    Create,
    Delete,
    EventType,
    KubeApi,
    NotFound,
    Patch,
    Resource,
)
from dovetail.scheduling import placement
from dovetail.scheduling.host_ports import NO_PORTS, host_ports
from dovetail.scheduling.placement import PlacementRequest, PodInfo, read_bound_pod, read_pod
from dovetail.scheduling.resources import node_resources, pod_request, total
from dovetail.scheduling.taints import node_taints
from dovetail.scheduling.volumes import Attachment, Storage, attach_limits, attachments, pod_volumes
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.default_spread import DefaultSpreadIndex
from tests.cluster.access import POLL_SECONDS
from tests.cluster.scheduling.plane import Extender, SchedulingPlane

Manifest = dict[str, Any]
Named = tuple[str, str]  # namespace and name


class Space(objects.Wire, frozen=True):
    """A Namespace."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()


LONGEST_SECONDS: Final = 30
TERMINAL: Final = ("Succeeded", "Failed")
HELD: Final = "example.com/held"  # the finalizer of a pod that stays while it ends
LABELS_OF_SPACES: Final = {
    "shop": {"team": "red", "env": "prod"},
    "bank": {"team": "red", "env": "test"},
    "lab": {"team": "blue"},
}
SCHEDULING_PODS: Final = PODS.read_as(SchedulingPod)
SPACES: Final = Resource("", "v1", "namespaces", "Namespace", Space)
CLAIMS: Final = VOLUME_CLAIMS.read_as(PersistentVolumeClaim)
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", PersistentVolume)
CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", StorageClass)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", CSINode)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", dict[str, Any])
OVERHEAD: Final = {"cpu": "250m", "memory": "64Mi"}
# Services and controllers of pods, whose selectors default spread constraints use. Nobody carries them out.
PORTS: Final = [{"port": 80}]
TEMPLATE: Final = {"spec": {"containers": [{"name": "app", "image": "none"}]}}


def _selecting(name: str, labels: Manifest, *expressions: Manifest) -> Manifest:
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web", "rev": "1", **labels}}}
    selector = {"matchLabels": labels, "matchExpressions": list(expressions)}
    return {"metadata": {"name": name}, "spec": {"replicas": 0, "selector": selector, "template": template}}


SELECTING: Final[dict[Resource[Any], list[Manifest]]] = {
    SERVICES: [
        {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": PORTS}},
        {"metadata": {"name": "first"}, "spec": {"selector": {"rev": "1"}, "ports": PORTS}},
        {"metadata": {"name": "nobody"}, "spec": {"ports": PORTS}},
    ],
    REPLICASETS: [
        _selecting("all", {}, {"key": "app", "operator": "Exists"}),
        _selecting("db", {"app": "db"}),
        _selecting("some", {}, {"key": "app", "operator": "In", "values": ["web", "job"]}),
    ],
    STATEFULSETS: [_selecting("second", {"rev": "2"})],
    REPLICATION_CONTROLLERS: [
        {
            "metadata": {"name": "job"},
            "spec": {
                "replicas": 0,
                "selector": {"app": "job"},
                "template": {**TEMPLATE, "metadata": {"labels": {"app": "job"}}},
            },
        }
    ],
}
OWNERS: Final = [
    {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": body["metadata"]["name"],
        "uid": "u",
        "controller": True,
    }
    for kind, bodies in SELECTING.items()
    if kind is not SERVICES
    for body in (*bodies, {"metadata": {"name": "gone"}})
]
PROBE: Final = "probe"
PROBE_SPACE: Final = "lab"


def volume(name: str, space: str, driver: str = "", **spec: Any) -> Manifest:
    """A volume that is bound to the claim of its name; of a CSI driver, if one is named."""
    source = {"csi": {"driver": driver, "volumeHandle": name}} if driver else {"nfs": {"server": "none", "path": "/"}}
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": space, "name": name}
    base = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "claimRef": claim}
    return {"metadata": {"name": name}, "spec": {**base, **(spec if "local" in spec else {**source, **spec})}}


PROBE_VOLUME: Final = volume(PROBE, PROBE_SPACE)


class Scenario(msgspec.Struct, frozen=True):
    """What is there, and the pods that come, as manifests. Pods that are there have a `nodeName`."""

    nodes: tuple[Manifest, ...]
    present: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    volumes: tuple[Manifest, ...] = ()  # with the claim that is bound to it in `claimRef`
    csi_nodes: tuple[Manifest, ...] = ()
    classes: tuple[Manifest, ...] = ()
    claims: tuple[Manifest, ...] = ()  # that are not bound yet


class Question(msgspec.Struct, frozen=True):
    """Which nodes would take the pod now?"""

    wire: SchedulingPod
    pod: PodInfo
    problem: PlacementRequest


class World:
    """One scenario at a time."""

    def __init__(self, api: KubeApi, extender: Extender, config: str) -> None:
        self.api = api
        self._config = config
        self._interner = PodInterner(spread_by_default=True)
        self.extender = extender
        self.pods: dict[Named, SchedulingPod] = {}
        self._changed = asyncio.Event()
        self._namespaces: dict[str, dict[str, str]] = {}
        self._storage = Storage()
        self._nodes: list[objects.Node] = []
        self._limits: dict[str, dict[str, int]] = {}

    # -- making and ending a scenario ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """What all scenarios share. The scheduler knows it long before the first pod."""
        sandbox = {"metadata": {"name": "sandbox"}, "handler": "none", "overhead": {"podFixed": OVERHEAD}}
        with suppress(AlreadyExists):  # by the test before this
            for name, labels in LABELS_OF_SPACES.items():
                await self.api.write(Create(SPACES, {"metadata": {"name": name, "labels": labels}}))
            await self.api.write(Create(RUNTIME_CLASSES, sandbox))
            for kind, bodies in SELECTING.items():
                for space in ("shop", "lab"):
                    for body in bodies:
                        await self.api.write(Create(kind, body, namespace=space))
        self.profiles = read_scheduler_config(self._config).profiles
        assert self.profiles is not None
        state = ClusterState(NodeClassKind("example.com", "None", "nones"), scheduler_profiles=self.profiles)
        self._defaults = DefaultSpreadIndex(state, self.profiles, lambda _: None)
        for kind in SELECTING:
            for found in (await self.api.list(kind)).items:
                state.load(kind.plural, found)

    @asynccontextmanager
    async def scenario(self, scenario: Scenario) -> AsyncIterator[None]:
        """Everything is there, and the scheduler knows it; afterwards it is gone."""
        try:
            await self._make(scenario)
            yield
        finally:
            await self._clear()

    async def _make(self, scenario: Scenario) -> None:
        for csi_node in scenario.csi_nodes:
            await self.api.write(Create(CSI_NODES, csi_node))
        for class_ in scenario.classes:
            await self.api.write(Create(CLASSES, class_))
        for claim in scenario.claims:
            await self.api.write(Create(CLAIMS, claim, namespace=claim["metadata"]["namespace"]))
        for volume in (*scenario.volumes, PROBE_VOLUME):
            await self._bound_claim(volume)
        for node in scenario.nodes:
            await self.api.write(Create(NODES, node))
        await self._probe(scenario.nodes[-1]["metadata"]["name"])
        for pod in scenario.present:
            await self._present(pod)
        await self._read()

    async def _read(self) -> None:
        """What stays as it is during a scenario."""
        self._nodes = list((await self.api.list(NODES)).items)
        self._namespaces = {each.metadata.name: each.metadata.labels for each in (await self.api.list(SPACES)).items}
        claims = (await self.api.list(CLAIMS)).items
        self._storage = Storage(
            {(each.metadata.namespace, each.metadata.name): each for each in claims},
            {each.metadata.name: each for each in (await self.api.list(VOLUMES)).items},
            {each.metadata.name: each for each in (await self.api.list(CLASSES)).items},
        )
        self._limits = {each.metadata.name: attach_limits(each) for each in (await self.api.list(CSI_NODES)).items}

    async def _bound_claim(self, volume: Manifest) -> None:
        """As the controller of volumes would have bound it."""
        ref, name = volume["spec"]["claimRef"], volume["metadata"]["name"]
        body = {
            "metadata": {"name": ref["name"], "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {
                "volumeName": name,
                "storageClassName": "",
                "accessModes": volume["spec"]["accessModes"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        claim = await self.api.write(Create(CLAIMS, body, namespace=ref["namespace"]))
        bound = {**ref, "uid": claim.metadata.uid}
        await self.api.write(Create(VOLUMES, {**volume, "spec": {**volume["spec"], "claimRef": bound}}))
        await self.api.write(Patch(VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status"))
        status = {"status": {"phase": "Bound", "accessModes": volume["spec"]["accessModes"]}}
        await self.api.write(Patch(CLAIMS, ref["name"], status, namespace=ref["namespace"], subresource="status"))

    async def _present(self, pod: Manifest) -> None:
        """A pod that has its node. One that is to be ending, or at its end, is so afterwards."""
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        await self.api.write(Create(SCHEDULING_PODS, pod, namespace=space))
        if phase := pod.get("status", {}).get("phase"):
            patch = {"status": {"phase": phase}}
            await self.api.write(Patch(SCHEDULING_PODS, name, patch, namespace=space, subresource="status"))
        if HELD in pod["metadata"].get("finalizers", ()):
            await self.api.write(Delete(SCHEDULING_PODS, name, namespace=space, grace_seconds=0))

    async def _probe(self, node: str) -> None:
        """The scheduler hears of each kind in the order in which things came: if it knows the last, it knows all."""
        fields = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [fields]}]}
        spec = {
            "containers": [{"name": "app", "image": "none"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "last", "persistentVolumeClaim": {"claimName": PROBE}}],
        }
        key = await self.come({"metadata": {"name": PROBE, "namespace": PROBE_SPACE}, "spec": spec})
        await self.until(lambda: bool(self.pods[key].spec.node_name), "the scheduler knows the scenario")
        await self.go(key)

    async def _clear(self) -> None:
        for (space, name), pod in list(self.pods.items()):
            if pod.metadata.finalizers:
                await self.api.write(Patch(SCHEDULING_PODS, name, {"metadata": {"finalizers": None}}, namespace=space))
            await self.go((space, name))
        everything: list[Resource[Any]] = [NODES, CSI_NODES, CLAIMS, VOLUMES, CLASSES]
        for kind in everything:
            for found in (await self.api.list(kind)).items:
                meta = found.metadata
                where = meta.namespace if kind.namespaced else None
                if meta.finalizers:  # of the protection of claims and volumes, which nobody is there to end
                    await self.api.write(Patch(kind, meta.name, {"metadata": {"finalizers": None}}, namespace=where))
                with suppress(NotFound):
                    await self.api.write(Delete(kind, meta.name, namespace=where))

    # -- pods come and go ----------------------------------------------------------------------------------------------

    async def come(self, pod: Manifest) -> Named:
        """Create a pod that has no node."""
        meta = (await self.api.write(Create(SCHEDULING_PODS, pod, namespace=pod["metadata"]["namespace"]))).metadata
        key = (meta.namespace, meta.name)
        await self.until(lambda: key in self.pods, f"{key} is seen")
        return key

    async def go(self, key: Named) -> None:
        """Delete a pod that nobody runs."""
        with suppress(NotFound):  # one that was only held by its finalizer
            await self.api.write(Delete(SCHEDULING_PODS, key[1], namespace=key[0], grace_seconds=0))
        await self.until(lambda: key not in self.pods, f"{key} is gone")

    async def decided(self, key: Named) -> frozenset[str]:
        """The nodes that the real scheduler would take for the pod, once it has bound it or refused it."""
        await self.until(lambda: self.is_decided(key), f"{key} is scheduled, or not")
        return self.verdict(key) if self.pods[key].spec.node_name else frozenset()

    async def found(self, key: Named) -> frozenset[str]:
        """The same, but before the pod is bound, which takes a volume that nobody makes here."""
        uid = self.pods[key].metadata.uid
        async with asyncio.timeout(LONGEST_SECONDS):
            while not (told := [each.nodes for each in self.extender.verdicts if each.pod == uid]):
                if self.is_decided(key):
                    return frozenset()
                await asyncio.sleep(POLL_SECONDS)
        return told[-1]

    def is_decided(self, key: Named) -> bool:
        pod = self.pods[key]
        return bool(pod.spec.node_name) or any(
            (each.type, each.status, each.reason) == ("PodScheduled", "False", "Unschedulable")
            for each in pod.status.conditions
        )

    def verdict(self, key: Named) -> frozenset[str]:
        """What the scheduler found when it bound the pod."""
        uid = self.pods[key].metadata.uid
        return next(each.nodes for each in reversed(self.extender.verdicts) if each.pod == uid)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits for the watch to tell; raises TimeoutError."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {LONGEST_SECONDS} s: {what}") from None

    async def follow(self, ready: asyncio.Event) -> None:
        """Keeps `pods` as the server has them."""
        page = await self.api.list(SCHEDULING_PODS)
        assert not page.items, "the control plane is ours alone"
        ready.set()
        version = page.resource_version
        while True:
            async with aclosing(self.api.watch(SCHEDULING_PODS, resource_version=version)) as watch:
                async for event in watch:
                    version = event.resource_version
                    if event.object is not None:
                        self._note(event.type, event.object)

    def _note(self, type_: EventType, pod: SchedulingPod) -> None:
        key = (pod.metadata.namespace, pod.metadata.name)
        if type_ is EventType.DELETED:
            self.pods.pop(key, None)
        else:
            self.pods[key] = pod
        self._changed.set()

    # -- what our engine is asked --------------------------------------------------------------------------------------

    def bound(self) -> list[SchedulingPod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name]

    def question(self, pod: SchedulingPod, bound: Iterable[SchedulingPod]) -> Question:
        """About a pod that is to have a node, when these have one."""
        there = [each for each in bound if each.status.phase not in TERMINAL]
        spread = self._defaults.of(self._interner.watched_pod(pod))
        read = read_pod(pod, volumes=pod_volumes(pod, self._storage), namespaces=self._namespaces, spread=spread)
        nodes = tuple(
            self._node(node, [each for each in there if each.spec.node_name == node.metadata.name])
            for node in self._nodes
        )
        return Question(pod, read, PlacementRequest(pods=(read,), nodes=nodes))

    def _node(self, node: objects.Node, pods: list[SchedulingPod]) -> placement.NodeInfo:
        has, name = node_resources(node, None), node.metadata.name
        return placement.NodeInfo(
            name=name,
            labels=node.metadata.labels,
            taints=node_taints(node, None),
            allocatable=has.allocatable,
            capacity=has.capacity,
            requested=total(map(pod_request, pods)),
            ports=NO_PORTS.union(*(host_ports(pod.spec) for pod in pods)),
            attachments=frozenset[Attachment]().union(*(attachments(pod, self._storage) for pod in pods)),
            attach_limits=self._limits.get(name, {}),
            pods=tuple(read_bound_pod(pod, self._namespaces) for pod in pods),
        )


@asynccontextmanager
async def world(plane: SchedulingPlane) -> AsyncIterator[World]:
    """An empty world on the plane."""
    async with connect(kubeconfig=str(plane.kubeconfig), qps=None) as api:
        made, ready = World(api, plane.extender, plane.scheduler_config), asyncio.Event()
        following = asyncio.create_task(made.follow(ready))
        try:
            await ready.wait()
            await made.prepare()
            yield made
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
