"""The arithmetic of Deployments, and which pods a ReplicaSet gives up first."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.sim.actors.deployment import Bounds, Size, bounds, grown, shrunk
from dovetail.sim.actors.replica_set import deletion_cost, victims

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", Bounds(3, 2)),
        (3, "25%", "25%", Bounds(1, 0)),
        (1, "25%", "25%", Bounds(1, 0)),
        (4, 0, "10%", Bounds(0, 1)),  # both 0 would never get anywhere
        (10, 2, 5, Bounds(2, 5)),
    ],
)
def test_bounds(replicas: int, surge: int | str, unavailable: int | str, expected: Bounds) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    assert bounds({"replicas": replicas, "strategy": {"rollingUpdate": rolling}}) == expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (Size("n", 0, 0), [Size("o", 10, 10)], 3),
        (Size("n", 3, 0), [Size("o", 10, 10)], 3),
        (Size("n", 3, 3), [Size("o", 8, 8)], 5),
        (Size("n", 12, 12), [], 10),
        (Size("n", 0, 0), [], 10),
    ],
)
def test_grown(new: Size, old: list[Size], expected: int) -> None:
    assert grown(10, Bounds(3, 2), new, old) == expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (Size("n", 3, 0), [Size("o", 10, 10)], {"o": 8}),
        (Size("n", 5, 0), [Size("o", 8, 8)], {"o": 8}),  # the new ones do not come up: the old ones stay
        (Size("n", 5, 0), [Size("o", 8, 7)], {"o": 8}),
        (Size("n", 3, 3), [Size("o", 10, 4)], {"o": 5}),  # unavailable ones go first
        (Size("n", 10, 10), [Size("o", 2, 2), Size("p", 1, 1)], {"o": 0, "p": 0}),
        (Size("n", 5, 5), [Size("o", 5, 5), Size("p", 1, 1)], {"o": 2, "p": 1}),
    ],
)
def test_shrunk(new: Size, old: list[Size], expected: dict[str, int]) -> None:
    assert shrunk(10, Bounds(3, 2), new, old) == expected


def pod(name: str, **changes: Any) -> dict[str, Any]:
    made = {"node": "n", "phase": "Running", "ready": "2026-03-02T10:00:00Z", "cost": "0", "created": "09:00:00"}
    made |= changes
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": made["ready"]}] if made["ready"] else []
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": f"2026-03-02T{made['created']}Z",
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": made["cost"]},
        },
        "spec": {"nodeName": made["node"]},
        "status": {"phase": made["phase"], "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("b", node="", phase="Pending", ready=""), pod("a", phase="Pending", ready="")),
        (pod("b", phase="Pending", ready=""), pod("a", ready="")),
        (pod("b", ready=""), pod("a", cost="-100")),
        (pod("b", cost="-1"), pod("a", node="crowded")),
        (pod("b", node="crowded"), pod("a")),
        (pod("b", ready="2026-03-02T11:59:00Z"), pod("a")),
        (pod("a", ready="2026-03-02T09:59:00Z"), pod("b")),  # the same power of two: the UID decides
        (pod("b", created="11:00:00"), pod("a")),
        (pod("a"), pod("b")),
    ],
)
def test_victims(first: dict[str, Any], second: dict[str, Any]) -> None:
    for pods in ([first, second], [second, first]):
        assert victims(pods, 1, crowding={"n": 1, "crowded": 2}, now=NOW) == [first]


@pytest.mark.parametrize(("text", "cost"), [("5", 5), ("-5", -5), ("x", 0), ("99999999999", 0)])
def test_deletion_cost(text: str, cost: int) -> None:
    assert deletion_cost(pod("a", cost=text)) == cost
