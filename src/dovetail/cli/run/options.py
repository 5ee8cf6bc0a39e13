"""The options of `dovetail run` (04 §5): upstream's, by flag or environment variable, and a few of ours.

A flag beats the environment variable of the same name. A value that cannot be read ends the program.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click
import msgspec

from dovetail.api import names
from dovetail.cli.common.instance_types import read_instance_types
from dovetail.cli.common.options import CONTEXT, KUBECONFIG, READINGS, READINGS_HELP
from dovetail.cli.common.providers import PROVIDERS, provider_option
from dovetail.cli.common.scheduler_config import HELP, SchedulerConfig, read_scheduler_config
from dovetail.cli.run.values import (
    ConvertedParam,
    boolean,
    paths,
    positive_seconds,
    read_gates,
)
from dovetail.controllers.assembly import FeatureGates
from dovetail.model.instance_types import InstanceType
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.observe.logs import LEVELS, LogFormat


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every controller process."""

    kubeconfig: str | None
    context: str | None
    dry_run: bool
    metrics_port: int
    health_probe_port: int
    metrics_bind_address: str
    kube_client_qps: float
    kube_client_burst: int
    leader_election_name: str
    leader_election_namespace: str
    disable_leader_election: bool
    log_level: str
    log_format: LogFormat
    log_output_paths: tuple[str, ...]
    log_error_output_paths: tuple[str, ...]


class RunOptions(ProcessOptions, frozen=True, kw_only=True):
    """The values of all options."""

    budget_reading: BudgetSemantics
    dashboard_port: int
    dashboard_address: str
    disable_cluster_state_observability: bool
    enable_profiling: bool
    gates: FeatureGates
    unsupported_gates: tuple[str, ...]
    provider: str
    provider_settings: dict[str, Any]  # the values of the provider's own options
    instance_types: tuple[InstanceType, ...] | None
    batch_max_seconds: float
    batch_idle_seconds: float
    preference_policy: str
    min_values_policy: str
    scheduler_config: SchedulerConfig


_PORT: Final = click.IntRange(0, 65535)
_BOOLEAN: Final = ConvertedParam("true|false", boolean)
_SECONDS: Final = ConvertedParam("duration", positive_seconds)
_PATHS: Final = ConvertedParam("paths", paths)
_NO_EFFECT: Final = "Accepted for compatibility; has no effect here."
_GATES: Final = "NodeRepair=true,ReservedCapacity=true,SpotToSpotConsolidation=false,StaticCapacity=true"


def option(flag: str, type_: Any, default: Any, help_: str, *, name: str | None = None) -> Callable[[Any], Any]:
    """`--some-flag`, or SOME_FLAG in the environment. A boolean may be given without a value."""
    without_value = {"is_flag": False, "flag_value": "true", "metavar": "[true|false]"}
    more: dict[str, Any] = without_value if type_ is _BOOLEAN else {}
    return click.option(
        f"--{flag}",
        *([name] if name else []),
        type=type_,
        default=default,
        show_default=default != "",
        envvar=flag.upper().replace("-", "_"),
        show_envvar=True,
        help=help_,
        **more,
    )


CONNECTION: Final = [
    KUBECONFIG,
    CONTEXT,
    option(
        "kube-client-qps",
        click.FloatRange(0, min_open=True),
        200.0,
        "Requests per second to the API server.",
    ),
    option("kube-client-burst", click.IntRange(1), 300, "Requests to the API server in one burst."),
]


LEADING: Final = [
    click.option("--dry-run", is_flag=True, help="Decide and report, but write nothing and take no Lease."),
    option(
        "leader-election-namespace",
        str,
        "",
        "Namespace of the Lease. By default SYSTEM_NAMESPACE, in a pod its own, or kube-system.",
    ),
    option("disable-leader-election", _BOOLEAN, "false", "Act without a Lease. Only for a single replica."),
]


def ports(metrics: str, access: str = "") -> list[Any]:
    """The options about what is served. `metrics`: what is on the port of metrics; `access`: who may read it."""
    return [
        option("metrics-port", _PORT, 8080, f"The port of {metrics}; 0: any free port."),
        option("health-probe-port", _PORT, 8081, "The port of /healthz and /readyz; 0: any free port."),
        option(
            "metrics-bind-address",
            str,
            "",
            f"The address of both ports. By default all addresses in a pod, and 127.0.0.1 elsewhere.{access}",
        ),
    ]


LOGGING: Final = [
    option("log-level", click.Choice(list(LEVELS)), "info", "How much is logged."),
    option(
        "log-format",
        click.Choice([form.value for form in LogFormat]),
        LogFormat.JSON.value,
        "One JSON object per line, or text for people.",
    ),
    option("log-output-paths", _PATHS, "stdout", "Where to log: stdout, stderr or files, separated by commas."),
    option("log-error-output-paths", _PATHS, "stderr", "Where to report that logging fails."),
]

_LEASE: Final = option(
    "leader-election-name",
    str,
    names.LEADER_ELECTION_LEASE,
    "Name of the Lease. Karpenter's own by default, so that the two never act at once.",
)

_OBSERVING: Final = [
    *ports(
        "/metrics and /debug/decisions",
        " In a pod, and on an address that others can reach, /debug/* requires a token.",
    ),
    option("dashboard-port", _PORT, 0, "The port of the dashboard; 0: no dashboard."),
    option(
        "dashboard-address",
        str,
        "127.0.0.1",
        "The address of the dashboard. In a pod, and on an address that others can reach, it requires a token.",
    ),
    option(
        "disable-cluster-state-observability",
        _BOOLEAN,
        "false",
        "Do not export metrics of single Nodes and NodePools.",
    ),
    option(
        "enable-profiling",
        _BOOLEAN,
        "false",
        "Serve /debug/pprof/profile?seconds=10 and /debug/pprof/tasks beside /debug/decisions.",
    ),
    *LOGGING,
]

BUDGETS: Final = option("budget-reading", READINGS, BudgetSemantics.SEED.value, READINGS_HELP)
# How pods are placed on nodes.
PLANNING: Final = [
    option(
        "preference-policy",
        click.Choice(["Respect", "Ignore"]),
        "Respect",
        "Whether to respect preferences of pods when planning nodes.",
    ),
    option(
        "min-values-policy",
        click.Choice(["Strict", "BestEffort"]),
        "Strict",
        "Whether minValues of requirements are strict.",
    ),
    option(
        "scheduler-config",
        ConvertedParam("config", read_scheduler_config),
        "",
        HELP,
    ),
]

_DECIDING: Final = [
    provider_option(envvar="PROVIDER"),
    BUDGETS,
    option(
        "feature-gates",
        ConvertedParam("gates", read_gates),
        "",
        f"Gate=true or Gate=false, separated by commas; other gates keep their default. Defaults: {_GATES}.",
    ),
    option(
        "instance-types-file-path",
        ConvertedParam("file", read_instance_types),
        "",
        "A JSON file of instance types, instead of the built-in ones.",
        name="instance_types",
    ),
    option(
        "batch-max-duration",
        _SECONDS,
        "10s",
        "The longest time to collect pending pods before planning nodes for them.",
        name="batch_max_seconds",
    ),
    option(
        "batch-idle-duration",
        _SECONDS,
        "1s",
        "Plan sooner if no further pod becomes pending for this long.",
        name="batch_idle_seconds",
    ),
    *PLANNING,
]

_IGNORED: Final = {
    "ignore_dra_requests": option("ignore-dra-requests", _BOOLEAN, "true", _NO_EFFECT),
    "karpenter_service": option("karpenter-service", str, "", _NO_EFFECT),
    "disable_controller_warmup": option(
        "disable-controller-warmup", _BOOLEAN, "true", f"{_NO_EFFECT} Every replica keeps its caches warm."
    ),
    "memory_limit": option("memory-limit", int, -1, _NO_EFFECT),
    "cpu_requests": option("cpu-requests", int, 1000, _NO_EFFECT),
}


def run_options(function: Callable[[RunOptions], None]) -> Callable[..., None]:
    """Give a command all of these options, as one value."""

    @wraps(function)
    def command(**given: Any) -> None:
        gates, unsupported = given.pop("feature_gates")
        for name in _IGNORED:
            del given[name]
        given["provider_settings"] = {
            str(option.name): given.pop(str(option.name))
            for bundle in PROVIDERS().usable.values()
            for option in bundle.options
        }
        given["budget_reading"] = BudgetSemantics(given["budget_reading"])
        given["log_format"] = LogFormat(given["log_format"])
        function(RunOptions(gates=gates, unsupported_gates=unsupported, **given))

    decorated: Any = command
    for add_option in reversed([*CONNECTION, *LEADING, _LEASE, *_OBSERVING, *_DECIDING, *_IGNORED.values()]):
        decorated = add_option(decorated)
    for bundle in PROVIDERS().usable.values():
        decorated.__click_params__ += bundle.options
    return decorated  # type: ignore[no-any-return]
