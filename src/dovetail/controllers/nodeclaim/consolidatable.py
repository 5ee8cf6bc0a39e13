"""Writes `status.lastPodEventTime` of NodeClaims, and the condition Consolidatable some time after it (02 §10).

Each claim has a timer; nothing is polled. Events that happen while the controller runs count when it sees them. Earlier
ones are read from the pods, so a restart neither restarts a window nor misses a pod (R24).
"""

import logging
from datetime import datetime
from typing import Any

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import seconds_until
from dovetail.controllers.base.writing import write_status
from dovetail.controllers.nodeclaim.conditions import ClaimConditions
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import pool_record
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodeclaim.consolidatable import consolidatable, is_pod_event, recordable_at, unrecorded_event
from dovetail.planning.timings import Timings
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Added, Change, Updated
from dovetail.values.timestamp import format_time

log = logging.getLogger(__name__)


class PodEvents(ClaimConditions):
    name = "nodeclaim.podevents"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__(cluster)
        self._timings = timings
        self._seen_at: dict[str, datetime] = {}  # by claim: its last pod event that is not recorded yet
        self._wrote_at: dict[str, datetime] = {}  # by claim: when an event was last recorded
        cluster.pods.subscribe(self._pod_changed)

    def forget(self, key: str) -> None:
        self._seen_at.pop(key, None)
        self._wrote_at.pop(key, None)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        """Notes an event, while the controller runs. The last leader has recorded the earlier ones."""
        if self._queue is None or not isinstance(change, Added | Updated):
            return
        pod = change.new.value
        if not is_pod_event(change.old.value if isinstance(change, Updated) else None, pod):
            return
        node = self.cluster.nodes.value(pod.node_name)
        claim = None if node is None else self.cluster.claim_of(node)
        if claim is not None:
            self._seen_at[claim.metadata.name] = self.cluster.clock.now()
            self.add(claim.metadata.name)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        key, now, record = claim.metadata.name, self.clock.now(), claim_record(claim)
        seen_at = self._seen_at.get(key)
        pods = [pod for node in self.cluster.nodes_of(claim) for pod in self.cluster.pods_on[node.metadata.name]]
        event_at = unrecorded_event(record, pods, seen_at, now)
        record_at = recordable_at(record, self._wrote_at.get(key), self._timings)
        due = event_at is not None and (record_at is None or now >= record_at)
        pool = self.pool_of(claim)
        standing = None if pool is None else consolidatable(record, pool_record(pool), now, event_at=event_at)
        holds = record.is_true(ConditionType.CONSOLIDATABLE) if standing is None else standing.holds
        if due or holds != record.is_true(ConditionType.CONSOLIDATABLE):
            await self._write(claim, holds=holds, event_at=event_at if due else None)
        if due:
            self._wrote_at[key] = now
        if (due or event_at is None) and self._seen_at.get(key) == seen_at:
            self._seen_at.pop(key, None)
        ahead = [record_at if event_at is not None and not due else None, None if standing is None else standing.until]
        return Done(seconds_until(min((at for at in ahead if at is not None), default=None), now))

    async def _write(self, claim: objects.NodeClaim, *, holds: bool, event_at: datetime | None) -> None:
        conditions = Conditions(claim, self.clock.now())
        conditions.set_or_clear(ConditionType.CONSOLIDATABLE, holds)
        fields: dict[str, Any] = {} if event_at is None else {"lastPodEventTime": format_time(event_at)}
        await write_status(self.api, self.cluster, claim, conditions, **fields)
        log.debug("consolidatable: %s", holds, extra={"NodeClaim": claim.metadata.name})
