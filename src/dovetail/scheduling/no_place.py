"""Why a pod has no place: what each NodePool and each node lacks, and the one cause that people can act on."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec


class Lack(StrEnum):
    """The kinds of reasons for which a NodePool or a node does not take a pod, the closest to a place first."""

    LIMITS = "limits"
    TEMPLATE = "requirements of the NodePool"
    TYPES = "instance types"
    ROOM = "too little room"
    VOLUMES = "volumes"
    PORTS = "host ports"
    PODS = "rules between pods"
    REQUIREMENTS = "requirements"
    TAINTS = "taints"
    OTHER_POOL = "the pod asks for another NodePool"


LIMITS: Final = "spec.limits"
_FIELDS: Final = {Lack.LIMITS: LIMITS, Lack.TEMPLATE: "spec.template.spec.requirements"}
_CLOSENESS: Final = {lack: place for place, lack in enumerate(Lack)}


class Misfit(msgspec.Struct, frozen=True):
    """Why a NodePool, or a node, does not take the pod."""

    name: str
    lack: Lack
    why: str


class NoPlace(msgspec.Struct, frozen=True):
    """Why no NodePool makes a node for the pod, and why no node takes it, in the order in which they were tried."""

    pools: tuple[Misfit, ...] = ()
    nodes: tuple[Misfit, ...] = ()

    def __str__(self) -> str:
        return self.told()

    def told(self, own: str = "") -> str:
        """All of it, the cause first."""
        cause, others = self.cause(own), self.others(own)
        told = (f"NodePool {cause.name}: {cause.why}" if cause is not None else "", others)
        return "; ".join(filter(None, told)) or "there is no node, and no NodePool that could make one"

    def cause(self, own: str = "") -> Misfit | None:
        """Why the own NodePool, else the closest one, makes no node. None: there is no NodePool."""
        return min(self.pools, key=lambda pool: _distance(pool, own), default=None)

    def field(self, own: str) -> str:
        """What of the own NodePool keeps every such pod from a new node; empty: something else."""
        cause = self.cause(own)
        return "" if cause is None or cause.name != own else _FIELDS.get(cause.lack, "")

    def others(self, own: str = "") -> str:
        """The other NodePools and the nodes, summed up."""
        cause = self.cause(own)
        others = [pool for pool in self.pools if pool is not cause]
        return "; ".join(filter(None, (_summed(others, "other NodePool"), _summed(self.nodes, "node"))))

    def sentence(self, own: str = "") -> str:
        """What comes after the name of the pod."""
        cause = self.cause(own)
        if cause is None:
            return "fits on no other node, and there is no NodePool that could make one"
        return f"fits on no other node, and NodePool {cause.name} can make none: {cause.why}"


def _distance(pool: Misfit, own: str) -> tuple[bool, bool, int]:
    return pool.lack is Lack.OTHER_POOL, pool.name != own, _CLOSENESS[pool.lack]


def _summed(misfits: Sequence[Misfit], what: str) -> str:
    """`3 nodes: too little cpu`, `3 nodes do not fit: taints 2, host ports 1`."""
    if not misfits:
        return ""
    number = f"{len(misfits)} {what}{'s' if len(misfits) > 1 else ''}"
    if len({misfit.why for misfit in misfits}) == 1:
        return f"{number}: {misfits[0].why}"
    lacks = Counter(misfit.lack for misfit in misfits).most_common()
    return f"{number} do not fit: {', '.join(f'{lack} {count}' for lack, count in lacks)}"
