"""Small clusters for the tests of the engines: pods, nodes, pools and types in as few words as possible."""

from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.pod_specs import SchedulingPod
from dovetail.scheduling import placement
from dovetail.scheduling.placement import BoundPod, MachineType, NodeInfo, Offer, Origin, PodInfo, Pool
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, one_of
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.taints import template_taints
from dovetail.scheduling.volumes import NO_VOLUMES, PodVolumes
from tests.unit.scheduling.wire import Manifest, taint

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def wire_pod(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    cpu: str = "1",
    namespace: str = "shop",
    created: str | None = None,
    deleted: str | None = None,
    phase: str = "",
    **spec: Any,
) -> SchedulingPod:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "labels": labels or {},
        "creationTimestamp": created,
        "deletionTimestamp": deleted,
    }
    containers = [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]
    return msgspec.convert(
        {"metadata": meta, "spec": {"containers": containers, **spec}, "status": {"phase": phase}}, SchedulingPod
    )


def pod(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    origin: Origin = Origin.PENDING,
    volumes: PodVolumes = NO_VOLUMES,
    namespaces: dict[str, dict[str, str]] | None = None,
    **wire: Any,
) -> PodInfo:
    read = wire_pod(name, labels, **wire)
    return placement.read_pod(read, origin=origin, volumes=volumes, namespaces=namespaces)


def bound(name: str, labels: dict[str, str] | None = None, **wire: Any) -> BoundPod:
    return placement.read_bound_pod(wire_pod(name, labels, **wire))


def app(name: str) -> dict[str, str]:
    return {"app": name}


# -- what pods ask for -------------------------------------------------------------------------------------------------


def selector(value: str | None) -> Manifest | None:
    """None: no selector; empty: that of all pods."""
    return None if value is None else {"matchLabels": {"app": value} if value else {}}


def spread(key: str, of: str | None, skew: int = 1, *, anyway: bool = False, **more: Any) -> Manifest:
    when = "ScheduleAnyway" if anyway else "DoNotSchedule"
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector(of), **more}


def term(key: str, of: str | None, **more: Any) -> Manifest:
    return {"topologyKey": key, "labelSelector": selector(of), **more}


def affinity(*, together: list[Manifest] | None = None, apart: list[Manifest] | None = None, **more: Any) -> Manifest:
    return {"podAffinity": {REQUIRED: together or []}, "podAntiAffinity": {REQUIRED: apart or []}, **more}


def preferring(kind: str, *terms: Manifest) -> Manifest:
    """Pods, the first of the terms most."""
    weighted = [{"weight": 100 - index, "podAffinityTerm": each} for index, each in enumerate(terms)]
    return {kind: {PREFERRED: weighted}}


def expressing(key: str, *values: str, operator: str = "In") -> Manifest:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def nodes_like(*terms: Manifest, preferred: tuple[Manifest, ...] = ()) -> Manifest:
    """Of nodes: one of the terms, and rather like the preferred ones, the first of them most."""
    weighted = [{"weight": 100 - index, "preference": each} for index, each in enumerate(preferred)]
    required = {REQUIRED: {"nodeSelectorTerms": list(terms)}} if terms else {}
    return {"nodeAffinity": {**required, PREFERRED: weighted}}


def at_one_of(*zones: str) -> PodVolumes:
    """Volumes that can be used in one of the zones, tried in this order."""
    return PodVolumes(alternatives=tuple(of_labels({ZONE: zone}) for zone in zones))


# -- what there is -----------------------------------------------------------------------------------------------------


def node(
    name: str, zone: str = "", *pods: BoundPod, cpu: int = 8, taints: tuple[str, ...] = (), **fields: Any
) -> NodeInfo:
    """With room for so many cpus, whatever its pods take."""
    labels = {**({ZONE: zone} if zone else {}), **fields.pop("labels", {})}
    room = Resources({"cpu": cpu * 1000, "pods": 110})
    return NodeInfo(
        name=name,
        labels=labels,
        pods=pods,
        taints=template_taints(map(taint, taints)),
        **{"allocatable": room, "capacity": room, **fields},
    )


def pool(
    name: str = "default", *, taints: tuple[str, ...] = (), requirements: Requirements = NO_REQUIREMENTS, **fields: Any
) -> Pool:
    own = of_labels({names.NODEPOOL_LABEL: name})
    return Pool(name=name, requirements=requirements & own, taints=template_taints(map(taint, taints)), **fields)


def offer(zone: str, price: int, capacity_type: str = "on-demand", **fields: Any) -> Offer:
    return Offer(requirements=of_labels({ZONE: zone, names.CAPACITY_TYPE_LABEL: capacity_type}), price=price, **fields)


def machine(
    name: str,
    cpu: int = 4,
    *,
    zones: tuple[str, ...] = ("a", "b", "c"),
    price: int = 0,
    offers: tuple[Offer, ...] = (),
    labels: dict[str, str] | None = None,
) -> MachineType:
    """Of this name, in these zones; a cpu costs 1."""
    room = Resources({"cpu": cpu * 1000, "pods": 110})
    bought = offers or tuple(offer(zone, price or cpu) for zone in zones)
    where = {each for way in bought for each in way.requirements.get(ZONE).values}
    how = {each for way in bought for each in way.requirements.get(names.CAPACITY_TYPE_LABEL).values}
    own = of_labels({names.INSTANCE_TYPE_LABEL: name, **(labels or {})})
    return MachineType(
        name=name,
        requirements=own.add(one_of(ZONE, where), one_of(names.CAPACITY_TYPE_LABEL, how)),
        capacity=room,
        allocatable=room,
        offers=bought,
    )
