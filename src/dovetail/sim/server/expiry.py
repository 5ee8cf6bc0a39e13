"""When do events go? The API server keeps each for an hour after its last write."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from dovetail.ports import EventType, Resource
from dovetail.sim.server.registry import Registry
from dovetail.sim.server.store import Change, Key

EVENT_TTL = timedelta(hours=1)


class EventExpiry:
    """Removes what is due when the next event is written: nobody looks at events while nothing happens."""

    def __init__(self, registry: Registry, soon: Callable[[Callable[[str], None], str], None]) -> None:
        self._registry = registry
        self._soon = soon
        # By the time of the last write, which is also the order.
        self._written: dict[tuple[Resource[Any], Key], datetime] = {}
        registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural != "events":
            return
        meta = change.new.body["metadata"]
        place = (resource, (meta["namespace"], meta["name"]))
        self._written.pop(place, None)
        if change.type is not EventType.DELETED:
            self._written[place] = self._registry.now()
            if self._due():
                self._soon(self._remove_due, "")

    def _due(self) -> bool:
        return next(iter(self._written.values())) + EVENT_TTL <= self._registry.now()

    def _remove_due(self, _: str) -> None:
        while self._written and self._due():
            self._registry.remove(*next(iter(self._written)))
