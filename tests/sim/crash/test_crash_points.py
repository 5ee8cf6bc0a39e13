"""A controller that dies before or after any of its writes leaves nothing behind, does nothing twice or too early."""

from collections.abc import Callable

import pytest

from tests.conftest import CRASH_POINTS
from tests.sim.crash.flows import FLOWS
from tests.sim.crash.mortal import Flow, crash_points, live_through


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_every_crash_point(flow: Flow[object], record_property: Callable[[str, object], None]) -> None:
    undisturbed = live_through(flow, None)
    assert undisturbed.account["most machines of a claim"] <= 1
    points = crash_points(len(undisturbed.writes))
    different = {}
    for point in points:
        ending = live_through(flow, point)
        if ending.account != undisturbed.account:
            different[f"{point}: {ending.writes[point.write - 1]}"] = ending.account
    record_property(CRASH_POINTS, len(points))
    assert not different, (undisturbed.account, different)
