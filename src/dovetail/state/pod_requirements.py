"""The pods of the cluster as scheduling reads them. Each distinct spec is read once.

Thousands of replicas share one interned spec. It is read once for each namespace, for each set of values of the labels
that its own rules name, and for each set of default spread constraints. The result is kept as long as a pod needs it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from dovetail.api.objects import ClaimVolume, ObjectMeta, Volume
from dovetail.api.pod_specs import PodAffinity, PodAffinityTerm, SchedulingPod, SchedulingPodSpec
from dovetail.model.field_errors import FieldError
from dovetail.model.pod_records import PodRecord, PodScheduling
from dovetail.scheduling.default_spread import DefaultSpread
from dovetail.scheduling.host_ports import HostPorts, host_ports
from dovetail.scheduling.node_affinity import read_node_affinity
from dovetail.scheduling.placement import BoundPod, Origin, PodInfo, TopologyRule, read_bound_pod, read_pod
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ONE_POD, ResourceError, Resources, pod_request
from dovetail.scheduling.volumes import NO_VOLUMES, Attachment, PodVolumes, VolumeError, attachments, pod_volumes
from dovetail.state.cluster import ClusterState
from dovetail.state.default_spread import DefaultSpreadIndex
from dovetail.state.store import Change, Deleted, Updated, by_name, steps_of, values_of
from dovetail.state.unplaceable import (
    NO_MANAGED_NODE,
    Unplaceable,
    sentence,
    spec_flaw,
    volume_flaw,
    wants_no_managed_node,
)

_NO_ATTACHMENTS: Final[frozenset[Attachment]] = frozenset()

# The namespace, the values of the pod's labels that its rules name, and its default spread constraints.
_ReadingKey: TypeAlias = tuple[str, tuple[str | None, ...], DefaultSpread | None]


class PodRequirements(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What similar pods have in common. `flaw`: why they cannot be placed; bound pods count nevertheless (R32)."""

    request: Resources
    ports: HostPorts
    apart: tuple[TopologyRule, ...]
    pod: PodInfo | None  # without what distinguishes them
    flaw: FieldError | None = None
    silent: bool = False

    def bound(self, pod: PodRecord) -> BoundPod:
        """A pod of the group that has a node."""
        return BoundPod(uid=pod.uid, namespace=pod.namespace, labels=pod.labels, apart=self.apart, counts=pod.active)


class _RequirementsGroup(msgspec.Struct, eq=False):
    """A group of similar pods: one of them, their number, and the reading, once it is needed."""

    pod: PodRecord
    spread: DefaultSpread | None
    count: int = 0
    reading: PodRequirements | None = None


class _SpecGroup(msgspec.Struct, eq=False):
    """A spec in use, and the pods that have it."""

    scheduling: PodScheduling  # a reference, so that its id() stays unique
    label_keys: tuple[str, ...]
    selects_namespaces: bool
    groups: dict[_ReadingKey, _RequirementsGroup] = {}

    def key_of(self, pod: PodRecord, spread: DefaultSpread | None) -> _ReadingKey:
        values = tuple([pod.labels.get(key) for key in self.label_keys]) if self.label_keys else ()
        return pod.namespace, values, spread


class PodRequirementsIndex:
    """The index of what pods require. Create it before changes are applied.

    `reread` is called when readings of bound pods have changed, `touch` with the name of a node if only readings of its
    pods have.
    """

    def __init__(
        self,
        cluster: ClusterState,
        *,
        reread: Callable[[], object],
        touch: Callable[[str], object],
        well_known: frozenset[str],
    ) -> None:
        self._cluster = cluster
        self._reread = reread
        self._touch = touch
        self._well_known = well_known
        self._namespaces = by_name(cluster.namespaces)
        self._specs: dict[int, _SpecGroup] = {}  # by identity
        self._placed: dict[
            str, tuple[PodRecord, PodRequirements, PodInfo]
        ] = {}  # by UID: pods to place, as last returned
        self._spreads: dict[str, DefaultSpread] = {}  # by UID
        profiles = cluster.scheduler_profiles
        self._defaults = None if profiles is None else DefaultSpreadIndex(cluster, profiles, self._regroup)
        cluster.pods.subscribe(self._follow)
        cluster.namespaces.subscribe(self._namespaces_changed)

    # -- what a pod is ------------------------------------------------------------------------------------------------

    def of(self, pod: PodRecord) -> PodRequirements:
        """Raises KeyError for a pod that no cache holds."""
        spec = self._specs[id(pod.scheduling)]
        group = spec.groups[spec.key_of(pod, self._spreads.get(pod.uid))]
        if group.reading is None:
            group.reading = self._read(group.pod, group.spread)
        return group.reading

    def attached(self, pod: PodRecord) -> frozenset[Attachment]:
        return attachments(_with_claims(pod), self._cluster.storage) if pod.volume_claims else _NO_ATTACHMENTS

    def to_place(self, pod: PodRecord, origin: Origin) -> PodInfo | Unplaceable:
        """The pod, or why it is left out."""
        reading = self.of(pod)
        if reading.pod is None:
            assert reading.flaw is not None
            return _refused(pod, reading.flaw, silent=reading.silent)
        volumes = NO_VOLUMES
        if pod.volume_claims:  # the volumes may change without a change of the pod
            try:
                volumes = pod_volumes(_with_claims(pod), self._cluster.storage)
            except VolumeError as error:
                return _refused(pod, volume_flaw(error))
        return self._to_place(pod, reading, volumes, origin)

    def _to_place(self, pod: PodRecord, reading: PodRequirements, volumes: PodVolumes, origin: Origin) -> PodInfo:
        """The same object until something about the pod changes."""
        assert reading.pod is not None
        previous = self._placed.get(pod.uid)
        if previous is not None and previous[0] is pod and previous[1] is reading:
            info = previous[2]
            if info.origin is origin and (info.volumes is volumes or info.volumes == volumes):
                return info
        info = msgspec.structs.replace(
            reading.pod,
            uid=pod.uid,
            name=pod.name,
            labels=pod.labels,
            created=pod.created_at,
            origin=origin,
            volumes=volumes,
        )
        self._placed[pod.uid] = (pod, reading, info)
        return info

    # -- which are alike ----------------------------------------------------------------------------------------------

    def _follow(self, change: Change[PodRecord]) -> None:
        steps = steps_of(change)
        before = self._spreads.pop(steps[0][0].uid, None) if steps and self._defaults is not None else None
        for pod, step in steps:  # the new version first, so that a group of one pod keeps its reading
            self._count(pod, step, self._spread_now(pod) if step > 0 else before)
        if isinstance(change, Deleted):
            self._placed.pop(change.old.uid, None)

    def _spread_now(self, pod: PodRecord) -> DefaultSpread | None:
        spread = None if self._defaults is None else self._defaults.of(pod)
        if spread is not None:
            self._spreads[pod.uid] = spread
        return spread

    def _regroup(self, pods: Iterable[PodRecord]) -> None:
        """The default constraints of these pods may have changed."""
        for pod in pods:
            before = self._spreads.pop(pod.uid, None)
            after = self._spread_now(pod)
            if after != before:
                self._count(pod, 1, after)
                self._count(pod, -1, before)
                self._touch(pod.node_name)

    def _count(self, pod: PodRecord, step: int, spread: DefaultSpread | None) -> None:
        scheduling = pod.scheduling
        assert scheduling is not None, "the watch reads it"
        spec = self._specs.get(id(scheduling))
        if spec is None:
            keys, selects = _label_keys(scheduling.spec), any(map(_selects_namespaces, _terms(scheduling.spec)))
            spec = self._specs[id(scheduling)] = _SpecGroup(scheduling, keys, selects)
        key = spec.key_of(pod, spread)
        group = spec.groups.get(key)
        if group is None:
            group = spec.groups[key] = _RequirementsGroup(pod, spread)
        group.count += step
        if not group.count:
            del spec.groups[key]
            if not spec.groups:
                del self._specs[id(scheduling)]

    def _namespaces_changed(self, change: Change[Mapping[str, str]]) -> None:
        if not values_of(change) or (isinstance(change, Updated) and change.old.value == change.new.value):
            return
        others = False
        for spec in self._specs.values():
            for group in spec.groups.values() if spec.selects_namespaces else ():
                if (previous := group.reading) is not None:
                    group.reading = self._read(group.pod, group.spread)
                    others = others or (group.reading.apart, group.reading.pod) != (previous.apart, previous.pod)
        if others:
            self._reread()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, pod: PodRecord, spread: DefaultSpread | None) -> PodRequirements:
        """A pod that cannot be read is not placed. On its node it counts as one pod without requests."""
        whole = _whole(pod)
        apart, ports = read_bound_pod(whole, self._namespaces).apart, host_ports(whole.spec)
        assert pod.scheduling is not None
        flaw = spec_flaw(whole.spec, self._well_known, pod.scheduling.flaw)
        request, info, silent = ONE_POD, None, False
        try:
            request = pod_request(whole)
            if wants_no_managed_node(read_node_affinity(whole.spec)):
                silent, flaw = True, NO_MANAGED_NODE
            elif flaw is None:
                info = read_pod(whole, namespaces=self._namespaces, spread=spread)
        except ResourceError as error:
            flaw = FieldError("spec.containers[].resources", str(error), "correct the quantity")
        except RequirementError as error:
            flaw = flaw or FieldError("spec.affinity.nodeAffinity", str(error), "correct it")
        return PodRequirements(request, ports, apart, info, flaw, silent)


def _refused(pod: PodRecord, flaw: FieldError, *, silent: bool = False) -> Unplaceable:
    return Unplaceable(pod=pod.object, uid=pod.uid, reason=sentence(flaw), silent=silent)


def _whole(pod: PodRecord) -> SchedulingPod:
    """The pod as scheduling reads it, without its volumes."""
    scheduling = pod.scheduling
    assert scheduling is not None, "the watch reads it"
    meta = ObjectMeta(name=pod.name, namespace=pod.namespace, labels=dict(pod.labels))
    return SchedulingPod(meta, scheduling.spec, scheduling.status)


def _with_claims(pod: PodRecord) -> SchedulingPod:
    """The pod with nothing but its volumes."""
    volumes = tuple(Volume(name, ClaimVolume(name)) for name in pod.volume_claims)
    meta = ObjectMeta(name=pod.name, namespace=pod.namespace)
    return SchedulingPod(meta, SchedulingPodSpec(volumes=volumes))


# -- other inputs of a spec --------------------------------------------------------------------------------------------


def _label_keys(spec: SchedulingPodSpec) -> tuple[str, ...]:
    """The labels of the pod that its own rules name."""
    keys = {key for constraint in spec.topology_spread_constraints for key in constraint.match_label_keys}
    for term in _terms(spec):
        keys.update(term.match_label_keys, term.mismatch_label_keys)
    return tuple(sorted(keys))


def _selects_namespaces(term: PodAffinityTerm) -> bool:
    """Whether the term selects namespaces by labels. An empty selector matches all of them."""
    selector = term.namespace_selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _terms(spec: SchedulingPodSpec) -> Iterator[PodAffinityTerm]:
    sides: tuple[PodAffinity, ...] = (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    for side in sides:
        yield from side.required_during_scheduling_ignored_during_execution
        yield from (term.pod_affinity_term for term in side.preferred_during_scheduling_ignored_during_execution)
