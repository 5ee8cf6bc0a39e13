"""The last look before the nodes of a command are drained: is the room still there (R55)?"""

from datetime import timedelta
from functools import partial

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, PODS, Delete
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.disruption import EVER, edit_pool, found, is_true, node_of, others, play, pool
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, annotation, is_deleting

pytestmark = stage(play)

OF_SIXTEEN = {**OF_FOUR, "values": ["s-16x-amd64-linux"]}
BOTH = {**OF_FOUR, "values": ["s-4x-amd64-linux", "s-16x-amd64-linux"]}
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}
ROLLED_BACK = EventReason.DISRUPTION_ROLLED_BACK


async def begin_replacing(setting: Setting) -> str:
    """Have a command that replaces a node of 16 cpus by one of 4 for `large`; `small` shall go to the node `room`.

    Returns the name of that node. Replacements take 15 s to start.
    """
    await setting.begin(pool(template={"requirements": [BOTH, ON_DEMAND]}, budgets=[{"nodes": "0"}]))
    await setting.launch("old", requirements=[OF_SIXTEEN, ON_DEMAND])
    await setting.sim.apply(manifests.deployment("large", cpu="3"), manifests.deployment("small", cpu="2"))
    await setting.runs_all("large", 1)
    await setting.runs_all("small", 1)
    guarded = manifests.pod("p-room", cpu="1500m", annotations=GUARDED)
    room = await setting.launch("room", pods=[guarded], requirements=[OF_FOUR, ON_DEMAND])
    setting.cloud.next_launches(Launch(seconds=15), times=1000)
    await edit_pool(setting, budgets=[EVER])
    return room


async def next_replacement(setting: Setting) -> str:
    await setting.sim.wait_until(lambda: bool(replacements(setting)), timeout="40m")
    (name,) = replacements(setting)
    return name


def replacements(setting: Setting) -> list[str]:
    claims = setting.claims()
    return [each["metadata"]["name"] for each in claims if annotation(each, names.REPLACEMENT_OF) is not None]


async def test_a_command_whose_room_is_taken_is_given_up_before_any_pod_is_evicted(setting: Setting) -> None:
    room = await begin_replacing(setting)
    new = await next_replacement(setting)
    await setting.bind(room, manifests.pod("other", cpu="2"))
    await setting.sim.wait_until(lambda: is_true(setting, new, ConditionType.INITIALIZED), timeout="5m")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim(new)), timeout="1s")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, new))
    (note,) = setting.notes(ROLLED_BACK, "old")
    assert note.startswith("Its disruption (Underutilized) was given up, and it stays: Pod/default/")
    assert note.endswith(": it would find no room once the others have landed")
    (warning,) = setting.notes(EventReason.REPLACEMENT_FAILED, "default")
    assert note.rpartition("it stays: ")[2] in warning
    await setting.sim.run_for("1h")
    assert setting.tried_to_evict() == []
    assert sorted(others(setting)) == ["old", "room"]
    assert len(setting.cloud.machines) == 3, "nothing else was launched, for the pod that lost its room either"


async def test_a_replacement_that_others_use_stays(setting: Setting) -> None:
    """The pod that took the room is on the replacement itself."""
    await begin_replacing(setting)
    new = await next_replacement(setting)
    await setting.sim.wait_until(lambda: bool(found(setting, new).get("status", {}).get("nodeName")), timeout="5m")
    await setting.bind(node_of(setting, new), manifests.pod("other", cpu="2"))
    await setting.sim.wait_until(lambda: bool(setting.notes(ROLLED_BACK, "old")), timeout="5m")
    assert "large" in setting.notes(ROLLED_BACK, "old")[0]
    await setting.sim.run_for("30s")
    assert not is_deleting(setting.claim(new))
    assert setting.runs("other")


async def test_room_that_is_taken_again_and_again_costs_few_launches(setting: Setting) -> None:
    """Each time somebody takes the room, and leaves it afterwards. The pool waits 1, 2, 4, 8, 16 and 30 minutes."""
    room = await begin_replacing(setting)
    began_at, launched = setting.now(), set[str]()
    while setting.now() < began_at + timedelta(hours=1):
        launched.add(new := await next_replacement(setting))
        other = f"other-{len(launched)}"
        await setting.bind(room, manifests.pod(other, cpu="2"))
        await setting.sim.wait_until(partial(setting.gone, NODECLAIMS, new), timeout="5m")
        await setting.sim.api.write(Delete(PODS, other, namespace="default"))
    assert 4 <= len(launched) <= 7
    assert setting.tried_to_evict() == []
