"""What documents say, what is odd about them, and which of them do not count."""

import json
from typing import Any

import pytest

from dovetail.api.documents import read_documents
from dovetail.state.intake import Intake, take_in

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {}}


def taken_in(*items: dict[str, Any]) -> Intake:
    return take_in(document for item in items for document in read_documents(json.dumps(item).encode(), "dump.json"))


def problems(intake: Intake) -> list[tuple[str, str, str]]:
    return [(finding.rule, str(finding.object), finding.field) for finding in intake.problems]


def test_an_object_that_is_there_twice_counts_once_as_it_is_last() -> None:
    intake = taken_in(POD, {**POD, "spec": {"nodeName": "n1"}})
    assert problems(intake) == [("DuplicateObject", "Pod/shop/web", "metadata.name")]
    assert [pod.node_name for pod in intake.snapshot.pods] == ["n1"]


@pytest.mark.parametrize(("kind", "successor"), [("Provisioner", "NodePool"), ("Machine", "NodeClaim")])
def test_a_removed_kind_is_reported_with_its_successor(kind: str, successor: str) -> None:
    intake = taken_in({"apiVersion": "karpenter.sh/v1alpha5", "kind": kind, "metadata": {"name": "old"}})
    assert problems(intake) == [("RemovedKind", f"{kind}/old", "kind")]
    assert f"write a {successor}" in intake.problems[0].remedy


def test_objects_of_other_kinds_are_counted() -> None:
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in "ab"]
    intake = taken_in(*maps)
    assert problems(intake) == [("NotRead", "v1 ConfigMap", "kind")]
    assert intake.problems[0].message == "2 objects of a kind that no rule reads"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        pytest.param({**POD, "metadata": {"namespace": "shop"}}, "metadata.name", id="no name"),
        pytest.param({**POD, "metadata": {"name": ""}}, "metadata.name", id="an empty name"),
        pytest.param({**POD, "spec": {"nodeName": ["n1"]}}, "spec.nodeName", id="a field of another type"),
    ],
)
def test_a_document_that_cannot_be_read_is_a_finding_and_the_others_count(bad: dict[str, Any], field: str) -> None:
    intake = taken_in(bad, {**POD, "metadata": {"name": "good"}})
    assert [(rule, at) for rule, _, at in problems(intake)] == [("InvalidObject", field)]
    assert len(intake.unreadable) == 1
    assert [str(pod.object) for pod in intake.snapshot.pods] == ["Pod/default/good"]


def test_keys_that_nothing_reads_are_found_on_nodes_and_in_what_pools_give_them() -> None:
    key = "karpenter.sh/do-not-distrupt"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {key: "true"}}}
    template = {"metadata": {"annotations": {key: "true"}}, "spec": {"requirements": []}}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "annotations": {"dovetail.dev/budget": "[]"}},
        "spec": {"template": template},
    }
    assert problems(taken_in(node, pool)) == [
        ("UnknownAnnotation", "Node/n1", f"metadata.annotations[{key}]"),
        ("UnknownAnnotation", "NodePool/default", "metadata.annotations[dovetail.dev/budget]"),
        ("UnknownAnnotation", "NodePool/default", f"spec.template.metadata.annotations[{key}]"),
    ]
