"""Removes from a cluster what only Dovetail puts on objects (R38). A failure affects one object only."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api import names
from dovetail.api.objects import Lease, ObjectMeta, Wire
from dovetail.cli.common.live import all_pages
from dovetail.planning.cleaning import Cleaning, JsonObject, clean_claim, clean_node, clean_pod, clean_pool
from dovetail.ports import (
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    ApiError,
    Clock,
    Conflict,
    KubeApi,
    NotFound,
    OutcomeUnknown,
    Patch,
    Resource,
)
from dovetail.runtime.lease import ObservedLease, sighted

T = TypeVar("T")

AT_ONCE: Final = 20  # objects
TRIES: Final = 10  # a kubelet writes to its Node every few seconds
LOOK_SECONDS: Final = 1.0

_NODES: Final = NODES.read_as(dict[str, Any])
_CLAIMS: Final = NODECLAIMS.read_as(dict[str, Any])
_POOLS: Final = NODEPOOLS.read_as(dict[str, Any])
_PODS: Final = PODS.read_as(dict[str, Any])
_LEASES: Final = LEASES.read_as(dict[str, Any])
_RENEWAL: Final = ("f:spec", "f:renewTime")


class _MarkedPod(Wire, frozen=True):
    """A cluster may have many pods, and few of them have marks."""

    metadata: ObjectMeta


class CleanupOutcome(StrEnum):
    """The outcome for an object."""

    CLEANED = "cleaned"
    WOULD_CLEAN = "would-clean"
    FAILED = "failed"


class CleanedObject(msgspec.Struct, frozen=True, rename="camel"):
    """One object with something to remove."""

    object: str
    fate: CleanupOutcome
    changes: tuple[str, ...]
    error: str | None = None


# -- running controllers -----------------------------------------------------------------------------------------------


async def live_leases(api: KubeApi, clock: Clock, name: str) -> list[Lease]:
    """The Leases of this name, in all namespaces, whose holders are alive. Raises ApiError.

    Times in a Lease come from the clock of another machine. So a Lease with a holder is watched until it is renewed, or
    for its whole duration (R38).
    """
    seen: dict[str, ObservedLease] = {}
    live: dict[str, Lease] = {}
    while True:
        leases = [
            lease for lease in await _all(api, LEASES, fields=f"metadata.name={name}") if lease.metadata.name == name
        ]
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


async def is_karpenters(api: KubeApi, lease: Lease) -> bool:
    """Whether another program than ours has renewed the Lease last. Raises ApiError."""
    meta = lease.metadata
    raw = await api.get(_LEASES, meta.name, namespace=meta.namespace)
    spec, renewal = _RENEWAL
    renewers = [
        str(entry.get("manager", ""))
        for entry in raw["metadata"].get("managedFields") or ()
        if renewal in ((entry.get("fieldsV1") or {}).get(spec) or {})
    ]
    return bool(renewers) and not any(manager.startswith(names.COMPONENT) for manager in renewers)


# -- cleaning ----------------------------------------------------------------------------------------------------------


class _Task(msgspec.Struct, frozen=True, eq=False):
    """One object as it was read, and the function that says what to remove from it."""

    kind: Resource[dict[str, Any]]
    thing: JsonObject
    plan: Callable[[JsonObject], Cleaning]
    after: str = ""  # an object that failed, and that must be cleaned before this one

    @property
    def name(self) -> str:
        return str(self.thing["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        return self.thing["metadata"].get("namespace") if self.kind.namespaced else None

    @property
    def object(self) -> str:
        return "/".join(filter(None, (self.kind.kind, self.namespace, self.name)))

    def with_fate(self, fate: CleanupOutcome, cleaning: Cleaning, error: str | None = None) -> CleanedObject:
        return CleanedObject(self.object, fate, cleaning.changes, error)


_Act = Callable[[_Task, Cleaning], Awaitable[CleanedObject | None]]


async def clean(api: KubeApi, *, dry_run: bool = False, karpenter: bool = False) -> tuple[CleanedObject, ...]:
    """Remove what is ours, and return what there was to remove. Raises ApiError if the cluster cannot be read.

    Nodes come first: the marks on a NodeClaim say that its Node has marks too. `karpenter`: it runs.
    """
    nodes, claims, pools = [await _all(api, kind) for kind in (_NODES, _CLAIMS, _POOLS)]
    claim_of = {_machine(claim): claim for claim in claims}
    nodes_of: dict[str, list[JsonObject]] = {}
    for node in nodes:
        nodes_of.setdefault(_machine(node), []).append(node)
    act: _Act = _would_clean if dry_run else partial(_clean, api)
    results = await _each(act, [_node_task(node, claim_of.get(_machine(node)), karpenter) for node in nodes])
    failed = {result.object for result in results if result.fate is CleanupOutcome.FAILED}
    claim_tasks = [_claim_task(claim, nodes_of.get(_machine(claim), ()), failed, karpenter) for claim in claims]
    results += await _each(act, claim_tasks)
    results += await _each(act, [_Task(_POOLS, pool, clean_pool) for pool in pools])
    results += await _each(act, [_Task(_PODS, pod, clean_pod) for pod in await _marked_pods(api)])
    return tuple(results)


def _machine(thing: JsonObject) -> str:
    """The provider ID, which a Node and its NodeClaim share; unique for an object without one."""
    for part in ("spec", "status"):
        if machine := (thing.get(part) or {}).get("providerID"):
            return str(machine)
    return f"{thing['metadata']['uid']} has none"


def _node_task(node: JsonObject, claim: JsonObject | None, karpenter: bool) -> _Task:
    return _Task(_NODES, node, lambda fresh: clean_node(fresh, claim, karpenter=karpenter))


def _claim_task(claim: JsonObject, nodes: Sequence[JsonObject], failed: Collection[str], karpenter: bool) -> _Task:
    before = [f"{_NODES.kind}/{node['metadata']['name']}" for node in nodes]
    after = next((name for name in before if name in failed), "")
    return _Task(_CLAIMS, claim, lambda fresh: clean_claim(fresh, nodes, karpenter=karpenter), after)


async def _marked_pods(api: KubeApi) -> list[JsonObject]:
    """The pods that guard or drive holds."""
    marked = []
    for pod in await _all(api, PODS.read_as(_MarkedPod)):
        if names.POD_HOLD in pod.metadata.annotations:
            with suppress(NotFound):
                marked.append(await api.get(_PODS, pod.metadata.name, namespace=pod.metadata.namespace))
    return marked


async def _each(act: _Act, tasks: Iterable[_Task]) -> list[CleanedObject]:
    """Act on the objects with something to remove, several at once; the outcomes in order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: _Task, cleaning: Cleaning) -> CleanedObject | None:
        async with slots:
            return await act(task, cleaning)

    planned = [(task, cleaning) for task in tasks if (cleaning := task.plan(task.thing)).patches]
    fates = await asyncio.gather(*(one(task, cleaning) for task, cleaning in planned))
    return [fate for fate in fates if fate is not None]


async def _would_clean(task: _Task, cleaning: Cleaning) -> CleanedObject:
    return task.with_fate(CleanupOutcome.WOULD_CLEAN, cleaning)


async def _clean(api: KubeApi, task: _Task, cleaning: Cleaning) -> CleanedObject | None:
    """None: the object is gone."""
    if task.after:
        return task.with_fate(CleanupOutcome.FAILED, cleaning, f"left until {task.after} can be cleaned")
    try:
        await _until_clean(api, task, cleaning)
    except NotFound:
        return None
    except ApiError as error:
        return task.with_fate(CleanupOutcome.FAILED, cleaning, str(error))
    return task.with_fate(CleanupOutcome.CLEANED, cleaning)


async def _until_clean(api: KubeApi, task: _Task, cleaning: Cleaning) -> None:
    """Read the object again and retry if it has changed meanwhile."""
    thing, tries_left = task.thing, TRIES
    while cleaning.patches:
        tries_left -= 1
        try:
            return await _send(api, task, thing, cleaning)
        except (Conflict, OutcomeUnknown):
            if not tries_left:
                raise
        thing = await api.get(task.kind, task.name, namespace=task.namespace)
        if thing["metadata"]["uid"] != task.thing["metadata"]["uid"]:
            raise NotFound(f"{task.object} is another one now")
        cleaning = task.plan(thing)
    return None


async def _send(api: KubeApi, task: _Task, thing: JsonObject, cleaning: Cleaning) -> None:
    """Write only if the object has not changed since it was read."""
    for patch in cleaning.patches:
        lock = {"uid": thing["metadata"]["uid"], "resourceVersion": thing["metadata"]["resourceVersion"]}
        body = {**patch.body, "metadata": {**patch.body.get("metadata", {}), **lock}}
        written = Patch(task.kind, task.name, body, namespace=task.namespace, subresource=patch.subresource)
        thing = await api.write(written)


async def _all(api: KubeApi, kind: Resource[T], *, fields: str = "") -> list[T]:
    """Empty if the cluster does not know the kind. Raises ApiError."""
    try:
        return await all_pages(api, kind, fields=fields)
    except NotFound:
        return []
