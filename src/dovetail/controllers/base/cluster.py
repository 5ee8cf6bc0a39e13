"""The state of the cluster, kept up by watches: one reflector a kind, shared by all controllers.

Large kinds are kept as compact records, the ones we write as partial structs.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from dovetail.api import objects, pod_specs
from dovetail.model.records import Recorder, pdb_record
from dovetail.ports import (
    CSI_NODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Clock,
    KubeApi,
    Resource,
)
from dovetail.runtime.failures import Failures
from dovetail.runtime.reflector import Reflector, ReflectorTimings
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.store import Named, Store

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Named)
V = TypeVar("V")

SETTLED_AT_ONCE = 500  # nodes joined in one turn of the event loop: some 5 ms


def _same(item: T) -> T:
    return item


class Cluster(ClusterState):
    """Run the reflectors; subscribe before."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        node_classes: Resource[objects.NodeClass],
        *,
        seed: int = 0,
        timings: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
        failures: Failures | None = None,
    ) -> None:
        failures = failures or Failures()
        super().__init__(
            NodeClassKind(node_classes.group, node_classes.kind, node_classes.plural),
            failed=failures.take,
            warn=lambda line: log.warning("%s", line),
        )
        self.clock = clock

        def follow(store: Store[V], resource: Resource[T], keep: Callable[[T], V]) -> Reflector[Any, Any]:
            return Reflector(api, clock, resource, keep, seed=seed, timings=timings, failures=failures, store=store)

        self.reflectors: list[Reflector[Any, Any]] = [
            follow(self.pods, PODS.read_as(pod_specs.WatchedPod), Recorder().watched_pod),
            follow(self.nodes, NODES, _same),
            follow(self.claims, NODECLAIMS, _same),
            follow(self.pools, NODEPOOLS, _same),
            follow(self.node_classes, node_classes.read_as(objects.NodeClass), _same),
            follow(self.pdbs, PDBS, pdb_record),
            follow(self.attachments, VOLUME_ATTACHMENTS, _same),
            follow(self.stored_claims, VOLUME_CLAIMS, _same),
            follow(self.volumes, VOLUMES, _same),
            follow(self.storage_classes, STORAGE_CLASSES, _same),
            follow(self.csi_nodes, CSI_NODES, _same),
            follow(self.namespaces, NAMESPACES, lambda namespace: namespace.metadata.labels),
            follow(self.daemon_sets, DAEMONSETS, _same),
        ]

    async def settled(self) -> None:
        """Derive what has changed, in short turns of the event loop, so that whoever looks next has little to do."""
        while self.settle(SETTLED_AT_ONCE):
            await self.clock.sleep(0)
