"""Does each remedy of lint mean what the author evidently meant?

Each mistake is made from what its author means, written as a valid object. Where lint says what to write, the mistake
is replaced by it: the result must have the same hours, zone and length as what was meant, and lint must find no error
in it. A text that can mean two things is made from both, so that a guess is wrong for one of them.
"""

import json
import re
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from dovetail.api import objects
from dovetail.api.documents import read_documents
from dovetail.api.names import Reason
from dovetail.model.finding import Finding, Severity
from dovetail.rules.budgets import limit_at, read_budgets
from dovetail.rules.protection import ScheduleKind, read_do_not_disrupt, read_schedule
from dovetail.values.duration import MINUTE
from dovetail.values.schedule.window import Window
from dovetail.views.lint import lint
from tests.unit.api.crd_cases import nodepool

AT: Final = datetime(2026, 3, 4, 12, tzinfo=UTC)
DND: Final = "karpenter.sh/do-not-disrupt"
SCHEDULE, DURATION = "karpenter.sh/disruption-schedule", "karpenter.sh/disruption-schedule-duration"
BLOCK, BLOCK_DURATION = "karpenter.sh/disruption-block-schedule", "karpenter.sh/disruption-block-duration"
Annotations = dict[str, str]
_YEAR: Final = 366 * 24 * 60  # minutes
_WRITE: Final = re.compile(r'write "([^"]+)"(?!, ")')
_OVER_MIDNIGHT: Final = re.compile(r'for [0-9:]+ to [0-9:]+ write "([^"]+)", and ([^ :]+): "?([0-9hm]+)"?$')
_RENAME: Final = re.compile(r"write (karpenter\.sh/[a-z-]+)(?:, with its domain)?")


class Mistake(NamedTuple):
    """The annotations of a pod as they were meant, and as they were written."""

    meant: Annotations
    written: Annotations


# -- 200 mistakes ------------------------------------------------------------------------------------------------------


def over_midnight() -> list[Mistake]:
    """Hours that end before they start: the author means the time between them."""
    found = []
    days = cycle(("*", "1-5", "SAT", "0"))
    for start, end in ((22, 6), (20, 4), (23, 5), (18, 7), (21, 0), (22, 2), (23, 0), (17, 9), (19, 3), (16, 8)):
        hours, day = (end - start) % 24, next(days)
        for minute, zone in ((0, ""), (30, "CRON_TZ=Europe/Berlin ")):
            schedule = f"{zone}{minute} {start}-{end} * * {day}"
            meant = {SCHEDULE: f"{zone}{minute} {start} * * {day}", DURATION: f"{hours}h"}
            found += [
                Mistake(meant, {SCHEDULE: schedule, DURATION: f"{hours}h"}),
                Mistake(meant, {SCHEDULE: schedule}),
            ]
        # Nobody knows whether 1h is each hour's or a mistake.
        every_hour = f"0 {start}-23,0-{end} * * *"
        found.append(Mistake({SCHEDULE: every_hour, DURATION: "1h"}, {SCHEDULE: f"0 {start}-{end} * * *"}))
        for length in ("1h", "30m"):
            meant = {SCHEDULE: every_hour, DURATION: length}
            found.append(Mistake(meant, {SCHEDULE: f"0 {start}-{end} * * *", DURATION: length}))
    return [mistake for mistake in found if "1h" not in mistake.meant.values() or DURATION in mistake.written]


def wrapped_days() -> list[Mistake]:
    return [
        Mistake({BLOCK: f"0 9 {meant}", BLOCK_DURATION: "8h"}, {BLOCK: f"0 9 {written}", BLOCK_DURATION: "8h"})
        for written, meant in (
            ("* * FRI-SUN", "* * 5,6,0"),
            ("* * SAT-SUN", "* * 6,0"),
            ("* * sat-mon", "* * 6,0,1"),
            ("* * 5-1", "* * 5,6,0,1"),
            ("* NOV-FEB *", "* 11,12,1,2 *"),
            ("28-3 * *", "28-31,1-3 * *"),
            ("* * Saturday", "* * SAT"),
            ("* * monday-friday", "* * 1-5"),
            ("* January *", "* JAN *"),
        )
    ]


FIVE_FIELDS: Final = (
    *("0 2 * * 6", "30 22 * * *", "0 9 * * 1-5", "0 0 1 * *", "15 3 * * SUN", "0 0 * * 0", "0 4 * 1-5 *", "5 * * * *"),
    *("0 0 2 * *", "0 2 * * *", "9 * * 1-5 *", "0 12 1 1 *"),
)


def six_fields() -> list[Mistake]:
    """Seconds in front, or a year at the end; also with the question marks and the weekdays of Quartz and AWS."""
    found = [
        Mistake({SCHEDULE: meant}, {SCHEDULE: written})
        for meant in FIVE_FIELDS
        for written in (f"0 {meant}", f"{meant} *", f"0 {meant} *", f"30 {meant}", f"{meant} 2026")
    ]
    quartz = {"0 2 * * 6": "0 2 ? * 7", "0 9 * * 1-5": "0 9 ? * 2-6", "15 3 * * SUN": "15 3 ? * SUN"}
    for meant, fields in quartz.items():
        found += [
            Mistake({SCHEDULE: meant}, {SCHEDULE: text}) for text in (f"0 {fields}", f"{fields} *", f"0 {fields} *")
        ]
    return found


def zones() -> list[Mistake]:
    found = []
    for text, zone in (
        *((f"{zone} 0 2 * * 6", zone) for zone in ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC")),
        *((f"0 2 * * 6 {zone}", zone) for zone in ("Europe/Berlin", "America/New_York", "UTC")),
        *((f"0 2 * * 6 ({zone})", zone) for zone in ("Europe/Berlin", "Asia/Kolkata")),
        *((f"{prefix}Europe/Berlin 0 2 * * 6", "Europe/Berlin") for prefix in ("tz=", "TZ: ", "CRON_TZ ", "Timezone=")),
        *(
            (f"CRON_TZ={name} 0 2 * * 6", "Europe/Berlin")
            for name in ("Europe/Berln", "europe/berlin", "Europe/Belrin")
        ),
        ("TZ=America/New York 0 2 * * 6", "America/New_York"),
        ("TZ=America/Boston 0 2 * * 6", "America/New_York"),
        ("TZ=Europe/Munich 0 2 * * 6", "Europe/Berlin"),
        ("TZ=PST 0 2 * * 6", "America/Los_Angeles"),
        ("TZ=UTC+2 0 2 * * 6", "Etc/GMT-2"),
        ("TZ=Europe/Berlin 0 0 2 * * 6", "Europe/Berlin"),
        ("Europe/Berlin 0 22-6 * * *", "22"),
    ):
        meant = f"CRON_TZ={zone} 0 2 * * 6" if zone != "22" else "CRON_TZ=Europe/Berlin 0 22 * * *"
        length = "8h" if zone == "22" else "4h"
        found.append(Mistake({SCHEDULE: meant, DURATION: length}, {SCHEDULE: text, DURATION: length}))
    return found


def several() -> list[Mistake]:
    """One of several expressions is wrong: the others must stay."""
    return [
        Mistake({SCHEDULE: "0 3 * * *;0 2 * * 6", DURATION: "1h;4h"}, {SCHEDULE: written, DURATION: "1h;4h"})
        for written in ("0 3 * * *;0 0 2 * * 6", "0 0 3 * * MON-SUN;0 2 * * 6", "0 3 * * *; UTC 0 2 * * 6")
    ]


UNITS: Final = (
    *(("24h", "1d"), ("4h", "4 hours"), ("4h", "4H"), ("90m", "90 minutes"), ("4h", "PT4H"), ("36h", "1.5d")),
    *(("51h", "2 days and 3 hours"), ("168h", "1w"), ("1h30m", "1h 30m"), ("2h", "2hrs"), ("4h", "240min")),
    # Each of these can mean several things.
    *(("4h", "4"), ("4m", "4"), ("4s", "4"), ("4h", "14400"), ("24h", "1440"), ("60h", "3600"), ("1h", "3600")),
    *(("30m", "30M"), ("720h", "1M"), ("720h", "1 month"), ("4h30m", "4:30"), ("4m30s", "4:30"), ("4h", "-4h")),
)


def units() -> list[Mistake]:
    found = [Mistake({DND: meant}, {DND: written}) for meant, written in UNITS]
    found += [
        Mistake({SCHEDULE: "0 2 * * 6", DURATION: meant}, {SCHEDULE: "0 2 * * 6", DURATION: written})
        for meant, written in UNITS
        if meant not in ("720h", "4s")
    ]
    return found + [Mistake({DND: "true"}, {DND: written}) for written in ("yes", "True", "on", "1", "TRUE ", "always")]


def keys() -> list[Mistake]:
    allow, block = {SCHEDULE: "0 2 * * 6"}, {BLOCK: "0 9 * * 1-5"}
    found = [
        Mistake(beside | {meant: "4h"}, beside | {f"karpenter.sh/{written}": "4h"})
        for beside, meant, written in (
            (allow, DURATION, "disruption-duration"),
            (block, BLOCK_DURATION, "disruption-duration"),
            (allow | block, DURATION, "disruption-duration"),
            (allow | block, BLOCK_DURATION, "disruption-duration"),
            (allow, DURATION, "disruption-schedule-durations"),
            (allow, DURATION, "disruption-scheduel-duration"),
            (block, BLOCK_DURATION, "disruption-block-schedule-duration"),
            (block, BLOCK_DURATION, "disruption_block_duration"),
            (allow, DURATION, "duration"),
            (block, BLOCK_DURATION, "duration"),
            ({}, DND, "do-not-distrupt"),
            ({}, DND, "do-not-evict"),
            ({}, DND, "doNotDisrupt"),
            ({}, DND, "do-no-disrupt"),
        )
    ]
    found += [Mistake({meant: "@daily"}, {"karpenter.sh/schedule": "@daily"}) for meant in (SCHEDULE, BLOCK)]
    found += [
        Mistake({SCHEDULE: "@daily"}, {key: "@daily"})
        for key in ("karpenter.sh/disruption-schedul", "disruption-schedule", "karpenter.k8s.aws/disruption-schedule")
    ]
    return [*found, Mistake({DND: "true"}, {DND: "true", "karpenter.sh/do-not-evict": "4h"})]


KINDS: Final = {
    "over midnight": over_midnight(),
    "wrapped days": wrapped_days(),
    "six fields": six_fields(),
    "zones": zones(),
    "several": several(),
    "units": units(),
    "keys": keys(),
}


# How many of each kind get a remedy.
REMEDIES: Final = {
    "over midnight": 36,
    "wrapped days": 9,
    "six fields": 24,
    "zones": 19,
    "several": 3,
    "units": 27,
    "keys": 15,
}


# -- what became of them -----------------------------------------------------------------------------------------------


def check(annotations: Annotations) -> list[Finding]:
    meta = {"name": "p", "namespace": "shop", "annotations": annotations}
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    rules = {"InvalidDoNotDisrupt", "InvalidDisruptionSchedule", "UnknownAnnotation"}
    return [problem for problem in lint(read_documents(text.encode(), "f"), AT) if problem.rule in rules]


def mended(annotations: Annotations, problem: Finding) -> Annotations | None:
    """The annotations with the remedy applied; None if there is nothing to apply."""
    key = problem.field.partition("[")[2].rstrip("]")
    if window := _OVER_MIDNIGHT.match(problem.remedy):
        # It names its hours, for authors who mean them.
        result = annotations | {key: window[1], window[2]: window[3]}
        assert_hours(problem.remedy, result)
        return None if DURATION in annotations else result
    if renamed := _RENAME.fullmatch(problem.remedy):
        return {renamed[1] if name == key else name: value for name, value in annotations.items()}
    written = _WRITE.match(problem.remedy)
    return annotations | {key: written[1]} if written and problem.remedy.count('write "') == 1 else None


def assert_hours(remedy: str, annotations: Annotations) -> None:
    """The window that the remedy writes has the hours that the remedy names."""
    (cron, span_ns), *others = (read_schedule(ScheduleKind.ALLOW, annotations).window or Window([])).parts
    assert others == []
    start = (cron.day & -cron.day).bit_length() - 1  # in minutes of the day
    end = (start + span_ns // MINUTE) % 1440
    assert remedy.startswith(f"for {start // 60:02}:{start % 60:02} to {end // 60:02}:{end % 60:02} write")


def meaning(annotations: Annotations) -> list[object]:
    """What protects the pod, as far as annotations say: spans, and the hits of a year with their lengths."""
    found: list[object] = [read_do_not_disrupt(annotations.get(DND, "false"))]
    for kind in ScheduleKind:
        schedule = read_schedule(kind, annotations)
        found.append([hits(schedule.window), schedule.faults])
    return found


def hits(window: Window | None) -> object:
    start = int(AT.timestamp()) // 60
    return window and [(hex(cron.hits(start, start + _YEAR)), cron.zone.key, span) for cron, span in window.parts]


@pytest.mark.parametrize("kind", KINDS)
def test_no_remedy_changes_the_meaning(kind: str) -> None:
    given = 0
    for mistake in KINDS[kind]:
        assert check(mistake.meant) == [], mistake
        problems = check(mistake.written)
        assert problems, f"{mistake.written} is no mistake"
        result = mended(mistake.written, problems[0])
        if result is not None:
            given += 1
            assert meaning(result) == meaning(mistake.meant), (mistake, problems[0].remedy)
            assert check(result) == [], (mistake, problems[0].remedy)
    print(f"{kind}: {given} of {len(KINDS[kind])} mistakes got a remedy")
    assert given == REMEDIES[kind]


@pytest.mark.parametrize("zone", ["", "CRON_TZ=Asia/Tokyo "])
def test_hours_that_are_meant_as_the_window(zone: str) -> None:
    """`0 9-17 * * 1-5` for 8h is a window of 16h."""
    annotations = {SCHEDULE: f"{zone}30 9-17 * * 1-5", DURATION: "8h"}
    meta = {"name": "p", "annotations": annotations}
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    (problem,) = lint(read_documents(text.encode(), "f"), AT)
    assert (problem.rule, "one window of 16h from" in str(problem.message)) == ("WindowsRunTogether", True)
    written = _WRITE.match(problem.remedy)
    assert written is not None
    assert problem.remedy.endswith("from 09:30 to 17:30")
    assert meaning(annotations | {SCHEDULE: written[1]}) == meaning(annotations | {SCHEDULE: f"{zone}30 9 * * 1-5"})
    other = json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"annotations": annotations | {DURATION: "7h"}}}
    )
    (problem,) = lint(read_documents(other.encode(), "f"), AT)
    assert problem.remedy.startswith("shorten it")


def test_there_are_200_mistakes() -> None:
    total, given = sum(map(len, KINDS.values())), sum(REMEDIES.values())
    print(f"{total} mistakes, {given} of them got a remedy")
    assert total >= 200
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    assert f"Of {total} generated mistakes, {given} get a remedy" in " ".join(page.split())


# -- the same for budgets ----------------------------------------------------------------------------------------------


def pool_problems(*budgets: dict[str, Any]) -> list[Finding]:
    text = json.dumps(nodepool({"disruption": {"budgets": list(budgets)}}))
    return lint(read_documents(text.encode(), "f"), AT)


def windows(*budgets: dict[str, Any]) -> list[object]:
    rules = read_budgets([objects.Budget(**budget) for budget in budgets])
    assert [rule.fault for rule in rules] == [None] * len(rules)
    return [hits(rule.window) for rule in rules]


@pytest.mark.parametrize("mistake", [*KINDS["over midnight"], *KINDS["six fields"], *KINDS["zones"]], ids=str)
def test_no_remedy_for_a_budget_changes_the_meaning(mistake: Mistake) -> None:
    meant, written = (
        {"nodes": "0", "schedule": each[SCHEDULE], "duration": each.get(DURATION, "1h")} for each in mistake
    )
    if DURATION not in mistake.written and DURATION in mistake.meant:
        pytest.skip("a budget without a duration is another mistake")
    (problem,) = [each for each in pool_problems(written) if each.severity is Severity.ERROR]
    if window := _OVER_MIDNIGHT.match(problem.remedy):
        assert window[2] == "duration"
        assert_hours(problem.remedy, {SCHEDULE: window[1], DURATION: window[3]})
        return
    if found := _WRITE.match(problem.remedy):
        assert windows(written | {"schedule": found[1]}) == windows(meant)


ALL_WINDOWS: Final = (("0 22 * * *", "8h"), ("CRON_TZ=Europe/Berlin 0 2 * * 6", "4h"), ("30 1 * * 0", "48h"))


@pytest.mark.parametrize("nodes", ["100%", "5", "20%"])
@pytest.mark.parametrize(("schedule", "duration"), ALL_WINDOWS)
@pytest.mark.parametrize("reasons", [[], ["Drifted"]])
@pytest.mark.parametrize("blocked", [True, False])
def test_a_window_meant_to_allow_still_allows_as_much(
    nodes: str, schedule: str, duration: str, reasons: list[str], blocked: bool
) -> None:
    """The remedy of BudgetIsNoAllowWindow: none outside the window, and as many as before in it."""
    named = {"reasons": reasons} if reasons else {}
    window: dict[str, Any] = {"nodes": nodes, "schedule": schedule, "duration": duration} | named
    before = [window, {"nodes": "0"} | named] if blocked else [window]
    (problem,) = [each for each in pool_problems(*before) if each.rule == "BudgetIsNoAllowWindow"]
    assert problem.remedy.startswith("write instead of both: " if blocked else "if only then is meant, add ")
    added = [budget_of(item) for item in re.findall(r"- \{([^}]*)\}", problem.remedy)]
    after = added if blocked else [window, *added]
    rules = read_budgets([objects.Budget(**budget) for budget in after])
    assert [rule.fault for rule in rules] == [None] * len(rules)
    (rule,) = read_budgets([objects.Budget(**window)])
    reason, count = Reason.DRIFTED, 50
    for minute in range(0, 8 * 24 * 60, 15):
        at = datetime.fromtimestamp(AT.timestamp() + 60 * minute, UTC)
        expected = rule.limit(count) if rule.active.contains(at) else 0
        assert limit_at(rules, reason, at, count)[0] == expected


def test_a_block_of_other_reasons_goes_on_to_govern_them() -> None:
    """The window is about two reasons, the block about one: neither may be replaced by the other."""
    window: dict[str, Any] = {"nodes": "5", "schedule": "0 22 * * *", "duration": "8h", "reasons": ["Drifted", "Empty"]}
    block: dict[str, Any] = {"nodes": "0", "reasons": ["Drifted"]}
    (problem,) = [each for each in pool_problems(window, block) if each.rule == "BudgetIsNoAllowWindow"]
    found = re.fullmatch(
        r'limit budgets\[1\] to schedule: "(.*)" with duration: (.*), the time outside this window', problem.remedy
    )
    assert found is not None
    rules = read_budgets(
        [objects.Budget(**each) for each in (window, block | {"schedule": found[1], "duration": found[2]})]
    )
    for hour in range(48):
        at = datetime.fromtimestamp(AT.timestamp() + 3600 * hour, UTC)
        inside = at.hour >= 22 or at.hour < 6
        limits = [limit_at(rules, reason, at, 50)[0] for reason in (Reason.DRIFTED, Reason.EMPTY)]
        assert limits == ([5, 5] if inside else [0, 50])


def budget_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = dict(re.findall(r'(\w+): "?([^",]+)"?', re.sub(r", reasons: .*", "", text)))
    return found | ({"reasons": ["Drifted"]} if "reasons" in text else {})
