"""Objects with odd fields in a dump: `plan` goes on, or says in one line which object it cannot read."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.api.documents import InputError, read_documents
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.claims import node_class
from tests.harness.placing import (
    a_claim,
    a_csi_node,
    a_daemon_set,
    a_node,
    a_pod,
    a_pool,
    a_storage_class,
    a_volume,
    a_volume_claim,
    with_claim,
)

NOW = at("2026-03-04T12:00:00Z")
Objects = dict[str, dict[str, Any]]  # by kind and name


def ordinary() -> Objects:
    up = ["Registered", "Initialized", "Consolidatable"]
    items = [
        node_class(),
        a_pool(),
        a_claim("c", of="n", true=up),
        a_node("n"),
        a_claim("other-claim", of="other", true=up),
        a_node("other"),
        a_pod("p", on="n", volumes=with_claim("v0"), labels={"app": "a"}),
        a_pod("waiting", priorityClassName="high"),
        a_daemon_set("d"),
        a_volume("pv0", driver="disks", zone="z"),
        a_volume_claim("v0", class_="fast", volume="pv0"),
        a_storage_class("fast", provisioner="disks"),
        a_csi_node("n", disks=2),
        manifests.priority_class("high", 10),
        manifests.pdb("a", maxUnavailable=0),
    ]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in items}


def planned(objects: Objects) -> OneShotResult:
    dump = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects.values())})
    still = look(read_documents(dump, "dump.json"), NOW, drained=["n", "other"])
    decide_pass(still.board, ConsolidationOptions())
    return still


def edit(kind_and_name: str, path: str, value: Any) -> Callable[[Objects], None]:
    """Set the field of an object; None is a null."""

    def edited(objects: Objects) -> None:
        *parents, last = path.split(".")
        where = objects[kind_and_name]
        for part in parents:
            where = where[part]
        where[last] = value

    return edited


def copied(objects: Objects) -> None:
    """The same pod a second time, without a node."""
    body = msgspec.json.decode(msgspec.json.encode(objects["Pod/p"]))
    objects["again"] = {**body, "spec": {**body["spec"], "nodeName": ""}}


BROKEN_SELECTOR = {"matchExpressions": [{"key": "app", "operator": "Resembles", "values": ["a"]}]}
LOTS = [{"name": "main", "resources": {"requests": {"cpu": "lots"}}}]


@pytest.mark.parametrize(
    "change",
    [
        edit("Pod/p", "spec.tolerations", None),
        edit("Pod/p", "metadata.ownerReferences", None),
        edit("Pod/p", "spec.containers", None),
        edit("Pod/p", "spec.containers", LOTS),
        edit("Pod/p", "spec.priority", -(10**9)),
        edit("Pod/p", "status", None),
        edit("Pod/p", "metadata.uid", ""),
        edit("Node/n", "status.allocatable", {"cpu": "lots", "memory": None}),
        edit("Node/n", "spec.taints", None),
        edit("NodeClaim/c", "status.conditions", None),
        edit("NodeClaim/c", "metadata.uid", None),
        edit("NodePool/default", "spec.disruption", None),
        edit("PodDisruptionBudget/a", "spec.selector", BROKEN_SELECTOR),
        edit("PodDisruptionBudget/a", "spec.selector", None),
        edit("PriorityClass/high", "value", -(10**9)),
        edit("DaemonSet/d", "spec.template.spec.containers", LOTS),
        edit("CSINode/n", "spec.drivers", None),
        edit("PersistentVolume/pv0", "spec.nodeAffinity.required.nodeSelectorTerms", []),
        copied,
    ],
)
def test_all_other_objects_count(change: Callable[[Objects], None]) -> None:
    objects = ordinary()
    change(objects)
    still = planned(objects)
    assert {node.name for node in still.assessment.places.nodes} == {"n", "other"}
    reasons = {each.node for found in still.assessment.candidates.values() for each in found}
    assert "other" in reasons | {each.node for each in still.assessment.left}


def test_an_object_that_is_there_twice_is_told() -> None:
    objects = ordinary()
    copied(objects)
    assert ("DuplicateObject", "Pod/default/p") in {(each.rule, str(each.object)) for each in planned(objects).problems}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("Pod/p", "spec", None), "items[6].spec: is required"),
        (edit("Pod/p", "metadata", None), "items[6].metadata: is required"),
        (edit("Pod/p", "metadata.name", ""), "items[6].metadata.name: is required"),
        (edit("Pod/p", "spec.priority", "high"), "items[6].spec.priority: expected an integer, got a string"),
        (edit("Pod/p", "metadata.uid", 7), "(Pod/default/p)"),
        (edit("Pod/waiting", "spec.priorityClassName", ["high"]), "(Pod/default/waiting)"),
        (edit("PriorityClass/high", "value", "ten"), "(PriorityClass/high)"),
        (edit("PodDisruptionBudget/a", "spec.selector", "app"), "(PodDisruptionBudget/default/a)"),
        (edit("Node/n", "spec.taints", [1]), "items[3].spec.taints[0]"),
        (edit("NodeClaim/c", "status.conditions", {"Ready": True}), "(NodeClaim/c)"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(change: Callable[[Objects], None], message: str) -> None:
    objects = ordinary()
    change(objects)
    with pytest.raises(InputError) as error:
        planned(objects)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
