"""What guard costs while nothing changes: 1,000 nodes, 20,000 pods, all held already.

`python -m bench.guarding 1000 60` measures for 60 seconds; the API server is a process of its own.
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
from pathlib import Path
from typing import Any

from bench.many_nodes import Server, run_server
from dovetail.api import names
from dovetail.model.beside import BesideMode, Hold, written_mark
from dovetail.ports import NODES, PODS

_SETTLING_SECONDS = 20.0
_TICK = os.sysconf("SC_CLK_TCK")


def held(plural: str, body: dict[str, Any]) -> dict[str, Any]:
    """Every third pod opens once a year, so that every node is held."""
    annotations = body["metadata"].setdefault("annotations", {})
    if plural == PODS.plural and int(body["metadata"]["name"][-2:]) % 3 == 0:
        annotations[names.DISRUPTION_SCHEDULE] = "0 5 1 1 *"
    elif plural == NODES.plural:
        mark = Hold(by=BesideMode.GUARD, why=f"disruption-schedule Pod/default/{body['metadata']['name']}")
        annotations |= {names.DO_NOT_DISRUPT: "true", names.HELD: written_mark(mark)}
    return body


def print_guarding(nodes: int = 1_000, seconds: float = 60.0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.guarding", "serve", str(nodes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            try:
                share, writes, peak = _measured(url, Path(folder), seconds)
            finally:
                server.kill()
    print(f"{'nodes':>6} {'pods':>7} {'seconds':>8} {'share of a core':>16} {'writes':>7} {'memory':>8}")
    print(f"{nodes:>6} {nodes * 20:>7} {seconds:>8.0f} {share:>16.2%} {writes:>7} {peak:>5.0f} MB")


def _measured(url: str, folder: Path, seconds: float) -> tuple[float, int, float]:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(url)))
    where = ["--kubeconfig", str(kubeconfig), "--metrics-port=0", "--health-probe-port=0"]
    alone = ["--disable-leader-election=true", "--karpenter-version=1.15"]
    command = [sys.executable, "-m", "dovetail", "guard", *where, *alone]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout is not None
        port = next(_ports(guard.stdout))
        try:
            time.sleep(_SETTLING_SECONDS)
            before = _cpu_seconds(guard.pid)
            time.sleep(seconds)
            spent = _cpu_seconds(guard.pid) - before
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                metrics = answer.read().decode()
        finally:
            guard.kill()
    assert 'dovetail_beside_held_nodes{nodepool="alpha",by="guard"}' in metrics, "it has not seen the nodes"
    writes = [line for line in metrics.splitlines() if 'method="PATCH"' in line or 'method="POST"' in line]
    peak = next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("process_resident_memory"))
    return spent / seconds, sum(int(float(line.rpartition(" ")[2])) for line in writes), peak / 2**20


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
        asyncio.run(run_server(Server(int(sys.argv[2]), "full", held)))
    else:
        print_guarding(*map(int, sys.argv[1:3]))
