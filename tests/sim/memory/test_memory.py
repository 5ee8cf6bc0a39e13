"""Pods come and go, and what the program holds in memory stays the same.

A simulated API server without actors, and the whole program beside it: caches, controllers, metrics, events. All pods
differ in labels, annotations, requests and rules, as the pods of Jobs do.
"""

import asyncio
import gc
import logging
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.model.pod_records import _SharedMapping
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import PODS, Create, Delete, Patch
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.compute import space_collections
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager, ManagerTimings
from dovetail.runtime.tasks import root_cause
from dovetail.sim.actors.cluster import kind_of
from dovetail.sim.loop.virtual_loop import InlineCompute, VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from tests.conftest import MEASURED
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.claims import Manifest, condition, node_class
from tests.harness.metrics_text import exposition
from tests.harness.placing import UNSCHEDULABLE, a_claim, a_node, a_pod
from tests.harness.provisioning import pool_of_four
from tests.harness.soak import SOAK

START: Final = at("2026-03-01T00:00:00Z")
NODES: Final = 10
SLICE: Final = 500
SLICE_SECONDS: Final = 120.0  # half while the pods are there, half while they are gone
BOUND: Final = 9  # of ten pods; the others wait for a node that no pool can make


class Scene:
    """The server and the program. Nodes are full enough that no pool can do with fewer or cheaper ones."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._server = ApiServer(clock, collect_garbage=False)
        self._made = 0
        provider = KwokProvider(self._server)
        metrics = Metrics(CollectorRegistry())
        self.cluster = WatchedCluster(self._server, clock, provider.node_classes)
        self.controllers = all_controllers(
            self.cluster,
            provider,
            metrics,
            Timings(),
            FeatureGates(),
            provisioning=ProvisioningOptions(compute=InlineCompute()),
            disrupting=True,
            of_provider=kwok_controllers(provider, self.cluster),
        )
        self.recorder = EventRecorder(self._server, clock, instance="test")
        self.manager = Manager(
            self._server,
            clock,
            election=None,
            recorder=self.recorder,
            reflectors=self.cluster.reflectors,
            controllers=self.controllers,
            timings=ManagerTimings(heartbeat_seconds=3600.0),
        )
        self.metrics = ClusterMetrics(self.cluster, clock, leads=lambda: True)
        self._registry = metrics.registry
        self._registry.register(self.metrics)

    async def put(self, manifest: Manifest) -> None:
        kind = kind_of(manifest)
        namespace = "default" if kind.namespaced else None
        await self._server.write(Create(kind, manifest, namespace=namespace))
        if "status" in manifest:
            status, name = {"status": manifest["status"]}, manifest["metadata"]["name"]
            await self._server.write(Patch(kind, name, status, namespace=namespace, subresource="status"))

    async def begin(self) -> None:
        await self.put(node_class())
        await self.put(pool_of_four(disruption={"consolidateAfter": "0s"}))
        await self.put(manifests.pdb("job", minAvailable=1))
        for number in range(NODES):
            await self.put(a_claim(f"c{number}", of=f"n{number}", true=("Registered", "Initialized")))
            await self.put(a_node(f"n{number}", cpu="4"))
            await self.put(a_pod(f"stays-{number}", on=f"n{number}", cpu="2100m"))

    async def come_and_go(self) -> None:
        """A slice of pods."""
        numbers = range(self._made, self._made + SLICE)
        self._made += SLICE
        for number in numbers:
            await self.put(_job_pod(number))
        await self._clock.sleep(SLICE_SECONDS / 2)
        exposition(self._registry)
        for number in numbers:
            await self._server.write(Delete(PODS, f"job-{number}", namespace="default", grace_seconds=0))
        await self._clock.sleep(SLICE_SECONDS / 2)
        exposition(self._registry)
        self._server.trace.clear()  # what the server keeps is not the program's
        self._server.compact()


def _job_pod(number: int) -> Manifest:
    """A pod that is like no other."""
    waits = number % 10 >= BOUND
    own = {"job-name": f"job-{number}"}
    apart = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {**own, "index": "0"}}}
    container = {
        "name": "main",
        "image": "example.invalid/main",
        "resources": {"requests": {"cpu": f"{number % 997}u"}},
    }
    spec: Manifest = {
        "containers": [container],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    }
    if waits:
        spec["nodeSelector"] = {"example.com/job": str(number)}
        status: Manifest = UNSCHEDULABLE
    else:
        spec["nodeName"] = f"n{number % NODES}"
        status = {"phase": "Running", "conditions": [condition("PodScheduled"), condition("Ready")]}
    meta = {
        "name": f"job-{number}",
        "namespace": "default",
        "labels": {**own, "app": "job"},
        "annotations": {names.DO_NOT_DISRUPT: f"{number}s" if number % 2 else f"no duration {number}"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def play(slices: int, look: Callable[[Scene, int], None]) -> None:
    """`look` is called after each slice, with how many there were."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.begin()
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(scene.manager.run(stop))
                for reflector in scene.cluster.reflectors:
                    await reflector.wait_synced()
                for number in range(1, slices + 1):
                    await scene.come_and_go()
                    look(scene, number)
                stop.set()
        except BaseExceptionGroup as errors:
            raise root_cause(errors) from None

    before = gc.get_threshold()
    space_collections()
    logging.disable()  # pytest keeps every line
    try:
        simulate(main, start=START)
    finally:
        logging.disable(logging.NOTSET)
        gc.set_threshold(*before)


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


def _shared_mappings() -> int:
    """Labels and annotations that records or caches hold."""
    gc.collect()
    return sum(isinstance(each, _SharedMapping) for each in gc.get_objects())


def test_labels_and_annotations_of_pods_that_are_gone_are_not_kept() -> None:
    """But for those of a thousand or so: the scheduling engine forgets many at once."""
    found: list[int] = []
    play(6, lambda _scene, _slices: found.append(_shared_mappings()))
    assert max(found) < 6 * SLICE, found  # the pods had twelve times as many


@pytest.mark.skipif(not SOAK, reason="takes some ten minutes: `make soak` runs it")
def test_memory_stays_the_same_over_200_000_pods(record_property: Callable[[str, object], None]) -> None:
    found: dict[int, float] = {}

    def look(_: Scene, slices: int) -> None:
        if slices * SLICE in (50_000, 100_000, 150_000, 200_000):
            found[slices * SLICE] = _resident_mb()

    play(200_000 // SLICE, look)
    record_property(MEASURED, ", ".join(f"{mb:.1f} MB after {pods:,} pods" for pods, mb in found.items()))
    assert abs(found[200_000] - found[50_000]) < found[50_000] / 10, found
