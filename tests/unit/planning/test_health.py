"""Which nodes are so unhealthy that they are replaced, from when, and when that is stopped (02 §11, R24a)."""

from collections.abc import Sequence

import pytest

from dovetail.api import objects
from dovetail.planning.node.health import NodeFault, RepairPolicy, ailment, snake_case, too_many_unhealthy
from tests.harness.builders import at

POLICIES = (
    RepairPolicy(condition="Ready", status="False", toleration_seconds=600),
    RepairPolicy(condition="Ready", status="Unknown", toleration_seconds=900),
    RepairPolicy(condition="KernelReady", status="False", toleration_seconds=60),
)
SINCE = "2026-03-01T12:00:00Z"


def node(*conditions: tuple[str, str], since: str | None = SINCE) -> objects.Node:
    instant = None if since is None else at(since)
    found = [objects.Condition(type=type_, status=status, last_transition_time=instant) for type_, status in conditions]
    return objects.Node(status=objects.NodeStatus(conditions=found))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(node(("Ready", "True")), None, id="healthy"),
        pytest.param(node(), None, id="nobody has spoken for it"),
        pytest.param(node(("Ready", "False")), ("Ready", "2026-03-01T12:10:00Z"), id="not ready"),
        pytest.param(node(("Ready", "Unknown")), ("Ready", "2026-03-01T12:15:00Z"), id="silent"),
        pytest.param(node(("KernelReady", "Unknown")), None, id="a status that no policy names"),
        pytest.param(node(("DiskPressure", "True")), None, id="a condition that no policy names"),
        pytest.param(
            node(("Ready", "False"), ("KernelReady", "False")),
            ("KernelReady", "2026-03-01T12:01:00Z"),
            id="the one that comes first",
        ),
        pytest.param(node(("Ready", "False"), since=None), None, id="nobody knows since when"),
    ],
)
def test_ailment(subject: objects.Node, expected: tuple[str, str] | None) -> None:
    assert ailment(subject, POLICIES) == (None if expected is None else NodeFault(expected[0], at(expected[1])))


def test_a_late_ailment_can_come_before_an_early_one() -> None:
    conditions = [
        objects.Condition(type="Ready", status="False", last_transition_time=at("2026-03-01T12:00:00Z")),
        objects.Condition(type="KernelReady", status="False", last_transition_time=at("2026-03-01T12:08:59Z")),
    ]
    subject = objects.Node(status=objects.NodeStatus(conditions=conditions))
    assert ailment(subject, POLICIES) == NodeFault("KernelReady", at("2026-03-01T12:09:59Z"))


def test_without_policies_nothing_ails() -> None:
    assert ailment(node(("Ready", "False")), ()) is None
    assert too_many_unhealthy([node(("Ready", "False"))] * 10, ()) is None


@pytest.mark.parametrize(
    ("unhealthy", "all_", "blocked"),
    [
        pytest.param(1, 1, False, id="1 of 1: 20 % are one, rounded up"),
        pytest.param(1, 4, False, id="1 of 4"),
        pytest.param(2, 4, True, id="2 of 4"),
        pytest.param(1, 5, False, id="1 of 5: exactly 20 %"),
        pytest.param(2, 5, True, id="2 of 5"),
        pytest.param(2, 6, False, id="2 of 6"),
        pytest.param(20, 100, False, id="20 of 100"),
        pytest.param(21, 100, True, id="21 of 100"),
        pytest.param(0, 0, False, id="none at all"),
    ],
)
def test_what_ails_many_is_not_cured_by_replacing_them(unhealthy: int, all_: int, blocked: bool) -> None:
    # That it lasts for long enough does not matter here: a zone that has just failed must not be replaced node by node.
    nodes: Sequence[objects.Node] = [node(("Ready", "False"))] * unhealthy + [node(("Ready", "True"))] * (
        all_ - unhealthy
    )
    found = too_many_unhealthy(iter(nodes), POLICIES)
    assert (found is not None) == blocked
    assert found is None or f"{unhealthy} of {all_} nodes" in found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("Ready", "ready"),
        ("KernelReady", "kernel_ready"),
        ("AcceleratedHardwareReady", "accelerated_hardware_ready"),
        ("PIDPressure", "pid_pressure"),
        ("already_snake", "already_snake"),
        ("", ""),
    ],
)
def test_snake_case(condition: str, expected: str) -> None:
    assert snake_case(condition) == expected
