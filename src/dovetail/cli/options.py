"""Options that several subcommands share, and what they mean."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar

import click

from dovetail.values.timestamp import TimeError, parse_time
from dovetail.values.zone import ZoneError, load_zone

F = TypeVar("F", bound=Callable[..., Any])


class _Instant(click.ParamType[datetime]):
    name = "RFC3339"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(value)
        except TimeError as error:
            self.fail(str(error), param, ctx)


class _Zone(click.ParamType[tzinfo]):
    name = "Area/City"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tzinfo:
        if isinstance(value, tzinfo):
            return value
        try:
            return load_zone(value)
        except ZoneError as error:
            self.fail(str(error), param, ctx)


def files_option(function: F) -> F:
    """`-f`, repeatable."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        metavar="PATH",
        help="A file, a directory, or - for standard input; YAML or JSON. May be given several times.",
    )(function)


def output_option(function: F) -> F:
    """`-o`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="A table for people, or data for scripts.",
    )(function)


def at_option(function: F) -> F:
    """`--at`."""
    return click.option("--at", type=_Instant(), metavar="RFC3339", help="Evaluate at this instant instead of now.")(
        function
    )


def zone_option(function: F) -> F:
    """`--tz`."""
    return click.option(
        "--tz", "zone", type=_Zone(), default=UTC, metavar="AREA/CITY", help="Show times for people in this time zone."
    )(function)


def instant_or_now(at: datetime | None) -> datetime:
    """The instant asked about. This and the controller's clock are the only places that look at the time."""
    return datetime.now(UTC).replace(microsecond=0) if at is None else at
