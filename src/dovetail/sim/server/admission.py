"""Admission: sets defaults, and drops or restores fields that a request cannot change, before validation.

Only fields that controllers read get defaults; dnsPolicy, securityContext and the like are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.api import names
from dovetail.ports import PODS, Resource
from dovetail.sim.server import errors
from dovetail.sim.server.kinds import PRIORITY_CLASSES, SYSTEM_PRIORITIES, Body, KindBehavior
from dovetail.sim.server.store import VersionedStore
from dovetail.sim.server.validation import pruned

_PREEMPTS = "PreemptLowerPriority"
_OWN_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_KEPT_METADATA = ("generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_KNOWN_METADATA = frozenset((*_OWN_METADATA, *_KEPT_METADATA, "uid", "resourceVersion"))
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
    """Set the defaults of the spec and the first status. Nested values of the body are not changed."""
    if fill := _ON_CREATE.get((resource.group, resource.plural)):
        fill(body, now)


def before_update(resource: Resource[Any], kind: KindBehavior, body: Body, old: Body, subresource: str) -> Body:
    """The object to store, given the result of a patch of the (sub)resource."""
    if subresource == "status":
        body = _only_status(resource, kind, body, old)
    elif kind.has_status:
        body = _without_status(body, old)
    if fill := _ON_UPDATE.get((resource.group, resource.plural)):
        body = dict(body)
        fill(body)
    if kind.schema is not None:
        body = pruned(body, kind.schema, old)
    before = old["metadata"]
    meta = {key: value for key, value in body["metadata"].items() if key in _KNOWN_METADATA}
    meta.pop("generation", None)
    # A patch cannot change these fields, and gets no error; validation refuses one that adds them.
    meta |= {field: before[field] for field in _KEPT_METADATA if field in before}
    meta.setdefault("uid", before["uid"])
    if kind.has_generation and subresource != "status" and _desired(kind, body) != _desired(kind, old):
        meta["generation"] = before.get("generation", 0) + 1
    optional = ("labels", "annotations", "finalizers", "ownerReferences")
    body["metadata"] = {key: value for key, value in meta.items() if value or key not in optional}
    return body


def _only_status(resource: Resource[Any], kind: KindBehavior, body: Body, old: Body) -> Body:
    if kind.custom:
        # Only the version was compared; other metadata of the patch, including the UID, has no effect.
        result = {**old, "metadata": dict(old["metadata"])}
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
    """The part whose changes the generation counts: the spec, or of custom resources all but metadata and status."""
    if kind.custom:
        return {key: value for key, value in body.items() if key not in ("metadata", "status")}
    return body.get("spec")


# -- priorities --------------------------------------------------------------------------------------------------------


def prioritised(store: VersionedStore, pod: Body) -> Body:
    """The pod with the priority of its class. Raises Forbidden if the class is missing or the pod has another value.

    The admission plugin Priority.
    """
    spec, name = pod.get("spec") or {}, pod["metadata"].get("name", "")
    class_ = _class(store, spec.get("priorityClassName"))
    if class_ is None:
        raise errors.forbidden(PODS, name, f"no PriorityClass with name {spec['priorityClassName']} was found")
    value, policy = class_.get("value", 0), class_.get("preemptionPolicy") or _PREEMPTS
    for what, field, computed in (
        ("integer value of priority", "priority", value),
        ("string value of PreemptionPolicy", "preemptionPolicy", policy),
    ):
        if spec.get(field) not in (None, computed):
            why = f"the {what} ({spec[field]}) must not be provided in pod spec; priority admission controller computed"
            raise errors.forbidden(PODS, name, f"{why} {computed} from the given PriorityClass name")
    named = {"priorityClassName": class_["metadata"]["name"]} if "metadata" in class_ else {}
    return {**pod, "spec": {**spec, **named, "priority": value, "preemptionPolicy": policy}}


def _class(store: VersionedStore, name: str | None) -> Body | None:
    """The class of this name; without a name the lowest default class, or the value 0."""
    classes = store.collection(PRIORITY_CLASSES).objects
    if not name:
        defaults = [stored.body for stored in classes.values() if stored.body.get("globalDefault")]
        return min(defaults, key=lambda class_: class_.get("value", 0), default={"value": 0})
    if name in SYSTEM_PRIORITIES:
        return {"value": SYSTEM_PRIORITIES[name]}
    stored = classes.get(("", name))
    return None if stored is None else stored.body


# -- defaults of new objects -------------------------------------------------------------------------------------------


def _fill_pod(body: Body, now: str) -> None:
    spec = dict(body.get("spec") or {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec["tolerations"] = _with_default_tolerations(spec.get("tolerations") or ())
    body["spec"] = spec
    body["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now}
        why = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        body["status"]["conditions"] = [{**gated, **why}]


def _with_default_tolerations(given: Sequence[Body]) -> list[Body]:
    """The admission plugin DefaultTolerationSeconds, which applies to updates, too."""
    tolerations = list(given)
    for key in (names.NOT_READY_TAINT, names.UNREACHABLE_TAINT):
        if not any(_tolerates_no_execute(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return tolerations


def _tolerates_no_execute(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _fill_node(body: Body, _now: str) -> None:
    # The admission plugin TaintNodesByCondition; the node lifecycle controller removes it once the Node is Ready.
    spec = dict(body.get("spec") or {})
    taints = list(spec.get("taints") or ())
    if not any(taint.get("key") == names.NOT_READY_TAINT and taint.get("effect") == "NoSchedule" for taint in taints):
        taints.append({"key": names.NOT_READY_TAINT, "effect": "NoSchedule"})
    body["spec"] = {**spec, "taints": taints}
    _refill_node(body)


def _fill_namespace(body: Body, _now: str) -> None:
    meta = body["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}


def _starting(status: Body, **spec: Any) -> Callable[[Body, str], None]:
    """Set this status, and these defaults of the spec."""

    def fill(body: Body, _now: str) -> None:
        body["status"] = dict(status)
        body["spec"] = {**spec, **(body.get("spec") or {})}

    return fill


def _fill_times(body: Body, *fields: str) -> None:
    """Add null for missing times of conditions, as the server does for some kinds."""
    status = body.get("status") or {}
    conditions = status.get("conditions") or []
    if any(field not in condition for condition in conditions for field in fields):
        filled = [{**dict.fromkeys(fields), **condition} for condition in conditions]
        body["status"] = {**status, "conditions": filled}


def _refill_node(body: Body) -> None:
    status = body.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        body["status"] = {**status, "allocatable": dict(status["capacity"])}
    _fill_times(body, "lastHeartbeatTime", "lastTransitionTime")


def _refill_pod(body: Body) -> None:
    _fill_times(body, "lastProbeTime", "lastTransitionTime")
    spec = body["spec"]
    tolerations = _with_default_tolerations(spec.get("tolerations") or ())
    if tolerations != spec.get("tolerations"):
        body["spec"] = {**spec, "tolerations": tolerations}


_ON_UPDATE: Mapping[tuple[str, str], Callable[[Body], None]] = {("", "pods"): _refill_pod, ("", "nodes"): _refill_node}


def _fill_priority_class(body: Body, _now: str) -> None:
    body.setdefault("preemptionPolicy", _PREEMPTS)


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
