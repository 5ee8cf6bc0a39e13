"""Guard has old nodes replaced by Karpenter: under budgets, in windows, and only if Karpenter answers (10 §I.3)."""

from collections.abc import Mapping
from typing import Any

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.model.beside import Roll, RollCause, at_second, written_mark
from dovetail.ports import NODECLAIMS, NODEPOOLS, Patch
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw
from tests.contract.backends import condition
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.guarding import BesideProgram, KarpenterWorld, run_beside
from tests.harness.provisioning import BIG, OF_FOUR
from tests.harness.stage import stage

pytestmark = stage(run_beside, karpenter=True)

ONE_BY_ONE = [{"nodes": "1"}]
NEVER_DRIFTED = [{"nodes": "100%"}, {"nodes": "0", "reasons": ["Drifted"]}]


async def prepare(
    sim: SimCluster,
    count: int = 3,
    *,
    after: str | None = "2h",
    budgets: list[Any] = ONE_BY_ONE,
    annotations: Mapping[str, str] | None = None,
    **template: Any,
) -> None:
    """A pool whose nodes expire gracefully, and an app with a pod on each of so many nodes."""
    pool = node_pool(
        template={"requirements": [OF_FOUR], **template},
        disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": budgets},
    )
    pool["metadata"]["annotations"] = {names.GRACEFUL_EXPIRE_AFTER: after} if after else {}
    await sim.apply(node_class(), pool)
    app = manifests.deployment("web", replicas=count, cpu=BIG, annotations=dict(annotations or {}))
    await sim.apply(app)
    await sim.wait_until(lambda: len(sim.pods(app="web", ready=True)) == count)


def claims(sim: SimCluster) -> dict[str, Raw]:
    return {each["metadata"]["name"]: each for each in sim.objects(NODECLAIMS)}


def stamped(sim: SimCluster) -> set[str]:
    return {
        name
        for name, each in claims(sim).items()
        if each["metadata"]["annotations"].get(names.NODEPOOL_HASH, "").startswith(names.STAMP_PREFIX)
    }


def marks(sim: SimCluster, name: str) -> set[str]:
    return set(claims(sim)[name]["metadata"]["annotations"]) & {names.HASH_BEFORE, names.ROLLED}


async def ask(sim: SimCluster, name: str) -> None:
    mark = written_mark(Roll(why=RollCause.ASKED, at=at_second(sim.clock.now())))
    await sim.api.write(Patch(NODECLAIMS, name, {"metadata": {"annotations": {names.ROLLED: mark}}}))


async def test_old_nodes_are_replaced_one_by_one_as_budgets_allow(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim)
    first = set(claims(sim))
    await sim.run_for("1h50m")
    assert stamped(sim) == set()
    most, ready = 0, 3
    for _ in range(600):
        await sim.run_for("2s")
        most = max(most, len(stamped(sim)))
        ready = min(ready, len(sim.pods(app="web", ready=True)))
        if not first & set(claims(sim)):
            break
    assert not first & set(claims(sim)), "all are replaced"
    assert most == 1
    assert ready >= 2
    assert program.count("dovetail_beside_stamped_total", why="expired") == 3
    assert [event["regarding"]["kind"] for event in program.events("Stamped")] == ["NodeClaim"] * 3
    assert stamped(sim) == set()


async def test_a_stamp_that_an_upgraded_karpenter_overwrites_is_made_again(
    sim: SimCluster, world: KarpenterWorld
) -> None:
    """At its start, one with another version of the hash writes it on all claims that have not drifted."""
    await prepare(sim, 2)
    first = set(claims(sim))
    await sim.wait_until(lambda: len(first & set(claims(sim))) == 1 and not stamped(sim), timeout="4h")
    (old,) = first & set(claims(sim))
    await world.karpenter.kill()
    await sim.wait_until(lambda: stamped(sim) == {old}, timeout="10m")
    new = {names.NODEPOOL_HASH: "2", names.NODEPOOL_HASH_VERSION: "v9"}
    for kind, name in ((NODEPOOLS, "default"), (NODECLAIMS, old)):
        await sim.api.write(Patch(kind, name, {"metadata": {"annotations": new}}))
    await sim.wait_until(lambda: stamped(sim) == {old}, timeout="10s")
    assert claims(sim)[old]["metadata"]["annotations"][names.HASH_BEFORE] == "2"
    await world.karpenter.start()
    await sim.wait_until(lambda: old not in claims(sim), timeout="10m")


async def test_a_stamp_waits_for_the_window(sim: SimCluster, program: BesideProgram) -> None:
    window = {names.DISRUPTION_SCHEDULE: "0 3 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
    await prepare(sim, 1, annotations=window)
    (old,) = claims(sim)
    for _ in range(24 * 6):
        await sim.run_for("10m")
        now = sim.clock.now()
        if now.hour != 3:
            assert not stamped(sim)
        if old not in claims(sim):
            break
    assert old not in claims(sim)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0


async def test_a_stamp_is_taken_back_when_the_node_is_held_before_karpenter_begins(
    sim: SimCluster, program: BesideProgram
) -> None:
    window = {names.DISRUPTION_SCHEDULE: "0 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "30m"}
    await prepare(sim, 1, annotations=window, budgets=NEVER_DRIFTED)
    (old,) = claims(sim)
    before = claims(sim)[old]["metadata"]["annotations"][names.NODEPOOL_HASH]
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="4h")
    assert marks(sim, old) == {names.HASH_BEFORE, names.ROLLED}
    await sim.run_for("5s")
    assert condition(claims(sim)[old], ConditionType.DRIFTED).get("status") == "True"
    await sim.wait_until(lambda: not stamped(sim), timeout="40m")
    assert sim.clock.now().minute == 20
    assert marks(sim, old) == set()
    assert claims(sim)[old]["metadata"]["annotations"][names.NODEPOOL_HASH] == before
    await sim.run_for("3s")
    assert condition(claims(sim)[old], ConditionType.DRIFTED).get("status") != "True"
    (event,) = program.events("StampUndone")
    assert event["regarding"]["name"] == old
    await sim.run_for("1h")
    assert program.count("dovetail_beside_stamped_total", why="expired") == 2


async def test_without_an_answer_the_first_stamp_is_taken_back_and_no_other_is_made(
    sim: SimCluster, program: BesideProgram, world: KarpenterWorld
) -> None:
    await prepare(sim, 3, budgets=[{"nodes": "100%"}])
    await world.karpenter.kill()
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="3h")
    assert len(stamped(sim)) == 1
    await sim.run_for("29s")
    assert len(stamped(sim)) == 1
    await sim.run_for("2s")
    assert stamped(sim) == set()
    assert [event["type"] for event in program.events("StampUndone")] == ["Warning"]
    await sim.run_for("5h")
    assert stamped(sim) == set()
    assert program.count("dovetail_beside_stamped_total", why="expired") == 1


@stage(karpenter_version="")
async def test_a_karpenter_that_is_away_does_not_stop_the_stamping(
    sim: SimCluster, program: BesideProgram, world: KarpenterWorld
) -> None:
    """Nothing is stamped before it is back. A first stamp of just before is taken back, and another one is made."""
    await prepare(sim, 2)
    first = set(claims(sim))
    await sim.run_for("110m")
    await world.karpenter.kill()
    await sim.run_for("30m")
    assert stamped(sim) == set()
    assert program.count("dovetail_beside_stamped_total", why="expired") == 0
    await world.karpenter.start()
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="1m")
    await world.karpenter.kill()
    await sim.wait_until(lambda: not stamped(sim), timeout="1m")
    await sim.run_for("10m")
    assert stamped(sim) == set()
    await world.karpenter.start()
    await sim.wait_until(lambda: not first & set(claims(sim)), timeout="20m")


async def test_after_the_first_answer_all_go_that_budgets_allow(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim, 4, budgets=[{"nodes": "75%"}])
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="3h")
    most = 0
    for _ in range(20):
        await sim.run_for("2s")
        most = max(most, len(stamped(sim)))
    assert most == 3
    assert program.count("dovetail_beside_stamped_total", why="expired") == 3


async def test_a_node_is_replaced_because_somebody_asks(sim: SimCluster) -> None:
    await prepare(sim, 2, after=None)
    old, other = sorted(claims(sim))
    await ask(sim, old)
    await sim.wait_until(lambda: old not in claims(sim), timeout="10m")
    await sim.run_for("10m")
    assert other in claims(sim)
    assert len(claims(sim)) == 2


async def test_a_claim_that_has_no_hash_does_not_stop_the_stamping_of_others(
    sim: SimCluster, program: BesideProgram
) -> None:
    """Somebody has made it by hand. Karpenter compares no hash, so it would not answer the first stamp."""
    await prepare(sim, 2, budgets=[{"nodes": "100%"}])
    handmade, other = sorted(claims(sim))
    none = dict.fromkeys((names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION))
    await sim.api.write(Patch(NODECLAIMS, handmade, {"metadata": {"annotations": none}}))
    await ask(sim, handmade)
    await sim.wait_until(lambda: other not in claims(sim), timeout="3h")
    assert handmade in claims(sim)
    assert marks(sim, handmade) == {names.ROLLED}
    assert program.events("StampUndone") == []


async def test_nobody_is_stamped_whom_karpenter_would_not_take(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim, 2, annotations={names.DO_NOT_DISRUPT: "true"})
    await sim.run_for("6h")
    assert program.writes("patch nodeclaims") == 0


async def test_a_pool_that_is_opted_out_gets_its_hashes_back(sim: SimCluster) -> None:
    await prepare(sim, 1, budgets=NEVER_DRIFTED)
    (old,) = claims(sim)
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="3h")
    await sim.api.write(Patch(NODEPOOLS, "default", {"metadata": {"annotations": {names.BESIDE: "off"}}}))
    await sim.run_for("2s")
    assert stamped(sim) == set()
    assert marks(sim, old) == set()


async def test_a_pool_that_has_changed_since_keeps_its_stamp(sim: SimCluster, program: BesideProgram) -> None:
    """The claim has drifted anyway."""
    await prepare(sim, 1, budgets=NEVER_DRIFTED)
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="3h")
    other = {"spec": {"template": {"metadata": {"labels": {"new": "label"}}}}}
    await sim.api.write(Patch(NODEPOOLS, "default", other))
    await sim.run_for("2s")
    never = {"metadata": {"annotations": {names.GRACEFUL_EXPIRE_AFTER: None}}}
    await sim.api.write(Patch(NODEPOOLS, "default", never))
    before, writes = stamped(sim), program.writes("patch nodeclaims")
    await sim.run_for("10m")
    assert stamped(sim) == before
    assert program.writes("patch nodeclaims") == writes


@stage(run_beside, karpenter=True, started=False)
async def test_a_new_process_takes_over_the_test_of_the_old_one(
    sim: SimCluster, program: BesideProgram, world: KarpenterWorld
) -> None:
    await program.start()
    await prepare(sim, 1)
    await world.karpenter.kill()
    await sim.wait_until(lambda: bool(stamped(sim)), timeout="3h")
    await sim.run_for("10s")
    await program.restart()
    await sim.run_for("40s")
    assert stamped(sim) == set()
