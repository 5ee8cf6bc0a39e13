"""What guard and drive cost while nothing changes: 1,000 nodes, 20,000 pods, all held already.

`python -m bench.guarding 1000 60` measures each for 60 seconds; the API server is a process of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.many_nodes import Server, run_server
from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.model.beside import BesideMode, Hold, written_mark
from dovetail.ports import NODECLAIMS, NODES, PODS
from tests.harness.claims import condition

_SETTLING_SECONDS = 60.0  # drive decides for the first time after 30 s
_TICK = os.sysconf("SC_CLK_TCK")


def held(by: BesideMode, plural: str, body: dict[str, Any]) -> dict[str, Any]:
    """Every third pod opens once a year, so that guard holds every node too."""
    annotations = body["metadata"].setdefault("annotations", {})
    if plural == PODS.plural and int(body["metadata"]["name"][-2:]) % 3 == 0:
        annotations[names.DISRUPTION_SCHEDULE] = "0 5 1 1 *"
    elif plural == NODECLAIMS.plural and by is BesideMode.DRIVE:
        state = condition(ConditionType.DISRUPTION_STATE, reason="S1", message="steady")
        conditions = [*body["status"]["conditions"], state]
        body["status"]["conditions"] = [{**each, "observedGeneration": 1} for each in conditions]
    elif plural == NODES.plural:
        mark = Hold(by=by, why=f"disruption-schedule Pod/default/{body['metadata']['name']}")
        annotations |= {names.DO_NOT_DISRUPT: "true", names.HELD: written_mark(mark)}
    return body


def print_guarding(nodes: int = 1_000, seconds: float = 60.0) -> None:
    print(f"{'':<6} {'nodes':>6} {'pods':>7} {'seconds':>8} {'share of a core':>16} {'writes':>7} {'memory':>8}")
    for mode in BesideMode:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "bench.guarding", "serve", str(nodes), mode]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                url = server.stdout.readline().strip()
                try:
                    share, writes, peak = _measured(mode, url, Path(folder), seconds)
                finally:
                    server.kill()
        row = f"{nodes:>6} {nodes * 20:>7} {seconds:>8.0f} {share:>16.2%} {writes:>7} {peak:>5.0f} MB"
        print(f"{mode:<6} {row}", flush=True)


def _measured(mode: BesideMode, url: str, folder: Path, seconds: float) -> tuple[float, int, float]:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(url)))
    where = ["--kubeconfig", str(kubeconfig), "--metrics-port=0", "--health-probe-port=0"]
    alone = ["--disable-leader-election=true", "--karpenter-version=1.15"]
    command = [sys.executable, "-m", "dovetail", mode, *where, *alone]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = next(_ports(process.stdout))
        try:
            while f'dovetail_beside_held_nodes{{nodepool="alpha",by="{mode}"}}' not in _metrics(port):
                time.sleep(1)
            time.sleep(_SETTLING_SECONDS)
            before, written = _cpu_seconds(process.pid), _writes(_metrics(port))
            time.sleep(seconds)
            spent = _cpu_seconds(process.pid) - before
            metrics = _metrics(port)
        finally:
            process.kill()
    peak = next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("process_resident_memory"))
    return spent / seconds, _writes(metrics) - written, peak / 2**20


def _writes(metrics: str) -> int:
    """All that have been sent, events included."""
    lines = [line for line in metrics.splitlines() if 'method="PATCH"' in line or 'method="POST"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def _ports(lines: Iterator[str]) -> Iterator[int]:
    for line in lines:
        told = json.loads(line)
        if told["message"] == "serving" and told["what"] == "metrics":
            yield told["port"]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(run_server(Server(int(sys.argv[2]), "full", partial(held, BesideMode(sys.argv[3])))))
    else:
        print_guarding(*map(int, sys.argv[1:3]))
