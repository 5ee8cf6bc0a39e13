"""`--scheduler-config`: the configuration of kube-scheduler, of which the default spread constraints are read."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import click
import msgspec

from dovetail.api.decode_errors import explain_refusal
from dovetail.api.documents import InputError
from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.api.yaml_events import YamlError, parse
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.files import read_file
from dovetail.cli.common.process import fail
from dovetail.scheduling.default_spread import DEFAULT_SCHEDULER, SchedulerProfile, SchedulerProfiles
from dovetail.values.duration import shown

T = TypeVar("T")

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
PLUGIN: Final = "PodTopologySpread"
HELP: Final = (
    f"A {KIND}: its default spread constraints are applied to pods without constraints of their own. "
    "A file, or the YAML itself."
)

SCHEDULER_CONFIG: Final = click.option(
    "--scheduler-config",
    metavar="FILE",
    default="",
    shell_complete=complete_files,
    callback=lambda _context, _option, value: _read_or_fail(value),
    help=HELP,
)


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The configuration as it is written, and what it says; None: there is none."""

    text: str = ""
    profiles: SchedulerProfiles | None = None


class _ConfigError(ValueError):
    """The message names the field."""


class _StrictStruct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A mapping that may have no other fields."""


class _Constraint(_StrictStruct, frozen=True, kw_only=True):
    max_skew: Annotated[int, msgspec.Meta(ge=1)]
    topology_key: Annotated[str, msgspec.Meta(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, msgspec.Meta(ge=1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: tuple[str, ...] = ()  # kube-scheduler ignores them
    label_selector: Any = None


class _SpreadArgs(_StrictStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    default_constraints: tuple[_Constraint, ...] = ()
    defaulting_type: Literal["List", "System"] = "System"


class _PluginConfig(msgspec.Struct, frozen=True):
    name: str
    args: Any = None


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = DEFAULT_SCHEDULER
    plugin_config: tuple[_PluginConfig, ...] | None = None


class _Configuration(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a KubeSchedulerConfiguration that default constraints are in."""

    api_version: str
    kind: str
    profiles: tuple[_Profile, ...] | None = None


class _Spread(_StrictStruct, frozen=True):
    default_constraints: tuple[_Constraint, ...] = ()


class _KarpenterConfig(_StrictStruct, frozen=True):
    """What Karpenter's option of this name takes: constraints for all pods, whatever their scheduler."""

    pod_topology_spread: _Spread = _Spread()


def read_scheduler_config(text: str) -> SchedulerConfig:
    """Read the file with this name, or the text itself. Raises ValueError, whose message names file and field."""
    if not text.strip():
        return SchedulerConfig()
    try:
        value = _parsed(text.encode())
        if isinstance(value, dict) or "\n" in text.strip():
            return SchedulerConfig(text, _profiles(value))
    except _ConfigError as error:
        raise ValueError(str(error)) from None
    try:
        data = read_file(text)
        return SchedulerConfig(data.decode(), _profiles(_parsed(data)))
    except InputError as error:
        raise ValueError(str(error)) from None
    except UnicodeDecodeError:
        raise ValueError(f"{text}: is not UTF-8") from None
    except _ConfigError as error:
        raise ValueError(f"{text}: {error}") from None


def _read_or_fail(text: str) -> SchedulerConfig:
    try:
        return read_scheduler_config(text)
    except ValueError as error:
        fail(f"--scheduler-config {error}")


def _parsed(data: bytes) -> Any:
    try:
        documents = [document.value for document in parse(data)]
    except YamlError as error:
        raise _ConfigError(f"not YAML: {error.message}") from None
    if len(documents) != 1:
        raise _ConfigError(f"want one {KIND}, got {len(documents)} YAML documents")
    return documents[0]


def _profiles(value: Any) -> SchedulerProfiles:
    if not isinstance(value, dict):
        raise _ConfigError(f"want a mapping of the kind {KIND}")
    if not value.keys() & {"apiVersion", "kind"}:
        constraints = _converted(value, _KarpenterConfig).pod_topology_spread.default_constraints
        field = "podTopologySpread.defaultConstraints"
        return SchedulerProfiles(every=SchedulerProfile(_constraints(constraints, field)))
    read = _converted(value, _Configuration)
    if (read.api_version, read.kind) != (API_VERSION, KIND):
        field = "kind" if read.kind != KIND else "apiVersion"
        raise _ConfigError(f"{field}: {shown(value[field])} is not known; want {API_VERSION}, {KIND}")
    by_name: dict[str, SchedulerProfile] = {}
    for index, profile in enumerate(read.profiles or (_Profile(),)):
        field = f"profiles[{index}]"
        if profile.scheduler_name in by_name:
            name = shown(profile.scheduler_name)
            raise _ConfigError(f"{field}.schedulerName: another profile is {name}; give each profile its own name")
        by_name[profile.scheduler_name] = _profile(profile, f"{field}.pluginConfig")
    return SchedulerProfiles(by_name)


def _profile(profile: _Profile, field: str) -> SchedulerProfile:
    configured = [(index, plugin) for index, plugin in enumerate(profile.plugin_config or ()) if plugin.name == PLUGIN]
    if not configured:
        return SchedulerProfile(system=True)
    if len(configured) > 1:
        raise _ConfigError(f"{field}[{configured[1][0]}]: {PLUGIN} is configured twice; keep one")
    (index, plugin), *_ = configured
    field = f"{field}[{index}].args"
    args = _converted({} if plugin.args is None else plugin.args, _SpreadArgs, field)
    if args.defaulting_type == "List":
        return SchedulerProfile(_constraints(args.default_constraints, f"{field}.defaultConstraints"))
    if args.default_constraints:
        raise _ConfigError(f"{field}.defaultConstraints: needs defaultingType: List, which is System by default")
    return SchedulerProfile(system=True)


def _constraints(written: Sequence[_Constraint], field: str) -> tuple[TopologySpreadConstraint, ...]:
    pairs: set[tuple[str, str]] = set()
    for index, constraint in enumerate(written):
        if constraint.label_selector is not None:
            raise _ConfigError(f"{field}[{index}].labelSelector: remove it; the selector is deduced for each pod")
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in pairs:
            raise _ConfigError(
                f"{field}[{index}]: there is another with this topologyKey and whenUnsatisfiable; keep one"
            )
        pairs.add(pair)
    return tuple(
        TopologySpreadConstraint(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains,
            when_unsatisfiable=constraint.when_unsatisfiable,
            node_affinity_policy=constraint.node_affinity_policy,
            node_taints_policy=constraint.node_taints_policy,
        )
        for constraint in written
    )


def _converted(value: Any, type_: type[T], prefix: str = "") -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        field, words = explain_refusal(error)
        path = ".".join(filter(None, (prefix, field)))
        raise _ConfigError(f"{path or 'the configuration'}: {words}") from None
