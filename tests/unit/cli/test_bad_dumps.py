"""Dumps that went wrong are answered with what could be said and what is missing."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from dovetail.api.documents import plain_value, read_documents
from tests.unit.cli.running import Program

CLUSTER = Path(__file__).parents[3] / "examples" / "cluster.yaml"
ITEMS: list[dict[str, Any]] = [plain_value(each) for each in read_documents(CLUSTER.read_bytes(), "")]
AT = "2026-03-06T16:20:00Z"


def kubectl_json(items: list[dict[str, Any]]) -> bytes:
    """As kubectl orders and indents it: the kind stands after the items."""
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}}, indent=4).encode() + b"\n"


def kubectl_yaml(items: list[dict[str, Any]]) -> bytes:
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    return yaml.dump(whole, Dumper=yaml.CSafeDumper, sort_keys=False).encode()


def recorded_json(items: list[dict[str, Any]]) -> bytes:
    lines = b",\n".join(json.dumps(item).encode() for item in items)
    return b'{"apiVersion": "v1", "kind": "List", "items": [\n' + lines + b"\n]}\n"


def documents(items: list[dict[str, Any]]) -> bytes:
    return yaml.dump_all(items, Dumper=yaml.CSafeDumper, sort_keys=False).encode()


def packed(items: list[dict[str, Any]]) -> bytes:
    return gzip.compress(recorded_json(items))


FORMS = [kubectl_json, kubectl_yaml, recorded_json]


def explained(dovetail: Program, data: bytes, name: str = "dump") -> dict[str, Any]:
    outcome = dovetail("explain", "-f", dovetail.file(data, name), "--at", AT, "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def rules(answer: dict[str, Any]) -> dict[str, str]:
    """What is said of whole kinds and of the input itself, not of single objects."""
    told = {"CutOff", "MessageInDump", "NoNodePools", "NoPods", "NodePoolMissing", "NodeClaimMissing"}
    return {problem["rule"]: problem["message"] for problem in answer["problems"] if problem["rule"] in told}


def without(*kinds: str) -> list[dict[str, Any]]:
    return [item for item in ITEMS if item["kind"] not in kinds]


# -- what is not there -------------------------------------------------------------------------------------------------


def test_a_whole_dump_lacks_nothing(dovetail: Program) -> None:
    assert rules(explained(dovetail, kubectl_yaml(ITEMS))) == {}


def test_pods_are_missing(dovetail: Program) -> None:
    answer = explained(dovetail, kubectl_yaml(without("Pod")))
    assert list(rules(answer)) == ["NoPods"]
    assert (len(answer["nodes"]), len(answer["nodepools"])) == (13, 3)


def test_pools_are_missing(dovetail: Program) -> None:
    answer = explained(dovetail, kubectl_yaml(without("NodePool")))
    found = [problem for problem in answer["problems"] if problem["rule"] == "NodePoolMissing"]
    assert [problem["object"] for problem in found] == ["NodePool/batch", "NodePool/general", "NodePool/services"]
    assert found[0]["message"].startswith("3 nodes belong to it, but it is missing")
    assert len(answer["pods"]) == 44
    assert all(node["expiresAt"] for node in answer["nodes"] if node["nodeClaim"])


def test_claims_are_missing(dovetail: Program) -> None:
    answer = explained(dovetail, kubectl_yaml(without("NodeClaim")))
    assert "NodeClaimMissing" in rules(answer)
    assert len(answer["nodepools"]) == 3


def test_a_cluster_without_nodepools_is_told_what_protects_its_pods(dovetail: Program) -> None:
    items = json.loads(json.dumps(without("NodePool", "NodeClaim")))
    for item in items:
        if item["kind"] == "Node":
            item["metadata"]["labels"].pop("karpenter.sh/nodepool", None)
    answer = explained(dovetail, kubectl_yaml(items))
    whole = explained(dovetail, kubectl_yaml(ITEMS))
    assert list(rules(answer)) == ["NoNodePools"]
    own = {"do-not-disrupt", "disruption-schedule", "disruption-block-schedule", "pod-disruption-budget"}
    for pod, known in zip(answer["pods"], whole["pods"], strict=True):
        assert {verdict["rule"] for verdict in pod["verdicts"]} == own
        assert pod["name"] == known["name"]


def test_pods_alone_need_no_excuse(dovetail: Program) -> None:
    """One may ask about a manifest that has nothing to do with any node."""
    assert rules(explained(dovetail, kubectl_yaml(without("NodePool", "NodeClaim", "Node")))) == {}


# -- half a file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [0.1, 0.4, 0.75, 0.99])
def test_half_a_dump_is_told_as_far_as_it_goes(
    dovetail: Program, form: Callable[[list[dict[str, Any]]], bytes], part: float
) -> None:
    """The same as if the dump had been made of those objects only."""
    whole = form(ITEMS)
    answer = explained(dovetail, whole[: int(len(whole) * part)])
    (cut,) = [problem for problem in answer["problems"] if problem["rule"] == "CutOff"]
    assert cut["severity"] == "error"
    count = int(cut["message"].partition(" objects before that")[0].rpartition(" ")[2])
    assert 0 < count < len(ITEMS)
    fewer = explained(dovetail, form(ITEMS[:count]))
    assert {key: answer[key] for key in ("pods", "nodes", "nodepools")} == {
        key: fewer[key] for key in ("pods", "nodes", "nodepools")
    }
    if form is kubectl_json:  # where nothing whole is left out
        assert count == len(ITEMS) or len(form(ITEMS[: count + 1])) >= int(len(whole) * part)


def test_every_cut_is_either_told_or_refused_in_one_line(dovetail: Program) -> None:
    """No cut goes unnoticed, except in the white space at the end."""
    for form in FORMS:
        whole = form(ITEMS[:4])
        end = len(whole.rstrip()) if form is not kubectl_yaml else whole.index(b"\nkind: List") + len("\nkind: List")
        for length in range(1, end, 97):
            outcome = dovetail("explain", "-f", dovetail.file(whole[:length]), "-o", "json", "--at", AT)
            told = outcome.code == 0 and "CutOff" in outcome.out
            refused = outcome.code == 2 and outcome.err.count("\n") == 1
            assert told or refused, (form.__name__, length, outcome)


def test_documents_before_the_one_that_is_cut_off_are_told(dovetail: Program) -> None:
    data = documents(ITEMS)
    cut = data[: data.rindex(b"\nkind:") + 3]  # in the last one: `ki`
    answer = explained(dovetail, cut)
    assert "79 objects before that" in rules(answer)["CutOff"]


def test_a_mistake_in_the_middle_is_no_cut(dovetail: Program) -> None:
    data = documents(ITEMS).replace(b"\nkind: Node\n", b"\nkind: [Node\n", 1)
    outcome = dovetail("explain", "-f", dovetail.file(data), "--at", AT)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def test_lint_and_what_is_whole_are_as_strict_as_ever(dovetail: Program) -> None:
    whole = kubectl_json(ITEMS)
    outcome = dovetail("lint", dovetail.file(whole[: len(whole) // 2]))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("command", ["explain", "record"])
def test_damaged_dumps_are_answered_or_refused_in_one_line(dovetail: Program, command: str, seed: int) -> None:
    """Anything else would be an exception here."""
    random = Random(seed)
    for form in [*FORMS, documents, packed]:
        data = bytearray(form(random.sample(ITEMS, 5)))
        for _ in range(random.choice([1, 1, 3, 30])):
            start = random.randrange(len(data))
            data[start : start + random.choice([0, 1, 1, 40])] = random.choice([b"", b"\n", b"{", b'"', b"- ", b"\xff"])
        more = ["--anonymize", "-n", "shop"] if command == "record" else ["--at", AT]
        outcome = dovetail(command, "-f", dovetail.file(bytes(data)), *more)
        assert outcome.code in (0, 2)
        assert outcome.code == 0 or outcome.err.count("\n") == 1, outcome.err


# -- other commands ----------------------------------------------------------------------------------------------------


COMMANDS = {"forecast": [], "plan": [], "simulate": ["--for", "1m"]}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("items", "rule"),
    [
        pytest.param(without("NodePool"), "NodePoolMissing", id="no pools"),
        pytest.param(without("NodePool", "NodeClaim", "Node"), None, id="pods alone"),
        pytest.param(without("NodeClaim"), "NodeClaimMissing", id="no claims"),
        pytest.param(without("Pod"), "NoPods", id="no pods"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_parts_are_missing(dovetail: Program, command: str, items: list[dict[str, Any]], rule: str | None) -> None:
    arguments = [command, "-f", dovetail.file(kubectl_yaml(items)), "--at", AT, *COMMANDS[command]]
    outcome = dovetail(*arguments, "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    shown = dovetail(*arguments)
    assert shown.code == 0
    if rule is not None:
        assert rule in {problem["rule"] for problem in json.loads(outcome.out)["problems"]}
        assert f"{rule}: " in shown.out


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_nodes_of_nobody_leave_nothing_to_do(dovetail: Program, command: str) -> None:
    items = json.loads(json.dumps(without("NodePool", "NodeClaim")))
    for item in items:
        item["metadata"].get("labels", {}).pop("karpenter.sh/nodepool", None)
    file = dovetail.file(kubectl_yaml(items))
    outcome = dovetail(command, "-f", file, "--at", AT, "-o", "json", *COMMANDS[command])
    assert (outcome.code, outcome.err) == (0, "")
    told = [problem["rule"] for problem in json.loads(outcome.out)["problems"]]
    assert told.count("NoNodePools") == 1


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", FORMS)
def test_half_a_dump(dovetail: Program, command: str, form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    whole = form(ITEMS)
    file = dovetail.file(whole[: len(whole) // 2])
    outcome = dovetail(command, "-f", file, "--at", AT, "-o", "json", *COMMANDS[command])
    assert (outcome.code, outcome.err) == (0, "")
    assert "CutOff" in {problem["rule"] for problem in json.loads(outcome.out)["problems"]}


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_an_object_that_comes_twice_is_told_once(dovetail: Program, command: str) -> None:
    file = dovetail.file(kubectl_yaml([*ITEMS, ITEMS[0]]))
    outcome = dovetail(command, "-f", file, "--at", AT, "-o", "json", *COMMANDS[command])
    assert [each["rule"] for each in json.loads(outcome.out)["problems"]].count("DuplicateObject") == 1


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"kind: Scenario", b"kind: [Scenario", "cannot be read to its end (line 7: "),
        (b"metadata: {name: web}", b"metadata: {}", "metadata.name: is required"),
        (b"replicas: 3", b"replicas: many", "document 1, line 1: spec.replicas: expected an integer"),
        (b"name: web, image", b"name: [], image", "spec.template.spec.containers[0].name: expected a string"),
        (b"matchLabels: {", b"matchLabels: [{", "input.yaml: document 1, line 4: "),
        (b"labels: {app: web}", b"labels: {app: other}", "spec.template.metadata.labels: are not those that"),
        (b"selector:", b"selectors:", "spec.selector: is required"),
        (b"replicas: 4", b"replicas: -1", "events[0].apply.spec.replicas: "),
        (b"maxSurge: 1", b"maxSurge: 1%%", "events[0].apply.spec.strategy.rollingUpdate.maxSurge: "),
    ],
)
def test_a_mistake_in_what_people_write_is_refused(dovetail: Program, before: bytes, after: bytes, said: str) -> None:
    """Also at the end of the text, where it would be a cut in a dump."""
    template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}"
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
        f"spec: {{replicas: 3, selector: {{matchLabels: {{app: web}}}}, template: {template}}}\n"
        "---\nkind: Scenario\napiVersion: dovetail.dev/v1alpha1\nfor: 1m\nevents:\n- at: 30s\n"
        "  apply: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: "
        "{replicas: 4, strategy: {rollingUpdate: {maxSurge: 1}}}}\n"
    ).encode()
    assert dovetail("simulate", dovetail.file(text)).code == 0
    outcome = dovetail("simulate", dovetail.file(text.replace(before, after)))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert said in outcome.err


def test_an_object_that_the_api_refuses_is_named(dovetail: Program) -> None:
    items = json.loads(json.dumps(ITEMS))
    pool = next(item for item in items if item["kind"] == "NodePool")
    pool["spec"]["disruption"]["consolidateAfter"] = "soon"
    outcome = dovetail("simulate", dovetail.file(kubectl_yaml(items)), "--at", AT, "--for", "1m")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert f"NodePool/{pool['metadata']['name']}" in outcome.err
    assert "spec.disruption.consolidateAfter" in outcome.err


# -- packed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dump.json.gz", "no-suffix"])
def test_gzip_is_known_by_what_it_holds(dovetail: Program, name: str) -> None:
    assert explained(dovetail, gzip.compress(kubectl_json(ITEMS)), name) == explained(dovetail, kubectl_json(ITEMS))


def test_several_gzip_members_and_a_directory(dovetail: Program) -> None:
    parts = [gzip.compress(recorded_json(ITEMS[:10])), gzip.compress(recorded_json(ITEMS[10:]))]
    folder = dovetail.folder / "folder"
    folder.mkdir()
    for number, part in enumerate(parts):
        (folder / f"{number}.JSON.gz").write_bytes(part)
    outcome = dovetail("explain", "-f", str(folder), "--at", AT, "-o", "json")
    assert json.loads(outcome.out) == explained(dovetail, b"".join(parts))


def test_half_a_packed_dump(dovetail: Program) -> None:
    packed = gzip.compress(recorded_json(ITEMS))
    assert "CutOff" in rules(explained(dovetail, packed[: len(packed) * 2 // 3]))
    outcome = dovetail("lint", dovetail.file(packed[: len(packed) // 2], "dump.json.gz"))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "the gzip data end too early" in outcome.err


def test_damaged_gzip_is_refused(dovetail: Program) -> None:
    packed = bytearray(gzip.compress(recorded_json(ITEMS)))
    packed[len(packed) // 2] ^= 0xFF
    outcome = dovetail("explain", "-f", dovetail.file(bytes(packed)))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "damaged" in outcome.err


# -- what kubectl said -------------------------------------------------------------------------------------------------

MESSAGES = [
    'error: the server doesn\'t have a resource type "nodepools"',
    'Error from server (Forbidden): pods is forbidden: User "u" cannot list resource "pods" in API group ""',
    "Warning: policy/v1beta1 PodDisruptionBudget is deprecated",
    "E0306 16:20:00.123456    4242 memcache.go:287] couldn't get resource list",
]


@pytest.mark.parametrize(
    ("form", "message"), [*((documents, message) for message in MESSAGES), *((form, MESSAGES[0]) for form in FORMS)]
)
def test_messages_of_kubectl_are_told_and_not_read(
    dovetail: Program, form: Callable[[list[dict[str, Any]]], bytes], message: str
) -> None:
    answer = explained(dovetail, f"{message}\n".encode() + form(ITEMS))
    assert message in rules(answer)["MessageInDump"]
    assert len(answer["pods"]) == 44
    behind = explained(dovetail, form(ITEMS) + f"{message}\n".encode())
    assert behind == answer


def test_a_dump_that_holds_nothing_but_an_error(dovetail: Program) -> None:
    answer = explained(dovetail, f"{MESSAGES[0]}\n".encode())
    assert list(rules(answer)) == ["MessageInDump"]
    table = dovetail("explain", "-f", dovetail.file(f"{MESSAGES[0]}\n")).out
    assert "doesn't have a resource type" in table


def test_line_numbers_stay_right(dovetail: Program) -> None:
    text = f"{MESSAGES[0]}\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nkind: Node\n"
    assert "line 5" in dovetail("explain", "-f", dovetail.file(text)).err


def test_a_list_in_a_list(dovetail: Program) -> None:
    inner = [{"apiVersion": "v1", "kind": "List", "items": ITEMS[start : start + 20]} for start in range(0, 80, 20)]
    assert explained(dovetail, kubectl_json(inner)) == explained(dovetail, kubectl_json(ITEMS))
