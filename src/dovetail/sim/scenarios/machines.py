"""Derives the machines, instance types and prices of a dump.

Types that the catalogue lacks, as those of a real cloud, are derived from their Nodes. Their prices, and the other
types that the cloud sells, are assumptions, and reported as such.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.objects import NodeSelectorRequirement
from dovetail.model.finding import Finding, Severity
from dovetail.model.instance_types import (
    CPU_PRICE,
    GIGABYTE_PRICE,
    PER_NODE_LABELS,
    SPOT_SHARE,
    InstanceType,
    Offering,
    guessed_price,
)
from dovetail.ports import Instance
from dovetail.providers.catalogue import EVERY_ZONE, built_in
from dovetail.sim.actors.wire import annotations_of, deleting, labels_of, status_of, uid_of
from dovetail.sim.scenarios.reading import ScenarioObject, assumption
from dovetail.values.quantity import QuantityError, parse_quantity

# The rule of the finding that the types of the cloud are not known.
TYPES_ASSUMED: Final = "InstanceTypesAssumed"


class RunningMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at the start."""

    instance: Instance
    node: str  # empty: it has no Node yet
    offering: Offering | None  # None: its price is not known


_Offered = Mapping[tuple[str, str, str], Offering]  # by type, zone and capacity type


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """The machines and instance types of the simulated cloud."""

    types: tuple[InstanceType, ...]
    standing: tuple[RunningMachine, ...]

    @property
    def known_share(self) -> float | None:
        """The part of the hourly cost at the start whose prices are no guesses. None: nothing costs anything."""
        offerings = [machine.offering for machine in self.standing if machine.offering is not None]
        total = sum(offering.price for offering in offerings)
        known = sum(offering.price for offering in offerings if not offering.guessed)
        return known / total if total else None

    def guessed(self) -> frozenset[tuple[str, str, str]]:
        """Type, zone and capacity type of the offerings with a guessed price."""
        return frozenset(key for key, offering in _offered(self.types).items() if offering.guessed)


def machines_of(
    objects: Sequence[ScenarioObject], catalogue: Sequence[InstanceType] | None, problems: list[Finding]
) -> Machines:
    """`catalogue` None: the built-in one, and the types of the dump."""
    nodes = [object_ for object_ in objects if object_.resource.kind == "Node"]
    claims = [object_ for object_ in objects if object_.resource.kind == names.NODECLAIM_KIND]
    types = _types(nodes, claims, catalogue, problems)
    offered = _offered(types)
    by_id = {str((node.body.get("spec") or {}).get("providerID") or ""): node for node in nodes}
    standing = [
        _standing(claim, by_id.get(provider_id), provider_id, offered)
        for claim in claims
        if (provider_id := str(status_of(claim.body).get("providerID") or ""))
    ]
    unpriced = Counter(
        machine.instance.labels.get(names.INSTANCE_TYPE_LABEL, "?") for machine in standing if machine.offering is None
    )
    if unpriced:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(unpriced.items()))
        message = f"machines whose price is not known cost nothing here: {listed}"
        problems.append(assumption("PriceUnknown", "", message, _REMEDY))
    return Machines(types=types, standing=tuple(standing))


_REMEDY: Final = "give the types and their prices: --instance-types FILE"


def _standing(
    claim: ScenarioObject, node: ScenarioObject | None, provider_id: str, offered: _Offered
) -> RunningMachine:
    labels = {**labels_of(claim.body), **({} if node is None else labels_of(node.body))}
    status = status_of(claim.body)
    type_, zone, capacity_type = (
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
    return RunningMachine(instance=instance, node=name, offering=offered.get((type_, zone, capacity_type)))


def _offered(types: Iterable[InstanceType]) -> dict[tuple[str, str, str], Offering]:
    offered = {}
    for type_ in types:
        for offering in type_.offerings:
            only = {entry.key: entry.values[0] for entry in offering.requirements if len(entry.values) == 1}
            where = only.get(names.ZONE_LABEL, ""), only.get(names.CAPACITY_TYPE_LABEL, "")
            offered[type_.name, *where] = offering
    return offered


# -- types that are derived from Nodes ---------------------------------------------------------------------------------


def _types(
    nodes: Sequence[ScenarioObject],
    claims: Sequence[ScenarioObject],
    catalogue: Sequence[InstanceType] | None,
    problems: list[Finding],
) -> tuple[InstanceType, ...]:
    catalogued = tuple(built_in() if catalogue is None else catalogue)
    managed = [node for node in nodes if names.NODEPOOL_LABEL in labels_of(node.body)]
    by_type: dict[str, list[ScenarioObject]] = {}
    for node in managed:
        if type_ := labels_of(node.body).get(names.INSTANCE_TYPE_LABEL):
            by_type.setdefault(type_, []).append(node)
    unknown = sorted(by_type.keys() - {type_.name for type_ in catalogued})
    zones = _values(managed, claims, names.ZONE_LABEL) or ["unknown"]
    if not unknown:
        return _offered_in(catalogued, zones, problems)
    kinds = _values(managed, claims, names.CAPACITY_TYPE_LABEL) or [str(names.CapacityType.ON_DEMAND)]
    derived = [made for type_ in unknown if (made := _derived(type_, by_type[type_], zones, kinds)) is not None]
    message = (
        f"{len(unknown)} instance types are not in the catalogue ({', '.join(unknown[:5])}"
        f"{', …' if len(unknown) > 5 else ''}): they are read off their Nodes, can be had in every zone and capacity "
        f"type that occurs, and no other types can be; their prices are guessed ({CPU_PRICE} $ an hour for each cpu, "
        f"{GIGABYTE_PRICE} $ for each gigabyte, spot {SPOT_SHARE:.0%} of that), so costs can only be compared"
    )
    problems.append(assumption(TYPES_ASSUMED, "", message, _REMEDY, severity=Severity.WARNING))
    # The built-in catalogue of another cloud offers nothing here; a file of the user does.
    kept = tuple(type_ for type_ in catalogued if catalogue is not None or type_.name in by_type)
    return (*_offered_in(kept, zones, problems), *derived)


def _offered_in(
    types: tuple[InstanceType, ...], zones: Sequence[str], problems: list[Finding]
) -> tuple[InstanceType, ...]:
    """The types, in the zones of the input if the catalogue has others."""
    catalogued = {
        zone
        for type_ in types
        for entry in type_.requirements
        if entry.key == names.ZONE_LABEL
        for zone in entry.values
    }
    unknown = [zone for zone in zones if zone not in catalogued and zone != "unknown"]
    if not unknown or not types:
        return types
    if catalogued == {EVERY_ZONE}:
        return tuple(_moved(type_, zones) for type_ in types)
    where = ", ".join(unknown)
    message = f"the catalogue has nothing in {where}: its types are taken to be offered there, at the same prices"
    problems.append(assumption("ZonesAssumed", "", message, _REMEDY))
    return tuple(_moved(type_, zones) for type_ in types)


def _moved(type_: InstanceType, zones: Sequence[str]) -> InstanceType:
    offerings = {
        requirement.values[0]: offering
        for offering in type_.offerings
        for requirement in offering.requirements
        if requirement.key == names.CAPACITY_TYPE_LABEL
    }
    others = tuple(requirement for requirement in type_.requirements if requirement.key != names.ZONE_LABEL)
    return msgspec.structs.replace(
        type_, requirements=(*others, _in(names.ZONE_LABEL, zones)), offerings=_offerings(zones, offerings)
    )


def _offerings(zones: Sequence[str], by_kind: Mapping[str, Offering]) -> tuple[Offering, ...]:
    """One for each zone and capacity type."""
    return tuple(
        msgspec.structs.replace(
            offering, requirements=(_in(names.CAPACITY_TYPE_LABEL, [kind]), _in(names.ZONE_LABEL, [zone]))
        )
        for zone in zones
        for kind, offering in by_kind.items()
    )


def _values(nodes: Iterable[ScenarioObject], claims: Iterable[ScenarioObject], label: str) -> list[str]:
    return sorted({value for object_ in (*nodes, *claims) if (value := labels_of(object_.body).get(label))})


def _derived(
    name: str, nodes: Sequence[ScenarioObject], zones: Sequence[str], kinds: Sequence[str]
) -> InstanceType | None:
    status = status_of(nodes[0].body)
    capacity = {key: str(value) for key, value in (status.get("capacity") or {}).items()}
    allocatable = {key: str(value) for key, value in (status.get("allocatable") or capacity).items()}
    size = _size(capacity or allocatable)
    if size is None:
        return None
    shared = dict(labels_of(nodes[0].body))
    for node in nodes[1:]:
        shared = {key: value for key, value in shared.items() if labels_of(node.body).get(key) == value}
    own = {key: value for key, value in shared.items() if key not in PER_NODE_LABELS and "/" in key}
    requirements = [_in(key, [value]) for key, value in sorted(own.items())]
    requirements += [_in(names.ZONE_LABEL, zones), _in(names.CAPACITY_TYPE_LABEL, kinds)]
    return InstanceType(
        name=name,
        requirements=tuple(requirements),
        offerings=_offerings(zones, {kind: _guessed(size, kind) for kind in kinds}),
        capacity=allocatable,  # without the overhead
    )


def _in(key: str, values: Iterable[str]) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="In", values=list(values))


def _guessed(size: tuple[float, float], capacity_type: str) -> Offering:
    price = guessed_price(*size, spot=capacity_type == names.CapacityType.SPOT)
    return Offering(requirements=(), price=price, guessed=True)


def _size(amounts: Mapping[str, Any]) -> tuple[float, float] | None:
    """Cpus, and bytes of memory."""
    try:
        cpu, memory = (float(parse_quantity(str(amounts[key])).nano / 1e9) for key in ("cpu", "memory"))
    except (KeyError, QuantityError, OverflowError):  # no machine has more than a float can hold
        return None
    return cpu, memory
