"""`dovetail simulate` and `dovetail demo` as commands: figures, data, pages, comparisons, and one-line errors."""

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dovetail.cli.text.simulate import span_text
from dovetail.views.simulation.report import TimelineEntry, most_important
from tests.unit.cli.running import Program

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["4"]}
      - {key: kubernetes.io/os, operator: In, values: [linux]}
  disruption: {consolidateAfter: 1m, budgets: [{nodes: 100%}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: dovetail.dev/v1alpha1
kind: Scenario
start: 2026-03-02T00:00:00Z
for: 1h
events:
- {at: 10m, delete: Deployment/web}
"""


def test_data(dovetail: Program) -> None:
    file = dovetail.file(POOL)
    first, second = (dovetail("simulate", file, "-o", "json") for _ in range(2))
    assert (first.code, first.err) == (0, "")
    assert first.out == second.out
    found = json.loads(first.out)
    assert (found["start"], found["end"], found["seed"]) == ("2026-03-02T00:00:00Z", "2026-03-02T01:00:00Z", 0)
    assert (found["nodes"]["launched"], found["nodes"]["terminated"]) == (3, {"Empty": 3})
    assert found["pods"] == {"evicted": 0, "preempted": 0, "forced": 0, "lost": 0, "pending": 0}
    assert found["cost"]["total"] > 0
    assert found["cost"]["perHourEnd"] == 0
    saved = found["consolidation"]
    assert (
        saved["realised"] == saved["promised"] == pytest.approx(sum(life["price"] for life in found["lives"]), abs=1e-4)
    )
    assert saved["commands"] == 1
    assert (saved["moved"], saved["movedPerDay"]) == (0, 0)
    assert (saved["movedAgain"], saved["movedInVain"], saved["unplanned"]) == (0, 0, 0)
    assert found["violations"] == []
    assert {"at", "type", "object", "message"} == found["timeline"][0].keys()


def test_figures(dovetail: Program) -> None:
    outcome = dovetail("simulate", dovetail.file(POOL), "--for", "30m", "--tz", "Europe/Berlin")
    assert outcome.code == 0
    assert outcome.out.startswith("Simulated 30m from 2026-03-02T01:00:00+01:00 to 2026-03-02T01:30:00+01:00, seed 0\n")
    assert "Nodes  0 → 0, launched 3, terminated 3 (Empty 3)" in outcome.out
    assert "Violations  none" in outcome.out


def test_what_consolidation_promised_and_what_came_of_it(dovetail: Program, tmp_path: Path) -> None:
    """After a scale-down the pods fit on fewer nodes."""
    shrunk = POOL.replace('cpu: "3"', 'cpu: "1"').replace("replicas: 3", "replicas: 9")
    change = "{at: 10m, apply: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}}"
    file = dovetail.file(shrunk.replace("{at: 10m, delete: Deployment/web}", change))
    page = tmp_path / "report.html"
    found = json.loads(dovetail("simulate", file, "-o", "json").out)["consolidation"]
    assert found["moved"] > 0
    assert found["movedPerDay"] == 24 * found["moved"]
    out = dovetail("simulate", file, "--report", str(page)).out
    assert (
        f"Saved  {found['realised']:.3f} of the promised {found['promised']:.3f} per hour, by {found['commands']} "
        in out
    )
    assert f"Moved  {found['moved']} pods for that, {found['movedPerDay']:g} a day, 0 again within an hour, " in out
    text = page.read_text(encoding="utf-8")
    assert (
        f"<b>${found['realised']:.3f} of ${found['promised']:.3f}</b><span>promised savings per hour realised" in text
    )
    assert f"<b>{found['movedPerDay']:g}</b><span>pods moved by consolidation a day" in text


def test_settings_are_compared(dovetail: Program) -> None:
    file, keep = dovetail.file(POOL), "nodepool/default.spec.disruption.budgets=[{nodes: '0'}]"
    outcome = dovetail("simulate", file, "--set", keep, "--compare", "-o", "json")
    found = json.loads(outcome.out)
    assert found["labels"] == ["as it is", keep]
    assert {"what": "terminated: Empty", "first": 3.0, "second": 0.0} in found["differences"]
    shown = dovetail("simulate", file, "--set", keep, "--compare").out
    assert re.search(r"^terminated: Empty +3 +0 +−3 \(-100%\)$", shown, re.MULTILINE)
    assert re.search(r"^cost in all \(\$\) ", shown, re.MULTILINE)
    equal = sum(each["first"] == each["second"] for each in found["differences"])
    left_out = equal - sum(f"\n{name}" in shown for name in ("violations",))
    assert f"\n{left_out} figures equal in both; -v shows all\n" in shown
    everything = dovetail("simulate", file, "--set", keep, "--compare", "-v").out
    assert "equal in both" not in everything
    assert re.search(r"^pods lost +0 +0 +=$", everything, re.MULTILINE)


WINDOWS = str(Path(__file__).parents[3] / "examples" / "scenarios" / "windows.yaml")


@pytest.mark.parametrize(
    ("mode", "decides", "kept", "checked"),
    [
        ("karpenter", "Karpenter decides: --mode says so", {"evicted": 3, "late": 3, "heldNodes": 0}, False),
        ("guard", "Karpenter decides, and Dovetail guards: ", {"evicted": 0, "late": 0, "heldNodes": 3}, False),
        ("drive", "Dovetail (drive) decides: --mode says so", {"evicted": 0, "late": 0, "heldNodes": 12}, False),
        ("run", "Dovetail decides: ", {"evicted": 0, "late": None, "heldNodes": 0}, True),
    ],
)
def test_karpenter_alone_and_with_dovetail_beside_it(
    dovetail: Program, mode: str, decides: str, kept: dict[str, int | None], checked: bool
) -> None:
    """Six nodes drift; pods on three of them have a window at night, which Karpenter does not read."""
    evening = ("--at", "2026-03-02T17:30:00Z", "--for", "6h")  # the nodes drift at 20:30, the window opens at 22:00
    found = json.loads(dovetail("simulate", WINDOWS, *evening, "--mode", mode, "-o", "json").out)
    assert found["nodes"]["terminated"] == {"Drifted": 6}
    assert found["pods"]["evicted"] == 12
    assert {key: found["protection"][key] for key in kept} == kept
    assert found["protection"]["forced"] == 0
    assert (found["protection"]["heldHours"] > 0) == (mode in ("guard", "drive"))
    assert (found["checked"], found["violations"]) == (checked, [])
    assert (found["consolidation"] is None) == (mode in ("karpenter", "guard"))
    unheeded = [entry for entry in found["timeline"] if entry["type"] == "unheeded"]
    assert len(unheeded) == kept["evicted"]
    assert all("evicted all the same: disruption-schedule: outside" in entry["message"] for entry in unheeded)
    said = dovetail("simulate", WINDOWS, "--for", "1m", "--mode", mode, "-q").out
    assert decides in said.splitlines()[1]
    assert f"Violations  {'none' if checked else 'not checked: the rules are those of dovetail run'}" in said


def test_modes_are_compared(dovetail: Program, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    modes = ("--for", "4h", "--mode", "karpenter", "--compare-mode", "guard", "--report", str(page))
    lines = dovetail("simulate", WINDOWS, *modes).out.splitlines()
    assert lines[1:3] == [
        "karpenter: Karpenter decides: --mode says so",
        "guard: Karpenter decides, and Dovetail guards: --compare-mode says so",
    ]
    for row in (
        r"pods evicted despite their annotations +3 +0 +−3 ",
        r"nodes taken too early +3 +0 +−3 ",
        r"nodes held +0 +3 +\+3$",
        r"hours of nodes held +0 +\d+(\.\d)? +\+\d+(\.\d)?$",
    ):
        assert any(re.match(row, line) for line in lines), row
    assert not any(line.startswith(("violations", "savings")) for line in lines)
    assert "<b>3</b><span>nodes that Karpenter took too early" in page.read_text(encoding="utf-8")
    keep = ("--set", "nodepool/default.spec.disruption.budgets=[{nodes: '0'}]", "--compare")
    found = json.loads(dovetail("simulate", WINDOWS, *modes, *keep, "--for", "1m", "-o", "json").out)
    assert found["labels"] == ["karpenter, as it is", f"guard, {keep[1]}"]


def test_pods_are_held_on_demand(dovetail: Program) -> None:
    """With a limit of the drain drive does not wait for the window, and only a hold keeps the pods."""
    tgp = "nodepool/default.spec.template.spec.terminationGracePeriod=24h"
    asked = ("simulate", WINDOWS, "--for", "4h", "--set", tgp, "--mode", "drive", "-o", "json")
    alone, holding = (json.loads(dovetail(*asked, *more).out)["protection"] for more in ((), ("--hold-pods",)))
    assert (alone["evicted"], holding["evicted"]) == (3, 0)


def test_who_decides_in_a_cluster_is_who_acts_unless_somebody_else_shall(dovetail: Program) -> None:
    known = ("simulate", WINDOWS, "-o", "json", "--for", "1h", "--decider", "karpenter@1.11")
    found = json.loads(dovetail(*known).out)
    assert (found["decider"]["controller"], found["protection"]["late"]) == ("karpenter", 0)
    found = json.loads(dovetail(*known, "--mode", "guard").out)
    assert found["decider"] == {
        "controller": "dovetail",
        "version": "1.11",
        "mode": "guard",
        "reason": "--mode says so",
    }


def test_a_page_names_the_scenario_the_date_and_the_unit_and_folds_the_log(dovetail: Program, tmp_path: Path) -> None:
    file, page = dovetail.file(POOL), tmp_path / "report.html"
    assert dovetail("simulate", file, "--report", str(page)).code == 0
    text = page.read_text(encoding="utf-8")
    scenario = re.search(r"<h1>Simulation of (.+), from 2026-03-02</h1>", text)
    assert scenario is not None
    assert f"<title>Dovetail: Simulation of {scenario[1]}, from 2026-03-02</title>" in text
    assert re.search(r"<b>\$\d+\.\d\d</b><span>total cost", text)
    assert re.search(r"<details><summary>The log: \d+ events</summary>", text)
    compare = ("--compare", "--set", "nodepool/default.spec.weight=2", "--report", str(page))
    assert dovetail("simulate", file, *compare).code == 0
    text = page.read_text(encoding="utf-8")
    assert f"<h1>Two simulations of {scenario[1]}, from 2026-03-02</h1>" in text
    assert "cost in all ($)" in text


def test_the_summary_has_one_of_each_kind_before_a_second() -> None:
    start = datetime(2026, 3, 2, tzinfo=UTC)

    def entry(hour: int, type_: str, message: str) -> TimelineEntry:
        return TimelineEntry(at=start + timedelta(hours=hour), type=type_, object="x", message=message)

    upgrade, forced = entry(3, "disrupted", "Drifted/1: replace"), entry(4, "forced", "from x")
    daily = [entry(hour, "scenario", "changed") for hour in range(9)]
    consolidated = [entry(hour, "disrupted", f"Underutilized/{hour}: delete") for hour in range(9)]
    launched = [entry(hour, "launched", f"type-{hour}, spot") for hour in range(9)]
    timeline = sorted([*daily, *consolidated, *launched, upgrade, forced], key=lambda each: each.at)
    assert most_important(timeline, 4) == [daily[0], consolidated[0], upgrade, forced]
    broken = [entry(hour, "violation", "a budget") for hour in range(4)]
    assert most_important([*timeline, *broken], 4) == broken
    assert set(map(id, most_important(timeline, 20))) == set(map(id, [*daily, *consolidated, upgrade, forced]))


def test_a_span_has_whole_seconds() -> None:
    assert span_text(timedelta(minutes=17, seconds=54.625931)) == "17m54s"
    assert span_text(timedelta(days=1, hours=12)) == "1d12h"
    assert span_text(timedelta(microseconds=5)) == "0s"


class _Page(HTMLParser):
    """What a browser would make of it: tags, and addresses that it would ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_a_page_of_its_own_with_everything_escaped(dovetail: Program, tmp_path: Path) -> None:
    file, page = dovetail.file(POOL), tmp_path / "report.html"
    label = "nodepool/default.metadata.labels['a']=\"</style><script>x\""
    outcome = dovetail("simulate", file, "--compare", "--set", label, "--report", str(page))
    assert outcome.code == 2  # a label's value cannot hold markup
    annotated = 'nodepool/default.metadata.annotations={a: "<script>"}'
    assert dovetail("simulate", file, "--compare", "--set", annotated, "--report", str(page)).code == 0
    text = page.read_text(encoding="utf-8")
    found = _Page(text)
    assert {"svg", "table", "style"} <= found.tags
    assert not found.tags & {"script", "link", "img", "iframe"}
    assert not found.addresses
    assert "{a: &quot;&lt;script&gt;&quot;}" in text
    assert "default-src 'none'" in text


def test_a_page_has_the_clocks_of_the_zone_and_what_is_missing(dovetail: Program, tmp_path: Path) -> None:
    node = """
apiVersion: v1
kind: Node
metadata: {name: stray, labels: {karpenter.sh/nodepool: default}}
spec: {providerID: "x://1"}
---"""
    page = tmp_path / "report.html"
    arguments = ("--tz", "Asia/Kolkata", "--report", str(page))
    assert dovetail("simulate", dovetail.file(POOL), *arguments).code == 0
    whole = page.read_text(encoding="utf-8")
    assert re.findall(r">(Mon [0-9:]{5})</text>", whole)[:3] == ["Mon 05:30", "Mon 05:35", "Mon 05:40"]
    assert "Missing or unusual" not in whole
    assert dovetail("simulate", dovetail.file(node + POOL), *arguments).code == 0
    assert re.search(r"Missing or unusual.*NodeClaimMissing.*Nodes over time", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no input"),
        (["nowhere.yaml"], "nowhere.yaml: No such file"),
        (
            ["FILE", "--set", "nodepool/other.spec.weight=1"],
            "--set nodepool/other.spec.weight: there is no such object",
        ),
        (["FILE", "--set", "nodepool/default.spec.weight=high"], "spec.weight: expected an integer"),
        (
            ["FILE", "--set", "deployment/web.spec.replicas=many"],
            "web.spec.replicas: spec.replicas: expected an integer",
        ),
        (["FILE", "--compare"], "--compare needs --set"),
        (["FILE", "--report", "/nowhere/x.html", "--for", "1s"], "--report /nowhere/x.html: No such file"),
        (["FILE", "--instance-types", "none.json"], "--instance-types none.json: No such file"),
        (["FILE", "--context", "a"], "--kubeconfig and --context go with --from-cluster"),
    ],
)
def test_what_is_wrong_is_one_line(dovetail: Program, arguments: list[str], said: str) -> None:
    file = dovetail.file(POOL)
    outcome = dovetail("simulate", *(file if word == "FILE" else word for word in arguments))
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("dovetail: ")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


def test_a_cluster_that_cannot_be_reached(dovetail: Program) -> None:
    """A port on which nobody listens."""
    access = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    outcome = dovetail("simulate", "--from-cluster", "--kubeconfig", dovetail.file(json.dumps(access), "config"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert outcome.err.startswith("dovetail: the cluster cannot be reached: ")
    nowhere = dovetail("simulate", "--from-cluster")
    assert (nowhere.code, nowhere.out, nowhere.err.count("\n")) == (2, "", 1)


def test_the_demo_has_its_own_cluster_and_time(dovetail: Program) -> None:
    for option in ("-f", "--at"):
        outcome = dovetail("demo", option, "x")
        assert (outcome.code, f"No such option '{option}'" in outcome.err) == (2, True)


def test_the_demo_without_a_terminal(dovetail: Program) -> None:
    outcome = dovetail("demo", "--headless", "--for", "30m", "-q")
    assert outcome.code == 0
    assert outcome.out.startswith("Simulated 30m from 2026-03-02T00:00:00Z")
    launched = re.search(r"launched (\d+)", outcome.out)
    assert launched is not None
    assert int(launched[1]) > 20
