"""Who blocks most: owners and the number of nodes."""

import pytest

from dovetail.api.names import Reason
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.rules.verdict import Rule, refuse
from dovetail.views.assessment import assess
from dovetail.views.explain.blocking import who_blocks
from dovetail.views.explain.workloads import workload_of
from tests.harness import builders
from tests.harness.builders import at


@pytest.mark.parametrize(
    ("name", "owner", "labels", "workload"),
    [
        ("web-5c5986df84-5vp7q", "ReplicaSet", {"pod-template-hash": "5c5986df84"}, "Deployment/default/web"),
        ("web-5c5986df84", "ReplicaSet", {"pod-template-hash": "other"}, "Pod/default/web-5c5986df84"),
        ("db-0", "StatefulSet", {}, "StatefulSet/default/db"),
        ("agent-x7bqd", "DaemonSet", {}, "DaemonSet/default/agent"),
        ("train-abcde", "Job", {"batch.kubernetes.io/job-name": "train"}, "Job/default/train"),
        ("old-abcde", "Job", {"job-name": "old"}, "Job/default/old"),
        ("alone", None, {}, "Pod/default/alone"),
    ],
)
def test_the_workload_of_a_pod(name: str, owner: str | None, labels: dict[str, str], workload: str) -> None:
    assert str(workload_of(builders.pod(name, owner=owner, labels=labels))) == workload


def test_owners_count_nodes_once_and_limits_belong_to_the_pool() -> None:
    pods = [
        builders.pod(f"db-{number}", node=f"n{node}", owner="StatefulSet", do_not_disrupt="true")
        for number, node in enumerate((0, 0, 1))
    ]
    pods.append(builders.pod("x", node="n2"))
    members = [
        builders.member(
            builders.claim(f"n{node}", provider_id=f"kwok://n{node}", true=["Drifted"]),
            builders.node(f"n{node}"),
            [pod for pod in pods if pod.node_name == f"n{node}"],
        )
        for node in range(3)
    ]
    snapshot = Snapshot(nodes=tuple(members), pods=tuple(pods), pools={"default": builders.pool()})
    limited = refuse(Rule.REPLACEMENT, Ref("Pod", "default", "x"), "its limits leave no room", field="spec.limits")
    assessment = assess(snapshot, at("2026-03-06T16:20:00Z"), replacements={("n2", Reason.DRIFTED): limited})
    found = [(str(each.owner), each.rule, each.nodes) for each in who_blocks(assessment, assessment.nodes)]
    assert ("StatefulSet/default/db", "do-not-disrupt", 2) in found
    assert ("NodePool/default", "replacement", 1) in found
