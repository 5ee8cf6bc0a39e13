"""Checks that objects from files have the fields, types and values that the simulated cluster relies on.

A real API server refuses a Deployment with `replicas: many`, an affinity without a topology key, an integer of more
than 64 bits or a time beyond the calendar. The simulated one checks fewer fields, and the structs of `api` are lenient,
so objects are checked here before they reach it.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from dovetail import ports
from dovetail.api import objects
from dovetail.api.decode_errors import OUT_OF_RANGE
from dovetail.api.documents import Document, InputError, decode, decode_as_written
from dovetail.api.names import NOT_READY_TAINT, UNREACHABLE_TAINT
from dovetail.api.objects import Instant, LabelSelector, ObjectMeta, Wire
from dovetail.api.pod_specs import Affinity, SchedulingPod
from dovetail.api.yaml_events import join
from dovetail.sim.actors.deployment import REVISION
from dovetail.sim.actors.wire import EXIT_CODE
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorError, make_selector
from dovetail.values.timestamp import TimeError, parse_time


class InvalidValue(Exception):
    """A field with a type or value that no cluster holds, or a required field that is missing."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message


# -- values that no cluster holds, in any field ------------------------------------------------------------------------

_LARGEST: Final = 2**63 - 1
_LAST_YEAR: Final = 2999  # leaves room to add any duration before the calendar ends
_LAST: Final = datetime(_LAST_YEAR, 12, 31, tzinfo=UTC)
_TIMES: Final = (
    *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastPodEventTime", "startTime"),
    *("completionTime", "finishedAt", "timeAdded", "nextChange"),
)
# Usual objects have none of these, so that only the others are walked through. To make all digits 0 and then search for
# 19 of them takes a fifth of the time of a regular expression.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * 19
_USUAL: Final = rb'"2[0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"'
_UNUSUAL: Final = re.compile(rb'"(?:' + "|".join(_TIMES).encode() + rb')":(?!' + _USUAL + rb")")


def sound(body: dict[str, Any], *, patch: bool = False) -> dict[str, Any]:
    """Return the object without nulls, which Go reads as absent fields; in a `patch` nulls stay. Raises Unsound."""
    try:
        text = msgspec.json.encode(body)
        if b"null" not in text and not _has_long_number(text) and not _UNUSUAL.search(text):
            return body
    except (OverflowError, TypeError, ValueError, RecursionError):  # the walk names the field
        pass
    copied: dict[str, Any] = _sound(body, "", "", nulls=patch)
    return copied


def _has_long_number(text: bytes) -> bool:
    return _LONG in text.translate(_DIGITS)


def _sound(value: Any, name: str, path: str, *, nulls: bool) -> Any:
    if isinstance(value, dict):
        if name in ("labels", "annotations"):  # users write any text here, and null means an empty string
            return value
        return {
            key: _sound(child, key, join(path, key), nulls=nulls)
            for key, child in value.items()
            if nulls or child is not None
        }
    if isinstance(value, list):  # a patch replaces lists as a whole
        return [_sound(child, "", join(path, index), nulls=False) for index, child in enumerate(value)]
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise InvalidValue(path, OUT_OF_RANGE)
    if name in _TIMES and isinstance(value, str):
        try:
            far = parse_time(value).year > _LAST_YEAR
        except TimeError as error:
            raise InvalidValue(path, str(error)) from None
        if far:
            raise InvalidValue(path, f"{shown(value)} is too far away to be played: the last year is {_LAST_YEAR}")
    return value


# -- types of fields ---------------------------------------------------------------------------------------------------


class _RequiredField(NamedTuple):
    """The type of a field that must be present."""

    type: Any


def _object(required: str = "", /, *optional: tuple[Any, str], **fields: Any) -> Any:
    """A struct with non-empty `required` texts, with `optional` fields by type, and with further fields of any type."""
    fields |= {name: type_ for type_, names in optional for name in names.split()}
    must = [(name, _TEXT) for name in required.split()]
    must += [(name, field.type) for name, field in fields.items() if isinstance(field, _RequiredField)]
    may = [(name, field | None, None) for name, field in fields.items() if not isinstance(field, _RequiredField)]
    return msgspec.defstruct("Checked", [*must, *may], bases=(Wire,), frozen=True)


def _many(item: Any) -> Any:
    return GenericAlias(tuple, (item, ...))


_TEXT: Final[Any] = Annotated[str, msgspec.Meta(min_length=1)]
_TEXTS: Final[Any] = tuple[str, ...]
_STRINGS: Final[Any] = dict[str, str]
_COUNT: Final[Any] = Annotated[int, msgspec.Meta(ge=0)]
# No cluster runs more pods, and simulating each of them would take too long.
_PODS: Final[Any] = Annotated[int, msgspec.Meta(ge=0, le=150_000)]
# More years than anybody waits, and still within the calendar.
_SECONDS: Final[Any] = Annotated[int, msgspec.Meta(ge=-(10**10), le=10**10)]
_POSITIVE: Final[Any] = Annotated[int, msgspec.Meta(ge=1)]
_SHARE: Final[Any] = _COUNT | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}%$")]
_FEW: Final[Any] = int | Annotated[str, msgspec.Meta(max_length=20)]

_META: Final = _object(
    "",
    (str, "name generate_name namespace uid"),
    (_STRINGS, "labels annotations"),
    (Instant, "creation_timestamp deletion_timestamp"),
    generation=_COUNT,
    deletion_grace_period_seconds=_SECONDS,
    owner_references=_many(_object("api_version kind name uid", (bool, "controller block_owner_deletion"))),
    finalizers=_TEXTS,
)
_CONDITIONS: Final = _many(_object("type status", (str, "reason message"), last_transition_time=Instant))
_ANY_OBJECT: Final = _object(metadata=_META, status=_object(conditions=_CONDITIONS))

_EXPRESSIONS: Final = _many(_object("key operator", values=_TEXTS))
_SELECTOR: Final = _object(match_labels=_STRINGS, match_expressions=_EXPRESSIONS)
_NODE_NAMES: Final = _RequiredField(Annotated[tuple[str, ...], msgspec.Meta(min_length=1)])
_NODE_TERM: Final = _object(
    match_expressions=_EXPRESSIONS, match_fields=_many(_object("key operator", values=_NODE_NAMES))
)
_NODE_SELECTOR: Final = _object(node_selector_terms=_RequiredField(_many(_NODE_TERM)))
_POD_TERM: Final = _object("topology_key", (_SELECTOR, "label_selector namespace_selector"))


def _affinity(required: Any, **preferred: Any) -> Any:
    return _object(
        required_during_scheduling_ignored_during_execution=required,
        preferred_during_scheduling_ignored_during_execution=_many(_object(weight=_RequiredField(int), **preferred)),
    )


_POD_AFFINITY: Final = _affinity(_many(_POD_TERM), pod_affinity_term=_RequiredField(_POD_TERM))
_CONTAINERS: Final = _many(
    _object("name", image=str, lifecycle=_object(pre_stop=_object(sleep=_object(seconds=_SECONDS))))
)
_CONTAINER_STATUSES: Final = _many(
    _object(restart_count=_COUNT, state=_object(terminated=_object(finished_at=Instant)))
)
_POD: Final = _object(
    metadata=_META,
    spec=_object(
        "",
        (_CONTAINERS, "containers init_containers"),
        (str, "priority_class_name preemption_policy restart_policy scheduler_name"),
        affinity=_object(
            "",
            (_POD_AFFINITY, "pod_affinity pod_anti_affinity"),
            node_affinity=_affinity(_NODE_SELECTOR, preference=_RequiredField(_NODE_TERM)),
        ),
        tolerations=_many(_object(toleration_seconds=_SECONDS)),
        topology_spread_constraints=_many(
            _object("topology_key", max_skew=_RequiredField(_POSITIVE), min_domains=_POSITIVE, label_selector=_SELECTOR)
        ),
        volumes=_many(_object("name", persistent_volume_claim=_object("claim_name"))),
        readiness_gates=_many(_object("condition_type")),
        scheduling_gates=_many(dict[str, Any]),
        termination_grace_period_seconds=_SECONDS,
        priority=int,
    ),
    status=_object(
        "",
        (str, "phase nominated_node_name"),
        (_CONTAINER_STATUSES, "container_statuses init_container_statuses"),
        conditions=_CONDITIONS,
        start_time=Instant,
    ),
)
_STRATEGY: Final = _object(
    type=str, rolling_update=_object("", (_SHARE, "max_surge max_unavailable"), partition=_COUNT)
)
_CLAIM_META: Final = _object("name", (_STRINGS, "labels annotations"))
_WORKLOAD: Final = _object(  # of any kind
    metadata=_META,
    spec=_object(
        "",
        (_PODS, "replicas parallelism"),
        (_SECONDS, "min_ready_seconds progress_deadline_seconds active_deadline_seconds ttl_seconds_after_finished"),
        (_COUNT, "revision_history_limit completions backoff_limit"),
        (bool, "paused suspend"),
        (_STRATEGY, "strategy update_strategy"),
        (str, "pod_management_policy service_name"),
        selector=_SELECTOR,
        template=_POD,
        ordinals=_object(start=_COUNT),
        volume_claim_templates=_many(
            _object(metadata=_RequiredField(_CLAIM_META), spec=_RequiredField(dict[str, Any]))
        ),
    ),
    status=_object(
        "",
        (_COUNT, "replicas ready_replicas available_replicas updated_replicas active succeeded failed"),
        (_COUNT, "observed_generation collision_count"),
        (str, "current_revision update_revision"),
        conditions=_CONDITIONS,
        start_time=Instant,
    ),
)
_NODE: Final = _object(
    metadata=_META,
    spec=_object(unschedulable=bool),
    status=_object(conditions=_CONDITIONS, addresses=_many(_object("type", address=_RequiredField(str)))),
)
_PDB: Final = _object(
    metadata=_META,
    spec=_object("", (_FEW, "min_available max_unavailable"), selector=_SELECTOR),
    status=_object(
        "",
        (_COUNT, "disruptions_allowed current_healthy desired_healthy expected_pods observed_generation"),
        conditions=_CONDITIONS,
        disrupted_pods=dict[str, Instant],
    ),
)
_PRIORITY_CLASS: Final = _object(
    metadata=_META,
    value=Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)],
    preemption_policy=str,
    global_default=bool,
)
_VOLUME: Final = _object(metadata=_META, spec=_object(node_affinity=_object(required=_NODE_SELECTOR)))


class _WorkloadSpec(Wire, frozen=True):
    template: SchedulingPod | None = None
    selector: LabelSelector | None = None


class _Workload(Wire, frozen=True):
    """A workload with its pod template, as the controllers read it."""

    spec: _WorkloadSpec = _WorkloadSpec()
    metadata: ObjectMeta = ObjectMeta()


_NO_AFFINITY: Final = Affinity()
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
# The API server adds tolerations of these to every pod.
_TOLERATED: Final = frozenset((NOT_READY_TAINT, UNREACHABLE_TAINT))
# The struct that the controllers read, if they do, and then the fields that the simulated cluster reads.
_CHECKS: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "Pod": (SchedulingPod, _POD),
    "Node": (objects.Node, _NODE),
    "PodDisruptionBudget": (objects.PodDisruptionBudget, _PDB),
    "PriorityClass": (_PRIORITY_CLASS,),
    "PersistentVolume": (ports.VOLUMES.struct, _VOLUME),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"), (_Workload, _WORKLOAD)),
    **{
        resource.kind: (resource.struct, _ANY_OBJECT)
        for resource in (
            *(ports.NODEPOOLS, ports.NODECLAIMS, ports.KWOK_NODECLASSES, ports.NAMESPACES),
            *(ports.VOLUME_CLAIMS, ports.STORAGE_CLASSES, ports.CSI_NODES, ports.VOLUME_ATTACHMENTS),
        )
    },
}


def check_fields(kind: str, body: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check the types of the fields, and that a `whole` object has the required ones. Raises Unsound."""
    document = Document("", 1, None, None, "", kind, value=dict(body))
    try:
        read, *_ = [decode(document, check) for check in _CHECKS.get(kind, (_ANY_OBJECT,))]
    except InputError as error:
        raise InvalidValue(error.field or "", error.message) from None
    if isinstance(read, SchedulingPod):
        _check_number(read.metadata, EXIT_CODE, "")
    if isinstance(read, _Workload):
        spec = read.spec
        if whole and spec.template is None:
            raise InvalidValue("spec.template", "is required")
        if whole and spec.template is not None and not spec.template.spec.containers:
            raise InvalidValue("spec.template.spec.containers", "is required")
        if whole and spec.selector is None and kind != "Job":
            raise InvalidValue("spec.selector", "is required")
        if spec.selector is not None and (whole or kind == "Job"):
            _check_selector(spec.selector, _pod_labels(kind, read))
        if spec.template is not None:
            _check_number(spec.template.metadata, EXIT_CODE, "spec.template.")
        _check_number(read.metadata, REVISION, "")


def whole_pod(document: Document) -> SchedulingPod | None:
    """The pod, if scheduling can read it as it is; else None. Most pods of a dump are such."""
    pod = decode_as_written(document, SchedulingPod)
    if pod is None or document.raw is None or (not _is_plain(pod) and _has_long_number(bytes(document.raw))):
        return None
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not (meta.name and meta.uid and spec.containers and spec.scheduler_name and status.phase):
        return None
    if EXIT_CODE in meta.annotations or meta.creation_timestamp is None or meta.creation_timestamp > _LAST:
        return None
    for at in (meta.deletion_timestamp, status.start_time):
        if at is not None and at > _LAST:
            return None
    for condition in status.conditions:
        if condition.last_transition_time is None or condition.last_transition_time > _LAST:
            return None
    tolerated = {toleration.key for toleration in spec.tolerations if toleration.effect in {"", "NoExecute"}}
    return pod if "" in tolerated or tolerated >= _TOLERATED else None


def _is_plain(pod: SchedulingPod) -> bool:
    """Whether all its numbers are known to be small: it has few, and no rules about other pods and nodes."""
    spec = pod.spec
    if spec.topology_spread_constraints or spec.affinity != _NO_AFFINITY:
        return False
    for number in (spec.priority or 0, spec.termination_grace_period_seconds or 0, pod.metadata.generation):
        if not -_LARGEST < number < _LARGEST:
            return False
    return not any([container.ports for container in spec.containers])  # noqa: C419  a list is quicker here


def _pod_labels(kind: str, workload: _Workload) -> Mapping[str, str]:
    """The labels of the template, and those that the Job controller adds to its pods."""
    labels = workload.spec.template.metadata.labels if workload.spec.template else {}
    if kind != "Job":
        return labels
    own = {"job-name": workload.metadata.name, "controller-uid": workload.metadata.uid}
    return {**labels, **own, **{f"batch.kubernetes.io/{key}": value for key, value in own.items()}}


def _check_selector(selector: LabelSelector, labels: Mapping[str, str]) -> None:
    """A selector that does not match its own template would create pods without end."""
    try:
        entries = [(entry.key, entry.operator, entry.values) for entry in selector.match_expressions]
        matches = make_selector(selector.match_labels, entries).matches(labels)
    except SelectorError as error:
        raise InvalidValue("spec.selector", str(error)) from None
    if not matches:
        raise InvalidValue("spec.template.metadata.labels", "are not those that spec.selector wants")


def _check_number(meta: ObjectMeta, annotation: str, path: str) -> None:
    text = meta.annotations.get(annotation, "0")
    if not _NUMBER.fullmatch(text):
        field = f"{path}metadata.annotations[{annotation}]"
        raise InvalidValue(field, f"{shown(text)} is no whole number, such as 1")
