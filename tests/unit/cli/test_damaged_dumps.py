"""Whatever is damaged in a dump: commands answer, or refuse in one line that names the object and the field."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import yaml

from tests.harness.soak import examples
from tests.unit.cli.running import Outcome, Program

AT: Final = "2026-03-06T16:20:00Z"
COMMANDS: Final = {
    "simulate": ["--for", "2h"],
    "plan": ["--remove", "n1"],
    "explain": [],
    "forecast": ["--for", "2h"],
}
# A cluster with every kind that is played, and nearly every field that anybody reads.
WHOLE: Final = Path(__file__).with_name("damaged.yaml").read_text(encoding="utf-8")
ITEMS: Final[list[dict[str, Any]]] = [each for each in yaml.safe_load_all(WHOLE) if each]

Step = str | int
_NUMBERS: Final[list[Any]] = [0, -1, 1.5, 7, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 1e300]
_TEXTS: Final[list[Any]] = [
    "",
    " ",
    "x" * 5000,
    "NaN",
    "Infinity",
    "-1",
    "1e400",
    "9" * 400,
    "Unheard",
    "\u0000",
    "é/ü",
    "50%",
    "0",
]
_GRAMMARS: Final[list[Any]] = [
    "2026-13-45T99:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "1Gii",
    "10Ei",
    "99999999h",
]
_HOLDERS: Final[list[Any]] = [None, True, False, [], {}, [None], ["x"], [[]], [{}], {"": None}, {"a": "b"}, {"a": {}}]


def paths_in(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Of everything below, holders before what they hold."""
    for step, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, step)
        if isinstance(child, dict | list):
            yield from paths_in(child, (*path, step))


def holder_of(item: Any, path: tuple[Step, ...]) -> Any:
    for step in path[:-1]:
        item = item[step]
    return item


def damage(item: dict[str, Any], random: Random) -> str:
    """One field of the object is not what it was; which, and what it is now."""
    path = random.choice(list(paths_in(item)))
    holder, step = holder_of(item, path), path[-1]
    way = random.randrange(7)
    if way == 0:
        del holder[step]
        return f"{path} is gone"
    if way == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[int(step)]))
        return f"{path} comes twice"
    chosen: list[Any] = random.choice([[None], _NUMBERS, _TEXTS, _TEXTS, _GRAMMARS, _HOLDERS])
    holder[step] = copy.deepcopy(random.choice(chosen))
    return f"{path} is {str(holder[step])[:40]!r}"


def damaged(seed: int) -> tuple[bytes, str]:
    """The dump with one to three fields damaged, and what was done to it."""
    random = Random(seed)
    items = copy.deepcopy(ITEMS)
    told = []
    for _ in range(random.randint(1, 3)):
        item = random.choice(items)
        meta = item.get("metadata")
        name = f"{item.get('kind')}/{meta.get('name') if isinstance(meta, dict) else meta}"[:60]
        told.append(f"{name} {damage(item, random)}" if item else "")
    if random.random() < 0.05:
        items.append(copy.deepcopy(random.choice(items)))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode(), "; ".join(told)


def answered(outcome: Outcome) -> bool:
    """With an answer, or in one line; anything else that a program can do is an exception here."""
    said = outcome.out + outcome.err
    if "Traceback" in said or "internal error" in said.lower():
        return False
    return outcome.code in (0, 1) or (outcome.code == 2 and outcome.err.count("\n") == 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_dump_is_answered_while_it_is_whole(dovetail: Program, command: str) -> None:
    file = dovetail.file(json.dumps({"apiVersion": "v1", "kind": "List", "items": ITEMS}))
    outcome = dovetail(command, "-f", file, "--at", AT, *COMMANDS[command])
    lost = command == "plan"  # a pod that could go nowhere else
    assert (outcome.code, outcome.err) == (int(lost), "")


# -- what was found ----------------------------------------------------------------------------------------------------

GONE: Final = object()
REFUSED: Final[dict[str, tuple[str, tuple[Step, ...], object, str]]] = {
    "a condition of nothing": (
        "Pod/web-1-a",
        ("status", "conditions", 0, "type"),
        GONE,
        "items[12].status.conditions[0].type: is required (Pod/shop/web-1-a)",
    ),
    "a selector's null": (
        "PodDisruptionBudget/web",
        ("spec", "selector", "matchExpressions", 0, "operator"),
        None,
        "spec.selector.matchExpressions[0].operator: is required (PodDisruptionBudget/shop/web)",
    ),
    "an integer of 65 bits": ("Node/n1", ("status", "images", 0, "sizeBytes"), 2**64, "sizeBytes: number is out of"),
    "an integer of 64 bits": ("Node/n1", ("status", "images", 0, "sizeBytes"), 2**63, "sizeBytes: number is out of"),
    "a time that is none": (
        "Job/train",
        ("status", "startTime"),
        "2026-02-30T00:00:00Z",
        "status.startTime: '2026-02-30T00:00:00Z' is not a time",
    ),
    "the end of the calendar": (
        "Pod/web-1-b",
        ("metadata", "deletionTimestamp"),
        "9999-12-31T23:59:59Z",
        "metadata.deletionTimestamp: '9999-12-31T23:59:59Z' is too far away",
    ),
    "a grace period of ages": (
        "Pod/web-1-a",
        ("spec", "terminationGracePeriodSeconds"),
        10**15,
        "spec.terminationGracePeriodSeconds: expected `int` <= 10000000000",
    ),
    "more pods than can be": ("Deployment/web", ("spec", "replicas"), 2**31, "spec.replicas: expected `int` <= 150000"),
    "an exit code that is none": (
        "Job/train",
        ("spec", "template", "metadata", "annotations", "dovetail.dev/exit-code"),
        "",
        "spec.template.metadata.annotations[dovetail.dev/exit-code]: '' is no whole number",
    ),
    "a revision that is none": (
        "ReplicaSet/web-1",
        ("metadata", "annotations", "deployment.kubernetes.io/revision"),
        "third",
        "metadata.annotations[deployment.kubernetes.io/revision]: 'third' is no whole number",
    ),
    "a share without end": (
        "PodDisruptionBudget/web",
        ("spec", "maxUnavailable"),
        "9" * 5000 + "%",
        "spec.maxUnavailable: expected `str` of length <= 20",
    ),
    "a Job that cannot know its pods": (
        "Job/train",
        ("metadata", "uid"),
        "another",
        "spec.template.metadata.labels: are not those that spec.selector wants (Job/shop/train)",
    ),
    "an owner without a UID": (
        "ReplicaSet/web-1",
        ("metadata", "ownerReferences", 0, "uid"),
        GONE,
        "metadata.ownerReferences[0].uid: is required",
    ),
    "affinity to no topology": (
        "Pod/waiting",
        (
            *("spec", "affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
            *(0, "topologyKey"),
        ),
        GONE,
        "requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: is required",
    ),
    "a preference without a weight": (
        "Pod/web-1-a",
        (
            *("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
            *(0, "weight"),
        ),
        None,
        "preferredDuringSchedulingIgnoredDuringExecution[0].weight: is required",
    ),
    "no values of a field": (
        "Pod/agent-a",
        (
            *("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
            *("nodeSelectorTerms", 0, "matchFields", 0, "values"),
        ),
        [],
        "matchFields[0].values: expected `array` of length >= 1",
    ),
    "spread by no skew": (
        "Pod/placeless",
        ("spec", "topologySpreadConstraints", 0, "maxSkew"),
        GONE,
        "spec.topologySpreadConstraints[0].maxSkew: is required",
    ),
    "a volume of no claim": (
        "Pod/data-0",
        ("spec", "volumes", 0, "persistentVolumeClaim", "claimName"),
        GONE,
        "spec.volumes[0].persistentVolumeClaim.claimName: is required",
    ),
    "a claim of nothing": (
        "StatefulSet/data",
        ("spec", "volumeClaimTemplates", 0, "spec"),
        None,
        "spec.volumeClaimTemplates[0].spec: is required (StatefulSet/shop/data)",
    ),
    "metadata of another type": ("KWOKNodeClass/default", ("metadata",), 7, "items[2].metadata: must be a mapping"),
    "a class's value": ("PriorityClass/high", ("value",), 2**31, "items[1].value: expected `int`"),
}  # fmt: skip
# Workloads of a cluster: their pods are played without them.
LEFT_OUT: Final = (
    *("more pods than can be", "a revision that is none", "an exit code that is none", "an owner without a UID"),
    *("a Job that cannot know its pods", "a claim of nothing"),
)
PLAYED: Final[dict[str, tuple[str, tuple[Step, ...], object]]] = {
    "ready since nobody knows when": ("Pod/web-1-a", ("status", "conditions", 1, "lastTransitionTime"), None),
    "a machine of any size": ("Node/n2", ("status", "capacity", "cpu"), "9" * 400),
    "a null that is no field": ("Deployment/web", ("spec", "strategy", "rollingUpdate"), None),
    "a request that is no quantity": (
        "Pod/web-1-a",
        ("spec", "containers", 0, "resources", "requests", "cpu"),
        "NaN",
    ),
}


def dump_with(name: str, path: tuple[Step, ...], value: object) -> str:
    items = copy.deepcopy(ITEMS)
    (item,) = (each for each in items if f"{each['kind']}/{each['metadata']['name']}" == name)
    holder = holder_of(item, path)
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in LEFT_OUT])
def test_what_cannot_be_played_is_refused_by_name(dovetail: Program, case: str) -> None:
    name, path, value, said = REFUSED[case]
    outcome = dovetail("simulate", dovetail.file(dump_with(name, path, value)), "--at", AT, "--for", "2h")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("dovetail: ")
    assert said.lower() in outcome.err.lower()


@pytest.mark.parametrize("case", LEFT_OUT)
def test_a_workload_that_cannot_be_read_is_left_out_by_name(dovetail: Program, case: str) -> None:
    name, path, value, said = REFUSED[case]
    outcome = dovetail("simulate", dovetail.file(dump_with(name, path, value)), "--at", AT, "--for", "2h")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    place = next(number for number, line in enumerate(lines) if "LeftOut: " in line)
    kind, _, object_ = name.partition("/")
    assert lines[place - 1].startswith(f"warning {kind}/shop/{object_}  ")
    assert said.rpartition(": ")[2].partition(" (")[0].lower() in lines[place].lower()


@pytest.mark.parametrize("case", PLAYED)
def test_what_can_be_played_all_the_same_is(dovetail: Program, case: str) -> None:
    outcome = dovetail("simulate", dovetail.file(dump_with(*PLAYED[case])), "--at", AT, "--for", "2h")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"metadata": {"name": "new"}, "spec": {"replicas": 1}}, "events[0].apply.spec.template: is required"),
        ({"metadata": {"name": "web", "namespace": 7}}, "events[0].apply.metadata.namespace: expected a string"),
        (
            {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"x": 10**30}},
            "events[0].apply.spec.x: number is out of range",
        ),
    ],
)
def test_what_a_scenario_applies_is_looked_at_too(dovetail: Program, event: dict[str, Any], said: str) -> None:
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", **event}
    scenario = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Scenario", "for": "1h"}
    items = [*ITEMS, {**scenario, "events": [{"at": "10m", "apply": applied}]}]
    file = dovetail.file(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    outcome = dovetail("simulate", file, "--at", AT)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert said in outcome.err


def test_events_may_stand_in_any_order(dovetail: Program) -> None:
    """What is applied first, as time goes, must be whole; what follows may say only what changes."""
    (whole,) = (copy.deepcopy(each) for each in ITEMS if each["kind"] == "DaemonSet")
    whole["metadata"] = {"name": "other", "namespace": "kube-system"}
    del whole["status"]
    change = {key: whole[key] for key in ("apiVersion", "kind", "metadata")} | {"spec": {"minReadySeconds": 5}}
    events = [{"at": "20m", "apply": change}, {"at": "10m", "apply": whole}]
    scenario = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Scenario", "for": "1h", "events": events}
    file = dovetail.file(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*ITEMS, scenario]}))
    outcome = dovetail("simulate", file, "--at", AT)
    assert (outcome.code, outcome.err) == (0, "")


# -- what nobody thought of --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(examples(50, quick=16)))
def test_any_damage_is_answered_or_refused_in_one_line(dovetail: Program, seed: int) -> None:
    data, told = damaged(seed)
    file = dovetail.file(data)
    for command, arguments in COMMANDS.items():
        outcome = dovetail(command, "-f", file, "--at", AT, *arguments)
        assert answered(outcome), (command, told, outcome.err)
