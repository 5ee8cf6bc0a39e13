"""Pods that are taken off their nodes too early, and those that are not."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.ports import PODS, Evict, Patch
from dovetail.sim.actors.cluster import START
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import Ground, at, play

pytestmark = stage(play)

_PODS = PODS.read_as(dict[str, Any])
RULE = "protected-pods"
POD = "Pod/default/p"
NIGHTLY = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
OFFICE_HOURS = {names.DISRUPTION_BLOCK_SCHEDULE: "0 9 * * *", names.DISRUPTION_BLOCK_DURATION: "8h"}


@pytest.mark.parametrize(
    ("annotations", "hours", "why"),
    [
        ({names.DO_NOT_DISRUPT: "true"}, 1, "karpenter.sh/do-not-disrupt is 'true'"),
        ({names.DO_NOT_DISRUPT: "-1h"}, 1, "karpenter.sh/do-not-disrupt is '-1h'"),
        ({names.DO_NOT_DISRUPT: "4 hours"}, 1, "karpenter.sh/do-not-disrupt is '4 hours'"),
        ({names.DO_NOT_DISRUPT: "4h"}, 3.9, f"karpenter.sh/do-not-disrupt holds until {at(4)[:-2]}"),
        (NIGHTLY, 1.9, "it is outside the window of karpenter.sh/disruption-schedule"),
        (NIGHTLY, 3, "it is outside the window of karpenter.sh/disruption-schedule"),
        ({**NIGHTLY, names.DISRUPTION_SCHEDULE_DURATION: "30s"}, 3, "it is outside the window of"),
        (OFFICE_HOURS, 9, "it is inside the window of karpenter.sh/disruption-block-schedule"),
        ({**OFFICE_HOURS, names.DISRUPTION_BLOCK_DURATION: "1000h"}, 8, "it is inside the window of"),
        ({names.DO_NOT_DISRUPT: "1h", **NIGHTLY}, 1.5, "it is outside the window of"),
    ],
)
async def test_an_eviction_before_the_instant_is_caught(
    ground: Ground, annotations: dict[str, str], hours: float, why: str
) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a", annotations=annotations)
    await ground.drain("a")
    await ground.run_to(hours)
    await ground.evict("p")
    ((object_, message),) = ground.violations(RULE)
    assert object_ == POD
    assert message.startswith(f"was evicted though it is protected: {why}")


@pytest.mark.parametrize(
    ("annotations", "hours"),
    [
        ({}, 1),
        ({names.DO_NOT_DISRUPT: "false"}, 1),
        ({names.DO_NOT_DISRUPT: "4h"}, 4.01),
        (NIGHTLY, 2),
        (NIGHTLY, 2.99),
        ({**NIGHTLY, names.DISRUPTION_SCHEDULE: "0 2 * *"}, 1),  # R11: fail-open
        ({**NIGHTLY, names.DISRUPTION_SCHEDULE: "0 2 * *; 0 5 * * *"}, 5.5),
        (OFFICE_HOURS, 8.9),
        (OFFICE_HOURS, 17),
    ],
)
async def test_an_eviction_at_its_time_is_not(ground: Ground, annotations: dict[str, str], hours: float) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a", annotations=annotations)
    await ground.drain("a")
    await ground.run_to(hours)
    await ground.evict("p")
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.applied[RULE] == 1


async def test_what_others_evict_is_their_matter(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"})
    await ground.sim.api.write(Evict("p", namespace="default"))
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.applied[RULE] == 0


async def test_a_protection_of_this_very_instant_could_not_be_known(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.drain("a")
    await ground.sim.run_for("1m")
    body = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}
    await ground.sim.api.write(Patch(_PODS, "p", body, namespace="default"))
    await ground.evict("p")
    assert ground.violations(RULE) == []


# -- for the deadline (R17) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "hours", "grace_seconds", "message"),
    [
        (None, 1, 30, "was deleted, and not evicted, though its node has no deadline"),
        ("2h", 1.5, 1800, "was deleted before "),
        ("2h", 1.6, 60, "was deleted with a grace of 60 s where 14"),
        ("2h", 2.5, 60, "was deleted with a grace of 60 s where 1 s are due"),
    ],
)
async def test_a_deletion_that_no_deadline_demands_is_caught(
    ground: Ground, period: str | None, hours: float, grace_seconds: int, message: str
) -> None:
    ((object_, said),) = await _deleted(ground, period, hours, grace_seconds)
    assert (object_, said[: len(message)]) == (POD, message)


@pytest.mark.parametrize(("hours", "grace_seconds"), [(1.75, 904), (2.5, 1)])
async def test_a_deletion_for_the_deadline_is_not(ground: Ground, hours: float, grace_seconds: int) -> None:
    assert await _deleted(ground, "2h", hours, grace_seconds) == []


async def _deleted(ground: Ground, period: str | None, hours: float, grace_seconds: int) -> list[tuple[str, str]]:
    """A protected pod with a grace of 25 minutes is deleted so many hours after its node."""
    await ground.begin()
    await ground.nodes("a", terminationGracePeriod=period)
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"}, grace_seconds=1500)
    await ground.drain("a")
    assert (ground.sim.clock.now() - START).total_seconds() < 10
    await ground.run_to(hours)
    await ground.delete_pod("p", grace_seconds)
    return ground.violations(RULE)


async def test_the_grace_of_a_pod_that_ends_in_time_is_not_cut(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", terminationGracePeriod="2h")
    await ground.pod("p", "a", grace_seconds=600, annotations={"dovetail.dev/shutdown": "10m"})
    await ground.drain("a")
    await ground.evict("p")
    await ground.sim.run_for("1s")
    await ground.delete_pod("p", 1)
    (violation,) = ground.violations(RULE)
    assert violation == (POD, "was terminating, and its grace was cut though it would have ended in time")
