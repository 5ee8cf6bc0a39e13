"""Reports annotations of guard and drive that cannot be read, which are never acted upon (R32, R48), and holds of pods
that nobody removes."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from dovetail.api import names, objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import about_claim, about_node, about_pod, about_pool, warn
from dovetail.model.finding import Severity
from dovetail.model.pod_records import PodRecord
from dovetail.rules.protection import own_hold
from dovetail.runtime.events import ObjectReference
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.views.findings.beside import LEFT_AFTER, left_holds, mark_findings
from dovetail.views.findings.subject import Subject

log = logging.getLogger(__name__)

_KEYS = (names.HELD, names.ROLLED, names.GRACEFUL_EXPIRE_AFTER, names.OWN_BUDGETS, names.BESIDE)


class MarkedObject(NamedTuple):
    """The key of an object with annotations of ours."""

    kind: str
    namespace: str
    name: str


class InvalidMarks(KeyedController[MarkedObject]):
    """Each bad value is told once for each object."""

    name = "beside.invalid-marks"
    workers = 1

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._told: dict[MarkedObject, set[str]] = {}
        self.own(cluster.pods, _marked_pod)
        self.own(cluster.nodes, lambda node: _marked("Node", node.metadata))
        self.own(cluster.claims, lambda claim: _marked(names.NODECLAIM_KIND, claim.metadata))
        self.own(cluster.pools, lambda pool: _marked(names.NODEPOOL_KIND, pool.metadata))

    async def reconcile(self, key: MarkedObject) -> Outcome:
        marked = self._find(key)
        if marked is None:
            self._told.pop(key, None)
            return Done()
        about, annotations = marked
        subject, now = Subject(0, "", *key), self.clock.now()
        for finding in (*mark_findings(subject, annotations), *left_holds(subject, annotations, now)):
            messages = self._told.setdefault(key, set())
            if finding.severity is not Severity.WARNING or str(finding.message) in messages:
                continue
            messages.add(str(finding.message))
            note = f"{finding.field}: {finding.message}; {finding.remedy}"
            warn(self.recorder, about, EventReason(finding.rule), note, about.uid, str(finding.message))
            log.warning("bad mark", extra={key.kind: about.name, "problem": note})
        hold = own_hold(annotations)
        if hold is None or hold.until <= now - LEFT_AFTER:
            return Done()
        return Done((hold.until - now + LEFT_AFTER).total_seconds())

    def _find(self, key: MarkedObject) -> tuple[ObjectReference, Mapping[str, str]] | None:
        """The object and its annotations, if it still exists."""
        cluster = self._cluster
        if key.kind == "Pod":
            stored = cluster.pods.get((key.namespace, key.name))
            return None if stored is None else (about_pod(stored.value), stored.value.annotations)
        if key.kind == "Node":
            node = cluster.nodes.value(key.name)
            return None if node is None else (about_node(node), node.metadata.annotations)
        if key.kind == names.NODECLAIM_KIND:
            claim = cluster.claims.value(key.name)
            return None if claim is None else (about_claim(claim), claim.metadata.annotations)
        pool = cluster.pools.value(key.name)
        return None if pool is None else (about_pool(pool), pool.metadata.annotations)


def _marked_pod(pod: PodRecord) -> tuple[MarkedObject, ...]:
    return (MarkedObject("Pod", pod.namespace, pod.name),) if names.POD_HOLD in pod.annotations else ()


def _marked(kind: str, metadata: objects.ObjectMeta) -> tuple[MarkedObject, ...]:
    has_marks = any(key in metadata.annotations for key in _KEYS)
    return (MarkedObject(kind, "", metadata.name),) if has_marks else ()
