"""The instance types and prices of each NodePool, as the provider last answered.

Scheduling, drift and prices all read the same answer.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import CapacityType
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.scheduling.placement import MachineType, Offer
from dovetail.scheduling.requirements import RequirementError, Requirements, read_requirements
from dovetail.scheduling.resources import offered_amounts, type_allocatable
from dovetail.state.store import Change, Deleted, Synced, UndecodableObject

if TYPE_CHECKING:
    from dovetail.state.cluster import ClusterState

BILLION: Final = 1_000_000_000
_NOT_ASKED: Final = "its instance types have not been looked up yet"

OfferingKey: TypeAlias = tuple[str, str, str]  # instance type, zone, capacity type


class ProviderAnswer(msgspec.Struct, frozen=True, eq=False):
    """The provider's answer for one version of a NodePool. `flaw`: why the pool cannot be used."""

    uid: str
    generation: int
    at: float
    """On the monotonic clock."""
    source: Sequence[InstanceType] = ()
    by_name: Mapping[str, InstanceType] = {}
    types: tuple[MachineType, ...] = ()
    prices: Mapping[OfferingKey, int] = {}
    """In billionths, of all offers, also unavailable ones: existing machines have a price, too."""
    flaw: str = ""
    failed: bool = False
    """The provider did not answer. It is asked again the next time."""
    is_read: bool = False
    """Whether types, prices and flaw have been read from the source."""
    version: int | None = None
    """The provider's version of the source; equal versions mean equal types."""


_NOTHING: Final = ProviderAnswer("", 0, 0.0, flaw=_NOT_ASKED)


class InstanceTypes:
    """The answers, by NodePool. `version` changes with every new answer."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self.version = 0
        self._answers: dict[str, ProviderAnswer] = {}
        self._read_last: dict[str, ProviderAnswer] = {}
        self._stale: set[str] = set()
        cluster.pools.subscribe(self._pool_changed)
        cluster.node_classes.subscribe(self._class_changed)
        cluster.claims.subscribe(self._claim_changed)

    def said(self, pool: str) -> ProviderAnswer:
        """The last answer as the provider gave it. Without an answer, its flaw says so."""
        return self._answers.get(pool, _NOTHING)

    def of(self, pool: str) -> ProviderAnswer:
        """The last answer with types and prices, which are read on first use: that takes some milliseconds."""
        answer = self.said(pool)
        if answer.source and not answer.is_read:
            answer = self._answers[pool] = self._read_last[pool] = self._read(pool, answer)
        return answer

    # -- when to ask the provider --------------------------------------------------------------------------------------

    def is_due(self, pool: objects.NodePool, *, at: float, keep_seconds: float) -> bool:
        meta = pool.metadata
        answer = self._answers.get(meta.name)
        if answer is None or answer.failed or not answer.source or meta.name in self._stale:
            return True
        return (answer.uid, answer.generation) != (meta.uid, meta.generation) or at - answer.at >= keep_seconds

    def asking(self, pool: objects.NodePool) -> None:
        """The provider is being asked. Changes from now on make the answer stale."""
        self._stale.discard(pool.metadata.name)

    def given_up(self, pool: objects.NodePool) -> None:
        """The request was cancelled: the answer stays stale."""
        if self._has(pool):
            self._stale.add(pool.metadata.name)

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        if isinstance(change, Deleted):
            self._answers.pop(change.key[1], None)
            self._read_last.pop(change.key[1], None)
            self._stale.discard(change.key[1])
            self.version += 1

    def _class_changed(self, change: Change[objects.NodeClass]) -> None:
        """The types may depend on the node class."""
        if not isinstance(change, Synced | UndecodableObject):
            self._stale.update(
                pool.metadata.name
                for pool in self._cluster.pools.values()
                if pool.spec.template.spec.node_class_ref.name == change.key[1]
            )

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        """A claim was deleted before its launch: its types may no longer be available."""
        if isinstance(change, Deleted) and not change.old.value.status.provider_id:
            pool = change.old.value.metadata.pool
            if pool in self._answers:
                self._stale.add(pool)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(
        self, pool: objects.NodePool, source: Sequence[InstanceType], *, at: float, version: int | None = None
    ) -> None:
        """The provider has listed the types of the pool."""
        if not self._has(pool):
            return
        meta, last = pool.metadata, self._answers.get(pool.metadata.name)
        if source and last is not None and _are_equal(last, source, version):
            self._answers[meta.name] = msgspec.structs.replace(
                last, uid=meta.uid, generation=meta.generation, at=at, version=version
            )
            return
        flaw = "" if source else "the provider has no instance types for it"
        by_name = {type_.name: type_ for type_ in source}
        self._answers[meta.name] = ProviderAnswer(
            meta.uid, meta.generation, at, source, by_name, flaw=flaw, version=version
        )
        if source or last is None or last.flaw != flaw:
            self.version += 1

    def failed(self, pool: objects.NodePool, why: str, *, at: float) -> None:
        """The provider did not answer."""
        if not self._has(pool):
            return
        meta, last, flaw = pool.metadata, self._answers.get(pool.metadata.name), f"its instance types {why}"
        prices = self._read_last.get(meta.name, _NOTHING).prices  # existing machines keep their price
        self._answers[meta.name] = ProviderAnswer(meta.uid, meta.generation, at, prices=prices, flaw=flaw, failed=True)
        if last is None or last.flaw != flaw:
            self.version += 1

    def _has(self, pool: objects.NodePool) -> bool:
        """Whether the pool still exists: the request takes a while."""
        return self._cluster.pools.get(("", pool.metadata.name)) is not None

    def _read(self, pool: str, answer: ProviderAnswer) -> ProviderAnswer:
        """Reads each list once. Types that have not changed stay the same objects."""
        for other in self._read_last.values():
            if other.source is answer.source:
                return _with_types(answer, other.types, other.prices)
        previous = self._read_last.get(pool, _NOTHING)
        before = {type_.name: type_ for type_ in previous.types}
        types = tuple(
            type_
            for offered in answer.source
            if (
                type_ := before[offered.name]
                if offered.name in before and previous.by_name[offered.name] == offered
                else machine_type(offered, self._cluster.warn)
            )
        )
        same = types and types == previous.types
        return _with_types(answer, *((previous.types, previous.prices) if same else (types, prices_of(types))))


def _are_equal(last: ProviderAnswer, source: Sequence[InstanceType], version: int | None) -> bool:
    """Whether the provider has listed the same types again. Versions save the comparison."""
    if last.source is source or (version is not None and last.source and last.version == version):
        return True
    return tuple(last.source) == tuple(source)


def _with_types(
    answer: ProviderAnswer, types: tuple[MachineType, ...], prices: Mapping[OfferingKey, int]
) -> ProviderAnswer:
    flaw = "" if types else "none of its instance types can be read"
    return msgspec.structs.replace(answer, types=types, prices=prices, flaw=flaw, is_read=True)


def machine_type(type_: InstanceType, warn: Callable[[str], object]) -> MachineType | None:
    """The type as scheduling reads it. Logs and returns None if it cannot be read."""
    capacity, bad = offered_amounts(dict(type_.capacity))
    overhead, worse = offered_amounts(dict(type_.overhead))
    for quantity in (*bad, *worse):
        warn(f"instance type {type_.name} counts as without {quantity}")
    try:
        return MachineType(
            name=type_.name,
            requirements=read_requirements(type_.requirements),
            capacity=capacity,
            allocatable=type_allocatable(capacity, overhead),
            offers=tuple(_offer(type_.name, offering) for offering in type_.offerings),
        )
    except RequirementError as error:
        warn(f"instance type {type_.name} is left out: {error}")
        return None


def prices_of(types: Sequence[MachineType]) -> dict[OfferingKey, int]:
    return {
        (type_.name, zone, capacity_type): offer.price
        for type_ in types
        for offer in type_.offers
        for zone in offer.requirements.get(names.ZONE_LABEL).values or ("",)
        for capacity_type in offer.requirements.get(names.CAPACITY_TYPE_LABEL).values or ("",)
    }


def bought_as(labels: Mapping[str, str]) -> OfferingKey:
    """Instance type, zone and capacity type in the labels of a claim or Node; empty before its launch."""
    type_, zone = labels.get(names.INSTANCE_TYPE_LABEL, ""), labels.get(names.ZONE_LABEL, "")
    return type_, zone, labels.get(names.CAPACITY_TYPE_LABEL, "")


def _offer(type_: str, offering: Offering) -> Offer:
    requirements = read_requirements(offering.requirements)
    kinds = requirements.get(names.CAPACITY_TYPE_LABEL)
    reserved = not kinds.complement and kinds.values == {CapacityType.RESERVED}
    return Offer(
        requirements=requirements,
        price=round(offering.price * BILLION) if isfinite(offering.price) else 0,
        available=offering.available,
        reservation=_reservation(type_, requirements) if reserved else "",
        left=offering.reservation_capacity if reserved else 0,
    )


def _reservation(type_: str, requirements: Requirements) -> str:
    """Identifies a reservation by its content, because providers do not name it."""
    return f"{type_}: {requirements}"
