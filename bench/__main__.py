"""`make bench`: how long, how much memory, and how both grow with the size.

`python -m bench` prints all tables but these.
`python -m bench top` prints nothing but the table of `top`.
`python -m bench draining` prints the tables of drains as well, which take minutes on a real API server.
`python -m bench shrinking 200` prints nothing but how a cluster of that size shrinks there, which takes ten.
`python -m bench plans` prints nothing but how plans of random clusters come out; see bench/plans.py.
`python -m bench rounds` prints nothing but whether one round of provisioning suffices; see bench/rounds.py.
`python -m bench churn` and `scale-out` print nothing but Dovetail beside Karpenter; see bench/churn.py.
"""

import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from bench.churn import print_churn, print_scale_out
from bench.cluster import PODS_PER_NODE
from bench.disruption import print_disruption
from bench.draining import print_draining
from bench.holdups import print_holdups
from bench.ingest import print_ingest
from bench.plans import print_plans
from bench.real_ingest import print_real_ingest
from bench.real_shrinking import print_real_shrinking
from bench.repository import print_repository
from bench.rounds import print_rounds
from bench.scheduling import print_scheduling
from bench.shrinking import print_shrinking
from bench.sim import print_sim
from bench.week import print_week
from bench.windows import know_zone, print_hardest_windows
from bench.worst_pods import print_worst_pods
from dovetail.values.duration import parse_duration
from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.window import Window

_AT = "2026-03-06T16:20:00Z"


class Figure(NamedTuple):
    """One run of the program in a process of its own."""

    seconds: float
    peak_mb: float
    cpu_seconds: float


# What is printed alone, with the arguments that follow its name.
_ALONE: Final[Mapping[str, Callable[[list[str]], None]]] = {
    "plans": lambda rest: print_plans(*map(float, rest)),
    "rounds": lambda rest: print_rounds(*map(float, rest)),
    "churn": print_churn,
    "scale-out": print_scale_out,
    "shrinking": lambda rest: print_real_shrinking(*map(int, rest)),
    "top": lambda _: print_top([500, 1_500, 5_000]),
}


def main(arguments: list[str]) -> int:
    """Print every table, or those that are named."""
    if {"-h", "--help"} & set(arguments[:1]):
        print(__doc__)
        return 0
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name not in ("", "draining", *_ALONE):
        print(f"there is no bench {name!r}; `python -m bench --help` lists them", file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if name in _ALONE:
        _ALONE[name](rest)
        return 0
    print_startup()
    print_explain("json", [500, 1_500, 5_000])
    print_explain("yaml", [50, 150, 500])
    print_top([500, 1_500, 5_000])
    print_repository()
    print_windows()
    print_hardest_windows()
    print_worst_pods()
    print_ingest()
    print_real_ingest()
    print_sim()
    print_week()
    print_scheduling()
    print_disruption()
    print_shrinking()
    print_holdups()
    if name == "draining":
        print_draining()
    return 0


def run(*arguments: str) -> Figure:
    """Run `dovetail` and measure it."""
    started = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen([sys.executable, "-m", "dovetail", *arguments], stdout=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dovetail {' '.join(arguments)} ended with {process.returncode}")
    return Figure(time.perf_counter() - started, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def print_startup() -> None:
    """The price of asking for help."""
    best = min(run("--help").seconds for _ in range(5))
    print(f"dovetail --help: {best:.2f} s\n")


def print_explain(form: str, sizes: list[int]) -> None:
    """Explain a whole dump from a file, as JSON."""
    print(f"explain -o json of a {form.upper()} dump")
    print(f"{'nodes':>8} {'pods':>8} {'file':>8} {'time':>8} {'growth':>7} {'memory':>8} {'growth':>7}")
    before: tuple[int, Figure] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            file = Path(folder) / f"cluster.{form}"
            # In a process of its own: a child's peak memory begins with that of the process that starts it.
            subprocess.run([sys.executable, "-m", "bench.cluster", str(nodes), form, str(file)], check=True)
            figure = run("explain", "-f", str(file), "--at", _AT, "-o", "json")
            growth = ["", ""] if before is None else [_exponent(before, nodes, figure, field) for field in (0, 1)]
            print(
                f"{nodes:>8} {nodes * PODS_PER_NODE:>8} {file.stat().st_size / 1e6:>5.0f} MB "
                f"{figure.seconds:>6.2f} s {growth[0]:>7} {figure.peak_mb:>5.0f} MB {growth[1]:>7}"
            )
            before = (nodes, figure)
    print()


def print_top(sizes: list[int]) -> None:
    """Show the board of a whole dump once."""
    print("top --once of a JSON dump")
    print(f"{'nodes':>8} {'pods':>8} {'time':>8} {'CPU':>8} {'memory':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            file = Path(folder) / "cluster.json"
            subprocess.run([sys.executable, "-m", "bench.cluster", str(nodes), "json", str(file)], check=True)
            figure = run("top", "--once", "-f", str(file), "--at", _AT)
            print(
                f"{nodes:>8} {nodes * PODS_PER_NODE:>8} {figure.seconds:>6.2f} s {figure.cpu_seconds:>6.2f} s "
                f"{figure.peak_mb:>5.0f} MB"
            )
    print()


def _exponent(before: tuple[int, Figure], nodes: int, figure: Figure, field: int) -> str:
    """The power of the size with which the figure grew: 1 is linear."""
    return f"{math.log(figure[field] / before[1][field]) / math.log(nodes / before[0]):.2f}"


_WINDOWS = {
    "ordinary": ("0 2 * * 6", "4h"),
    "never fires": ("0 0 31 2 *", "1h"),
    "always open": ("* * * * *", "168h"),
    "leap day, five years without a hit": ("0 0 29 2 *", "1h"),
    "every minute in a zone with DST": ("CRON_TZ=Europe/Berlin * * * * *", "1h"),
    "every hour in a zone with DST": ("CRON_TZ=Europe/Berlin 0 * * * *", "1h"),
    "Fridays for a week in a zone with DST": ("CRON_TZ=America/New_York * */5 * * 5", "168h"),
    "weekdays and weekends": ("* * * * 1-5;* * * * 0,6", "1m"),
    "halves of the month": ("* * 1-15 * *;* * 16-31 * *", "1m"),
    "nights in two zones": ("CRON_TZ=Europe/Berlin 0 22 * * *;CRON_TZ=Asia/Tokyo 0 22 * * *", "8h"),
    "sixty single minutes": (";".join(f"{minute} * * * *" for minute in range(60)), "1m"),
}


def print_windows() -> None:
    """One question to a window that is parsed already, the first time and again; zones are loaded once a process."""
    at = datetime(2025, 3, 1, 12, tzinfo=UTC)
    for zone in ("Europe/Berlin", "America/New_York", "Asia/Tokyo"):
        know_zone(zone, at)
    print("Window.at, once parsed, for each expression")
    print(f"{'':<38} {'expressions':>12} {'first':>10} {'again':>10}")
    for name, (schedule, duration) in _WINDOWS.items():
        parts = [(parse_cron(text), parse_duration(duration)) for text in schedule.split(";")]
        window = Window(parts)
        first = _microseconds(lambda window=window: window.at(at), 1)  # type: ignore[misc]
        again = _microseconds(lambda window=window: window.at(at), 1000)  # type: ignore[misc]
        print(f"{name:<38} {len(parts):>12} {first / len(parts):>7.1f} µs {again / len(parts):>7.1f} µs")
    print()


def _microseconds(action: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times * 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
