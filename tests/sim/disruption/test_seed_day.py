"""A long day of everything at once: twice the same, in any order of events to a good end, and then nothing."""

from collections.abc import Sequence
from random import Random

import pytest

from dovetail.api import names
from dovetail.ports import NODES
from dovetail.providers.catalogue import built_in
from dovetail.providers.choosing import by_key
from dovetail.sim.actors.wire import Raw, deleting, labels_of
from tests.harness import manifests
from tests.harness.claims import Manifest
from tests.harness.disruption import (
    CANDIDATE,
    DISRUPTED,
    disrupted,
    drift,
    edit_pool,
    edit_template,
    found,
    hold,
    node_of,
    passes,
    play,
    pool,
    running,
    scale,
    touched,
    writes,
)
from tests.harness.provisioning import Setting
from tests.harness.soak import SOAK
from tests.harness.stage import PARAMETER, stage

pytestmark = stage(play)

# By name: team and cpus. In each pool all pods have one size: where sizes differ, the scheduler may spread small ones
# over the room that was meant for a large one, which then needs a node again.
APPS = {"web": ("blue", "1300m"), "api": ("blue", "1300m"), "batch": ("green", "3"), "cache": ("red", "1900m")}
START_WITH = {"web": 12, "api": 9, "batch": 6, "cache": 14}


def pools() -> list[Manifest]:
    """One that replaces half at a time, one that is careful, one whose nodes expire."""
    expiring = {"expireAfter": "14h", "terminationGracePeriod": "30m"}
    return [
        pool("blue", team="blue", budgets=[{"nodes": "50%"}], consolidateAfter="2m"),
        pool("green", team="green", budgets=[{"nodes": "1"}, {"nodes": "3", "reasons": ["Empty"]}]),
        pool("red", team="red", budgets=[{"nodes": "20%"}], gracefulExpireAfter="10h", template=expiring),
    ]


def price_of(node: Raw) -> float:
    labels = labels_of(node)
    for type_ in built_in():
        if type_.name == labels[names.INSTANCE_TYPE_LABEL]:
            for offering in type_.offerings:
                asked = by_key(offering.requirements)
                wanted = (names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)
                if all(labels[key] in asked[key][0].values for key in wanted):
                    return offering.price
    raise AssertionError(f"nobody sells {labels}")


def cost(setting: Setting) -> float:
    return sum(map(price_of, setting.sim.objects(NODES)))


async def begin(setting: Setting) -> float:
    """Some twenty nodes; what they cost an hour."""
    await setting.begin(*pools())
    for app, (team, cpu) in APPS.items():
        replicas = START_WITH[app]
        await setting.sim.apply(manifests.deployment(app, replicas=replicas, cpu=cpu, nodeSelector={"team": team}))
        await setting.runs_all(app, replicas)
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=2))
    assert len(setting.claims()) >= 20
    return cost(setting)


async def live_a_day(setting: Setting, script: Random, *, steps: int = 12) -> None:
    """Deployments grow and shrink, pools change, machines drift, fall ill and are taken away; a step takes 2 hours."""
    for step in range(steps):
        app = script.choice(sorted(APPS))
        await scale(setting, script.randint(0, 2 * START_WITH[app]), app)
        if step % 6 == 4:
            await edit_template(
                setting, name=script.choice(["blue", "green"]), metadata={"labels": {"step": str(step)}}
            )
        if step % 3 == 1 and (steady := _steady(setting)):
            setting.cloud.drift[_machine(setting, script.choice(steady))] = "ImageDrift"
        if step % 6 == 2 and (steady := _steady(setting)):
            setting.cloud.interrupt(_machine(setting, script.choice(steady)))
        if step % 6 == 5 and (steady := _steady(setting)):
            setting.sim.set_node_ready(node_of(setting, script.choice(steady)), ready=False)
        await setting.sim.run_for("2h")


def _steady(setting: Setting) -> Sequence[str]:
    return sorted(
        each["metadata"]["name"]
        for each in setting.claims()
        if each["metadata"]["name"] not in touched(setting)
        and "nodeName" in (each.get("status") or {})
        and each["status"]["providerID"] not in setting.cloud.drift
    )


def _machine(setting: Setting, claim: str) -> str:
    return str(found(setting, claim)["status"]["providerID"])


async def end(setting: Setting) -> None:
    """As it began, and all that is still to be done."""
    for app, number in START_WITH.items():
        await scale(setting, number, app)
    setting.cloud.drift.clear()
    for name in ("blue", "green"):
        await edit_template(setting, name=name, metadata={"labels": {"step": None}})
    await edit_pool(setting, name="red", gracefulExpireAfter="Never")
    await setting.sim.run_for("6h")


def half_a_day() -> list[str]:
    """The trace of half such a day, in which each kind of change happens."""
    traces: list[list[str]] = []

    async def scenario(setting: Setting) -> None:
        await begin(setting)
        await live_a_day(setting, Random(7), steps=6)
        traces.append(list(setting.sim.trace))

    play(scenario)
    return traces[0]


def test_the_same_day_twice_is_the_same_to_the_last_write() -> None:
    first = half_a_day()
    assert len(first) > 2500, "it was a busy day"
    assert half_a_day() == first


@pytest.mark.parametrize("seed", range(1, 21) if SOAK else [1])
@stage(seed=PARAMETER, shuffle=True)
async def test_in_whatever_order_things_happen_it_ends_well(setting: Setting, seed: int) -> None:
    cost_at_first = await begin(setting)
    await live_a_day(setting, Random(seed))
    await end(setting)
    assert {app: running(setting, app) for app in APPS} == START_WITH
    by_name = {each["metadata"]["name"]: each for each in setting.sim.objects(NODES)}
    for claim in setting.claims():
        assert not deleting(claim)
        assert claim["status"]["nodeName"] in by_name
    assert len(by_name) == len(setting.claims()), "and no node without a claim"
    for node in by_name:
        assert not {CANDIDATE, DISRUPTED} & set(setting.taints(node)), node
    assert cost(setting) <= cost_at_first
    assert {disrupted(setting, reason) > 0 for reason in ("empty", "drifted", "underutilized", "expired")} == {True}


async def test_an_hour_after_everything_has_settled_nothing_happens(setting: Setting) -> None:
    """R1: nothing that a clock can predict is polled."""
    await begin(setting)
    for app, number in START_WITH.items():
        await scale(setting, number // 2, app)
    await setting.sim.run_for("40m")
    before = passes(setting), writes(setting), len(setting.claims())
    await setting.sim.run_for("1h")
    assert passes(setting) - before[0] <= 3
    assert writes(setting) == before[1]
    assert len(setting.claims()) == before[2]


async def test_an_hour_of_candidates_that_may_not_go_is_as_quiet(setting: Setting) -> None:
    """Drifted under a budget of nothing, guarded, and inside a window that opens tomorrow."""
    tomorrow = {names.DISRUPTION_SCHEDULE: "0 0 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1m"}
    await setting.begin(pool(budgets=[{"nodes": "0"}]))
    await hold(setting, "over-budget", "half")
    await hold(setting, "guarded", pods={"annotations": {names.DO_NOT_DISRUPT: "true"}})
    await hold(setting, "tomorrow", pods={"annotations": tomorrow})
    await drift(setting, "over-budget", "guarded", "tomorrow")
    await setting.sim.run_for("15m")
    before = passes(setting), writes(setting)
    await setting.sim.run_for("1h")
    assert (passes(setting), writes(setting)) == before
    assert touched(setting) == []
    assert len(setting.claims()) == 4
