"""Prints answers: tables for people, JSON and YAML for scripts."""

import gc
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, tzinfo
from typing import Protocol, TextIO, TypeVar

import click
import msgspec
import yaml

from dovetail.cli.common.counting import SILENT_SECONDS
from dovetail.cli.common.wrapping import broken_line, fitted_cells, joined_rows, terminal_width
from dovetail.model.finding import Finding, Severity
from dovetail.values.foreign_text import is_printable, json_escaped, plain
from dovetail.values.timestamp import TimeError, parse_time, relative, spoken_time, time_between
from dovetail.views.explain.pending import FITTING_NOWHERE, PendingSummary
from dovetail.views.findings.joined import joined
from dovetail.views.leading import NO_CONTROLLER

_BATCH = 1000
_MOST_POOLS = 10
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")


def print_answer(data: msgspec.Struct, output: str, lines: Callable[[], Sequence[str]], *, heading: str = "") -> None:
    """Print these lines for people, below the heading if there is one, or the data as JSON or YAML."""
    if output == "table":
        print_lines([heading, *lines()] if heading else lines())
    else:
        print_data(data, output)


def print_data(data: msgspec.Struct, output: str) -> None:
    """Print as JSON or YAML."""
    if output == "json":
        for part in _json_parts(data):
            sys.stdout.buffer.write(json_text(part))
        sys.stdout.flush()
    else:
        for text in _yaml_parts(data):
            sys.stdout.write(text)


def _yaml_parts(data: msgspec.Struct) -> Iterator[str]:
    """The struct as YAML, in parts as below."""
    for field in msgspec.structs.fields(data):
        value = getattr(data, field.name)
        if value is msgspec.UNSET:
            continue
        if not isinstance(value, tuple) or not value:
            yield yaml_text({field.encode_name: msgspec.to_builtins(value, enc_hook=str)})
            continue
        yield f"{field.encode_name}:\n"
        for start in range(0, len(value), _BATCH):
            yield yaml_text(msgspec.to_builtins(value[start : start + _BATCH], enc_hook=str))


def yaml_text(builtins: object) -> str:
    """As YAML. If there are control or invisible characters, everything beyond ASCII is escaped."""
    for allow_unicode in (True, False):
        dumped: str = yaml.dump(
            builtins, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=allow_unicode, width=2**20
        )
        if is_printable(dumped):
            break
    return dumped


def json_text(encoded: bytes) -> bytes:
    """The same JSON, with control characters and invisible characters escaped."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return json_escaped(encoded.decode()).encode()


def _json_parts(data: msgspec.Struct) -> Iterator[bytes]:
    """The struct as indented JSON, in parts: the text for 100,000 pods need never be in memory at once."""
    opening = b"{"
    for field in msgspec.structs.fields(data):
        value = getattr(data, field.name)
        if value is msgspec.UNSET:
            continue
        yield opening + b"\n  " + msgspec.json.encode(field.encode_name) + b": "
        opening = b","
        if not isinstance(value, tuple) or not value:
            yield msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).replace(b"\n", b"\n  ")
            continue
        for start in range(0, len(value), _BATCH):
            # A list in a list indents its items as needed; its brackets are cut off.
            text = msgspec.json.format(msgspec.json.encode([value[start : start + _BATCH]], enc_hook=str), indent=2)
            yield (b"[" if start == 0 else b",") + text[len(b"[\n  [") : -len(b"\n  ]\n]")]
        yield b"\n  ]"
    yield b"\n}\n"


def print_lines(lines: Sequence[str]) -> None:
    """Print for people; colours are left out where the output is no terminal or NO_COLOR is set."""
    width = terminal_width()
    if width is not None:
        lines = [part for line in lines for part in broken_line(line, width)]
    click.echo("\n".join(lines), color=False if os.environ.get("NO_COLOR") else None)


def sections(bodies: Mapping[str, Sequence[str]]) -> list[str]:
    """Each body below its title; those without lines are left out."""
    lines: list[str] = []
    for title, body in bodies.items():
        if body:
            lines += ["", click.style(title, bold=True, underline=True), *body]
    return lines


def table(rows: Sequence[Sequence[str]], indent: str = "", *, spare: Sequence[str] = ()) -> list[str]:
    """Columns padded to their widest cell, the first row being the heading. Cells may hold colours.

    On a narrow terminal cells break between words. `spare`: columns that go before that, the last one first.
    """
    width = terminal_width()
    cells = (
        [[[cell] for cell in row] for row in rows] if width is None else fitted_cells(rows, width - len(indent), spare)
    )
    heading, *others = joined_rows(cells, indent)
    return [*(click.style(line, bold=True) for line in heading), *(line for row in others for line in row)]


class Times:
    """Formats instants for people: in their zone, with the distance from now (R33)."""

    def __init__(self, now: datetime, zone: tzinfo) -> None:
        self.now = now
        self.zone = zone

    def stamp(self, at: datetime) -> str:
        """`2026-03-07T02:00:00Z`."""
        return spoken_time(at, self.zone)

    def distance(self, at: datetime | None) -> str:
        """`in 30m`."""
        return "" if at is None else relative(at, self.now)

    def age(self, since: datetime | None) -> str:
        """`30m`."""
        return "" if since is None else time_between(since, self.now)

    def full(self, at: datetime | None, *, none: str = "") -> str:
        """`2026-03-07T02:00:00Z (in 30m)`, or `now`."""
        if at is None:
            return none
        return "now" if at == self.now else f"{self.stamp(at)} ({self.distance(at)})"

    def clock(self, at: datetime) -> str:
        """`17:00` within a day, else `03-11 17:00`."""
        near = at - self.now < timedelta(hours=24)
        return f"{at.astimezone(self.zone):{'%H:%M' if near else '%m-%d %H:%M'}}"

    def localised(self, text: str) -> str:
        """The same text with its instants in the zone."""
        return _STAMP.sub(lambda stamp: self._localised(stamp[0]), text)

    def _localised(self, stamp: str) -> str:
        try:
            return spoken_time(parse_time(stamp), self.zone)
        except TimeError:  # it only looks like an instant
            return stamp


def output_width() -> int | None:
    """The columns of the terminal, or COLUMNS. None: the output is a file or a pipe, which needs no cutting."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return None
    return shutil.get_terminal_size().columns


def cut_middle(name: str, width: int) -> str:
    """The name with both of its ends, at most this wide."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def fitting_names(names: Iterable[str], width: int) -> dict[str, str]:
    """Names of nodes, at most this wide. Without the domain if the host tells them apart, as on EC2; else both ends."""
    names = list(names)
    hosts = {name.partition(".")[0] for name in names}
    if max(map(len, names), default=0) > width and len(hosts) == len(names):
        return {name: cut_middle(plain(name.partition(".")[0]), width) for name in names}
    return {name: cut_middle(plain(name), width) for name in names}


class _Pool(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> int: ...


P = TypeVar("P", bound=_Pool)


def pools_shown(pools: Sequence[P], *, every: bool) -> tuple[Sequence[P], list[str]]:
    """The pools to show, which are those with nodes if there are any, and a line that names the others."""
    shown = [pool for pool in pools if pool.nodes]
    if every or not shown:
        return pools, []
    empty = [plain(pool.name) for pool in pools if not pool.nodes]
    more = f" and {len(empty) - _MOST_POOLS} more" if len(empty) > _MOST_POOLS else ""
    named = f"without nodes (-v shows them): {', '.join(empty[:_MOST_POOLS])}{more}"
    return shown, [named] if empty else []


def pending_lines(pending: PendingSummary) -> list[str]:
    """How many pods wait for what, and how to ask about one that somebody may have to help; nothing without pods."""
    if not pending:
        return []
    first = pending.counts[0]
    ask = f"; dovetail explain pod/{plain(first.pods[0].path)} says why" if first.reason in FITTING_NOWHERE else ""
    return [f"{pending}{ask}"]


def count(number: int, one: str, several: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def missing_lines(problems: Iterable[Finding], times: Times) -> list[str]:
    """For the head of an answer: each controller that does not run, and what to do about it."""
    lines = []
    for problem in problems:
        if problem.rule == NO_CONTROLLER:
            message = times.localised(plain(str(problem.message)))
            lines.append(click.style(message[:1].upper() + message[1:], fg=_COLOURS[problem.severity]))
            lines.append(f"  → {plain(problem.remedy)}")
    return lines


def problem_lines(problems: Sequence[Finding], times: Times, *, below_head: bool = False) -> list[str]:
    """Two or three lines for each problem: the object, what is wrong, and what to write instead. Each problem once.

    `below_head`: without those that the head has told.
    """
    lines = []
    for problem in joined(problems):
        if below_head and problem.rule == NO_CONTROLLER:
            continue
        place = "  ".join(filter(None, (plain(str(problem.object)), plain(problem.field))))
        parts = (click.style(place, bold=True) if place else "", plain(problem.file))
        rest = "  ".join(filter(None, parts))
        severity = f"{problem.severity.value:<8}" if rest else problem.severity.value
        lines.append(click.style(severity, fg=_COLOURS[problem.severity]) + rest)
        lines.append(f"        {plain(problem.rule)}: {times.localised(plain(str(problem.message)))}")
        if problem.remedy:
            lines.append(f"        → {plain(problem.remedy)}")
    return lines


def be_silent() -> None:
    """Drop what controllers log: it is for operators of a real cluster."""
    log = logging.getLogger("dovetail")
    log.addHandler(logging.NullHandler())
    log.propagate = False


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that something takes a while: at once on a terminal, else by one line after two seconds."""
    if not sys.stderr.isatty():
        late = threading.Timer(SILENT_SECONDS, _say, (what, sys.stderr))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
        return
    from rich.console import Console  # noqa: PLC0415  (it takes long to import, and most calls need it not)

    with Console(stderr=True).status(what):
        yield


def _say(what: str, stream: TextIO) -> None:
    with suppress(OSError, ValueError):  # whoever reads it may be gone
        stream.write(f"dovetail: {what}\n")
        stream.flush()


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the share that is done. Without a terminal, one line says that it takes a while."""
    if not sys.stderr.isatty():
        with working(f"{what} …"):
            yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  (it takes long to import, and most calls need it not)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Switch the garbage collector off: objects that are read have no cycles, and a search of 100,000 pods takes
    seconds."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # no search at the end of the process either
        gc.enable()
