"""Limits how fast pods are evicted from nodes that are not Ready, zone by zone.

In each zone one node at a time gets the taint that evicts its pods. If most nodes of a zone are not Ready, the zone
itself is taken to be faulty: a small zone keeps its pods, a large one loses them slowly. If no node of a zone is Ready,
its pods are better off elsewhere. If no node of the cluster is Ready, the control plane is blind and evicts no pods.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.api.names import REGION_LABEL, ZONE_LABEL
from dovetail.sim.actors.wire import Raw, condition_status, labels_of

# The defaults of kube-controller-manager.
INTERVAL = timedelta(seconds=10)
SLOW_INTERVAL = timedelta(seconds=100)
UNHEALTHY_SHARE = 0.55
LARGE_ZONE = 50
_FEW = 2  # up to this number of unready nodes, the zone is not faulty

ZoneKey = tuple[str, str]  # region and zone


class _NodeReadiness(NamedTuple):
    place: ZoneKey
    ready: bool
    silent: bool  # no kubelet has reported yet


class Zones:
    """The states of nodes by zone, and when pods of the next node may be evicted."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeReadiness] = {}
        self._size: Counter[ZoneKey] = Counter()
        self._ready: Counter[ZoneKey] = Counter()
        self._spoken = 0
        self._next_at: dict[ZoneKey, datetime] = {}

    @property
    def outage(self) -> bool:
        """Whether nodes have reported, and none is Ready."""
        return self._spoken > 0 and not any(self._ready.values())

    def update(self, name: str, node: Raw | None, now: datetime) -> list[str]:
        """Apply a change of the node, and return the nodes that it affects."""
        before, after = self._nodes.get(name), None if node is None else _state(node)
        if before == after:
            return []
        outage = self.outage
        stopped = {state.place for state in (before, after) if state and self._interval(state.place) is None}
        for state, by in ((before, -1), (after, 1)):
            if state is not None:
                self._size[state.place] += by
                self._ready[state.place] += by * state.ready
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
        """From when on pods of the node may be evicted; None: not in the current state."""
        place = self._nodes[name].place
        if self.outage or self._interval(place) is None:
            return None
        return self._next_at.get(place, now)

    def took_turn(self, name: str, now: datetime) -> None:
        """Start the wait of the next node in the zone."""
        place = self._nodes[name].place
        self._next_at[place] = now + (self._interval(place) or INTERVAL)

    def _interval(self, place: ZoneKey) -> timedelta | None:
        """The time between two nodes; None: no pods are evicted."""
        size = self._size[place]
        unready = size - self._ready[place]
        if unready <= _FEW or unready == size or unready / size < UNHEALTHY_SHARE:
            return INTERVAL
        return SLOW_INTERVAL if size > LARGE_ZONE else None


def _state(node: Raw) -> _NodeReadiness:
    labels, ready = labels_of(node), condition_status(node, "Ready")
    return _NodeReadiness((labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")), ready == "True", ready is None)
