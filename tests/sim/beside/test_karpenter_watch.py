"""Guard says whether Karpenter is there, and finds out its version (10 §I.3)."""

import pytest

from dovetail.api import names
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.ports import LEASES, PODS, Create, Forbidden, Unavailable
from dovetail.runtime.lease import Election
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.stage import gives, stage

IMAGE = "public.ecr.aws/karpenter/controller:{}@sha256:0123"


@gives("sim")
def play(scenario: object) -> None:
    run(scenario)  # type: ignore[arg-type]


pytestmark = stage(play)


async def lead(sim: SimCluster, pod: str = "karpenter-abc") -> Election:
    leader = Election(
        sim.api, sim.clock, namespace="kube-system", name=names.LEADER_ELECTION_LEASE, identity=f"{pod}_0-1"
    )
    await leader.acquire()
    return leader


async def run_karpenter(sim: SimCluster, version: str, pod: str = "karpenter-abc") -> None:
    body = manifests.pod(pod)
    body["spec"]["containers"][0]["image"] = IMAGE.format(version)
    await sim.api.write(Create(PODS, body, namespace="kube-system"))


async def look(sim: SimCluster, watch: KarpenterWatch) -> str:
    await watch.look(sim.api, sim.clock)
    return watch.problem


async def test_no_lease_is_told_with_the_remedy(sim: SimCluster) -> None:
    problem = await look(sim, KarpenterWatch())
    assert "no running Karpenter" in problem
    assert "--karpenter-version" in problem


@pytest.mark.parametrize(
    ("version", "durations"), [("1.11.9", False), ("1.12.0", True), ("1.15.0", True), ("latest", False)]
)
async def test_the_version_is_that_of_the_image_of_the_holder(sim: SimCluster, version: str, durations: bool) -> None:
    await run_karpenter(sim, version)
    await lead(sim)
    watch = KarpenterWatch()
    assert await look(sim, watch) == ""
    assert watch.reads_durations is durations


async def test_too_old_is_told_with_the_remedy(sim: SimCluster) -> None:
    await run_karpenter(sim, "0.37.0")
    await lead(sim)
    assert "update it to 1.0 or later" in await look(sim, KarpenterWatch())


async def test_a_lease_that_nobody_renews_is_dead_at_the_next_look(sim: SimCluster) -> None:
    await lead(sim)
    watch = KarpenterWatch()
    assert await look(sim, watch) == ""
    await sim.run_for("20s")
    assert "no running Karpenter" in await look(sim, watch)
    assert sim.objects(LEASES)


async def test_a_failed_look_leaves_what_is_known(sim: SimCluster) -> None:
    watch = KarpenterWatch()
    problem = await look(sim, watch)
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="list", resource=LEASES)
    assert await look(sim, watch) == problem


async def test_a_lease_tells_nothing_until_it_is_renewed(sim: SimCluster) -> None:
    """Its holder may have died just before."""
    leader, watch = await lead(sim), KarpenterWatch()
    seen = []
    for renewed in (False, False, True, False):
        if renewed:
            await leader.acquire()
        assert await look(sim, watch) == ""
        seen.append(watch.is_certain)
        await sim.run_for("5s")
    assert seen == [False, False, True, True]
    await sim.run_for("20s")
    await look(sim, watch)
    assert not watch.is_certain


@pytest.mark.parametrize("seen", [False, True])
async def test_without_the_right_to_look_nothing_is_known(sim: SimCluster, seen: bool) -> None:
    leader, watch = await lead(sim), KarpenterWatch()
    for _ in range(2 if seen else 0):
        await look(sim, watch)
        await sim.run_for("2s")
        await leader.acquire()
    await look(sim, watch)
    assert watch.is_certain is seen
    sim.server.faults.add(Fault(error=Forbidden("no right")), verb="list", resource=LEASES)
    problem = await look(sim, watch)
    assert "cannot see whether Karpenter runs: no right; let this account list Leases" in problem
    assert not watch.is_certain


async def test_a_version_that_is_given_is_believed(sim: SimCluster) -> None:
    watch = KarpenterWatch("1.14.2")
    assert await look(sim, watch) == ""
    assert watch.reads_durations
    assert "too old" in await look(sim, KarpenterWatch("0.36"))
