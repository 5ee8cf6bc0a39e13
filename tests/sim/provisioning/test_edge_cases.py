"""The edge cases of 06 §12 with all controllers running; docstrings cite their numbers."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS, Delete, Invalid
from dovetail.sim.actors.wire import RUN_FOR, SHUTDOWN
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.provisioning import BIG, Setting, play, pool_of_four, requests
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import counted

pytestmark = stage(play)

NOMINATED, FAILED = EventReason.NOMINATED, EventReason.FAILED_SCHEDULING


def created_after(setting: Setting, since: float) -> list[float]:
    """When claims were asked for, in seconds since then."""
    start = setting.now().timestamp() - setting.sim.clock.monotonic() + since
    return [round(sent.at.timestamp() - start, 3) for sent in setting.requests("create", NODECLAIMS)]


async def test_a_pod_that_asks_again_does_not_extend_the_window(setting: Setting) -> None:
    """06 §12.1."""
    await setting.begin()
    since = setting.sim.clock.monotonic()
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.run_for("900ms")
    await setting.annotate(PODS, "a", {"touched": "yes"})
    await setting.sim.run_for("5s")
    assert created_after(setting, since) == [1]


async def test_new_pods_extend_it_up_to_ten_seconds(setting: Setting) -> None:
    """06 §12.1."""
    await setting.begin()
    since = setting.sim.clock.monotonic()
    for number in range(14):
        await setting.sim.apply(manifests.pod(f"p{number}", cpu=BIG))
        await setting.sim.run_for("900ms")
    assert set(created_after(setting, since)) == {10}
    await setting.sim.run_for("1m")
    assert len(setting.claims()) == 14


@stage(computing_seconds=5)
async def test_a_pool_that_changes_meanwhile_leaves_the_old_hash_on_the_claim(setting: Setting) -> None:
    """06 §12.2."""
    await setting.begin()
    before = setting.sim.object(NODEPOOLS, "default")
    assert before is not None
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.run_for("2s")  # the window is over, and places are sought
    await setting.sim.apply(pool_of_four(labels={"tier": "gold"}))
    await setting.sim.run_for("10s")
    (claim,) = setting.claims()
    after = setting.sim.object(NODEPOOLS, "default")
    assert after is not None
    hashes = [each["metadata"]["annotations"][names.NODEPOOL_HASH] for each in (before, claim, after)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert "tier" not in claim["metadata"]["labels"]


async def test_a_pool_that_is_not_ready_is_not_used_until_it_is(setting: Setting) -> None:
    """06 §12.3."""
    await setting.sim.apply(pool_of_four(), manifests.pod("a"))
    await setting.sim.run_for("1m")
    assert not setting.claims()
    assert setting.notes(FAILED, "a") == ["Failed to schedule pod, no dynamic nodepools found"]
    await setting.sim.apply(node_class())
    await setting.sim.wait_until(lambda: setting.runs("a"))


async def test_a_pool_that_is_being_deleted_is_not_used(setting: Setting) -> None:
    """06 §12.3."""
    going = pool_of_four("going", weight=10)
    going["metadata"]["finalizers"] = ["example.com/held"]
    await setting.begin(going, pool_of_four("staying"))
    await setting.sim.api.write(Delete(NODEPOOLS, "going"))
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    assert (len(setting.claims("going")), len(setting.claims("staying"))) == (0, 1)


async def test_what_fits_on_a_node_that_is_coming_needs_no_other(setting: Setting) -> None:
    """06 §12.4."""
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    await setting.sim.run_for("10s")
    assert not setting.sim.objects(NODES)
    await setting.sim.apply(manifests.pod("b"), manifests.pod("c"))
    await setting.sim.wait_until(lambda: setting.runs("b") and setting.runs("c"))
    (claim,) = setting.claims()
    assert setting.notes(NOMINATED, "b") == [f"Pod should schedule on: nodeclaim/{claim['metadata']['name']}"]
    assert len(setting.requests("create", NODECLAIMS)) == 1


async def test_pods_of_a_node_that_goes_and_pending_ones_share_a_claim(setting: Setting) -> None:
    """06 §12.5."""
    await setting.begin()
    await setting.sim.apply(manifests.deployment("web", cpu="1"), manifests.pdb("web", minAvailable=1))
    await setting.runs_all("web", 1)
    (old,) = setting.claims()
    await setting.delete_claim(old["metadata"]["name"])
    await setting.sim.apply(manifests.pod("late", cpu="1500m"))
    await setting.sim.wait_until(lambda: setting.runs("late"))
    (new,) = (each for each in setting.claims() if each["metadata"]["name"] != old["metadata"]["name"])
    assert (requests(new)["cpu"], requests(new)["pods"]) == ("2500m", "2")


async def test_which_pods_of_a_node_that_goes_need_a_place(setting: Setting) -> None:
    """06 §12.6.

    Neither finished ones, nor daemons, nor what ends, nor what a budget will never let go; but what will return."""
    await setting.begin()
    slow: dict[str, Any] = {"annotations": {SHUTDOWN: "1h"}, "terminationGracePeriodSeconds": 3600}
    await setting.sim.apply(
        manifests.deployment("held", cpu="100m"),
        manifests.pdb("held", minAvailable=1),
        manifests.deployment("stuck", cpu="10m"),
        manifests.pdb("stuck", maxUnavailable=0),
        manifests.workload("DaemonSet", "daemon", cpu="20m"),
        manifests.deployment("ending", cpu="40m", **slow),
        manifests.workload("StatefulSet", "returning", cpu="200m", fields={"serviceName": "x"}, **slow),
        manifests.pod("done", cpu="80m", annotations={RUN_FOR: "1s"}, restartPolicy="Never"),
    )
    for app in ("held", "stuck", "daemon", "ending", "returning"):
        await setting.runs_all(app, 1)
    (old,) = setting.claims()
    await setting.sim.apply(manifests.deployment("ending", replicas=0, cpu="40m", **slow))
    await setting.sim.api.write(Delete(PODS, "returning-0", namespace="default"))
    await setting.delete_claim(old["metadata"]["name"])
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2)
    (new,) = (each for each in setting.claims() if each["metadata"]["name"] != old["metadata"]["name"])
    # `held` and `returning`, and the daemon that will be on the new node as well.
    assert (requests(new)["cpu"], requests(new)["pods"]) == ("320m", "3")


async def test_a_bad_volume_claim_holds_back_nobody_else(setting: Setting) -> None:
    """06 §12.7."""
    await setting.begin()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    await setting.sim.apply(manifests.pod("bad", volumes=volumes), manifests.pod("good"))
    await setting.sim.wait_until(lambda: setting.runs("good"))
    (note,) = setting.notes(FAILED, "bad")
    assert "claim nowhere does not exist" in note
    assert setting.metrics.registry.get_sample_value("karpenter_scheduler_ignored_pods_count") == 1


async def test_daemons_are_counted_once_for_each_node(setting: Setting) -> None:
    """06 §12.8."""
    await setting.begin()
    await setting.sim.apply(manifests.workload("DaemonSet", "daemon", cpu="500m", memory="1Gi"))
    await setting.sim.apply(manifests.deployment("web", replicas=3, cpu="500m", memory="1Gi"))
    await setting.runs_all("web", 3)
    (claim,) = setting.claims()
    assert requests(claim) == {"cpu": "2", "memory": "4Gi", "pods": "4"}


async def test_a_claim_that_has_no_machine_yet_holds_up_the_next_plan(setting: Setting) -> None:
    """06 §12.10."""
    await setting.begin()
    setting.cloud.next_launches(Launch(seconds=20))
    await setting.want("by-disruption")
    await setting.sim.apply(manifests.pod("a", cpu=BIG), manifests.pod("b", cpu=BIG))
    await setting.sim.run_for("19s")
    assert len(setting.claims()) == 1
    # As soon as it has one, and not only when somebody asks again; and what it has room for needs no other.
    assert await setting.seconds_until(lambda: len(setting.claims()) == 2) < 2
    await setting.sim.wait_until(lambda: setting.runs("a") and setting.runs("b"))
    assert len(setting.claims()) == 2


@pytest.mark.parametrize("batch_longest", [timedelta(seconds=10), timedelta(seconds=30)])
@stage(batch_longest=PARAMETER)
async def test_a_nomination_lasts_two_batches(setting: Setting, batch_longest: timedelta) -> None:
    """06 §12.11."""
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    await setting.sim.run_for("5s")
    name = setting.claims()[0]["metadata"]["name"]
    state = setting.provisioner.state
    assert name not in state.nominations(setting.now())
    await setting.sim.apply(manifests.pod("b"))
    await setting.sim.wait_until(lambda: name in state.nominations(setting.now()))
    begun_at = setting.now()
    assert name in state.nominations(begun_at + 2 * batch_longest - timedelta(seconds=2))
    assert name not in state.nominations(begun_at + 2 * batch_longest)


async def test_a_limit_lets_only_a_part_of_a_batch_through(setting: Setting) -> None:
    """06 §12.12."""
    await setting.begin(pool_of_four(limits={"cpu": "8"}))
    await setting.sim.apply(manifests.deployment("web", replicas=3, cpu=BIG))
    await setting.runs_all("web", 2)
    await setting.sim.run_for("1m")
    assert len(setting.claims()) == 2
    (note,) = [event["note"] for event in setting.events(FAILED)]
    assert "NodePool default: its limits leave no room (limits.cpu: " in note


async def test_a_claim_deleted_before_its_launch_is_replaced(setting: Setting) -> None:
    """06 §12.13."""
    await setting.begin()
    setting.cloud.next_launches(Launch(seconds=60))
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.run_for("10s")
    first = setting.claims()[0]["metadata"]["name"]
    await setting.delete_claim(first)
    await setting.sim.wait_until(lambda: setting.runs("a"))
    await setting.sim.run_for("5m")
    (claim,) = setting.claims()
    assert claim["metadata"]["name"] != first
    assert len(setting.requests("create", NODECLAIMS)) == 2


async def test_one_create_that_fails_does_not_hold_up_the_others(setting: Setting) -> None:
    """06 §12.14."""
    await setting.begin()
    refused = Fault(error=Invalid("no, thanks"))
    setting.sim.server.faults.add(refused, verb="create", resource=NODECLAIMS, client=names.COMPONENT)
    await setting.sim.apply(manifests.deployment("web", replicas=3, cpu=BIG))
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2)
    await setting.sim.run_for("5s")
    assert len(setting.claims()) == 2
    (note,) = [event["note"] for event in setting.events(FAILED)]
    expected = "Failed to schedule pod, a NodeClaim of NodePool default could not be created: no, thanks"
    assert note == expected
    assert counted(setting.metrics.nodeclaims_created, reason="provisioned", nodepool="default") == 2
    await setting.runs_all("web", 3)
    assert len(setting.claims()) == 3


async def test_a_pool_that_is_out_of_limits_makes_way_for_a_lighter_one(setting: Setting) -> None:
    """06 §12.15."""
    await setting.begin(pool_of_four("first", weight=50, limits={"nodes": "1"}), pool_of_four("second", weight=1))
    await setting.sim.apply(manifests.deployment("web", replicas=3, cpu=BIG))
    await setting.runs_all("web", 3)
    assert (len(setting.claims("first")), len(setting.claims("second"))) == (1, 2)


@stage(kwok=True)
async def test_with_kwok_it_is_the_same(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool())
    assert setting.sim.object(KWOK_NODECLASSES, "default") is not None
    await setting.sim.apply(manifests.deployment("web", replicas=5, cpu=BIG))
    await setting.runs_all("web", 5)
    placed = {pod["spec"]["nodeName"] for pod in setting.sim.pods(app="web")}
    assert len(placed) == len(setting.claims())
