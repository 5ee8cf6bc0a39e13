"""When pods start and end on their nodes, and the statuses that kubelets report."""

from datetime import datetime, timedelta
from typing import Any

from dovetail.sim.actors import wire
from dovetail.sim.actors.wire import EXIT_CODE, READY, RUN_FOR, SHUTDOWN, START_DELAY, Raw
from dovetail.values.timestamp import parse_time

DEFAULT_SECONDS = 1.0
_VERSION = "v1.36.1"
# The default capacity of a machine: kwok's numbers.
_ROOMY = {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
_HEALTHY = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "RouteCreated", "RouteController created a route"),
)
_READINESS = ("Ready", "ContainersReady")


def stopped_at(pod: Raw, signalled_at: datetime) -> datetime:
    """When a deleted pod has ended: with its process, and at the latest at the end of its grace period."""
    if wire.finished(pod) or wire.phase_of(pod) == "Pending":
        return signalled_at
    hooks = [
        ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep", {}).get("seconds", 0)
        for container in pod["spec"].get("containers") or ()
    ]
    needs = max(hooks, default=0) + wire.seconds_in(wire.annotations_of(pod), SHUTDOWN, DEFAULT_SECONDS)
    return min(signalled_at + timedelta(seconds=needs), parse_time(pod["metadata"]["deletionTimestamp"]))


def starts_at(pod: Raw, seen_at: datetime) -> datetime:
    return seen_at + timedelta(seconds=wire.seconds_in(wire.annotations_of(pod), START_DELAY, DEFAULT_SECONDS))


def ends_at(pod: Raw) -> datetime | None:
    """When a running pod ends by itself: by its annotation, or soon if a Job owns it."""
    owner = wire.controller_of(pod)
    default = DEFAULT_SECONDS if owner is not None and owner["kind"] == "Job" else -1.0
    seconds = wire.seconds_in(wire.annotations_of(pod), RUN_FOR, default)
    started = wire.status_of(pod).get("startTime")
    return None if seconds < 0 or started is None else parse_time(started) + timedelta(seconds=seconds)


def wants_ready(pod: Raw) -> bool:
    return wire.annotations_of(pod).get(READY) != "false"


def running_status(pod: Raw, node: Raw, ip: str, now: datetime) -> dict[str, Any]:
    """The status of a pod whose containers have started."""
    hosts = {entry["type"]: entry["address"] for entry in wire.status_of(node).get("addresses") or ()}
    at, ready = wire.timestamp(now), wants_ready(pod)
    types = ["PodScheduled", "PodReadyToStartContainers", "Initialized"]
    changes = [{"type": type_, "status": "True"} for type_ in types] + readiness(ready=ready)
    changes += [{"type": gate["conditionType"], "status": "True"} for gate in pod["spec"].get("readinessGates") or ()]
    return {
        "phase": "Running",
        "startTime": at,
        "hostIP": hosts.get("InternalIP", ""),
        "podIP": ip,
        "conditions": wire.with_conditions(pod, changes, now),
        "containerStatuses": _containers(pod, {"running": {"startedAt": at}}, ready=ready),
    }


def _containers(pod: Raw, state: Raw, *, ready: bool) -> list[Raw]:
    common = {"ready": ready, "started": "running" in state, "restartCount": 0, "state": state}
    containers = pod["spec"].get("containers") or ()
    return [{"name": container["name"], "image": container.get("image", ""), **common} for container in containers]


def readiness(*, ready: bool) -> list[Raw]:
    if ready:
        return [{"type": type_, "status": "True", "reason": None, "message": None} for type_ in _READINESS]
    condition = {"status": "False", "reason": "ContainersNotReady", "message": "containers with unready status"}
    return [{"type": type_, **condition} for type_ in _READINESS]


def ended_status(pod: Raw, now: datetime) -> dict[str, Any]:
    """The status of a pod that has ended by itself."""
    at = wire.timestamp(now)
    code = int(wire.annotations_of(pod).get(EXIT_CODE, "0"))
    since = wire.status_of(pod).get("startTime", at)
    reason = "Completed" if code == 0 else "Error"
    done = {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": at}
    condition = {"status": "False", "reason": "PodCompleted", "message": None}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": wire.with_conditions(pod, [{"type": type_, **condition} for type_ in _READINESS], now),
        "containerStatuses": _containers(pod, {"terminated": done}, ready=False),
    }


def node_status(node: Raw, *, ready: bool, host: str, now: datetime) -> dict[str, Any]:
    """The status that a kubelet reports of its node; a known capacity stays."""
    status, labels = wire.status_of(node), wire.labels_of(node)
    ready_condition = ("True", "KubeletReady", "kubelet is posting ready status")
    if not ready:
        ready_condition = ("False", "KubeletNotReady", "container runtime is down")
    reports = [("Ready", *ready_condition), *((type_, "False", reason, message) for type_, reason, message in _HEALTHY)]
    fields = ("type", "status", "reason", "message")
    beat = {"lastHeartbeatTime": wire.timestamp(now)}
    changes = [{**dict(zip(fields, entry, strict=True)), **beat} for entry in reports]
    info = {
        "architecture": labels.get("kubernetes.io/arch", "amd64"),
        "operatingSystem": labels.get("kubernetes.io/os", "linux"),
        "kubeletVersion": _VERSION,
    }
    addresses = [{"type": "InternalIP", "address": host}, {"type": "Hostname", "address": wire.name_of(node)}]
    return {
        "conditions": wire.with_conditions(node, changes, now),
        "addresses": status.get("addresses") or addresses,
        "capacity": status.get("capacity") or _ROOMY,
        "allocatable": status.get("allocatable") or status.get("capacity") or _ROOMY,
        "nodeInfo": {**info, **(status.get("nodeInfo") or {})},
        "phase": "Running",
    }
