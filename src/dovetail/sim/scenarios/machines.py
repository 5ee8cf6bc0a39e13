"""Which machines does a dump have, of which instance types, and what do they cost?

Types that the catalogue lacks, as those of a real cloud, are read off their Nodes. Nobody says what such a type costs,
or which others there are: what is assumed for that is told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.objects import NodeSelectorRequirement
from dovetail.model.finding import Finding, Severity
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import Instance
from dovetail.providers.catalogue import built_in
from dovetail.sim.actors.wire import annotations_of, deleting, labels_of, status_of, uid_of
from dovetail.sim.scenarios.reading import ScenarioObject, assumption
from dovetail.values.quantity import QuantityError, parse_quantity

_SPOT_SHARE: Final = 0.7
# The built-in catalogue's formula: by cpu, and by gigabyte of memory.
_CPU_PRICE, _GIGABYTE_PRICE = 0.025, 0.001
# Labels of the Node and not of its type.
_OF_ONE_NODE: Final = frozenset(
    {
        names.HOSTNAME_LABEL,
        names.ZONE_LABEL,
        names.CAPACITY_TYPE_LABEL,
        names.NODEPOOL_LABEL,
        names.REGISTERED_LABEL,
        names.INITIALIZED_LABEL,
        names.DO_NOT_SYNC_TAINTS_LABEL,
        names.INSTANCE_PRICE_LABEL,
        names.KWOK_NODE,
        names.KWOK_PARTITION_LABEL,
        names.KWOK_NODECLASS_LABEL,
        "topology.k8s.aws/zone-id",
        "topology.ebs.csi.aws.com/zone",
        "topology.kubernetes.io/zone-id",
        *names.NORMALISED_LABELS,
    }
)


class RunningMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that runs at the start."""

    instance: Instance
    node: str  # empty: it has no Node yet
    price: float | None  # by the hour; None: not known


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated cloud is to know."""

    types: tuple[InstanceType, ...]
    standing: tuple[RunningMachine, ...]
    problems: tuple[Finding, ...]


def machines_of(objects: Sequence[ScenarioObject], catalogue: Sequence[InstanceType] | None) -> Machines:
    """`catalogue` None: the built-in one, and what the dump shows."""
    nodes = [each for each in objects if each.resource.kind == "Node"]
    claims = [each for each in objects if each.resource.kind == names.NODECLAIM_KIND]
    types, problems = _types(nodes, claims, catalogue)
    prices = _prices(types)
    by_id = {str((node.body.get("spec") or {}).get("providerID") or ""): node for node in nodes}
    standing = []
    for claim in claims:
        provider_id = str(status_of(claim.body).get("providerID") or "")
        if provider_id:
            standing.append(_standing(claim, by_id.get(provider_id), provider_id, prices))
    unpriced = Counter(
        each.instance.labels.get(names.INSTANCE_TYPE_LABEL, "?") for each in standing if each.price is None
    )
    if unpriced:
        told = ", ".join(f"{count} {name}" for name, count in sorted(unpriced.items()))
        problems.append(
            assumption("PriceUnknown", "", f"machines whose price is not known cost nothing here: {told}", _REMEDY)
        )
    return Machines(types=types, standing=tuple(standing), problems=tuple(problems))


_REMEDY: Final = "give the types and their prices: --instance-types FILE"


def _standing(
    claim: ScenarioObject, node: ScenarioObject | None, provider_id: str, prices: Mapping[tuple[str, str, str], float]
) -> RunningMachine:
    labels = {**labels_of(claim.body), **({} if node is None else labels_of(node.body))}
    status = status_of(claim.body)
    bought = tuple(
        labels.get(key, "") for key in (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)
    )
    instance = Instance(
        provider_id=provider_id,
        labels=labels,
        annotations=annotations_of(claim.body),
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
        deleting=deleting(claim.body),
        claim_uid=uid_of(claim.body),
    )
    name = "" if node is None else str(node.body["metadata"]["name"])
    return RunningMachine(instance=instance, node=name, price=prices.get((bought[0], bought[1], bought[2])))


def _prices(types: Iterable[InstanceType]) -> dict[tuple[str, str, str], float]:
    found = {}
    for type_ in types:
        for offering in type_.offerings:
            only = {each.key: each.values[0] for each in offering.requirements if len(each.values) == 1}
            where = only.get(names.ZONE_LABEL, ""), only.get(names.CAPACITY_TYPE_LABEL, "")
            found[type_.name, *where] = offering.price
    return found


# -- types that are read off Nodes -------------------------------------------------------------------------------------


def _types(
    nodes: Sequence[ScenarioObject], claims: Sequence[ScenarioObject], catalogue: Sequence[InstanceType] | None
) -> tuple[tuple[InstanceType, ...], list[Finding]]:
    known = tuple(built_in() if catalogue is None else catalogue)
    names_known = {type_.name for type_ in known}
    managed = [node for node in nodes if names.NODEPOOL_LABEL in labels_of(node.body)]
    shown: dict[str, list[ScenarioObject]] = {}
    for node in managed:
        if type_ := labels_of(node.body).get(names.INSTANCE_TYPE_LABEL):
            shown.setdefault(type_, []).append(node)
    strange = {type_: found for type_, found in sorted(shown.items()) if type_ not in names_known}
    zones = _values(managed, claims, names.ZONE_LABEL) or ["unknown"]
    if not strange:
        return _offered_in(known, zones)
    kinds = _values(managed, claims, names.CAPACITY_TYPE_LABEL) or [str(names.CapacityType.ON_DEMAND)]
    derived = tuple(
        made for type_, found in strange.items() if (made := _derived(type_, found, zones, kinds)) is not None
    )
    # A catalogue of another cloud has nothing to offer here; of a file, the user knows.
    offered = tuple(type_ for type_ in known if catalogue is not None or type_.name in shown)
    told = assumption(
        "InstanceTypesAssumed",
        "",
        f"{len(strange)} instance types are not in the catalogue ({', '.join(list(strange)[:5])}"
        f"{', …' if len(strange) > 5 else ''}): they are read off their Nodes, can be had in every zone and capacity "
        f"type that occurs, and no other types can be; their prices are guessed ({_CPU_PRICE} $ an hour for each cpu, "
        f"{_GIGABYTE_PRICE} $ for each gigabyte, spot {_SPOT_SHARE:.0%} of that), so costs can only be compared",
        _REMEDY,
        severity=Severity.WARNING,
    )
    return offered + derived, [told]


def _offered_in(
    types: tuple[InstanceType, ...], zones: Sequence[str]
) -> tuple[tuple[InstanceType, ...], list[Finding]]:
    """The types, in the zones of the input if those are others than the catalogue's."""
    known = {
        zone for type_ in types for each in type_.requirements if each.key == names.ZONE_LABEL for zone in each.values
    }
    strange = [zone for zone in zones if zone not in known and zone != "unknown"]
    if not strange:
        return types, []
    told = assumption(
        "ZonesAssumed",
        "",
        f"the catalogue has nothing in {', '.join(strange)}: its types are taken to be offered there, "
        "at the same prices",
        _REMEDY,
    )
    return tuple(_moved(type_, zones) for type_ in types), [told]


def _moved(type_: InstanceType, zones: Sequence[str]) -> InstanceType:
    prices = {
        each.values[0]: offering.price
        for offering in type_.offerings
        for each in offering.requirements
        if each.key == names.CAPACITY_TYPE_LABEL
    }
    others = tuple(each for each in type_.requirements if each.key != names.ZONE_LABEL)
    return msgspec.structs.replace(
        type_,
        requirements=(*others, _in(names.ZONE_LABEL, zones)),
        offerings=tuple(
            Offering(requirements=(_in(names.CAPACITY_TYPE_LABEL, [kind]), _in(names.ZONE_LABEL, [zone])), price=price)
            for zone in zones
            for kind, price in prices.items()
        ),
    )


def _values(nodes: Iterable[ScenarioObject], claims: Iterable[ScenarioObject], label: str) -> list[str]:
    return sorted({value for each in (*nodes, *claims) if (value := labels_of(each.body).get(label))})


def _derived(
    name: str, nodes: Sequence[ScenarioObject], zones: Sequence[str], kinds: Sequence[str]
) -> InstanceType | None:
    status = status_of(nodes[0].body)
    capacity = {key: str(value) for key, value in (status.get("capacity") or {}).items()}
    allocatable = {key: str(value) for key, value in (status.get("allocatable") or capacity).items()}
    price = _guessed_price(capacity or allocatable)
    if price is None:
        return None
    shared = dict(labels_of(nodes[0].body))
    for node in nodes[1:]:
        shared = {key: value for key, value in shared.items() if labels_of(node.body).get(key) == value}
    own = {key: value for key, value in shared.items() if key not in _OF_ONE_NODE and "/" in key}
    requirements = [_in(key, [value]) for key, value in sorted(own.items())]
    requirements += [_in(names.ZONE_LABEL, zones), _in(names.CAPACITY_TYPE_LABEL, kinds)]
    offerings = tuple(
        Offering(
            requirements=(_in(names.CAPACITY_TYPE_LABEL, [kind]), _in(names.ZONE_LABEL, [zone])),
            price=price * (_SPOT_SHARE if kind == names.CapacityType.SPOT else 1.0),
        )
        for zone in zones
        for kind in kinds
    )
    return InstanceType(
        name=name,
        requirements=tuple(requirements),
        offerings=offerings,
        capacity=allocatable,  # what pods can have; the overhead is off already
    )


def _in(key: str, values: Iterable[str]) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="In", values=list(values))


def _guessed_price(amounts: Mapping[str, Any]) -> float | None:
    try:
        cpu, memory = (parse_quantity(str(amounts[key])).nano / 1e9 for key in ("cpu", "memory"))
    except (KeyError, QuantityError, OverflowError):  # more than a float can hold is no machine's
        return None
    return float(_CPU_PRICE * cpu + _GIGABYTE_PRICE * memory / 1e9)
