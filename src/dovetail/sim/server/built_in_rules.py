"""Validation of built-in kinds: the rules that controllers can break. The real API server has more."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dovetail.sim.server.kinds import Body
from dovetail.sim.server.metadata_rules import qualified_fault
from dovetail.sim.server.selectors import object_selector
from dovetail.values.label_syntax import is_label_value
from dovetail.values.selector import SelectorError

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POD_CAN_CHANGE = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
_POD_UPDATE = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "note": 1024}
# The server checks events of both groups as core events, and uses the field names of these.
_CORE_NAMES = {"note": "message", "regarding": "involvedObject"}
_EVENT_FIXED = ("regarding", "related", "reason", "note", "type", "action", "reportingController", "reportingInstance")


def _pod_faults(body: Body, old: Body | None) -> Iterator[str]:
    spec = body.get("spec") or {}
    if old is None:
        if not spec.get("containers"):
            yield "spec.containers: Required value"
        for index, container in enumerate(spec.get("containers") or ()):
            for field in ("name", "image"):
                if not container.get(field):
                    yield f"spec.containers[{index}].{field}: Required value"
        return
    before = old.get("spec") or {}
    if spec != before and _fixed_part(spec) != _fixed_part(before):
        yield _POD_UPDATE
    tolerations = spec.get("tolerations") or []
    if any(toleration not in tolerations for toleration in before.get("tolerations") or ()):
        yield "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"


def _fixed_part(spec: Mapping[str, Any]) -> Body:
    fixed = {key: value for key, value in spec.items() if key not in _POD_CAN_CHANGE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in item.items() if k != "image"} for item in fixed[field]]
    grace = fixed.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        fixed["terminationGracePeriodSeconds"] = 1
    return fixed


def _node_faults(body: Body, old: Body | None) -> Iterator[str]:
    spec = body.get("spec") or {}
    seen: list[tuple[Any, Any]] = []
    for index, taint in enumerate(spec.get("taints") or ()):
        where = f"metadata.taints[{index}]"  # sic
        if fault := qualified_fault(taint.get("key", "")):
            yield f'{where}.key: Invalid value: "{taint.get("key", "")}": {fault}'
        if not is_label_value(taint.get("value") or ""):
            yield f'{where}.value: Invalid value: "{taint["value"]}"'
        if not taint.get("effect"):
            yield f"{where}.effect: Required value"
        elif taint["effect"] not in _EFFECTS:
            yield (
                f'{where}.effect: Unsupported value: "{taint["effect"]}": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"'
            )
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            yield f"{where}: Duplicate value: taints must be unique by key and effect pair"
        seen.append(pair)
    before = (old or {}).get("spec", {}).get("providerID") or ""
    if before and spec.get("providerID") != before:
        yield 'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'


def _pdb_faults(body: Body, _old: Body | None) -> Iterator[str]:
    spec = body.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield "spec: Invalid value: minAvailable and maxUnavailable cannot be both set"
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, str):
            percent = re.fullmatch(r"([0-9]+)%", value)
            if percent is None:
                yield f"spec.{field}: Invalid value: \"{value}\": must be an integer or percentage (e.g '5%')"
            elif int(percent[1]) > 100:
                yield f'spec.{field}: Invalid value: "{value}": must not be greater than 100%'
        elif isinstance(value, int) and value < 0:
            yield f"spec.{field}: Invalid value: {value}: must be greater than or equal to 0"
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        count = (body.get("status") or {}).get(field, 0)
        if count < 0:
            yield f"status.{field}: Invalid value: {count}: must be greater than or equal to 0"
    if spec.get("unhealthyPodEvictionPolicy") not in (None, "IfHealthyBudget", "AlwaysAllow"):
        yield (
            f'spec.unhealthyPodEvictionPolicy: Unsupported value: "{spec["unhealthyPodEvictionPolicy"]}": supported '
            'values: "AlwaysAllow", "IfHealthyBudget"'
        )


def _lease_faults(body: Body, _old: Body | None) -> Iterator[str]:
    spec = body.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield f"spec.leaseDurationSeconds: Invalid value: {spec['leaseDurationSeconds']}: must be greater than 0"
    if (spec.get("leaseTransitions") or 0) < 0:
        yield (f"spec.leaseTransitions: Invalid value: {spec['leaseTransitions']}: must be greater than or equal to 0")


def _event_faults(body: Body, old: Body | None) -> Iterator[str]:
    """The rules of events.k8s.io/v1, which are stricter than those of core events."""
    if old is not None:
        for field in _EVENT_FIXED:
            if body.get(field) != old.get(field):
                yield f"{_CORE_NAMES.get(field, field)}: Invalid value: field is immutable"
    if not body.get("eventTime"):
        yield "eventTime: Required value"
    if body.get("type") not in ("Normal", "Warning"):
        yield f"type: Invalid value: has invalid value: {body.get('type', '')}"
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        if not body.get(field):
            yield f"{field}: Required value"
    for field, limit in _EVENT_LIMITS.items():
        if len((body.get(field) or "").encode()) > limit:
            yield f"{_CORE_NAMES.get(field, field)}: Invalid value: can have at most {limit} characters"
    namespace, regarding = body["metadata"].get("namespace"), body.get("regarding") or {}
    if not regarding.get("namespace") and namespace not in ("default", "kube-system"):
        yield 'involvedObject.namespace: Invalid value: "": does not match event.namespace'


def _workload_faults(body: Body, _old: Body | None) -> Iterator[str]:
    """A selector that does not match its own template would create pods without end."""
    spec = body.get("spec") or {}
    selector, template = spec.get("selector"), spec.get("template")
    if not (selector and template):
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    try:
        matches = object_selector(selector).matches(labels)
    except SelectorError as error:
        yield f"spec.selector: Invalid value: {error}"
        return
    if not matches:
        shown = json.dumps(labels, sort_keys=True, separators=(",", ":"))
        yield f"spec.template.metadata.labels: Invalid value: {shown}: `selector` does not match template `labels`"


RULES: Final[Mapping[tuple[str, str], Callable[[Body, Body | None], Iterator[str]]]] = {
    ("", "pods"): _pod_faults,
    ("", "nodes"): _node_faults,
    ("policy", "poddisruptionbudgets"): _pdb_faults,
    ("coordination.k8s.io", "leases"): _lease_faults,
    ("events.k8s.io", "events"): _event_faults,
    **{("apps", plural): _workload_faults for plural in ("deployments", "replicasets", "statefulsets", "daemonsets")},
}
