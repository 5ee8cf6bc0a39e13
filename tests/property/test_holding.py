"""Holds against an oracle that looks at every half minute of three days."""

from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.model.pod_records import PodRecord
from dovetail.planning.beside.holding import hold_decision
from dovetail.rules.protection import protection
from tests.harness import builders
from tests.harness.soak import examples

BEGIN: Final = datetime(2026, 3, 27, 12, tzinfo=UTC)  # Europe/Berlin loses an hour two days later
STEP: Final = timedelta(seconds=30)
STEPS: Final = 3 * 24 * 120
MARGIN: Final = 6 * 120  # what is known before and after
AMONG: Final = st.sampled_from
CRONS: Final = (
    "0 */4 * * *",
    "*/15 * * * *",
    "*/7 9-16 * * *",
    "CRON_TZ=Europe/Berlin 30 2 * * *",
    "0 22 * * *;30 22 * * *",
    "5 0 29 3 *",
)
SPANS: Final = ("1m", "3m", "10m", "19m", "20m", "21m", "45m", "5h")
LEADS: Final = tuple(timedelta(minutes=minutes) for minutes in (0, 1, 10, 25))


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodRecord:
    texts: dict[str, str | None] = {}
    if draw(st.integers(0, 2)) == 0:
        texts["do_not_disrupt"] = draw(AMONG(("true", "false", "26h", "40h15m", "soon")))
    if draw(st.booleans()):
        texts |= {"schedule": draw(AMONG(CRONS)), "duration": draw(AMONG(SPANS))}
    if draw(st.booleans()):
        texts |= {"block_schedule": draw(AMONG(CRONS)), "block_duration": draw(AMONG(SPANS))}
    phase = draw(AMONG(("Running", "Running", "Pending", "Succeeded")))
    return builders.pod(name, created="2026-03-27T00:00:00Z", phase=phase, **texts)  # type: ignore[arg-type]


def is_free(pod: PodRecord, at: datetime) -> bool:
    if pod.annotations.get(names.DO_NOT_DISRUPT) == "true":
        return True  # Karpenter reads it
    return all(verdict.allowed for verdict in protection(pod, at))


def free_steps(pod: PodRecord) -> list[bool]:
    """For each half minute, margins included, whether the pod lets its node go."""
    return [is_free(pod, BEGIN + (step - MARGIN) * STEP) for step in range(STEPS + 2 * MARGIN)]


def held_steps(free: list[bool], lead: timedelta) -> list[bool]:
    """For each half minute whether the pod's node is held for it, from windows that are counted out."""
    count = len(free)
    held = [not each for each in free]
    start = None
    for step in range(count + 1):
        if step < count and free[step]:
            start = step if start is None else start
        elif start is not None:
            if step < count:  # a window that closes; one that was open at the first step counts as long
                length = step - start if start else count
                for early in range(max(0, step - min(lead // STEP, length // 2)), step):
                    held[early] = True
            start = None
    return held[MARGIN : MARGIN + STEPS]


@settings(max_examples=examples(40, quick=6))
@given(st.data(), AMONG(LEADS))
def test_a_node_is_held_exactly_as_its_pods_are_counted_out(data: st.DataObject, lead: timedelta) -> None:
    on_node = [data.draw(pods(f"web-{number}")) for number in range(data.draw(st.integers(0, 3)))]
    expected = [any(each) for each in zip(*(held_steps(free_steps(pod), lead) for pod in on_node), strict=True)] or [
        False
    ] * STEPS
    changes = [step for step in range(1, STEPS) if expected[step] != expected[step - 1]]
    near = {step + off for step in changes for off in (-1, 0, 1) if 0 <= step + off < STEPS}
    for step in sorted({0, *list(near)[:60], *range(0, STEPS, 401)}):
        now = BEGIN + step * STEP
        decision = hold_decision(on_node, now, lead)
        assert decision.held is expected[step], now
        assert (decision.blocker is not None) is decision.held
        assert decision.until is None or decision.until > now
        changes_at = next((BEGIN + later * STEP for later in changes if later > step), None)
        if changes_at is None:
            assert decision.until is None or decision.until > BEGIN + (STEPS - 1) * STEP or decision.held
        elif decision.held:  # it may look again before, and tell a later instant then
            assert decision.until is not None
            assert decision.until <= changes_at
        else:
            assert decision.until == changes_at


@settings(max_examples=examples(40, quick=6))
@given(pods("web"), AMONG(LEADS))
def test_with_one_pod_the_end_of_a_hold_is_exact_and_every_window_opens(pod: PodRecord, lead: timedelta) -> None:
    free = free_steps(pod)
    expected = held_steps(free, lead)
    changes = [step for step in range(1, STEPS) if expected[step] != expected[step - 1]]
    for step in changes[:40]:
        decision = hold_decision([pod], BEGIN + step * STEP, lead)
        later = next((each for each in changes if each > step), None)
        if later is not None:
            assert decision.until == BEGIN + later * STEP
    for step in range(1, STEPS):
        if free[MARGIN + step] and not free[MARGIN + step - 1]:
            assert not expected[step], "a window that nobody can use"
