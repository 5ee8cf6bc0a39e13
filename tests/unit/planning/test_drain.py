"""What is done with each pod of a node that is going, in which order, and until when that stands (03 §4–§5)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api import names, objects
from dovetail.model.pod_records import PodRecord
from dovetail.planning.node.drain import DrainAction, DrainPlan, drain_plan, is_drainable, is_waited_for, waiting_note
from dovetail.planning.timings import Timings
from dovetail.rules.protection import protection
from tests.harness.builders import at, pod
from tests.harness.soak import examples

NOW = at("2026-03-04T12:00:00Z")
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
CRITICAL = "system-cluster-critical"
# Each example plans several times.
FEWER = settings(max_examples=examples(max(100, settings().max_examples // 4), quick=25))
TOLERATES = [objects.Toleration(key=names.DISRUPTED_TAINT, operator="Exists")]


def actions(plan: DrainPlan) -> dict[str, DrainAction]:
    return {step.pod.name: step.action for step in plan.steps}


def planned(*pods: PodRecord, deadline: datetime | None = None, now: datetime = NOW) -> dict[str, DrainAction]:
    return actions(drain_plan(pods, deadline=deadline, now=now))


# -- groups -----------------------------------------------------------------------------------------------------------

ORDINARY = pod("ordinary")
DAEMON = pod("daemon", owner="DaemonSet")
CORE = pod("core", priority_class=CRITICAL)
CORE_DAEMON = pod("core-daemon", owner="DaemonSet", priority_class="system-node-critical")
GROUPS = [ORDINARY, DAEMON, CORE, CORE_DAEMON]


@pytest.mark.parametrize("gone", range(4))
def test_groups_go_one_after_the_other(gone: int) -> None:
    left = GROUPS[gone:]
    plan = drain_plan(reversed(left), deadline=None, now=NOW)
    assert [step.pod for step in plan.steps] == left
    assert [step.action for step in plan.steps] == [DrainAction.EVICT, *[DrainAction.LATER] * (len(left) - 1)]


def test_a_group_is_not_over_before_its_pods_are_gone() -> None:
    going = pod("ordinary", deleted="2026-03-04T12:00:20Z")
    assert planned(going, DAEMON) == {"ordinary": DrainAction.GOING, "daemon": DrainAction.LATER}


def test_a_protected_pod_holds_back_its_successors_but_not_its_equals() -> None:
    found = planned(pod("guarded", do_not_disrupt="true"), ORDINARY, DAEMON)
    assert found == {"guarded": DrainAction.PROTECTED, "ordinary": DrainAction.EVICT, "daemon": DrainAction.LATER}


@pytest.mark.parametrize(
    ("class_", "priority"), [("", 2_000_000_000), ("important", 1_000_000_000), ("system-cluster-critical-2", 0)]
)
def test_only_the_name_of_the_class_makes_a_pod_critical(class_: str, priority: int) -> None:
    found = planned(ORDINARY, pod("other", priority_class=class_, priority=priority))
    assert found == {"ordinary": DrainAction.EVICT, "other": DrainAction.EVICT}


# -- who is waited for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "drainable", "waited_for"),
    [
        pytest.param(pod(), True, True, id="ordinary"),
        pytest.param(pod(owner=None), True, True, id="bare"),
        pytest.param(pod(owner="DaemonSet"), True, True, id="daemon"),
        pytest.param(pod(phase="Pending", ready=None), True, True, id="pending"),
        pytest.param(pod(do_not_disrupt="true"), True, True, id="protected"),
        pytest.param(pod(phase="Succeeded", do_not_disrupt="true"), True, False, id="succeeded"),
        pytest.param(pod(phase="Failed"), True, False, id="failed"),
        pytest.param(pod(owner="Node"), False, False, id="mirror"),
        pytest.param(pod(tolerations=TOLERATES), False, False, id="tolerates the taint"),
        pytest.param(
            pod(tolerations=[objects.Toleration(key=names.UNSCHEDULABLE_TAINT, operator="Exists")]),
            True,
            True,
            id="tolerates unschedulable",
        ),
        pytest.param(pod(deleted="2026-03-04T12:00:30Z"), True, True, id="terminating"),
        pytest.param(pod(deleted="2026-03-04T11:59:00.000001Z"), True, True, id="a moment before it is stuck"),
        pytest.param(pod(deleted="2026-03-04T11:59:00Z"), True, False, id="stuck for a minute"),
        pytest.param(pod(deleted="2026-03-01T00:00:00Z"), True, False, id="stuck for long"),
    ],
)
def test_who_is_waited_for(subject: PodRecord, drainable: bool, waited_for: bool) -> None:
    assert is_drainable(subject) == drainable
    assert is_waited_for(subject, NOW, Timings()) == waited_for
    assert bool(drain_plan([subject], deadline=None, now=NOW).steps) == waited_for


def test_nothing_to_wait_for() -> None:
    plan = drain_plan([pod(owner="Node")], deadline=None, now=NOW)
    assert (plan.steps, plan.until) == ((), None)


# -- the deadline -----------------------------------------------------------------------------------------------------


def test_deletions_for_the_deadline_wait_for_no_group_but_hold_back_the_later_ones() -> None:
    guarded = pod("guarded", do_not_disrupt="true")
    patient = pod("patient", priority_class=CRITICAL, grace=600)
    found = planned(guarded, DAEMON, patient, deadline=NOW + timedelta(seconds=600))
    assert found == {"guarded": DrainAction.PROTECTED, "daemon": DrainAction.LATER, "patient": DrainAction.DELETE}
    impatient = pod("guarded", do_not_disrupt="true", grace=600)
    found = planned(impatient, DAEMON, CORE, deadline=NOW + timedelta(seconds=600))
    assert found == {"guarded": DrainAction.DELETE, "daemon": DrainAction.LATER, "core": DrainAction.LATER}


@pytest.mark.parametrize("protection_", [{}, {"do_not_disrupt": "true"}, {"schedule": "0 0 31 2 *"}])
def test_a_pod_is_deleted_from_the_deadline_less_its_grace_on(protection_: dict[str, str]) -> None:
    subject, deadline = pod("web", grace=600, **protection_), NOW + timedelta(seconds=600)  # type: ignore[arg-type]
    before = DrainAction.PROTECTED if protection_ else DrainAction.EVICT
    assert planned(subject, deadline=deadline, now=NOW - TICK) == {"web": before}
    plan = drain_plan([subject], deadline=deadline, now=NOW)
    assert actions(plan) == {"web": DrainAction.DELETE}
    (step,) = plan.steps
    assert step.forced is not None
    assert step.forced.grace_seconds == 600


def test_without_a_deadline_nothing_is_forced() -> None:
    assert planned(pod("web", grace=0, do_not_disrupt="true"), now=at("2036-01-01T00:00:00Z")) == {
        "web": DrainAction.PROTECTED
    }


def test_the_deadline_is_an_instant_to_come_back_at_even_where_no_pod_changes() -> None:
    deadline = NOW + timedelta(hours=1)
    assert drain_plan([], deadline=deadline, now=NOW).until == deadline
    assert drain_plan([], deadline=deadline, now=deadline).until is None
    stays_stuck = pod(deleted="2026-03-04T12:00:00Z")
    assert drain_plan([stays_stuck], deadline=NOW + SECOND, now=NOW).until == NOW + SECOND


@pytest.mark.parametrize(
    ("deleted", "deadline", "now", "expected"),
    [
        pytest.param("12:10:00", "12:10:00", "12:00:00", DrainAction.GOING, id="gone by the deadline"),
        pytest.param("12:10:01", "12:10:00", "12:00:00", DrainAction.DELETE, id="outlives the node"),
        pytest.param("12:10:01", "12:10:00", "12:10:00", DrainAction.GOING, id="a second more cannot be shortened"),
        pytest.param("12:10:02", "12:10:00", "12:10:00", DrainAction.DELETE, id="two seconds more can"),
    ],
)
def test_a_terminating_pod_is_deleted_again_only_if_it_outlives_the_node(
    deleted: str, deadline: str, now: str, expected: DrainAction
) -> None:
    subject = pod("web", grace=600, deleted=f"2026-03-04T{deleted}Z")
    instants = {"deadline": at(f"2026-03-04T{deadline}Z"), "now": at(f"2026-03-04T{now}Z")}
    assert planned(subject, **instants) == {"web": expected}


# -- until ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "deadline", "expected"),
    [
        pytest.param(pod(), None, None, id="may go, for good"),
        pytest.param(pod(do_not_disrupt="true"), None, None, id="protected for good"),
        pytest.param(
            pod(do_not_disrupt="4h", created="2026-03-04T09:00:00Z"), None, "2026-03-04T13:00:00Z", id="a span"
        ),
        pytest.param(pod(schedule="30 12 * * *"), None, "2026-03-04T12:30:00Z", id="protected until the window opens"),
        pytest.param(
            pod(schedule="0 12 * * *", duration="10m"), None, "2026-03-04T12:10:00Z", id="may go until it closes"
        ),
        pytest.param(
            pod(schedule="0 12 * * *", do_not_disrupt="4h", created="2026-03-04T09:00:00Z"),
            None,
            "2026-03-05T12:00:00Z",
            id="both must allow: the window after the span",
        ),
        pytest.param(pod(deleted="2026-03-04T12:00:30Z"), None, "2026-03-04T12:01:30Z", id="stuck from then on"),
        pytest.param(
            pod(do_not_disrupt="true", grace=600), "2026-03-04T12:15:00Z", "2026-03-04T12:05:00Z", id="forced"
        ),
        pytest.param(pod(grace=0), "2026-03-04T12:15:00Z", "2026-03-04T12:15:00Z", id="the deadline"),
        pytest.param(
            pod(do_not_disrupt="4h", created="2026-03-04T09:00:00Z"),
            "2026-03-04T12:15:00Z",
            "2026-03-04T12:14:30Z",
            id="forced before the span ends",
        ),
        pytest.param(pod(deleted="2026-03-04T12:09:00Z"), "2026-03-04T11:00:00Z", "2026-03-04T12:08:59Z", id="again"),
    ],
)
def test_until(subject: PodRecord, deadline: str | None, expected: str | None) -> None:
    plan = drain_plan([subject], deadline=None if deadline is None else at(deadline), now=NOW)
    assert plan.until == (None if expected is None else at(expected))


def seconds(least: int, most: int) -> st.SearchStrategy[timedelta]:
    """Spans on and beside whole seconds, where boundaries meet."""
    whole = st.integers(least, most).map(lambda count: timedelta(seconds=count))
    return st.builds(lambda span, ticks: span + ticks * TICK, whole, st.sampled_from([0, 0, 0, -1, 1, 500_000]))


def text_of(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat().replace("+00:00", "Z")


@st.composite
def pods(draw: st.DrawFn) -> list[PodRecord]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        deleted = draw(st.one_of(st.none(), st.none(), seconds(-90, 3700)))
        found.append(
            pod(
                f"pod-{number}",
                owner=draw(st.sampled_from([None, "ReplicaSet", "ReplicaSet", "DaemonSet", "Node"])),
                priority_class=draw(st.sampled_from(["", "", "", CRITICAL])),
                grace=draw(st.sampled_from([0, 1, 30, 30, 600, 3600, 10**12])),
                phase=draw(st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded"])),
                tolerations=draw(st.sampled_from([[], [], [], TOLERATES])),
                created=text_of(NOW - draw(seconds(0, 7200))),
                deleted=text_of(None if deleted is None else NOW + deleted),
                do_not_disrupt=draw(st.sampled_from([None, None, "true", "false", "90m", "2h", "bad"])),
                schedule=draw(st.sampled_from([None, None, "*/20 * * * *", "30 12 * * *", "0 0 31 2 *", "bad"])),
                duration=draw(st.sampled_from([None, "5m", "90s"])),
                block_schedule=draw(st.sampled_from([None, None, "15 * * * *", "* * * * *"])),
            )
        )
    return found


deadlines = st.one_of(st.none(), seconds(-60, 7200).map(lambda span: NOW + span))


@FEWER
@given(pods(), deadlines, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4))
def test_a_plan_stands_until_it_says(pods: list[PodRecord], deadline: datetime | None, parts: list[float]) -> None:
    plan = drain_plan(pods, deadline=deadline, now=NOW)
    end = plan.until or NOW + timedelta(days=40)
    assert end > NOW
    for instant in [min(NOW + part * (end - NOW), end - TICK) for part in (*parts, 1)]:
        assert actions(drain_plan(pods, deadline=deadline, now=instant)) == actions(plan), instant
    if plan.until is not None:
        then = drain_plan(pods, deadline=deadline, now=plan.until)
        assert plan.until == deadline or actions(then) != actions(plan)


@FEWER
@given(pods(), deadlines)
@example([pod(grace=10**12, do_not_disrupt="true")], NOW + timedelta(days=365))
def test_what_a_plan_never_does(pods: list[PodRecord], deadline: datetime | None) -> None:
    plan = drain_plan(pods, deadline=deadline, now=NOW)
    for step in plan.steps:
        blocked = any(not verdict.allowed for verdict in protection(step.pod, NOW))
        match step.action:
            case DrainAction.DELETE:
                assert deadline is not None
                assert step.forced is not None
                assert (deadline - NOW).total_seconds() <= step.pod.grace_seconds or step.pod.deleted_at is not None
                assert 1 <= step.forced.grace_seconds <= max(1, step.pod.grace_seconds)
                if step.pod.deleted_at is not None:
                    assert NOW + timedelta(seconds=step.forced.grace_seconds) < step.pod.deleted_at
            case DrainAction.EVICT:
                assert not blocked
                assert step.pod.deleted_at is None
            case DrainAction.PROTECTED:
                assert blocked
            case DrainAction.GOING:
                assert step.pod.deleted_at is not None
    assert not {step.pod.uid for step in plan.steps} - {each.uid for each in pods if is_drainable(each)}


def turns(plan: DrainPlan) -> Sequence[int]:
    """The group of each step."""
    return [2 * step.pod.critical + (step.pod.owner.name == "DAEMONSET") for step in plan.steps]


@FEWER
@given(pods(), deadlines)
def test_only_the_first_group_that_is_left_has_its_turn(pods: list[PodRecord], deadline: datetime | None) -> None:
    plan = drain_plan(pods, deadline=deadline, now=NOW)
    groups = turns(plan)
    assert groups == sorted(groups)
    graceful = [(group, step.action) for group, step in zip(groups, plan.steps, strict=True)]
    graceful = [(group, action) for group, action in graceful if action is not DrainAction.DELETE]
    first = min(groups, default=0)
    for group, action in graceful:
        assert (action is DrainAction.LATER) <= (group > first)
        assert (action in (DrainAction.EVICT, DrainAction.PROTECTED)) <= (group == first)
    if deadline is not None and deadline <= NOW:
        assert {step.action for step in plan.steps} <= {DrainAction.DELETE, DrainAction.GOING}


# -- for people -------------------------------------------------------------------------------------------------------


def test_a_note_names_those_who_tell_most_and_says_when_it_ends() -> None:
    subjects = [
        pod("a-going", deleted="2026-03-04T12:00:30Z"),
        pod("b-blocked"),
        pod("c-guarded", do_not_disrupt="true"),
        pod("d-daemon", owner="DaemonSet"),
    ]
    plan = drain_plan(subjects, deadline=None, now=NOW)
    note = waiting_note(plan.steps, None, {"uid-b-blocked": "guard allows no disruption now"})
    assert note == (
        "4 pods are waiting to be evicted: default/c-guarded (do-not-disrupt: protected until the annotation is "
        "removed), default/b-blocked (guard allows no disruption now), default/a-going (terminating, until "
        "2026-03-04T12:00:30Z; ignored from 2026-03-04T12:01:30Z) and 1 more; no terminationGracePeriod: the "
        "node waits until they are gone"
    )


def test_a_note_of_pods_that_only_finalizers_hold() -> None:
    held = msgspec.structs.replace(pod("web", deleted="2026-03-04T12:00:30Z"), finalizers=("example.com/archive",))
    plan = drain_plan([held], deadline=None, now=NOW)
    assert waiting_note(plan.steps, None, {}) == (
        "1 pod is terminating: default/web (terminating, until 2026-03-04T12:00:30Z, held by finalizer "
        "example.com/archive; ignored from 2026-03-04T12:01:30Z)"
    )


def test_a_note_of_one_pod_with_a_deadline() -> None:
    deadline = datetime(2026, 3, 4, 13, tzinfo=UTC)
    plan = drain_plan([pod("web")], deadline=deadline, now=NOW)
    assert waiting_note(plan.steps, deadline, {}) == (
        "1 pod is waiting to be evicted: default/web (may be evicted); all that is left is deleted by "
        "2026-03-04T13:00:00Z"
    )
