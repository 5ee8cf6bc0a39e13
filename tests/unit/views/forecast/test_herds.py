"""Herds: many nodes of one pool to which the same happens within ten minutes."""

from datetime import UTC, datetime, timedelta

from dovetail.views.assessment import assess
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import Forecast
from tests.harness.builders import claim, node, pod, pool
from tests.harness.snapshots import take_snapshot

NOW = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)
DAY = timedelta(hours=24)


def expiring(*minutes: int, others: int = 0) -> Forecast:
    """Nodes that expire so many minutes from now, and others that do not."""
    claims, nodes, pods = [], [], []
    for number, after in enumerate([*minutes, *[None] * others]):
        name = f"n{number:04}"
        expire_after = "Never" if after is None else f"{60 + after}m"
        claims.append(
            claim(
                f"c{number:04}",
                provider_id=f"kwok://{name}",
                created="2026-03-06T15:20:00Z",
                expire_after=expire_after,
            )
        )
        nodes.append(node(name, created="2026-03-06T15:20:00Z"))
        pods.append(pod(f"p{number}", node=name))
    snapshot = take_snapshot(claims=claims, nodes=nodes, pods=pods, pools=[pool(consolidate_after="Never")])
    return forecast(assess(snapshot, NOW), NOW + DAY)


def told(ahead: Forecast) -> list[tuple[int, str]]:
    return [(herd.count, herd.message) for herd in ahead.herds]


def test_fourteen_nodes_that_expire_together_are_a_herd() -> None:
    ahead = expiring(*range(60, 67), *[67] * 7)
    assert told(ahead) == [(14, "14 nodes of default expire within 10 minutes at 2026-03-06T17:20:00Z")]
    (herd,) = ahead.herds
    assert (herd.start, herd.end, len(herd.nodes)) == (NOW + timedelta(hours=1), NOW + timedelta(minutes=67), 14)


def test_at_one_instant() -> None:
    assert told(expiring(60, 60, 60)) == [(3, "3 nodes of default expire at 2026-03-06T17:20:00Z")]


def test_two_or_those_far_apart_are_none() -> None:
    assert told(expiring(60, 61)) == []
    assert told(expiring(60, 70, 81)) == []
    assert len(told(expiring(60, 65, 70))) == 1


def test_a_herd_begins_where_it_is_dense() -> None:
    assert told(expiring(52, 60, 64, 69, 300)) == [
        (3, "3 nodes of default expire within 10 minutes at 2026-03-06T17:20:00Z")
    ]


def test_of_a_large_pool_three_are_too_few() -> None:
    assert told(expiring(60, 61, 62, others=147)) != []
    assert told(expiring(60, 61, 62, others=148)) == []
