"""Marks nodes that have a standing reason to go, so that the scheduler prefers others (R22, S2).

A mark is for the scheduler and for people: no decision waits for it, and simulations do not see it.
"""

from collections.abc import Iterable
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import TaintEffect
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import write_node
from dovetail.planning.nodeclaim.lifecycle import to_body
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.rate import Rate, TokenBucket

MARK: Final = objects.Taint(key=names.CANDIDATE_TAINT, effect=TaintEffect.PREFER_NO_SCHEDULE)
# A cluster in which thousands of nodes drift at once is not the better for thousands of writes at once.
RATE: Final = Rate(per_second=10, burst=20)


class CandidateMarks(KeyedController[str]):
    """Keys are names of Nodes."""

    name = "disruption.marks"
    workers = 1

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._wanted: frozenset[str] | None = None  # None: no pass has told yet
        self._bucket: TokenBucket | None = None
        self.follow(cluster.nodes, lambda node: [node.metadata.name] if self._is_wrong(node) else [])

    def want(self, nodes: frozenset[str]) -> None:
        """From now on these, and no others."""
        changed = nodes ^ (self._wanted or frozenset())
        first, self._wanted = self._wanted is None, nodes
        for name in self.keys() if first else sorted(changed):
            self.add(name)

    def keys(self) -> Iterable[str]:
        return [node.metadata.name for node in self._cluster.nodes.values() if self._is_wrong(node)]

    def _is_wrong(self, node: objects.Node) -> bool:
        if self._wanted is None or not self._cluster.manages_node(node):
            return False
        return is_marked(node) != (node.metadata.name in self._wanted and node.metadata.deletion_timestamp is None)

    async def reconcile(self, key: str) -> Outcome:
        node = self._wrong(key)
        while node is not None and (seconds := self._waits()):
            await self.clock.sleep(seconds)  # in the one worker: if each put itself off, all would come back each time
            node = self._wrong(key)
        if node is not None:
            kept = [taint for taint in node.spec.taints if not taint.matches(MARK)]
            taints = kept if is_marked(node) else [*kept, MARK]
            await write_node(self.api, self._cluster, node, {"spec": {"taints": [to_body(taint) for taint in taints]}})
        return Done()

    def _wrong(self, key: str) -> objects.Node | None:
        """The node, if a write would change it."""
        node = self._cluster.nodes.current(key)
        if node is None or node.metadata.deletion_timestamp is not None:
            return None
        return node if self._is_wrong(node) else None

    def _waits(self) -> float:
        """Seconds until the next write may be made; 0: it is this one's turn."""
        at = self.clock.monotonic()
        self._bucket = self._bucket or TokenBucket(RATE, at=at)
        return 0.0 if self._bucket.take(at) else self._bucket.wait_seconds(at)


def is_marked(node: objects.Node) -> bool:
    return any(taint.matches(MARK) for taint in node.spec.taints)
