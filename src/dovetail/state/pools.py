"""Which NodePools can new nodes be made of, and which machines are there to be had for them (05 §1)?

The provider is asked only in `refresh`; in between, what it said is kept. What cannot be used is left out, by name.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import CapacityType, Condition
from dovetail.planning.conditions import is_true
from dovetail.ports import CloudError, CloudProvider, InstanceType, Offering, Unread
from dovetail.runtime.reflector import Change, Deleted, Synced
from dovetail.runtime.tasks import within
from dovetail.scheduling.problem import MachineType, Offer, Pool, read_pool
from dovetail.scheduling.requirements import RequirementError, Requirements, read_requirements
from dovetail.scheduling.resources import ResourceError, offered_amounts, type_allocatable
from dovetail.state.cluster import Cluster

log = logging.getLogger(__name__)

BILLION: Final = 1_000_000_000
_ASKING_SECONDS: Final = 60.0
_NOT_ASKED: Final = "its instance types have not been looked up yet"


class Pools(msgspec.Struct, frozen=True):
    """Heaviest first, with the types of each by its name; and of those that cannot be used, why."""

    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    left_out: Mapping[str, str] = {}


class _Answer(msgspec.Struct, frozen=True, eq=False):
    """What the provider said of a pool as it was then. `flaw`: why nothing can be made of it."""

    uid: str
    generation: int
    at: float
    source: Sequence[InstanceType] = ()
    types: tuple[MachineType, ...] = ()
    flaw: str = ""


class PlacingPools:
    """Make it before the caches run."""

    def __init__(self, cluster: Cluster, provider: CloudProvider, *, keep_seconds: float) -> None:
        self._cluster = cluster
        self._provider = provider
        self._clock = cluster.clock
        self._keep_seconds = keep_seconds
        self._answers: dict[str, _Answer] = {}  # by name of the pool
        self._stale: set[str] = set()
        self._changed = True
        self._told = Pools()
        cluster.pools.subscribe(self._pool_changed)
        cluster.node_classes.subscribe(self._class_changed)
        cluster.claims.subscribe(self._claim_changed)

    # -- what changed -------------------------------------------------------------------------------------------------

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        self._changed = True
        if isinstance(change, Deleted):
            self._answers.pop(change.key[1], None)
            self._stale.discard(change.key[1])

    def _class_changed(self, change: Change[objects.NodeClass]) -> None:
        """What can be had may depend on it."""
        if not isinstance(change, Synced | Unread):
            self._stale.update(
                pool.metadata.name
                for pool in self._cluster.pools.values()
                if pool.spec.template.spec.node_class_ref.name == change.key[1]
            )

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        """One that ended before it began: perhaps what it asked for is no longer to be had."""
        match change:
            case Deleted(old=old) if not old.value.status.provider_id:
                pool = old.value.metadata.labels.get(names.NODEPOOL_LABEL, "")
                if pool in self._answers:
                    self._stale.add(pool)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask the provider where that is due. Never raises for what the provider says."""
        due = [pool for pool in self._usable() if pool.metadata.name in self._stale or self._is_due(pool)]
        self._stale.difference_update(pool.metadata.name for pool in due)
        async with asyncio.TaskGroup() as group:
            for pool in due:
                group.create_task(self._ask(pool), name=f"instance types of {pool.metadata.name}")

    def _is_due(self, pool: objects.NodePool) -> bool:
        known = self._answers.get(pool.metadata.name)
        if known is None or known.flaw:
            return True
        same = (known.uid, known.generation) == (pool.metadata.uid, pool.metadata.generation)
        return not same or self._clock.monotonic() - known.at >= self._keep_seconds

    async def _ask(self, pool: objects.NodePool) -> None:
        name, flaw = pool.metadata.name, ""
        source: Sequence[InstanceType] = ()
        try:
            source = await within(self._clock, _ASKING_SECONDS, self._provider.instance_types(pool))
            flaw = "" if source else "the provider has no instance types for it"
        except CloudError as error:
            flaw = f"its instance types cannot be looked up: {error}"
        except TimeoutError:
            flaw = f"its instance types cannot be looked up: no answer within {_ASKING_SECONDS:.0f} s"
        known = self._answers.get(name)
        types = () if flaw else self._converted(name, source)
        if not (flaw or types):
            flaw = "none of its instance types can be read"
        meta = pool.metadata
        self._answers[name] = _Answer(meta.uid, meta.generation, self._clock.monotonic(), source, types, flaw)
        if known is None or known.types is not types or known.flaw != flaw:
            self._changed = True

    def _converted(self, pool: str, source: Sequence[InstanceType]) -> tuple[MachineType, ...]:
        """Once for each list; what has not changed in a new one stays the same object."""
        for answer in self._answers.values():
            if answer.source is source and answer.types:
                return answer.types
        known = self._answers.get(pool)
        before = {} if known is None else {each.name: each for each in known.types}
        old = {} if known is None else {each.name: each for each in known.source}
        found = tuple(
            type_
            for each in source
            if (type_ := before[each.name] if each.name in before and old[each.name] == each else _machine_type(each))
        )
        return known.types if known is not None and found == known.types else found

    # -- telling ------------------------------------------------------------------------------------------------------

    def pools(self) -> Pools:
        """The same object unless something has changed."""
        if self._changed:
            self._changed = False
            found = self._look()
            for name, flaw in found.left_out.items():
                if self._told.left_out.get(name) != flaw:
                    log.warning("NodePool %s is left out: %s", name, flaw)
            if found != self._told:
                self._told = _keeping(self._told, found)
        return self._told

    def _look(self) -> Pools:
        pools: list[Pool] = []
        left_out: dict[str, str] = {}
        for pool in self._usable():
            name = pool.metadata.name
            answer = self._answers.get(name)
            flaw = _NOT_ASKED if answer is None else answer.flaw
            if not flaw:
                try:
                    pools.append(read_pool(pool))
                except (RequirementError, ResourceError) as error:
                    flaw = str(error)
            if flaw:
                left_out[name] = flaw
        by_name = sorted(pools, key=lambda pool: pool.name, reverse=True)
        heaviest_first = tuple(sorted(by_name, key=lambda pool: -pool.weight))
        return Pools(heaviest_first, {pool.name: self._answers[pool.name].types for pool in heaviest_first}, left_out)

    def _usable(self) -> Iterator[objects.NodePool]:
        """Ours, made for pods, ready and to stay."""
        for pool in self._cluster.pools.values():
            ours = self._cluster.manages(pool.spec.template.spec.node_class_ref) and pool.spec.replicas is None
            if ours and pool.metadata.deletion_timestamp is None and is_true(pool, Condition.READY):
                yield pool


def _keeping(old: Pools, new: Pools) -> Pools:
    """The new ones, with what has not changed as it was."""
    known = {pool.name: pool for pool in old.pools}
    pools = tuple(known[each.name] if known.get(each.name) == each else each for each in new.pools)
    return Pools(
        old.pools if old.pools == pools else pools, old.types if old.types == new.types else new.types, new.left_out
    )


# -- from the provider's words -----------------------------------------------------------------------------------------


def _machine_type(type_: InstanceType) -> MachineType | None:
    """None, and a word in the log, if it cannot be read."""
    capacity, bad = offered_amounts(dict(type_.capacity))
    overhead, worse = offered_amounts(dict(type_.overhead))
    for quantity in (*bad, *worse):
        log.warning("instance type %s counts as without %s", type_.name, quantity)
    try:
        return MachineType(
            name=type_.name,
            requirements=read_requirements(type_.requirements),
            capacity=capacity,
            allocatable=type_allocatable(capacity, overhead),
            offers=tuple(_offer(type_.name, each) for each in type_.offerings),
        )
    except RequirementError as error:
        log.warning("instance type %s is left out: %s", type_.name, error)
        return None


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
    """Reservations of providers that do not name them are told apart by what is reserved."""
    return f"{type_}: {requirements}"
