"""How fast nodes that are not Ready are emptied."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import NODES, name_of
from dovetail.sim.actors.zones import Zones
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def node(name: str, zone: str, ready: str | None) -> dict[str, Any]:
    made = manifests.node(name, zone=zone)
    made["status"]["conditions"] = [] if ready is None else [{"type": "Ready", "status": ready}]
    return made


def filled(zone: str, size: int, unready: int, *, said: str | None = "False", zones: Zones | None = None) -> Zones:
    zones = zones or Zones()
    for number in reversed(range(size)):  # those that are Ready first
        name = f"{zone}{number}"
        zones.update(name, node(name, zone, said if number < unready else "True"), NOW)
    return zones


@pytest.mark.parametrize(
    ("size", "unready", "seconds"),
    [
        pytest.param(3, 1, 10, id="one of three"),
        pytest.param(3, 2, 10, id="two are never too many"),
        pytest.param(4, 3, None, id="most"),
        pytest.param(5, 3, None, id="60 %"),
        pytest.param(8, 4, 10, id="50 %"),
        pytest.param(3, 3, 10, id="all"),
        pytest.param(50, 28, None, id="most of a small zone"),
        pytest.param(60, 40, 100, id="most of a large zone"),
        pytest.param(60, 60, 10, id="all of a large zone"),
    ],
)
def test_how_long_the_next_node_waits(size: int, unready: int, seconds: int | None) -> None:
    zones = filled("b", 1, 0, zones=filled("a", size, unready))
    if seconds is None:
        assert zones.turn("a0", NOW) is None
        return
    zones.took_turn("a0", NOW)
    assert zones.turn("a0", NOW) == NOW + timedelta(seconds=seconds)


def test_zones_do_not_wait_for_each_other() -> None:
    zones = filled("b", 3, 1, zones=filled("a", 3, 1))
    assert zones.turn("a0", NOW) == zones.turn("b0", NOW) == NOW
    zones.took_turn("a0", NOW)
    assert zones.turn("b0", NOW) == NOW


def test_nodes_that_have_not_spoken_count_as_not_ready() -> None:
    zones = filled("a", 4, 3, said=None)
    assert zones.turn("a0", NOW) is None
    # But as long as nobody has spoken at all, nothing has failed.
    assert not filled("a", 3, 3, said=None).outage
    assert filled("a", 3, 3).outage


def test_after_a_standstill_the_first_one_waits_too() -> None:
    zones = filled("a", 5, 3)
    later = NOW + timedelta(minutes=5)
    assert sorted(zones.update("a2", node("a2", "a", "True"), later)) == ["a0", "a1", "a2", "a3", "a4"]
    assert zones.turn("a0", later) == later + timedelta(seconds=10)


def test_an_outage_begins_and_ends_for_all() -> None:
    zones = filled("a", 2, 2, zones=filled("b", 1, 0))
    assert (zones.outage, zones.turn("a0", NOW)) == (False, NOW)
    assert sorted(zones.update("b0", None, NOW)) == ["a0", "a1"]
    assert (zones.outage, zones.turn("a0", NOW)) == (True, None)
    assert sorted(zones.update("b0", node("b0", "b", "True"), NOW)) == ["a0", "a1", "b0"]
    assert (zones.outage, zones.turn("a0", NOW)) == (False, NOW + timedelta(seconds=10))


def test_what_changes_nothing_concerns_nobody() -> None:
    zones = filled("a", 3, 1)
    assert zones.update("a0", node("a0", "a", "Unknown"), NOW) == []
    assert zones.update("a1", node("a1", "b", "True"), NOW) == []  # another zone
    assert zones.turn("a0", NOW) == NOW


async def test_silent_kubelets_of_a_zone_lose_their_pods_one_after_the_other(cluster: SimCluster) -> None:
    await cluster.apply(*(manifests.node(f"a{number}", zone="a") for number in range(3)))
    await cluster.apply(manifests.node("b0", zone="b"))
    await cluster.run_for("1m")
    for number in range(3):
        cluster.kill_kubelet(f"a{number}")
    died = cluster.clock.now()
    await cluster.run_for("5m")
    added = {
        name_of(found): taint["timeAdded"]
        for found in cluster.objects(NODES)
        for taint in found["spec"].get("taints") or ()
        if taint["effect"] == "NoExecute"
    }
    since = [datetime.fromisoformat(added[f"a{number}"]) - died for number in range(3)]
    assert [gap.total_seconds() for gap in since] == [50, 60, 70]
