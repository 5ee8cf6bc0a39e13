"""Pods that lack nothing are read without a mapping of their fields: no answer depends on how a pod was read."""

from typing import Any

import msgspec
import pytest

from dovetail.api.documents import Document, read_documents
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from dovetail.sim.scenarios.whole_pods import WholePods
from dovetail.sim.scenarios.wire_checks import whole_pod
from dovetail.state.intake import take_in
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.claims import node_class
from tests.harness.placing import a_claim, a_node, a_pod, a_pool

NOW = at("2026-03-04T12:00:00Z")
SINCE = "2026-03-01T08:00:00Z"
Body = dict[str, Any]


def whole(name: str, **spec: Any) -> Body:
    """A pod as `kubectl get` prints it."""
    pod = a_pod(name, on="n", labels={"app": "a"}, **spec)
    pod["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": SINCE}
    pod["spec"] |= {
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": SINCE}
    pod["status"] = {"phase": "Running", "startTime": SINCE, "conditions": [scheduled]}
    return pod


def documents(pod: Body, *, as_json: bool) -> list[Document]:
    items = [
        node_class(),
        a_pool(),
        a_claim("c", of="n", true=["Registered", "Initialized", "Drifted"]),
        a_node("n"),
        manifests.priority_class("high", 10),
        pod,
    ]
    read = list(read_documents(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}), "dump.json"))
    if not as_json:
        return [msgspec.structs.replace(each, raw=None, value=msgspec.json.decode(each.raw or b"")) for each in read]
    return read


def told(still: OneShotResult) -> Any:
    """The records of the pods, and the answers."""
    snapshot = still.assessment.inputs.snapshot
    records = [*still.unbound.values(), *(pod for node in snapshot.movable.values() for pod in node.pods)]
    scheduling = [msgspec.structs.astuple(record.scheduling) for record in records if record.scheduling is not None]
    plain = [msgspec.structs.replace(record, scheduling=None) for record in records]
    return plain, scheduling, still.replacements(), [str(problem) for problem in still.problems]


CHANGES: dict[str, tuple[str, Any]] = {
    "nothing": ("spec.nodeName", "n"),
    "a class": ("spec.priorityClassName", "high"),
    "a class that is missing": ("spec.priorityClassName", "low"),
    "a priority without a class": ("spec.priority", 7),
    "terminating": ("metadata.deletionTimestamp", SINCE),
    "an owner that is missing": (
        "metadata.ownerReferences",
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}],
    ),
    "an owner of an unknown kind": (
        "metadata.ownerReferences",
        [{"apiVersion": "example.com/v1", "kind": "Flow", "name": "f", "uid": "f", "controller": True}],
    ),
    "without a UID": ("metadata.uid", None),
    "without tolerations": ("spec.tolerations", []),
    "without a scheduler": ("spec.schedulerName", None),
    "without a node": ("spec.nodeName", None),
    "without a phase": ("status", {}),
    "a condition without a time": ("status.conditions", [{"type": "PodScheduled", "status": "True"}]),
    "a label that is a number": ("metadata.labels", {"app": 1}),
}
WHOLE = frozenset(list(CHANGES)[:7])


def changed(name: str) -> Body:
    path, value = CHANGES[name]
    *parents, last = path.split(".")
    pod = whole("p")
    place = pod
    for parent in parents:
        place = place[parent]
    place[last] = value
    return pod


def without_scheduling(record: PodRecord) -> PodRecord:
    return msgspec.structs.replace(record, scheduling=None, scheduled_at=None)


@pytest.mark.parametrize("name", CHANGES)
def test_no_answer_depends_on_how_a_pod_was_read(name: str) -> None:
    pod = changed(name)
    read, mapped = documents(pod, as_json=True), documents(pod, as_json=False)
    assert (whole_pod(read[-1]) is not None) is (name in WHOLE)
    assert whole_pod(mapped[-1]) is None
    assert told(look(read, NOW)) == told(look(mapped, NOW))


@pytest.mark.parametrize("name", CHANGES)
def test_rules_and_scheduling_share_the_records(name: str) -> None:
    pod = changed(name)
    read, alone, pods = documents(pod, as_json=True), documents(pod, as_json=True), WholePods(PodInterner())
    seen = [without_scheduling(record) for record in take_in(read, read_pod=pods.read).snapshot.pods]
    assert seen == [without_scheduling(record) for record in take_in(alone).snapshot.pods]
    assert told(look(read, NOW, pods=pods)) == told(look(alone, NOW))


def test_a_record_is_made_once() -> None:
    read, pods = documents(whole("p"), as_json=True), WholePods(PodInterner())
    (shared,) = take_in(read, read_pod=pods.read).snapshot.pods
    (node,) = look(read, NOW, pods=pods).assessment.inputs.snapshot.movable.values()
    assert node.pods[0] is shared


def test_whoever_asks_about_some_nodes_gets_the_same_answers() -> None:
    read = documents(whole("p"), as_json=True)
    everything = look(read, NOW).replacements()
    assert [name for name, _ in everything] == ["n"]
    assert look(read, NOW, only={"n"}).replacements() == everything
    assert look(read, NOW, only={"m"}).replacements() == {}
