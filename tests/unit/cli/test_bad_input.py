"""Every file is untrusted: a ruling's behaviour with a problem, or exit 2 with one line, never a traceback."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.unit.cli.running import Outcome, Program

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SCHEDULE = "karpenter.sh/disruption-schedule"


def pod(**annotations: object) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "n", "creationTimestamp": "2026-03-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": annotations}}


def explained(dovetail: Program, *objects: object) -> dict[str, Any]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    outcome = dovetail("explain", "-f", dovetail.file(text), "--at", "2026-03-02T00:00:00Z", "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def assert_one_line(outcome: Outcome, *parts: str) -> None:
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err


# -- refused with one line --------------------------------------------------------------------------------------------

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "yaml syntax": (b"kind: [", ["line"]),
    "truncated json": (b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"na', ["document 1"]),
    "duplicate yaml key": (b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nkind: Node\n", ["kind", "line 4"]),
    "duplicate json key": (b'{"apiVersion": "v1", "kind": "Pod", "kind": "Node"}', ["kind"]),
    "yaml bomb": (f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{BOMB}".encode(), ["document 1"]),
    "recursive alias": (b"apiVersion: v1\nkind: Pod\nmetadata: &m {name: a, x: *m}\n", ["document 1"]),
    "python tag": (b"apiVersion: v1\nkind: Pod\nmetadata: !!python/object:os.system {}\n", ["tag"]),
    "nul": (b"apiVersion: v1\nkind: Pod\x00\n", ["NUL"]),
    "utf-16": ("apiVersion: v1\nkind: Pod\n".encode("utf-16"), ["UTF-16"]),
    "not utf-8": (b"apiVersion: v1\nkind: P\xffd\n", ["UTF-8"]),
    "deep nesting": (b"[" * 100_000, ["deep"]),
    "deep json": (b'{"apiVersion": "v1", "kind": "Pod", "x": ' + b"[" * 100_000, ["input"]),
    "no kind": (b"apiVersion: v1\nmetadata: {name: a}\n", ["kind"]),
    "no apiVersion": (b"kind: Pod\nmetadata: {name: a}\n", ["apiVersion"]),
    "a list of numbers": (b"[1, 2]", ["document 1"]),
    "a word": (b"hello", ["document 1"]),
    "a number where any number may stand": (
        b'{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"x": [{}, 1e999]}}',
        ["document 1: spec.x[1]: number is out of range\n"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_explain_refuses_with_one_line(dovetail: Program, name: str) -> None:
    text, parts = REFUSED[name]
    assert_one_line(dovetail("explain", "-f", dovetail.file(text)), "input.yaml", *parts)


# -- an object that cannot be read is left out, with a problem --------------------------------------------------------

GOOD_POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: good}\n---\n"
RANGE = "number is out of range"
LEFT_OUT = {
    "no name": (b"apiVersion: v1\nkind: Pod\n", "Pod/?", "metadata.name", "is required"),
    "metadata is a list": (b"apiVersion: v1\nkind: Pod\nmetadata: []\n", "Pod/?", "metadata", "expected"),
    "labels are a list": (
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [b]}\n", "Pod/a", "metadata.labels", "expected"
    ),
    "name is a number": (b"apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n", "Pod/7", "metadata.name", "expected"),
    "time is a number": (
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: 7}\n",
        "Pod/a", "metadata.creationTimestamp", "expected",
    ),
    "time is nonsense": (
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: yesterday}\n",
        "Pod/a", "metadata.creationTimestamp", "",
    ),
    "item of a list": (
        b'{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": 1}}]}',
        "Node/1", "metadata.name", "expected a string, got an integer",
    ),
    "a number that no float can hold": (
        b'{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "b"}},'
        b'{"metadata": {"name": "a"}, "spec": {"priority": 1e400}}]}',
        "Pod/?", "spec.priority", RANGE,
    ),
    "an integer of 5000 digits": (
        b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": '
        + b"9" * 5000 + b"}}",
        "Pod/?", "spec.terminationGracePeriodSeconds", RANGE,
    ),
    "the same in YAML": (
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  terminationGracePeriodSeconds: " + b"9" * 5000,
        "Pod/a", "spec.terminationGracePeriodSeconds", "expected an integer, got a string",
    ),
    "a float for an integer": (
        b'{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"replicas": 1.5}}',
        "NodePool/a", "spec.replicas", "expected an integer, got a number",
    ),
    "a selector's label is a number": (
        b"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n"
        b"spec: {selector: {matchLabels: {app: a, app.kubernetes.io/version: 7}}}\n",
        "PodDisruptionBudget/a", "spec.selector.matchLabels[app.kubernetes.io/version]",
        "expected a string, got an integer",
    ),
    "budgets are a string": (
        b"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {disruption: {budgets: none}}\n",
        "NodePool/a", "spec.disruption.budgets", "expected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_explain_leaves_out_an_object_that_cannot_be_read(dovetail: Program, name: str) -> None:
    text, object_, field, message = LEFT_OUT[name]
    good, bad = dovetail.file(GOOD_POD, name="good.yaml"), dovetail.file(text)
    outcome = dovetail("explain", "-f", good, "-f", bad, "-o", "json", "pod/default/good")
    assert (outcome.code, outcome.err) == (0, "")
    assert [pod["name"] for pod in json.loads(outcome.out)["pods"]] == ["good"]
    problems = json.loads(dovetail("explain", "-f", good, "-f", bad, "-o", "json").out)["problems"]
    (problem,) = (each for each in problems if each["rule"] == "InvalidObject")
    assert (problem["object"], problem["field"]) == (object_, field)
    assert message in problem["message"]
    assert "input.yaml: " in problem["file"]


def test_lint_names_the_exact_field_of_a_number_out_of_range(dovetail: Program) -> None:
    text = json.dumps(pod() | {"spec": {"tolerations": [{}, {"key": 0}]}}).replace('"key": 0', '"key": 1e400')
    outcome = dovetail("lint", "-o", "json", dovetail.file(text))
    (problem,) = json.loads(outcome.out)["problems"]
    assert (problem["rule"], problem["field"]) == ("InvalidObject", "spec.tolerations[1].key")
    assert problem["message"].startswith("number is out of range")


def test_an_integer_of_any_length_is_a_priority(dovetail: Program) -> None:
    """Python's integers have no limit up to 4300 digits, but a quotient of them has."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"karpenter.sh/initialized": "true"}},
        "spec": {"providerID": "i"},
    }
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"}, "spec": {}}
    one = pod() | {"spec": {"nodeName": "a", "priority": -int("9" * 4000)}}
    answer = explained(dovetail, node, claim | {"status": {"providerID": "i"}}, one)
    empty = answer["nodes"][0]["reasons"][0]
    assert (empty["reason"], empty["wanted"]) == ("Empty", False)  # a pod that costs nothing needs a place, too (R51)


def test_a_missing_file_and_an_empty_directory(dovetail: Program) -> None:
    assert_one_line(dovetail("explain", "-f", "/no/such/file"), "/no/such/file: No such file")
    assert_one_line(dovetail("lint", "/no/such/file"), "/no/such/file: No such file")
    assert_one_line(dovetail("explain", "-f", str(dovetail.folder)), "has no .yaml")
    assert_one_line(dovetail("explain", "-f", "a\0b"), "a")


# -- understood with a problem ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["4hours", "", "0", "-1h", "٤h", "1d", "x" * 2**20, "9" * 2**20, "9h" * 2**19])
def test_a_bad_do_not_disrupt_protects_and_is_a_problem(dovetail: Program, value: str) -> None:
    answer = explained(dovetail, pod(**{DO_NOT_DISRUPT: value}))
    assert (answer["pods"][0]["allowed"], answer["pods"][0]["until"]) == (False, None)
    (problem,) = answer["problems"]
    assert (problem["rule"], problem["object"]) == ("InvalidDoNotDisrupt", "Pod/n/p")
    assert problem["field"] == f"metadata.annotations[{DO_NOT_DISRUPT}]"
    assert len(problem["message"]) < 300


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "* * * * * *",
        "CRON_TZ=Mars/Olympus 0 2 * * 6",
        "٠ 2 * * *",
        "0 2 * * 6" + " " * 2**20,
        ";".join(["0 2 * * 6"] * 10_000),
        "x" * 2**20,
        "1" * 2**20 + " * * * *",
        ";" * 2**20,
    ],
)  # fmt: skip
def test_a_bad_schedule_allows_and_is_a_problem(dovetail: Program, value: str) -> None:
    answer = explained(dovetail, pod(**{SCHEDULE: value}))
    assert answer["pods"][0]["allowed"]
    assert {problem["rule"] for problem in answer["problems"]} == {"InvalidDisruptionSchedule"}
    assert all(len(problem["message"]) < 300 for problem in answer["problems"])


@pytest.mark.parametrize(
    ("value", "allowed"), [(True, False), (4, False), (["4h"], False), ({"a": 1}, False), (False, True)]
)
def test_an_annotation_that_is_no_string_counts_as_its_text(dovetail: Program, value: object, allowed: bool) -> None:
    answer = explained(dovetail, pod(**{DO_NOT_DISRUPT: value}))
    assert answer["pods"][0]["allowed"] is allowed
    assert "NotAString" in {problem["rule"] for problem in answer["problems"]}


def test_nulls_are_absent(dovetail: Program) -> None:
    odd = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": None, "creationTimestamp": None}}
    answer = explained(dovetail, odd | {"spec": None, "status": {"conditions": None}})
    assert answer["pods"][0]["allowed"]
    assert answer["problems"] == []


def test_unknown_kinds_are_ignored_and_counted(dovetail: Program) -> None:
    unread = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    stranger = {"apiVersion": "example.com/v1", "kind": "Pod", "metadata": {"name": "not ours"}}
    answer = explained(dovetail, unread, unread, stranger)
    assert [(problem["severity"], problem["object"], problem["message"]) for problem in answer["problems"]] == [
        ("info", "example.com/v1 Pod", "1 object of a kind that no rule reads"),
        ("info", "v1 ConfigMap", "2 objects of a kind that no rule reads"),
    ]
    assert answer["pods"] == []


def test_of_two_objects_with_one_name_the_last_counts(dovetail: Program) -> None:
    answer = explained(dovetail, pod(**{DO_NOT_DISRUPT: "true"}), pod())
    assert [one["allowed"] for one in answer["pods"]] == [True]
    assert [(problem["rule"], problem["object"]) for problem in answer["problems"]] == [("DuplicateObject", "Pod/n/p")]


def test_missing_timestamps(dovetail: Program) -> None:
    young = pod(**{DO_NOT_DISRUPT: "4h"})
    del young["metadata"]["creationTimestamp"]
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}}
    answer = explained(dovetail, young, claim)
    assert (answer["pods"][0]["allowed"], answer["pods"][0]["until"]) == (False, None)
    assert answer["nodes"][0]["expiresAt"] is None
    assert [problem["rule"] for problem in answer["problems"]] == ["CreationTimestampMissing"]


def test_an_old_api_version_is_read_and_told(dovetail: Program) -> None:
    pool = {"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "a"}}
    answer = explained(dovetail, pool)
    assert [one["name"] for one in answer["nodepools"]] == ["a"]
    assert [problem["rule"] for problem in answer["problems"]] == ["OldApiVersion"]


def test_what_looks_like_a_time_in_an_annotation_is_only_text(dovetail: Program) -> None:
    text = json.dumps(pod(**{DO_NOT_DISRUPT: "2026-13-45T99:99:99Z"}))
    outcome = dovetail("explain", "-f", dovetail.file(text), "--tz", "Asia/Tokyo")
    assert outcome.code == 0
    assert "2026-13-45T99:99:99Z" in outcome.out


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_the_ends_of_the_calendar_are_no_error(dovetail: Program, created: str, zone: str) -> None:
    one = pod(**{DO_NOT_DISRUPT: "4h"})
    one["metadata"]["creationTimestamp"] = created
    file = dovetail.file(json.dumps(one))
    for at in ("0001-01-01T00:00:00Z", "2026-03-06T00:00:00Z", "9999-12-31T23:59:59Z"):
        assert dovetail("explain", "-v", "-f", file, "--at", at, "--tz", zone).code == 0


def test_unreadable_durations_of_pools_and_claims_are_problems(dovetail: Program) -> None:
    spec = {"disruption": {"consolidateAfter": "1d", "gracefulExpireAfter": "1w", "budgets": [{"nodes": 5}]}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}}
    claim["spec"] = {"expireAfter": "30 days", "terminationGracePeriod": "1day"}
    found = {(problem["object"], problem["field"]) for problem in explained(dovetail, pool, claim)["problems"]}
    assert found >= {
        ("NodePool/p", "spec.disruption.consolidateAfter"),
        ("NodePool/p", "spec.disruption.gracefulExpireAfter"),
        ("NodePool/p", "spec.disruption.budgets[0].nodes"),
        ("NodeClaim/c", "spec.expireAfter"),
        ("NodeClaim/c", "spec.terminationGracePeriod"),
    }


def test_more_budgets_than_the_api_takes_are_a_problem_and_no_hang(dovetail: Program) -> None:
    budgets = [{"nodes": "1", "schedule": f"{n % 60} {n % 24} * * *", "duration": "1h"} for n in range(10_000)]
    spec = {"disruption": {"budgets": budgets}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    fields = {problem["field"] for problem in explained(dovetail, pool)["problems"]}
    assert "spec.disruption.budgets" in fields


def test_an_annotation_without_a_value_is_an_empty_one(dovetail: Program) -> None:
    answer = explained(dovetail, pod(**{DO_NOT_DISRUPT: None}))
    assert not answer["pods"][0]["allowed"]
    assert {problem["rule"] for problem in answer["problems"]} == {"NotAString", "InvalidDoNotDisrupt"}


def test_a_finished_pod_has_no_problem(dovetail: Program) -> None:
    answer = explained(dovetail, pod(**{DO_NOT_DISRUPT: "4hours"}) | {"status": {"phase": "Succeeded"}})
    assert answer["pods"][0]["allowed"]
    assert answer["problems"] == []


def test_nodes_without_pods_are_told_to_be_half_the_truth(dovetail: Program) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    assert [problem["rule"] for problem in explained(dovetail, node)["problems"]] == ["NoNodePools", "NoPods"]


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_directory_loses_nothing_silently(dovetail: Program) -> None:
    folder = dovetail.folder / "dump"
    (folder / "real").mkdir(parents=True)
    (folder / "UP.YAML").write_text(json.dumps(pod()))
    (folder / "real" / "b.json").write_text(json.dumps(pod() | {"kind": "Node"}))
    (folder / "loop").symlink_to(folder)
    shown = dovetail("explain", "-f", str(folder), "-o", "json")
    assert shown.code == 0
    answer = json.loads(shown.out)
    assert (len(answer["pods"]), len(answer["nodes"])) == (1, 1)
    (folder / "gone.yaml").symlink_to(folder / "nowhere")
    assert_one_line(dovetail("explain", "-f", str(folder)), "gone.yaml: No such file")
    (folder / "gone.yaml").unlink()
    os.mkfifo(folder / "pipe.yaml")
    assert_one_line(dovetail("explain", "-f", str(folder)), "pipe.yaml: is not a regular file")


def test_names_of_files_need_not_be_text(dovetail: Program) -> None:
    name = os.fsdecode(os.fsencode(dovetail.folder) + b"/bad\xff.yaml")
    with open(name, "w") as file:  # noqa: PTH123
        file.write(json.dumps(pod(**{DO_NOT_DISRUPT: True})))
    for output in ("json", "yaml", "table"):
        outcome = dovetail("lint", "-o", output, name)
        assert outcome.code == 1
        assert "bad\\" in outcome.out


def test_an_empty_name_is_no_directory(dovetail: Program) -> None:
    assert_one_line(dovetail("lint", ""), "is not a file name")


# -- the command itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["explain", "--at", "yesterday"], "'yesterday' is not a time"),
        (["explain", "--tz", "Mars/Olympus"], "unknown time zone"),
        (["explain", "-o", "xml"], "xml"),
        (["explain", "--nonsense"], "--nonsense"),
        (["frobnicate"], "frobnicate"),
        (["lint"], "no input"),
    ],
)
def test_wrong_usage_is_one_line(dovetail: Program, arguments: list[str], part: str) -> None:
    assert_one_line(dovetail(*arguments), part)


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "dovetail", "explain", "-h"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("redirection", "message"), [("<&-", "standard input is closed"), (">&-", "output is closed")])
def test_closed_streams_are_one_line(redirection: str, message: str) -> None:
    command = f"{sys.executable} -m dovetail explain -f - {redirection}"
    outcome = subprocess.run(command, shell=True, capture_output=True, text=True, input="", check=False)
    assert outcome.returncode == 2
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_full_disk_is_one_line() -> None:
    command = f"echo '{json.dumps(pod())}' | {sys.executable} -m dovetail explain -f - -o json > /dev/full"
    outcome = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "No space left" in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize(("environment", "coloured"), [({"NO_COLOR": "1"}, False), ({}, True)])
def test_a_terminal_gets_colours_unless_told_not_to(
    dovetail: Program, environment: dict[str, str], coloured: bool
) -> None:
    file = dovetail.file(json.dumps(pod(**{DO_NOT_DISRUPT: "true"})))
    reader, terminal = os.openpty()
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "dovetail", "explain", "-f", file]
    subprocess.run(command, stdout=terminal, stderr=subprocess.DEVNULL, env=clean | environment, check=True)
    os.close(terminal)
    shown = os.read(reader, 65536)
    os.close(reader)
    assert (b"\x1b[" in shown) is coloured


def test_help_asks_for_little() -> None:
    """A measure that the machine's speed does not change: the heavy modules are not even imported."""
    code = "import sys; sys.argv = ['dovetail', '--help']\nfrom dovetail.cli.main import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"  # noqa: E501
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    modules = set(shown.splitlines()[-1].split())
    assert "click" in modules
    assert not modules & {"yaml", "rich", "dovetail.rules", "dovetail.views.explain.verdicts"}


def test_hostile_annotations_on_many_pods_take_no_time(dovetail: Program) -> None:
    """A hang would show; this is no measure of speed."""
    hostile = ["* * * * *", ";".join(f"{m} * * * *" for m in range(60)), "0 0 31 2 *", "0 0 29 2 *"]
    pods = []
    for number in range(400):
        one = pod(**{SCHEDULE: hostile[number % 4], SCHEDULE + "-duration": f"{number % 100 + 61}s"})
        one["metadata"]["name"] = f"p{number}"
        one["spec"] = {"nodeName": f"n{number % 7}"}
        pods.append(one)
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{n}"}} for n in range(7)]
    started = time.monotonic()
    assert len(explained(dovetail, *pods, *nodes)["pods"]) == 400
    assert time.monotonic() - started < 60
