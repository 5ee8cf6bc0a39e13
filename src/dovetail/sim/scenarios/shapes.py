"""Does an object have the fields and types that everybody in the simulated cluster takes for granted?

A real API server refuses a Deployment with `replicas: many`, and a condition without a type. The simulated one looks at
fewer fields: so what files say is looked at before it is put in.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dovetail import ports
from dovetail.api import objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.objects import Wire
from dovetail.api.pod_specs import SchedulingPod, WatchedPod
from dovetail.sim.actors.deployment import REVISION
from dovetail.sim.actors.wire import EXIT_CODE
from dovetail.sim.scenarios import required
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorError, make_selector


class _Templated(Wire, frozen=True):
    template: SchedulingPod | None = None


class _Workload(Wire, frozen=True):
    """Its pods, as the controllers read them."""

    spec: _Templated = _Templated()


_NUMBER: Final = re.compile(r"[0-9]{1,18}")
# As the controllers read it, and what those who play it need besides; of other kinds only the latter.
_SHAPES: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "Pod": (WatchedPod, required.Pod),
    "Node": (objects.Node, required.Node),
    "PodDisruptionBudget": (objects.PodDisruptionBudget, required.PodDisruptionBudget),
    "PriorityClass": (required.PriorityClass,),
    "PersistentVolume": (ports.VOLUMES.struct, required.PersistentVolume),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"), (_Workload, required.Workload)),
    **{
        each.kind: (each.struct, required.Conditioned)
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
        read = [decode(document, shape) for shape in _SHAPES.get(kind, (required.Conditioned,))][-1]
    except InputError as error:
        return error.field or "", error.message
    if isinstance(read, required.Pod):
        return _no_number(read.metadata, EXIT_CODE, "")
    if not isinstance(read, required.Workload):
        return None
    spec = read.spec
    fault = _missing(spec, selects=kind != "Job") if whole else None
    if fault is None and spec.selector is not None and (whole or kind == "Job"):
        fault = _fault_of_selector(spec.selector, _pod_labels(kind, read))
    if fault is None and spec.template is not None:
        fault = _no_number(spec.template.metadata, EXIT_CODE, "spec.template.")
    return fault or _no_number(read.metadata, REVISION, "")


def _missing(spec: required.WorkloadSpec, *, selects: bool) -> tuple[str, str] | None:
    if spec.template is None:
        return "spec.template", "is required"
    if not spec.template.spec.containers:
        return "spec.template.spec.containers", "is required"
    return ("spec.selector", "is required") if selects and spec.selector is None else None


def _pod_labels(kind: str, workload: required.Workload) -> Mapping[str, str]:
    """Those of the template, and those by which the pods of a Job are its own."""
    labels = workload.spec.template.metadata.labels if workload.spec.template else {}
    if kind != "Job":
        return labels
    own = {"job-name": workload.metadata.name, "controller-uid": workload.metadata.uid}
    return {**labels, **own, **{f"batch.kubernetes.io/{key}": value for key, value in own.items()}}


def _fault_of_selector(wanted: required.Selector, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Pods that their own selector does not match would be made for ever."""
    try:
        entries = [(each.key, each.operator, each.values) for each in wanted.match_expressions]
        matches = make_selector(wanted.match_labels, entries).matches(labels)
    except SelectorError as error:
        return "spec.selector", str(error)
    return None if matches else ("spec.template.metadata.labels", "are not those that spec.selector wants")


def _no_number(meta: required.Meta, annotation: str, path: str) -> tuple[str, str] | None:
    text = meta.annotations.get(annotation, "0")
    if _NUMBER.fullmatch(text):
        return None
    return f"{path}metadata.annotations[{annotation}]", f"{shown(text)} is no whole number, such as 1"
