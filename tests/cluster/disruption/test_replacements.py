"""What becomes of a node in S3 when its replacement does not come (R23), or when the program dies meanwhile (R24)?

On a real control plane; the replacement is launched and has no Node for as long as the test says.
"""

import msgspec

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, NODES
from tests.cluster.disruption.chronicle import is_disrupted
from tests.cluster.disruption.program import SHORT, acting
from tests.cluster.disruption.setting import DISRUPTED, NOTHING, Setting, taints
from tests.cluster.plane import ControlPlane
from tests.harness.stage import real_time, stage

pytestmark = stage(real_time)

# Long enough for a busy machine to launch a replacement, and to be waited for.
GIVEN_UP = msgspec.structs.replace(SHORT, replacement_seconds=10.0)


async def test_a_node_whose_replacement_never_registers_stays(plane: ControlPlane) -> None:
    async with acting(plane, GIVEN_UP) as acted:
        setting = Setting(acted, "rollback")
        old, new = await setting.in_s3()
        (web,) = setting.pods("web")
        event = await setting.event(EventReason.DISRUPTION_ROLLED_BACK, old)
        await setting.allow(NOTHING)  # it would be tried again after a minute
        assert new in event.note
        await setting.event(EventReason.DISRUPTION_ROLLED_BACK, setting.node(old))
        await setting.history.until(lambda: setting.history.gone(NODECLAIMS, new), f"{new} is gone")
        await setting.history.until(lambda: not setting.disrupted(), f"{old} is left alone")
        assert not setting.is_tainted(old, DISRUPTED)
        found = setting.history.get(NODECLAIMS, old)
        assert found is not None
        assert names.DISRUPTION_COMMAND not in found.metadata.annotations
        assert found.condition(ConditionType.DRIFTED) == "True"  # S2
        await setting.deploy("more", cpu="1")
        (more,) = setting.pods("more")
        assert more.spec["nodeName"] == web.spec["nodeName"] == setting.node(old)
        assert setting.history.asked(web.metadata.name, setting.name) == []
        assert not any(old in moment.deleted for moment in setting.chronicle.moments(setting.name))
        assert setting.ever() == {old, new}
        await setting.clear()


async def test_a_command_is_carried_on_by_the_next_program(plane: ControlPlane) -> None:
    """The taint is never lifted, and there is no other replacement: nothing is started over."""
    async with acting(plane) as acted:
        setting = Setting(acted, "restart")
        old, new = await setting.in_s3()
        for _ in range(2):
            await acted.program.kill()
            assert setting.is_tainted(old, DISRUPTED)
            assert setting.is_waiting(old, new)
            await acted.program.start()
            await setting.all_methods_are_tried()
        assert not any(old in moment.deleted for moment in setting.chronicle.moments(setting.name))
        await setting.delay_nodes("0s")
        await setting.history.until(lambda: setting.history.gone(NODECLAIMS, old), f"{old} is gone")
        assert setting.assert_replaced_first(old) == new
        await setting.runs_all("web", 1)
        assert await setting.has_nodes(1) == [new]
        assert setting.ever() == {old, new}
        versions = [each.thing for each in setting.history.versions(NODES, setting.node(old)) if each.thing]
        tainted = [DISRUPTED in taints(each) for each in versions]
        assert all(tainted[tainted.index(True) :]), tainted
        marked = [is_disrupted(each.thing) for each in setting.history.versions(NODECLAIMS, old) if each.thing]
        assert all(marked[marked.index(True) :]), marked
        await setting.clear()
