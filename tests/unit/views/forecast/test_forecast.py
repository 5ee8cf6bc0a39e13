"""`forecast` says of every later instant what the rules would say then, without a gap."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.api.documents import read_documents
from dovetail.model.pod_records import PodRecord
from dovetail.model.snapshot import Snapshot
from dovetail.rules.states import IN_DISRUPTION
from dovetail.state.intake import take_in
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import Explanation, explain
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import (
    Forecast,
    ForecastEvent,
    ForecastEventType,
    NodeForecast,
    SpanKind,
)
from dovetail.views.turns import MAX_TURNS
from tests.harness.builders import at, budget, claim, node, pdb, pod, pool
from tests.harness.snapshots import take_snapshot
from tests.harness.soak import examples

CLUSTER = Path(__file__).parents[4] / "examples" / "cluster.yaml"
NOW = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    return take_in(read_documents(CLUSTER.read_bytes(), "cluster.yaml"))[0]


def one(
    *pods: PodRecord, expire_after: str = "Never", grace_period: str | None = None, span: timedelta = 24 * HOUR
) -> NodeForecast:
    """The forecast for node-1, made 2026-03-01 and never consolidated, from 2026-03-06T16:20 on."""
    snapshot = take_snapshot(
        claims=[claim(expire_after=expire_after, grace_period=grace_period)],
        nodes=[node()],
        pods=pods,
        pools=[pool(consolidate_after="Never")],
    )
    return forecast(assess(snapshot, NOW), NOW + span).nodes[0]


def told(node_: NodeForecast, *types: ForecastEventType) -> list[tuple[str, str, str]]:
    return [(event.type, str(event.object), f"{event.at:%m-%dT%H:%M}") for event in node_.events if event.type in types]


def only(events: tuple[ForecastEvent, ...], type_: ForecastEventType) -> ForecastEvent:
    (found,) = (event for event in events if event.type is type_)
    return found


# -- it is what the rules say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [36 * HOUR, 14 * 24 * HOUR][: examples(2, quick=1)])
def test_what_is_foretold_is_what_is_said_then(cluster: Snapshot, span: timedelta) -> None:
    ahead = forecast(assess(cluster, NOW), NOW + span)
    starts = {span_.start for node_ in ahead.nodes for span_ in node_.spans}
    starts |= {span_.start for node_ in ahead.nodes for reason in node_.reasons for span_ in reason.spans}
    starts |= {span_.start for pool_ in ahead.nodepools for reason in pool_.reasons for span_ in reason.spans}
    instants = sorted(starts | {ahead.end})
    assert len(instants) > 5
    for start, end in pairwise(instants):
        for instant in (start, start + (end - start) / 2, end - timedelta(microseconds=1)):
            _check(ahead, explain(assess(cluster, instant)))


def _check(ahead: Forecast, then: Explanation) -> None:
    for node_, said in zip(ahead.nodes, then.nodes, strict=True):
        kind = next(span.kind for span in node_.spans if span.start <= then.at < span.end)
        if kind in (SpanKind.FREE, SpanKind.BLOCKED):
            assert (kind is SpanKind.FREE) == (said.free_at == then.at), (node_.name, then.at)
        else:
            expired = node_.expires_at is not None and node_.expires_at <= then.at
            assert said.state in IN_DISRUPTION or expired, (node_.name, then.at)
        for reason, verdict in zip(node_.reasons, said.reasons, strict=True):
            spans = [span for span in reason.spans if span.start <= then.at < span.end]
            assert [(span.wanted, span.allowed) for span in spans] == [(verdict.wanted, verdict.allowed)][: len(spans)]
    for pool_, told_ in zip(ahead.nodepools, then.nodepools, strict=True):
        for over_time, budget_ in zip(pool_.reasons, told_.budgets, strict=True):
            (span_,) = (span for span in over_time.spans if span.start <= then.at < span.end)
            in_use = budget_.disrupting + budget_.unhealthy
            assert (span_.limit, span_.in_use, span_.allowed, span_.budget) == (
                budget_.limit,
                in_use,
                budget_.allowed,
                budget_.binding,
            )


def test_spans_leave_no_gap(cluster: Snapshot) -> None:
    ahead = forecast(assess(cluster, NOW), NOW + 14 * 24 * HOUR)
    for node_ in ahead.nodes:
        edges = [ahead.at, *(span.end for span in node_.spans)]
        assert [span.start for span in node_.spans] == edges[:-1]
        assert edges[-1] == ahead.end
        assert all(left.kind != right.kind for left, right in pairwise(node_.spans))
        assert list(node_.events) == sorted(node_.events, key=lambda event: event.at)
        assert all(ahead.at <= event.at <= ahead.end for event in node_.events)


def test_a_blocked_span_names_who_blocks_it_one_after_the_other() -> None:
    found = one(
        pod("a", do_not_disrupt="true", created="2026-03-06T00:00:00Z", phase="Succeeded"),
        pod("b", do_not_disrupt="20h", created="2026-03-06T00:00:00Z"),
        pod("c", block_schedule="0 18 * * *", block_duration="6h"),
    )
    blocked, free = found.spans
    assert (blocked.kind, free.kind, f"{free.start:%dT%H}") == (SpanKind.BLOCKED, SpanKind.FREE, "07T00")
    assert [(cause.rule, str(cause.object), f"{cause.start:%dT%H}", cause.until) for cause in blocked.causes] == [
        ("do-not-disrupt", "Pod/default/b", "06T16", at("2026-03-06T20:00:00Z")),
        ("disruption-block-schedule", "Pod/default/c", "06T20", at("2026-03-07T00:00:00Z")),
    ]


def test_pods_that_say_the_same_are_one_cause() -> None:
    found = one(*(pod(f"p{number}", do_not_disrupt="true") for number in range(30)))
    (cause,) = found.spans[0].causes
    assert (str(cause.object), cause.until) == ("Pod/default/p0", None)
    assert cause.message.endswith("(and 29 more like it)")
    assert found.free_at is None


# -- how a node goes --------------------------------------------------------------------------------------------------


def test_a_node_expires_is_drained_and_forced() -> None:
    found = one(
        pod("free", grace=60),
        pod("kept", do_not_disrupt="true", grace=600),
        pod("later", schedule="0 23 * * *", duration="1h"),
        pod("agent", owner="DaemonSet", do_not_disrupt="true"),
        expire_after="140h",  # 2026-03-06T20:00
        grace_period="6h",
    )
    assert [(span.kind, f"{span.start:%dT%H:%M}") for span in found.spans] == [
        (SpanKind.BLOCKED, "06T16:20"),
        (SpanKind.DRAINING, "06T20:00"),
        (SpanKind.GONE, "07T02:00"),
    ]
    assert told(
        found,
        ForecastEventType.EXPIRES,
        ForecastEventType.POD_EVICTED,
        ForecastEventType.POD_DELETED,
        ForecastEventType.FORCED,
    ) == [
        ("expires", "Node/node-1", "03-06T20:00"),
        ("pod-evicted", "Pod/default/free", "03-06T20:00"),
        ("pod-evicted", "Pod/default/later", "03-06T23:00"),
        ("pod-deleted", "Pod/default/kept", "03-07T01:50"),
        ("pod-deleted", "Pod/default/agent", "03-07T01:59"),
        ("forced", "Node/node-1", "03-07T02:00"),
    ]
    assert {event.certainty for event in found.events if event.type is not ForecastEventType.WINDOW_OPENS} == {"exact"}
    assert found.deadline == at("2026-03-07T02:00:00Z")
    assert all(span.end <= at("2026-03-06T20:00:00Z") for reason in found.reasons for span in reason.spans)


@pytest.mark.parametrize("begun", [False, True])
def test_a_drain_waits_for_a_pod_until_it_is_deleted_for_the_deadline(begun: bool) -> None:
    """R13, R17: in a drain that has begun, of which `explain` says the same, and in one to come."""
    snapshot = take_snapshot(
        claims=[claim(deleted="2026-03-06T16:00:00Z" if begun else None, expire_after="140h", grace_period="6h")],
        nodes=[node()],
        pods=[pod("kept", do_not_disrupt="true", grace=600), pod("guarded", labels={"app": "a"}, grace=60)],
        pools=[pool(consolidate_after="Never")],
        pdbs=[pdb(match={"app": "a"}, allowed=0)],
    )
    deadline = at("2026-03-06T22:00:00Z") if begun else at("2026-03-07T02:00:00Z")
    assessment = assess(snapshot, NOW)
    (found,) = forecast(assessment, NOW + 24 * HOUR).nodes
    (drained,) = (span for span in found.spans if span.kind is SpanKind.DRAINING)
    until = {cause.object.name: cause.until for cause in drained.causes}
    assert until == {"kept": deadline - timedelta(minutes=10), "guarded": deadline - timedelta(minutes=1)}
    if begun:
        said = {
            verdict.object.name: (verdict.until, verdict.message)
            for pod_ in explain(assessment).pods
            for verdict in pod_.verdicts
            if not verdict.allowed
        }
        assert said == {cause.object.name: (cause.until, cause.message) for cause in drained.causes}


def test_without_a_limit_a_drain_waits_for_ever() -> None:
    found = one(pod("kept", do_not_disrupt="true"), expire_after="140h")
    assert [span.kind for span in found.spans] == [SpanKind.BLOCKED, SpanKind.DRAINING]
    assert [cause.rule for cause in found.spans[1].causes] == ["do-not-disrupt"]
    assert (
        told(
            found,
            ForecastEventType.POD_EVICTED,
            ForecastEventType.POD_DELETED,
            ForecastEventType.FORCED,
            ForecastEventType.DEADLINE,
        )
        == []
    )


def test_what_expired_before_is_overdue() -> None:
    found = one(pod(), expire_after="1h")
    event = only(found.events, ForecastEventType.EXPIRES)
    assert (event.at, event.certainty) == (NOW, "assumed")
    assert "overdue since 2026-03-01T01:00:00Z" in event.message


def test_a_drain_that_has_begun_goes_on() -> None:
    snapshot = take_snapshot(
        claims=[claim(deleted="2026-03-06T16:00:00Z", grace_period="4h")],
        nodes=[node(deleted="2026-03-06T16:00:00Z")],
        pods=[pod("kept", do_not_disrupt="true", grace=900), pod("held", labels={"app": "db"}, grace=0)],
        pools=[pool()],
        pdbs=[pdb(match={"app": "db"}, max_unavailable=0, allowed=0, expected=1)],
    )
    ahead = forecast(assess(snapshot, NOW), NOW + 24 * HOUR)
    assert told(ahead.nodes[0], *ForecastEventType) == [
        ("pod-deleted", "Pod/default/kept", "03-06T19:45"),
        ("pod-deleted", "Pod/default/held", "03-06T20:00"),
        ("forced", "Node/node-1", "03-06T20:00"),
    ]
    assert [event.certainty for event in ahead.nodes[0].events] == ["exact", "assumed", "exact"]
    assert ahead.exact_until == at("2026-03-06T19:45:00Z")


# -- what is exact ----------------------------------------------------------------------------------------------------


def two(policy: str, *, priority: int = 0, nodes: str = "100%") -> Forecast:
    """One node expires at 20:00, the other at 22:00; both have a pod that is protected for longer."""
    return forecast(
        assess(
            take_snapshot(
                claims=[
                    claim(expire_after="140h"),
                    claim("claim-2", provider_id="kwok://node-2", expire_after="142h"),
                ],
                nodes=[node(), node("node-2")],
                pods=[
                    pod("a", do_not_disrupt="240h", priority=priority),
                    pod("b", node="node-2", do_not_disrupt="240h"),
                ],
                pools=[pool(policy=policy, budgets=[budget(nodes)])],
            ),
            NOW,
        ),
        NOW + 24 * HOUR,
    )


def certainties(ahead: Forecast) -> list[str]:
    return [only(node_.events, ForecastEventType.EXPIRES).certainty for node_ in ahead.nodes]


def test_an_expiration_is_exact_if_nothing_else_can_take_the_node_before() -> None:
    assert certainties(two("WhenEmptyOrUnderutilized")) == ["exact", "exact"]
    # The pod of the first may push the other off its node, which is empty then.
    assert certainties(two("WhenEmptyOrUnderutilized", priority=10)) == ["exact", "assumed"]
    assert certainties(two("WhenEmptyOrUnderutilized", priority=10, nodes="0")) == ["exact", "exact"]


def test_a_node_that_may_be_consolidated_may_go_before_it_expires() -> None:
    snapshot = take_snapshot(
        claims=[claim(expire_after="140h")], nodes=[node()], pods=[pod()], pools=[pool(consolidate_after="0s")]
    )
    ahead = forecast(assess(snapshot, NOW), NOW + 24 * HOUR)
    assert ahead.exact_until == NOW
    assert certainties(ahead) == ["assumed"]


@pytest.mark.parametrize("missing", ["pool", "initialized", "ready"])
def test_of_a_node_that_is_not_well_or_not_known_nothing_is_exact(missing: str) -> None:
    snapshot = take_snapshot(
        claims=[claim(expire_after="140h")],
        nodes=[node(initialized=missing != "initialized", ready="False" if missing == "ready" else "True")],
        pods=[pod(do_not_disrupt="true")],
        pools=[] if missing == "pool" else [pool(consolidate_after="Never")],
    )
    assert certainties(forecast(assess(snapshot, NOW), NOW + 24 * HOUR)) == ["assumed"]


def drifted(*pods: PodRecord, also: str = "23h") -> Forecast:
    """A drifted node, and one that is protected for so long since 00:00 and drifted too."""
    return forecast(
        assess(
            take_snapshot(
                claims=[
                    claim(true=["Drifted"]),
                    claim("claim-2", provider_id="kwok://node-2", true=["Drifted"]),
                ],
                nodes=[node(), node("node-2", created="2026-03-06T00:00:00Z", do_not_disrupt=also)],
                pods=pods,
                pools=[pool(consolidate_after="Never", budgets=[budget("100%")])],
            ),
            NOW,
        ),
        NOW + 24 * HOUR,
    )


def test_a_node_that_goes_alone_and_needs_no_place_goes_exactly_then() -> None:
    agent = pod("agent", owner="DaemonSet", do_not_disrupt="20h", created="2026-03-06T00:00:00Z")
    first, second = drifted(agent).nodes
    event = only(first.events, ForecastEventType.DISRUPTS)
    assert (event.at, event.certainty) == (at("2026-03-06T20:00:00Z"), "exact")
    assert [span.kind for span in first.spans] == [SpanKind.BLOCKED, SpanKind.DRAINING, SpanKind.GONE]
    # By then the first has changed things.
    assert only(second.events, ForecastEventType.DISRUPTS).certainty == "assumed"


def test_a_node_whose_pods_need_a_place_or_that_is_not_alone_may_go_then() -> None:
    web = pod(do_not_disrupt="20h", created="2026-03-06T00:00:00Z")
    agent = pod("agent", owner="DaemonSet", do_not_disrupt="20h", created="2026-03-06T00:00:00Z")
    for found in (drifted(web), drifted(agent, also="20h")):
        event = only(found.nodes[0].events, ForecastEventType.DISRUPTS)
        assert (event.at, event.certainty) == (at("2026-03-06T20:00:00Z"), "assumed")
        assert [span.kind for span in found.nodes[0].spans] == [SpanKind.BLOCKED, SpanKind.FREE]


def test_a_node_may_be_kept_for_the_pods_of_a_drain() -> None:
    snapshot = take_snapshot(
        claims=[
            claim(deleted="2026-03-06T16:00:00Z"),
            claim("claim-2", provider_id="kwok://node-2", last_pod_event="2026-03-06T16:00:00Z"),
        ],
        nodes=[node(deleted="2026-03-06T16:00:00Z"), node("node-2")],
        pods=[pod(do_not_disrupt="true")],
        pools=[pool(consolidate_after="1h", budgets=[budget("100%")])],
    )
    empty = forecast(assess(snapshot, NOW), NOW + 24 * HOUR).nodes[1]
    event = only(empty.events, ForecastEventType.DISRUPTS)
    assert (event.at, event.certainty) == (at("2026-03-06T17:00:00Z"), "assumed")


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_windows_are_told_once_for_pods_that_share_them_in_summer_time_too() -> None:
    pods = [pod(f"p{number}", schedule="CRON_TZ=Europe/Berlin 30 2 * * *", duration="1h") for number in range(3)]
    snapshot = take_snapshot(
        claims=[claim()], nodes=[node()], pods=pods, pools=[pool(consolidate_after="Never", budgets=[budget("0")])]
    )
    start = at("2026-03-28T00:00:00Z")
    (found,) = forecast(assess(snapshot, start), start + 72 * HOUR).nodes
    # On the 29th there is no half past two in Berlin: it opens when the clock goes on, at three.
    assert told(found, ForecastEventType.WINDOW_OPENS, ForecastEventType.WINDOW_CLOSES) == [
        ("window-opens", "Pod/default/p0", "03-28T01:30"),
        ("window-closes", "Pod/default/p0", "03-28T02:30"),
        ("window-opens", "Pod/default/p0", "03-29T01:00"),
        ("window-closes", "Pod/default/p0", "03-29T02:00"),
        ("window-opens", "Pod/default/p0", "03-30T00:30"),
        ("window-closes", "Pod/default/p0", "03-30T01:30"),
    ]
    messages = [event.message for event in found.events if event.type is ForecastEventType.WINDOW_OPENS]
    assert messages[0] == "disruption window of 3 pods opens"


def test_what_changes_all_the_time_is_cut_off() -> None:
    found = one(pod(schedule="*/2 * * * *", duration="1m"))
    assert found.cut_at is not None
    assert len(found.spans) == MAX_TURNS + 1
    assert found.spans[-1].end == NOW + 24 * HOUR


def test_nothing_gives_an_empty_forecast() -> None:
    ahead = forecast(assess(take_snapshot(), NOW), NOW + HOUR)
    assert (ahead.nodes, ahead.nodepools, ahead.herds, ahead.problems) == ((), (), (), ())


def test_machines_are_read_off_labels() -> None:
    snapshot = take_in(read_documents(CLUSTER.read_bytes(), "cluster.yaml"))[0]
    (node,) = (each for each in forecast(assess(snapshot, NOW), NOW + HOUR).nodes if each.name == "general-4xk9d")
    assert (node.instance_type, node.capacity_type, node.zone) == ("c-8x-amd64-linux", "on-demand", "eu-central-1b")
