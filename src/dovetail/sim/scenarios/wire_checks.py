"""Does an object have the fields and types that everybody in the simulated cluster takes for granted?

The structs of `api` are lenient, so that a rule can tell what is wrong with one field of an object. A real API server
refuses a Deployment with `replicas: many`, an affinity without a topology key, a condition without a type, a grace
period of ages. The simulated one looks at fewer fields: so what files say is looked at before it is put in.
"""

import re
from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from dovetail import ports
from dovetail.api import objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.objects import Instant, LabelSelector, ObjectMeta, Wire
from dovetail.api.pod_specs import SchedulingPod
from dovetail.sim.actors.deployment import REVISION
from dovetail.sim.actors.wire import EXIT_CODE
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorError, make_selector

# -- what the fields must be -------------------------------------------------------------------------------------------


class _RequiredField(NamedTuple):
    """A field that must be there."""

    type: Any


def _object(*texts: str, **fields: Any) -> Any:
    """An object with these texts, which must be there and not be empty, and with these fields, which may be missing."""
    must = [(name, field.type) for name, field in fields.items() if isinstance(field, _RequiredField)]
    may = [(name, field | None, None) for name, field in fields.items() if not isinstance(field, _RequiredField)]
    return msgspec.defstruct("Checked", [*((name, _TEXT) for name in texts), *must, *may], bases=(Wire,), frozen=True)


def _many(item: Any) -> Any:
    return GenericAlias(tuple, (item, ...))


_TEXT: Final[Any] = Annotated[str, msgspec.Meta(min_length=1)]
_TEXTS: Final[Any] = tuple[str, ...]
_STRINGS: Final[Any] = dict[str, str]
_COUNT: Final[Any] = Annotated[int, msgspec.Meta(ge=0)]
# No cluster runs more; to play them one by one would take for ever.
_PODS: Final[Any] = Annotated[int, msgspec.Meta(ge=0, le=150_000)]
# In years more than anybody waits, and still within the calendar.
_SECONDS: Final[Any] = Annotated[int, msgspec.Meta(ge=-(10**10), le=10**10)]
_POSITIVE: Final[Any] = Annotated[int, msgspec.Meta(ge=1)]
_SHARE: Final[Any] = _COUNT | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}%$")]
_FEW: Final[Any] = int | Annotated[str, msgspec.Meta(max_length=20)]

_META: Final = _object(
    name=str,
    generate_name=str,
    namespace=str,
    uid=str,
    generation=_COUNT,
    labels=_STRINGS,
    annotations=_STRINGS,
    creation_timestamp=Instant,
    deletion_timestamp=Instant,
    deletion_grace_period_seconds=_SECONDS,
    owner_references=_many(
        _object("api_version", "kind", "name", "uid", controller=bool, block_owner_deletion=bool),
    ),
    finalizers=_TEXTS,
)
_CONDITIONS: Final = _many(_object("type", "status", reason=str, message=str, last_transition_time=Instant))
_ANY_OBJECT: Final = _object(metadata=_META, status=_object(conditions=_CONDITIONS))

_EXPRESSIONS: Final = _many(_object("key", "operator", values=_TEXTS))
_SELECTOR: Final = _object(match_labels=_STRINGS, match_expressions=_EXPRESSIONS)
_NODE_TERM: Final = _object(
    match_expressions=_EXPRESSIONS,
    match_fields=_many(
        _object("key", "operator", values=_RequiredField(Annotated[tuple[str, ...], msgspec.Meta(min_length=1)])),
    ),
)
_NODE_SELECTOR: Final = _object(node_selector_terms=_RequiredField(_many(_NODE_TERM)))
_POD_TERM: Final = _object("topology_key", label_selector=_SELECTOR, namespace_selector=_SELECTOR)
_POD_AFFINITY: Final = _object(
    required_during_scheduling_ignored_during_execution=_many(_POD_TERM),
    preferred_during_scheduling_ignored_during_execution=_many(
        _object(weight=_RequiredField(int), pod_affinity_term=_RequiredField(_POD_TERM)),
    ),
)
_AFFINITY: Final = _object(
    node_affinity=_object(
        required_during_scheduling_ignored_during_execution=_NODE_SELECTOR,
        preferred_during_scheduling_ignored_during_execution=_many(
            _object(weight=_RequiredField(int), preference=_RequiredField(_NODE_TERM)),
        ),
    ),
    pod_affinity=_POD_AFFINITY,
    pod_anti_affinity=_POD_AFFINITY,
)
_CONTAINERS: Final = _many(
    _object("name", image=str, lifecycle=_object(pre_stop=_object(sleep=_object(seconds=_SECONDS)))),
)
_CONTAINER_STATUSES: Final = _many(
    _object(restart_count=_COUNT, state=_object(terminated=_object(finished_at=Instant))),
)
_POD: Final = _object(
    metadata=_META,
    spec=_object(
        affinity=_AFFINITY,
        tolerations=_many(_object(toleration_seconds=_SECONDS)),
        topology_spread_constraints=_many(
            _object(
                "topology_key", max_skew=_RequiredField(_POSITIVE), min_domains=_POSITIVE, label_selector=_SELECTOR
            ),
        ),
        volumes=_many(_object("name", persistent_volume_claim=_object("claim_name"))),
        containers=_CONTAINERS,
        init_containers=_CONTAINERS,
        readiness_gates=_many(_object("condition_type")),
        scheduling_gates=_many(dict[str, Any]),
        termination_grace_period_seconds=_SECONDS,
        priority=int,
        priority_class_name=str,
        preemption_policy=str,
        restart_policy=str,
        scheduler_name=str,
    ),
    status=_object(
        conditions=_CONDITIONS,
        phase=str,
        start_time=Instant,
        nominated_node_name=str,
        container_statuses=_CONTAINER_STATUSES,
        init_container_statuses=_CONTAINER_STATUSES,
    ),
)
_STRATEGY: Final = _object(type=str, rolling_update=_object(max_surge=_SHARE, max_unavailable=_SHARE, partition=_COUNT))
_WORKLOAD: Final = _object(  # of any kind
    metadata=_META,
    spec=_object(
        selector=_SELECTOR,
        template=_POD,
        replicas=_PODS,
        min_ready_seconds=_SECONDS,
        progress_deadline_seconds=_SECONDS,
        revision_history_limit=_COUNT,
        paused=bool,
        strategy=_STRATEGY,
        update_strategy=_STRATEGY,
        ordinals=_object(start=_COUNT),
        pod_management_policy=str,
        service_name=str,
        volume_claim_templates=_many(
            _object(
                metadata=_RequiredField(_object("name", labels=_STRINGS, annotations=_STRINGS)),
                spec=_RequiredField(dict[str, Any]),
            ),
        ),
        parallelism=_PODS,
        completions=_COUNT,
        backoff_limit=_COUNT,
        active_deadline_seconds=_SECONDS,
        ttl_seconds_after_finished=_SECONDS,
        suspend=bool,
    ),
    status=_object(
        conditions=_CONDITIONS,
        **dict.fromkeys(("replicas", "ready_replicas", "available_replicas", "updated_replicas"), _COUNT),
        **dict.fromkeys(("observed_generation", "collision_count", "active", "succeeded", "failed"), _COUNT),
        current_revision=str,
        update_revision=str,
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
    spec=_object(min_available=_FEW, max_unavailable=_FEW, selector=_SELECTOR),
    status=_object(
        conditions=_CONDITIONS,
        **dict.fromkeys(("disruptions_allowed", "current_healthy", "desired_healthy", "expected_pods"), _COUNT),
        observed_generation=_COUNT,
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

# -- who must have them ------------------------------------------------------------------------------------------------


class _WorkloadSpec(Wire, frozen=True):
    template: SchedulingPod | None = None
    selector: LabelSelector | None = None


class _Workload(Wire, frozen=True):
    """Its pods, as the controllers read them."""

    spec: _WorkloadSpec = _WorkloadSpec()
    metadata: ObjectMeta = ObjectMeta()


_NUMBER: Final = re.compile(r"[0-9]{1,18}")
# As the controllers read it, and what those who play it need besides; of other kinds only the latter.
_CHECKS: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "Pod": (SchedulingPod, _POD),
    "Node": (objects.Node, _NODE),
    "PodDisruptionBudget": (objects.PodDisruptionBudget, _PDB),
    "PriorityClass": (_PRIORITY_CLASS,),
    "PersistentVolume": (ports.VOLUMES.struct, _VOLUME),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"), (_Workload, _WORKLOAD)),
    **{
        each.kind: (each.struct, _ANY_OBJECT)
        for each in (
            *(ports.NODEPOOLS, ports.NODECLAIMS, ports.KWOK_NODECLASSES, ports.NAMESPACES),
            *(ports.VOLUME_CLAIMS, ports.STORAGE_CLASSES, ports.CSI_NODES, ports.VOLUME_ATTACHMENTS),
        )
    },
}


def fault_of(kind: str, body: Mapping[str, Any], *, whole: bool = False) -> tuple[str, str] | None:
    """The first field that has the wrong type, and what is wrong about it; of a `whole` object also what is missing."""
    document = Document("", 1, None, None, "", kind, value=dict(body))
    try:
        read, *_ = [decode(document, check) for check in _CHECKS.get(kind, (_ANY_OBJECT,))]
    except InputError as error:
        return error.field or "", error.message
    if isinstance(read, SchedulingPod):
        return _no_number(read.metadata, EXIT_CODE, "")
    if not isinstance(read, _Workload):
        return None
    spec = read.spec
    fault = _missing(spec, selects=kind != "Job") if whole else None
    if fault is None and spec.selector is not None and (whole or kind == "Job"):
        fault = _fault_of_selector(spec.selector, _pod_labels(kind, read))
    if fault is None and spec.template is not None:
        fault = _no_number(spec.template.metadata, EXIT_CODE, "spec.template.")
    return fault or _no_number(read.metadata, REVISION, "")


def _missing(spec: _WorkloadSpec, *, selects: bool) -> tuple[str, str] | None:
    if spec.template is None:
        return "spec.template", "is required"
    if not spec.template.spec.containers:
        return "spec.template.spec.containers", "is required"
    return ("spec.selector", "is required") if selects and spec.selector is None else None


def _pod_labels(kind: str, workload: _Workload) -> Mapping[str, str]:
    """Those of the template, and those by which the pods of a Job are its own."""
    labels = workload.spec.template.metadata.labels if workload.spec.template else {}
    if kind != "Job":
        return labels
    own = {"job-name": workload.metadata.name, "controller-uid": workload.metadata.uid}
    return {**labels, **own, **{f"batch.kubernetes.io/{key}": value for key, value in own.items()}}


def _fault_of_selector(wanted: LabelSelector, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Pods that their own selector does not match would be made for ever."""
    try:
        entries = [(each.key, each.operator, each.values) for each in wanted.match_expressions]
        matches = make_selector(wanted.match_labels, entries).matches(labels)
    except SelectorError as error:
        return "spec.selector", str(error)
    return None if matches else ("spec.template.metadata.labels", "are not those that spec.selector wants")


def _no_number(meta: ObjectMeta, annotation: str, path: str) -> tuple[str, str] | None:
    text = meta.annotations.get(annotation, "0")
    if _NUMBER.fullmatch(text):
        return None
    return f"{path}metadata.annotations[{annotation}]", f"{shown(text)} is no whole number, such as 1"
