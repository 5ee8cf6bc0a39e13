"""The pods of the cluster as scheduling reads them. Each distinct spec is read once.

Thousands of replicas share one interned spec. It is read once for each namespace and for each set of values of the
labels that its own rules name. The result is kept as long as a pod needs it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from dovetail.api.objects import ClaimVolume, ObjectMeta, Volume
from dovetail.api.pod_specs import PodAffinity, PodAffinityTerm, SchedulingPod, SchedulingPodSpec
from dovetail.model.field_errors import FieldError
from dovetail.model.records import PodRecord, PodScheduling
from dovetail.scheduling.host_ports import HostPorts, host_ports
from dovetail.scheduling.node_affinity import read_node_affinity
from dovetail.scheduling.placement import BoundPod, Origin, PodInfo, TopologyRule, read_bound_pod, read_pod
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ONE_POD, ResourceError, Resources, pod_request
from dovetail.scheduling.volumes import NO_VOLUMES, Attachment, PodVolumes, VolumeError, attachments, pod_volumes
from dovetail.state.cluster import ClusterState
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

# The namespace, and the values of the pod's labels that its rules name.
_Key: TypeAlias = tuple[str, tuple[str | None, ...]]


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
    count: int = 0
    reading: PodRequirements | None = None


class _SpecGroup(msgspec.Struct, eq=False):
    """A spec in use, and the pods that have it."""

    scheduling: PodScheduling  # a reference, so that its id() stays unique
    label_keys: tuple[str, ...]
    selects_namespaces: bool
    groups: dict[_Key, _RequirementsGroup] = {}

    def key_of(self, pod: PodRecord) -> _Key:
        return pod.namespace, tuple([pod.labels.get(key) for key in self.label_keys]) if self.label_keys else ()


class PodRequirementsIndex:
    """Create it before changes are applied. `reread` is called when readings of bound pods have changed."""

    def __init__(self, cluster: ClusterState, *, reread: Callable[[], object], well_known: frozenset[str]) -> None:
        self._cluster = cluster
        self._reread = reread
        self._well_known = well_known
        self._namespaces = by_name(cluster.namespaces)
        self._specs: dict[int, _SpecGroup] = {}  # by identity
        self._placed: dict[
            str, tuple[PodRecord, PodRequirements, PodInfo]
        ] = {}  # by UID: pods to place, as last returned
        cluster.pods.subscribe(self._follow)
        cluster.namespaces.subscribe(self._namespaces_changed)

    # -- what a pod is ------------------------------------------------------------------------------------------------

    def of(self, pod: PodRecord) -> PodRequirements:
        """Raises KeyError for a pod that no cache holds."""
        spec = self._specs[id(pod.scheduling)]
        group = spec.groups[spec.key_of(pod)]
        if group.reading is None:
            group.reading = self._read(group.pod)
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
        known = self._placed.get(pod.uid)
        if known is not None and known[0] is pod and known[1] is reading:
            found = known[2]
            if found.origin is origin and (found.volumes is volumes or found.volumes == volumes):
                return found
        found = msgspec.structs.replace(
            reading.pod,
            uid=pod.uid,
            name=pod.name,
            labels=pod.labels,
            created=pod.created_at,
            origin=origin,
            volumes=volumes,
        )
        self._placed[pod.uid] = (pod, reading, found)
        return found

    # -- which are alike ----------------------------------------------------------------------------------------------

    def _follow(self, change: Change[PodRecord]) -> None:
        for pod, step in steps_of(change):
            self._count(pod, step)
        if isinstance(change, Deleted):
            self._placed.pop(change.old.uid, None)

    def _count(self, pod: PodRecord, step: int) -> None:
        scheduling = pod.scheduling
        assert scheduling is not None, "the watch reads it"
        spec = self._specs.get(id(scheduling))
        if spec is None:
            keys, selects = _label_keys(scheduling.spec), any(map(_selects_namespaces, _terms(scheduling.spec)))
            spec = self._specs[id(scheduling)] = _SpecGroup(scheduling, keys, selects)
        key = spec.key_of(pod)
        group = spec.groups.get(key)
        if group is None:
            group = spec.groups[key] = _RequirementsGroup(pod)
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
                if (known := group.reading) is not None:
                    group.reading = self._read(group.pod)
                    others = others or (group.reading.apart, group.reading.pod) != (known.apart, known.pod)
        if others:
            self._reread()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, pod: PodRecord) -> PodRequirements:
        """A pod that cannot be read is not placed. On its node it counts as one pod without requests."""
        whole = _whole(pod)
        apart, ports = read_bound_pod(whole, self._namespaces).apart, host_ports(whole.spec)
        assert pod.scheduling is not None
        flaw = spec_flaw(whole.spec, self._well_known, pod.scheduling.flaw)
        request, found, silent = ONE_POD, None, False
        try:
            request = pod_request(whole)
            if wants_no_managed_node(read_node_affinity(whole.spec)):
                silent, flaw = True, NO_MANAGED_NODE
            elif flaw is None:
                found = read_pod(whole, namespaces=self._namespaces)
        except ResourceError as error:
            flaw = FieldError("spec.containers[].resources", str(error), "correct the quantity")
        except RequirementError as error:
            flaw = flaw or FieldError("spec.affinity.nodeAffinity", str(error), "correct it")
        return PodRequirements(request, ports, apart, found, flaw, silent)


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
    found = {key for each in spec.topology_spread_constraints for key in each.match_label_keys}
    for term in _terms(spec):
        found.update(term.match_label_keys, term.mismatch_label_keys)
    return tuple(sorted(found))


def _selects_namespaces(term: PodAffinityTerm) -> bool:
    """Whether the term selects namespaces by labels. An empty selector matches all of them."""
    selector = term.namespace_selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _terms(spec: SchedulingPodSpec) -> Iterator[PodAffinityTerm]:
    sides: tuple[PodAffinity, ...] = (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    for side in sides:
        yield from side.required_during_scheduling_ignored_during_execution
        yield from (each.pod_affinity_term for each in side.preferred_during_scheduling_ignored_during_execution)
