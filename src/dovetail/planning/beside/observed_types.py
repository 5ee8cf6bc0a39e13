"""The instance types that a NodePool has already, read off its nodes, for clusters whose provider nobody can ask.

They say how large a new node may be and where it may stand. Prices are not known and count as 0, which decisions read
as unknown.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from dovetail.api import names, objects
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.values.quantity import Quantity, QuantityError, parse_quantity

# Labels of one machine, of its way to be bought, and of its progress.
_NOT_OF_TYPES: Final = frozenset(
    {
        names.NODEPOOL_LABEL,
        names.HOSTNAME_LABEL,
        names.ZONE_LABEL,
        names.REGION_LABEL,
        names.CAPACITY_TYPE_LABEL,
        names.REGISTERED_LABEL,
        names.INITIALIZED_LABEL,
    }
)
_BOUGHT: Final = (names.ZONE_LABEL, names.REGION_LABEL, names.CAPACITY_TYPE_LABEL)


def observed_types(pool: objects.NodePool, claims: Iterable[objects.NodeClaim]) -> tuple[InstanceType, ...]:
    """One for each instance type of the claims, with an offering for each way in which it was bought."""
    set_by_pool = {*(pool.spec.template.metadata.labels or {})}
    by_type: dict[str, list[objects.NodeClaim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.metadata.name):
        type_ = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
        if type_ and claim.status.allocatable:
            by_type.setdefault(type_, []).append(claim)
    return tuple(_type(name, members, set_by_pool) for name, members in sorted(by_type.items()))


def _type(name: str, claims: list[objects.NodeClaim], set_by_pool: set[str]) -> InstanceType:
    newest = max(claims, key=lambda claim: (claim.metadata.creation_timestamp is not None, _created(claim)))
    labels = {key: value for key, value in newest.metadata.labels.items() if key not in _NOT_OF_TYPES | set_by_pool}
    ways = {_way(claim.metadata.labels): None for claim in claims}
    return InstanceType(
        name=name,
        requirements=tuple(_is(key, value) for key, value in sorted(labels.items())),
        offerings=tuple(Offering(requirements=tuple(_is(*each) for each in way), price=0.0) for way in sorted(ways)),
        capacity=_capacity(newest.status),
        overhead=_overhead(newest.status),
    )


def _capacity(status: objects.NodeClaimStatus) -> dict[str, str]:
    """Some providers, such as kwok, report what the NodeClaim requests, which may be less than is allocatable."""
    amounts = {key: str(amount) for key, amount in {**status.allocatable, **status.capacity}.items()}
    for key, amount in status.allocatable.items():
        with suppress(QuantityError):
            if parse_quantity(amounts[key]).nano < parse_quantity(str(amount)).nano:
                amounts[key] = str(amount)
    return amounts


def _overhead(status: objects.NodeClaimStatus) -> dict[str, str]:
    """What pods cannot use. An amount that cannot be read is reported where the node is read."""
    overhead: dict[str, str] = {}
    for key, amount in status.allocatable.items():
        with suppress(QuantityError):
            nanos = parse_quantity(str(status.capacity.get(key, amount))).nano - parse_quantity(str(amount)).nano
            if nanos > 0:
                overhead[key] = str(Quantity(nanos))
    return overhead


def _created(claim: objects.NodeClaim) -> float:
    at = claim.metadata.creation_timestamp
    return 0.0 if at is None else at.timestamp()


def _way(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, labels[key]) for key in _BOUGHT if key in labels)


def _is(key: str, value: str) -> objects.NodeSelectorRequirement:
    return objects.NodeSelectorRequirement(key=key, operator="In", values=[value])
