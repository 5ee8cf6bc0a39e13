"""What do people read of a node with a pod that can be placed nowhere else: in its event, and at `/debug/decisions`?"""

from dovetail.api.names import EventReason
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.web.debug import decisions
from dovetail.web.stream import EVERYTHING
from tests.harness.disruption import found, hold, play, pool
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

REFUSED = "pod default/p-c1 cannot be placed: spec.nodeSelector[karpenter.sh/registered]: "


async def test_the_event_and_the_debug_page_name_the_pod_and_the_cause(setting: Setting) -> None:
    await setting.begin(pool())
    (node,) = await hold(setting, "c1", pods={"nodeSelector": {"karpenter.sh/registered": "true"}})
    await setting.sim.wait_until(lambda: bool(setting.events(EventReason.UNCONSOLIDATABLE)), timeout="5m")
    assert found(setting, "c1")
    (disruption,) = (each for each in setting.program.controllers if isinstance(each, DisruptionController))
    told = decisions(disruption.history, disruption.left_alone, EVERYTHING)["leftAlone"][node]
    notes = {event["note"] for event in setting.events(EventReason.UNCONSOLIDATABLE)}
    assert notes == {told}
    assert told.startswith(REFUSED)
    assert "may not be asked for; " in told
