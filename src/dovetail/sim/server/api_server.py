"""The Kubernetes API in memory: the KubeApi port over a registry, for controllers and actors on a virtual loop.

    server = ApiServer(VirtualClock(loop), seed=1)      # itself a KubeApi, of the client `dovetail`
    kubelet = server.client("kubelet")                  # the same cluster, as another one
    server.registry.store.observers.append(check)       # told of every write at once; for checkers
    server.witness = hear                               # told of every request, whose writes follow; see `checkers`
    server.faults.add(Fault(...), verb="patch")         # see `faults`
    server.trace                                        # every write, a line each

A request is under way before and after it takes effect: others can come in between, and its answer can be lost.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.api import names
from dovetail.ports import ApiError, Clock, Create, Delete, Evict, KubeApi, Page, Patch, Resource, Write
from dovetail.sim.server.eviction import evict
from dovetail.sim.server.expiry import EventExpiry
from dovetail.sim.server.faults import ApiRequest, Fault, Faults
from dovetail.sim.server.garbage import GarbageCollector
from dovetail.sim.server.namespaces import NamespaceController
from dovetail.sim.server.node_leases import NodeLeases, may_be_node_lease
from dovetail.sim.server.registry import Registry, scale_of
from dovetail.sim.server.selectors import wanted
from dovetail.sim.server.store import StoredObject, UnreadableObject
from dovetail.sim.server.watching import BOOKMARK_SECONDS, SimWatch

T = TypeVar("T")
R = TypeVar("R")


class PendingRequest(NamedTuple):
    """A request that is about to take effect, and when its client sent it."""

    request: ApiRequest
    at: datetime


class Client(KubeApi):
    """One client of the server; faults can be for the requests of one name."""

    def __init__(self, server: "ApiServer", name: str) -> None:
        self.name = name
        self._server = server
        self._registry = server.registry

    # -- reading ------------------------------------------------------------------------------------------------------

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_: str = "",
    ) -> Page[T]:
        def act() -> Page[T]:
            stored, version, token = self._registry.list(
                resource, namespace=namespace, labels=labels, fields=fields, limit=limit, continue_=continue_
            )
            items: list[T] = []
            unread = []
            for each in stored:
                try:
                    items.append(each.read_as(resource.struct))
                except UnreadableObject as error:
                    unread.append(each.unread(str(error)))
            return Page(items, str(version), token, len(unread), tuple(unread))

        return await self._call(ApiRequest("list", resource, namespace, "", "", self.name), act)

    def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> SimWatch[T]:
        request = ApiRequest("watch", resource, namespace, "", "", self.name)
        return SimWatch(
            self._registry.store,
            resource,
            namespace=namespace,
            resource_version=resource_version,
            on_begin=lambda: self._server.watch_begins(resource, namespace),
            select=lambda: wanted(resource, namespace, labels, fields),
            timeout_seconds=timeout_seconds,
            bookmark_seconds=self._server.bookmark_seconds,
            meet_fault=lambda: self._server.meet_fault(request),
            open_watches=self._server.open_watches,
        )

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        request = ApiRequest("get", resource, namespace, name, "", self.name)
        return await self._call(request, lambda: _read(self._registry.get(resource, name, namespace), resource))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def write(self, write: Write[T]) -> T:
        request = ApiRequest(write.verb, write.resource, write.namespace, write.name, write.subresource, self.name)
        answer: T = await self._call(request, lambda: self._written(write))
        return answer

    def _written(self, write: Write[Any]) -> Any:
        match write:
            case Create():
                return _read(self._registry.create(write), write.resource)
            case Patch(subresource="scale"):
                scale = scale_of(write.resource, self._registry.patch(write).body)
                return msgspec.convert(scale, write.resource.struct)
            case Patch():
                return _read(self._registry.patch(write), write.resource)
            case Delete():
                return self._registry.delete(write)
            case Evict():
                return evict(self._registry, write)
        raise NotImplementedError(write.verb)

    async def _call(self, request: ApiRequest, act: Callable[[], R]) -> R:
        assert request.name or request.verb in ("create", "list"), "an object is asked for by its name"
        witness = self._server.witness
        sent_at = None if witness is None else self._registry.now()
        await self._server.travel()
        fault = self._server.meet_fault(request) if self._server.faults.pending else None
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault is not None and fault.error is not None and not fault.after:
            raise fault.error
        refusal: ApiError | None = None
        if witness is not None and sent_at is not None:
            witness(PendingRequest(request, sent_at))
        try:
            result = act()
        except ApiError as error:
            refusal = error
        if witness is not None:
            witness(None)
        await self._server.travel()
        if fault is not None and fault.error is not None:
            raise fault.error
        if refusal is not None:
            raise refusal
        return result


class ApiServer(Client):
    """The server, and its first client.

    `latency_seconds` is the time that a request takes each way. Bookmarks are most of what an idle cluster costs: a
    simulation of weeks can do with fewer.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        name: str = names.COMPONENT,
        latency_seconds: float = 0.0,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        collect_garbage: bool = True,
    ) -> None:
        self.registry = Registry(clock.now, seed)
        self.faults = Faults()
        self.faults.drop_watches = self.drop_watches
        self.open_watches: dict[SimWatch[Any], None] = {}
        self.witness: Callable[[PendingRequest | None], None] | None = (
            None  # called before each takes effect, and after
        )
        self.faults_met = 0
        self.bookmark_seconds = bookmark_seconds
        self._latency_seconds = latency_seconds
        if collect_garbage:
            GarbageCollector(self.registry, _soon)
        EventExpiry(self.registry, _soon)
        NamespaceController(self.registry, _later)
        self.node_leases = NodeLeases(self.registry, _later, self._node_leases_watched)
        super().__init__(self, name)

    @property
    def trace(self) -> list[str]:
        """Every write as one line: time, verb, resource, name, version."""
        return self.registry.store.trace

    def client(self, name: str) -> Client:
        """The same cluster, for another client."""
        return Client(self, name)

    def compact(self) -> None:
        """Forget the past: continue tokens and versions of before are answered with 410 Gone."""
        self.registry.store.compact()

    def drop_watches(self, resource: Resource[Any] | None = None, error: ApiError | None = None) -> None:
        """End all open watches (of one kind), as when the connection breaks."""
        self.faults_met += 1
        for watch in list(self.open_watches):
            if resource is None or watch.resource.plural == resource.plural:
                watch.end(error)

    def meet_fault(self, request: ApiRequest) -> Fault | None:
        """What the request meets on its way; one that harms counts."""
        fault = self.faults.take(request)
        if fault is not None and (fault.error is not None or fault.delay_seconds):
            self.faults_met += 1
        return fault

    def watch_begins(self, resource: Resource[Any], namespace: str | None) -> None:
        if may_be_node_lease(resource, namespace):
            self.node_leases.keep_up_to_date()

    def _node_leases_watched(self) -> bool:
        return any(may_be_node_lease(watch.resource, watch.namespace) for watch in self.open_watches)

    async def travel(self) -> None:
        """The way from the client to the server, or back."""
        await asyncio.sleep(self._latency_seconds)


def _read(stored: StoredObject, resource: Resource[T]) -> T:
    try:
        result: T = stored.read_as(resource.struct)
    except UnreadableObject as error:
        raise ApiError(f"{resource.kind} in the answer is unreadable: {error}", reason="Unreadable") from None
    return result


def _soon(act: Callable[[str], None], uid: str) -> None:
    asyncio.get_running_loop().call_soon(act, uid)


def _later(seconds: float, act: Callable[[str], None], name: str) -> None:
    asyncio.get_running_loop().call_later(seconds, act, name)
