"""Reads the commands that the program records on NodeClaims (R24), independently of the code that writes them."""

from datetime import datetime

import msgspec

from dovetail.api import names
from dovetail.sim.actors.wire import Raw, annotations_of, labels_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster, begins_to_go
from dovetail.sim.server.store import Change


class RecordedCommand(msgspec.Struct, frozen=True):
    """The content of the annotation."""

    id: str
    reason: str
    method: str
    deadline: datetime
    replacements: tuple[str, ...] = ()


def record_on(claim: Raw) -> RecordedCommand | None:
    """The record on the claim; None if it is absent or invalid."""
    text = annotations_of(claim).get(names.DISRUPTION_COMMAND)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RecordedCommand)
    except (msgspec.MsgspecError, RecursionError):
        return None


class TrackedCommand(msgspec.Struct):
    """A command since it was first recorded."""

    began_at: datetime
    labels: dict[str, dict[str, str]]  # of its claims, by name
    going: set[str]  # claims that the program has deleted
    given_up: bool = False

    @property
    def is_done(self) -> bool:
        return not self.given_up and self.going == self.labels.keys()


class CommandTracker:
    """All commands of a run, by id."""

    def __init__(self, scene: CheckedCluster) -> None:
        self._scene = scene
        self.begun: dict[str, TrackedCommand] = {}

    def claim_changed(self, change: Change) -> RecordedCommand | None:
        """The command that the program records on the claim with this change, if any."""
        old = None if change.old is None else record_on(change.old.body)
        new, name = record_on(change.new.body), str(change.new.body["metadata"]["name"])
        if old is not None and old.id in self.begun:
            tracked = self.begun[old.id]
            if begins_to_go(change) and self._scene.by_us:
                tracked.going.add(name)
            tracked.given_up = tracked.given_up or new is None
        if new is None or (old is not None and old.id == new.id) or not self._scene.by_us:
            return None
        tracked = self.begun.setdefault(new.id, TrackedCommand(self._scene.now(), {}, set()))
        tracked.labels[name] = dict(labels_of(change.new.body))
        return new
