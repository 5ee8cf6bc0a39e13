"""What would be written, if writing were allowed?

Reads pass. Whatever would change something is told in the log, once as long as it stays the same, and raised: what was
to follow does not follow. Events are told and pass for sent: nothing depends on them.
"""

import logging
from typing import Any, Final, TypeVar

import msgspec

from dovetail.ports import (
    EVENTS,
    PODS,
    ApiError,
    Body,
    KubeApi,
    PatchType,
    Propagation,
    Resource,
)
from dovetail.runtime.passing import PassingReads

log = logging.getLogger(__name__)

T = TypeVar("T")

REMEMBERED_AT_MOST: Final = 10_000


class WouldWrite(ApiError):
    """Not sent, because nothing is to be written. Until the object changes there is nothing more to do."""


class DryRunApi(PassingReads):
    """The API of somebody who only looks."""

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api)
        self._told: dict[bytes, None] = {}  # oldest first

    async def create(self, resource: Resource[T], body: Body, *, namespace: str | None = None) -> T:
        if _are_events(resource):
            self._tell("publish", resource, str(body.get("reason", "")), namespace, _gist(body))
            return msgspec.convert(body, resource.struct)
        raise self._would("create", resource, str(body.get("metadata", {}).get("name", "")), namespace, body)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        type_: PatchType = PatchType.MERGE,  # noqa: ARG002
        subresource: str = "",
    ) -> T:
        if _are_events(resource):
            return msgspec.convert(body, resource.struct)
        raise self._would(f"patch {subresource}".rstrip(), resource, name, namespace, body)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str | None = None,
        uid: str = "",
        resource_version: str = "",  # noqa: ARG002
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,  # noqa: ARG002
    ) -> None:
        raise self._would("delete", resource, name, namespace, {"uid": uid, "graceSeconds": grace_seconds})

    async def evict(self, name: str, *, namespace: str, uid: str = "", grace_seconds: int | None = None) -> None:
        raise self._would("evict", PODS, name, namespace, {"uid": uid, "graceSeconds": grace_seconds})

    def _would(self, verb: str, resource: Resource[Any], name: str, namespace: str | None, body: Body) -> WouldWrite:
        self._tell(verb, resource, name, namespace, body)
        return WouldWrite(f"a dry run does not {verb} {resource.kind} {name}", reason="DryRun")

    def _tell(self, verb: str, resource: Resource[Any], name: str, namespace: str | None, body: Body) -> None:
        metadata = {key: value for key, value in body.get("metadata", {}).items() if key != "resourceVersion"}
        wanted = {**body, "metadata": metadata} if metadata else {k: v for k, v in body.items() if k != "metadata"}
        key = msgspec.json.encode((verb, resource.group, resource.plural, namespace, name, wanted), enc_hook=str)
        if key in self._told:
            return
        self._told[key] = None
        if len(self._told) > REMEMBERED_AT_MOST:
            del self._told[next(iter(self._told))]
        where = f"{namespace}/{name}" if namespace else name
        log.info(
            "would %s %s %s", verb, resource.kind, where, extra={resource.kind: where, "verb": verb, "body": wanted}
        )


def _are_events(resource: Resource[Any]) -> bool:
    return (resource.group, resource.plural) == (EVENTS.group, EVENTS.plural)


def _gist(event: Body) -> dict[str, Any]:
    """What an event says, without when and under which name."""
    return {key: event[key] for key in ("regarding", "type", "note") if key in event}
