"""Is the same finding told once, at the workload?"""

from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.views.findings.joined import joined


def finding(kind: str, name: str, *, namespace: str = "shop", rule: str = "R") -> Finding:
    return Finding(
        severity=Severity.WARNING, rule=rule, object=Ref(kind, namespace, name), field=f"of {kind}", message="it is bad"
    )


def told(*findings: Finding) -> list[tuple[str, str]]:
    return [(str(each.object), str(each.message)) for each in joined(findings)]


def test_a_workload_tells_it_for_what_it_has_made() -> None:
    made = [finding("Pod", f"web-5d4-{suffix}") for suffix in "abc"]
    assert told(*made[:1], finding("Deployment", "web"), finding("ReplicaSet", "web-5d4"), *made[1:]) == [
        ("Deployment/shop/web", "it is bad; the same is true of 3 Pods and 1 ReplicaSet that it has made")
    ]


def test_pods_without_their_workload_are_counted() -> None:
    pods = [finding("Pod", "web-5d4-a"), finding("Pod", "web-5d4-b"), finding("Pod", "db-0")]
    assert told(*pods) == [
        ("Pod/shop/web-5d4-a", "it is bad; the same is true of 1 Pod like it"),
        ("Pod/shop/db-0", "it is bad"),
    ]


def test_nodes_of_a_pool_are_counted() -> None:
    nodes = [finding("Node", name, namespace="") for name in ("ip-10-0-1-1", "b")]
    assert told(*nodes, finding("NodeClaim", "general-x", namespace=""), finding("Node", "c", rule="S")) == [
        ("Node/ip-10-0-1-1", "it is bad; the same is true of 1 Node like it"),
        ("NodeClaim/general-x", "it is bad"),
        ("Node/shop/c", "it is bad"),
    ]


def test_others_stay() -> None:
    others = [
        finding("Deployment", "web"),
        finding("Deployment", "web-blue"),
        finding("Pod", "web-5d4-a", namespace="other"),
        finding("ReplicaSet", "web-5d4", rule="S"),
        finding("NodePool", "web", namespace=""),
        finding("NodePool", "web-blue", namespace=""),
    ]
    assert told(*others) == [(str(each.object), "it is bad") for each in others]
