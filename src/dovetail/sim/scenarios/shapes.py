"""Does an object have the types that everybody in the simulated cluster takes for granted?

A real API server refuses a Deployment with `replicas: many`. The simulated one looks at fewer fields: so what people
write is looked at before it is put in.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from dovetail import ports
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.objects import LabelSelector, ObjectMeta, Wire
from dovetail.api.pod_specs import SchedulingPod, WatchedPod
from dovetail.values.selector import SelectorError, make_selector

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Share = _Count | Annotated[str, msgspec.Meta(pattern=r"^[0-9]+%$")]


class _RollingUpdate(Wire, frozen=True):
    max_surge: _Share | None = None
    max_unavailable: _Share | None = None
    partition: _Count | None = None


class _Strategy(Wire, frozen=True):
    type: str = ""
    rolling_update: _RollingUpdate | None = None


class _Ordinals(Wire, frozen=True):
    start: _Count = 0


class _ClaimTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _WorkloadSpec(Wire, frozen=True):
    """Of all kinds of workloads together."""

    selector: LabelSelector | None = None
    template: SchedulingPod | None = None
    replicas: _Count | None = None
    min_ready_seconds: _Count | None = None
    revision_history_limit: _Count | None = None
    paused: bool | None = None
    strategy: _Strategy | None = None
    update_strategy: _Strategy | None = None
    ordinals: _Ordinals | None = None
    pod_management_policy: str = ""
    service_name: str = ""
    volume_claim_templates: tuple[_ClaimTemplate, ...] | None = None
    parallelism: _Count | None = None
    completions: _Count | None = None
    backoff_limit: _Count | None = None
    active_deadline_seconds: _Count | None = None
    suspend: bool | None = None


class _Workload(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()


class _PriorityClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0


_SHAPES: Final[dict[str, type[Any]]] = {
    "Pod": WatchedPod,
    "PriorityClass": _PriorityClass,
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"), _Workload),
    **{
        each.kind: each.struct
        for each in (
            *(ports.NODES, ports.PDBS, ports.NODEPOOLS, ports.NODECLAIMS, ports.NAMESPACES),
            *(ports.VOLUME_CLAIMS, ports.VOLUMES, ports.STORAGE_CLASSES, ports.CSI_NODES),
        )
    },
}


def fault_of(kind: str, body: Mapping[str, Any], *, whole: bool = False) -> tuple[str, str] | None:
    """The first field that has the wrong type, and what is wrong about it; of a `whole` object also what is missing."""
    shape = _SHAPES.get(kind)
    try:
        read = None if shape is None else decode(Document("", 1, None, None, "", kind, value=dict(body)), shape)
    except InputError as error:
        return error.field or "", error.message
    return _fault_of_workload(read.spec, selects=kind != "Job") if whole and isinstance(read, _Workload) else None


def _fault_of_workload(spec: _WorkloadSpec, *, selects: bool) -> tuple[str, str] | None:
    """Pods that their own selector does not match would be made for ever."""
    if spec.template is None:
        return "spec.template", "is required"
    if not selects:
        return None
    if spec.selector is None:
        return "spec.selector", "is required"
    wanted = spec.selector
    try:
        entries = [(each.key, each.operator, each.values) for each in wanted.match_expressions]
        matches = make_selector(wanted.match_labels, entries).matches(spec.template.metadata.labels)
    except SelectorError as error:
        return "spec.selector", str(error)
    return None if matches else ("spec.template.metadata.labels", "are not those that spec.selector wants")
