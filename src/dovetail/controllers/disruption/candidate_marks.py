"""Writes the candidate taint to nodes with a reason to be disrupted, so that kube-scheduler prefers others (R22, S2).

No decision waits for the taint, and scheduling simulations ignore it.
"""

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
# Thousands of nodes may drift at once. The limit spares the API server.
RATE: Final = Rate(per_second=10, burst=20)


class CandidateMarks(KeyedController[str]):
    """The controller of candidate taints. Keys are names of Nodes."""

    name = "disruption.marks"
    workers = 1

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._wanted: frozenset[str] | None = None  # None before the first pass
        self._bucket: TokenBucket | None = None
        self.own(cluster.nodes, lambda node: [node.metadata.name] if self._is_wrong(node) else [])

    def want(self, nodes: frozenset[str]) -> None:
        """Sets the nodes that have the taint from now on."""
        changed = nodes ^ (self._wanted or frozenset())
        first, self._wanted = self._wanted is None, nodes
        for name in self.keys() if first else sorted(changed):
            self.add(name)

    def _is_wrong(self, node: objects.Node) -> bool:
        if self._wanted is None or not self._cluster.manages_node(node):
            return False
        return is_marked(node) != (node.metadata.name in self._wanted and node.metadata.deletion_timestamp is None)

    async def reconcile(self, key: str) -> Outcome:
        node = self._wrong(key)
        while node is not None and (seconds := self._wait_seconds()):
            await self.clock.sleep(seconds)  # there is one worker: a delay per key would requeue all keys each time
            node = self._wrong(key)
        if node is not None:
            others = [taint for taint in node.spec.taints if not taint.matches(MARK)]
            taints = others if is_marked(node) else [*others, MARK]
            await write_node(self.api, self._cluster, node, {"spec": {"taints": [to_body(taint) for taint in taints]}})
        return Done()

    def _wrong(self, key: str) -> objects.Node | None:
        """The node, if its taint has to change."""
        node = self._cluster.nodes.get_consistent(key)
        if node is None or node.metadata.deletion_timestamp is not None:
            return None
        return node if self._is_wrong(node) else None

    def _wait_seconds(self) -> float:
        """Seconds until the next write is allowed; 0: now."""
        at = self.clock.monotonic()
        self._bucket = self._bucket or TokenBucket(RATE, at=at)
        return 0.0 if self._bucket.take(at) else self._bucket.wait_seconds(at)


def is_marked(node: objects.Node) -> bool:
    return any(taint.matches(MARK) for taint in node.spec.taints)
