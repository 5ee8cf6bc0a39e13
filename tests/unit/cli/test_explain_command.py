"""`dovetail explain`: the contract of the command line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.api.crd_cases import nodepool
from tests.unit.cli.running import Program

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.yaml")
AT = "2026-03-07T01:30:00Z"
FRIDAY = "2026-03-06T16:20:00Z"

TRAINER = """
apiVersion: v1
kind: List
items:
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata: {name: default}
  spec: {disruption: {budgets: [{nodes: "2"}]}}
- apiVersion: karpenter.sh/v1
  kind: NodeClaim
  metadata: {name: default-x1, creationTimestamp: "2026-03-01T00:00:00Z", labels: {karpenter.sh/nodepool: default}}
  spec: {expireAfter: Never}
  status:
    providerID: kwok://n1
    conditions:
    - {type: Initialized, status: "True", lastTransitionTime: "2026-03-01T00:01:00Z"}
    - {type: Drifted, status: "True", lastTransitionTime: "2026-03-02T00:01:00Z"}
- apiVersion: v1
  kind: Node
  metadata:
    name: n1
    creationTimestamp: "2026-03-01T00:01:00Z"
    labels: {karpenter.sh/nodepool: default, karpenter.sh/registered: "true", karpenter.sh/initialized: "true"}
  spec: {providerID: "kwok://n1"}
  status: {conditions: [{type: Ready, status: "True"}]}
- apiVersion: v1
  kind: Pod
  metadata:
    name: trainer-0
    namespace: ml
    creationTimestamp: "2026-03-05T00:01:00Z"
    annotations: {karpenter.sh/disruption-schedule: "0 2 * * 6", karpenter.sh/disruption-schedule-duration: "6h"}
  spec: {nodeName: n1}
"""


def data(dovetail: Program, *arguments: str, text: str = TRAINER) -> dict[str, Any]:
    outcome = dovetail("explain", "-f", dovetail.file(text), "--at", AT, "-o", "json", *arguments)
    assert outcome.err == ""
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def test_the_example_of_the_contract(dovetail: Program) -> None:
    answer = data(dovetail)
    assert answer["at"] == AT
    (pod,) = answer["pods"]
    opens = "2026-03-07T02:00:00Z"
    assert (pod["namespace"], pod["name"], pod["node"]) == ("ml", "trainer-0", "n1")
    assert (pod["allowed"], pod["until"]) == (False, opens)
    assert [verdict["rule"] for verdict in pod["verdicts"]] == [
        "do-not-disrupt",
        "disruption-schedule",
        "disruption-block-schedule",
        "pod-disruption-budget",
    ]
    assert pod["verdicts"][1] == {
        "rule": "disruption-schedule",
        "allowed": False,
        "until": opens,
        "object": "Pod/ml/trainer-0",
        "message": f"outside its disruption window; next opens {opens} for 6h",
    }
    (node,) = answer["nodes"]
    assert (node["name"], node["nodepool"], node["nodeClaim"], node["state"]) == ("n1", "default", "default-x1", "S2")
    assert (node["freeAt"], node["expiresAt"], node["deadline"]) == (opens, None, None)
    assert [reason["reason"] for reason in node["reasons"]] == ["Empty", "Drifted", "Underutilized", "Expired"]
    drifted = node["reasons"][1]
    assert (drifted["wanted"], drifted["allowed"], drifted["until"]) == (True, False, opens)
    pods = next(verdict for verdict in drifted["verdicts"] if verdict["rule"] == "pods")
    assert [blocker["object"] for blocker in pods["blockers"]] == ["Pod/ml/trainer-0"]
    (pool,) = answer["nodepools"]
    assert pool["budgets"][1] == {
        "reason": "Drifted",
        "limit": 2,
        "disrupting": 0,
        "unhealthy": 0,
        "allowed": 2,
        "until": None,
        "binding": 0,
        "forceful": False,
        "consumers": [],
    }
    assert answer["problems"] == []


def test_protection_counts_from_creation_not_from_start(dovetail: Program) -> None:
    pod = """
        apiVersion: v1
        kind: Pod
        metadata:
          name: ci
          creationTimestamp: "2026-03-06T22:00:00Z"
          annotations: {karpenter.sh/do-not-disrupt: "4h"}
        status: {phase: Running, startTime: "2026-03-06T23:00:00Z"}
        """
    assert data(dovetail, text=pod)["pods"][0]["until"] == "2026-03-07T02:00:00Z"


def test_yaml_and_json_output_hold_the_same(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    as_json = json.loads(dovetail("explain", "-f", file, "--at", AT, "-o", "json").out)
    as_yaml = yaml.safe_load(dovetail("explain", "-f", file, "--at", AT, "-o", "yaml").out)
    assert as_json == as_yaml


def test_json_input_says_the_same_as_yaml(dovetail: Program) -> None:
    as_json = dovetail.file(json.dumps(yaml.safe_load(TRAINER)), "input.json")
    answer = json.loads(dovetail("explain", "-f", as_json, "--at", AT, "-o", "json").out)
    assert answer == data(dovetail)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("pod/ml/trainer-0", 1, id="a protected pod"),
        pytest.param("Pod/ml/trainer-0", 1, id="kind in upper case"),
        pytest.param("node/n1", 1, id="a blocked node"),
        pytest.param("nodeclaim/default-x1", 1, id="its claim"),
        pytest.param("nodepool/default", 0, id="a pool with budget left"),
    ],
)
def test_a_named_object_decides_the_exit_code(dovetail: Program, name: str, code: int) -> None:
    assert dovetail("explain", "-f", dovetail.file(TRAINER), "--at", AT, name).code == code


def test_inside_its_window_the_named_pod_is_free(dovetail: Program) -> None:
    assert (
        dovetail("explain", "-f", dovetail.file(TRAINER), "--at", "2026-03-07T02:00:00Z", "pod/ml/trainer-0").code == 0
    )


def test_a_whole_dump_ends_with_0_although_pods_are_protected(dovetail: Program) -> None:
    assert dovetail("explain", "-f", dovetail.file(TRAINER), "--at", AT).code == 0


def test_the_namespace_of_a_named_pod_can_be_given(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    assert dovetail("explain", "-f", file, "--at", AT, "-n", "ml", "po/trainer-0").code == 1
    missing = dovetail("explain", "-f", file, "--at", AT, "pod/trainer-0")
    assert (missing.code, missing.err) == (
        2,
        "dovetail: pod/default/trainer-0 is not in the input; did you mean pod/ml/trainer-0?\n",
    )


def test_the_name_of_a_workload_suggests_its_pods(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    for name in ("trainer", "pod/ml/trainer"):
        missing = dovetail("explain", "-f", file, "--at", AT, name)
        assert (missing.code, missing.err.endswith("; did you mean pod/ml/trainer-0?\n")) == (2, True)


def test_only_the_named_objects_are_told(dovetail: Program) -> None:
    answer = data(dovetail, "node/n1")
    assert ([node["name"] for node in answer["nodes"]], answer["pods"], answer["nodepools"]) == (["n1"], [], [])


@pytest.mark.parametrize("name", ["nothing", "service/x", "pod/", "/x"])
def test_a_name_without_a_known_kind_is_refused(dovetail: Program, name: str) -> None:
    outcome = dovetail("explain", "-f", dovetail.file(TRAINER), name)
    assert outcome.code == 2
    assert outcome.err.startswith(f"dovetail: {name}: want KIND/NAME")


def test_a_table_tells_people_in_their_zone(dovetail: Program) -> None:
    outcome = dovetail("explain", "-f", dovetail.file(TRAINER), "--at", AT, "--tz", "Europe/Berlin")
    assert "next opens 2026-03-07T03:00:00+01:00 (in 30m) for 6h" in outcome.out
    assert "2026-03-07T02:00:00Z" not in outcome.out
    assert "\x1b" not in outcome.out


def test_control_characters_in_names_do_not_reach_the_terminal(dovetail: Program) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a\x1b[31mb\r", "annotations": {
        "karpenter.sh/do-not-disrupt": "\x1b]0;title\x07"}}})  # fmt: skip
    outcome = dovetail("explain", "-f", dovetail.file(text), "--at", AT)
    assert outcome.code == 0
    assert not {"\x1b", "\r", "\x07"} & set(outcome.out)
    assert r"a\x1b[31mb\r" in outcome.out


def test_reading_from_standard_input_a_directory_and_several_files(dovetail: Program) -> None:
    by_stdin = dovetail("explain", "-f", "-", "--at", AT, "-o", "json", stdin=TRAINER.encode()).out
    folder = dovetail.folder / "dump"
    folder.mkdir()
    parts = yaml.safe_load(TRAINER)["items"]
    for number, part in enumerate(parts):
        (folder / f"{number}.{'json' if number % 2 else 'yaml'}").write_text(json.dumps(part))
    (folder / "notes.txt").write_text("not a manifest: [")
    by_folder = dovetail("explain", "-f", str(folder), "--at", AT, "-o", "json").out
    files = [argument for number in range(len(parts)) for argument in ("-f", str(next(folder.glob(f"{number}.*"))))]
    by_files = dovetail("explain", *files, "--at", AT, "-o", "json").out
    assert json.loads(by_stdin) == json.loads(by_folder) == json.loads(by_files)


def test_the_same_input_gives_the_same_bytes(dovetail: Program) -> None:
    first, second = (dovetail("explain", "-f", CLUSTER, "--at", AT, "-o", "json").out for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("budget", "rule"),
    [
        ({"nodes": "5x"}, "InvalidBudget"),
        ({"nodes": "1", "reasons": ["Foo"]}, "InvalidBudget"),
        ({"reasons": ["Drifted"]}, "InvalidField"),
    ],
)
def test_a_mistake_of_a_budget_is_told_once(dovetail: Program, budget: dict[str, Any], rule: str) -> None:
    """That the field is refused, too, said that it counts as not set: the budget counts as 0."""
    pool = nodepool({"disruption": {"budgets": [budget]}})
    outcome = dovetail("explain", "-f", dovetail.file(json.dumps(pool)), "--at", AT, "-o", "json")
    assert [problem["rule"] for problem in json.loads(outcome.out)["problems"]] == [rule]


def test_quiet_does_not_say_of_free_pods_that_they_are_not_there(dovetail: Program) -> None:
    told = {
        namespace: dovetail("explain", "-f", CLUSTER, "--at", AT, "-n", namespace, "-q").out
        for namespace in ("kube-system", "nowhere")
    }
    assert "no pod of namespace kube-system is protected" in told["kube-system"]
    assert "there are no pods in namespace nowhere" in told["nowhere"]


def test_quiet_leaves_out_what_is_free_and_verbose_tells_every_rule(dovetail: Program) -> None:
    quiet, normal, verbose = (
        dovetail("explain", "-f", CLUSTER, "--at", "2026-03-06T16:20:00Z", *option).out
        for option in (["-q"], [], ["-v"])
    )
    assert "general-4xk9d" not in quiet
    assert "general-4xk9d" in normal
    assert "Problems" in normal
    assert "Problems" not in quiet
    assert "no PodDisruptionBudget selects it" in verbose
    assert "no PodDisruptionBudget selects it" not in normal


def test_an_input_without_anything_to_explain_says_so(dovetail: Program) -> None:
    outcome = dovetail("explain", "-f", dovetail.file(""), "--at", AT)
    assert outcome.code == 0
    assert "nothing to explain" in outcome.out


def test_without_input_one_line_says_what_to_give(dovetail: Program) -> None:
    outcome = dovetail("explain")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "-f FILE" in outcome.err


def test_the_upstream_reading_of_budgets_can_be_chosen(dovetail: Program) -> None:
    text = TRAINER.replace('[{nodes: "2"}]', '[{nodes: "2", reasons: [drifted]}, {nodes: "1"}]')
    limits = {
        reading: data(dovetail, "--budget-reading", reading, text=text)["nodepools"][0]["budgets"][1]["limit"]
        for reading in ("by-reason", "upstream")
    }
    assert limits == {"by-reason": 2, "upstream": 1}
    (problem,) = data(dovetail, text=text)["problems"]
    assert (problem["rule"], problem["object"]) == ("BudgetReadingDiffers", "NodePool/default")


DRAINING = """
apiVersion: v1
kind: List
items:
- apiVersion: karpenter.sh/v1
  kind: NodeClaim
  metadata:
    name: c
    creationTimestamp: "2026-03-01T00:00:00Z"
    deletionTimestamp: "2026-03-06T00:00:00Z"
    labels: {karpenter.sh/nodepool: default}
  spec: {terminationGracePeriod: 15m}
  status: {providerID: "kwok://n1"}
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {karpenter.sh/nodepool: default}}
  spec: {providerID: "kwok://n1"}
- apiVersion: v1
  kind: Pod
  metadata:
    name: p
    namespace: d
    creationTimestamp: "2026-03-01T00:00:00Z"
    annotations: {karpenter.sh/disruption-schedule: "0 2 * * 6"}
  spec: {nodeName: n1, terminationGracePeriodSeconds: 600}
- apiVersion: v1
  kind: Pod
  metadata:
    name: mirror
    namespace: d
    ownerReferences: [{apiVersion: v1, kind: Node, name: n1}]
  spec: {nodeName: n1, terminationGracePeriodSeconds: 600}
"""


@pytest.mark.parametrize(
    ("now", "allowed", "until"),
    [
        ("2026-03-06T00:04:59Z", False, "2026-03-06T00:05:00Z"),
        ("2026-03-06T00:05:00Z", True, None),
        ("2026-03-06T00:20:00Z", True, None),
    ],
)
def test_no_protection_counts_once_a_pod_is_deleted_for_the_deadline(
    dovetail: Program, now: str, allowed: bool, until: str | None
) -> None:
    """R13, R17: 15 minutes for the drain less 10 for the pod."""
    answer = json.loads(dovetail("explain", "-f", dovetail.file(DRAINING), "--at", now, "-o", "json").out)
    pod = next(pod for pod in answer["pods"] if pod["name"] == "p")
    assert (pod["allowed"], pod["until"]) == (allowed, until)
    (node,) = answer["nodes"]
    assert node["deadline"] == "2026-03-06T00:15:00Z"
    assert [deletion["pod"] for deletion in node["forcedDeletions"]] == ["Pod/d/p"]


# -- a span -----------------------------------------------------------------------------------------------------------


def test_a_span_adds_what_changes_within_it(dovetail: Program) -> None:
    answer = data(dovetail, "--for", "36h")
    opens, closes = "2026-03-07T02:00:00Z", "2026-03-07T08:00:00Z"
    assert (answer["at"], answer["end"]) == (AT, "2026-03-08T13:30:00Z")
    assert answer["pods"][0]["changes"] == [{"at": opens, "allowed": True}, {"at": closes, "allowed": False}]
    too_late = "2026-03-07T07:59:00Z"  # for a node to boot before the window closes
    assert answer["nodes"][0]["changes"] == [
        {"at": at, "reason": reason, "wanted": reason == "Drifted", "allowed": at == opens}
        for at, reason in (
            *((opens, each) for each in ("Empty", "Drifted", "Underutilized")),
            *((too_late, each) for each in ("Drifted", "Underutilized")),
            (closes, "Empty"),
        )
    ]


def test_without_a_span_the_keys_are_as_ever(dovetail: Program) -> None:
    plain, ahead = data(dovetail), data(dovetail, "--for", "36h")
    assert "end" not in plain
    del ahead["end"], ahead["pods"][0]["changes"], ahead["nodes"][0]["changes"]
    assert ahead == plain


def test_the_table_has_a_line_for_each_that_changes(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    out = dovetail("explain", "-f", file, "--at", AT, "--for", "36h", "--tz", "Europe/Berlin").out
    assert out.endswith(
        "Changes\n"
        "until 2026-03-08T14:30:00+01:00 (in 36h)\n"
        "Node/n1: 2026-03-07T03:00:00+01:00 (in 30m) Empty and Underutilized allowed, Drifted wanted and allowed; "
        "2026-03-07T08:59:00+01:00 (in 6h29m) Drifted wanted but blocked, Underutilized blocked; "
        "2026-03-07T09:00:00+01:00 (in 6h30m) Empty blocked\n"
        "Pod/ml/trainer-0: 2026-03-07T03:00:00+01:00 (in 30m) can be disrupted; "
        "2026-03-07T09:00:00+01:00 (in 6h30m) protected\n"
    )
    assert "Changes" not in dovetail("explain", "-f", file, "--at", AT).out


def test_a_span_in_which_nothing_changes_says_so(dovetail: Program) -> None:
    out = dovetail("explain", "-f", dovetail.file(TRAINER), "--at", AT, "--for", "29m59s").out
    assert out.endswith("until 2026-03-07T01:59:59Z (in 29m59s)\nnone, if nothing but time changes\n")


def test_a_line_of_changes_is_cut_and_data_are_not(dovetail: Program) -> None:
    answer = data(dovetail, "--for", "70d", "pod/ml/trainer-0")
    assert len(answer["pods"][0]["changes"]) == 20
    out = dovetail("explain", "-f", dovetail.file(TRAINER), "--at", AT, "--for", "70d", "pod/ml/trainer-0").out
    assert out.endswith("2026-03-21T08:00:00Z (in 14d6h) protected; and 14 more\n")


def test_a_span_leaves_the_exit_code_alone(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    assert dovetail("explain", "-f", file, "--at", AT, "--for", "7d", "pod/ml/trainer-0").code == 1
    assert dovetail("explain", "-f", file, "--at", AT, "--for", "7d").code == 0


def test_yaml_output_of_a_span_holds_the_same(dovetail: Program) -> None:
    file = dovetail.file(TRAINER)
    shown = dovetail("explain", "-f", file, "--at", AT, "--for", "36h", "-o", "yaml").out
    assert yaml.safe_load(shown) == data(dovetail, "--for", "36h")


@pytest.mark.parametrize(
    ("span", "end"),
    [
        ("36h", "2026-03-08T13:30:00Z"),
        ("7d", "2026-03-14T01:30:00Z"),
        ("1d12h", "2026-03-08T13:30:00Z"),
        ("1d0h90m", "2026-03-08T03:00:00Z"),
        ("1s", "2026-03-07T01:30:01Z"),
        ("1825d", "2031-03-06T01:30:00Z"),
    ],
)
def test_forms_of_a_span(dovetail: Program, span: str, end: str) -> None:
    assert data(dovetail, "--for", span)["end"] == end


@pytest.mark.parametrize(
    "span", ["", "0h", "0d", "7", "d", "1w", "-1h", "36H", "1.5h", "1826d", "12h1d", "999999999d", "9" * 30 + "h", "٧d"]
)
@pytest.mark.parametrize("command", ["explain", "lint"])
def test_other_spans_are_refused_in_one_line(dovetail: Program, command: str, span: str) -> None:
    outcome = dovetail(command, "-f", dovetail.file(TRAINER), "--for", span)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "--for" in outcome.err


def test_a_span_beyond_the_calendar_is_refused(dovetail: Program) -> None:
    outcome = dovetail("explain", "-f", dovetail.file(TRAINER), "--at", "9999-12-31T00:00:00Z", "--for", "2d")
    assert (outcome.code, outcome.err) == (2, "dovetail: --for ends beyond the calendar\n")


# -- a namespace ------------------------------------------------------------------------------------------------------


def test_a_namespace_leaves_out_the_pods_of_others(dovetail: Program) -> None:
    everything = json.loads(dovetail("explain", "-f", CLUSTER, "--at", AT, "-o", "json").out)
    shop = json.loads(dovetail("explain", "-f", CLUSTER, "--at", AT, "-o", "json", "-n", "shop").out)
    assert shop["pods"] == [pod for pod in everything["pods"] if pod["namespace"] == "shop"]
    assert shop["pods"]
    on = {pod["node"] for pod in shop["pods"]}
    assert shop["nodes"] == [node for node in everything["nodes"] if node["name"] in on]
    assert {pool["name"] for pool in shop["nodepools"]} == {node["nodepool"] for node in shop["nodes"]}
    left_out = {problem["object"] for problem in everything["problems"] if problem not in shop["problems"]}
    assert "NodeClaim/services-6bqnc" in left_out  # none of its pods is in the namespace
    assert not any(name.startswith("Pod/shop/") for name in left_out)
    assert {problem["object"].partition("/")[0] for problem in shop["problems"]} <= {"Pod", "Node", "NodePool"}


def test_rules_that_are_not_checked_or_misread_have_their_own_sign(dovetail: Program) -> None:
    options = ("-f", CLUSTER, "--at", AT)
    pod = dovetail("explain", *options, "search-7f6b5d9c48-m3kqv").out
    assert "  ! disruption-schedule: hours '22-6' cross midnight" in pod
    node = dovetail("explain", *options, "-v", "node/general-4xk9d").out
    assert "    – node-do-not-disrupt, initialized, nodepool, budget: not checked: expireAfter ignores it" in node
    data = json.loads(dovetail("explain", *options, "node/general-4xk9d", "-o", "json").out)
    (expired,) = (each for each in data["nodes"][0]["reasons"] if each["reason"] == "Expired")
    remarks = {each["rule"]: each.get("remark") for each in expired["verdicts"]}
    assert remarks == {
        "node-do-not-disrupt": "unchecked",
        "initialized": "unchecked",
        "deleting": None,
        "nodepool": "unchecked",
        "pods": None,
        "budget": "unchecked",
    }


def test_the_distance_stands_behind_the_instant_that_changes_the_answer(dovetail: Program) -> None:
    """A drain honours the window, which comes before its deadline; the notebook has none, so the deadline counts."""
    lines = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, "node/batch-9dwlm").out.splitlines()
    (window,) = (line for line in lines if "feature-backfill-9wz4r  ✗" in line)
    assert re.findall(r"(\S+) \((in \S+)\)", window) == [("2026-03-08T00:00:00Z", "in 31h40m")]
    (notebook,) = (line for line in lines if "notebook-anna-0  ✗" in line)
    assert re.findall(r"(\S+) \((in \S+)\)", notebook) == [("2026-03-09T08:00:00Z", "in 2d15h")]


@pytest.mark.parametrize("command", ["explain", "lint"])
def test_every_command_has_the_common_options(dovetail: Program, command: str) -> None:
    shown = dovetail(command, "--help").out
    options = ["-f", "-o", "--at", "--for", "--tz", "-n", "-q", "-v"]
    assert [option for option in options if f"  {option}" not in shown] == []


def test_a_namespace_has_a_table_of_its_pods_and_their_nodes(dovetail: Program) -> None:
    lines = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, "-n", "ml").out.splitlines()
    assert lines[3] == "Pods of ml"
    assert lines[4].split() == ["POD", "NODE", "DISRUPTION", "UNTIL", "FORCED", "BLOCKS", "WHY"]
    rows = {line.split()[0]: line for line in lines[5 : lines.index("", 5)]}
    assert rows["notebook-anna-0"].split()[1:7] == ["batch-9dwlm", "protected", "in", "2d15h", "in", "2d15h"]
    assert rows["etl-loader-vx8nf"].split()[1:7] == ["batch-9dwlm", "allowed", "-", "-", "-", "terminating,"]
    nodes = lines[lines.index("Nodes") + 2 :]
    assert [line.split()[0] for line in nodes[: nodes.index("")]] == ["batch-2fp8k", "batch-9dwlm", "batch-t5hxv"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("general-8vtqz", "general-8vtqz has been waiting (Drifted) since"),
        ("no/general-8vtqz", "general-8vtqz has been waiting (Drifted) since"),
        ("nc/services-r8tkd", "services-r8tkd has been leaving (Expired, S3 disrupting) since"),
    ],
)
def test_short_kinds_and_names_alone(dovetail: Program, named: str, said: str) -> None:
    assert dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, named).out.splitlines()[3].startswith(said)


@pytest.mark.parametrize(
    ("named", "meant"),
    [("node/general-8vtqx", "node/general-8vtqz?"), ("general-8vtqx", "node/general-8vtqz")],
)
def test_a_misspelt_name_is_corrected(dovetail: Program, named: str, meant: str) -> None:
    outcome = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, named)
    assert outcome.code == 2
    assert f"did you mean {meant}" in outcome.err


@pytest.mark.parametrize("command", ["explain", "forecast", "plan", "simulate"])
def test_an_old_dump_is_told_with_the_time_at_which_it_was_taken(dovetail: Program, command: str) -> None:
    span = ["--for", "1m"] if command == "simulate" else []  # instead of a week
    old = dovetail(command, "-f", CLUSTER, "--at", "2026-05-01T00:00:00Z", *span).out
    assert "→ ask about the time at which it was taken: --at 2026-03-06T16:18:52Z" in old
    assert "OldDump" not in dovetail(command, "-f", CLUSTER, "--at", FRIDAY, *span).out


def test_a_whole_dump_begins_with_totals(dovetail: Program) -> None:
    lines = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY).out.splitlines()
    assert lines[2] == "12 nodes: 1 stuck, 4 waiting, 2 leaving, 1 starting, 1 may go, 3 stay"
    assert lines[3].startswith(
        "blocked most by: Deployment/shop/checkout (disruption-block-schedule) 2 nodes, NodePool/"
    )
    assert lines[3].endswith(" and 9 more (-v)")
    assert lines[4] == "1 pod is pending: it has found no node yet; dovetail explain pod/ml/trainer-1 says why"
    every = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, "-v").out
    for owner in ("PodDisruptionBudget/data/postgres (pod-disruption-budget)", "StatefulSet/ml/notebook-anna"):
        assert owner in every.splitlines()[3]


@pytest.mark.parametrize("command", ["explain", "forecast"])
def test_pools_without_nodes_are_one_line(dovetail: Program, tmp_path: Path, command: str) -> None:
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    spec = {"template": {"spec": {"requirements": [], "nodeClassRef": node_class}}}
    head = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}
    spare = [{**head, "metadata": {"name": f"spare-{number:02}"}, "spec": spec} for number in range(12)]
    (tmp_path / "spare.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": spare}))
    asked = (command, "-f", CLUSTER, "-f", str(tmp_path / "spare.json"), "--at", FRIDAY)
    named = ", ".join(f"spare-{number:02}" for number in range(10))
    assert f"without nodes (-v shows them): {named} and 2 more" in dovetail(*asked).out
    assert "spare-11" in dovetail(*asked, "-v").out


def test_each_cause_is_told_once(dovetail: Program) -> None:
    asked = ("explain", "-f", CLUSTER, "--at", FRIDAY)
    brief, every = dovetail(*asked).out, dovetail(*asked, "-v").out
    assert brief.count("postgres can never allow it") == 1
    assert every.count("postgres can never allow it") > 1
    # A node that has a reason is not asked about others.
    of_node = dovetail(*asked, "node/general-8vtqz").out
    assert "  Drifted: wanted, blocked by pods, budget until" in of_node
    assert "  Underutilized: " not in of_node
    assert "  Underutilized: " in dovetail(*asked, "node/general-8vtqz", "-v").out
    assert "batch 3 Empty, Underutilized 1 1 0 0 -" in (" ".join(line.split()) for line in brief.splitlines())


def test_every_command_shows_the_same_problems(dovetail: Program) -> None:
    asked = ("-f", CLUSTER, "--at", FRIDAY, "-o", "json")
    explained, planned = (json.loads(dovetail(command, *asked).out)["problems"] for command in ("explain", "plan"))
    assert explained
    assert all(problem in planned for problem in explained)


def test_explain_has_the_findings_of_lint(dovetail: Program) -> None:
    """Names that nothing reads, windows that never open, budgets that never allow, and what to write instead."""
    text = (
        TRAINER.replace("disruption-schedule-duration", "disruption-duration")
        .replace("0 2 * * 6", "0 22-6 * * *")
        .replace(
            'budgets: [{nodes: "2"}]', 'budgets: [{nodes: "0", schedule: "0 9 * * 1-5 *", duration: 1d}, {nodes: "0"}]'
        )
        .replace(
            'initialized: "true"}',
            'initialized: "true"}\n'
            '    annotations: {karpenter.sh/do-not-disrupt: 1d, karpenter.sh/do-not-repiar: "true"}',
        )
    )
    pod, label = (
        f"""
- apiVersion: v1
  kind: Pod
  metadata: {{name: {name}, namespace: ml, {holder}: {{{key}: "0 0 31 2 *"}}}}
  spec: {{nodeName: n1}}
"""
        for name, holder, key in (
            ("never", "annotations", "karpenter.sh/disruption-schedule"),
            ("label", "labels", "karpenter.sh/disruption-schedule"),
        )
    )
    answer = data(dovetail, text=text + pod + label)
    found = {(problem["rule"], problem["object"]): problem["remedy"] for problem in answer["problems"]}
    lint = json.loads(dovetail("lint", dovetail.file(text + pod + label), "--at", AT, "-o", "json").out)
    told = {(problem["rule"], problem["object"]): problem["remedy"] for problem in lint["problems"]}
    for key in (
        ("InvalidDisruptionSchedule", "Pod/ml/trainer-0"),
        ("UnknownAnnotation", "Pod/ml/trainer-0"),
        ("ScheduleNeverFires", "Pod/ml/never"),
        ("AnnotationAsLabel", "Pod/ml/label"),
        ("InvalidDoNotDisrupt", "Node/n1"),
        ("UnknownAnnotation", "Node/n1"),
        ("InvalidBudget", "NodePool/default"),
        ("InvalidField", "NodePool/default"),
        ("BudgetBlocksForever", "NodePool/default"),
    ):
        assert found[key] == told[key]


def test_a_kind_that_lint_reads_is_not_reported_as_unread(dovetail: Program) -> None:
    others = "\n".join(
        f"- {{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}}}"
        for version, kind in (("batch/v1", "CronJob"), ("x/v1", "Odd"))
    )
    problems = data(dovetail, text=f"{TRAINER}\n{others}\n")["problems"]
    assert [problem["object"] for problem in problems if problem["rule"] == "NotRead"] == ["x/v1 Odd"]
