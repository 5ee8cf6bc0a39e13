"""Pods whose node is on its way keep their place there, and only as long as there is one."""

from dovetail.ports import NODES, Patch
from dovetail.sim.cloud.machines import Launch
from tests.cluster.provisioning import workloads
from tests.harness import manifests
from tests.harness.provisioning import BIG, Setting, play
from tests.harness.stage import stage

pytestmark = stage(play)


async def run_all(setting: Setting, count: int) -> None:
    await setting.sim.wait_until(lambda: len(setting.sim.pods(ready=True)) == count, timeout="10m")


def nodes_in_use(setting: Setting) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in setting.sim.pods(ready=True)}


async def test_asking_again_while_nodes_come_makes_no_more_of_them(setting: Setting) -> None:
    """Nodes are filled in another order than they were planned in, so somebody would be left over each time."""
    await setting.begin(workloads.pool()[1])
    setting.cloud.launch_seconds = 25
    await setting.sim.apply(*workloads.wide()[::3])
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    await setting.sim.run_for("5s")
    planned = len(setting.claims())
    await setting.sim.wait_until(lambda: bool(setting.sim.pods(ready=True)))
    assert len(setting.claims()) == planned


async def test_room_to_spare_is_bounded_over_rounds(setting: Setting) -> None:
    """200 pods with every kind of rule arrive one after the other, over twelve seconds: several rounds are planned."""
    bodies = workloads.mixed()[::-1]
    await setting.begin(*workloads.pools_of_two_teams()[1:])
    setting.cloud.launch_seconds, setting.cloud.register_seconds = 0.2, 3
    for part in range(1, 26):
        await setting.sim.apply(
            *(
                body | {"spec": body["spec"] | {"replicas": body["spec"].get("replicas", 0) * part // 25}}
                for body in bodies
            )
        )
        await setting.sim.clock.sleep(0.5)
    await run_all(setting, 200 + len(setting.claims()))
    assert len(setting.claims()) <= 28  # 25 are what the pods need if they are known at once, and some spare ones


async def test_who_comes_later_does_not_get_the_place_of_another(setting: Setting) -> None:
    """There is room for one more on the second node alone, which a larger pod is expected on too."""
    await setting.begin()
    setting.cloud.launch_seconds = 25
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1)
    await setting.sim.run_for("10s")
    await setting.sim.apply(manifests.pod("b", cpu="3500m"), manifests.pod("c", cpu="800m"))
    await run_all(setting, 3)
    await setting.sim.run_for("1m")
    assert len(setting.claims()) == len(nodes_in_use(setting)) == 2


async def test_what_others_have_taken_is_looked_for_elsewhere(setting: Setting) -> None:
    """As soon as its node is full, though it was made for this pod."""
    await setting.begin()
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: bool(setting.sim.objects(NODES)))
    node = setting.sim.objects(NODES)[0]["metadata"]["name"]
    await setting.sim.apply(manifests.pod("thief", cpu=BIG, nodeName=node))
    assert await setting.seconds_until(lambda: len(setting.claims()) == 2) <= 2
    await setting.sim.wait_until(lambda: setting.runs("a"))


async def test_a_node_that_is_up_and_does_not_take_the_pod_is_not_waited_for_long(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: bool(setting.sim.objects(NODES)))
    node = setting.sim.objects(NODES)[0]["metadata"]["name"]
    shut = {"spec": {"taints": [{"key": "example.com/shut", "effect": "NoSchedule"}]}}
    await setting.sim.api.write(Patch(NODES, node, shut))
    assert await setting.seconds_until(lambda: len(setting.claims()) == 2) < 90
    await setting.sim.wait_until(lambda: setting.runs("a"))


async def test_a_node_that_does_not_come_is_made_anew(setting: Setting) -> None:
    await setting.begin()
    setting.cloud.next_launches(Launch(registers=False))
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    first = setting.claims()[0]["metadata"]["name"]
    await setting.sim.run_for("5m")
    assert [claim["metadata"]["name"] for claim in setting.claims()] == [first]
    await setting.delete_claim(first)
    await setting.sim.wait_until(lambda: setting.runs("a"))


async def test_pods_of_a_node_that_goes_keep_their_next_one(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu="1500m"), manifests.pdb("web", minAvailable=2))
    await setting.runs_all("web", 2)
    setting.cloud.launch_seconds = 25
    (claim,) = setting.claims()
    await setting.delete_claim(claim["metadata"]["name"])
    await setting.sim.run_for("2m")
    assert setting.sim.pods(app="web", ready=True)
    others = [each for each in setting.claims() if each["metadata"]["uid"] != claim["metadata"]["uid"]]
    assert len(others) == 1
