"""Are the commands that read at home on a cluster that Karpenter runs on EC2?"""

import gzip
import json
import re
from typing import Any

import pytest

from dovetail.api import names
from tests.harness.eks import DUMP, asked_of, named, objects


def test_the_dump_has_the_situations_that_tests_rely_on() -> None:
    items = objects()
    nodes = [item for item in items if item["kind"] == "Node"]
    unowned = [node for node in nodes if "karpenter.sh/nodepool" not in node["metadata"]["labels"]]
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
    assert (len(items), len(nodes), len(unowned), len(cordoned)) == (236, 19, 4, 1)
    assert named(items, "NodeClaim", "general-3b295")["metadata"]["deletionTimestamp"]
    assert "nodeName" not in named(items, "NodeClaim", "spot-batch-9x2kq")["status"]


def test_the_dump_names_no_path_of_a_machine() -> None:
    text = gzip.decompress(DUMP.read_bytes())
    assert not any(path in text for path in (b"/home", b"/root", b"/tmp", b"/work", b"localhost"))


@pytest.mark.parametrize("command", ["explain", "forecast", "plan"])
def test_commands_read_it(command: str) -> None:
    printed = asked_of(objects(), command)
    assert printed.code in {0, 1}
    assert any("ip-10-0-92-176" in line for line in printed.lines)


# -- what the state of a node does not say -----------------------------------------------------------------------------


def _explained(items: list[dict[str, Any]], *arguments: str) -> list[str]:
    return asked_of(items, "explain", *arguments).lines


def _answer(items: list[dict[str, Any]], name: str) -> str:
    """The first line about the object."""
    host = name.partition("/")[2]
    return next(line for line in _explained(items, name) if line.startswith(host))


def test_nodes_without_a_nodepool_are_context() -> None:
    lines = _explained(objects())
    assert lines[2] == "16 nodes: 1 stuck, 1 waiting, 1 leaving, 1 starting, 1 may go, 11 stay"
    table = lines[lines.index("Nodes") : lines.index("Nodes without a NodePool")]
    assert not any("fargate" in line or "ip-10-0-144-102" in line for line in table)
    groups = lines[lines.index("Nodes without a NodePool") + 2 :][:2]
    assert [line.split() for line in groups] == [["Fargate", "2", "2", "-"], ["system", "2", "14", "-"]]
    nodes = json.loads("\n".join(_explained(objects(), "-o", "json")))["nodes"]
    assert [node["managed"] for node in nodes] == [True] * 16 + [False] * 4
    assert _answer(objects(), "node/fargate-ip-10-0-54-114").endswith(
        "belongs to no NodePool but to Fargate, so nothing here disrupts it"
    )


@pytest.mark.parametrize("command", [("forecast",), ("top", "--once")])
def test_they_are_last_and_uncounted_everywhere(command: tuple[str, ...]) -> None:
    lines = asked_of(objects(), *command).lines
    assert any("4 nodes without a NodePool" in line or "16 nodes + 4 of no NodePool" in line for line in lines)
    names = [found[1] for line in lines if (found := re.match(r"[ !]*(fargate|ip-10|spot-batch-9)", line))]
    assert "fargate" not in names[:16]
    nodes = json.loads("\n".join(asked_of(objects(), command[0], "-o", "json").lines))["nodes"]
    assert [node["managed"] for node in nodes] == [True] * 16 + [False] * 4


def test_badges_say_since_when() -> None:
    rows = {line.partition(".")[0].partition(" ")[0]: line for line in _explained(objects()) if "  S1 " in line}
    assert "S1 steady, NotReady 4h56m   m6i.large spot" in rows["ip-10-0-73-185"]
    assert "S1 steady, cordoned 20h   " in rows["ip-10-0-81-89"]
    assert "S1 starting 4m   " in rows["spot-batch-9x2kq"]
    shown = asked_of(objects(), "top", "--once").lines
    (row,) = [line for line in shown if "NotReady 4h56m" in line]
    assert row.split()[0].startswith("ip-10-0-73-185")


def test_a_claim_without_a_node_is_starting() -> None:
    assert _answer(objects(), "nodeclaim/spot-batch-9x2kq") == (
        "spot-batch-9x2kq has been starting since 2026-11-17T09:56:00Z (4m ago): its instance has not registered as a "
        "Node yet: Node not registered with cluster; its controller gives it up 2026-11-17T10:11:00Z (in 11m)"
    )
    items = objects()
    claim = named(items, "NodeClaim", "spot-batch-9x2kq")
    claim["status"]["providerID"] = ""
    claim["status"]["conditions"] = [
        {"type": "Launched", "status": "Unknown", "reason": "LaunchFailed", "message": "no capacity: c5a.xlarge"}
    ]
    claim["metadata"]["creationTimestamp"] = "2026-11-17T09:50:00Z"
    assert _answer(items, "nodeclaim/spot-batch-9x2kq") == (
        "spot-batch-9x2kq has been stuck (starting) since 2026-11-17T09:50:00Z (10m ago): its instance is not launched "
        "yet: no capacity: c5a.xlarge; its controller should have given it up 2026-11-17T09:55:00Z: is it running?"
    )


def test_a_percentage_of_fewer_nodes_promises_no_place() -> None:
    """When the draining node has gone, 10 % of 10 nodes is 1, and the NotReady node uses it."""
    promise = "; a place is free at the latest 2026-11-18T04:00:00Z"
    items = objects()
    assert promise not in _answer(items, "node/ip-10-0-43-195")
    budgets = named(items, "NodePool", "general")["spec"]["disruption"]["budgets"]
    budgets[0]["nodes"] = "2"
    assert _answer(items, "node/ip-10-0-43-195").endswith(promise)


def _rules_against(items: list[dict[str, Any]], decider: str, name: str) -> set[str]:
    (node,) = data_of(items, "explain", name, "--decider", decider)["nodes"]
    (reason,) = (reason for reason in node["reasons"] if reason["reason"] == "Underutilized")
    return {verdict["rule"] for verdict in reason["verdicts"] if not verdict["allowed"]}


def test_karpenter_consolidates_nodes_that_dovetail_leaves_alone() -> None:
    """NotReady nodes, and NodePools in which others start: only Dovetail waits."""
    items = objects()
    assert "ready" not in _rules_against(items, "karpenter", "node/ip-10-0-73-185")
    assert "ready" in _rules_against(items, "dovetail", "node/ip-10-0-73-185")
    assert "scale-out" not in _rules_against(items, "karpenter", "node/ip-10-0-92-176")
    assert "scale-out" in _rules_against(items, "dovetail", "node/ip-10-0-92-176")


def test_who_uses_a_budget_and_until_when() -> None:
    answer = _answer(objects(), "node/ip-10-0-43-195")
    assert "ip-10-0-122-180.eu-west-1.compute.internal (draining since 2026-11-17T04:00:00Z)" in answer
    assert "ip-10-0-73-185.eu-west-1.compute.internal (NotReady since 2026-11-17T05:04:00Z)" in answer
    assert answer.endswith("; a node that is NotReady counts until it is Ready or gone")
    lines = _explained(objects())
    assert lines[lines.index("general: 2 nodes use its budgets") + 2] == (
        "  ip-10-0-73-185.eu-west-1.compute.internal: NotReady since 2026-11-17T05:04:00Z (4h56m ago)"
    )


@pytest.mark.parametrize("name", ["node/ip-10-0-43-195", "node/ip-10-0-139-32"])
def test_what_to_do_about_a_budget_that_others_use_up(name: str) -> None:
    """To wait is no help while a node that is NotReady uses it: the step names that node."""
    broken = "ip-10-0-73-185.eu-west-1.compute.internal"
    assert _explained(objects(), name)[4] == (
        f"  → wait until {broken} is Ready, or have it replaced: dovetail explain node/{broken} says how"
    )
    items = objects()
    for condition in named(items, "Node", broken)["status"]["conditions"]:
        condition["status"] = "True" if condition["type"] == "Ready" else condition["status"]
    named(items, "NodePool", "general")["spec"]["disruption"]["budgets"] = [{"nodes": "1"}]
    drained = "  → wait; dovetail explain nodepool/general lists what uses its budgets"
    assert _explained(items, name)[4] == drained
    del named(items, "NodeClaim", "general-3b295")["metadata"]["annotations"][names.TERMINATION_TIMESTAMP]
    del named(items, "NodeClaim", "general-3b295")["spec"]["terminationGracePeriod"]
    going = "ip-10-0-122-180.eu-west-1.compute.internal"
    assert _explained(items, name)[4] == f"  → wait; dovetail explain node/{going} says what its drain waits for"


def test_top_names_the_budget_where_no_pod_keeps_the_node() -> None:
    """Its drain has a limit, so that its pod does not keep it from being replaced."""
    (row,) = [line for line in asked_of(objects(), "top", "--once").lines if "ip-10-0-43-195" in line]
    assert "waiting budget (Drifted) " in " ".join(row.split())
    assert "do-not-disrupt" not in row


def test_one_is_singular() -> None:
    (line,) = [line for line in asked_of(objects(), "top", "--once").lines if line.startswith("free: ")]
    assert line.endswith("Next 24h: 1 ends by force (1 pod), 1 expires")


def test_top_counts_no_problem_where_there_is_nothing_to_do() -> None:
    assert not any("problem" in line for line in asked_of(objects(), "top", "--once").lines)
    items = objects()
    named(items, "Pod", "checkout")["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "1d"}
    assert any(
        line.startswith("1 problem, such as Pod/shop/checkout-") for line in asked_of(items, "top", "--once").lines
    )


def test_a_rule_of_the_pool_is_not_repeated_for_each_of_its_nodes() -> None:
    lines = _explained(objects())
    assert sum("consolidates only when empty" in line for line in lines) == 0
    assert sum("left for Empty" in line for line in lines) == 0
    assert any("consolidates only when empty" in line for line in _explained(objects(), "node/ip-10-0-33-178"))


@pytest.mark.parametrize("command", ["explain", "forecast"])
def test_the_host_names_a_node(command: str) -> None:
    for name in ("node/ip-10-0-18-63", "ip-10-0-18-63"):
        lines = asked_of(objects(), command, name).lines
        assert any(line.startswith(("ip-10-0-18-63.", "ip-10-0-18-6")) for line in lines)
    removed = asked_of(objects(), "plan", "--remove", "ip-10-0-18-63").lines
    assert any(line.startswith("If ip-10-0-18-63.eu-west-1.compute.internal were drained") for line in removed)


# -- situations that people asked about --------------------------------------------------------------------------------


def test_a_node_that_is_not_ready_for_hours() -> None:
    answer, step = _explained(objects(), "node/ip-10-0-73-185")[3:5]
    assert answer == (
        "ip-10-0-73-185.eu-west-1.compute.internal has been NotReady since 2026-11-17T05:04:00Z (4h56m ago): "
        "Kubelet stopped posting node status; nothing replaces it unless the feature gate NodeRepair is on, which is "
        "off by default in Karpenter; it is not consolidated: Underutilized: the limit of NodePool general is 2, and "
        "all of it is used"
    )
    assert step == (
        "  → see why: kubectl describe node ip-10-0-73-185.eu-west-1.compute.internal; to have it replaced: kubectl "
        "delete nodeclaim general-d7578"
    )


@pytest.mark.parametrize(
    ("finalizers", "words"),
    [
        (
            ["karpenter.sh/termination"],
            "finalizer karpenter.sh/termination, which its controller removes when the instance has ended, keeps",
        ),
        (["karpenter.sh/termination", "example.com/guard"], "finalizer example.com/guard keeps"),
    ],
)
def test_a_claim_that_is_deleted_for_days_and_has_nothing_on_it(finalizers: list[str], words: str) -> None:
    items = objects()
    claim = named(items, "NodeClaim", "general-3b295")
    claim["metadata"] |= {"deletionTimestamp": "2026-11-11T09:00:00Z", "finalizers": finalizers}
    for condition in claim["status"]["conditions"]:
        if condition["type"] == "Drained":
            condition |= {"status": "True", "lastTransitionTime": "2026-11-11T09:01:00Z"}
    gone = claim["status"]["nodeName"]
    items = [
        item for item in items if item["metadata"]["name"] != gone and item.get("spec", {}).get("nodeName") != gone
    ]
    answer = _answer(items, "nodeclaim/general-3b295")
    assert answer.startswith(
        "general-3b295 has been stuck (S4 draining) since 2026-11-11T09:00:00Z (6d1h ago): its Node is gone"
    )
    assert f"; {words} the NodeClaim" in answer
    for name in (f"node/{gone}", "node/ip-10-0-122-180", gone):  # as people know it
        assert answer in _explained(items, name)
    assert any("DeletionHangs: its deletion began 2026-11-11T09:00:00Z" in line for line in _explained(items))


def test_a_pdb_that_lacks_one_healthy_pod() -> None:
    items = objects()
    budget = named(items, "PodDisruptionBudget", "istiod")
    budget["spec"] = {"minAvailable": 3, "selector": budget["spec"]["selector"]}
    budget["status"] = {"disruptionsAllowed": 0, "expectedPods": 4, "currentHealthy": 3, "desiredHealthy": 3}
    assert _answer(items, "node/ip-10-0-16-149").endswith(
        "has no reason to go; it is not consolidated: Pod/istio-system/istiod-8875781e8-03aa2: "
        "PodDisruptionBudget istiod allows no disruption now: 3 of 4 pods are healthy, and 3 must be; it allows one "
        "when 1 more is healthy"
    )
    assert "  → see which pod is not healthy: kubectl get pods -n istio-system" in _explained(
        items, "node/ip-10-0-16-149"
    )
    assert any("   no date   " in line for line in _explained(items, "node/ip-10-0-16-149"))


def test_spot_that_is_not_replaced_by_spot() -> None:
    items = [item for item in objects() if item["kind"] != "Pod" or item["spec"].get("nodeName")]
    named(items, "NodePool", "general")["spec"]["disruption"]["budgets"] = [{"nodes": "50%"}]
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    for item in items:
        if item["kind"] == "Node" and not item["metadata"]["name"].startswith("ip-10-0-139-32"):
            item["spec"]["taints"] = [*item["spec"].get("taints", ()), cordon]
    assert _answer(items, "node/ip-10-0-139-32").endswith(
        "has no reason to go; it is not consolidated: all of it is spot capacity, and spot is not replaced by spot "
        "unless the feature gate SpotToSpotConsolidation is on"
    )
    assert _explained(items, "node/ip-10-0-139-32")[4] == (
        "  → see what the feature gate would do: dovetail plan --spot-to-spot"
    )


def test_why_a_node_is_not_consolidated() -> None:
    assert _answer(objects(), "node/ip-10-0-139-32").endswith(
        "it is not consolidated: Underutilized: the limit of NodePool general is 2, and all of it is used"
    )
    assert _answer(objects(), "node/ip-10-0-33-178").endswith(
        "it is not consolidated: NodePool gpu consolidates only when empty"
    )
    items = objects()
    named(items, "NodePool", "general")["spec"]["disruption"]["budgets"] = [{"nodes": "50%"}]
    assert _answer(items, "node/ip-10-0-139-32").endswith(
        "it would be consolidated now (Underutilized); dovetail plan says where its pods go"
    )


def test_a_budget_that_is_meant_as_an_allow_window() -> None:
    items = objects()
    window = {"nodes": "3", "schedule": "0 2 * * *", "duration": "4h"}
    named(items, "NodePool", "general")["spec"]["disruption"]["budgets"] = [window]
    assert _answer(items, "node/ip-10-0-43-195").endswith(
        "; no budget of NodePool general limits that now: budgets[0] does so only in its window, from "
        "2026-11-18T02:00:00Z"
    )
    assert _explained(items, "node/ip-10-0-43-195")[4] == (
        '  → if disruptions are meant only then, add - {nodes: "0", schedule: "0 6 * * *", duration: 20h, reasons: '
        "[Drifted, Underutilized]}"
    )
    told = [line for line in _explained(items, "node/ip-10-0-43-195")[:40] if "BudgetIsNoAllowWindow" in line]
    assert told == [
        "        BudgetIsNoAllowWindow: outside this window no budget is active, so there is no limit at all: "
        "a window does not say that nodes are disrupted only then"
    ]


# -- whole dumps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("plan",), ("simulate", "--for", "10m")])
def test_an_odd_replica_set_does_not_refuse_a_dump(command: tuple[str, ...]) -> None:
    items = objects()
    named(items, "ReplicaSet", "checkout")["spec"]["replicas"] = "three"
    problems = json.loads("\n".join(asked_of(items, *command, "-o", "json").lines))["problems"]
    (told,) = (problem for problem in problems if problem["rule"] == "LeftOut")
    assert told["object"].startswith("ReplicaSet/shop/checkout-")
    assert told["message"].startswith("expected an integer, got a string; the object is left out")


def test_every_end_has_its_reason() -> None:
    report = json.loads("\n".join(asked_of(objects(), "simulate", "--for", "1d", "-o", "json").lines))
    ends = {event["object"]: event["message"] for event in report["timeline"] if event["type"] == "terminated"}
    assert ends["NodeClaim/spot-batch-9x2kq"].startswith("NotRegistered: ")
    assert ends["NodeClaim/general-3b295"].startswith("Expired: ")
    assert not any(message.startswith("Other") for message in ends.values())


def data_of(items: list[dict[str, Any]], *arguments: str) -> Any:
    return json.loads("\n".join(asked_of(items, *arguments, "-o", "json").lines))


def test_plan_and_simulate_agree_on_a_node_that_is_not_ready() -> None:
    """Karpenter's feature gate NodeRepair is off by default; Dovetail repairs."""
    broken = "ip-10-0-73-185"

    def asked(decider: str) -> tuple[str, int]:
        plan = asked_of(objects(), "plan", "--decider", decider)
        (line,) = (line for line in plan.lines if line.startswith(broken))
        played = data_of(objects(), "simulate", "--decider", decider, "--for", "1h")
        assert played["decider"]["controller"] == decider
        return line.partition("; ")[2], played["nodes"]["terminated"].get("Unhealthy", 0)

    assert asked("karpenter") == ("", 0)
    assert asked("dovetail") == ("node repair replaces it, not consolidation", 1)


def test_protections_are_read_as_karpenter_does() -> None:
    """Its own reading is what the whole answer follows, and it says so."""
    items = objects()
    pod = named(items, "Pod", "notebook")
    pod["metadata"]["annotations"] = {
        "karpenter.sh/do-not-disrupt": "1d",
        "karpenter.sh/disruption-schedule": "0 2 * * 6",
    }
    name = f"pod/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    theirs, ours = (
        data_of(items, "explain", name, "--decider", decider) for decider in ("karpenter@1.15.0", "dovetail")
    )
    assert (theirs["pods"][0]["allowed"], ours["pods"][0]["allowed"]) == (True, False)
    assert theirs["decider"]["version"] == "1.15.0"
    assert {each["rule"] for each in theirs["problems"]} >= {"NotInForce", "InvalidDoNotDisrupt"}
    assert "NotInForce" not in {each["rule"] for each in ours["problems"]}
    first = asked_of(items, "explain", name).lines[0]
    assert first == "Karpenter decides: pod karpenter/karpenter-bad2e3944-3e04b runs it"
