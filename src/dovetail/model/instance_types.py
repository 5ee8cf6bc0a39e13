"""Instance types and offerings of a provider."""

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.api import objects


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """A way to buy an instance type: at least zone and capacity type, and the price per hour."""

    requirements: tuple[objects.NodeSelectorRequirement, ...]
    price: float
    available: bool = True
    reservation_capacity: int = 0


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type. Types without an available offering are listed too."""

    name: str
    requirements: tuple[objects.NodeSelectorRequirement, ...]
    offerings: tuple[Offering, ...]
    capacity: Mapping[str, str]
    overhead: Mapping[str, str] = {}


class TypeCatalogue(msgspec.Struct, frozen=True):
    """The instance types of a NodePool. Equal versions from one provider mean equal types."""

    version: int
    types: Sequence[InstanceType]
