"""How is a cluster cleaned of what only we put on its objects (R38)? Each object by itself, whatever becomes of others."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from dovetail.api.objects import Lease
from dovetail.planning.cleaning import Cleaning, Raw, clean_claim, clean_node, clean_pool
from dovetail.ports import (
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    ApiError,
    Clock,
    Conflict,
    KubeApi,
    NotFound,
    OutcomeUnknown,
    Resource,
)
from dovetail.runtime.lease import Sighting, sighted

AT_ONCE: Final = 20  # objects
TRIES: Final = 10  # a kubelet writes to its Node every few seconds, and does not ask us
LOOK_SECONDS: Final = 1.0

_NODES: Final = NODES.read_as(dict[str, Any])
_CLAIMS: Final = NODECLAIMS.read_as(dict[str, Any])
_POOLS: Final = NODEPOOLS.read_as(dict[str, Any])


class Fate(StrEnum):
    """What became of an object."""

    CLEANED = "cleaned"
    WOULD_CLEAN = "would-clean"
    FAILED = "failed"


class Cleaned(msgspec.Struct, frozen=True, rename="camel"):
    """One object that there was something to remove from."""

    object: str
    fate: Fate
    changes: tuple[str, ...]
    error: str | None = None


# -- is anybody at work? -----------------------------------------------------------------------------------------------


async def live_leases(api: KubeApi, clock: Clock, name: str) -> list[Lease]:
    """Those of this name, in all namespaces, whose holders are alive. Raises ApiError.

    Times in a Lease are another machine's: one that has a holder is watched until it is renewed, or for its whole
    duration (R38).
    """
    seen: dict[str, Sighting] = {}
    live: dict[str, Lease] = {}
    while True:
        leases = [each for each in await _all(api, LEASES, fields=f"metadata.name={name}") if each.metadata.name == name]
        now = clock.monotonic()
        for lease in leases:
            uid, before = lease.metadata.uid, seen.get(lease.metadata.uid)
            seen[uid] = sighted(before, lease, at=now)
            if before is not None and seen[uid] is not before and lease.spec.holder_identity:
                live[uid] = lease
        there = {lease.metadata.uid for lease in leases}
        if all(uid in live or uid not in there or sighting.live_until <= now for uid, sighting in seen.items()):
            return list(live.values())
        await clock.sleep(LOOK_SECONDS)


# -- cleaning ----------------------------------------------------------------------------------------------------------


class _Task(msgspec.Struct, frozen=True, eq=False):
    """One object, as it was read, and what is to be removed from it as it then is."""

    kind: Resource[dict[str, Any]]
    thing: Raw
    plan: Callable[[Raw], Cleaning]

    @property
    def name(self) -> str:
        return str(self.thing["metadata"]["name"])

    @property
    def label(self) -> str:
        return f"{self.kind.kind}/{self.name}"


_Act = Callable[[_Task], Awaitable[Cleaned | None]]


async def clean(api: KubeApi, *, dry_run: bool = False) -> tuple[Cleaned, ...]:
    """Remove what is ours; what there was to remove, by object. Raises ApiError if the cluster cannot be read.

    Nodes come first: a NodeClaim that bears no mark of ours any more would not tell that its Node still does. So that
    of a Node that cannot be cleaned has to wait for the next time.
    """
    nodes, claims, pools = [await _all(api, kind) for kind in (_NODES, _CLAIMS, _POOLS)]
    claim_of = {_machine(claim): claim for claim in claims}
    nodes_of: dict[str, list[Raw]] = {}
    for node in nodes:
        nodes_of.setdefault(_machine(node), []).append(node)
    act: _Act = _would_clean if dry_run else partial(_clean, api)
    found = await _each(act, [_node_task(node, claim_of.get(_machine(node))) for node in nodes])
    failed = {each.object for each in found if each.fate is Fate.FAILED}
    found += await _each(act, [_claim_task(claim, nodes_of.get(_machine(claim), ()), failed) for claim in claims])
    found += await _each(act, [_Task(_POOLS, pool, clean_pool) for pool in pools])
    return tuple(found)


def _machine(thing: Raw) -> str:
    """What a NodeClaim and its Node have in common; one that has none yet is only like itself."""
    where, metadata = "status" if "status" in thing else "spec", thing["metadata"]
    for part in ("spec", "status"):
        if machine := (thing.get(part) or {}).get("providerID"):
            return str(machine)
    return f"{where}/{metadata['uid']}"


def _node_task(node: Raw, claim: Raw | None) -> _Task:
    return _Task(_NODES, node, lambda fresh: clean_node(fresh, claim))


def _claim_task(claim: Raw, nodes: Sequence[Raw], failed: Collection[str]) -> _Task:
    for node in nodes:
        if (name := f"{_NODES.kind}/{node['metadata']['name']}") in failed:
            raise NotImplementedError(name)
    return _Task(_CLAIMS, claim, lambda fresh: clean_claim(fresh, nodes))
