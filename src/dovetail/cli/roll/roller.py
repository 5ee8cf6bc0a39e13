"""Writes on NodeClaims that their nodes are to be replaced, or takes it back. A failure affects one object only."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from dovetail.api import objects
from dovetail.cli.common.live import all_pages
from dovetail.model.refs import Ref
from dovetail.planning.rolling import RollOutcome, RollStep
from dovetail.ports import (
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    ApiError,
    Conflict,
    KubeApi,
    NotFound,
    OutcomeUnknown,
    Patch,
)

AT_ONCE: Final = 20  # objects
TRIES: Final = 10  # controllers write to a NodeClaim, too
_WOULD: Final = {RollOutcome.ASKED: RollOutcome.WOULD_ASK, RollOutcome.UNDONE: RollOutcome.WOULD_UNDO}


class RollTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeClaim that the user means, and its Node (empty: it has none yet)."""

    claim: objects.NodeClaim
    node: str


class RolledNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it."""

    node: str
    node_claim: str
    node_pool: str
    outcome: RollOutcome
    error: str | None = None
    uid: str


async def targets_by_name(api: KubeApi) -> Mapping[Ref, tuple[RollTarget, ...] | None]:
    """The NodeClaims that `node/X`, `nodeclaim/X` and `nodepool/X` mean; None: the Node has none. Raises ApiError."""
    nodes, claims, pools = (
        await all_pages(api, NODES),
        await all_pages(api, NODECLAIMS),
        await all_pages(api, NODEPOOLS),
    )
    claims.sort(key=lambda claim: claim.metadata.name)
    node_of = {node.spec.provider_id: node.metadata.name for node in nodes if node.spec.provider_id}
    targets = [RollTarget(claim=claim, node=node_of.get(claim.status.provider_id, "")) for claim in claims]
    meant: dict[Ref, tuple[RollTarget, ...] | None] = {Ref("node", "", node.metadata.name): None for node in nodes}
    of_pool: dict[str, list[RollTarget]] = {pool.metadata.name: [] for pool in pools}
    for target in targets:
        meant[Ref("nodeclaim", "", target.claim.metadata.name)] = single = (target,)
        if target.node:
            meant[Ref("node", "", target.node)] = single
        if target.claim.metadata.pool in of_pool:
            of_pool[target.claim.metadata.pool].append(target)
    return meant | {Ref("nodepool", "", name): tuple(theirs) for name, theirs in of_pool.items()}


async def act(
    api: KubeApi, targets: Iterable[RollTarget], step_of: Callable[[objects.NodeClaim], RollStep], *, dry_run: bool
) -> tuple[RolledNode, ...]:
    """Take the step of each NodeClaim, several at once; the outcomes in order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(target: RollTarget) -> RolledNode:
        async with slots:
            try:
                return _rolled(target, await _step(api, target.claim, step_of, dry_run=dry_run))
            except NotFound:
                return _rolled(target, RollOutcome.GONE)
            except ApiError as error:
                return _rolled(target, RollOutcome.FAILED, str(error))

    return tuple(await asyncio.gather(*map(one, targets)))


def _rolled(target: RollTarget, outcome: RollOutcome, error: str | None = None) -> RolledNode:
    meta = target.claim.metadata
    return RolledNode(
        node=target.node,
        node_claim=meta.name,
        node_pool=target.claim.metadata.pool,
        outcome=outcome,
        error=error,
        uid=meta.uid,
    )


async def _step(
    api: KubeApi, claim: objects.NodeClaim, step_of: Callable[[objects.NodeClaim], RollStep], *, dry_run: bool
) -> RollOutcome:
    """Read the NodeClaim again and retry if it has changed meanwhile. Raises ApiError."""
    uid = claim.metadata.uid
    for tries_left in reversed(range(TRIES)):
        step = step_of(claim)
        if not step.annotations or dry_run:
            return _WOULD.get(step.outcome, step.outcome)
        lock = {"uid": uid, "resourceVersion": claim.metadata.resource_version}
        try:
            await api.write(
                Patch(NODECLAIMS, claim.metadata.name, {"metadata": {**lock, "annotations": dict(step.annotations)}})
            )
        except (Conflict, OutcomeUnknown):
            if not tries_left:
                raise
        else:
            return step.outcome
        claim = await api.get(NODECLAIMS, claim.metadata.name)
        if claim.metadata.uid != uid:
            raise NotFound(f"NodeClaim {claim.metadata.name} is another one now")
    raise AssertionError("the last try raises")
