"""A whole simulated cluster: the API server, the clock and all actors.

async def scenario(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=3))
    await cluster.wait_until(lambda: len(cluster.pods(ready=True)) == 3, timeout="1m")
    await cluster.run_for("24h")

run(scenario, seed=1)
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import yaml

from dovetail import ports
from dovetail.ports import AlreadyExists, Create, Patch, Resource
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.daemon_set import DaemonSets
from dovetail.sim.actors.deployment import Deployments
from dovetail.sim.actors.garbage import PodGarbage
from dovetail.sim.actors.job import Jobs
from dovetail.sim.actors.kubelet import Kubelets
from dovetail.sim.actors.node_lifecycle import NodeLifecycle, TaintEviction
from dovetail.sim.actors.pdb import PodDisruptionBudgets
from dovetail.sim.actors.replica_set import ReplicaSets
from dovetail.sim.actors.scheduling.default_spread import SERVICES
from dovetail.sim.actors.scheduling.scheduler import Scheduler
from dovetail.sim.actors.stateful_set import StatefulSets
from dovetail.sim.actors.wire import (
    CLAIMS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    VOLUMES,
    Kind,
    Raw,
)
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.kinds import NAMESPACES, PRIORITY_CLASSES
from dovetail.sim.server.store import Change
from dovetail.values.duration import SECOND, parse_duration

R = TypeVar("R")

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
_WORKLOADS = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS)
_RAW = (PODS, NODES, PDBS, *_WORKLOADS, CLAIMS, VOLUMES, NAMESPACES, PRIORITY_CLASSES, SERVICES)
_STORAGE = (ports.STORAGE_CLASSES, ports.CSI_NODES, ports.VOLUME_ATTACHMENTS)
_TYPED = (ports.NODEPOOLS, ports.NODECLAIMS, ports.KWOK_NODECLASSES, ports.LEASES, ports.EVENTS, *_STORAGE)
KINDS: Mapping[tuple[str, str], Kind] = {
    (kind.api_version, kind.kind): kind for kind in (*_RAW, *(typed.read_as(dict[str, Any]) for typed in _TYPED))
}


def seconds(duration: str) -> float:
    """A Go duration in seconds."""
    return parse_duration(duration) / SECOND


def documents(manifests: Iterable[Raw | str]) -> list[dict[str, Any]]:
    """The objects of dicts and YAML texts, with the items of Lists."""
    objects: list[dict[str, Any]] = []
    for manifest in manifests:
        for part in yaml.safe_load_all(manifest) if isinstance(manifest, str) else [manifest]:
            if part:
                objects += part["items"] if str(part.get("kind", "")).endswith("List") else [dict(part)]
    return objects


def kind_of(manifest: Raw) -> Kind:
    """The resource of a manifest. An unknown kind counts as namespaced, with a regular plural."""
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    resource = KINDS.get((api_version, kind))
    if resource is not None:
        return resource
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, f"{kind.lower()}s", kind, dict[str, Any], namespaced=True)


class SimCluster:
    """Server and actors. Use it with `async with` on a virtual loop, or through `run`."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        seed: int = 0,
        latency_seconds: float = 0.0,
        scheduler_profiles: SchedulerProfiles | None = None,
    ) -> None:
        self.clock = clock
        self.server = ApiServer(clock, seed=seed, latency_seconds=latency_seconds)
        self.trace = self.server.trace  # every write so far, one line each
        self.api = self.server.client("kubectl")
        world = self.world = ActorContext(self.server.client("kube-controller-manager"), clock)
        kubelet = world.acting_as(self.server.client("kubelet"))
        self.scheduler = Scheduler(world.acting_as(self.server.client("kube-scheduler")), scheduler_profiles)
        self.kubelets = Kubelets(kubelet)
        self.server.node_leases.renewed_at = self.kubelets.lease_renewed_at
        self.node_lifecycle = NodeLifecycle(world)
        workloads = (Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs)
        others = [actor(world) for actor in (*workloads, PodDisruptionBudgets, TaintEviction, PodGarbage)]
        self.actors: list[Actor] = [self.scheduler, self.kubelets, self.node_lifecycle, *others]
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self.server.registry.store.observers.append(self._observe)

    async def __aenter__(self) -> "SimCluster":
        await self._group.__aenter__()
        self._tasks += self.world.start(self._group)
        for actor in self.actors:
            self.run_actor(actor)
        await self.world.synced.wait()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        for task in self._tasks:
            task.cancel()
        if isinstance(error, asyncio.CancelledError):  # the group raises the error of an actor that failed
            await self._group.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._group.__aexit__(None, None, None)  # the error of the scenario passes unchanged

    def run_actor(self, actor: Actor) -> asyncio.Task[None]:
        """Run the actor until the cluster ends."""
        task = self._group.create_task(actor.run(), name=type(actor).__name__)
        self._tasks.append(task)
        return task

    def _observe(self, _resource: Resource[Any], _change: Change) -> None:
        self._changed.set()

    # -- manifests ----------------------------------------------------------------------------------------------------

    async def apply(self, *manifests: Raw | str, namespace: str = "default") -> None:
        """Create the objects, or merge the manifests into existing ones."""
        for body in documents(manifests):
            kind = kind_of(body)
            where = body["metadata"].get("namespace", namespace) if kind.namespaced else None
            try:
                await self.api.write(Create(kind, body, namespace=where))
            except AlreadyExists:
                await self.api.write(Patch(kind, body["metadata"]["name"], body, namespace=where))

    # -- reading without a request ------------------------------------------------------------------------------------

    def objects(self, kind: Resource[Any], *, namespace: str | None = None) -> list[Raw]:
        """The objects of the server in the order of its lists."""
        objects = self.server.registry.store.collection(kind).sorted()
        return [stored.body for key, stored in objects if namespace in (None, key[0])]

    def object(self, kind: Resource[Any], name: str, *, namespace: str = "default") -> Raw | None:
        stored = self.server.registry.store.collection(kind).objects.get((namespace if kind.namespaced else "", name))
        return None if stored is None else stored.body

    def pods(self, *, node: str | None = None, ready: bool | None = None, app: str | None = None) -> list[Raw]:
        """Pods, filtered by node, readiness and `app` label."""
        return [
            pod
            for pod in self.objects(PODS)
            if (node is None or wire.node_of(pod) == node)
            and (ready is None or wire.pod_ready(pod) == ready)
            and (app is None or wire.labels_of(pod).get("app") == app)
        ]

    # -- time ---------------------------------------------------------------------------------------------------------

    async def run_for(self, duration: str) -> None:
        """Let virtual time pass."""
        await self.clock.sleep(seconds(duration))

    async def wait_until(self, predicate: Callable[[], bool], *, timeout: str = "10m") -> None:
        """Wait for the predicate, which is evaluated after each write. Raises TimeoutError, in virtual time."""
        async with asyncio.timeout(seconds(timeout)):
            while not predicate():
                self._changed.clear()
                await self._changed.wait()

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill_kubelet(self, node: str) -> None:
        """Stop the kubelet. The node becomes Unknown after the grace period of the node lifecycle controller."""
        self.kubelets.kill(node)
        self.node_lifecycle.kubelet_died(node)

    def revive_kubelet(self, node: str) -> None:
        self.node_lifecycle.kubelet_revived(node)
        self.kubelets.revive(node)
        self.server.node_leases.kubelet_starts(node)

    def set_node_ready(self, node: str, *, ready: bool) -> None:
        """Let the kubelet report its node as Ready or NotReady."""
        self.kubelets.set_ready(node, ready=ready)


def run(
    scenario: Callable[[SimCluster], Coroutine[Any, Any, R]],
    *,
    seed: int = 0,
    start: datetime = START,
    shuffle: bool = False,
    latency_seconds: float = 0.0,
    scheduler_profiles: SchedulerProfiles | None = None,
) -> R:
    """Run the scenario in a new cluster. `shuffle`: randomize the order of callbacks at one instant, too."""

    async def main(clock: VirtualClock) -> list[R]:
        made = SimCluster(clock, seed=seed, latency_seconds=latency_seconds, scheduler_profiles=scheduler_profiles)
        async with made as cluster:
            return [await scenario(cluster)]
        raise AssertionError("the cluster ended before the scenario")

    result = simulate(main, start=start, seed=seed if shuffle else None)
    assert result is not None
    return result[0]
