"""Budgets by the clock, where pods go, and what is forceful: further edge cases of 02 §14 with all controllers.

What stands elsewhere under another name is in `test_checklist.py`.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.sim.actors.wire import created_at
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.claims import Manifest
from tests.harness.disruption import (
    disrupted,
    drift,
    edit_pool,
    empty,
    found,
    hold,
    is_marked,
    is_true,
    node_of,
    others,
    passes,
    play,
    pool,
    stand,
    touched,
)
from tests.harness.placing import a_volume_claim, with_claim
from tests.harness.provisioning import BIG, OF_FOUR, Setting
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import GUARDED, counted, is_deleting

pytestmark = stage(play)

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
NEVER: dict[str, Any] = {"consolidateAfter": "Never"}
STAYS = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


# -- budgets -----------------------------------------------------------------------------------------------------------


async def test_a_budget_that_cannot_be_read_holds_back_its_own_pool_alone(setting: Setting) -> None:
    """02 §14.18: R29: every reason, for it names none."""
    bad = {"nodes": "3", "schedule": "0 0 * * MOON", "duration": "1h"}
    await setting.begin(pool("bad", budgets=[bad], **NEVER), pool("good", **NEVER))
    await hold(setting, "a", pool="bad")
    await hold(setting, "b", pool="good")
    await drift(setting, "a", "b")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "b"))
    await setting.sim.run_for("2h")
    assert touched(setting, "bad") == []
    assert is_marked(setting, "a")


async def test_daily_for_48_hours_is_always(setting: Setting) -> None:
    """02 §14.19."""
    await setting.begin(pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "48h"}], **NEVER))
    await hold(setting, "a")
    await drift(setting, "a")
    before = passes(setting)
    await setting.sim.run_for("25h")
    assert touched(setting) == []
    assert passes(setting) - before < 10, "and nobody has to look for its end"


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kathmandu"])
def zone_of_host(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone_of_host")
async def test_a_window_is_over_at_its_end_in_utc_wherever_the_host_is(setting: Setting) -> None:
    """02 §14.19–20."""
    await setting.begin(pool(budgets=[{"nodes": "0", "schedule": "0 0 * * *", "duration": "8h"}], **NEVER))
    await hold(setting, "a")
    await drift(setting, "a")
    ends_at = setting.now().replace(hour=8, minute=0, second=0, microsecond=0)
    await setting.run_until(ends_at - timedelta(milliseconds=1))
    assert touched(setting) == []
    await setting.run_until(ends_at + timedelta(milliseconds=1))
    assert touched(setting) == ["a"], "at that instant, not a moment later"


# -- where their pods go -----------------------------------------------------------------------------------------------


async def test_a_pod_that_waits_for_good_stops_nothing_and_one_that_would_wait_does(setting: Setting) -> None:
    """02 §14.39."""
    await setting.begin(pool())
    await setting.sim.apply(manifests.pod("hopeless", cpu="100"))
    await hold(setting, "b", pods={"annotations": GUARDED})
    await hold(setting, "a", pods={"nodeSelector": {"example.com/disk": "none"}})
    await drift(setting, "a")
    await setting.sim.run_for("30m")
    assert touched(setting) == []
    assert all("p-a" in note for note in setting.notes(EventReason.DISRUPTION_BLOCKED, "a"))
    await hold(setting, "c")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c"))
    await setting.sim.run_for("10m")
    assert sorted(others(setting)) == ["a", "b"]


async def test_a_node_that_is_not_managed_is_a_place_to_go_to(setting: Setting) -> None:
    """02 §14.40."""
    await setting.begin(pool())
    (claim,) = await stand(setting, cpu="1")
    await setting.sim.run_for("10m")
    assert others(setting) == [claim]
    await setting.sim.apply(manifests.node("own"))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, claim), timeout="2m")
    await setting.runs_all("web", 1)
    assert setting.claims() == []
    assert {pod["spec"]["nodeName"] for pod in setting.sim.pods(app="web")} == {"own"}
    assert disrupted(setting, "underutilized") == 1


def local_volume(name: str, node: str) -> Manifest:
    """A disk of the node."""
    expression = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/disk"}}
    meta = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta,
        "spec": {**spec, "nodeAffinity": affinity},
    }


@pytest.mark.parametrize("reason", ["drifted", "underutilized"])
async def test_a_disk_of_the_old_node_keeps_nobody_there(setting: Setting, reason: str) -> None:
    """02 §14.41."""
    await setting.begin(pool(**(NEVER if reason == "drifted" else {})))
    await hold(setting, "b", pods={"annotations": GUARDED})
    node = await setting.launch("a", requirements=[OF_FOUR])
    await setting.sim.apply(local_volume("disk", node), a_volume_claim("data", volume="disk"))
    cpu = BIG if reason == "drifted" else "100m"
    await setting.bind(node, manifests.pod("db", cpu=cpu, volumes=with_claim("data")))
    if reason == "drifted":
        await hold(setting, "c", pods={"annotations": GUARDED, "cpu": "1"})
        await drift(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert disrupted(setting, reason) == 1


APART = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names.HOSTNAME_LABEL}
SPREAD = {**APART, "maxSkew": 1}


def against_each_other(kind: str) -> dict[str, Any]:
    """Pods that must not, or would rather not, share a node."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    kinds: dict[str, dict[str, Any]] = {
        "anti-affinity": {"affinity": {"podAntiAffinity": {required: [APART]}}},
        "spread": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
        "preferred": {"affinity": {"podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": APART}]}}},
        "spread-anyway": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
    }
    return kinds[kind]


@pytest.mark.parametrize("options", [SchedulingOptions(respect_preferences=respect) for respect in (True, False)])
@pytest.mark.parametrize("kind", ["anti-affinity", "spread", "preferred", "spread-anyway"])
@stage(options=PARAMETER)
async def test_rules_between_pods_are_hard_and_wishes_can_be_ignored(
    setting: Setting, kind: str, options: SchedulingOptions
) -> None:
    """02 §14.42.

    Of three nodes with a pod each, all with room: what must be apart stays apart whatever is said of wishes."""
    await setting.begin(pool(**NEVER))
    for name in ("a", "b", "c"):
        made = manifests.pod(f"p-{name}", **against_each_other(kind))
        made["metadata"]["labels"] = {"app": "web"}
        await setting.launch(name, pods=[made], requirements=[OF_FOUR])
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.run_for("10m")
    hard = kind in ("anti-affinity", "spread")
    assert len(others(setting)) == (3 if hard or options.respect_preferences else 1)


async def test_a_node_that_has_just_got_a_pod_is_a_place_to_go_to(setting: Setting) -> None:
    """02 §14.43: As R35 rules."""
    await setting.begin(pool(consolidateAfter="1h"))
    await hold(setting, "a")
    await setting.sim.run_for("30m")
    await hold(setting, "b")
    quiet_at = setting.now() + 30 * MINUTE
    await setting.run_until(quiet_at - MINUTE)
    assert touched(setting) == []
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="5m")
    assert not is_true(setting, "b", ConditionType.CONSOLIDATABLE)
    assert others(setting) == ["b"]


@stage(timings=Timings(disruption_pass_seconds=0))
async def test_a_pass_that_runs_out_of_time_is_counted_and_made_again(setting: Setting) -> None:
    """02 §14.53: R36 looks at every node in every pass, pools in turn; without any time at all only empty nodes go."""
    await setting.begin(pool("x"), pool("y"))
    await hold(setting, "a", "b", pool="x")
    await hold(setting, "c", "d", pool="y", pods={"annotations": GUARDED})
    before, timeouts = passes(setting), _timeouts(setting)
    await setting.sim.run_for("10m")
    assert touched(setting) == []
    made = passes(setting) - before
    assert 50 <= made <= 70, "every 10 s"
    assert _timeouts(setting) - timeouts == made
    await empty(setting, "d")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "d"), timeout="2m")
    assert sorted(others(setting)) == ["a", "b", "c"]


def _timeouts(setting: Setting) -> int:
    name = "karpenter_voluntary_disruption_consolidation_timeouts_total"
    families = setting.metrics.registry.collect()
    return int(sum(sample.value for family in families for sample in family.samples if sample.name == name))


# -- what is forceful --------------------------------------------------------------------------------------------------


async def test_an_expired_claim_is_deleted_once_and_its_node_may_be_younger(setting: Setting) -> None:
    """02 §14.59."""
    await setting.begin(pool(**NEVER))
    setting.cloud.register_seconds = 300
    await hold(setting, "old", pods={"annotations": GUARDED}, expireAfter="1h")
    node = setting.node(node_of(setting, "old"))
    assert node is not None
    due = created_at(found(setting, "old")) + HOUR
    assert created_at(node) + HOUR > due + 4 * MINUTE
    await setting.run_until(due - SECOND)
    assert not is_deleting(setting.claim("old"))
    await setting.run_past(due)
    assert is_deleting(setting.claim("old"))
    await setting.sim.run_for("24h")  # its pod is protected, and there is no deadline
    assert disrupted(setting, "expired") == 1
    assert len(setting.requests("delete", NODECLAIMS, "old")) == 1
    assert counted(setting.metrics.pods_disruption_initiated, reason="expired") == 1


async def test_an_expired_claim_that_never_registered_counts_no_pods(setting: Setting) -> None:
    """02 §14.59."""
    await setting.begin(pool(**NEVER))
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want("old", requirements=[OF_FOUR], expireAfter="5m")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"), timeout="7m")
    assert disrupted(setting, "expired") == 1
    assert counted(setting.metrics.pods_disruption_initiated, reason="expired") == 0


async def test_one_ill_node_of_three_is_repaired_whatever_budget_and_node_say(setting: Setting) -> None:
    """02 §14.60: As R24a rules it is drained, by its terminationGracePeriod at the latest, and not by force at once."""
    await setting.begin(pool(budgets=[{"nodes": "0"}]))
    told = {"annotations": GUARDED, "tolerations": [STAYS]}
    nodes = await hold(setting, "ill", "b", "c", pods=told, terminationGracePeriod="1h")
    for node in nodes:
        await setting.annotate(NODES, node, GUARDED)
    setting.sim.set_node_ready(nodes[0], ready=False)
    fell_ill_at = setting.now()
    await setting.run_until(fell_ill_at + 10 * MINUTE - SECOND)
    assert touched(setting) == []
    await setting.run_until(fell_ill_at + 10 * MINUTE + 2 * SECOND)
    assert touched(setting) == ["ill"]
    await setting.sim.run_for("30m")
    assert setting.pod("p-ill") is not None
    assert setting.node(nodes[0]) is not None
    await setting.sim.wait_until(lambda: setting.gone(NODES, nodes[0]), timeout="35m")
    await setting.sim.wait_until(lambda: sorted(others(setting)) == ["b", "c"])
    assert disrupted(setting, "unhealthy") == 1
    assert touched(setting) == []


async def test_two_ill_nodes_of_three_are_not_repaired(setting: Setting) -> None:
    """02 §14.60."""
    await setting.begin(pool(**NEVER))
    nodes = await hold(setting, "a", "b", "c")
    for node in nodes[:2]:
        setting.sim.set_node_ready(node, ready=False)
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert setting.events(EventReason.NODE_REPAIR_BLOCKED)
