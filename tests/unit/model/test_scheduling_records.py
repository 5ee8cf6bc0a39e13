"""What of a pod scheduling reads: alike pods share it, and it is not kept for longer than they are."""

import gc
from typing import Any

import msgspec

from dovetail.api.pod_specs import SchedulingPod
from dovetail.model.pod_records import PodInterner, PodRecord

CONTAINER: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "1"}}}


def record(
    recorder: PodInterner,
    name: str = "p",
    *,
    meta: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> PodRecord:
    body = {
        "metadata": {"name": name, "namespace": "default", **(meta or {})},
        "spec": {"containers": [CONTAINER], **spec},
        "status": status or {},
    }
    return recorder.watched_pod(msgspec.json.decode(msgspec.json.encode(body), type=SchedulingPod))


def test_replicas_share_what_scheduling_reads() -> None:
    recorder = PodInterner()
    token: dict[str, Any] = {"projected": {"sources": []}}
    pods = [
        record(recorder, f"p{number}", nodeName=node, volumes=[{"name": f"kube-api-access-{number}", **token}])
        for number, node in enumerate(("a", "b", "c"))
    ]
    assert len({id(pod.scheduling) for pod in pods}) == 1
    assert record(recorder, "q", nodeName="a", hostNetwork=True).scheduling is not pods[0].scheduling


def test_a_container_s_other_fields_make_no_difference() -> None:
    recorder = PodInterner()
    other = {**CONTAINER, "image": "example.invalid/next", "env": [{"name": "A", "value": "b"}]}
    assert record(recorder).scheduling is record(recorder, containers=[other]).scheduling


def test_pods_with_claims_of_their_own_share_it_too() -> None:
    recorder = PodInterner()
    pods = [
        record(recorder, name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}])
        for name in ("db-0", "db-1")
    ]
    assert pods[0].scheduling is pods[1].scheduling
    assert [pod.volume_claims for pod in pods] == [("data-db-0",), ("data-db-1",)]


def test_it_is_kept_as_long_as_a_pod_needs_it() -> None:
    recorder = PodInterner()
    first, second = record(recorder), record(recorder, "q")
    del first
    gc.collect()
    assert len(recorder._schedulings) == 1
    assert second.scheduling is not None
    del second
    gc.collect()
    assert len(recorder._schedulings) == 0


def test_records_of_files_are_without_it() -> None:
    assert PodInterner().pod(SchedulingPod()).scheduling is None
    assert not PodInterner().pod(SchedulingPod()).provisionable


def test_why_it_has_no_node() -> None:
    recorder = PodInterner()
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = record(recorder, status={"conditions": [waits]})
    assert pod.unscheduled == "Unschedulable"
    assert pod.provisionable
    preempting = record(recorder, status={"conditions": [waits], "nominatedNodeName": "n"})
    assert not preempting.provisionable
    bound = record(recorder, nodeName="n", status={"conditions": [waits], "nominatedNodeName": "n"})
    assert bound.scheduling is record(recorder, nodeName="m").scheduling  # history


def resized(generation: int, observed: int, **status: Any) -> PodRecord:
    has = {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}
    found = {"containerStatuses": [has], "observedGeneration": observed, **status}
    return record(PodInterner(), meta={"generation": generation}, status=found, nodeName="n")


def test_what_containers_have_counts_only_while_it_may_differ() -> None:
    def kept(pod: PodRecord) -> bool:
        assert pod.scheduling is not None
        return bool(pod.scheduling.status.container_statuses)

    assert not kept(resized(1, 1))
    assert not kept(resized(2, 2))
    assert kept(resized(2, 1))  # no kubelet has looked at the change yet
    assert kept(resized(1, 1, resize="Proposed"))
    assert kept(resized(2, 2, conditions=[{"type": "PodResizeInProgress", "status": "True"}]))
    assert kept(resized(2, 2, conditions=[{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]))


def test_which_daemon_set_it_belongs_to() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "uid-d"}]
    pod = record(PodInterner(), meta={"ownerReferences": owners})
    assert pod.scheduling is not None
    assert pod.scheduling.daemon_set == "uid-d"
