"""The options that every command which reads a cluster has (09), defined once."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from dovetail.cli.failing import fail
from dovetail.values.duration import DAY, DurationError, add, parse_simple, shown
from dovetail.values.timestamp import TimeError, parse_time
from dovetail.values.zone import ZoneError, load_zone

F = TypeVar("F", bound=Callable[..., Any])

# What does not change within five years is said not to change (R10).
_LONGEST = 5 * 365 * DAY
_SPAN = re.compile(r"(?:([0-9]{1,9})d)?((?:[0-9]+[hms])*)")


class Common(NamedTuple):
    """What the common options were given as."""

    paths: tuple[str, ...]
    output: str
    at: datetime
    end: datetime | None
    """Where the span of `--for` ends."""
    zone: tzinfo
    namespace: str | None
    quiet: bool
    verbose: bool


class _Instant(click.ParamType[datetime]):
    name = "RFC3339"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(value)
        except TimeError as error:
            self.fail(str(error), param, ctx)


class _Span(click.ParamType[int]):
    """A duration in nanoseconds: `36h` and the other forms of our durations, with days before them."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SPAN.fullmatch(value)
        try:
            span_ns = int(found[1] or 0) * DAY + (parse_simple(found[2]) if found[2] else 0) if found else 0
        except DurationError as error:
            self.fail(str(error), param, ctx)
        if not 0 < span_ns <= _LONGEST:
            self.fail(f"{shown(value)} is not a span up to {_LONGEST // DAY}d, such as 36h, 7d or 1d12h", param, ctx)
        return span_ns


class _Zone(click.ParamType[tzinfo]):
    name = "Area/City"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tzinfo:
        if isinstance(value, tzinfo):
            return value
        try:
            return load_zone(value)
        except ZoneError as error:
            self.fail(str(error), param, ctx)


def common_options(*, ahead: str, namespace: str, quiet: str, verbose: str) -> Callable[[F], F]:
    """Give a command these options, as `common`. What four of them mean to the command, their help says."""
    options = [
        click.option(
            "-f",
            "--filename",
            "paths",
            multiple=True,
            metavar="PATH",
            help="A file, a directory, or - for standard input; YAML or JSON. May be given several times.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", "yaml"]),
            default="table",
            show_default=True,
            help="A table for people, or data for scripts.",
        ),
        click.option("--at", type=_Instant(), metavar="RFC3339", help="Evaluate at this instant instead of now."),
        click.option("--for", "span", type=_Span(), metavar="DURATION", help=f"{ahead} Such as 36h, 7d or 1d12h."),
        click.option(
            "--tz",
            "zone",
            type=_Zone(),
            default=UTC,
            metavar="AREA/CITY",
            help="Show times in this time zone. Data for scripts are always in UTC.",
        ),
        click.option("-n", "--namespace", metavar="NAMESPACE", help=namespace),
        click.option("-q", "--quiet", is_flag=True, help=quiet),
        click.option("-v", "--verbose", is_flag=True, help=verbose),
    ]

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*, at: datetime | None, span: int | None, **given: Any) -> Any:
            at = _now() if at is None else at
            common = {field: given.pop(field) for field in ("paths", "output", "zone", "namespace", "quiet", "verbose")}
            return function(common=Common(at=at, end=_end(at, span), **common), **given)

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _now() -> datetime:
    """This and the controller's clock are the only places that look at the time."""
    return datetime.now(UTC).replace(microsecond=0)


def _end(at: datetime, span_ns: int | None) -> datetime | None:
    if span_ns is None:
        return None
    end = add(at, span_ns)
    if end is None:
        fail("--for ends beyond the calendar")
    return end
