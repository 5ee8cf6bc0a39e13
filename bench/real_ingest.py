"""How long does it take to read the pods of a real API server into records, and how much memory do they keep?

The server is the control plane of the tests, filled through our own client: its pods run on nodes of kwok and so have
everything that a server adds to a pod. `python -m bench.real_ingest` prints the table.
"""

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from operator import itemgetter
from typing import Any

import msgspec

from bench.cluster import PODS_PER_NODE, objects
from bench.ingest import _resident_mb
from dovetail.kube import connect
from dovetail.kube.reading import read_page
from dovetail.model.pod_records import PodInterner
from dovetail.ports import NODES, PODS, Create, KubeApi, Resource
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.reflector import Reflector
from tests.cluster import folders
from tests.cluster.access import Cluster
from tests.cluster.build import is_built, kubernetes_version
from tests.cluster.plane import ControlPlane

_PODS = 5_000
_WRITERS = 32
_READINGS = 5  # the server is still busy with its caches at first
_RUNNING_SECONDS = 300  # far more than it takes
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", dict[str, Any])
_KWOK = {"kwok.x-k8s.io/node": "fake"}

_Object = dict[str, Any]


def print_real_ingest() -> None:
    """The table: the best of some readings, each by a process of its own."""
    print(f"reading pods from kube-apiserver {'.'.join(kubernetes_version())} over TLS, in pages of 500")
    print(f"{'pods':>8} {'JSON':>8} {'time':>9} {'decoding':>9} {'records':>9} {'CPU':>9} {'kept':>8} {'peak':>8}")
    if not is_built():
        print(f"{_PODS:>8} skipped: the control plane is not built; `make test` does that first\n")
        return
    folder = folders.new()
    try:
        with ControlPlane(folder) as plane:
            filled_seconds = fill(plane, _PODS)
            command = [sys.executable, "-m", "bench.real_ingest", "measure", str(plane.kubeconfig)]
            readings = [
                json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(_READINGS)
            ]
    finally:
        folders.remove(folder)
    best = min(readings, key=itemgetter("seconds"))
    assert best["pods"] == _PODS, best
    print(
        f"{_PODS:>8} {best['json_mb']:>5.0f} MB {best['seconds']:>7.2f} s {best['decoding']:>7.2f} s "
        f"{best['records']:>7.2f} s {best['cpu']:>7.2f} s {best['kept_mb']:>5.0f} MB {best['peak_mb']:>5.0f} MB"
    )
    print(f"made, bound and Running within {filled_seconds:.0f} s\n")


# -- the cluster ------------------------------------------------------------------------------------------------------


def fill(plane: Cluster, pods: int) -> float:
    """Make so many pods and wait until all are Running; returns the seconds that took."""
    started = time.perf_counter()
    bodies = list(objects(pods // PODS_PER_NODE))
    spaces = sorted({one["metadata"]["namespace"] for one in bodies if one["kind"] == "Pod"})

    async def main() -> None:
        async with (
            asyncio.timeout(_RUNNING_SECONDS),
            connect(kubeconfig=str(plane.kubeconfig), qps=None) as api,
        ):
            await _create(api, _NAMESPACES, ({"metadata": {"name": space}} for space in spaces))
            # No pod is admitted before its service account is there.
            for space in spaces:
                await asyncio.to_thread(
                    plane.wait, f"/api/v1/namespaces/{space}/serviceaccounts/default", lambda _: True
                )
            await _create(api, NODES, (_node(one) for one in bodies if one["kind"] == "Node"))
            await _create(api, PODS, (_pod(one) for one in bodies if one["kind"] == "Pod"))
            while (await api.list(PODS, fields="status.phase!=Running", limit=1)).items:
                await asyncio.sleep(0.5)

    asyncio.run(main())
    return time.perf_counter() - started


async def _create(api: KubeApi, kind: Resource[Any], bodies: Iterator[_Object]) -> None:
    async def write() -> None:
        for body in bodies:  # all writers take from the one iterator
            await api.write(Create(kind, body, namespace=body["metadata"].get("namespace")))

    async with asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(write())


def _node(one: _Object) -> _Object:
    meta = one["metadata"]
    return {"metadata": {"name": meta["name"], "labels": meta["labels"], "annotations": _KWOK}, "spec": one["spec"]}


def _pod(one: _Object) -> _Object:
    """The pod as people would write it: without an owner, as one that does not exist would have it collected."""
    meta = {key: one["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    return {"metadata": meta, "spec": one["spec"]}


# -- the reading ------------------------------------------------------------------------------------------------------


async def measure(kubeconfig: str) -> dict[str, float]:
    """List everything through a reflector that keeps records; then once more, to time the steps alone."""
    async with connect(kubeconfig=kubeconfig) as api:
        reflector = Reflector(api, SystemClock(), PODS, PodInterner().pod)
        before, started, cpu = _resident_mb(), time.perf_counter(), time.process_time()
        reading = asyncio.create_task(reflector.run())
        await reflector.wait_synced()
        figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
        gc.collect()
        figures |= {"kept_mb": _resident_mb() - before, "pods": len(reflector.store.snapshot().items)}
        figures |= {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return figures | await _steps(api)


async def _steps(api: KubeApi) -> dict[str, float]:
    size, decoding, records = 0, 0.0, 0.0
    keep = PodInterner().pod
    async for data in _pages(api):
        size += len(data)
        started = time.perf_counter()
        page = read_page(data, PODS)
        decoded = time.perf_counter()
        for pod in page.items:
            keep(pod)
        decoding += decoded - started
        records += time.perf_counter() - decoded
    return {"json_mb": size / 1e6, "decoding": decoding, "records": records}


async def _pages(api: KubeApi) -> AsyncIterator[bytes]:
    """Lists as the server sends them."""
    more = "first"
    while more:
        page = await api.list(PODS.read_as(msgspec.Raw), continue_="" if more == "first" else more)
        more = page.continue_
        yield b'{"items": [%s]}' % b",".join(bytes(item) for item in page.items)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(asyncio.run(measure(sys.argv[2]))))
    else:
        print_real_ingest()
