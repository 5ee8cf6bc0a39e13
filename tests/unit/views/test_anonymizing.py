"""Is an anonymous dump still the same cluster, and does it name nobody?"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document, read_documents
from dovetail.state.intake import take_in
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import explain
from dovetail.views.record.anonymizing import Anonymizer
from dovetail.views.record.recording import recorded

CLUSTER = Path(__file__).parents[3] / "examples" / "cluster.yaml"
AT = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)


def documents() -> list[Document]:
    return list(read_documents(CLUSTER.read_bytes(), "cluster.yaml"))


def anonymous(things: list[dict[str, Any]]) -> list[dict[str, Any]]:
    anonymizer = Anonymizer()
    return [anonymizer.anonymized(thing) for thing in things]


def thing(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def shape(documents_: list[Document]) -> list[Any]:
    """All that is said of pods, nodes and pools, but for names and texts that hold them."""
    snapshot, *_ = take_in(documents_)
    told = explain(assess(snapshot, AT), end=AT + timedelta(days=7))

    def verdicts(them: Any) -> Any:
        return sorted(str((each.rule, each.allowed, each.until, verdicts(each.blockers))) for each in them)

    pods = [(pod.allowed, pod.until, verdicts(pod.verdicts), pod.changes) for pod in told.pods]
    nodes = [
        (
            node.state,
            node.pods,
            node.free_at,
            node.expires_at,
            node.deadline,
            node.changes,
            [(each.reason, each.wanted, each.allowed, each.until, verdicts(each.verdicts)) for each in node.reasons],
        )
        for node in told.nodes
    ]
    pools = [
        [(each.reason, each.limit, each.disrupting, each.allowed) for each in pool.budgets] for pool in told.nodepools
    ]
    return [sorted(map(str, each)) for each in (pods, nodes, pools)]


def test_an_anonymous_dump_is_explained_alike() -> None:
    kept = [each for each in map(recorded, documents()) if each is not None]
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": anonymous(kept)})
    assert shape(list(read_documents(data, "anonymous"))) == shape(documents())


def test_no_name_and_no_label_is_left() -> None:
    kept = [each for each in map(recorded, documents()) if each is not None]
    text = msgspec.json.encode(anonymous(kept)).decode()
    own = {each["metadata"]["name"] for each in kept} | {each["metadata"].get("namespace", "") for each in kept}
    own |= {value for each in kept for label, value in each["metadata"].get("labels", {}).items() if "team" in label}
    own -= {"", "kube-system", "default", "batch"}  # the last is an API group and a taint's key, too
    assert len(own) > 70
    left = [name for name in own if re.search(rf'"[^"]*\b{re.escape(name)}\b[^"]*"(?!:)', text)]
    assert left == []
    assert re.findall(r'"message":"[^"]', text) == []


def test_references_still_meet() -> None:
    node = thing("Node", "n1", spec={"providerID": "aws:///eu-west-1a/i-0abc"})
    node["metadata"]["labels"] = {
        names.HOSTNAME_LABEL: "n1",
        names.ZONE_LABEL: "eu-west-1a",
        names.NODEPOOL_LABEL: "batch",
    }
    affinity = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["cart", "7"]}]}
    pod = thing("Pod", "cart-0", spec={"nodeName": "n1", "nodeSelector": {"app": "cart"}, "x": [affinity]})
    pod["metadata"] |= {
        "namespace": "shop",
        "labels": {"app": "cart", "statefulset.kubernetes.io/pod-name": "cart-0"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "cart", "uid": "u"}],
    }
    claim = thing("NodeClaim", "batch-1", status={"providerID": "aws:///eu-west-1a/i-0abc", "nodeName": "n1"})
    workload = thing("StatefulSet", "cart", spec={"selector": {"matchLabels": {"app": "cart"}}})
    node, pod, claim, workload = anonymous([node, pod, claim, workload])
    name, machine = node["metadata"]["name"], node["spec"]["providerID"]
    assert (pod["spec"]["nodeName"], claim["status"]["nodeName"]) == (name, name)
    assert node["metadata"]["labels"][names.HOSTNAME_LABEL] == name
    assert node["metadata"]["labels"][names.ZONE_LABEL] == "eu-west-1a"
    assert node["metadata"]["labels"][names.NODEPOOL_LABEL] != "batch"
    assert claim["status"]["providerID"] == machine
    assert machine.startswith("aws:///x")
    cart = workload["metadata"]["name"]
    assert pod["metadata"]["name"] == f"{cart}-0" == pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"]
    assert pod["metadata"]["ownerReferences"][0]["name"] == cart
    app = workload["spec"]["selector"]["matchLabels"]["app"]
    assert pod["metadata"]["labels"]["app"] == pod["spec"]["nodeSelector"]["app"] == app
    assert pod["spec"]["x"][0]["matchExpressions"][0]["values"] == [app, "7"]


def test_what_every_cluster_has_keeps_its_name() -> None:
    pod = thing("Pod", "p", spec={"priorityClassName": "system-node-critical", "schedulerName": "default-scheduler"})
    pod["metadata"]["namespace"] = "kube-system"
    pod["spec"]["tolerations"] = [{"key": "a", "operator": "Equal", "value": "true"}, {"key": "b", "value": "secret"}]
    (changed,) = anonymous([pod])
    assert changed["metadata"]["namespace"] == "kube-system"
    assert (changed["spec"]["priorityClassName"], changed["spec"]["schedulerName"]) == (
        "system-node-critical",
        "default-scheduler",
    )
    same, other = (each["value"] for each in changed["spec"]["tolerations"])
    assert same == "true"
    assert other.startswith("x")


def test_hashes_and_commands_which_would_not_fit_are_dropped() -> None:
    claim = thing("NodeClaim", "c")
    claim["metadata"]["annotations"] = {
        names.NODEPOOL_HASH: "1",
        names.DISRUPTION_COMMAND: "{}",
        names.DO_NOT_DISRUPT: "4h",
    }
    (changed,) = anonymous([claim])
    assert changed["metadata"]["annotations"] == {names.DO_NOT_DISRUPT: "4h"}


def test_services_select_the_same_pods_without_their_labels() -> None:
    labels = {"tier.example.com/secret": "payments"}
    pod = {**thing("Pod", "p"), "metadata": {"name": "p", "labels": labels}}
    service, made = anonymous([thing("Service", "s", spec={"selector": labels}), pod])
    assert service["spec"]["selector"] == made["metadata"]["labels"]
    assert not any(word in str(service) for word in ("secret", "payments", "tier"))
