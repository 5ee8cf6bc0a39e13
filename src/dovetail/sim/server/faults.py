"""Faults on the way to the API server and back: tests arm them, and requests meet them.

server.faults.add(Fault(error=Unavailable("down")), verb="patch", resource=NODES)
server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=True), verb="create", times=3)
server.faults.add(Fault(delay_seconds=30), name="web-1")
server.faults.add(Fault(error=Gone("too old")), verb="watch")
server.faults.drop_watches(PODS)
"""

from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.ports import ApiError, Resource


class ApiRequest(msgspec.Struct, frozen=True):
    """A request as faults see it. The verbs are list, watch, get, create, patch, delete and evict."""

    verb: str
    resource: Resource[Any]
    namespace: str | None
    name: str
    subresource: str
    client: str


class Fault(msgspec.Struct, frozen=True):
    """An error before or after the request takes effect, a delay, or both."""

    error: ApiError | None = None
    after: bool = False
    delay_seconds: float = 0.0


class _ArmedFault(msgspec.Struct):
    fault: Fault
    times: int
    matches: Callable[[ApiRequest], bool]


class Faults:
    """The armed faults, oldest first. A request meets at most one."""

    def __init__(self) -> None:
        self._armed: list[_ArmedFault] = []
        self.drop_watches: Callable[[Resource[Any] | None], None] = lambda _resource: None

    def add(
        self,
        fault: Fault,
        *,
        verb: str | None = None,
        resource: Resource[Any] | None = None,
        name: str | None = None,
        subresource: str | None = None,
        client: str | None = None,
        times: int = 1,
        when: Callable[[ApiRequest], bool] | None = None,
    ) -> None:
        """Let the next `times` matching requests meet the fault; None matches all."""
        wanted = (verb, None if resource is None else (resource.group, resource.plural), name, subresource, client)

        def matches(request: ApiRequest) -> bool:
            resource = (request.resource.group, request.resource.plural)
            actual = (request.verb, resource, request.name, request.subresource, request.client)
            same = all(want is None or want == has for want, has in zip(wanted, actual, strict=True))
            return same and (when is None or when(request))

        self._armed.append(_ArmedFault(fault, times, matches))

    def clear(self) -> None:
        """Disarm all."""
        self._armed.clear()

    def take(self, request: ApiRequest) -> Fault | None:
        """The fault that the request meets."""
        for armed in self._armed:
            if armed.matches(request):
                armed.times -= 1
                if armed.times <= 0:
                    self._armed.remove(armed)
                return armed.fault
        return None

    @property
    def pending(self) -> bool:
        """Whether any fault is still armed."""
        return bool(self._armed)
