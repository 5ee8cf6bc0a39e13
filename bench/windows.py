"""The hardest of many random windows: what the first question to each costs, for each of its expressions."""

import gc
import itertools
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.instants import Instants, all_of, complement
from dovetail.values.schedule.window import Window

_ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo", "Asia/Tokyo"),
    *("Asia/Kathmandu", "Africa/Casablanca", "America/St_Johns", "Pacific/Chatham", "Asia/Gaza", "America/Santiago"),
)
_START = datetime(2026, 3, 6, 16, 20, 13, tzinfo=UTC)
_DURATIONS = (60, 61, 119, 3600, 3607, 86_399, 86_400, 86_401, 604_800)  # seconds
_DAYS = 60
Parts = list[tuple[str, float]]  # expressions with their seconds


class _Kind(NamedTuple):
    name: str
    windows: int
    make: Callable[[random.Random], Parts]


def print_hardest_windows() -> None:
    """A row for each kind of window."""
    firsts = [_microseconds(lambda zone=zone: know_zone(zone, _START)) for zone in _ZONES]  # type: ignore[misc]
    for zone, day in itertools.product(_ZONES, range(0, _DAYS + 8, 8)):
        know_zone(zone, _START + timedelta(days=day))
    print("Window.at the first time, for each expression: the hardest of many random windows")
    print(f"{'':<46} {'windows':>8} {'expressions':>12} {'median':>9} {'99 %':>9} {'worst':>9}")
    for name, windows, make in _KINDS:
        chance, times, expressions = random.Random(windows), [], 0
        for _ in range(windows):
            parts = make(chance)
            window = _window(parts)
            at = _START + timedelta(seconds=chance.randrange(_DAYS * 86_400))
            times.append(_microseconds(lambda window=window, at=at: window.at(at)) / len(parts))  # type: ignore[misc]
            expressions += len(parts)
        _print(name, windows, expressions, times)
    _print_allow_and_block()
    _print("the first in a zone, once a process", len(firsts), len(firsts), firsts)
    print()


def know_zone(zone: str, at: datetime) -> None:
    """Ask for five years in a zone, which loads it; a window in each hour is always open, or nearly so."""
    _window([(f"CRON_TZ={zone} 1 * * * *", 3600)]).at(at)


def _print_allow_and_block() -> None:
    """A pod with 64 expressions that allow and 64 that block, and what 20 such pods say together."""
    chance, times, pods = random.Random(64), [], []
    for _ in range(20):
        pod = all_of([_window(_dense(chance)).instants, complement(_window(_dense(chance)).instants)])
        times.append(_microseconds(lambda pod=pod: pod.until(_START)) / 128)  # type: ignore[misc]
        pods.append(pod)
    _print("64 that allow and 64 that block", len(pods), 128 * len(pods), times)
    node: Instants = all_of(pods)
    _print("20 such pods together", 1, 128 * 20, [_microseconds(lambda: node.until(_START)) / (128 * 20)])


def _print(name: str, windows: int, expressions: int, times: list[float]) -> None:
    times.sort()
    figures = [f"{times[int(share * (len(times) - 1))]:>6.0f} µs" for share in (0.5, 0.99, 1)]
    print(f"{name:<46} {windows:>8} {expressions:>12} {figures[0]} {figures[1]} {figures[2]}")


def _window(parts: Parts) -> Window:
    return Window([(parse_cron(text), int(seconds * 1e9)) for text, seconds in parts])


def _microseconds(action: Callable[[], object]) -> float:
    gc.disable()  # a collection takes the longer, the more windows have been asked before
    started = time.process_time_ns()
    action()
    taken = time.process_time_ns() - started
    gc.enable()
    return taken / 1000


# -- kinds of windows -------------------------------------------------------------------------------------------------


def _field(chance: random.Random, low: int, high: int, unrestricted: float = 0.4) -> str:
    first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
    forms = (str(first), f"{first}-{last}", f"*/{chance.randint(2, 9)}", f"{first}-{last}/{chance.randint(1, 5)}")
    return "*" if chance.random() < unrestricted else chance.choice(forms)


def _any(chance: random.Random) -> tuple[str, float]:
    zone = "" if chance.random() < 0.3 else f"CRON_TZ={chance.choice(_ZONES)} "
    fields = (_field(chance, 0, 59), _field(chance, 0, 23), _field(chance, 1, 31), _field(chance, 1, 12, 0.7))
    odd = chance.randint(60, 100_000) + chance.random()
    return f"{zone}{' '.join(fields)} {_field(chance, 0, 6)}", chance.choice((*_DURATIONS, odd))


def _sparse(chance: random.Random) -> Parts:
    """Sixty-four, each once a year."""
    return [
        (
            f"CRON_TZ={chance.choice(_ZONES)} {chance.randrange(60)} {chance.randrange(24)} "
            f"{chance.randint(1, 28)} {chance.randint(1, 12)} *",
            60 + 100 * chance.random(),
        )
        for _ in range(64)
    ]


def _dense(chance: random.Random) -> Parts:
    """Sixty-four, each on different days of the month and of the week, and closing at different seconds."""
    return [
        (
            f"CRON_TZ={chance.choice(_ZONES)} {chance.randrange(60)} {chance.randrange(24)} "
            f"{_some(chance, range(1, 32), 3)} * {_some(chance, range(7), 2)}",
            600 + 6000 * chance.random(),
        )
        for _ in range(64)
    ]


def _halves(chance: random.Random) -> Parts:
    """Every minute of the first days of a month, and of the others: five years without a gap."""
    zone, day = chance.choice(_ZONES), chance.randint(1, 30)
    seconds = chance.choice((60, 61, 90.5))
    return [(f"CRON_TZ={zone} * * {days} * *", seconds) for days in (f"1-{day}", f"{day + 1}-31")]


def _patchwork(chance: random.Random) -> Parts:
    """Each hour on some days of some months, on their other days, and in the other months: no gap either."""
    parts: Parts = []
    for hour in range(21):
        days, months = chance.sample(range(1, 32), 15), chance.sample(range(1, 13), 6)
        some, others = _listed(days), _listed(set(range(1, 32)) - set(days))
        rest = _listed(set(range(1, 13)) - set(months))
        parts += [(f"* {hour} {on} {_listed(months)} *", 61.0) for on in (some, others)]
        parts.append((f"* {hour} * {rest} *", 61.0))
    return [*parts, ("* 21-23 * * *", 61.0)]


def _some(chance: random.Random, values: range, count: int) -> str:
    return _listed(chance.sample(values, count))


def _listed(values: list[int] | set[int]) -> str:
    return ",".join(map(str, sorted(values)))


_KINDS = (
    _Kind("one expression", 2000, lambda chance: [_any(chance)]),
    _Kind("two to five", 500, lambda chance: [_any(chance) for _ in range(chance.randint(2, 5))]),
    _Kind("64 in many zones, each once a year", 50, _sparse),
    _Kind("64 in many zones, on different days", 50, _dense),
    _Kind("halves of the month in a zone", 200, _halves),
    _Kind("64 that leave no gap", 20, _patchwork),
)


if __name__ == "__main__":
    print_hardest_windows()
