"""One cluster for a test, real or simulated, behind one face: what a contract test needs besides the port KubeApi."""

import asyncio
import base64
import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import pytest

from dovetail.kube import connect
from dovetail.ports import ApiError, Create, Delete, KubeApi, NotFound, Patch, Resource
from dovetail.sim.actors.cluster import SimCluster, run
from tests.cluster import access
from tests.contract.bodies import NAMESPACES, NODES, SERVICE_ACCOUNTS, Object, node

T = TypeVar("T")

POLL_SECONDS = 0.05


class Cluster(ABC):
    """What a test acts on. Names are the test's own, and what has no namespace is deleted afterwards."""

    api: KubeApi
    exact: ClassVar[bool]  # time passes only when the test waits: timings are exact

    def __init__(self) -> None:
        self._made: list[tuple[Resource[Any], str]] = []

    @abstractmethod
    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the test to its end."""

    @abstractmethod
    def now(self) -> datetime:
        """The instant."""

    @abstractmethod
    async def too_old(self, resource: Resource[Any]) -> str:
        """A version of which the server no longer knows what came after it."""

    @abstractmethod
    async def outdated(self, token: str) -> str:
        """The continue token as it is when its version has been compacted."""

    def unique(self, name: str) -> str:
        """A name that no other test uses."""
        return f"{name}-{uuid4().hex[:10]}"

    async def settle(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def eventually(
        self, check: Callable[[], Awaitable[T]], until: Callable[[T], object] = bool, *, timeout: float = 20.0
    ) -> T:
        """What `check` gives, once it is as `until` wishes; raises AssertionError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not until(found := await check()):
            assert loop.time() < deadline, f"not within {timeout} s: {found!r}"
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def find(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The object, or None if there is none."""
        try:
            return await self.api.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    async def wait(
        self,
        resource: Resource[T],
        name: str,
        until: Callable[[T], object],
        *,
        namespace: str | None = None,
        timeout: float = 20.0,
    ) -> T:
        """The object once it is there and as wished."""
        found = await self.eventually(
            lambda: self.find(resource, name, namespace=namespace),
            lambda it: it is not None and until(it),
            timeout=timeout,
        )
        assert found is not None
        return found

    async def wait_gone(
        self, resource: Resource[Any], name: str, *, namespace: str | None = None, timeout: float = 20.0
    ) -> None:
        """Returns when there is no such object."""
        await self.eventually(
            lambda: self.find(resource, name, namespace=namespace), lambda it: it is None, timeout=timeout
        )

    async def new_namespace(self) -> str:
        """A namespace in which pods can be made."""
        name = self.unique("contract")
        await self.make(NAMESPACES, {"metadata": {"name": name}})
        return name

    async def make(self, resource: Resource[T], body: Object) -> T:
        """Create something without a namespace; it is deleted after the test."""
        self.forget_later(resource, body["metadata"]["name"])
        return await self.api.write(Create(resource, body))

    def forget_later(self, resource: Resource[Any], name: str) -> None:
        self._made.append((resource, name))

    async def add_node(self, name: str = "", **fields: Any) -> str:
        """A Node that is Ready; `fields` as of `bodies.node`. Pods get there by its label `test`."""
        name = name or self.unique("node")
        await self.make(NODES, node(name, **fields))
        await self.wait(NODES, name, lambda it: condition(it, "Ready").get("status") == "True")
        # The controller manager takes the taint of a new node away when it has seen it Ready.
        await self.wait(NODES, name, lambda it: not _not_ready(it))
        return name

    async def _clean_up(self) -> None:
        for resource, name in reversed(self._made):
            with suppress(ApiError):
                if resource.plural != NAMESPACES.plural:
                    await self.api.write(Patch(resource, name, {"metadata": {"finalizers": None}}))
                await self.api.write(Delete(resource, name))


def condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One of the object's conditions; empty if it has none of the kind."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((dict(each) for each in conditions if each["type"] == kind), {})


def _not_ready(found: Mapping[str, Any]) -> bool:
    taints = found["spec"].get("taints") or ()
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)


class RealCluster(Cluster):
    """The control plane of the test run, which other tests use too."""

    exact = False
    longest_seconds: ClassVar[float] = 60

    def __init__(self, plane: access.Cluster) -> None:
        super().__init__()
        self.plane = plane

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def scenario() -> None:
            async with (
                asyncio.timeout(self.longest_seconds),
                connect(kubeconfig=str(self.plane.kubeconfig), qps=None) as self.api,
            ):
                try:
                    await test()
                finally:
                    await self._clean_up()

        asyncio.run(scenario())

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def new_namespace(self) -> str:
        name = await super().new_namespace()
        # No pod is admitted before its service account is there.
        await self.wait(SERVICE_ACCOUNTS, "default", lambda _: True, namespace=name)
        return name

    async def too_old(self, resource: Resource[Any]) -> str:
        del resource
        return "1"  # long before the server began to watch etcd

    async def outdated(self, token: str) -> str:
        # The first revision alone is compacted: nobody else asks for it.
        await asyncio.to_thread(self._compact, 2)
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return base64.urlsafe_b64encode(json.dumps(content | {"rv": 1}).encode()).decode().rstrip("=")

    def _compact(self, revision: int) -> None:
        body = json.dumps({"revision": str(revision), "physical": True}).encode()
        with suppress(urllib.error.HTTPError):  # it has been compacted before
            urllib.request.urlopen(f"{self._etcd()}/v3/kv/compaction", body, timeout=10).close()

    def _etcd(self) -> str:
        data = f"--data-dir={self.plane.folder / 'etcd'}"
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = file.read_text().split("\0")
                if data in words:
                    flag = "--listen-client-urls="
                    return next(word.removeprefix(flag) for word in words if word.startswith(flag))
        raise AssertionError(f"no etcd runs with {data}")


class SimulatedCluster(Cluster):
    """A cluster of its own in virtual time."""

    exact = True
    _sim: SimCluster

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def scenario(sim: SimCluster) -> BaseException | None:
            self._sim = sim
            self.api = sim.server
            try:
                await test()
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised again below
                return error  # raised from here it would come as a group of the cluster's tasks
            return None

        failed = run(scenario)
        if failed is not None:
            raise failed

    def now(self) -> datetime:
        return self._sim.clock.now()

    async def too_old(self, resource: Resource[Any]) -> str:
        version = (await self.api.list(resource, limit=1)).resource_version
        for _ in range(2):
            await self.new_namespace()
            self._sim.server.compact()
        return version

    async def outdated(self, token: str) -> str:
        await self.new_namespace()
        self._sim.server.compact()
        return token
