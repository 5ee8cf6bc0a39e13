"""Which duration and which schedule was meant, and where nobody can know?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.values.duration import HOUR, parse_duration
from dovetail.values.mending import is_unitless, meant_duration, meant_schedule
from dovetail.values.schedule.cron import parse_cron
from dovetail.values.spelling import meant_word


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("1d", "24h"), ("4 hours", "4h"), ("1h 30m", "1h30m"), ("1.5d", "36h"), ("PT4H", "4h"), ("P1DT2H", "26h")),
        *(("2 days and 3 hours", "51h"), ("90 sec", "1m30s"), ("4H", "4h"), ("1H30M", "1h30m"), ("PT5M", "5m")),
        *(("", None), ("0", None), ("soon", None), ("4x", None), ("9" * 18, None), ("9" * 100, None), ("500ms", None)),
        *(
            ("4", None),
            ("3600", None),
            ("-4h", None),
            ("30M", None),
            ("1 month", None),
            ("4:30", None),
            ("1.0001s", None),
        ),
    ],
)
def test_durations(text: str, meant: str | None) -> None:
    assert meant_duration(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("0 0 * * FRI-SUN", "0 0 * * 5-6,0"), ("0 0 2 * * 6", "0 2 * * 6"), ("0 0 * NOV-FEB *", "0 0 * 11-12,1-2 *")),
        *(("@every 2h", None), ("@Daily", "@daily"), ("daily", "@daily"), ("0 25 * * *", None), ("0 0 L * *", None)),
        *(("TZ=europe/berlin 0 2 * * 6", "TZ=Europe/Berlin 0 2 * * 6"), ("TZ=Nowhere/None 0 2 * * 6", None)),
        *(("", None), ("0 2 * *", None), ("0 9 * * 1-5 *", None), ("0 2 * * 6 2026", None), ("30 0 2 * * 6", None)),
        *(("0 2 ? * SAT *", "0 2 ? * SAT"), ("0 0 2 ? * SAT", "0 2 ? * SAT"), ("0 0 2 ? * 7", None)),
        *(("Europe/Berlin 0 2 * * 6", "CRON_TZ=Europe/Berlin 0 2 * * 6"), ("Europe/Munich 0 2 * * 6", None)),
        *(("50-10 * * * *", None), ("0,30 22-6 * * *", None), ("0 22-6,12 * * *", None), ("0 22-6/2 * * *", None)),
    ],
)
def test_schedules(text: str, meant: str | None) -> None:
    found = meant_schedule(text)
    assert (found and found.text) == meant


def test_hours_over_midnight_are_a_start_and_a_length() -> None:
    assert meant_schedule("TZ=Asia/Tokyo 15 22-6 * * MON-FRI") == (
        *("TZ=Asia/Tokyo 15 22 * * MON-FRI", 8 * HOUR),
        "22:15 to 06:15",
    )


@given(st.text(max_size=30) | st.from_regex(r"[+-]?[0-9.]{0,12} ?[a-zA-Z]{0,8}", fullmatch=True))
def test_what_is_meant_is_valid(text: str) -> None:
    if (duration := meant_duration(text)) is not None:
        assert parse_duration(duration) > 0
        assert not is_unitless(text)
    if (schedule := meant_schedule(text)) is not None:
        parse_cron(schedule.text)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("Driftd", ["Drifted", "Empty"], "Drifted"),
        ("dirfted", ["Drifted", "Empty"], "Drifted"),
        ("do_not_DISRUPT", ["do-not-disrupt"], "do-not-disrupt"),
        ("NotExists", ["Exists", "DoesNotExist"], None),
        ("Ge", ["Gt", "Gte"], None),
        ("Nods", ["Nodes"], None),
        ("Emtyed", ["Empty"], None),
        ("abcdefgh1", ["abcdefgh2", "abcdefgh3"], None),
        ("abcdefgh", ["abcdefghijk"], None),
        ("", ["a"], None),
        ("x" * 81, ["x" * 80], None),
    ],
)
def test_words(word: str, known: list[str], meant: str | None) -> None:
    assert meant_word(word, known) == meant


@pytest.mark.parametrize(
    ("text", "is_number"),
    [("4", True), (" 30 ", True), ("1", False), ("0", False), ("4h", False), ("4.5", False), ("²", False), ("", False)],
)
def test_a_number_above_one_lacks_a_unit(text: str, is_number: bool) -> None:
    assert is_unitless(text) is is_number
