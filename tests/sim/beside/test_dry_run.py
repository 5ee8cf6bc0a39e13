"""A dry run of guard and of drive: the plan is reported once, and no write reaches the API server."""

import logging

import pytest

from dovetail.api import names
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.controllers.beside.driving import DriveOptions
from dovetail.ports import NODECLAIMS, NODES
from dovetail.runtime.dry_run import DryRunApi
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.harness.disruption import edit_pool, edit_template, node_of, pool, stand
from tests.harness.driving import Driven, drive
from tests.harness.guarding import BesideProgram, bind, run_beside
from tests.harness.guarding import pool as guarded_pool
from tests.harness.guarding import stand as stand_nodes
from tests.harness.stage import stage

READS = {"get", "list", "watch"}


def reported(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == message]


@stage(drive, options=DriveOptions(compute=InlineCompute(), gated=False), karpenter_version="1.15")
async def test_drive_reports_its_plan_once(setting: Driven, caplog: pytest.LogCaptureFixture) -> None:
    """The cluster stays as it is, so each pass decides the same. Karpenter is away, because it would take the nodes."""
    await setting.program.stop()
    drifted, _ = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    await setting.sim.run_for("1m")
    await setting.karpenter.kill()
    await edit_pool(setting, budgets=[{"nodes": "1"}])
    before, claims = len(setting.sent), setting.claims()
    caplog.set_level(logging.INFO, logger="dovetail")
    setting.program.through = DryRunApi
    await setting.program.start()
    for number in range(3):
        await setting.sim.run_for("2m")
        await setting.annotate(NODES, node_of(setting, drifted), {"example.com/look-again": str(number)})
    assert {each.request.verb for each in setting.sent[before:]} <= READS
    assert setting.claims() == claims
    (plan,) = reported(caplog, "would disrupt node(s)")
    (node,) = vars(plan)["disrupted-nodes"]
    assert (node["NodeClaim"], vars(plan)["reason"]) == (drifted, "Drifted")
    assert [each["NodePool"] for each in vars(plan)["replacement-nodes"]] == ["default"]
    assert len(reported(caplog, f"would patch NodeClaim {drifted}")) == 1


@stage(run_beside, GuardOptions(hold_pods=True), started=False)
async def test_guard_reports_holds_and_stamps(
    sim: SimCluster, program: BesideProgram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dovetail.runtime.dry_run")
    await sim.apply(guarded_pool(annotations={names.GRACEFUL_EXPIRE_AFTER: "30m"}))
    await stand_nodes(sim, "old", "kept")
    await bind(sim, "kept", "web", disruption_schedule="@yearly")
    await sim.run_for("10s")
    before = [*sim.objects(NODECLAIMS), *sim.objects(NODES), *sim.pods()]
    program.through = DryRunApi
    await program.start()
    await sim.run_for("1h")
    assert {request.split()[0] for request in program.api.requests} <= READS
    assert [*sim.objects(NODECLAIMS), *sim.objects(NODES), *sim.pods()] == before
    for message in ("would patch Node kept", "would patch Pod default/web", "would patch NodeClaim old"):
        assert len(reported(caplog, message)) == 1, message
