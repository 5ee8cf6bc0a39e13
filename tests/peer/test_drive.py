"""Drive beside a real Karpenter of its own: budgets, graceful expiry, and a restart while it replaces a node."""

import asyncio
from math import ceil
from typing import Any, Final

from dovetail.api import names
from dovetail.sim.actors.wire import Raw, deleting
from tests.cluster.run_process import RunProcess
from tests.peer.test_alone import LoneKarpenter, alone
from tests.peer.test_guard import annotations_of

__all__ = ["alone"]
LONGEST: Final = 240  # seconds for what takes half of it on a busy machine


def budgets(text: str) -> dict[str, str]:
    return {names.OWN_BUDGETS: text}


async def until_gated(alone: LoneKarpenter, claim: Raw) -> None:
    await alone.cluster.eventually(lambda: annotations_of(alone, claim), lambda found: names.HELD in found, timeout=60)


async def disrupted(alone: LoneKarpenter, pool: str) -> list[str]:
    """The nodes of the pool that are being replaced."""
    found = []
    for claim in await alone.claims(pool):
        node: Any = await alone.node(claim) if claim.get("status", {}).get("nodeName") else None
        keys = [] if node is None else [taint["key"] for taint in node["spec"].get("taints") or ()]
        if deleting(claim) or names.BESIDE_DISRUPTED_TAINT in keys:
            found.append(claim["metadata"]["name"])
    return found


async def test_a_budget_bounds_what_goes_at_once_and_0_stops_it(alone: LoneKarpenter) -> None:
    half = await alone.pool(guarded=True, boots="3s", annotations=budgets('[{"nodes": "50%"}]'))
    none = await alone.pool(guarded=True, annotations=budgets('[{"nodes": "0"}]'))
    app = await alone.run(half, 4)
    await alone.run(none)
    old, (kept,) = await alone.claims(half), await alone.claims(none)
    with RunProcess(alone.plane, mode="drive") as drive:
        await asyncio.to_thread(drive.wait_leading)
        for claim in (*old, kept):
            await until_gated(alone, claim)
            await alone.stamp(claim)
        most, left = 0, {claim["metadata"]["name"] for claim in old}
        for _ in range(LONGEST * 2):
            going, claims = await disrupted(alone, half), await alone.claims(half)
            assert len(going) <= ceil(len(claims) / 2)  # replacements count as nodes too
            most = max(most, len(going))
            if left.isdisjoint(each["metadata"]["name"] for each in claims):
                break
            await asyncio.sleep(0.5)
        else:
            raise AssertionError(f"{claims} {drive.lines[-10:]}")
        assert most >= 2
        await alone.until_ready(app, 4)
        assert await disrupted(alone, none) == []
        await alone.untouched(kept, seconds=5)


async def test_a_restart_carries_on_with_a_node_that_expires(alone: LoneKarpenter) -> None:
    aged = {**budgets('[{"nodes": "1", "reasons": ["Expired"]}]'), names.GRACEFUL_EXPIRE_AFTER: "1m"}
    pool = await alone.pool(guarded=True, boots="15s", annotations=aged)
    app = await alone.run(pool)
    (old,) = await alone.claims(pool)
    with RunProcess(alone.plane, mode="drive") as drive:
        await asyncio.to_thread(drive.wait_leading)
        await alone.cluster.eventually(lambda: disrupted(alone, pool), timeout=LONGEST)
    (new,) = [each for each in await alone.claims(pool) if each["metadata"]["uid"] != old["metadata"]["uid"]]
    with RunProcess(alone.plane, mode="drive"):
        await alone.until_gone(old, timeout=LONGEST)
        assert await alone.claim(new) is not None, "the one of before takes the pods, and no other"
        await alone.until_ready(app, 1)
