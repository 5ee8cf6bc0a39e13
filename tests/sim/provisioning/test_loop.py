"""When the provisioner works and when it rests, and what becomes of creates that fail, vanish or take long."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, PODS, Delete, OutcomeUnknown, Unavailable
from dovetail.runtime.dry_run import DryRunApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import Manifest, node_pool
from tests.harness.provisioning import BIG, Setting, play, pool_of_four, requests
from tests.harness.stage import PARAMETER, stage

pytestmark = stage(play)

NOMINATED, FAILED = EventReason.NOMINATED, EventReason.FAILED_SCHEDULING


def sample(setting: Setting, name: str, **labels: str) -> float | None:
    return setting.metrics.registry.get_sample_value(name, labels)


def passes(setting: Setting) -> float:
    name = "karpenter_scheduler_scheduling_duration_seconds_count"
    return sample(setting, name, controller="provisioner") or 0


# -- when --------------------------------------------------------------------------------------------------------------


async def test_pods_that_were_there_before_the_program_are_served(setting: Setting) -> None:
    await setting.program.kill()
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.runs("a"))


async def test_a_pod_without_a_place_asks_again_every_ten_seconds(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("giant", cpu="300"))
    await setting.sim.run_for("1s")
    first = passes(setting)
    await setting.sim.run_for("1m50s")
    assert passes(setting) - first == 10  # every ten seconds, and a second for the window
    assert len(setting.notes(FAILED, "giant")) == 1  # once in five minutes
    await setting.sim.run_for("5m")
    assert sum(event.get("series", {}).get("count", 1) for event in setting.events(FAILED, "giant")) == 2


async def test_when_nobody_waits_nothing_is_done(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    await setting.sim.run_for("1m")
    before, sent = passes(setting), len(setting.sent)
    await setting.sim.run_for("1h")
    assert passes(setting) == before
    assert len([each for each in setting.sent[sent:] if each.request.verb in ("create", "patch", "delete")]) == 0


async def test_a_pod_that_leaves_the_queue_stops_asking(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("giant", cpu="300"))
    await setting.sim.run_for("30s")
    await setting.sim.api.write(Delete(PODS, "giant", namespace="default"))
    await setting.sim.run_for("30s")
    before = passes(setting)
    await setting.sim.run_for("10m")
    assert passes(setting) == before


async def test_what_is_raised_later_is_served_when_it_asks_again(setting: Setting) -> None:
    await setting.begin(pool_of_four(limits={"cpu": "4"}))
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu=BIG))
    await setting.runs_all("web", 1)
    await setting.sim.apply(pool_of_four(limits={"cpu": "100"}))
    assert await setting.seconds_until(lambda: len(setting.claims()) == 2) <= 12
    await setting.runs_all("web", 2)


@stage(computing_seconds=15)
async def test_a_pod_that_is_bound_while_places_are_sought_gets_no_node(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.run_for("2s")
    await setting.sim.apply(manifests.node("by-hand", cpu="8"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    await setting.sim.run_for("1m")
    assert not setting.claims()


@stage(computing_seconds=5)
async def test_stopping_does_not_wait_for_a_plan_to_be_carried_out(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.run_for("2s")
    await setting.program.stop()
    assert not setting.claims()


# -- creates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [True, False], ids=["had taken effect", "had not"])
@pytest.mark.parametrize("times", [1, 2, 3, 5])
@pytest.mark.parametrize("latency_seconds", [0.0, 0.3])
@stage(latency_seconds=PARAMETER)
async def test_a_create_whose_outcome_is_unknown_leads_to_one_claim(setting: Setting, after: bool, times: int) -> None:
    await setting.begin()
    fault = Fault(error=OutcomeUnknown("no answer"), after=after)
    setting.sim.server.faults.add(fault, verb="create", resource=NODECLAIMS, client=names.COMPONENT, times=times)
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    await setting.sim.run_for("2m")
    assert len(setting.claims()) == 1
    assert len(setting.cloud.machines) == 1


async def test_a_server_that_is_away_is_asked_again(setting: Setting) -> None:
    await setting.begin()
    fault = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(fault, verb="create", resource=NODECLAIMS, client=names.COMPONENT, times=3)
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    assert len(setting.claims()) == 1


async def test_claims_that_the_watch_does_not_show_are_not_made_again(setting: Setting) -> None:
    await setting.begin()
    setting.sim.server.faults.add(Fault(delay_seconds=45), verb="watch", resource=NODECLAIMS, client=names.COMPONENT)
    setting.sim.server.faults.drop_watches(NODECLAIMS)
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu=BIG))
    await setting.sim.run_for("40s")
    assert len(setting.claims()) == 2
    await setting.runs_all("web", 2)
    assert len(setting.claims()) == 2


async def test_a_slow_launch_holds_up_others_for_a_while_and_its_own_pods_get_no_second_node(setting: Setting) -> None:
    """06 §7.3: what has no machine after 30 s counts as if nothing fits there."""
    await setting.begin()
    setting.cloud.next_launches(Launch(seconds=120))
    await setting.sim.apply(manifests.pod("slow", cpu=BIG, nodeSelector={names.ZONE_LABEL: "test-zone-a"}))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    await setting.sim.apply(manifests.pod("other", cpu=BIG, nodeSelector={names.ZONE_LABEL: "test-zone-b"}))
    await setting.sim.run_for("29s")
    assert len(setting.claims()) == 1
    await setting.sim.wait_until(lambda: setting.runs("other"), timeout="1m")
    assert not setting.runs("slow")
    await setting.sim.wait_until(lambda: setting.runs("slow"))
    assert len(setting.claims()) == 2


async def test_what_cannot_be_had_is_tried_elsewhere(setting: Setting) -> None:
    await setting.begin()
    setting.cloud.exhaust(capacity_type="spot")
    for zone in ("test-zone-a", "test-zone-b", "test-zone-c"):
        setting.cloud.exhaust(zone=zone)
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: setting.runs("a"), timeout="10m")
    (claim,) = setting.claims()
    labels = claim["metadata"]["labels"]
    assert (labels[names.ZONE_LABEL], labels[names.CAPACITY_TYPE_LABEL]) == ("test-zone-d", "on-demand")


async def test_when_nothing_can_be_had_the_pod_is_told_and_served_once_there_is(setting: Setting) -> None:
    await setting.begin()
    setting.cloud.exhaust()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: bool(setting.notes(FAILED, "a")))
    text = "NodePool requirements filtered out all compatible available instance types"
    assert setting.notes(EventReason.NO_COMPATIBLE_INSTANCE_TYPES, "default") == [text]
    assert not setting.runs("a")
    setting.cloud.restock()
    await setting.sim.wait_until(lambda: setting.runs("a"), timeout="10m")


@pytest.mark.parametrize(("seed", "latency_seconds"), [(0, 0.0), (1, 0.05), (2, 0.1), (3, 0.15)])
@stage(seed=PARAMETER, shuffle=True, latency_seconds=PARAMETER)
async def test_whatever_the_order_of_things_every_pod_gets_its_place_and_no_more(setting: Setting) -> None:
    await setting.begin()
    for number in range(6):
        await setting.sim.apply(manifests.deployment(f"app{number}", replicas=2, cpu=BIG))
        await setting.sim.run_for("700ms")
    for number in range(6):
        await setting.runs_all(f"app{number}", 2)
    await setting.sim.run_for("2m")
    assert len(setting.claims()) == 12


# -- the policies ------------------------------------------------------------------------------------------------------


def _preferring_nowhere() -> Manifest:
    preference = {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": ["test-zone-b"]}]}
    weighted = [{"weight": 1, "preference": preference}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


@pytest.mark.parametrize(
    ("options", "zones"),
    [
        (SchedulingOptions(respect_preferences=True), ["test-zone-b"]),
        (SchedulingOptions(respect_preferences=False), None),
    ],
)
@stage(options=PARAMETER)
async def test_preferences_count_or_not(setting: Setting, zones: list[str] | None) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a", affinity=_preferring_nowhere()))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    entries = {each["key"]: each.get("values") for each in setting.claims()[0]["spec"]["requirements"]}
    assert entries.get(names.ZONE_LABEL) == zones


@pytest.mark.parametrize("options", [SchedulingOptions(strict_min_values=strict) for strict in (True, False)])
@stage(options=PARAMETER)
async def test_min_values_must_hold_or_not(setting: Setting, options: SchedulingOptions) -> None:
    asked = {"key": names.KWOK_INSTANCE_FAMILY_LABEL, "operator": "Exists", "minValues": 50}
    await setting.begin(node_pool(template={"requirements": [asked]}))
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.run_for("1m")
    if options.strict_min_values:
        assert not setting.claims()
        assert "minValues asks for 50 values" in setting.notes(FAILED, "a")[0]
        (note,) = setting.notes(EventReason.NO_COMPATIBLE_INSTANCE_TYPES, "default")
        assert "due to minValues incompatibility" in note
    else:
        (claim,) = setting.claims()
        assert claim["metadata"]["annotations"][names.MIN_VALUES_RELAXED] == "true"
        count = sample(
            setting,
            "karpenter_nodeclaims_created_total",
            reason="provisioned",
            nodepool="default",
            min_values_relaxed="true",
        )
        assert count == 1


# -- what is measured --------------------------------------------------------------------------------------------------


async def test_metrics(setting: Setting) -> None:
    await setting.begin()
    pinned = {names.ZONE_LABEL: "test-zone-a"}
    await setting.sim.apply(
        manifests.pod("a"), manifests.pod("b", nodeSelector=pinned, cpu="300"), manifests.pod("c", cpu="300")
    )
    await setting.sim.run_for("1500ms")
    zones = "karpenter_scheduler_pending_pods_by_effective_zone_count"
    assert sample(setting, zones, controller="provisioner", zone="flexible") == 2
    assert sample(setting, zones, controller="provisioner", zone="test-zone-a") == 1
    assert sample(setting, "karpenter_scheduler_unschedulable_pods_count", controller="provisioner") == 2
    assert sample(setting, "karpenter_scheduler_ignored_pods_count") == 0
    assert sample(setting, "karpenter_pods_scheduling_decision_duration_seconds_count") == 3
    assert sample(setting, "karpenter_pods_scheduling_decision_duration_seconds_sum") == pytest.approx(3)
    await setting.sim.run_for("1m")
    assert sample(setting, "karpenter_pods_scheduling_decision_duration_seconds_count") == 3


@stage(computing_seconds=5)
async def test_while_places_are_sought_it_can_be_seen(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.run_for("4s")
    labels = {"controller": "provisioner", "scheduling_id": "1"}
    assert sample(setting, "karpenter_scheduler_queue_depth", **labels) == 1
    assert sample(setting, "karpenter_scheduler_unfinished_work_seconds", **labels) == 3
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    assert sample(setting, "karpenter_scheduler_queue_depth", **labels) is None


async def test_wishes_that_hold_nodes_apart_are_logged_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dovetail.controllers.provisioning.decisions")
    spread: dict[str, Any] = {"topologyKey": names.ZONE_LABEL, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    await setting.begin()
    spread["labelSelector"] = {"matchLabels": {"app": "a"}}
    await setting.sim.apply(manifests.pod("a", cpu="300", topologySpreadConstraints=[spread]))
    await setting.sim.run_for("10m")
    said = [record for record in caplog.records if "can prevent consolidation" in record.message]
    assert len(said) == 1


# -- dry run -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def looking_only(setting: Setting) -> AsyncIterator[None]:
    """The controllers as `--dry-run` runs them."""
    clock, stop = setting.sim.clock, asyncio.Event()
    api = DryRunApi(setting.sim.server.client(names.COMPONENT))
    cluster = WatchedCluster(api, clock, setting.cloud.node_classes)
    provisioning = ProvisioningOptions(compute=InlineCompute())
    metrics = Metrics(CollectorRegistry())
    manager = Manager(
        api,
        clock,
        election=None,
        recorder=EventRecorder(api, clock, instance="test"),
        reflectors=cluster.reflectors,
        controllers=all_controllers(
            cluster, setting.cloud, metrics, Timings(), FeatureGates(), provisioning=provisioning
        ),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        yield
        stop.set()


async def test_a_dry_run_tells_what_would_be_created_once_and_creates_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dovetail.runtime.dry_run")
    await setting.begin()
    await setting.program.stop()
    async with looking_only(setting):
        pods = [manifests.pod("a", cpu="1"), manifests.pod("b", cpu="1"), manifests.pod("c", cpu="300")]
        await setting.sim.apply(*pods)
        await setting.sim.run_for("5m")
    assert not setting.claims()
    told = [record for record in caplog.records if record.message.startswith("would create NodeClaim")]
    assert len(told) == 1
    assert requests(vars(told[0])["body"])["cpu"] == "2"
    published = [record.message for record in caplog.records if FAILED in record.message]
    assert len(published) == 1
