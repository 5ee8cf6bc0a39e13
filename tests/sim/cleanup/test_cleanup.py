"""Is a cluster, after `cleanup`, as if we had never been there?"""

import asyncio
from typing import Any

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.cli.cleanup.cleaner import CleanedObject, CleanupOutcome, clean, live_leases
from dovetail.ports import (
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    Conflict,
    Forbidden,
    KubeApi,
    OutcomeUnknown,
    Resource,
)
from dovetail.runtime.lease import Election
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness.disruption import (
    CANDIDATE,
    DISRUPTED,
    drift,
    edit_pool,
    node_of,
    play,
    pool,
    scale,
    stand,
    touched,
)
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

KINDS: tuple[Resource[Any], ...] = (NODES, NODECLAIMS, NODEPOOLS)
VOLATILE = {"resourceVersion", "managedFields", "generation", "observedGeneration"}
SLOW = 10_000


def picture(setting: Setting) -> dict[str, Any]:
    """All of our objects, but for what every write changes."""
    return {
        f"{kind.kind}/{each['metadata']['name']}": steady(each) for kind in KINDS for each in setting.sim.objects(kind)
    }


def steady(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: steady(value) for key, value in part.items() if key not in VOLATILE}
    return [steady(each) for each in part] if isinstance(part, list) else part


def api_of(setting: Setting) -> KubeApi:
    return setting.sim.server.client("cleanup")


async def two_drifted(setting: Setting) -> tuple[str, str]:
    """Two nodes that are to be replaced, one at a time, but may not yet."""
    first, second = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=2)
    await hold_back(setting, first, second, value="true")
    await drift(setting, first, second)
    await setting.sim.run_for("10s")
    return first, second


async def two_marked(setting: Setting) -> tuple[str, str]:
    """Two nodes that no budget allows to go."""
    first, second = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    await drift(setting, first, second)
    await setting.sim.run_for("10s")
    await setting.program.kill()
    return first, second


async def hold_back(setting: Setting, *claims: str, value: str | None) -> None:
    for claim in claims:
        await setting.annotate(NODES, node_of(setting, claim), {names.DO_NOT_DISRUPT: value})


async def one_of_them_in_a_command(setting: Setting) -> str:
    """Its replacement does not come up."""
    setting.cloud.next_launches(Launch(registers=False), times=SLOW)
    await setting.sim.wait_until(lambda: len(touched(setting)) == 1, timeout="1m")
    await setting.sim.run_for("10s")
    return touched(setting)[0]


def by_object(found: tuple[CleanedObject, ...]) -> dict[str, tuple[str, ...]]:
    assert all(each.fate is CleanupOutcome.CLEANED for each in found), found
    return {each.object: each.changes for each in found}


async def test_candidates_and_a_command_leave_no_trace(setting: Setting) -> None:
    first, second = await two_drifted(setting)
    await setting.program.kill()
    await hold_back(setting, first, second, value=None)
    await clean(api_of(setting))
    before = picture(setting)
    assert "DisruptionState" not in str(before)
    await setting.program.start()
    taken = await one_of_them_in_a_command(setting)
    (other,) = {first, second} - {taken}
    (new,) = {each["metadata"]["name"] for each in setting.claims()} - {first, second}
    await setting.program.kill()
    assert CANDIDATE in setting.taints(node_of(setting, other))
    assert DISRUPTED in setting.taints(node_of(setting, taken))
    assert setting.condition(ConditionType.DISRUPTION_REASON, taken)["status"] == "True"
    changes = by_object(await clean(api_of(setting)))
    assert f"taint {names.DISRUPTED_TAINT}:NoSchedule" in changes[f"Node/{node_of(setting, taken)}"]
    assert changes[f"Node/{node_of(setting, other)}"] == (f"taint {names.CANDIDATE_TAINT}:PreferNoSchedule",)
    assert set(changes[f"NodeClaim/{taken}"]) == {
        "condition DisruptionState",
        "condition DisruptionReason",
        f"annotation {names.DISRUPTION_COMMAND}",
    }
    assert f"annotation {names.REPLACEMENT_OF}" in changes[f"NodeClaim/{new}"]
    assert changes["NodePool/default"] == ("status.disruptions",)
    after = picture(setting)
    assert {name: after[name] for name in before} == before
    assert all(mark not in str(after) for mark in ("disruption-", "DisruptionState", "/candidate", "/disrupted"))
    assert await clean(api_of(setting)) == (), "a second time there is nothing to do"


async def test_a_dry_run_tells_the_same_and_writes_nothing(setting: Setting) -> None:
    await two_marked(setting)
    written = len(setting.sim.server.trace)
    told = await clean(api_of(setting), dry_run=True)
    assert len(setting.sim.server.trace) == written
    assert {each.fate for each in told} == {CleanupOutcome.WOULD_CLEAN}
    done = await clean(api_of(setting))
    assert [(each.object, each.changes) for each in told] == [(each.object, each.changes) for each in done]


async def test_a_node_that_is_being_deleted_is_not_opened_again(setting: Setting) -> None:
    (claim,) = await stand(setting, pool(), pods={"terminationGracePeriodSeconds": 600})
    await setting.delete_claim(claim)
    node = node_of(setting, claim)
    await setting.sim.wait_until(lambda: DISRUPTED in setting.taints(node))
    await setting.program.kill()
    changes = by_object(await clean(api_of(setting)))
    assert changes[f"NodeClaim/{claim}"] == ("condition DisruptionState",)
    assert DISRUPTED in setting.taints(node)


async def test_whoever_comes_next_goes_on_from_there(setting: Setting) -> None:
    """A controller that starts on a cleaned cluster decides anew."""
    await hold_back(setting, *await two_drifted(setting), value=None)
    taken = await one_of_them_in_a_command(setting)
    await setting.program.kill()
    await clean(api_of(setting))
    assert touched(setting) == []
    setting.cloud.next_launches(Launch(), times=SLOW)
    await scale(setting, 0)
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, taken), timeout="1h")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_conflicts_and_lost_answers_are_tried_again(setting: Setting) -> None:
    await two_marked(setting)
    faults = setting.sim.server.faults
    faults.add(Fault(error=Conflict("changed")), verb="patch", resource=NODES, client="cleanup", times=3)
    faults.add(Fault(error=OutcomeUnknown("lost"), after=True), verb="patch", resource=NODECLAIMS, client="cleanup")
    changes = by_object(await clean(api_of(setting)))
    assert len(changes) == 5
    assert await clean(api_of(setting)) == ()


async def test_one_that_cannot_be_cleaned_does_not_stop_the_others(setting: Setting) -> None:
    first, second = await two_marked(setting)
    stubborn = node_of(setting, first)
    setting.sim.server.faults.add(
        Fault(error=Forbidden("not you")), verb="patch", resource=NODES, name=stubborn, client="cleanup"
    )
    fates = {each.object: (each.fate, each.error) for each in await clean(api_of(setting))}
    assert fates.pop(f"Node/{stubborn}") == (CleanupOutcome.FAILED, "not you")
    assert fates.pop(f"NodeClaim/{first}") == (CleanupOutcome.FAILED, f"left until Node/{stubborn} can be cleaned")
    assert set(fates) == {f"Node/{node_of(setting, second)}", f"NodeClaim/{second}", "NodePool/default"}
    assert {fate for fate, _ in fates.values()} == {CleanupOutcome.CLEANED}
    assert set(by_object(await clean(api_of(setting)))) == {f"Node/{stubborn}", f"NodeClaim/{first}"}


async def test_one_that_changes_all_the_time_is_given_up(setting: Setting) -> None:
    await stand(setting, pool())
    await setting.program.kill()
    setting.sim.server.faults.add(
        Fault(error=Conflict("changed")), verb="patch", resource=NODEPOOLS, client="cleanup", times=SLOW
    )
    failed = [each for each in await clean(api_of(setting)) if each.fate is CleanupOutcome.FAILED]
    assert [(each.object, each.error) for each in failed] == [("NodePool/default", "changed")]


# -- whether a controller is running -----------------------------------------------------------------------------------


async def alive(sim: SimCluster) -> list[str]:
    leases = await live_leases(sim.api, sim.clock, names.LEADER_ELECTION_LEASE)
    return [each.metadata.namespace for each in leases]


def election(sim: SimCluster, namespace: str = "kube-system") -> Election:
    return Election(sim.api, sim.clock, namespace=namespace, name=names.LEADER_ELECTION_LEASE, identity="somebody")


@stage(run, gives=("sim",))
async def test_without_a_lease_or_with_one_that_was_given_back_nobody_is_alive(sim: SimCluster) -> None:
    began_at = sim.clock.now()
    assert await alive(sim) == []
    leader = election(sim)
    await leader.acquire()
    await leader.release()
    assert await alive(sim) == []
    assert sim.clock.now() == began_at, "nobody has to wait for that"


@stage(run, gives=("sim",))
async def test_whoever_holds_a_lease_and_does_not_renew_it_is_dead_after_its_duration(sim: SimCluster) -> None:
    await election(sim).acquire()
    began_at = sim.clock.now()
    assert await alive(sim) == []
    assert (sim.clock.now() - began_at).total_seconds() == 15


@stage(run, gives=("sim",))
async def test_whoever_renews_is_alive_in_whatever_namespace(sim: SimCluster) -> None:
    leader = election(sim, "default")
    await leader.acquire()
    keeping = asyncio.create_task(leader.keep())
    began_at = sim.clock.now()
    assert await alive(sim) == ["default"]
    assert (sim.clock.now() - began_at).total_seconds() <= 3
    keeping.cancel()
    await asyncio.wait([keeping])
