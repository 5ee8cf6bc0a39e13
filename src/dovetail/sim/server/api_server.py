"""The Kubernetes API in memory: the KubeApi port over a registry, for controllers and actors on a virtual loop.

    server = ApiServer(VirtualClock(loop), seed=1)      # a KubeApi for the client `dovetail`
    kubelet = server.client("kubelet")                  # the same cluster for another client
    server.registry.store.observers.append(check)       # called with every write
    server.witness = hear                               # called with every request, before and after its writes
    server.faults.add(Fault(...), verb="patch")         # see `faults`
    server.trace                                        # every write, one line each

A request takes time before and after it takes effect: other requests can come in between, and its answer can be lost.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.api import names
from dovetail.ports import ApiError, Clock, Create, Delete, Evict, KubeApi, Page, Patch, Resource, Write
from dovetail.sim.server.eviction import evict
from dovetail.sim.server.faults import ApiRequest, Fault, Faults
from dovetail.sim.server.garbage import EventExpiry, GarbageCollector
from dovetail.sim.server.namespaces import NamespaceController
from dovetail.sim.server.node_leases import NodeLeases, may_be_node_lease
from dovetail.sim.server.registry import Registry, scale_of
from dovetail.sim.server.store import StoredObject, UnreadableObject
from dovetail.sim.server.watching import BOOKMARK_SECONDS, SimWatch

T = TypeVar("T")
R = TypeVar("R")


class PendingRequest(NamedTuple):
    """A request that takes effect now, and when its client sent it."""

    request: ApiRequest
    at: datetime


class Client(KubeApi):
    """One client of the server; faults can be limited to the name of a client."""

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
            for obj in stored:
                try:
                    items.append(obj.read_as(resource.struct))
                except UnreadableObject as error:
                    unread.append(obj.unread(str(error)))
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
        return SimWatch(
            self._server,
            ApiRequest("watch", resource, namespace, "", "", self.name),
            resource,
            selectors=(labels, fields),
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
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
        assert request.name or request.verb in ("create", "list"), "the request names no object"
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

    `latency_seconds` is the time that a request takes each way. Bookmarks cost most of the time of an idle cluster, so
    a simulation of weeks sets a long `bookmark_seconds`.
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
        self.trace = self.registry.store.trace  # every write as one line: time, verb, resource, name, version
        self.faults = Faults()
        self.faults.drop_watches = self.drop_watches
        self.open_watches: dict[SimWatch[Any], None] = {}
        self.witness: Callable[[PendingRequest | None], None] | None = (
            None  # called before each request, and with None after
        )
        self.faults_met = 0
        self.bookmark_seconds = bookmark_seconds
        self._latency_seconds = latency_seconds
        if collect_garbage:
            GarbageCollector(self.registry)
        EventExpiry(self.registry)
        NamespaceController(self.registry)
        self.node_leases = NodeLeases(self.registry, self._node_leases_watched)
        super().__init__(self, name)

    def client(self, name: str) -> Client:
        """Another client of the same cluster."""
        return Client(self, name)

    def compact(self) -> None:
        """Drop the history: older continue tokens and versions get 410 Gone."""
        self.registry.store.compact()

    def drop_watches(self, resource: Resource[Any] | None = None, error: ApiError | None = None) -> None:
        """End all open watches, or those of one kind, as if the connection broke."""
        self.faults_met += 1
        for watch in list(self.open_watches):
            if resource is None or watch.resource.plural == resource.plural:
                watch.end(error)

    def meet_fault(self, request: ApiRequest) -> Fault | None:
        """The fault that the request meets. Faults that fail or delay it are counted."""
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
        """Wait for the latency of one way."""
        await asyncio.sleep(self._latency_seconds)


def _read(stored: StoredObject, resource: Resource[T]) -> T:
    try:
        result: T = stored.read_as(resource.struct)
    except UnreadableObject as error:
        raise ApiError(f"{resource.kind} in the answer is unreadable: {error}", reason="Unreadable") from None
    return result
