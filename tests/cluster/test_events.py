"""Are events written as a real API server wants them, and read back as `kubectl describe` does?"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from dovetail.kube import connect
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import (
    NORMAL,
    NOTE_BYTES_AT_MOST,
    WARNING,
    Event,
    EventCounts,
    EventRecorder,
    ObjectReference,
)
from tests.cluster.access import Cluster

Namer = Callable[[str], str]
Object = dict[str, Any]

UID: Final = "11111111-2222-3333-4444-555555555555"


def publish(cluster: Cluster, *events: Event) -> EventCounts:
    """Have a recorder send them all, and tell what became of them."""

    async def main() -> EventCounts:
        async with asyncio.timeout(60), connect(kubeconfig=str(cluster.kubeconfig)) as api:
            recorder = EventRecorder(api, SystemClock(), instance="dovetail-0")
            for event in events:
                recorder.publish(event)
            recorder.close()
            await recorder.run()
            return recorder.counts

    return asyncio.run(main())


def found(cluster: Cluster, namespace: str, name: str) -> list[Object]:
    """The events on an object as people ask for them: by the old API, which calls most things otherwise."""
    items: list[Object] = cluster.get(
        f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name={name}"
    )["items"]
    return items


def blocked(regarding: ObjectReference, **more: Any) -> Event:
    return Event(**{"regarding": regarding, "reason": "DisruptionBlocked", "note": "pdb web/web", **more})


def test_an_event_on_a_pod(control_plane: Cluster, namespace: str) -> None:
    pod = ObjectReference("v1", "Pod", "web-1", UID, namespace)
    assert publish(control_plane, blocked(pod, type=WARNING, action="Disrupting")) == EventCounts(sent=1)
    (event,) = found(control_plane, namespace, "web-1")
    told = {key: event[key] for key in ("reason", "message", "type", "action", "reportingComponent")}
    assert told == {
        "reason": "DisruptionBlocked",
        "message": "pdb web/web",
        "type": WARNING,
        "action": "Disrupting",
        "reportingComponent": "dovetail",
    }
    assert event["reportingInstance"] == "dovetail-0"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-1",
        "namespace": namespace,
        "uid": UID,
    }
    assert event["eventTime"]
    assert "series" not in event


def test_an_event_on_what_has_no_namespace_is_in_default(cluster_with_crds: Cluster, unique_name: Namer) -> None:
    for api_version, kind in (("v1", "Node"), ("karpenter.sh/v1", "NodeClaim")):
        name = unique_name(kind.lower())
        assert publish(cluster_with_crds, blocked(ObjectReference(api_version, kind, name, UID))) == EventCounts(sent=1)
        (event,) = found(cluster_with_crds, "default", name)
        assert event["metadata"]["namespace"] == "default"
        assert event["involvedObject"] == {"apiVersion": api_version, "kind": kind, "name": name, "uid": UID}
        assert event["type"] == NORMAL
        cluster_with_crds.delete(f"/api/v1/namespaces/default/events/{event['metadata']['name']}")


def test_repetitions_are_dropped_or_counted_in_a_series(control_plane: Cluster, namespace: str) -> None:
    pod = ObjectReference("v1", "Pod", "web-1", UID, namespace)
    repeated = [blocked(pod, dedupe=(UID,))] * 3
    over = [blocked(pod, dedupe=(UID, "over"), dedupe_seconds=0.0)] * 2
    other = blocked(pod, note="pdb web/other")
    counts = publish(control_plane, *repeated, *over, other)
    assert counts == EventCounts(sent=4, repeated=2)
    alone, series = sorted(found(control_plane, namespace, "web-1"), key=lambda event: "series" in event)
    assert (alone["message"], "series" in alone) == ("pdb web/other", False)
    # One, and the two whose dedupe time was over at once.
    assert (series["message"], series["series"]["count"]) == ("pdb web/web", 3)
    assert series["eventTime"] <= series["series"]["lastObservedTime"]


def test_another_process_finds_what_was_said(control_plane: Cluster, namespace: str) -> None:
    """After a change of leader nothing is said twice."""
    pod = ObjectReference("v1", "Pod", "web-1", UID, namespace)
    for _ in range(2):
        assert publish(control_plane, blocked(pod)) == EventCounts(sent=1)
    assert len(found(control_plane, namespace, "web-1")) == 1


def test_the_longest_that_may_be_said(control_plane: Cluster, namespace: str) -> None:
    name = "a" * 253
    pod = ObjectReference("v1", "Pod", name, UID, namespace)
    assert publish(control_plane, blocked(pod, note="é" * NOTE_BYTES_AT_MOST)) == EventCounts(sent=1)
    (event,) = found(control_plane, namespace, name)
    assert event["message"].endswith("é…")
    assert len(event["message"].encode()) <= NOTE_BYTES_AT_MOST


@pytest.mark.parametrize("there", [False, True], ids=["gone", "going"])
def test_a_namespace_that_goes_takes_no_event(control_plane: Cluster, unique_name: Namer, *, there: bool) -> None:
    name = unique_name("going")
    if there:
        control_plane.create("/api/v1/namespaces", {"metadata": {"name": name}})
        held = {"metadata": {"name": "held", "finalizers": ["dovetail.dev/test"]}}
        control_plane.create(f"/api/v1/namespaces/{name}/configmaps", held)
        control_plane.delete(f"/api/v1/namespaces/{name}")
    assert publish(control_plane, blocked(ObjectReference("v1", "Pod", "web-1", UID, name))) == EventCounts(ignored=1)
    if there:
        control_plane.patch(f"/api/v1/namespaces/{name}/configmaps/held", {"metadata": {"finalizers": None}})
