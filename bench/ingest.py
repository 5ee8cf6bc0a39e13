"""How long does it take to read all pods of a cluster over HTTP into records, and how much memory do they keep?

The server is a synthetic one on loopback, in a process of its own; client, decoding, reflector and records are ours.
"""

import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

from bench.cluster import objects
from dovetail.kube import connect
from dovetail.model.pod_records import PodInterner
from dovetail.ports import PODS
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.reflector import Reflector

_SIZES = (10_000, 30_000, 100_000)
_NODES_PER_POD = 1 / 20


def print_ingest() -> None:
    """The table; each size is measured in a process of its own."""
    print("reading pods from an API server on loopback, in pages of 500")
    print(f"{'pods':>8} {'time':>9} {'CPU':>9} {'kept':>8} {'peak':>8}")
    for pods in _SIZES:
        command = [sys.executable, "-m", "bench.ingest"]
        with subprocess.Popen([*command, "serve", str(pods)], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                url = server.stdout.readline().strip()
                measured = subprocess.run([*command, "measure", url], check=True, stdout=subprocess.PIPE).stdout
            finally:
                server.kill()
        figures = json.loads(measured)
        assert figures["pods"] == pods
        print(
            f"{pods:>8} {figures['seconds']:>7.2f} s {figures['cpu']:>7.2f} s "
            f"{figures['kept_mb']:>5.0f} MB {figures['peak_mb']:>5.0f} MB"
        )
    print()


def serve(pods: int) -> None:
    """Serve so many pods, and a watch that never says anything."""
    bodies = [json.dumps(one) for one in objects(round(pods * _NODES_PER_POD)) if one["kind"] == "Pod"]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            await asyncio.sleep(3600)
        start = int(request.query.get("continue", "0"))
        stop = start + int(request.query.get("limit", "500"))
        more = str(stop) if stop < len(bodies) else ""
        meta = json.dumps({"resourceVersion": "1", "continue": more})
        page = (
            f'{{"kind": "PodList", "apiVersion": "v1", "metadata": {meta}, "items": [{",".join(bodies[start:stop])}]}}'
        )
        return web.Response(text=page, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


async def measure(url: str) -> dict[str, float]:
    """List everything through a reflector that keeps records."""
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "c",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kubeconfig")
        file.write_text(json.dumps(config))
        async with connect(kubeconfig=str(file)) as api:
            reflector = Reflector(api, SystemClock(), PODS, PodInterner().pod)
            before, started, cpu = _resident_mb(), time.perf_counter(), time.process_time()
            reading = asyncio.create_task(reflector.run())
            await reflector.wait_synced()
            figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
            gc.collect()
            figures |= {"kept_mb": _resident_mb() - before, "pods": len(reflector.store.snapshot().items)}
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    return figures | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(measure(sys.argv[2]))))
