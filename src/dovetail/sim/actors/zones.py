"""How fast may the nodes that are not Ready be emptied? Zone by zone, and not at all if that would make things worse.

One node of a zone at a time gets the taint that drives its pods off. If most of a zone is not Ready, the fault is taken
to be the zone's: a small zone is left alone, a large one emptied slowly. If all of it is not Ready its pods are better
off elsewhere; but if no node of the cluster is Ready, it is the control plane that is blind, and nobody is driven off.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.api.names import REGION_LABEL, ZONE_LABEL
from dovetail.sim.actors.wire import Raw, condition_status, labels_of

# The defaults of kube-controller-manager.
INTERVAL = timedelta(seconds=10)
SLOW_INTERVAL = timedelta(seconds=100)
UNHEALTHY_SHARE = 0.55
LARGE_ZONE = 50
_FEW = 2  # so many nodes are no fault of their zone's, whatever their share

Place = tuple[str, str]  # region and zone


class _NodeReadiness(NamedTuple):
    place: Place
    ready: bool
    silent: bool  # nobody has spoken for the node yet


class Zones:
    """What is known of the nodes, zone by zone, and when the next one may be emptied."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeReadiness] = {}
        self._size: dict[Place, int] = {}
        self._ready: dict[Place, int] = {}
        self._spoken = 0
        self._next_at: dict[Place, datetime] = {}

    @property
    def outage(self) -> bool:
        """Whether no node is Ready, as far as anybody has spoken."""
        return self._spoken > 0 and not any(self._ready.values())

    def update(self, name: str, node: Raw | None, now: datetime) -> list[str]:
        """Take over what has become of the node; the nodes that have to be looked at for it."""
        before, after = self._nodes.get(name), None if node is None else _state(node)
        if before == after:
            return []
        outage = self.outage
        stopped = {
            state.place for state in (before, after) if state is not None and self._interval(state.place) is None
        }
        for state, by in ((before, -1), (after, 1)):
            if state is not None:
                self._size[state.place] = self._size.get(state.place, 0) + by
                self._ready[state.place] = self._ready.get(state.place, 0) + by * state.ready
                self._spoken += by * (not state.silent)
        if after is None:
            del self._nodes[name]
        else:
            self._nodes[name] = after
        resumed = {place for place in stopped if self._interval(place) is not None}
        if self.outage != outage:
            resumed = set(self._size)
        for place in resumed:
            self._next_at[place] = now + (self._interval(place) or INTERVAL)
        return [name for name, state in self._nodes.items() if state.place in resumed]

    def turn(self, name: str, now: datetime) -> datetime | None:
        """From when on the node may be emptied; None: not as things are."""
        place = self._nodes[name].place
        if self.outage or self._interval(place) is None:
            return None
        return self._next_at.get(place, now)

    def took_turn(self, name: str, now: datetime) -> None:
        """The node is emptied: the next one of its zone has to wait."""
        place = self._nodes[name].place
        self._next_at[place] = now + (self._interval(place) or INTERVAL)

    def _interval(self, place: Place) -> timedelta | None:
        """The time between two nodes; None: none is emptied."""
        size = self._size.get(place, 0)
        unready = size - self._ready.get(place, 0)
        if unready <= _FEW or unready == size or unready / size < UNHEALTHY_SHARE:
            return INTERVAL
        return SLOW_INTERVAL if size > LARGE_ZONE else None


def _state(node: Raw) -> _NodeReadiness:
    labels, said = labels_of(node), condition_status(node, "Ready")
    return _NodeReadiness((labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")), said == "True", said is None)
