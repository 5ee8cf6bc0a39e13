"""Two processes and one lease: whatever happens to the leader, never do two write."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import groupby, pairwise
from typing import Any, Final

import pytest

from dovetail.kube.client import RealApi, connect
from dovetail.ports import LEASES
from tests.cluster.access import Cluster, eventually
from tests.cluster.fixtures import ROOT
from tests.cluster.leader_process import CONFIGMAPS, FENCED, LEASE, LOST

TAKEOVER_SECONDS: Final = 17.0
HANDOVER_SECONDS: Final = 4.0


class Candidate:
    """A process, and what it has said so far with the time at which it was heard."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str) -> None:
        self.identity = identity
        self.said: list[tuple[float, str]] = []
        command = [sys.executable, "-m", "tests.cluster.leader_process", str(cluster.kubeconfig), namespace, identity]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append((time.monotonic(), line.strip()))

    def heard(self, word: str, *, after: float = 0.0) -> float | None:
        """When it first said so."""
        return next((at for at, line in list(self.said) if at > after and line.startswith(word)), None)

    def wait_for(self, word: str, *, seconds: float, after: float = 0.0) -> float:
        eventually(
            lambda: self.heard(word, after=after) is not None or self.process.poll() is not None,
            seconds=seconds,
            what=lambda: f"{self.identity} said {self.said[-3:]}",
        )
        at = self.heard(word, after=after)
        assert at is not None, f"{self.identity} ended with {self.process.poll()} and {self.said[-3:]}"
        return at

    def wait_between_writes(self) -> None:
        """Return just after a write, so that none is on its way."""
        self.wait_for("wrote", seconds=5, after=time.monotonic())

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._listener.join()
        assert self.process.stdout
        self.process.stdout.close()


Start = Callable[[str], Candidate]


@pytest.fixture
def start(control_plane: Cluster, namespace: str) -> Iterator[Start]:
    """Starts a candidate; all are ended after the test."""
    control_plane.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": FENCED}})
    candidates: list[Candidate] = []

    def begin(identity: str) -> Candidate:
        candidates.append(Candidate(control_plane, namespace, identity))
        return candidates[-1]

    yield begin
    for candidate in candidates:
        candidate.end()


class History:
    """Every write to the fenced object, in the server's order."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.writes: list[tuple[int, str]] = []
        self._cluster = cluster
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()))
        self._version = cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/{FENCED}")["metadata"][
            "resourceVersion"
        ]

    def __enter__(self) -> "History":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _follow(self) -> None:
        async with connect(kubeconfig=str(self._cluster.kubeconfig)) as api, asyncio.TaskGroup() as group:
            task = group.create_task(self._read(api))
            while not self._stop.is_set() and not task.done():
                await asyncio.sleep(0.05)
            task.cancel()

    async def _read(self, api: RealApi) -> None:
        watch = api.watch(
            CONFIGMAPS, resource_version=self._version, namespace=self._namespace, fields=f"metadata.name={FENCED}"
        )
        async with aclosing(watch) as events:
            async for event in events:
                if event.object and "data" in event.object:
                    self.writes.append((int(event.object["data"]["epoch"]), event.object["data"]["holder"]))

    def check(self, *holders: str) -> None:
        """The writers took turns in this order, and the epoch grew with each."""
        turns = [turn for turn, _ in groupby(self.writes)]
        assert [holder for _, holder in turns] == list(holders)
        assert all(before < after for (before, _), (after, _) in pairwise(turns))


def lease_of(cluster: Cluster, namespace: str) -> dict[str, Any]:
    path = f"/apis/{LEASES.group}/{LEASES.version}/namespaces/{namespace}/leases/{LEASE}"
    spec: dict[str, Any] = cluster.get(path)["spec"]
    return spec


def test_the_leader_is_killed(control_plane: Cluster, namespace: str, start: Start) -> None:
    with History(control_plane, namespace) as history:
        first = start("first")
        first.wait_for("wrote", seconds=30)
        second = start("second")
        time.sleep(3)
        assert second.said == []
        first.process.kill()
        killed_at = time.monotonic()
        took_over_at = second.wait_for("wrote", seconds=30)
        assert took_over_at - killed_at < TAKEOVER_SECONDS
        second.wait_between_writes()
    history.check("first", "second")
    spec = lease_of(control_plane, namespace)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("second", 15, 1)


def test_a_paused_leader_does_not_write_when_it_wakes(control_plane: Cluster, namespace: str, start: Start) -> None:
    with History(control_plane, namespace) as history:
        first = start("first")
        first.wait_for("wrote", seconds=30)
        second = start("second")
        time.sleep(3)
        first.wait_between_writes()
        first.process.send_signal(signal.SIGSTOP)
        paused_at = time.monotonic()
        took_over_at = second.wait_for("wrote", seconds=30)
        assert took_over_at - paused_at < TAKEOVER_SECONDS
        first.process.send_signal(signal.SIGCONT)
        # It takes itself for the leader at first: only its clock tells it otherwise.
        first.wait_for("lost", seconds=10)
        assert first.process.wait(10) == LOST
        assert first.heard("wrote", after=took_over_at) is None
        second.wait_between_writes()
        second.wait_between_writes()
    history.check("first", "second")


def test_a_stopped_leader_hands_over_at_once(control_plane: Cluster, namespace: str, start: Start) -> None:
    with History(control_plane, namespace) as history:
        first = start("first")
        first.wait_for("wrote", seconds=30)
        second = start("second")
        time.sleep(3)
        first.process.terminate()
        stopped_at = time.monotonic()
        assert first.process.wait(10) == os.EX_OK
        assert second.wait_for("wrote", seconds=10) - stopped_at < HANDOVER_SECONDS
    history.check("first", "second")
