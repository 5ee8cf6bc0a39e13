"""`dovetail record` on files, and commands without a cluster. With one: tests/cluster/test_live_reading.py."""

import gzip
import json
import socket
from pathlib import Path

import pytest
import yaml

from dovetail.cli.common.read_kinds import ALL_KINDS
from tests.unit.cli.running import Program
from tests.unit.cli.test_cleanup import KUBECONFIG

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.yaml")
AT = "2026-03-06T16:20:00Z"
PODS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {containers: [{name: c, env: [{name: E, value: planted}]}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: ml}}
- {apiVersion: v1, kind: Pod, metadata: {name: c}}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- {apiVersion: v1, kind: Namespace, metadata: {name: ml}}
- {apiVersion: v1, kind: Node, metadata: {name: n1}}
- {apiVersion: v1, kind: Secret, metadata: {name: planted, namespace: shop}, data: {password: planted}}
"""  # noqa: E501


def explained(dovetail: Program, file: str, *options: str) -> str:
    outcome = dovetail("explain", "-f", file, "--at", AT, "-o", "json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml", "dump.YML", "dump.json.gz", "dump.yaml.gz", "dump"])
def test_a_cleaned_dump_is_explained_like_the_original(dovetail: Program, name: str) -> None:
    file = dovetail.folder / name
    outcome = dovetail("record", "-f", CLUSTER, "-o", str(file))
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == (
        f"recorded 80 objects (44 Pod, 13 Node, 12 NodeClaim, 8 PodDisruptionBudget, 3 NodePool) in {file}\n"
    )
    assert [each.name for each in dovetail.folder.iterdir()] == [name]
    assert explained(dovetail, str(file), "--for", "7d") == explained(dovetail, CLUSTER, "--for", "7d")
    data = file.read_bytes()
    assert data.startswith(b"\x1f\x8b") is name.endswith(".gz")
    text = gzip.decompress(data) if name.endswith(".gz") else data
    assert text.startswith(b"{") is ("y" not in name.lower())


def test_the_same_input_gives_the_same_bytes(dovetail: Program) -> None:
    files = [dovetail.folder / name for name in ("a.json.gz", "b.json.gz")]
    for file in files:
        dovetail("record", "-q", "-f", CLUSTER, "-o", str(file))
    assert files[0].read_bytes() == files[1].read_bytes()


def test_standard_output_takes_json_and_standard_error_the_rest(dovetail: Program) -> None:
    outcome = dovetail("record", "-f", dovetail.file(PODS))
    assert [each["metadata"]["name"] for each in json.loads(outcome.out)["items"]] == [
        "a",
        "b",
        "c",
        "shop",
        "ml",
        "n1",
    ]
    assert "planted" not in outcome.out
    assert outcome.err == (
        "recorded 6 objects (3 Pod, 2 Namespace, 1 Node)\nleft out 1 object (1 v1 Secret), which no command reads\n"
    )
    assert dovetail("record", "-q", "-f", dovetail.file(PODS)).err == ""


def test_only_some_namespaces(dovetail: Program) -> None:
    outcome = dovetail("record", "-f", dovetail.file(PODS), "-n", "shop", "-n", "default")
    items = [(each["kind"], each["metadata"]["name"]) for each in json.loads(outcome.out)["items"]]
    assert items == [("Pod", "a"), ("Pod", "c"), ("Namespace", "shop"), ("Node", "n1")]
    assert "left out 2 of other namespaces\n" in outcome.err


@pytest.mark.parametrize("name", ["empty.json", "empty.yaml"])
def test_a_dump_of_nothing_can_be_read(dovetail: Program, name: str) -> None:
    file = str(dovetail.folder / name)
    assert dovetail("record", "-f", dovetail.file(""), "-o", file).err == f"recorded 0 objects in {file}\n"
    assert "nothing to explain" in dovetail("explain", "-f", file).out


def test_an_unreadable_input_leaves_no_file_and_harms_none(dovetail: Program) -> None:
    target = dovetail.folder / "dump.json"
    target.write_text("before")
    bad = dovetail.file(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: []\n"
    )
    outcome = dovetail("record", "-f", bad, "-o", str(target))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert target.read_text() == "before"
    assert sorted(each.name for each in dovetail.folder.iterdir()) == ["dump.json", "input.yaml"]


def test_a_dump_can_be_cleaned_in_place(dovetail: Program) -> None:
    file = dovetail.file(PODS)
    assert dovetail("record", "-q", "-f", file, "-o", file).code == 0
    items = yaml.safe_load(Path(file).read_text())["items"]
    assert len(items) == 6
    assert "planted" not in Path(file).read_text()


def test_a_folder_that_is_not_there(dovetail: Program) -> None:
    outcome = dovetail("record", "-f", CLUSTER, "-o", str(dovetail.folder / "no" / "dump.json"))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "No such file or directory" in outcome.err


# -- no cluster --------------------------------------------------------------------------------------------------------

READING = ["explain", "record"]


@pytest.mark.parametrize("command", READING)
def test_without_files_and_without_a_configured_cluster_one_line_says_what_to_give(
    dovetail: Program, command: str
) -> None:
    outcome = dovetail(command)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.endswith("give -f FILE to read a dump instead\n")


@pytest.mark.parametrize("command", READING)
def test_a_bad_kubeconfig_is_one_line_and_exit_code_2(dovetail: Program, command: str) -> None:
    missing = dovetail(command, "--kubeconfig", "/nowhere/config")
    assert (missing.code, missing.out, missing.err) == (
        2,
        "",
        "dovetail: /nowhere/config: No such file or directory\n",
    )
    other = dovetail(command, "--kubeconfig", dovetail.file(KUBECONFIG % 1), "--context", "elsewhere")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "there is no context 'elsewhere'" in other.err


@pytest.mark.parametrize("command", READING)
def test_a_server_that_does_not_answer_is_one_line_and_exit_code_3(dovetail: Program, command: str) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        outcome = dovetail(command, "--kubeconfig", dovetail.file(KUBECONFIG % taken.getsockname()[1]))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert outcome.err.startswith("dovetail: the cluster cannot be reached: ")


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("option", ["--kubeconfig", "--context"])
def test_files_and_a_live_cluster_exclude_each_other(dovetail: Program, command: str, option: str) -> None:
    outcome = dovetail(command, "-f", CLUSTER, option, "x")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "not both" in outcome.err


def test_the_role_in_the_documentation_is_for_what_is_read_and_nothing_else() -> None:
    page = (Path(__file__).parents[3] / "docs" / "without-installing.md").read_text()
    role = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    granted = {(rule["apiGroups"][0], plural) for rule in role["rules"] for plural in rule["resources"]}
    who_decides = {("coordination.k8s.io", "leases"), ("apiextensions.k8s.io", "customresourcedefinitions")}
    assert granted == {(kind.resource.group, kind.resource.plural) for kind in ALL_KINDS} | who_decides
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.parametrize("options", [(), ("--anonymize",)])
def test_nodes_with_pods_of_other_namespaces_do_not_simply_look_free(
    dovetail: Program, options: tuple[str, ...]
) -> None:
    objects = "\n---\n".join(
        [
            "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
            "{apiVersion: v1, kind: Node, metadata: {name: n2}}",
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {nodeName: n2}}",
            "{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: ml}, spec: {nodeName: n1}}",
        ]
    )
    dump = str(dovetail.folder / "dump.json")
    outcome = dovetail("record", "-f", dovetail.file(objects), "-n", "shop", "-o", dump, *options)
    assert "1 node has pods of other namespaces, which may block more than this dump shows\n" in outcome.err
    problems = json.loads(dovetail("explain", "-f", dump, "-o", "json").out)["problems"]
    (found,) = (each for each in problems if each["rule"] == "PodsNotRecorded")
    assert options or found["message"].endswith("although they look free: n1")


def test_a_dump_of_all_namespaces_says_nothing_of_missing_pods(dovetail: Program) -> None:
    dump = str(dovetail.folder / "dump.json")
    assert "which may block" not in dovetail("record", "-f", dovetail.file(PODS), "-o", dump).err
    assert "PodsNotRecorded" not in dovetail("explain", "-f", dump).out


def test_a_folder_that_is_not_there_is_named(dovetail: Program) -> None:
    outcome = dovetail("record", "-f", "examples/cluster.yaml", "-o", "/nonexist/x.json")
    assert (outcome.code, outcome.err) == (2, "dovetail: No such file or directory: /nonexist\n")
