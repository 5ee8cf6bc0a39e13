"""How long does `simulate --for 1d` take for a dump of 600 nodes and 6,000 pods, as Karpenter leaves them on EC2?

The dump is that of `examples/eks.json.gz`, 32 times side by side, with more pods. `python -m bench.day` prints the
table, `python -m bench.day FILE` writes the dump, and with `profile` it says where the time goes. `karpenter`, `guard`
and `drive` are the other modes of `simulate`.
"""

import cProfile
import gzip
import json
import pstats
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.api.documents import Document
from dovetail.model.decider import MODES, in_mode
from dovetail.model.rule_settings import settings_of
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.views.simulation.report import SimulationReport

_DUMP = Path(__file__).parents[1] / "examples" / "eks.json.gz"
_START = datetime(2026, 11, 17, 10, tzinfo=UTC)
_COPIES = 32
_WORKERS = 58  # pods of a further workload in each copy
_ONCE = frozenset({"NodePool", "EC2NodeClass", "DaemonSet", "PriorityClass", "StorageClass"})
_UID = re.compile(r"\b[0-9a-f]{4}(?=[0-9a-f]{4}-[0-9a-f]{4}-)")


def objects() -> Iterator[dict[str, Any]]:
    """The objects of the dump. What the copies share comes first."""
    items = json.loads(gzip.decompress(_DUMP.read_bytes()))["items"]
    shared = {item["metadata"]["uid"] for item in items if item["kind"] in _ONCE}
    yield from (item for item in items if item["kind"] in _ONCE)
    for number in range(_COPIES):
        copied = [_copy(item, number, shared) for item in items if item["kind"] not in _ONCE]
        yield from copied
        pods = [item for item in copied if item["kind"] == "Pod" and item["spec"].get("nodeName")]
        nodes = sorted({pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"].startswith("aws-node")})
        yield from _workers(number, nodes[:12])


def _copy(item: dict[str, Any], number: int, shared: set[str]) -> dict[str, Any]:
    text = json.dumps(item).replace("ip-10-0-", f"ip-10-{number}-").replace("pvc-1", f"pvc-{number}")
    text = re.sub(r'"((?:general|spot-batch|gpu)-[0-9a-z]{5})"', rf'"\1-{number}"', text)
    text = re.sub(r"/i-0", f"/i-{number:02x}", text)
    mine = _UID.sub(f"{number:04x}", text)
    for uid in shared:
        mine = mine.replace(f"{number:04x}{uid[4:]}", uid)
    copied: dict[str, Any] = json.loads(mine)
    meta = copied["metadata"]
    daemon = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences", ()))
    if daemon or copied["kind"] == "Namespace":
        meta["name"] += f"-{number}" if number or not daemon else ""
    elif "namespace" in meta:
        meta["namespace"] += f"-{number}"
    if "claimRef" in copied.get("spec", {}):
        copied["spec"]["claimRef"]["namespace"] += f"-{number}"
    return copied


def _workers(number: int, nodes: list[str]) -> Iterator[dict[str, Any]]:
    made, labels, uid = "2026-11-16T10:00:00Z", {"app": "worker"}, f"{number:04x}0000-0000-4000-9000-000000000000"
    requests = {"cpu": "10m", "memory": "32Mi"}
    pod_spec = {"containers": [{"name": "app", "image": "x", "resources": {"requests": requests}}]}
    meta = {"namespace": f"shop-{number}", "creationTimestamp": made}
    template = {"metadata": {"labels": labels}, "spec": pod_spec}
    spec = {"replicas": _WORKERS, "selector": {"matchLabels": labels}, "template": template}
    named = {**meta, "name": "worker", "uid": uid}
    yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": named, "spec": spec}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "worker", "uid": uid, "controller": True}
    ready = [{"type": type_, "status": "True", "lastTransitionTime": made} for type_ in ("PodScheduled", "Ready")]
    for index in range(_WORKERS):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**meta, "name": f"worker-{index}", "labels": labels, "ownerReferences": [owner]},
            "spec": {**pod_spec, "nodeName": nodes[index % len(nodes)]},
            "status": {"phase": "Running", "startTime": made, "conditions": ready},
        }


def play(hours: float, mode: str = "run") -> SimulationReport:
    """Play that many hours of it, with those who act in this mode of `simulate`."""
    documents = [
        Document("bench", index, None, None, item["apiVersion"], item["kind"], value=item)
        for index, item in enumerate(objects(), 1)
    ]
    scenario = read_scenario(documents, now=_START, start=_START, span=timedelta(hours=hours))
    settings = settings_of(in_mode(mode, scenario.settings.decider, "the bench says so"))
    scenario = msgspec.structs.replace(scenario, settings=settings)
    with Play(scenario) as playing:
        playing.advance(scenario.end)
        return playing.report()


def print_day(hours: float = 24, mode: str = "run") -> None:
    """The table."""
    began, used = time.perf_counter(), time.process_time()
    report = play(hours, mode)
    seconds, computed = time.perf_counter() - began, time.process_time() - used
    what = f"{hours:g} simulated hours of 600 nodes and 6,000 pods as on EC2, {mode}"
    print(f"{what}: {seconds:.1f} s ({computed:.1f} s of CPU)")
    gone = ", ".join(f"{count} {reason}" for reason, count in report.nodes.terminated.items())
    print(f"launched {report.nodes.launched}, gone {gone or 'none'}, {report.pods.evicted} pods evicted\n", flush=True)


def main() -> None:
    """Print it; see the module for the words."""
    words = sys.argv[1:]
    hours = next((float(word) for word in words if word.replace(".", "").isdigit()), 24.0)
    mode = next((word for word in words if word in MODES), "run")
    if any(word.endswith(".json") for word in words):
        dump = {"apiVersion": "v1", "kind": "List", "items": list(objects())}
        Path(words[0]).write_text(json.dumps(dump))
    elif "profile" in words:
        profile = cProfile.Profile()
        profile.runcall(print_day, hours, mode)
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)
    else:
        print_day(hours, mode)


if __name__ == "__main__":
    main()
