"""The state of the cluster, kept up to date by one reflector per kind. All controllers share it."""

import logging
from typing import Any, Final

from dovetail.api import names, objects
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.ports import (
    CSI_NODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFULSETS,
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
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.state.cluster import ClusterState, NodeClassKind

log = logging.getLogger(__name__)

SETTLED_AT_ONCE: Final = 250  # nodes joined in one iteration of the event loop: about 5 ms

# What rules read.
_FOLLOWED: Final[tuple[Resource[Any], ...]] = (PODS, NODES, NODECLAIMS, NODEPOOLS, PDBS)
# What decisions of the controller read besides.
_FOR_DECISIONS: Final[tuple[Resource[Any], ...]] = (
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    NAMESPACES,
    DAEMONSETS,
)
# Followed only with default spread constraints.
_SPREAD: Final[tuple[Resource[Any], ...]] = (SERVICES, REPLICASETS, STATEFULSETS, REPLICATION_CONTROLLERS)


class WatchedCluster(ClusterState):
    """Subscribe before you run the reflectors. Without node classes it follows only what rules read."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        node_classes: Resource[objects.NodeClass] | None = None,
        *,
        seed: int = 0,
        timings: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
        failures: Failures | None = None,
        scheduler_profiles: SchedulerProfiles | None = None,
        well_known_labels: frozenset[str] = names.WELL_KNOWN_LABELS,
        settings: RuleSettings = DEFAULT_SETTINGS,
        decides: bool | None = None,
    ) -> None:
        """`decides`: follow what decisions read, too; by default, with node classes."""
        decides = node_classes is not None if decides is None else decides
        failures = failures or Failures()
        super().__init__(
            None if node_classes is None else NodeClassKind(node_classes.group, node_classes.kind, node_classes.plural),
            failed=failures.take,
            warn=lambda line: log.warning("%s", line),
            scheduler_profiles=scheduler_profiles,
            well_known_labels=well_known_labels,
            settings=settings,
            scheduling=decides,
        )
        self.clock = clock
        self._settling = False

        def follow(resource: Resource[Any]) -> Reflector[Any, Any]:
            store, reading = self.stores[resource.plural], self.reading(resource.plural)
            read = resource.read_as(reading.struct)
            return Reflector(api, clock, read, reading.keep, seed=seed, timings=timings, failures=failures, store=store)

        followed = _FOLLOWED
        if decides:
            spread = (resource for resource in _SPREAD if resource.plural in self.stores)
            followed = (*_FOLLOWED, *_FOR_DECISIONS, *spread, *([] if node_classes is None else [node_classes]))
        self.reflectors = [follow(resource) for resource in followed]

    async def settled(self) -> None:
        """Derives what changed, in short iterations of the event loop, so that the next reader has little to do."""
        waited = False
        while self._settling:  # one slice per iteration, however many tasks wait
            waited = True
            await self.clock.sleep(0)
        self._settling = True
        try:
            while self.settle(SETTLED_AT_ONCE):
                await self.clock.sleep(0)
            if waited:  # tasks that waited together do not continue in the same iteration
                await self.clock.sleep(0)
        finally:
            self._settling = False
