"""Which machines a provider offers, and at which price."""

from collections.abc import Mapping

import msgspec

from dovetail.api import objects


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """A way in which an instance type can be bought: at least its zone and capacity type, and the price by the hour."""

    requirements: tuple[objects.NodeSelectorRequirement, ...]
    price: float
    available: bool = True
    reservation_capacity: int = 0


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of machine. Types that cannot be had now are listed too: availability is the offering's."""

    name: str
    requirements: tuple[objects.NodeSelectorRequirement, ...]
    offerings: tuple[Offering, ...]
    capacity: Mapping[str, str]
    overhead: Mapping[str, str] = {}
