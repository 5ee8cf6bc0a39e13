"""A value that is too long is invalid and costs no more than a short one, wherever users write it (R53).

Costs are counted in calls of functions, which are the same on every machine.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

import pytest

from dovetail.api import names, objects
from dovetail.api.names import EventReason, Reason
from dovetail.model.pod_records import PodRecord
from dovetail.planning.node.drain import drain_plan
from dovetail.rules.budgets import limit_at, read_budgets
from dovetail.rules.deadlines import expires_at, node_deadline
from dovetail.rules.protection import annotation_faults, node_do_not_disrupt, protection
from dovetail.scheduling.resources import Resources, offered_amounts
from dovetail.state.protections import PodProtections
from dovetail.values import limits
from dovetail.values.duration import DurationError, parse_budget_duration, parse_duration, parse_nillable, parse_simple
from dovetail.values.quantity import QuantityError, parse_quantity
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.timestamp import TimeError, parse_time
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import explain
from tests.harness.builders import at, budget, claim, node, pod, pool
from tests.harness.disruption import drift, hold, play, touched
from tests.harness.disruption import pool as pool_manifest
from tests.harness.provisioning import Setting
from tests.harness.snapshots import take_snapshot
from tests.harness.stage import stage

pytestmark = stage(play)

NOW = at("2026-03-07T12:00:00Z")
HUGE = 240_000  # characters; annotations may have 256 KiB
LONG = "1ns" * (HUGE // 3)  # a valid duration for Go
LONG_CRON = "0 2 * * *".ljust(60_000)  # valid but for its length, as the next
LONG_DURATIONS = "2h".rjust(60_000, "0")
NOTE_AT_MOST = 400


def calls(action: Callable[[], object]) -> int:
    """How many functions it calls, those in C included."""
    found = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def read(subject: PodRecord) -> None:
    """What the controllers ask of a pod again and again."""
    later = NOW + timedelta(minutes=1)
    annotation_faults(subject.annotations)
    drain_plan([subject], deadline=None, now=later)
    PodProtections().leaves(subject, later)
    _ = subject.eviction_cost


# -- the limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "error", "longest"),
    [
        pytest.param(parse_duration, DurationError, "1h".rjust(64, "0"), id="duration"),
        pytest.param(parse_simple, DurationError, "1h".rjust(64, "0"), id="terminationGracePeriod"),
        pytest.param(parse_nillable, DurationError, "1h".rjust(64, "0"), id="expireAfter"),
        pytest.param(parse_budget_duration, DurationError, "1h".rjust(64, "0"), id="budget duration"),
        pytest.param(parse_cron, CronError, "0 2 * * *".ljust(4096), id="cron"),
        pytest.param(parse_time, TimeError, f"2026-03-07T12:00:00.{'0' * 235}Z", id="time"),
        pytest.param(parse_quantity, QuantityError, "1".rjust(1000, "0"), id="quantity"),
    ],
)
def test_the_longest_value_is_read_and_one_character_more_is_not(
    parse: Callable[[str], object], error: type[Exception], longest: str
) -> None:
    parse(longest)
    longer = longest.replace("0", "00", 1) if "0" in longest.strip() else longest
    assert len(longer) == len(longest) + 1
    with pytest.raises(error) as caught:
        parse(longer)
    assert len(str(caught.value)) < NOTE_AT_MOST

    def refuse(text: str) -> None:
        with suppress(error):
            parse(text)

    few = calls(lambda: refuse("x" * (len(longest) + 1)))
    assert calls(lambda: refuse(longer * 100)) <= few, "nobody parses it"


# -- pods --------------------------------------------------------------------------------------------------------------

_SCHEDULED = {names.DISRUPTION_SCHEDULE: "0 2 * * *"}
_BLOCKED = {names.DISRUPTION_BLOCK_SCHEDULE: "0 2 * * *"}


@pytest.mark.parametrize(
    ("short", "long", "protected"),
    [
        pytest.param({names.DO_NOT_DISRUPT: "4h"}, {names.DO_NOT_DISRUPT: LONG}, True, id="do-not-disrupt"),
        pytest.param({names.DO_NOT_DISRUPT: "4h"}, {names.DO_NOT_DISRUPT: "4h".rjust(HUGE, "0")}, True, id="digits"),
        pytest.param(_SCHEDULED, {names.DISRUPTION_SCHEDULE: LONG_CRON}, False, id="schedule"),
        pytest.param(_SCHEDULED, {names.DISRUPTION_SCHEDULE: ";" * HUGE}, False, id="separators"),
        pytest.param(
            _SCHEDULED, {names.DISRUPTION_SCHEDULE: ";".join(["0 2 * * *".ljust(900)] * 64)}, False, id="expressions"
        ),
        pytest.param(
            {**_SCHEDULED, names.DISRUPTION_SCHEDULE_DURATION: "2h"},
            {**_SCHEDULED, names.DISRUPTION_SCHEDULE_DURATION: LONG_DURATIONS},
            True,  # the schedule stands, with windows of an hour
            id="schedule duration",
        ),
        pytest.param(_BLOCKED, {names.DISRUPTION_BLOCK_SCHEDULE: LONG_CRON}, False, id="block schedule"),
        pytest.param(
            {**_BLOCKED, names.DISRUPTION_BLOCK_DURATION: "2h"},
            {**_BLOCKED, names.DISRUPTION_BLOCK_DURATION: LONG_DURATIONS},
            False,
            id="block duration",
        ),
    ],
)
def test_a_long_annotation_is_invalid_and_cheap(
    short: Mapping[str, str], long: Mapping[str, str], protected: bool
) -> None:
    ordinary, worst = pod(annotations=short), pod(annotations=long)
    assert any(not verdict.allowed for verdict in protection(worst, NOW)) is protected
    (fault,) = annotation_faults(worst.annotations)
    assert len(fault.message) < NOTE_AT_MOST
    assert all(len(verdict.message) < NOTE_AT_MOST for verdict in protection(worst, NOW))
    read(ordinary)
    read(worst)
    assert calls(lambda: read(worst)) <= 2 * calls(lambda: read(ordinary))


@pytest.mark.parametrize("text", ["1" * 257, "1" * HUGE, "-" + "9" * HUGE, "0." + "0" * HUGE + "1"])
def test_a_long_deletion_cost_counts_nothing(text: str) -> None:
    assert pod(deletion_cost=text).eviction_cost == 1.0
    assert pod(deletion_cost="1".rjust(256, "0")).eviction_cost > 1.0


def test_a_record_keeps_little_of_a_long_annotation() -> None:
    worst = pod(annotations=dict.fromkeys((names.DO_NOT_DISRUPT, names.DISRUPTION_SCHEDULE, "example.com/x"), LONG))
    assert {key: len(text) for key, text in worst.annotations.items()} == {
        names.DO_NOT_DISRUPT: limits.SCHEDULE + 1,
        names.DISRUPTION_SCHEDULE: limits.SCHEDULE + 1,
    }


async def test_the_owner_is_told_and_the_pod_is_protected(setting: Setting) -> None:
    await setting.begin(pool_manifest(consolidateAfter="Never"))
    await hold(setting, "a", pods={"annotations": {names.DO_NOT_DISRUPT: LONG}})
    await drift(setting, "a")
    await setting.sim.run_for("30m")
    assert touched(setting) == []
    (event,) = setting.events(EventReason.INVALID_DO_NOT_DISRUPT)
    assert "has more than 64 characters; the pod is protected indefinitely" in event["note"]
    assert all(len(each["note"]) < NOTE_AT_MOST for each in setting.program.events())


def test_the_cache_of_amounts_keeps_little_of_a_long_quantity() -> None:
    found, (bad,) = offered_amounts({"cpu": "1" * HUGE, "memory": "1Gi"})
    assert found == Resources({"memory": 2**30})
    assert (len(bad.text), len(str(bad)) < NOTE_AT_MOST) == (1001, True)


# -- everything else ---------------------------------------------------------------------------------------------------


def test_a_long_annotation_on_a_node_blocks_nothing() -> None:
    verdict = node_do_not_disrupt(node(do_not_disrupt="1h" * (HUGE // 2)), NOW)
    assert verdict.allowed
    assert len(verdict.message) < NOTE_AT_MOST


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        pytest.param(budget("5", ["Drifted"], LONG_CRON, "1h"), "schedule", id="schedule"),
        pytest.param(budget("5", ["Drifted"], "0 2 * * *", "1h".rjust(65, "0")), "duration", id="duration"),
    ],
)
def test_a_budget_with_a_long_value_allows_nothing(bad: objects.Budget, field: str) -> None:
    rules = read_budgets([bad, budget("7", ["Empty"])])
    assert (rules[0].field, len(rules[0].fault or "") < NOTE_AT_MOST) == (field, True)
    assert [limit_at(rules, reason, NOW, 10)[0] for reason in (Reason.DRIFTED, Reason.EMPTY)] == [0, 7]


def test_long_durations_of_pools_and_claims_are_not_set() -> None:
    long = "1h" * 33
    record = pool(consolidate_after=long, graceful_expire_after=long, grace_period=long)
    assert (record.consolidate_after_ns, record.graceful_expire_after_ns, record.grace_period_ns) == (None, None, None)
    subject = claim(expire_after=long, grace_period=long, deleted="2026-03-07T00:00:00Z")
    assert (expires_at(subject), node_deadline(subject)) == (None, None)


def test_a_long_termination_timestamp_forces_nothing() -> None:
    long = f"2026-03-07T12:00:00.{'0' * HUGE}Z"
    subject = claim(termination_timestamp=long, grace_period="1h", deleted="2026-03-07T00:00:00Z")
    assert node_deadline(subject) == at("2026-03-07T01:00:00Z"), "its terminationGracePeriod counts"


def test_explain_prints_little_of_long_values() -> None:
    long = f"2026-03-07T12:00:00.{'0' * HUGE}Z"
    found = explain(
        assess(
            take_snapshot(
                pods=[pod(do_not_disrupt=LONG, schedule=LONG_CRON, duration=LONG)],
                nodes=[node(do_not_disrupt=LONG)],
                claims=[claim(termination_timestamp=long, deleted="2026-03-07T00:00:00Z")],
                pools=[pool(budgets=[budget(LONG, ["Drifted"], LONG_CRON, LONG)])],
            ),
            NOW,
        ),
    )
    assert len(str(found)) < 20_000
