"""The default spread constraints of the pods of the cluster, from Services and the controllers of pods."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from dovetail.api.objects import LabelSelector
from dovetail.api.pod_specs import ReplicaSet, ReplicationController, Service
from dovetail.model.pod_records import PodRecord
from dovetail.scheduling.default_spread import DefaultSpread, SchedulerProfiles, deduced_selector, owner_selector
from dovetail.state.cluster import ClusterState
from dovetail.state.store import Change, Index, Store, Synced, values_of
from dovetail.values.selector import Selector, SelectorIndex, make_selector

# Stores of the controllers of pods, by kind.
_OWNERS: Final = {
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "ReplicationController": "replicationcontrollers",
}


class DefaultSpreadIndex:
    """Deduces constraints, and calls `changed` with the pods whose constraints may have changed."""

    def __init__(
        self, cluster: ClusterState, profiles: SchedulerProfiles, changed: Callable[[Iterable[PodRecord]], None]
    ) -> None:
        self._profiles = profiles
        self._services: Store[Service] = cluster.stores["services"]
        self._services_in = Index(self._services, lambda service: service.metadata.namespace)
        self._selectors_in: dict[str, SelectorIndex[Selector]] = {}  # by namespace, made when needed
        self._owners: dict[str, Store[Any]] = {kind: cluster.stores[plural] for kind, plural in _OWNERS.items()}
        self._pods_in = Index(cluster.pods, lambda pod: pod.namespace)
        self._pods_of = Index(cluster.pods, _owner_path)
        self._changed = changed
        self._services.subscribe(self._services_changed)
        for kind, store in self._owners.items():
            store.subscribe(partial(self._owner_changed, kind))

    def of(self, pod: PodRecord) -> DefaultSpread | None:
        """The constraints that the pod has by default, from the objects as they are now."""
        assert pod.scheduling is not None, "the watch reads it"
        if pod.scheduling.spec.topology_spread_constraints:
            return None
        constraints = self._profiles.constraints(pod.scheduling.spec.scheduler_name)
        if not constraints:
            return None
        services = self._selectors(pod.namespace).matching(pod.labels)
        selector = deduced_selector(services, self._owner(pod))
        return None if selector is None else DefaultSpread(constraints, selector)

    def _selectors(self, namespace: str) -> SelectorIndex[Selector]:
        known = self._selectors_in.get(namespace)
        if known is None:
            known = SelectorIndex()
            services = self._services_in[namespace]
            for service in services:
                if service.spec.selector:  # a Service without one selects nothing
                    selector = make_selector(service.spec.selector)
                    known.add(selector, selector)
            if services:  # their changes remove it again
                self._selectors_in[namespace] = known
        return known

    def _owner(self, pod: PodRecord) -> Selector | None:
        assert pod.scheduling is not None
        if pod.scheduling.spread_owner is None:
            return None
        kind, name = pod.scheduling.spread_owner
        owner: ReplicaSet | ReplicationController | None = self._owners[kind].value(name, pod.namespace)
        if owner is None:
            return None
        selector = owner.spec.selector
        if selector is None or isinstance(selector, LabelSelector):
            return owner_selector(selector)
        return make_selector(selector)

    def _owner_changed(self, kind: str, change: Change[Any]) -> None:
        """Most changes are of the status. A ReplicaSet is there before its pods."""
        versions = values_of(change)
        if versions and (len(versions) == 1 or versions[0].spec != versions[1].spec):
            meta = versions[0].metadata
            self._changed(self._pods_of[_path(meta.namespace, kind, meta.name)])

    def _services_changed(self, change: Change[Service]) -> None:
        """Each change asks all pods of the namespace, so the first list is taken as a whole."""
        if isinstance(change, Synced):
            self._selectors_in.clear()
            self._changed(self._pods_in.values())
        versions = values_of(change)
        if not versions or (len(versions) == 2 and versions[0].spec == versions[1].spec):
            return
        namespace = versions[0].metadata.namespace
        self._selectors_in.pop(namespace, None)
        if self._services.synced:
            self._changed(self._pods_in[namespace])


def _owner_path(pod: PodRecord) -> str:
    owner = None if pod.scheduling is None else pod.scheduling.spread_owner
    return "" if owner is None else _path(pod.namespace, *owner)


def _path(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"
