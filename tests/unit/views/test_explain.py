"""`explain` over a span: what it says of later instants must be what it would say at those instants."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from dovetail.api.documents import read_documents
from dovetail.model.snapshot import Snapshot
from dovetail.rules.verdict import Rule
from dovetail.state.intake import take_in
from dovetail.views.assessment import Assessment, assess
from dovetail.views.board.details import make_details
from dovetail.views.explain.standings import NodeStanding
from dovetail.views.explain.verdicts import Explanation, explain
from dovetail.views.turns import MAX_TURNS
from tests.harness.builders import at, budget, claim, node, pod, pool
from tests.harness.snapshots import take_snapshot
from tests.harness.soak import examples

CLUSTER = Path(__file__).parents[3] / "examples" / "cluster.yaml"
NOW = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    return take_in(read_documents(CLUSTER.read_bytes(), "cluster.yaml"))[0]


def states(explanation: Explanation) -> dict[tuple[str, ...], tuple[bool, ...]]:
    """What holds of each pod, and of each node and reason."""
    found: dict[tuple[str, ...], tuple[bool, ...]] = {}
    for pod_ in explanation.pods:
        found[pod_.namespace, pod_.name] = (pod_.allowed,)
    for node_ in explanation.nodes:
        for reason in node_.reasons:
            found["node", node_.name, reason.reason] = (reason.wanted, reason.allowed)
    return found


def changes(explanation: Explanation) -> list[tuple[datetime, tuple[str, ...], tuple[bool, ...]]]:
    found: list[tuple[datetime, tuple[str, ...], tuple[bool, ...]]] = []
    for pod_ in explanation.pods:
        found += [(change.at, (pod_.namespace, pod_.name), (change.allowed,)) for change in pod_.changes or ()]
    for node_ in explanation.nodes:
        found += [
            (change.at, ("node", node_.name, change.reason), (change.wanted, change.allowed))
            for change in node_.changes or ()
        ]
    return sorted(found, key=lambda change: change[0])


@pytest.mark.parametrize("span", [timedelta(hours=36), timedelta(days=14)][: examples(2, quick=1)])
def test_what_is_foretold_is_what_is_said_then(cluster: Snapshot, span: timedelta) -> None:
    now = explain(assess(cluster, NOW), end=NOW + span)
    foretold, held = changes(now), states(now)
    instants = sorted({turn for turn, _, _ in foretold})
    assert len(instants) > 5
    before = NOW
    for turn in [*instants, NOW + span]:
        for between in (before + (turn - before) / 2, turn - timedelta(microseconds=1)):
            assert states(explain(assess(cluster, max(before, between)))) == held
        held |= {who: what for when, who, what in foretold if when == turn}
        assert states(explain(assess(cluster, turn))) == held
        before = turn


def test_each_change_is_one(cluster: Snapshot) -> None:
    now = explain(assess(cluster, NOW), end=NOW + timedelta(days=14))
    held = states(now)
    for turn, who, what in changes(now):
        assert NOW < turn <= NOW + timedelta(days=14)
        assert held[who] != what
        held[who] = what
    for node_ in now.nodes:
        assert [change.at for change in node_.changes or ()] == sorted(change.at for change in node_.changes or ())


def test_without_a_span_nothing_is_said_of_later(cluster: Snapshot) -> None:
    now = explain(assess(cluster, NOW))
    assert now.end is UNSET
    assert {pod_.changes for pod_ in now.pods} == {node_.changes for node_ in now.nodes} == {UNSET}


def test_the_end_of_the_span_belongs_to_it() -> None:
    snapshot = take_snapshot(pods=[pod(do_not_disrupt="4h", created="2026-03-06T14:20:00Z")])
    ends = [NOW + 2 * HOUR - timedelta(microseconds=1), NOW + 2 * HOUR]
    assert [len(explain(assess(snapshot, NOW), end=end).pods[0].changes or ()) for end in ends] == [0, 1]


def test_a_node_that_expires_is_wanted_from_then_on() -> None:
    snapshot = take_snapshot(
        nodes=[node()],
        claims=[claim(created="2026-03-01T00:00:00Z", expire_after="144h")],
        pools=[pool()],
        pods=[pod()],
    )
    (view,) = explain(assess(snapshot, NOW), end=NOW + 12 * HOUR).nodes
    assert [(change.at, change.reason, change.wanted, change.allowed) for change in view.changes or ()] == [
        (at("2026-03-07T00:00:00Z"), "Expired", True, True)
    ]


def test_a_window_that_opens_all_the_time_is_cut_off() -> None:
    snapshot = take_snapshot(pods=[pod(schedule="*/2 * * * *", duration="1m")])
    (view,) = explain(assess(snapshot, NOW), end=NOW + timedelta(days=7)).pods
    assert len(view.changes or ()) == MAX_TURNS


def test_pods_without_annotations_have_verdicts_of_their_own_name() -> None:
    pods = [pod("a"), pod("b", namespace="shop"), pod("c", do_not_disrupt="true"), pod("d")]
    for view in explain(assess(take_snapshot(pods=pods), NOW)).pods:
        assert {str(verdict.object) for verdict in view.verdicts} == {f"Pod/{view.namespace}/{view.name}"}
        assert len(view.verdicts) == 4


@pytest.mark.parametrize(
    ("value", "ready", "expected"),
    [
        ("true", "False", ["NotRepaired"]),
        ("true", "True", []),
        ("false", "False", []),
        ("yes", "True", ["InvalidDoNotRepair"]),
        ("4h", "False", ["InvalidDoNotRepair"]),
    ],
)
def test_a_node_that_is_not_to_be_repaired_says_so(value: str, ready: str, expected: list[str]) -> None:
    subject = node(do_not_repair=value, ready=ready)
    told = explain(assess(take_snapshot(pods=[pod()], nodes=[subject], claims=[claim()], pools=[pool()]), NOW))
    found = [problem for problem in told.problems if "Repair" in problem.rule]
    assert [problem.rule for problem in found] == expected
    assert all(str(problem.object) == "Node/node-1" and "do-not-repair" in problem.field for problem in found)


def test_limiting_verdicts_are_those_that_block_now_or_at_some_other_time() -> None:
    protected, unprotected = pod("a", do_not_disrupt="4h", created="2026-03-01T00:00:00Z"), pod("b")
    snapshot = take_snapshot(pods=[protected, unprotected], nodes=[node()])
    for now in ("2026-03-01T01:00:00Z", "2026-03-02T00:00:00Z"):
        assessment = assess(snapshot, at(now))
        (verdict,) = assessment.limiting(protected)
        assert verdict.rule is Rule.DO_NOT_DISRUPT
        assert assessment.limiting(unprotected) == ()
        (assessed,) = assessment.nodes
        assert assessed.limiting == ((protected, verdict),)


def test_what_consolidation_waits_for_is_said_and_until_when() -> None:
    """Also by an assessment that takes over what it can from an earlier one."""

    def taken(created: str) -> Snapshot:
        starting = claim("new", provider_id="kwok://new", created=created, statuses={})
        return take_snapshot(nodes=[node()], claims=[claim(), starting], pools=[pool()], pods=[pod()])

    def said(assessment: Assessment) -> list[tuple[str, datetime | None, str]]:
        views = {each.name: each for each in explain(assessment).nodes}
        reasons = {each.reason: each for each in views["node-1"].reasons}
        return [(each.rule, each.until, each.message) for each in reasons["Underutilized"].verdicts if not each.allowed]

    up = take_snapshot(nodes=[node()], claims=[claim()], pools=[pool()], pods=[pod()])
    before = assess(up, NOW)
    assert said(before) == []
    created = NOW - timedelta(minutes=4)
    until = created + timedelta(minutes=10)
    now = assess(taken(created.isoformat()), NOW, before=before)
    message = "new nodes of its NodePool are starting for pending pods: new"
    assert said(now) == [("scale-out", until, message)]
    assert said(assess(now.snapshot, until, before=now)) == []


def test_the_answer_names_no_pod_that_the_reader_may_not_see() -> None:
    """R49."""
    kept = pod("secret-1", namespace="hidden", do_not_disrupt="true")
    snapshot = take_snapshot(
        pods=[kept], nodes=[node()], claims=[claim(true=["Drifted"])], pools=[pool(budgets=[budget("100%")])]
    )
    explanation = explain(assess(snapshot, NOW))
    (member,) = snapshot.nodes
    seen, hidden = (make_details(member, explanation, may_see=may_see) for may_see in (bool, lambda _: False))
    assert seen.node.answer is not UNSET
    assert seen.node.answer.standing == NodeStanding.STUCK
    assert "secret-1" in str(seen.node.answer.cause)
    assert "secret-1" not in str(msgspec.to_builtins(hidden, enc_hook=str))
