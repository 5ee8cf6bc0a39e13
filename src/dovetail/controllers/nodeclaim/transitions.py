"""Tells of every condition of a NodeClaim or NodePool that changes its status (04 §2.3)."""

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
    """Only of conditions that were there before: that an object is new shows anyway."""

    name = "status.transitions"

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._recorder: EventRecorder | None = None
        cluster.claims.subscribe(self._told(names.NODECLAIM_KIND, lambda claim: claim.spec.node_class_ref))
        cluster.pools.subscribe(self._told(names.NODEPOOL_KIND, lambda pool: pool.spec.template.spec.node_class_ref))

    async def run(self, context: Context) -> None:
        self._recorder = context.recorder
        await context.stopping.wait()
        self._recorder = None

    def _told(self, kind: str, class_of: Callable[[T], objects.NodeClassReference]) -> Callable[[Change[T]], None]:
        def told(change: Change[T]) -> None:
            if self._recorder is None or not isinstance(change, Updated):
                return
            old, new = change.old.value, change.new.value
            if not self._cluster.manages(class_of(new)):
                return  # whoever does tells of it
            about = ObjectReference(names.API_VERSION, kind, new.metadata.name, new.metadata.uid)
            for type_, note in transitions(old.status.conditions, new.status.conditions):
                self._recorder.publish(Event(regarding=about, reason=type_, note=note))

        return told


def transitions(old: Sequence[objects.Condition], new: Sequence[objects.Condition]) -> list[tuple[str, str]]:
    """Types of the conditions whose status is another, each with a sentence. Our own state S1–S6 is never another."""
    before = {entry.type: entry for entry in old}
    found = []
    for entry in new:
        was = before.get(entry.type)
        if was is None or was.status == entry.status or entry.type == ConditionType.DISRUPTION_STATE:
            continue
        note = f"Status condition transitioned, Type: {entry.type}, Status: {was.status} -> {entry.status}"
        note += f", Reason: {entry.reason}"
        found.append((entry.type, f"{note}, Message: {entry.message}" if entry.message else note))
    return found
