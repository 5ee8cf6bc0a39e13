"""What people are told of a node that has a reason to go and whose pods have no place elsewhere (04 §2.1)."""

import pytest

from dovetail.api.names import EventReason
from tests.harness.disruption import drift, hold, play, pool
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

STUCK = {"nodeSelector": {"example.com/nowhere": "at-all"}}


@pytest.mark.parametrize("reason", ["Drifted", "Expired"])
async def test_it_is_blocked_and_not_unconsolidatable(setting: Setting, reason: str) -> None:
    """Consolidation has nothing to do with it: graceful expiry is told as drift is (R20)."""
    await setting.begin(pool(consolidateAfter="Never", gracefulExpireAfter="1h"))
    (node,) = await hold(setting, "stuck", pods=STUCK)
    if reason == "Drifted":
        await drift(setting, "stuck")
        await setting.sim.run_for("5m")
    else:
        await setting.sim.run_for("65m")
    assert setting.notes(EventReason.DISRUPTION_BLOCKED, node)
    assert setting.notes(EventReason.UNCONSOLIDATABLE, node) == []
