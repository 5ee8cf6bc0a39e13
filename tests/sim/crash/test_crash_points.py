"""A controller that dies before or after any of its writes leaves nothing behind, does nothing twice or too early."""

from collections.abc import Callable

import pytest

from tests.conftest import CRASH_POINTS
from tests.sim.crash.flows import FLOWS
from tests.sim.crash.mortal import CrashPoint, Flow, live_through


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_every_crash_point(flow: Flow[object], record_property: Callable[[str, object], None]) -> None:
    undisturbed = live_through(flow, None)
    assert undisturbed.account["most machines of a claim"] <= 1
    points = [CrashPoint(write, after) for write in range(1, len(undisturbed.writes) + 1) for after in (False, True)]
    different = {}
    for point in points:
        ending = live_through(flow, point)
        if ending.account != undisturbed.account:
            different[f"{point}: {ending.writes[point.write - 1]}"] = ending.account
    record_property(CRASH_POINTS, len(points))
    assert not different, (undisturbed.account, different)
