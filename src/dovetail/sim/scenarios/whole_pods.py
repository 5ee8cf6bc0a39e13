"""Pods of a dump that lack nothing, which are most: nothing has to be filled in before scheduling reads them."""

import msgspec

from dovetail.api.documents import Document
from dovetail.api.pod_specs import SchedulingPod
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.sim.scenarios.wire_checks import whole_pod


class WholePod(msgspec.Struct, frozen=True, gc=False):
    """Such a pod, as scheduling reads it."""

    record: PodRecord
    owner_uids: tuple[str, ...]
    controller_uid: str
    priority_class: str
    priority: int | None


class WholePods:
    """Reads each pod once, for whoever needs it first: rules and scheduling share its record."""

    def __init__(self, interner: PodInterner) -> None:
        self._interner = interner
        self._known: dict[int, tuple[Document, WholePod]] = {}  # by the `id` of the document, which is kept for that

    def read(self, document: Document) -> tuple[SchedulingPod, PodRecord] | None:
        """The pod and its record; None if something has to be checked or filled in."""
        pod = whole_pod(document)
        if pod is None:
            return None
        whole = self._made(pod)
        self._known[id(document)] = document, whole
        return pod, whole.record

    def of(self, document: Document) -> WholePod | None:
        known = self._known.get(id(document))
        if known is not None:
            return known[1]
        pod = whole_pod(document)
        return None if pod is None else self._made(pod)

    def _made(self, pod: SchedulingPod) -> WholePod:
        owners, controller, spec = pod.metadata.owner_references, "", pod.spec
        for owner in owners:
            if owner.controller:
                controller = owner.uid
                break
        uids = tuple([owner.uid for owner in owners])
        return WholePod(self._interner.watched_pod(pod), uids, controller, spec.priority_class_name, spec.priority)
