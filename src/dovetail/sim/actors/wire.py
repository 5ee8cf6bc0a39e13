"""Kinds of the actors, and accessors for common fields of raw Kubernetes objects.

Actors read objects as plain mappings, because they copy templates and write statuses that no struct holds. Objects of a
store are shared between all actors, and never changed in place.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail import ports
from dovetail.ports import Resource
from dovetail.sim.server.selectors import object_selector
from dovetail.values.duration import SECOND, DurationError, parse_duration
from dovetail.values.selector import Selector, SelectorError
from dovetail.values.timestamp import format_time, parse_time

Raw = Mapping[str, Any]
Kind = Resource[dict[str, Any]]

PODS: Kind = ports.PODS.read_as(dict[str, Any])
NODES: Kind = ports.NODES.read_as(dict[str, Any])
PDBS: Kind = ports.PDBS.read_as(dict[str, Any])
DEPLOYMENTS: Kind = Resource("apps", "v1", "deployments", "Deployment", dict[str, Any], namespaced=True)
REPLICASETS: Kind = Resource("apps", "v1", "replicasets", "ReplicaSet", dict[str, Any], namespaced=True)
STATEFULSETS: Kind = Resource("apps", "v1", "statefulsets", "StatefulSet", dict[str, Any], namespaced=True)
DAEMONSETS: Kind = Resource("apps", "v1", "daemonsets", "DaemonSet", dict[str, Any], namespaced=True)
JOBS: Kind = Resource("batch", "v1", "jobs", "Job", dict[str, Any], namespaced=True)
CLAIMS: Kind = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", dict[str, Any], namespaced=True)
VOLUMES: Kind = Resource("", "v1", "persistentvolumes", "PersistentVolume", dict[str, Any])

# Annotations that tell the simulated kubelet how processes behave; durations are Go's, such as 90s.
START_DELAY = "dovetail.dev/start-delay"  # from binding to Running and Ready
READY = "dovetail.dev/ready"  # "false": runs, but is not ready
SHUTDOWN = "dovetail.dev/shutdown"  # from the signal to the end of the process
RUN_FOR = "dovetail.dev/run-for"  # from the start to the end of the process
EXIT_CODE = "dovetail.dev/exit-code"  # of a process that ends by itself
READY_DELAY = "dovetail.dev/ready-delay"  # on Nodes: from creation to Ready
NOT_READY = "dovetail.dev/not-ready"  # label on Nodes: "true" makes the kubelet report NotReady
KUBELET = "dovetail.dev/kubelet"  # on Nodes: "none" leaves the Node to another kubelet

_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' alphabet for names: no vowels, nothing easily mistaken


def key_of(obj: Raw) -> str:
    """`namespace/name`, or the name of a cluster-wide object."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def name_of(obj: Raw) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Raw) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Raw) -> str:
    return str(obj["metadata"]["uid"])


def labels_of(obj: Raw) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Raw) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def status_of(obj: Raw) -> Raw:
    return obj.get("status") or {}


def deleting(obj: Raw) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


def created_at(obj: Raw) -> datetime:
    return parse_time(obj["metadata"]["creationTimestamp"])


def timestamp(at: datetime) -> str:
    """The instant as metadata has it: whole seconds."""
    return format_time(at.replace(microsecond=0))


def oldest_first(obj: Raw) -> tuple[str, str]:
    """A sort key: creation, then name. Creation times sort as texts, since all have one form."""
    meta = obj["metadata"]
    return (str(meta.get("creationTimestamp", "")), str(meta["name"]))


def controller_of(obj: Raw) -> Raw | None:
    """The owner reference of the controller, if there is one."""
    references: Sequence[Raw] = obj["metadata"].get("ownerReferences") or ()
    for reference in references:
        if reference.get("controller"):
            return reference
    return None


def controller_uid(obj: Raw) -> str:
    reference = controller_of(obj)
    return "" if reference is None else str(reference["uid"])


def owner_reference(kind: Kind, owner: Raw) -> dict[str, Any]:
    """The reference that makes the owner the object's controller."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def replicas_of(spec: Raw) -> int:
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def phase_of(pod: Raw) -> str:
    return str(status_of(pod).get("phase", "Pending"))


def finished(pod: Raw) -> bool:
    return phase_of(pod) in {"Succeeded", "Failed"}


def active(pod: Raw) -> bool:
    """Neither finished nor terminating."""
    return not finished(pod) and not deleting(pod)


def node_of(pod: Raw) -> str:
    return str(pod["spec"].get("nodeName") or "")


def condition_of(obj: Raw, type_: str) -> Raw | None:
    conditions: Sequence[Raw] = status_of(obj).get("conditions") or ()
    for condition in conditions:
        if condition["type"] == type_:
            return condition
    return None


def condition_status(obj: Raw, type_: str) -> str | None:
    condition = condition_of(obj, type_)
    return None if condition is None else str(condition.get("status"))


def pod_ready(pod: Raw) -> bool:
    return condition_status(pod, "Ready") == "True"


def available_at(pod: Raw, min_ready_seconds: int) -> datetime | None:
    """When the pod becomes available if it stays ready; None if it is not ready."""
    condition = condition_of(pod, "Ready")
    if condition is None or condition.get("status") != "True":
        return None
    if not min_ready_seconds:
        return datetime.min.replace(tzinfo=UTC)
    since = condition.get("lastTransitionTime")  # some writers leave it out
    return None if since is None else parse_time(since) + timedelta(seconds=min_ready_seconds)


def with_conditions(obj: Raw, changes: Iterable[Raw], now: datetime) -> list[dict[str, Any]]:
    """The object's conditions with these changes; a transition time changes only with the status."""
    conditions = [dict(condition) for condition in status_of(obj).get("conditions") or ()]
    for change in changes:
        old = next((condition for condition in conditions if condition["type"] == change["type"]), None)
        if old is None:
            conditions.append({**change, "lastTransitionTime": timestamp(now)})
        else:
            if old.get("status") != change["status"]:
                old["lastTransitionTime"] = timestamp(now)
            old.update(change)
    return conditions


def selector_of(raw: Raw | None) -> Selector | None:
    """A label selector; None if it is missing or invalid, and matches nothing."""
    try:
        return None if raw is None else object_selector(raw)
    except SelectorError:
        return None


def seconds_in(annotations: Mapping[str, str], key: str, default: float) -> float:
    """The duration of the annotation; the default if it is absent or invalid."""
    try:
        return parse_duration(annotations[key]) / SECOND
    except (KeyError, DurationError):
        return default


def short_hash(value: object) -> str:
    """A short hash of a value, the same in every run, in the alphabet of Kubernetes' own hashes."""
    digest = zlib.crc32(json.dumps(value, sort_keys=True).encode())
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(digest))
