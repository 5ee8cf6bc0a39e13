"""What stands on the board, and what is kept from those who may not list all pods."""

from datetime import timedelta
from random import Random

import msgspec
import pytest

from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.views.assessment import assess
from dovetail.views.board.details import DecisionView, make_details
from dovetail.views.board.maker import BoardMaker
from dovetail.views.board.rows import Board, NodeRow, next_change, redacted, workload_of
from dovetail.views.explain.verdicts import explain
from dovetail.views.forecast import data as ahead
from tests.browser.clusters import NOW, WORKLOADS, cluster
from tests.harness import builders
from tests.harness.builders import at

DAY = timedelta(days=1)


def board_at(nodes: int, seed: int, hours: float = 0.0) -> Board:
    snapshot = cluster(nodes, seed)
    when = NOW + timedelta(hours=hours)
    return BoardMaker().make(assess(snapshot, when), NOW + 3 * DAY)


@pytest.mark.parametrize("seed", range(5))
def test_spans_cover_all_time_in_order_and_name_their_causes(seed: int) -> None:
    board = board_at(30, seed)
    assert len(board.rows) == 30
    for row in board.rows:
        starts = [span[0] for span in row.spans]
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        assert all(start > board.at for start in starts[1:])
        assert {index for span in row.spans for index in span[2:]} == set(range(len(row.causes)))
        assert all(one[1:] != other[1:] for one, other in zip(row.spans, row.spans[1:], strict=False))
        if row.free == 0:
            assert row.spans[0][1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_row_stays_the_same_until_the_board_says_that_it_changes(seed: int) -> None:
    board = board_at(20, seed)
    change = next_change(board)
    assert change is not None
    hours = (change - board.at) / 3600
    just_before, then = board_at(20, seed, hours - 1 / 3600), board_at(20, seed, hours)
    assert just_before.rows == board.rows
    assert just_before.pools == board.pools
    assert (then.rows, then.pools) != (board.rows, board.pools)


def test_who_is_stuck_and_since_when() -> None:
    pods = [builders.pod("a", node="n1", do_not_disrupt="true")]
    claim = builders.claim("c1", provider_id="kwok://n1", true=["Drifted"])
    condition = msgspec.structs.replace(claim.conditions["Drifted"], last_transition_time=at("2026-03-02T10:00:00Z"))
    claim = msgspec.structs.replace(claim, conditions={**claim.conditions, "Drifted": condition})
    member = builders.member(claim, builders.node("n1"), pods)
    snapshot = snapshot_of(member)
    (row,) = BoardMaker().make(assess(snapshot, NOW), NOW + DAY).rows
    assert row.stuck == ("Drifted", round(at("2026-03-02T10:00:00Z").timestamp()))
    assert row.free is None
    assert row.wanted == ("Drifted",)


@pytest.mark.parametrize("begun", [False, True])
def test_a_pod_blocks_a_drain_until_it_is_deleted_for_the_deadline(begun: bool) -> None:
    claim = builders.claim(
        "c1",
        provider_id="kwok://n1",
        deleted="2026-03-06T16:00:00Z" if begun else None,
        expire_after="140h",
        grace_period="6h",
    )
    pods = [builders.pod("a", node="n1", do_not_disrupt="true", grace=600)]
    snapshot = snapshot_of(builders.member(claim, builders.node("n1"), pods))
    (row,) = BoardMaker().make(assess(snapshot, NOW), NOW + DAY).rows
    deadline = round(at("2026-03-06T22:00:00Z" if begun else "2026-03-07T02:00:00Z").timestamp())
    draining = list(ahead.SpanKind).index(ahead.SpanKind.DRAINING)
    drained = [span for span in row.spans if span[1] == draining]
    assert [span[2:] for span in drained] == [(0,), ()]
    assert drained[1][0] == deadline - 600


def snapshot_of(*members: ClusterNode) -> Snapshot:
    return Snapshot(
        nodes=members, pods=tuple(pod for member in members for pod in member.pods), pools={"default": builders.pool()}
    )


def test_workloads_have_the_name_that_their_labels_give() -> None:
    assert workload_of(builders.pod(namespace="shop", labels={"app": "cart"})) == "shop/cart"
    assert workload_of(builders.pod(namespace="shop", labels={"app": "", "k8s-app": "dns"})) == "shop/dns"
    assert workload_of(builders.pod(namespace="shop")) == "shop"


# -- what is withheld --------------------------------------------------------------------------------------------------


def kinds(row: NodeRow) -> list[tuple[int, int]]:
    """When it is free, blocked, draining and gone, by whomever."""
    found: list[tuple[int, int]] = []
    for start, kind, *_ in row.spans:
        if not found or found[-1][1] != kind:
            found.append((start, kind))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_no_name_of_a_hidden_namespace_is_told(seed: int) -> None:
    chance = Random(seed)
    seen = {namespace for namespace, _ in WORKLOADS if chance.random() < 0.5}
    snapshot = cluster(25, seed)
    assessment = assess(snapshot, NOW)
    whole = BoardMaker().make(assessment, NOW + 3 * DAY)
    board = redacted(whole, seen.__contains__)
    text = msgspec.json.encode(board, enc_hook=str).decode()
    explanation = explain(assessment)
    told_of = Sentence(*(Redactable(pod.object, f"{pod.namespace}/{pod.name}, ") for pod in snapshot.pods))
    for member in snapshot.nodes:
        details = make_details(
            member,
            explanation,
            left_alone=Sentence(
                "Drifted: ", Redactable(Ref("Pod", "secret", "x"), "Pod/secret/x: protected"), ", until noon"
            ),
            decisions=[
                DecisionView(at=NOW, text="delete", nodes=(member.name,), rejected=Sentence("scheduling: ", told_of))
            ],
            may_see=seen.__contains__,
        )
        text += msgspec.json.encode(details, enc_hook=str).decode()
        assert len(details.pods) + details.hidden_pods == len(member.pods)
        assert str(details.left_alone) == "Drifted: a pod in a namespace that you may not list, until noon"
    for pod in snapshot.pods:
        assert (pod.name in text) <= (pod.namespace in seen)
        assert (f"{pod.namespace}/" in text) <= (pod.namespace in seen)
    for row, full in zip(board.rows, whole.rows, strict=True):
        assert len(row.events) == len(full.events)
        hidden = sum(not cause[1].is_seen_by(seen.__contains__) for cause in full.causes)
        assert sum(cause[3] for cause in row.causes) == hidden
        assert kinds(row) == kinds(full)


def test_whoever_may_list_everything_is_told_everything() -> None:
    board = board_at(20, 1)
    assert redacted(board, lambda _: True) == msgspec.structs.replace(board, restricted=True)
