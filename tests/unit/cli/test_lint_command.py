"""`dovetail lint`: the contract of the command line."""

import json
from typing import Any

import pytest

from tests.unit.cli.running import Program

AT = "2026-03-06T16:20:00Z"
TWO_NAMESPACES = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, annotations: {karpenter.sh/do-not-disrupt: 4hours}}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: ml, annotations: {karpenter.sh/do-not-disrupt: "true"}}
---
apiVersion: v1
kind: Pod
metadata: {name: c, annotations: {karpenter.sh/do-not-disrupt: "true"}}
---
apiVersion: v1
kind: Node
metadata: {name: worker, annotations: {karpenter.sh/do-not-disrupt: "false"}}
---
apiVersion: v1
kind: Service
metadata: {name: s, namespace: shop}
"""
SCHEDULED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  template:
    metadata:
      annotations: {karpenter.sh/disruption-schedule: "0 2 * * 6", karpenter.sh/disruption-schedule-duration: "6h"}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption:
    budgets:
    - {nodes: "3", reasons: [Drifted]}
    - {nodes: "1", schedule: "0 9 * * *", duration: 8h}
  template:
    spec: {nodeClassRef: {group: g, kind: k, name: default}, requirements: [], terminationGracePeriod: 24h}
"""


def found(dovetail: Program, text: str, *options: str) -> dict[str, Any]:
    outcome = dovetail("lint", dovetail.file(text), "--at", AT, "-o", "json", *options)
    assert outcome.err == ""
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def objects(answer: dict[str, Any]) -> set[str]:
    return {problem["object"] for problem in answer["problems"]}


@pytest.mark.parametrize(
    ("namespace", "expected", "left_out"),
    [
        ("shop", {"Pod/shop/a", "Node/worker", ""}, 2),
        ("ml", {"Pod/ml/b", "Node/worker"}, 3),
        ("default", {"Pod/default/c", "Node/worker"}, 3),
        ("nowhere", {"Node/worker"}, 4),
    ],
)
def test_a_namespace_leaves_out_the_others(
    dovetail: Program, namespace: str, expected: set[str], left_out: int
) -> None:
    answer = found(dovetail, TWO_NAMESPACES, "-n", namespace)
    assert (objects(answer), answer["leftOut"]) == (expected, left_out)
    table = dovetail("lint", dovetail.file(TWO_NAMESPACES), "--at", AT, "--namespace", namespace).out
    assert table.endswith(f"\nleft out {left_out} objects of other namespaces\n")


def test_without_a_namespace_everything_is_read(dovetail: Program) -> None:
    answer = found(dovetail, TWO_NAMESPACES)
    assert objects(answer) == {"Pod/shop/a", "Pod/ml/b", "Pod/default/c", "Node/worker", ""}
    assert (answer["read"], answer["leftOut"]) == ({"Pod": 3, "Node": 1, "Service": 1}, 0)
    assert "left out" not in dovetail("lint", dovetail.file(TWO_NAMESPACES)).out


def test_errors_elsewhere_do_not_count(dovetail: Program) -> None:
    file = dovetail.file(TWO_NAMESPACES)
    assert [dovetail("lint", file, "-n", namespace).code for namespace in ("shop", "ml")] == [1, 0]


def test_quiet_is_only_findings_and_verbose_says_what_was_read(dovetail: Program) -> None:
    file = dovetail.file(TWO_NAMESPACES)
    quiet, normal, verbose = (dovetail("lint", file, *option).out for option in (["-q"], [], ["-v"]))
    assert [line.partition(" ")[0] for line in quiet.splitlines() if line[0] != " "] == ["error"]
    assert normal.endswith("\n\n1 error, 4 info\nDovetail decides: DOVETAIL_DECIDER says so\n")
    assert normal.startswith(quiet)
    *_, found, read, decides = verbose.splitlines()
    assert (found, read) == ("1 error, 4 info", "read 5 objects: 3 Pod, 1 Node, 1 Service")
    assert normal.endswith(f"{decides}\n")
    assert dovetail("lint", file, "-q", "-n", "ml").out == ""
    assert dovetail("lint", dovetail.file(""), "-v").out == "nothing checked: the input is empty\nread 0 objects\n"


def windows(answer: dict[str, Any]) -> dict[str, str]:
    return {problem["field"]: problem["message"] for problem in answer["problems"] if problem["rule"] == "WindowsAhead"}


def test_a_span_tells_the_windows_in_it(dovetail: Program) -> None:
    annotation = "spec.template.metadata.annotations[karpenter.sh/disruption-schedule]"
    budget = "spec.disruption.budgets[1].schedule"
    assert windows(found(dovetail, SCHEDULED)) == {}
    assert windows(found(dovetail, SCHEDULED, "--for", "36h")) == {
        annotation: "up to 2026-03-08T04:20:00Z the disruption window opens 2026-03-07T02:00:00Z for 6h",
        budget: "up to 2026-03-08T04:20:00Z the budget's window is open until 2026-03-06T17:00:00Z, "
        "then opens 2026-03-07T09:00:00Z for 8h",
    }
    assert windows(found(dovetail, SCHEDULED, "--for", "30m")) == {
        annotation: "up to 2026-03-06T16:50:00Z the disruption window does not open",
        budget: "up to 2026-03-06T16:50:00Z the budget's window is open throughout",
    }
    assert windows(found(dovetail, SCHEDULED, "--for", "1h"))[budget].endswith(
        "is open until 2026-03-06T17:00:00Z and does not open again"
    )


def test_many_windows_are_counted_not_listed(dovetail: Program) -> None:
    (message,) = windows(found(dovetail, SCHEDULED.partition("---")[0], "--for", "70d")).values()
    assert message.endswith("2026-04-04T02:00:00Z for 6h and 5 times more")
    often = SCHEDULED.partition("---")[0].replace("0 2 * * 6", "*/2 * * * *").replace("6h", "1m")
    (message,) = windows(found(dovetail, often, "--for", "7d")).values()
    assert message.endswith(" and at least 45 times more")


def test_windows_of_what_cannot_be_read_or_is_over_are_not_told(dovetail: Program) -> None:
    finished = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"karpenter.sh/disruption-schedule": "0 2 * * 6"}},
        "status": {"phase": "Succeeded"},
    }
    broken = finished | {"status": {"phase": 7}}
    stranger = finished | {"apiVersion": "example.com/v1", "status": {}}
    for item in (finished, broken, stranger):
        assert windows(found(dovetail, json.dumps(item), "--for", "7d")) == {}
    assert len(windows(found(dovetail, json.dumps(finished | {"status": {}}), "--for", "7d"))) == 1


def test_times_are_shown_in_the_zone_asked_for_but_not_to_scripts(dovetail: Program) -> None:
    file = dovetail.file(SCHEDULED)
    table = dovetail("lint", file, "--at", AT, "--for", "36h", "--tz", "Asia/Tokyo").out
    assert "opens 2026-03-07T11:00:00+09:00 for 6h" in table
    assert "00Z" not in table
    assert found(dovetail, SCHEDULED, "--for", "36h", "--tz", "Asia/Tokyo") == found(
        dovetail, SCHEDULED, "--for", "36h"
    )


def test_a_finding_that_names_an_instant_names_it_in_the_zone(dovetail: Program) -> None:
    """BudgetReadingDiffers says from when on."""
    out = dovetail("lint", dovetail.file(SCHEDULED), "--at", "2026-03-06T18:00:00Z", "--tz", "Asia/Tokyo").out
    assert "from 2026-03-07T18:00:00+09:00 on" in out


def test_strict_makes_warnings_count(dovetail: Program) -> None:
    file = dovetail.file(SCHEDULED)
    assert [dovetail("lint", file, "--at", AT, *option).code for option in ([], ["--strict"])] == [0, 1]
