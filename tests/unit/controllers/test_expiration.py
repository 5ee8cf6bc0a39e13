"""Claims that have lived long enough: deleted to the second (R19), or marked to be replaced in time (R20)."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.controllers.nodeclaim.expiration import Expiration
from dovetail.observe.metrics import Metrics
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, Conflict, Delete, OutcomeUnknown, Patch, Unavailable
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.claims import (
    condition_of,
    launched,
    node,
    node_claim,
    node_pool,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.harness.termination import GUARDED, Setting, counted, is_deleting, play

READY = ("Launched", "Registered", "Initialized")
MOMENT = timedelta(milliseconds=1)


class Running:
    """The controller alone, and what it has counted since the program started."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())

    def controllers(self, program: Program) -> list[Expiration]:
        self.metrics = Metrics(CollectorRegistry())
        return [Expiration(program.cluster, self.metrics)]

    @property
    def expired(self) -> float:
        return counted(self.metrics.nodeclaims_disrupted, reason="expired")


@gives("sim", "program", "running")
def run(scenario: Any, **options: Any) -> None:
    running = Running()
    run_controllers(lambda sim, program: scenario(sim, program, running), running.controllers, **options)


pytestmark = stage(run)


def deleted_at(sim: SimCluster, name: str = "c1") -> datetime | None:
    """When its deletion was asked for; None if it was not. Our finalizer holds it."""
    found = sim.object(NODECLAIMS, name)
    assert found is not None
    text = found["metadata"].get("deletionTimestamp")
    return None if text is None else parse_time(text)


def created_at(sim: SimCluster, name: str = "c1") -> datetime:
    found = sim.object(NODECLAIMS, name)
    assert found is not None
    return parse_time(found["metadata"]["creationTimestamp"])


def is_expired(sim: SimCluster, name: str = "c1") -> bool:
    return condition_of(sim, NODECLAIMS, name, ConditionType.EXPIRED).get("status") == "True"


async def until(sim: SimCluster, at: datetime) -> None:
    await sim.clock.sleep((at - sim.clock.now()).total_seconds())


# -- the hard limit (R19) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("90s", 90), ("1h30m", 5400), ("0s", 0), ("25h", 90000), ("1h0m1s", 3601)]
)
async def test_a_claim_is_deleted_to_the_second(
    sim: SimCluster, program: Program, running: Running, text: str, seconds: int
) -> None:
    await sim.run_for("300ms")
    await sim.apply(node_claim("c1", finalizers=True, expireAfter=text))
    due = created_at(sim) + timedelta(seconds=seconds)
    if due - MOMENT > sim.clock.now():
        await until(sim, due - MOMENT)
        assert deleted_at(sim) is None
    await sim.wait_until(lambda: deleted_at(sim) is not None, timeout="1s")
    assert sim.clock.now() == max(due, created_at(sim) + timedelta(milliseconds=300))
    await sim.run_for("1h")
    assert program.requests("delete nodeclaims") == 1
    assert running.expired == 1


async def test_never_is_never(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="Never"))
    await sim.run_for("24h")
    assert deleted_at(sim) is None
    assert program.requests("delete nodeclaims") == 0


async def test_a_limit_beyond_the_calendar_never_comes(sim: SimCluster) -> None:
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="2500000h" * 30))
    await sim.run_for("10h")
    assert deleted_at(sim) is None


async def test_it_is_told_on_claim_and_node(sim: SimCluster, program: Program, running: Running) -> None:
    await sim.apply(node("n1"), node_claim("c1", finalizers=True, expireAfter="1h"))
    await launched(sim, "c1", node="n1", true=READY)
    await sim.apply({**manifests.pod("web"), "spec": {**manifests.pod("web")["spec"], "nodeName": "n1"}})
    await sim.run_for("61m")
    told = program.events(EventReason.DISRUPTION_TERMINATING)
    assert sorted(event["regarding"]["kind"] for event in told) == ["Node", "NodeClaim"]
    assert {event["regarding"]["name"] for event in told} == {"n1", "c1"}
    assert all("Expired" in event["note"] and event["type"] == "Normal" for event in told)
    labels = {"reason": "expired", "nodepool": "default", "termination_mode": "graceful"}
    assert counted(running.metrics.nodeclaims_disrupted, **labels) == 1
    assert counted(running.metrics.pods_disruption_initiated, **labels) == 1


@pytest.mark.parametrize(("period", "mode"), [(None, "graceful"), ("0s", "forceful"), ("1h", "eventual")])
async def test_the_mode_is_that_of_the_grace_period(
    sim: SimCluster, running: Running, period: str | None, mode: str
) -> None:
    grace: dict[str, Any] = {} if period is None else {"terminationGracePeriod": period}
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="1h", **grace))
    await sim.run_for("61m")
    assert counted(running.metrics.nodeclaims_disrupted, termination_mode=mode) == 1


async def test_a_claim_that_is_going_anyway_is_left_alone(sim: SimCluster, program: Program, running: Running) -> None:
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="1h"))
    await sim.run_for("30m")
    await sim.api.write(Delete(NODECLAIMS, "c1"))
    await sim.run_for("2h")
    assert program.requests("delete nodeclaims") == 0
    assert running.expired == 0


async def test_claims_of_others_are_left_alone(sim: SimCluster, program: Program) -> None:
    theirs = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="1h", nodeClassRef=theirs))
    await sim.run_for("3h")
    assert deleted_at(sim) is None
    assert program.requests("delete") == program.requests("patch") == 0


@pytest.mark.parametrize("minutes", [30, 90])
async def test_a_restart_neither_forgets_nor_starts_over(
    sim: SimCluster, program: Program, running: Running, minutes: int
) -> None:
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="1h"))
    await sim.run_for("10m")
    await program.kill()
    await sim.run_for(f"{minutes - 10}m")
    assert deleted_at(sim) is None
    await program.start()
    due = max(sim.clock.now(), created_at(sim) + timedelta(hours=1))
    await sim.wait_until(lambda: deleted_at(sim) is not None, timeout="1h")
    assert sim.clock.now() == due
    await sim.run_for("1s")
    assert running.expired == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=Unavailable("down")),
        Fault(error=Conflict("another one")),
        Fault(error=OutcomeUnknown("lost"), after=True),
        Fault(error=OutcomeUnknown("lost")),
    ],
)
async def test_requests_that_fail_are_made_up_for(sim: SimCluster, running: Running, fault: Fault) -> None:
    await sim.apply(node_claim("c1", finalizers=True, expireAfter="1h"))
    sim.server.faults.add(fault, verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=3)
    await sim.run_for("1h5s")
    assert deleted_at(sim) is not None
    assert running.expired <= 1


@stage(play)
async def test_neither_budgets_nor_the_node_hold_it_back_but_its_pods_are_respected(setting: Setting) -> None:
    """R19, with all controllers."""
    budget = {"budgets": [{"nodes": "0"}], "consolidateAfter": "0s"}
    await setting.sim.apply(node_pool(disruption=budget))
    pods = [manifests.pod("guarded", annotations=GUARDED), manifests.pod("free")]
    found = await setting.launch(pods=pods, expireAfter="2h")
    other = await setting.launch("c2")
    await setting.annotate(NODES, found, GUARDED)
    due = created_at(setting.sim) + timedelta(hours=2)
    await setting.run_until(due - MOMENT)
    assert setting.runs("free")
    await setting.run_past(due)
    assert deleted_at(setting.sim) == due
    await setting.sim.run_for("24h")
    assert setting.runs("guarded")  # without a grace period, for ever
    assert setting.pod("free") is None
    assert not is_deleting(setting.claim("c2"))
    assert [each["metadata"]["name"] for each in setting.sim.objects(NODECLAIMS)] == ["c1", "c2"]
    assert setting.node(other) is not None


# -- the soft limit (R20) ---------------------------------------------------------------------------------------------


def pool(after: str, name: str = "default") -> manifests.Manifest:
    return node_pool(name, disruption={"gracefulExpireAfter": after, "consolidateAfter": "0s"})


async def change(sim: SimCluster, after: str) -> None:
    await sim.api.write(Patch(NODEPOOLS, "default", {"spec": {"disruption": {"gracefulExpireAfter": after}}}))
    await sim.run_for("1s")


async def test_a_claim_is_marked_to_the_second_and_not_deleted(
    sim: SimCluster, program: Program, running: Running
) -> None:
    await sim.apply(pool("1h"), node("n1"), node_claim("c1", finalizers=True))
    await launched(sim, "c1", node="n1", true=READY)
    due = created_at(sim) + timedelta(hours=1)
    await until(sim, due - MOMENT)
    assert condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED) == {}
    await sim.wait_until(lambda: is_expired(sim), timeout="1s")
    assert sim.clock.now() == due
    found = condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED)
    assert parse_time(found["lastTransitionTime"]) == due
    assert found["reason"] == "Expired"
    assert condition_of(sim, NODECLAIMS, "c1", "Ready")["status"] == "True"
    assert condition_of(sim, NODECLAIMS, "c1", ConditionType.DISRUPTION_STATE)["reason"] == "S2"
    writes = program.requests("patch")
    await sim.run_for("10h")
    assert program.requests("patch") == writes == 1
    assert deleted_at(sim) is None
    assert running.expired == 0


@pytest.mark.parametrize("after", ["2h", "Never"])
async def test_the_mark_goes_if_the_pool_now_says_later(sim: SimCluster, after: str) -> None:
    await sim.apply(pool("1h"), node_claim("c1", finalizers=True))
    await sim.run_for("61m")
    assert is_expired(sim)
    await change(sim, after)
    assert condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED) == {}
    await change(sim, "30m")
    assert is_expired(sim)
    await change(sim, "2h")
    assert not is_expired(sim)
    await until(sim, created_at(sim) + timedelta(hours=2) + MOMENT)
    assert is_expired(sim)


async def test_the_mark_goes_with_the_pool(sim: SimCluster) -> None:
    await sim.apply(pool("1h"), node_claim("c1", finalizers=True))
    await sim.run_for("61m")
    await sim.api.write(Delete(NODEPOOLS, "default"))
    await sim.run_for("1s")
    assert condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED) == {}


async def test_only_the_claims_of_the_pool_are_marked(sim: SimCluster) -> None:
    await sim.apply(pool("1h"), pool("Never", "other"))
    await sim.apply(node_claim("c1", finalizers=True), node_claim("c2", pool="other", finalizers=True))
    await sim.apply(node_claim("lone", pool="", finalizers=True))
    await sim.run_for("5h")
    assert [is_expired(sim, name) for name in ("c1", "c2", "lone")] == [True, False, False]


async def test_the_hard_limit_stays(sim: SimCluster, running: Running) -> None:
    await sim.apply(pool("1h"), node_claim("c1", finalizers=True, expireAfter="2h"))
    await sim.run_for("61m")
    assert is_expired(sim)
    await sim.wait_until(lambda: deleted_at(sim) is not None, timeout="1h")
    assert sim.clock.now() == created_at(sim) + timedelta(hours=2)
    # On its way out it keeps what it was marked with.
    await change(sim, "Never")
    assert running.expired == 1
    assert is_expired(sim)


@pytest.mark.parametrize("minutes", [30, 90])
async def test_a_restart_marks_what_was_missed_and_nothing_twice(
    sim: SimCluster, program: Program, minutes: int
) -> None:
    await sim.apply(pool("1h"), node_claim("c1", finalizers=True))
    await sim.run_for("10m")
    await program.kill()
    await sim.run_for(f"{minutes - 10}m")
    await program.start()
    await sim.wait_until(lambda: is_expired(sim), timeout="1h")
    marked_at = condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED)["lastTransitionTime"]
    assert parse_time(marked_at) == max(
        created_at(sim) + timedelta(hours=1), created_at(sim) + timedelta(minutes=minutes)
    )
    await program.restart()
    await sim.run_for("10m")
    assert program.requests("patch") == 0
    assert condition_of(sim, NODECLAIMS, "c1", ConditionType.EXPIRED)["lastTransitionTime"] == marked_at
