"""The options that every command which reads a cluster has (09), defined once."""

import shlex
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from dovetail.cli.common.process import fail
from dovetail.rules.budgets import BudgetSemantics
from dovetail.values.duration import DAY, DurationError, add, parse_span, shown
from dovetail.values.schedule.zone import ZoneError, load_zone
from dovetail.values.timestamp import TimeError, format_time, parse_time

F = TypeVar("F", bound=Callable[..., Any])

# What does not change within five years is said not to change (R10).
_LONGEST = 5 * 365 * DAY


class ClusterSource(NamedTuple):
    """Where a cluster is read from: files, or without files a live one."""

    paths: tuple[str, ...]
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """Enough of a live cluster, if the rights do not reach further."""

    def check(self) -> None:
        """End the program if both are given."""
        if self.paths and (self.kubeconfig or self.context):
            fail("give either -f for files, or --kubeconfig and --context for a live cluster, not both")

    def asking(self, at: datetime | None = None) -> str:
        """The options with which other commands read the same cluster, at this instant."""
        given = [("-f", path) for path in self.paths]
        given += [("--kubeconfig", self.kubeconfig or ""), ("--context", self.context or "")]
        given += [("--at", "" if at is None else format_time(at))]
        return " ".join(f"{option} {shlex.quote(value)}" for option, value in given if value)


class CommonOptions(NamedTuple):
    """What the common options were given as."""

    paths: tuple[str, ...]
    output: str
    at: datetime
    end: datetime | None
    """Where the span of `--for` ends."""
    zone: tzinfo
    namespace: str | None = None
    quiet: bool = False
    verbose: bool = False
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def source(self) -> ClusterSource:
        """Where the cluster is read from."""
        return ClusterSource(self.paths, self.kubeconfig, self.context, self.namespace)


class InstantParam(click.ParamType[datetime]):
    name = "RFC3339"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(value)
        except TimeError as error:
            self.fail(str(error), param, ctx)


class _DurationParam(click.ParamType[int]):
    """A duration in nanoseconds: `36h` and the other forms of our durations, with days before them."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            span_ns = parse_span(value) or 0
        except DurationError as error:
            self.fail(str(error), param, ctx)
        if not 0 < span_ns <= _LONGEST:
            self.fail(f"{shown(value)} is not a span up to {_LONGEST // DAY}d, such as 36h, 7d or 1d12h", param, ctx)
        return span_ns


class _ZoneParam(click.ParamType[tzinfo]):
    name = "Area/City"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tzinfo:
        if isinstance(value, tzinfo):
            return value
        try:
            return load_zone(value)
        except ZoneError as error:
            self.fail(str(error), param, ctx)


OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, or data for scripts.",
)
FILES = click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    metavar="PATH",
    help="A file, a directory, or - for standard input; YAML or JSON. May be given several times.",
)
LIVE = [
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Without -f: where the cluster is. By default KUBECONFIG, in a pod its own cluster, or ~/.kube/config.",
    ),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig; by default its current one."),
]


BUDGET_READING = click.option(
    "--budget-reading",
    type=click.Choice([reading.value for reading in BudgetSemantics]),
    default=BudgetSemantics.SEED.value,
    show_default=True,
    help="Whether a budget without reasons holds only for reasons that no active budget names, or for all of them.",
)


def common_options(
    *,
    ahead: str | None = None,
    namespace: str | None = None,
    quiet: str | None = None,
    verbose: str | None = None,
    live: bool = True,
) -> Callable[[F], F]:
    """Give a command these options, as `common`. What four of them mean to it, their help says; None: nothing, and the
    command has no such option.

    `live`: without files the command reads a cluster (`dovetail.cli.common.sources`), and can be told which.
    """
    span = click.option(
        "--for", "span", type=_DurationParam(), metavar="DURATION", help=f"{ahead} Such as 36h, 7d or 1d12h."
    )
    options = [
        FILES,
        OUTPUT,
        click.option("--at", type=InstantParam(), metavar="RFC3339", help="Evaluate at this instant instead of now."),
        *([span] if ahead else []),
        click.option(
            "--tz",
            "zone",
            type=_ZoneParam(),
            default=UTC,
            metavar="AREA/CITY",
            help="Show times in this time zone. Data for scripts are always in UTC.",
        ),
        *([click.option("-n", "--namespace", metavar="NAMESPACE", help=namespace)] if namespace else []),
        *([click.option("-q", "--quiet", is_flag=True, help=quiet)] if quiet else []),
        *([click.option("-v", "--verbose", is_flag=True, help=verbose)] if verbose else []),
        *(LIVE if live else ()),
    ]
    fields = [name for name in CommonOptions._fields if name not in ("at", "end")]

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*, at: datetime | None, span: int | None = None, **given: Any) -> Any:
            at = now() if at is None else at
            told = {field: given.pop(field) for field in fields if field in given}
            common = CommonOptions(at=at, end=_end(at, span), **told)
            common.source.check()
            return function(common=common, **given)

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def now() -> datetime:
    """This and the controller's clock are the only places that look at the time."""
    return datetime.now(UTC).replace(microsecond=0)


def _end(at: datetime, span_ns: int | None) -> datetime | None:
    if span_ns is None:
        return None
    end = add(at, span_ns)
    if end is None:
        fail("--for ends beyond the calendar")
    return end
