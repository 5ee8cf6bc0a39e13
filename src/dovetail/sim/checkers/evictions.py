"""Checks that a graceful command evicts or deletes every pod before it removes the Node (R58)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import names
from dovetail.api.names import TaintEffect
from dovetail.ports import PODS, EventType
from dovetail.sim.actors.scheduling.demand import toleration_matches
from dovetail.sim.actors.wire import Raw, condition_of, deleting, finished
from dovetail.sim.checkers.checked_cluster import CheckedCluster, provider_id
from dovetail.sim.checkers.records import record_on
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import parse_time

RULE: Final = "evicted"
_TAINT: Final = {"key": names.DISRUPTED_TAINT, "value": "", "effect": str(TaintEffect.NO_SCHEDULE)}
_INSTANCE_LOST: Final = timedelta(minutes=1)


class EvictionChecker:
    """Checks a Node when the program removes its finalizer: no pod is evicted after that."""

    def __init__(self, scene: CheckedCluster) -> None:
        self._scene = scene

    def node_changed(self, change: Change) -> None:
        old = change.old
        if old is None or not self._scene.by_us or not _is_held(old.body):
            return
        if change.type is not EventType.DELETED and _is_held(change.new.body):
            return
        claim = self._scene.member_of_node(old.body).claim
        if claim is None or record_on(claim) is None:
            return
        if self._may_be_lost(old.body):
            self._scene.not_applied[RULE] += 1
            return
        self._scene.applied[RULE] += 1
        for pod in self._left(old.body["metadata"]["name"]):
            message = f"was neither evicted nor deleted, and its Node {old.body['metadata']['name']} is let go"
            self._scene.report(RULE, pod, message)

    def _left(self, node: str) -> Iterable[Raw]:
        for stored in self._scene.pods_on(node):
            pod, meta = stored.body, stored.body["metadata"]
            if finished(pod) or deleting(pod) or _stays(pod):
                continue
            if not self._scene.is_news([(PODS, meta["name"], meta["namespace"])]):
                yield pod

    def _may_be_lost(self, node: Raw) -> bool:
        """Whether the instance may be gone. For kwok the Node decides; for another cloud this is not known."""
        ready = condition_of(node, "Ready")
        if ready is not None and ready["status"] == "True":
            return False
        if not provider_id(node).startswith(names.KWOK_PROVIDER_ID_PREFIX):
            return True
        since: list[datetime] = [parse_time(node["metadata"]["deletionTimestamp"])]
        if ready is not None:
            since.append(parse_time(ready["lastTransitionTime"]))
        return self._scene.now() >= max(since) + _INSTANCE_LOST


def _is_held(node: Raw) -> bool:
    return names.TERMINATION_FINALIZER in (node["metadata"].get("finalizers") or ())


def _stays(pod: Raw) -> bool:
    """Whether drains ignore the pod (03 §4.1)."""
    tolerations = pod["spec"].get("tolerations") or ()
    mirror = any(owner["kind"] == "Node" for owner in pod["metadata"].get("ownerReferences") or ())
    return mirror or any(toleration_matches(toleration, _TAINT) for toleration in tolerations)
