"""`dovetail forecast`: the contract of the command line, and how it looks."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
import pytest
import yaml

from dovetail.cli.common.output import Times
from dovetail.cli.text.forecast import forecast_lines
from dovetail.cli.text.forecast_bars import LEGEND, TimeScale
from dovetail.model.refs import Ref
from dovetail.views.assessment import assess
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import Certainty, Forecast, ForecastEvent, ForecastEventType, NodeSpan, SpanKind
from tests.harness.builders import claim, node, pod, pool
from tests.harness.snapshots import take_snapshot
from tests.unit.cli.running import Program

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.yaml")
AT = "2026-03-06T16:20:00Z"
NOW = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def data(dovetail: Program, *arguments: str, path: str = CLUSTER) -> dict[str, Any]:
    outcome = dovetail("forecast", "-f", path, "--at", AT, "-o", "json", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def text(dovetail: Program, *arguments: str, path: str = CLUSTER) -> str:
    outcome = dovetail("forecast", "-f", path, "--at", AT, *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


# -- data -------------------------------------------------------------------------------------------------------------


def test_the_keys_of_the_contract(dovetail: Program) -> None:
    answer = data(dovetail, "--for", "7d")
    assert {key: answer[key] for key in ("at", "end", "assumption", "exactUntil")} == {
        "at": AT,
        "end": "2026-03-13T16:20:00Z",
        "assumption": "nothing but time changes",
        "exactUntil": AT,
    }
    (found,) = (each for each in answer["nodes"] if each["name"] == "batch-9dwlm")
    assert {key for key in found if key not in ("spans", "reasons", "events", "cutAt")} == {
        *("name", "nodepool", "nodeClaim", "state", "instanceType", "capacityType", "zone", "pods"),
        *("managed", "badges", "undated", "standing"),
        *("freeAt", "expiresAt", "gracefullyExpiresAt", "deadline"),
    }
    assert found["spans"][0].keys() == {"start", "end", "kind", "causes"}
    assert found["spans"][0]["causes"][0].keys() >= {"rule", "object", "message", "until"}
    assert found["events"][-1] == {
        "at": "2026-03-09T09:00:00Z",
        "type": "forced",
        "object": "Node/batch-9dwlm",
        "message": "forced removal, if the drain has not ended by then",
        "certainty": "exact",
    }
    assert [reason["reason"] for reason in found["reasons"]] == ["Empty", "Drifted", "Underutilized", "Expired"]
    budget = answer["nodepools"][0]["reasons"][0]
    assert budget["spans"][0].keys() == {"start", "end", "limit", "inUse", "allowed", "budget"}


def test_a_day_is_the_default_and_yaml_is_the_same_data(dovetail: Program) -> None:
    answer = data(dovetail)
    assert answer["end"] == "2026-03-07T16:20:00Z"
    outcome = dovetail("forecast", "-f", CLUSTER, "--at", AT, "-o", "yaml")
    assert yaml.safe_load(outcome.out)["nodes"][0]["name"] == answer["nodes"][0]["name"]


@pytest.mark.parametrize(
    ("arguments", "nodes", "pools"),
    [
        (["node/batch-9dwlm"], {"batch-9dwlm"}, set()),
        (["nodepool/batch"], {"batch-2fp8k", "batch-9dwlm", "batch-t5hxv"}, {"batch"}),
        (["--nodepool", "batch"], {"batch-2fp8k", "batch-9dwlm", "batch-t5hxv"}, {"batch"}),
        (["pod/ml/trainer-0"], {"batch-2fp8k"}, set()),
        (["-n", "ml", "pod/trainer-0"], {"batch-2fp8k"}, set()),
    ],
)
def test_it_can_be_narrowed(dovetail: Program, arguments: list[str], nodes: set[str], pools: set[str]) -> None:
    answer = data(dovetail, *arguments)
    assert {each["name"] for each in answer["nodes"]} == nodes
    assert {each["name"] for each in answer["nodepools"]} == pools


def test_a_namespace_is_told_of_its_own_pods(dovetail: Program) -> None:
    answer = data(dovetail, "-n", "ml", "--for", "7d")
    assert {each["name"] for each in answer["nodes"]} == {"batch-2fp8k", "batch-9dwlm", "batch-t5hxv"}
    objects = {event["object"] for each in answer["nodes"] for event in each["events"]}
    assert {name for name in objects if name.startswith("Pod/")} >= {"Pod/ml/trainer-0"}
    assert all(name.startswith(("Node/", "Pod/ml/")) for name in objects)


def test_what_is_not_there_is_an_error(dovetail: Program) -> None:
    outcome = dovetail("forecast", "-f", CLUSTER, "node/nowhere")
    assert (outcome.code, outcome.out) == (2, "")
    assert "node/nowhere is not in the input" in outcome.err
    assert dovetail("forecast", "-f", CLUSTER, "--nodepool", "none").code == 2


# -- missing parts ----------------------------------------------------------------------------------------------------


def test_nothing_to_foretell(dovetail: Program) -> None:
    empty = dovetail.file("apiVersion: v1\nkind: List\nitems: []\n")
    assert "nothing to forecast" in text(dovetail, path=empty)
    assert data(dovetail, path=empty)["nodes"] == []


def objects() -> list[dict[str, Any]]:
    items = [each for each in yaml.safe_load_all(Path(CLUSTER).read_text(encoding="utf-8")) if each]
    return [item for each in items for item in (each["items"] if each["kind"] == "List" else [each])]


@pytest.mark.parametrize(
    ("kept", "rule"),
    [(("Node", "NodeClaim", "NodePool"), "NoPods"), (("Node", "NodeClaim", "Pod"), "NodePoolMissing")],
)
def test_what_is_missing_is_said(dovetail: Program, kept: tuple[str, ...], rule: str) -> None:
    path = dovetail.file(yaml.safe_dump_all([item for item in objects() if item["kind"] in kept]))
    answer = data(dovetail, path=path)
    assert rule in {problem["rule"] for problem in answer["problems"]}
    assert len(answer["nodes"]) > 10


def test_what_is_missing_is_said_of_single_nodes_too(dovetail: Program) -> None:
    """A whole kind, or half the dump, is missing from what is said of each of them."""
    whole = ",".join(json.dumps(item) for item in objects() if item["kind"] != "Pod")
    path = dovetail.file(f'{{"apiVersion": "v1", "kind": "List", "items": [{whole}, {{"kind"')
    for named in (["node/batch-9dwlm"], ["--nodepool", "batch"], ["-n", "ml"]):
        rules = {problem["rule"] for problem in data(dovetail, *named, path=path)["problems"]}
        assert rules >= {"NoPods", "CutOff"}, named


# -- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_bars_fit_the_terminal(dovetail: Program, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = text(dovetail).splitlines()
    table = lines[lines.index("Nodes") + 1 : lines.index(LEGEND) + 1]
    assert max(map(len, table)) <= columns
    assert len(table) == 14


def test_an_hour_is_shown_in_the_zone(dovetail: Program) -> None:
    line = next(line for line in text(dovetail, "--tz", "Asia/Kolkata").splitlines() if line.startswith("NODE"))
    assert "00:00" in line
    assert "From 2026-03-06T21:50:00+05:30" in text(dovetail, "--tz", "Asia/Kolkata")


def test_quiet_leaves_out_what_stays_as_it_is(dovetail: Program) -> None:
    told = text(dovetail, "-q")
    assert "general-pd7cj" in told
    assert "general-4xk9d" not in told
    assert "Problems" not in told


def scale(hours: float, width: int, zone: str = "UTC", at: datetime = NOW) -> TimeScale:
    return TimeScale(at, at + timedelta(hours=hours), width, ZoneInfo(zone))


def test_a_cell_shows_what_holds_in_its_middle_and_marks_what_happens() -> None:
    end = NOW + 10 * HOUR
    spans = [NodeSpan(NOW, NOW + 3 * HOUR, SpanKind.BLOCKED), NodeSpan(NOW + 3 * HOUR, NOW + 7 * HOUR, SpanKind.FREE)]
    spans += [NodeSpan(NOW + 7 * HOUR, NOW + 9 * HOUR, SpanKind.DRAINING), NodeSpan(NOW + 9 * HOUR, end, SpanKind.GONE)]
    events = [ForecastEvent(NOW + 7 * HOUR, ForecastEventType.EXPIRES, Ref("Node", "", "n"), "", Certainty.EXACT)]
    events += [ForecastEvent(NOW + 7 * HOUR, ForecastEventType.DISRUPTS, Ref("Node", "", "n"), "", Certainty.ASSUMED)]
    events += [ForecastEvent(end, ForecastEventType.FORCED, Ref("Node", "", "n"), "", Certainty.EXACT)]
    assert click.unstyle(scale(10, 10).bar(spans, events)) == "███····E▒F"


@pytest.mark.parametrize(
    ("hours", "width", "zone", "labels"),
    [
        (24, 48, "UTC", "   18:00       00:00       06:00       12:00"),
        (24, 24, "UTC", "       00:00       12:00"),
        (6, 60, "Asia/Kolkata", " 22:00     23:00     00:00     01:00     02:00     03:00"),
        (24 * 7, 70, "UTC", "   03-07     03-08     03-09     03-10     03-11     03-12     03-13"),
        (24 * 365, 60, "UTC", "03-07"),
    ],
)
def test_the_finest_scale_that_fits(hours: int, width: int, zone: str, labels: str) -> None:
    assert scale(hours, width, zone).labels().startswith(labels)


def test_the_clock_goes_on_and_back() -> None:
    spring = scale(4, 80, "Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)).labels().split()
    autumn = scale(4, 80, "Europe/Berlin", datetime(2026, 10, 24, 23, tzinfo=UTC)).labels().split()
    assert spring == ["01:00", "03:00", "04:00", "05:00"]
    assert autumn == ["01:00", "02:00", "02:00", "03:00"]


def crowd(count: int) -> Forecast:
    names = [f"n{number:04}" for number in range(count)]
    snapshot = take_snapshot(
        claims=[claim(f"c-{name}", provider_id=f"kwok://{name}", expire_after="140h") for name in names],
        nodes=[node(name) for name in names],
        pods=[pod(f"p-{name}", node=name) for name in names],
        pools=[pool(consolidate_after="Never")],
    )
    return forecast(assess(snapshot, NOW), NOW + 24 * HOUR)


def test_of_thousands_the_most_interesting_are_shown_and_the_rest_counted() -> None:
    found = crowd(300)
    lines = forecast_lines(found, Times(NOW, UTC), width=80, verbose=False, quiet=False)
    shown = [click.unstyle(line) for line in lines]
    assert "300 nodes of default expire at 2026-03-06T20:00:00Z (in 3h40m)" in shown
    assert "… and 275 more nodes; -v shows all" in shown
    assert "Events" not in shown  # the herd has told them all
    assert len(shown) < 50
    everything = forecast_lines(found, Times(NOW, UTC), width=80, verbose=True, quiet=False)
    assert sum(line.startswith("n0") for line in map(click.unstyle, everything)) == 300
    assert not any("more" in line for line in everything)
