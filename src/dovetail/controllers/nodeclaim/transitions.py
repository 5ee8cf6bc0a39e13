"""Publishes an event for each condition of a NodeClaim or NodePool that changes its status (04 §2.3)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.runtime.events import Event, EventRecorder, ObjectReference
from dovetail.runtime.manager import Context
from dovetail.state.store import Change, Updated

T = TypeVar("T", objects.NodeClaim, objects.NodePool)


class Transitions:
    """The publisher of these events. It ignores conditions that did not exist before: new objects need no events."""

    name = "status.transitions"

    def __init__(self, cluster: WatchedCluster) -> None:
        self._recorder: EventRecorder | None = None
        cluster.claims.subscribe(self._publisher(names.NODECLAIM_KIND, cluster.manages_claim))
        cluster.pools.subscribe(self._publisher(names.NODEPOOL_KIND, cluster.manages_pool))

    async def run(self, context: Context) -> None:
        self._recorder = context.recorder
        await context.stopping.wait()
        self._recorder = None

    def _publisher(self, kind: str, is_ours: Callable[[T], bool]) -> Callable[[Change[T]], None]:
        def on_change(change: Change[T]) -> None:
            if self._recorder is None or not isinstance(change, Updated):
                return
            old, new = change.old.value, change.new.value
            if not is_ours(new):
                return
            about = ObjectReference(names.API_VERSION, kind, new.metadata.name, new.metadata.uid)
            for type_, note in transitions(old.status.conditions, new.status.conditions):
                self._recorder.publish(Event(regarding=about, reason=type_, note=note))

        return on_change


def transitions(old: Sequence[objects.Condition], new: Sequence[objects.Condition]) -> list[tuple[str, str]]:
    """Returns the types of conditions whose status changed, each with a sentence. The state S1–S6 does not count."""
    before = {entry.type: entry for entry in old}
    changes = []
    for entry in new:
        was = before.get(entry.type)
        if was is None or was.status == entry.status or entry.type == ConditionType.DISRUPTION_STATE:
            continue
        note = f"Status condition transitioned, Type: {entry.type}, Status: {was.status} -> {entry.status}"
        note += f", Reason: {entry.reason}"
        changes.append((entry.type, f"{note}, Message: {entry.message}" if entry.message else note))
    return changes
