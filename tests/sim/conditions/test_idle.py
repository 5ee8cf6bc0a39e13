"""While nothing changes nothing is written, and nothing is looked at but what only the provider can tell (R1)."""

from collections import Counter

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS
from tests.harness.claims import launched, node_claim, node_class, node_pool, put_status
from tests.harness.stage import stage
from tests.sim.conditions.setting import MACHINE, READY, Setting, play

pytestmark = stage(play)

CLAIMS = 1000
LOOKS = 6  # of each in half an hour


async def test_half_an_hour_of_a_thousand_claims_is_a_look_every_five_minutes_spread_out(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool(disruption={"consolidateAfter": "10m"}))
    for number in range(CLAIMS):
        await setting.sim.apply(node_claim(f"c{number}", labels=MACHINE))
        await launched(setting.sim, f"c{number}", node=f"n{number}", true=READY)
    await setting.program.start()
    await setting.sim.run_for("65m")
    assert all(setting.consolidatable(f"c{number}") for number in range(0, CLAIMS, 97))

    before, writes, calls = setting.reconciles(), setting.writes(), setting.vendor.calls.copy()
    asked: Counter[int] = Counter()
    for second in range(1800):
        already = setting.vendor.calls["drift_reason"]
        await setting.sim.run_for("1s")
        asked[second] = setting.vendor.calls["drift_reason"] - already
    looks = {name: count - before[name] for name, count in setting.reconciles().items()}
    assert looks == {"nodeclaim.podevents": 0, "nodeclaim.disruption": CLAIMS * LOOKS}
    assert setting.writes() == writes
    # 3.3 a second on average, by their UIDs.
    assert max(asked.values()) <= 15
    assert setting.vendor.calls["instance_types"] - calls["instance_types"] <= LOOKS


async def test_the_status_of_a_pool_concerns_nobody(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1", "c2")
    await setting.sim.run_for("1s")
    before = setting.reconciles()
    for number in range(20):
        await put_status(setting.sim, NODEPOOLS, "default", {"resources": {"cpu": str(number)}})
    await setting.sim.run_for("1s")
    assert setting.reconciles() == before
    await setting.edit(NODEPOOLS, "default", {"metadata": {"annotations": {names.NODEPOOL_HASH: "1"}}})
    assert {name: count - before[name] for name, count in setting.reconciles().items()} == dict.fromkeys(before, 2)
    assert len(setting.sim.objects(NODECLAIMS)) == 2
