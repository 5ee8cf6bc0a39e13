"""The options of guard and drive: those of every controller process, and a few of their own."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final, TypeVar

import click

from dovetail.api import names
from dovetail.cli.common.instance_types import read_instance_types
from dovetail.cli.common.scheduler_config import SchedulerConfig
from dovetail.cli.run.options import (
    BUDGETS,
    CONNECTION,
    LEADING,
    LOGGING,
    PLANNING,
    ProcessOptions,
    option,
    ports,
)
from dovetail.cli.run.values import ConvertedParam
from dovetail.model.decider import Decider, DecidingController
from dovetail.model.instance_types import InstanceType
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.observe.logs import LogFormat
from dovetail.planning.beside.holding import LONGEST_LEAD
from dovetail.values.duration import MICROSECOND, parse_duration, shown
from dovetail.values.selector import Selector, parse_selector

T = TypeVar("T", bound="BesideOptions")


class BesideOptions(ProcessOptions, frozen=True, kw_only=True):
    """The values of the options that guard and drive have in common.

    Two with different NodePools would undo each other's holds. So the name of the Lease cannot be chosen: the one that
    holds it acts, and another one in any namespace waits.
    """

    leader_election_name: str = names.BESIDE_LEASE
    nodepool_selector: Selector
    hold_pods: bool
    karpenter_version: str  # empty: found out


class GuardRunOptions(BesideOptions, frozen=True, kw_only=True):
    """The values of all options of guard."""

    lead: timedelta


class DriveRunOptions(BesideOptions, frozen=True, kw_only=True):
    """The values of all options of drive."""

    budget_reading: BudgetSemantics
    instance_types: tuple[InstanceType, ...] | None
    preference_policy: str
    min_values_policy: str
    scheduler_config: SchedulerConfig


def read_lead(text: str) -> timedelta:
    span = timedelta(microseconds=parse_duration(text) // MICROSECOND)
    if not timedelta(0) <= span <= LONGEST_LEAD:
        raise ValueError(f"{shown(text)} is not between 0s and {LONGEST_LEAD // timedelta(hours=1)}h")
    return span


def read_pools(text: str) -> Selector:
    return parse_selector(text) if text else Selector()


def read_version(text: str) -> str:
    if text and Decider(DecidingController.KARPENTER, version=text).release is None:
        raise ValueError(f"{shown(text)} is not a version such as 1.15")
    return text


BESIDE: Final = [
    option(
        "nodepool-selector",
        ConvertedParam("selector", read_pools),
        "",
        "Only handle nodes of NodePools with these labels, as in kubectl --selector. "
        f'The annotation {names.BESIDE}: "off" on a NodePool excludes its nodes, too.',
    ),
    click.option(
        "--hold-pods",
        is_flag=True,
        envvar="HOLD_PODS",
        show_envvar=True,
        help="Also write do-not-disrupt on pods while a schedule protects them, so that Karpenter's drain waits.",
    ),
    option(
        "karpenter-version",
        ConvertedParam("version", read_version),
        "",
        "The version of Karpenter, such as 1.15. By default, that of the pod that holds Karpenter's Lease.",
    ),
    *CONNECTION,
    *LEADING,
    *ports("/metrics"),
    *LOGGING,
]

_GUARD: Final = [
    option(
        "lead",
        ConvertedParam("duration", read_lead),
        "10m",
        "Hold a node this long before a window of its pods closes, at most half of the window. "
        "It must be longer than nodes usually take to boot.",
    ),
    *BESIDE,
]


def beside_command(type_: type[T], options: list[Any]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command these options, as one value of the type."""

    def decorate(function: Callable[[T], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            given["log_format"] = LogFormat(given["log_format"])
            function(type_(**given))

        decorated: Any = command
        for add_option in reversed(options):
            decorated = add_option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


guard_options: Final = beside_command(GuardRunOptions, _GUARD)

_DRIVE: Final = [
    BUDGETS,
    option(
        "instance-types-file-path",
        ConvertedParam("file", read_instance_types),
        "",
        "A JSON file of instance types with prices; replacements then list those that fit. Without it, Karpenter's "
        "provider chooses, and drive knows only the sizes of the nodes that exist.",
        name="instance_types",
    ),
    *PLANNING,
    *BESIDE,
]
drive_options: Final = beside_command(DriveRunOptions, _DRIVE)
