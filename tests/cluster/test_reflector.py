"""A reflector on a real control plane whose parts are killed, paused and restarted under it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import pytest

from dovetail.api.objects import Node
from dovetail.kube.client import connect
from dovetail.ports import NODES
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.pace import Backoff
from dovetail.runtime.reflector import Reflector, ReflectorTimings
from dovetail.state.store import Added, Change, Deleted, Updated
from tests.cluster.access import Cluster, kubeconfig_text
from tests.cluster.plane import ControlPlane
from tests.harness.stage import real_time, stage

pytestmark = stage(real_time)

PATH: Final = "/api/v1/nodes"
RECOVERY_SECONDS: Final = 30
# Watches of some seconds, so that the ends of watches are part of the test.
TIMINGS: Final = ReflectorTimings(
    watch_seconds=3, idle_seconds=10, backoff=Backoff(first_seconds=0.2, cap_seconds=2, jitter=0.5)
)

State = dict[str, tuple[str, str, str]]  # name to UID, version and label


class Follower:
    """A reflector, and the state as its changes alone tell it."""

    def __init__(self, reflector: Reflector[Node, str]) -> None:
        self.reflector = reflector
        self.told: State = {}
        self.deleted: list[str] = []
        reflector.store.subscribe(self._notice)

    def _notice(self, change: Change[str]) -> None:
        match change:
            case Added(key=(_, name), new=new) | Updated(key=(_, name), new=new):
                assert isinstance(change, Updated) == (name in self.told)
                self.told[name] = (new.uid, new.resource_version, new.value)
            case Deleted(key=(_, name)):
                del self.told[name]
                self.deleted.append(name)

    def state(self) -> State:
        return {
            name: (kept.uid, kept.resource_version, kept.value)
            for (_, name), kept in self.reflector.store.snapshot().items.items()
        }


def truth(cluster: Cluster) -> State:
    items = cluster.get(PATH)["items"]
    return {
        item["metadata"]["name"]: (
            item["metadata"]["uid"],
            item["metadata"]["resourceVersion"],
            item["metadata"].get("labels", {}).get("v", ""),
        )
        for item in items
    }


def add(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.create(PATH, {"metadata": {"name": name, "labels": {"v": "0"}}})


class Cable:
    """The line between the reflector and the API server, which can be cut while others go on writing."""

    def __init__(self, plane: ControlPlane) -> None:
        self._to = urlsplit(plane.url).port
        self._server: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []
        self.port = 0

    async def join(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        assert self._server
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def end(self) -> None:
        """Cut it, and let both sides notice."""
        self.cut()
        await asyncio.sleep(0.2)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._ends += [writer, far_writer]
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(reader, far_writer))
            group.create_task(_pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def following(plane: ControlPlane, *, cable: Cable | None = None) -> AsyncIterator[Follower]:
    kubeconfig = plane.kubeconfig
    if cable is not None:
        await cable.join()
        kubeconfig = plane.folder / "cable.kubeconfig"
        kubeconfig.write_text(kubeconfig_text(f"https://127.0.0.1:{cable.port}", plane.ca_file, plane.token))
    async with connect(kubeconfig=str(kubeconfig), timeout_seconds=5) as api:
        reflector = Reflector(
            api, SystemClock(), NODES, lambda node: node.metadata.labels.get("v", ""), timings=TIMINGS
        )
        follower = Follower(reflector)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(reflector.run())
            await reflector.wait_synced()
            yield follower
            running.cancel()
    if cable is not None:
        await cable.end()


async def agrees(follower: Follower, plane: ControlPlane) -> None:
    """The reflector comes to have exactly the server's state, and has told how it came about."""
    deadline = asyncio.get_running_loop().time() + RECOVERY_SECONDS
    while True:
        expected = await asyncio.to_thread(truth, plane)
        if follower.state() == expected:
            break
        assert asyncio.get_running_loop().time() < deadline, f"{follower.state()} is not {expected}"
        await asyncio.sleep(0.1)
    assert follower.told == expected


@pytest.fixture
def quiet_plane(private_plane: ControlPlane) -> ControlPlane:
    """Nobody but the test touches nodes."""
    private_plane.kill("kwok")
    private_plane.kill("kube-controller-manager")
    return private_plane


async def test_what_happens_while_nothing_can_be_seen(quiet_plane: ControlPlane) -> None:
    """Deletions, a same name again, a change; and a server that has forgotten the version we stopped at."""
    plane = quiet_plane
    cable = Cable(plane)
    add(plane, "gone", "again", "changed", "same")
    async with following(plane, cable=cable) as follower:
        await agrees(follower, plane)
        cable.cut()
        for name in ("gone", "again"):
            await asyncio.to_thread(plane.delete, f"{PATH}/{name}")
        await asyncio.to_thread(add, plane, "again", "new")
        await asyncio.to_thread(plane.patch, f"{PATH}/changed", {"metadata": {"labels": {"v": "1"}}})
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        assert sorted(follower.state()) == ["again", "changed", "gone", "same"]
        await cable.join()
        await agrees(follower, plane)
        assert sorted(follower.deleted) == ["again", "gone"]
        assert follower.reflector.relists >= 1

        # Cut without a restart: the server still knows the version, and tells the rest.
        relists = follower.reflector.relists
        cable.cut()
        await asyncio.to_thread(plane.delete, f"{PATH}/same")
        await cable.join()
        await agrees(follower, plane)
        assert follower.reflector.relists == relists
        assert sorted(follower.deleted) == ["again", "gone", "same"]


async def test_restarts_of_the_api_server_and_of_etcd(quiet_plane: ControlPlane) -> None:
    """Each time something changes while the reflector cannot see it, deletions among it."""
    plane = quiet_plane
    add(plane, *(f"n{number}" for number in range(8)))
    async with following(plane) as follower:
        await agrees(follower, plane)

        # The API server dies, and comes back without the watch's past.
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await asyncio.to_thread(plane.delete, f"{PATH}/n0")
        await asyncio.to_thread(plane.delete, f"{PATH}/n1")
        await asyncio.to_thread(add, plane, "n1", "m1")
        await agrees(follower, plane)
        assert sorted(follower.deleted) == ["n0", "n1"]

        # etcd dies under the API server.
        await asyncio.to_thread(plane.restart, "etcd")
        await asyncio.to_thread(plane.wait_ready, "kube-apiserver")
        await asyncio.to_thread(plane.delete, f"{PATH}/n2")
        await asyncio.to_thread(plane.patch, f"{PATH}/n3", {"metadata": {"labels": {"v": "1"}}})
        await agrees(follower, plane)

        # Both, and one after the other.
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        await asyncio.to_thread(plane.restart, "etcd")
        await asyncio.sleep(3)
        await asyncio.to_thread(plane.start, "kube-apiserver")
        await asyncio.to_thread(plane.delete, f"{PATH}/n4")
        await asyncio.to_thread(add, plane, "m2")
        await agrees(follower, plane)
        assert sorted(follower.deleted) == ["n0", "n1", "n2", "n4"]


async def test_a_paused_api_server_is_not_waited_for_in_vain(quiet_plane: ControlPlane) -> None:
    """Connections stay open and silent; when the server goes on, so does the reflector."""
    plane = quiet_plane
    add(plane, "a", "b")
    async with following(plane) as follower:
        await agrees(follower, plane)
        plane.pause("kube-apiserver")
        await asyncio.sleep(TIMINGS.idle_seconds + 5)
        plane.resume("kube-apiserver")
        await asyncio.to_thread(plane.delete, f"{PATH}/a")
        await agrees(follower, plane)
        assert follower.deleted == ["a"]
