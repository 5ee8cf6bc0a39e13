"""Instance types and offerings of a provider."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.api import names, objects

# A guess, in dollars per hour; only good for comparing.
CPU_PRICE: Final = 0.025
GIGABYTE_PRICE: Final = 0.001
SPOT_SHARE: Final = 0.7

# Labels of a Node that say nothing of its type.
PER_NODE_LABELS: Final = frozenset(
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
        "karpenter.k8s.aws/ec2nodeclass",
        "k8s.io/cloud-provider-aws",
        "topology.k8s.aws/zone-id",
        "topology.ebs.csi.aws.com/zone",
        "topology.kubernetes.io/zone-id",
        *names.NORMALISED_LABELS,
    }
)


def guessed_price(cpu: float, memory_bytes: float, *, spot: bool = False) -> float:
    """What a machine costs per hour, if only its size is known."""
    price = CPU_PRICE * cpu + GIGABYTE_PRICE * memory_bytes / 1e9
    return SPOT_SHARE * price if spot else price


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """A way to buy an instance type: at least zone and capacity type, and the price per hour.

    `guessed`: the price is not the provider's but a guess from the size.
    """

    requirements: tuple[objects.NodeSelectorRequirement, ...]
    price: float
    guessed: bool = False
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
