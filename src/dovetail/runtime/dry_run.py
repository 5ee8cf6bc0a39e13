"""An API that logs writes instead of sending them, for `--dry-run`.

Each write is logged once and then raises WouldWrite, so that the caller does not go on. Events are logged and count as
sent, because nothing depends on them.
"""

import logging
from typing import Any, Final, TypeVar

import msgspec

from dovetail.ports import EVENTS, ApiError, Create, Delete, Evict, KubeApi, Patch, Resource, Write, WriteBody
from dovetail.runtime.read_through import ReadThroughApi

log = logging.getLogger(__name__)

T = TypeVar("T")

REMEMBERED_AT_MOST: Final = 10_000


class WouldWrite(ApiError):
    """A write was not sent. There is nothing more to do until the object changes."""


class DryRunApi(ReadThroughApi):
    """Passes reads on and logs writes."""

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api)
        self._told: dict[bytes, None] = {}  # oldest first

    async def write(self, write: Write[T]) -> T:
        verb, resource, body = write.verb, write.resource, _body(write)
        if isinstance(write, Create | Patch) and (resource.group, resource.plural) == (EVENTS.group, EVENTS.plural):
            if isinstance(write, Create):
                self._tell("publish", resource, str(body.get("reason", "")), write.namespace, _gist(body))
            event: T = msgspec.convert(body, resource.struct)
            return event
        if isinstance(write, Patch):
            verb = f"patch {write.subresource}".rstrip()
        self._tell(verb, resource, write.name, write.namespace, body)
        raise WouldWrite(f"a dry run does not {verb} {resource.kind} {write.name}", reason="DryRun")

    def _tell(self, verb: str, resource: Resource[Any], name: str, namespace: str | None, body: WriteBody) -> None:
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


def _body(write: Write[Any]) -> WriteBody:
    match write:
        case Create() | Patch():
            return write.body
        case Delete() | Evict():
            return {"uid": write.uid, "graceSeconds": write.grace_seconds}
    raise NotImplementedError(write.verb)


def _gist(event: WriteBody) -> dict[str, Any]:
    """The content of an event without its time and name, and the object that it is about."""
    about = event.get("regarding", {})
    where = "/".join(filter(None, (about.get("kind"), about.get("namespace"), about.get("name"))))
    return {"regarding": where, **{key: event[key] for key in ("type", "note") if key in event}}
