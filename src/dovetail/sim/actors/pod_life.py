"""What becomes of a pod on its node, and what does a kubelet say of both: beginnings, endings, statuses."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dovetail.sim.actors.wire import (
    EXIT_CODE,
    READY,
    RUN_FOR,
    SHUTDOWN,
    START_DELAY,
    Raw,
    annotations_of,
    controller_of,
    finished,
    labels_of,
    name_of,
    phase_of,
    seconds_in,
    status_of,
    with_conditions,
)
from dovetail.values.timestamp import format_time, parse_time

DEFAULT_SECONDS = 1.0
_VERSION = "v1.36.1"
# What a machine has if nobody said otherwise: kwok's numbers.
_ROOMY = {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
_HEALTHY = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "RouteCreated", "RouteController created a route"),
)
_READINESS = ("Ready", "ContainersReady")


def stopped_at(pod: Raw, signalled_at: datetime) -> datetime:
    """When a pod that is being deleted has ended: when its process has, and never later than the grace period."""
    if finished(pod) or phase_of(pod) == "Pending":
        return signalled_at
    hooks = [
        ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep", {}).get("seconds", 0)
        for container in pod["spec"].get("containers") or ()
    ]
    needs = max(hooks, default=0) + seconds_in(annotations_of(pod), SHUTDOWN, DEFAULT_SECONDS)
    return min(signalled_at + timedelta(seconds=needs), parse_time(pod["metadata"]["deletionTimestamp"]))


def starts_at(pod: Raw, seen_at: datetime) -> datetime:
    return seen_at + timedelta(seconds=seconds_in(annotations_of(pod), START_DELAY, DEFAULT_SECONDS))


def ends_at(pod: Raw) -> datetime | None:
    """When a running pod ends by itself: as annotated, and soon if a Job owns it."""
    owner = controller_of(pod)
    default = DEFAULT_SECONDS if owner is not None and owner["kind"] == "Job" else -1.0
    seconds = seconds_in(annotations_of(pod), RUN_FOR, default)
    started = status_of(pod).get("startTime")
    return None if seconds < 0 or started is None else parse_time(started) + timedelta(seconds=seconds)


def wants_ready(pod: Raw) -> bool:
    return annotations_of(pod).get(READY) != "false"


class Address(NamedTuple):
    """Where a pod runs."""

    host: str
    pod: str


def running_status(pod: Raw, address: Address, now: datetime) -> dict[str, Any]:
    """The status of a pod whose containers have come up."""
    at = format_time(now.replace(microsecond=0))
    ready = wants_ready(pod)
    types = ["PodScheduled", "PodReadyToStartContainers", "Initialized"]
    changes = [{"type": type_, "status": "True"} for type_ in types] + readiness(ready=ready)
    changes += [{"type": gate["conditionType"], "status": "True"} for gate in pod["spec"].get("readinessGates") or ()]
    return {
        "phase": "Running",
        "startTime": at,
        "hostIP": address.host,
        "hostIPs": [{"ip": address.host}],
        "podIP": address.pod,
        "podIPs": [{"ip": address.pod}],
        "conditions": with_conditions(pod, changes, now),
        "containerStatuses": [
            {**_container(container, ready=ready), "started": True, "state": {"running": {"startedAt": at}}}
            for container in pod["spec"].get("containers") or ()
        ],
        **_init_statuses(pod["spec"].get("initContainers") or (), at),
    }


def _init_statuses(containers: Sequence[Raw], at: str) -> dict[str, Any]:
    done = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    statuses = [
        {**_container(container, ready=True), "started": True, "state": {"running": {"startedAt": at}}}
        if container.get("restartPolicy") == "Always"
        else {**_container(container, ready=True), "state": {"terminated": done}}
        for container in containers
    ]
    return {"initContainerStatuses": statuses} if statuses else {}


def _container(container: Raw, *, ready: bool) -> dict[str, Any]:
    image = container.get("image", "")
    return {"name": container["name"], "image": image, "imageID": image, "ready": ready, "restartCount": 0}


def readiness(*, ready: bool) -> list[Raw]:
    if ready:
        return [{"type": type_, "status": "True", "reason": None, "message": None} for type_ in _READINESS]
    said = {"status": "False", "reason": "ContainersNotReady", "message": "containers with unready status"}
    return [{"type": type_, **said} for type_ in _READINESS]


def ended_status(pod: Raw, now: datetime) -> dict[str, Any]:
    """The status of a pod that has ended by itself."""
    at = format_time(now.replace(microsecond=0))
    code = int(annotations_of(pod).get(EXIT_CODE, "0"))
    since = status_of(pod).get("startTime", at)
    reason = "Completed" if code == 0 else "Error"
    done = {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": at}
    said = {"status": "False", "reason": "PodCompleted", "message": None}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": with_conditions(pod, [{"type": type_, **said} for type_ in _READINESS], now),
        "containerStatuses": [
            {**_container(container, ready=False), "started": False, "state": {"terminated": done}}
            for container in pod["spec"].get("containers") or ()
        ],
    }


def node_status(node: Raw, *, ready: bool, host: str, now: datetime) -> dict[str, Any]:
    """What a kubelet says of its node; capacity that is known stays."""
    status = status_of(node)
    said = ("True", "KubeletReady", "kubelet is posting ready status")
    if not ready:
        said = ("False", "KubeletNotReady", "container runtime is down")
    changes = [{"type": "Ready", "status": said[0], "reason": said[1], "message": said[2]}]
    changes += [{"type": type_, "status": "False", "reason": why, "message": text} for type_, why, text in _HEALTHY]
    beat = {"lastHeartbeatTime": format_time(now.replace(microsecond=0))}
    labels = labels_of(node)
    info = {
        "architecture": labels.get("kubernetes.io/arch", "amd64"),
        "operatingSystem": labels.get("kubernetes.io/os", "linux"),
        "kubeletVersion": _VERSION,
        "containerRuntimeVersion": "dovetail-sim",
        "kernelVersion": "dovetail-sim",
        "osImage": "dovetail-sim",
    }
    addresses = [{"type": "InternalIP", "address": host}, {"type": "Hostname", "address": name_of(node)}]
    return {
        "conditions": with_conditions(node, [{**change, **beat} for change in changes], now),
        "addresses": status.get("addresses") or addresses,
        "capacity": status.get("capacity") or _ROOMY,
        "allocatable": status.get("allocatable") or status.get("capacity") or _ROOMY,
        "nodeInfo": {**info, **(status.get("nodeInfo") or {})},
        "phase": "Running",
    }
