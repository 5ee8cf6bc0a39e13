"""`dovetail plan`: the contract of the command line, and that its page shows what it prints."""

import copy
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.running import Program

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "plan.md"
CLUSTER, AT = "examples/cluster.yaml", "2026-03-06T16:20:00Z"
SHOWN = re.compile(r"<!-- shown: dovetail (.*?) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(("arguments", "shown"), SHOWN.findall(PAGE.read_text()))
def test_the_page_shows_what_is_printed(
    dovetail: Program, arguments: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_DECIDER")
    assert dovetail(*shlex.split(arguments)).out == shown


def test_the_page_shows_something() -> None:
    assert len(SHOWN.findall(PAGE.read_text())) == 2


def test_every_node_has_its_fate_and_every_pod_its_place(dovetail: Program) -> None:
    outcome = dovetail("plan", "-f", CLUSTER, "--at", AT, "-o", "json")
    plan = json.loads(outcome.out)
    assert outcome.code == 0
    (command,) = plan["commands"]
    assert (command["reason"], command["decision"], command["confirmedAfterSeconds"]) == ("Drifted", "delete", None)
    assert [move["to"] for move in command["pods"]] == ["node/batch-2fp8k"]
    fates = {node["name"]: node["fate"] for node in plan["nodes"]}
    assert len(fates) == 12
    assert [name for name, fate in fates.items() if fate == "goes"] == ["batch-t5hxv"]
    assert all(node["why"] for node in plan["nodes"])


def test_only_one_pool_or_reason(dovetail: Program) -> None:
    of_pool = json.loads(dovetail("plan", "-f", CLUSTER, "--at", AT, "-o", "json", "--nodepool", "general").out)
    assert {node["nodepool"] for node in of_pool["nodes"]} == {"general"}
    assert of_pool["commands"] == []
    empty = json.loads(dovetail("plan", "-f", CLUSTER, "--at", AT, "-o", "json", "--reason", "empty").out)
    assert empty["commands"] == []
    head = dovetail("plan", "-f", CLUSTER, "--at", AT, "--nodepool", "general").out.splitlines()[1]
    assert head == f"At {AT} nothing would be disrupted: 4 nodes wait, 1 stays"


def test_machines_and_prices_can_be_given(dovetail: Program) -> None:
    offerings = [
        {"capacityType": "on-demand", "zone": f"eu-central-1{zone}", "price": 0.125} for zone in ("a", "b", "c")
    ]
    sold = {
        "name": "m-own",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"},
        "offerings": offerings,
    }
    arguments = ("plan", "-f", CLUSTER, "--at", AT, "--remove", "batch-2fp8k", "-q", "--instance-types")
    outcome = dovetail(*arguments, dovetail.file(json.dumps([sold]), "types.json"))
    assert outcome.code == 0
    assert "m-own, from $0.125" in outcome.out
    wrong = dovetail(*arguments, dovetail.file("[{}]", "types.json"))
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
    assert wrong.err.startswith("dovetail: --instance-types ")


def test_a_node_that_cannot_be_drained_is_said_by_the_exit_code(dovetail: Program) -> None:
    cluster = yaml.safe_load((ROOT / CLUSTER).read_text())
    for item in cluster["items"]:
        if item["kind"] == "NodePool":
            item["spec"]["limits"] = {"cpu": "1"}  # so that nothing new can be had
    limited = dovetail.file(json.dumps(cluster), "limited.json")
    outcome = dovetail("plan", "-f", limited, "--at", AT, "--remove", "batch-2fp8k", "-q")
    assert outcome.code == 1
    assert "1 of its 2 pods would have no place" in outcome.out
    assert "  costs " not in outcome.out  # of nodes that would not be enough
    assert "ml/trainer-0: batch-2fp8k → nowhere: " in outcome.out


def test_a_budget_without_a_status_counts_the_pods_of_all_nodes(dovetail: Program) -> None:
    cluster = yaml.safe_load((ROOT / CLUSTER).read_text())
    trainer = next(item for item in cluster["items"] if item["metadata"]["name"] == "trainer-0")
    trainer["metadata"]["annotations"] = {}
    trainer["metadata"]["labels"] = {"app": "trainer"}
    other = copy.deepcopy(trainer)
    other["metadata"] |= {"name": "trainer-1", "uid": "trainer-1"}
    other["spec"]["nodeName"] = next(
        item["metadata"]["name"]
        for item in cluster["items"]
        if item["kind"] == "Node" and item["metadata"]["name"] != trainer["spec"]["nodeName"]
    )
    other["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "trainer", "namespace": "ml"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "trainer"}}},
    }
    cluster["items"] = [item for item in cluster["items"] if item["kind"] != "PodDisruptionBudget"]
    cluster["items"] += [other, budget]
    guarded = dovetail.file(json.dumps(cluster), "guarded.json")
    outcome = dovetail("plan", "-f", guarded, "--at", AT, "--remove", "batch-2fp8k", "-o", "json")
    (removal,) = json.loads(outcome.out)["removals"]
    figures = "1 of 2 pods are healthy, and 1 must be; it allows one when 1 more is healthy"
    assert f"Pod/ml/trainer-0: PodDisruptionBudget trainer allows no disruption now: {figures}" in removal["blockers"]


def test_under_drive_no_node_is_replaced_by_a_cheaper_one(dovetail: Program) -> None:
    """As drive decides."""
    cluster, node = yaml.safe_load((ROOT / CLUSTER).read_text()), "general-8vtqz"
    places = {"Node": ("metadata", "name"), "NodeClaim": ("status", "nodeName"), "Pod": ("spec", "nodeName")}
    cluster["items"] = [
        item
        for item in cluster["items"]
        if (place := places.get(item["kind"])) is None or item[place[0]].get(place[1]) == node
    ]
    alone = dovetail.file(json.dumps(cluster), "alone.json")
    arguments = ("plan", "-f", alone, "--at", "2026-03-07T12:00:00Z", "--reason", "underutilized", "-o", "json")
    run, drive = (
        json.loads(dovetail(*arguments, "--decider", decider).out) for decider in ("dovetail", "dovetail:drive")
    )
    assert [command["decision"] for command in run["commands"]] == ["replace"]
    assert drive["commands"] == []
    why = "its pods need a new node, and nodes are not replaced to save cost here"
    assert [each["why"] for each in drive["nodes"]] == [[why]]


def test_a_node_with_a_pod_that_cannot_be_placed_says_which_and_why(dovetail: Program) -> None:
    cluster = yaml.safe_load((ROOT / CLUSTER).read_text())
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            item["metadata"].pop("annotations", None)
            item["spec"]["nodeSelector"] = {"karpenter.sh/registered": "true"}
        if item["kind"] == "NodePool":
            item["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    odd = dovetail.file(json.dumps(cluster), "odd.json")
    plan = json.loads(dovetail("plan", "-f", odd, "--at", AT, "-o", "json", "--reason", "underutilized").out)
    whys = [why for node in plan["nodes"] for why in node["why"] if "cannot be placed" in why]
    field = "spec.nodeSelector[karpenter.sh/registered]"
    assert whys
    assert all(re.match(rf"pod [a-z]+/[a-z0-9-]+ cannot be placed: {re.escape(field)}: ", why) for why in whys)
    assert "Refused(" not in json.dumps(plan)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nodepool", "nobody"), "there is no NodePool nobody in the input"),
        (("--remove", "nobody"), "there is no node nobody of a NodePool in the input"),
    ],
)
def test_who_is_not_there_is_named(dovetail: Program, arguments: tuple[str, ...], says: str) -> None:
    outcome = dovetail("plan", "-f", CLUSTER, "--at", AT, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err


def test_plan_and_explain_agree_about_nodes_that_leave_wait_or_are_stuck(dovetail: Program) -> None:
    options = ("-f", CLUSTER, "--at", AT, "-o", "json")
    plan, explained = (json.loads(dovetail(command, *options).out) for command in ("plan", "explain"))
    fates = {node["name"]: node["fate"] for node in plan["nodes"]}
    expected = {}
    for node in explained["nodes"]:
        standing, is_leaving = node["answer"]["standing"], node["state"] in ("S3", "S4", "S5", "S6")
        if standing in ("waiting", "stuck"):
            expected[node["name"]] = "stuck" if standing == "stuck" else "leaving" if is_leaving else "waits"
    assert {name: fates[name] for name in expected} == expected
    assert set(expected.values()) == {"stuck", "leaving", "waits"}
