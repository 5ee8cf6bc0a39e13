"""The API of a real server, as the port KubeApi."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

import dovetail
from dovetail.api import names
from dovetail.kube.access import load
from dovetail.kube.reading import UnreadableAnswer, read_object, read_page
from dovetail.kube.reserve import HandleReserve
from dovetail.kube.retrying import NO_PATIENCE, RetryPolicy
from dovetail.kube.transport import CONNECTIONS, WATCH_MARGIN_SECONDS, HttpRequest, Transport
from dovetail.kube.watching import RealWatch
from dovetail.ports import ApiError, Create, Delete, Evict, KubeApi, Page, Patch, Resource, Write, WriteBody
from dovetail.values.rate import Rate, TokenBucket

T = TypeVar("T")

LISTS_TAKE = 3  # times as long as other requests may take; the server itself gives up after a minute
DEFAULT_PATIENCE = RetryPolicy()
_MANAGER = {"fieldManager": names.COMPONENT}


@asynccontextmanager
async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    qps: float | None = 200.0,
    burst: int = 300,
    timeout_seconds: float = 30.0,
    patience: RetryPolicy = DEFAULT_PATIENCE,
    random: Random | None = None,
    before_write: Callable[[], None] | None = None,
    connections: int = CONNECTIONS,
    keep_handle: bool = False,
) -> AsyncIterator["RealApi"]:
    """A client for the configured cluster. Sends nothing yet. Raises KubeConfigError.

    `qps=None` sets no limit, as leader election needs. `timeout_seconds` bounds one attempt, `patience` the retries.
    `before_write` is called right before a write is sent and may raise. With `keep_handle` the client can connect even
    when the process has no file handles left.
    """
    now = asyncio.get_running_loop().time()
    bucket = None if qps is None else TokenBucket(Rate(per_second=qps, burst=burst), at=now)
    transport = Transport(
        await load(kubeconfig, context),
        reload=lambda: load(kubeconfig, context),
        user_agent=f"{names.COMPONENT}/{dovetail.__version__}",
        bucket=bucket,
        patience=patience,
        random=random or Random(),
        before_write=before_write,
        connections=connections,
        reserve=HandleReserve() if keep_handle else None,
    )
    try:
        yield RealApi(transport, timeout_seconds=timeout_seconds)
    finally:
        await transport.close()


class RealApi(KubeApi):
    """KubeApi over HTTP. An undecodable answer raises ApiError with the reason `Unreadable`; the write has happened."""

    def __init__(self, transport: Transport, *, timeout_seconds: float) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds

    @property
    def requests(self) -> Mapping[tuple[str, ...], int]:
        """The number of requests by status code, method and host, for the metrics."""
        return self._transport.requests

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
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit), "continue": continue_}
        path = _collection(resource, namespace)
        data = await self._transport.call(
            HttpRequest(
                method="GET", path=path, query=_query(query), timeout_seconds=LISTS_TAKE * self._timeout_seconds
            )
        )
        try:
            return read_page(data, resource)
        except UnreadableAnswer as error:
            raise ApiError(f"list of {resource.plural} is unreadable: {error}", reason="Unreadable") from None

    def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> RealWatch[T]:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_seconds),
        }
        request = HttpRequest(
            method="GET",
            path=_collection(resource, namespace),
            query=_query(query),
            timeout_seconds=timeout_seconds + WATCH_MARGIN_SECONDS,
            begin_seconds=self._timeout_seconds,
        )
        return RealWatch(self._transport.lines(request), resource, self._transport.secrets)

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        return read_object(await self._send("GET", _object(resource, name, namespace)), resource)

    async def write(self, write: Write[T]) -> T:
        answer: Any = None
        match write:
            case Create():
                path = _collection(write.resource, write.namespace, complete=True)
                typed = {"apiVersion": write.resource.api_version, "kind": write.resource.kind, **write.body}
                answer = read_object(await self._send("POST", path, typed, query=_MANAGER), write.resource)
            case Patch(body=body, type_=type_):
                data = await self._send("PATCH", _path(write), body, query=_MANAGER, content_type=type_.value)
                answer = read_object(data, write.resource)
            case Delete():
                await self._send("DELETE", _path(write), _delete_options(write))
            case Evict():
                eviction = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": write.name, "namespace": write.namespace},
                    "deleteOptions": _delete_options(write.deletion),
                }
                # No retry: after a refusal the caller waits for a change of the PodDisruptionBudget (R43).
                await self._send("POST", _path(write), eviction, patience=NO_PATIENCE)
            case _:
                raise NotImplementedError(write.verb)
        return cast(T, answer)

    async def _send(
        self,
        method: str,
        path: str,
        body: WriteBody | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        patience: RetryPolicy | None = None,
    ) -> bytes:
        request = HttpRequest(
            method=method,
            path=path,
            query=_query(query or {}),
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            timeout_seconds=self._timeout_seconds,
        )
        return await self._transport.call(request, patience=patience)


def _delete_options(write: Delete) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": write.uid, "resourceVersion": write.resource_version}
    if wanted := {key: value for key, value in preconditions.items() if value}:
        options["preconditions"] = wanted
    if write.grace_seconds is not None:
        options["gracePeriodSeconds"] = write.grace_seconds
    if write.propagation is not None:
        options["propagationPolicy"] = write.propagation.value
    return options


def _collection(resource: Resource[Any], namespace: str | None, *, complete: bool = False) -> str:
    """The path of a collection, in one namespace or in all; a `complete` path needs the namespace."""
    assert resource.namespaced or namespace is None, f"{resource.plural} have no namespace"
    assert namespace or not (complete and resource.namespaced), f"{resource.plural} need a namespace"
    root = f"/apis/{resource.group}" if resource.group else "/api"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}/{resource.version}{inside}/{resource.plural}"


def _object(resource: Resource[Any], name: str, namespace: str | None, subresource: str = "") -> str:
    assert name, "an object is asked for by its name"
    path = f"{_collection(resource, namespace, complete=True)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def _path(write: Write[Any]) -> str:
    return _object(write.resource, write.name, write.namespace, write.subresource)


def _query(parameters: Mapping[str, str]) -> str:
    return urlencode({key: value for key, value in parameters.items() if value})
