"""The shared caches never go back, and heal."""

from typing import Any

import pytest

from dovetail.ports import ApiError, OutcomeUnknown, Unavailable
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.watch import WatchCache
from dovetail.sim.actors.wire import Raw
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))


def obj(version: int, *, uid: str = "u", name: str = "a", color: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, "color": color}


@pytest.fixture
def changes() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def store(changes: list[tuple[str, str]]) -> WatchCache:
    made = WatchCache()
    made.index("color", lambda one: str(one["color"]))
    made.on_change(lambda old, new: changes.append((_version(old), _version(new))))
    return made


def _version(one: Raw | None) -> str:
    return "" if one is None else str(one["metadata"]["resourceVersion"])


def test_own_writes_come_first_and_the_watch_repeats_them_in_vain(
    store: WatchCache, changes: list[tuple[str, str]]
) -> None:
    store.observe_watched(obj(1))
    store.observe(obj(3))
    store.observe_watched(obj(2))
    store.observe_watched(obj(3))
    assert changes == [("", "1"), ("1", "3")]


def test_an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back(store: WatchCache) -> None:
    store.observe_watched(obj(1))
    store.forget(obj(5), 5)
    store.observe(obj(4))
    assert store.items == {}
    store.observe(obj(6, uid="v"))
    assert list(store.items) == ["a"]


def test_what_is_known_to_be_gone_stays_gone(store: WatchCache, changes: list[tuple[str, str]]) -> None:
    store.observe_watched(obj(1))
    store.bury(obj(1))
    store.observe_watched(obj(2))  # on its way when the object was deleted
    store.forget(obj(3), 3)
    store.observe_watched(obj(4, uid="v"))
    assert changes == [("", "1"), ("1", ""), ("", "4")]


def test_a_fresh_list_takes_away_what_it_lacks(store: WatchCache, changes: list[tuple[str, str]]) -> None:
    store.observe_watched(obj(1))
    store.observe_watched(obj(2, name="b", uid="b"))
    store.replace([obj(7, name="b", uid="b"), obj(8, name="c", uid="c")], 9)
    assert sorted(store.items) == ["b", "c"]
    assert changes[2:] == [("1", ""), ("2", "7"), ("", "8")]


def test_an_index_follows_the_objects(store: WatchCache) -> None:
    store.observe_watched(obj(1, color="red"))
    store.observe_watched(obj(2, name="b", uid="b", color="red"))
    assert list(store.under("color", "red")) == ["a", "b"]
    store.observe_watched(obj(3, color="blue"))
    assert (list(store.under("color", "red")), list(store.under("color", "blue"))) == (["b"], ["a"])
    store.forget(obj(4, name="b", uid="b", color="red"), 4)
    assert store.under("color", "red") == {}


@pytest.mark.parametrize("error", [Unavailable("down"), OutcomeUnknown("timeout")])
@pytest.mark.parametrize("client", ["kubelet", "kube-scheduler", "kube-controller-manager"])
async def test_actors_go_on_after_failed_requests(cluster: SimCluster, client: str, error: ApiError) -> None:
    await cluster.run_for("1s")
    fault = Fault(error=error, after=isinstance(error, OutcomeUnknown))
    cluster.server.faults.add(fault, client=client, times=20)
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=5))
    await cluster.wait_until(lambda: len(cluster.pods(ready=True)) == 5, timeout="10m")
    await cluster.run_for("10m")
    assert len(cluster.pods()) == 5
