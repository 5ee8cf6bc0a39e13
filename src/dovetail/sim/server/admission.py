"""What does the API server make of an object before it is checked and stored: what is filled in, kept, or thrown away?

Only what controllers see is filled in; dnsPolicy, securityContext and the like are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.api import names
from dovetail.ports import Resource
from dovetail.sim.server.kinds import KindBehavior
from dovetail.sim.server.validation import pruned

Body = dict[str, Any]

_OWN_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_SYSTEM_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_KNOWN_METADATA = frozenset((*_OWN_METADATA, *_SYSTEM_METADATA))
_PDB_STATUS = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)
_DAEMON_STATUS = dict.fromkeys(
    ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
)
_STATEFUL_STATUS = {"replicas": 0, "availableReplicas": 0}


def before_create(resource: Resource[Any], kind: KindBehavior, body: Body, now: str) -> Body:
    """The object to create."""
    # Empty maps and lists are not written.
    meta = {
        key: value for key, value in body["metadata"].items() if key in _OWN_METADATA and value not in (None, {}, [])
    }
    if kind.has_generation:
        meta["generation"] = 1
    body = {**body, "metadata": meta}
    if kind.has_status and not kind.creates_status:
        body.pop("status", None)
    fill_in(resource, body, now)
    return body if kind.schema is None else pruned(body, kind.schema)


def fill_in(resource: Resource[Any], body: Body, now: str) -> None:
    """Defaults of the spec, and the status that a new object has. What is nested in the body is not changed."""
    fill = _ON_CREATE.get((resource.group, resource.plural))
    if fill is not None:
        fill(body, now)


def before_update(resource: Resource[Any], kind: KindBehavior, body: Body, old: Body, subresource: str) -> Body:
    """The object to store over the old one, given what a patch of the (sub)resource made of it."""
    if subresource == "status":
        body = _only_status(resource, kind, body, old)
    elif kind.has_status:
        body = _without_status(body, old)
    fill = _ON_UPDATE.get((resource.group, resource.plural))
    if fill is not None:
        body = dict(body)
        fill(body)
    if kind.schema is not None:
        body = pruned(body, kind.schema)
    before = old["metadata"]
    meta = {key: value for key, value in body["metadata"].items() if key in _KNOWN_METADATA}
    meta.pop("generation", None)
    for field in ("generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        # What is set stays as it is, without complaint; that it is not set anew is checked later.
        if field in before:
            meta[field] = before[field]
    meta.setdefault("uid", before["uid"])
    if kind.has_generation and subresource != "status" and _desired(kind, body) != _desired(kind, old):
        meta["generation"] = before.get("generation", 0) + 1
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in meta and not meta[field]:
            del meta[field]  # empty maps and lists are not written
    body["metadata"] = meta
    return body


def _only_status(resource: Resource[Any], kind: KindBehavior, body: Body, old: Body) -> Body:
    if kind.custom:
        result = dict(old)
        # Only the version has been compared; whatever else the patch says of metadata, the UID too, has no effect.
        result["metadata"] = dict(old["metadata"])
    else:
        result = {key: value for key, value in body.items() if key in ("apiVersion", "kind", "metadata")}
        result |= {key: value for key, value in old.items() if key not in result}
        if resource.plural == "pods":
            ignored = ("ownerReferences", "deletionTimestamp")
            meta = {key: value for key, value in body["metadata"].items() if key not in ignored}
            if "ownerReferences" in old["metadata"]:
                meta["ownerReferences"] = old["metadata"]["ownerReferences"]
            result["metadata"] = meta
    result.pop("status", None)
    if "status" in body:
        result["status"] = body["status"]
    return result


def _without_status(body: Body, old: Body) -> Body:
    result = dict(body)
    result.pop("status", None)
    if "status" in old:
        result["status"] = old["status"]
    return result


def _desired(kind: KindBehavior, body: Body) -> Any:
    """What the generation counts changes of: all but metadata and status of a custom resource, else the spec."""
    if kind.custom:
        return {key: value for key, value in body.items() if key not in ("metadata", "status")}
    return body.get("spec")


# -- what is filled in on creation ------------------------------------------------------------------------------------


def _fill_pod(body: Body, now: str) -> None:
    spec = dict(body.get("spec") or {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec["tolerations"] = _with_default_tolerations(spec.get("tolerations") or ())
    body["spec"] = spec
    body["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now}
        why = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        body["status"]["conditions"] = [{**gated, **why}]


def _with_default_tolerations(given: Sequence[Body]) -> list[Body]:
    """The admission plugin DefaultTolerationSeconds, which looks at updates too."""
    tolerations = list(given)
    for key in (names.NOT_READY_TAINT, names.UNREACHABLE_TAINT):
        if not any(_tolerates_no_execute(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return tolerations


def _tolerates_no_execute(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _qos_class(spec: Mapping[str, Any]) -> str:
    requests: list[Any] = []
    limits: list[Any] = []
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        for wanted, found in ((requests, "requests"), (limits, "limits")):
            amounts = resources.get(found) or {}
            wanted.append({name: amounts[name] for name in ("cpu", "memory") if name in amounts})
    if not any(requests) and not any(limits):
        return "BestEffort"
    guaranteed = all(
        len(limit) == 2 and request in ({}, limit) for request, limit in zip(requests, limits, strict=True)
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _fill_node(body: Body, _now: str) -> None:
    # The admission plugin TaintNodesByCondition; the node lifecycle controller removes it once the Node is Ready.
    spec = dict(body.get("spec") or {})
    taints = list(spec.get("taints") or ())
    if not any(taint.get("key") == names.NOT_READY_TAINT and taint.get("effect") == "NoSchedule" for taint in taints):
        taints.append({"key": names.NOT_READY_TAINT, "effect": "NoSchedule"})
    body["spec"] = {**spec, "taints": taints}
    _refill_node(body)


def _fill_allocatable(body: Body) -> None:
    status = body.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        body["status"] = {**status, "allocatable": dict(status["capacity"])}


def _fill_namespace(body: Body, _now: str) -> None:
    meta = body["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}


def _starting(status: Body, **spec: Any) -> Callable[[Body, str], None]:
    """Fill in this status, and these defaults of the spec."""

    def fill(body: Body, _now: str) -> None:
        body["status"] = dict(status)
        body["spec"] = {**spec, **(body.get("spec") or {})}

    return fill


def _fill_times(body: Body, *fields: str) -> None:
    """These kinds write the times of a condition even if there are none."""
    status = body.get("status") or {}
    conditions = status.get("conditions") or []
    if any(field not in condition for condition in conditions for field in fields):
        filled = [{**dict.fromkeys(fields), **condition} for condition in conditions]
        body["status"] = {**status, "conditions": filled}


def _refill_node(body: Body) -> None:
    _fill_allocatable(body)
    _fill_times(body, "lastHeartbeatTime", "lastTransitionTime")


def _refill_pod(body: Body) -> None:
    _fill_times(body, "lastProbeTime", "lastTransitionTime")
    spec = body["spec"]
    tolerations = _with_default_tolerations(spec.get("tolerations") or ())
    if tolerations != spec.get("tolerations"):
        body["spec"] = {**spec, "tolerations": tolerations}


_ON_UPDATE: Mapping[tuple[str, str], Callable[[Body], None]] = {
    ("", "pods"): _refill_pod,
    ("", "nodes"): _refill_node,
}


def _fill_priority_class(body: Body, _now: str) -> None:
    body.setdefault("preemptionPolicy", "PreemptLowerPriority")


_ON_CREATE: Mapping[tuple[str, str], Callable[[Body, str], None]] = {
    ("", "pods"): _fill_pod,
    ("", "nodes"): _fill_node,
    ("", "namespaces"): _fill_namespace,
    ("scheduling.k8s.io", "priorityclasses"): _fill_priority_class,
    ("", "persistentvolumeclaims"): _starting({"phase": "Pending"}),
    ("policy", "poddisruptionbudgets"): _starting(_PDB_STATUS),
    ("apps", "deployments"): _starting({}, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600),
    ("apps", "replicasets"): _starting({"replicas": 0}, replicas=1),
    ("apps", "daemonsets"): _starting(_DAEMON_STATUS, revisionHistoryLimit=10),
    ("apps", "statefulsets"): _starting(
        _STATEFUL_STATUS, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10
    ),
    ("batch", "jobs"): _starting({}, parallelism=1, completions=1, backoffLimit=6, suspend=False),
}
