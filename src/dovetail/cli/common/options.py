"""The options of every command that reads a cluster."""

import shlex
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec
from click.core import ParameterSource

from dovetail.cli.common.completion import complete_contexts, complete_files, complete_namespaces
from dovetail.cli.common.process import fail
from dovetail.model.decider import Decider, parse_decider
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.values.duration import DAY, DurationError, add, parse_span, shown
from dovetail.values.schedule.zone import ZoneError, load_zone
from dovetail.values.timestamp import TimeError, format_time, parse_time

F = TypeVar("F", bound=Callable[..., Any])

# Rules look five years ahead (R10).
_LONGEST = 5 * 365 * DAY
DECIDER_VARIABLE: Final = "DOVETAIL_DECIDER"


class ClusterSource(NamedTuple):
    """Where a cluster is read from: files, or a live cluster if there are none."""

    paths: tuple[str, ...]
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """Of a live cluster, read only this namespace if the user may not read all."""
    decider: Decider | None = None
    """Who decides, if the user has said so."""
    budgets: BudgetSemantics | None = None
    """How budgets without reasons are read, if the user has said so."""

    def check(self) -> None:
        """End the program if files and a live cluster are given."""
        if self.paths and (self.kubeconfig or self.context):
            fail("give either -f for files, or --kubeconfig and --context for a live cluster, not both")

    def asking(self, at: datetime | None = None) -> str:
        """The options with which other commands read the same cluster, at this instant."""
        given = [("-f", path) for path in self.paths]
        given += [("--kubeconfig", self.kubeconfig or ""), ("--context", self.context or "")]
        given += [("--at", "" if at is None else format_time(at))]
        given += [("--decider", "" if self.decider is None else self.decider.text)]
        return " ".join(f"{option} {shlex.quote(value)}" for option, value in given if value)


class CommonOptions(NamedTuple):
    """The values of the common options."""

    paths: tuple[str, ...]
    output: str
    at: datetime
    end: datetime | None
    """The end of the span of `--for`."""
    zone: tzinfo
    namespace: str | None = None
    quiet: bool = False
    verbose: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    decider: Decider | None = None
    budgets: BudgetSemantics | None = None

    @property
    def source(self) -> ClusterSource:
        """Where the cluster is read from."""
        return ClusterSource(self.paths, self.kubeconfig, self.context, self.namespace, self.decider, self.budgets)


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
    shell_complete=complete_files,
    help="A file, a directory, or - for standard input; YAML or JSON. Can be repeated.",
)
KUBECONFIG = click.option(
    "--kubeconfig",
    metavar="FILE",
    shell_complete=complete_files,
    help="The kubeconfig of the cluster. By default KUBECONFIG, the pod's own cluster in a pod, or ~/.kube/config.",
)
CONTEXT = click.option(
    "--context",
    metavar="NAME",
    shell_complete=complete_contexts,
    help="The context of the kubeconfig; by default the current one.",
)


class _DeciderParam(click.ParamType[Decider]):
    name = "karpenter[@VERSION]|dovetail[:run|guard|drive]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decider:
        if isinstance(value, Decider):
            return value
        try:
            return parse_decider(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _said(context: click.Context, option: click.Parameter, given: Decider | None) -> Decider | None:
    """The decider that the user names, and where."""
    source = context.get_parameter_source(option.name or "")
    where = DECIDER_VARIABLE if source is ParameterSource.ENVIRONMENT else "--decider"
    return None if given is None else msgspec.structs.replace(given, reason=f"{where} says so")


READINGS = click.Choice([reading.value for reading in BudgetSemantics])
READINGS_HELP = (
    "Whether a budget without reasons applies only to reasons that no active budget names, or to all of them."
)
_DECIDER: Final = click.option(
    "--decider",
    type=_DeciderParam(),
    envvar=DECIDER_VARIABLE,
    callback=_said,
    help="Whose rules the answer follows.  [default: who decides in the cluster; Karpenter for manifests]",
)
_BUDGET_READING: Final = click.option(
    "--budget-reading",
    "budgets",
    type=READINGS,
    callback=lambda _context, _option, value: value and BudgetSemantics(value),
    help=f"{READINGS_HELP}  [default: as the decider reads it]",
)


def reading_options(function: F) -> F:
    """The options that say in whose reading a command answers, as `decider` and `budgets`."""
    return _DECIDER(_BUDGET_READING(function))


def common_options(
    *,
    ahead: str | None = None,
    namespace: str | None = None,
    quiet: str | None = None,
    verbose: str | None = None,
    live: bool = True,
    asks: bool = True,
    reads: bool = True,
) -> Callable[[F], F]:
    """Give a command these options, as `common`. Four of them have a help text for each command; None: the command does
    not have the option.

    `live`: without files the command reads a cluster (`dovetail.cli.common.sources`). `asks`: the user gives the
    cluster, and the instant to ask about. `reads`: the answer depends on who decides.
    """
    text, *default = (ahead or "").partition("  [default")
    help_ = f"{text} For example 36h, 7d or 1d12h.{''.join(default)}"
    span = click.option("--for", "span", type=_DurationParam(), metavar="DURATION", help=help_)
    at_ = click.option("--at", type=InstantParam(), metavar="RFC3339", help="Evaluate at this instant instead of now.")
    options = [
        *([FILES] if asks else ()),
        OUTPUT,
        *([at_] if asks else ()),
        *([span] if ahead else []),
        click.option(
            "--tz",
            "zone",
            type=_ZoneParam(),
            default=UTC,
            metavar="AREA/CITY",
            help="Show times in this time zone. Data for scripts are always in UTC.",
        ),
        *([_namespace(namespace)] if namespace else []),
        *([click.option("-q", "--quiet", is_flag=True, help=quiet)] if quiet else []),
        *([click.option("-v", "--verbose", is_flag=True, help=verbose)] if verbose else []),
        *([KUBECONFIG, CONTEXT] if live else ()),
        *([_DECIDER, _BUDGET_READING] if reads else ()),
    ]
    fields = [name for name in CommonOptions._fields if name not in ("at", "end")]

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*, at: datetime | None = None, span: int | None = None, **given: Any) -> Any:
            at = now() if at is None else at
            values = {field: given.pop(field) for field in fields if field in given}
            common = CommonOptions(at=at, end=_end(at, span), **{"paths": (), **values})
            common.source.check()
            return function(common=common, **given)

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _namespace(help_: str) -> Callable[[F], F]:
    return click.option("-n", "--namespace", metavar="NAMESPACE", shell_complete=complete_namespaces, help=help_)


def now() -> datetime:
    """The time. Only this and the controller's clock read it."""
    return datetime.now(UTC).replace(microsecond=0)


def _end(at: datetime, span_ns: int | None) -> datetime | None:
    if span_ns is None:
        return None
    end = add(at, span_ns)
    if end is None:
        fail("--for ends beyond the calendar")
    return end
