"""The engine wakes at every instant at which time alone changes an answer, and at no other.

Between two wakes a pass would decide the same, and what the last pass reported is still true.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import BlockedNode
from dovetail.rules.verdict import Rule
from dovetail.scheduling.placement import SchedulingOptions
from tests.harness.placing import TYPES
from tests.unit.state.world import CLASS, Manifest, Put, World, a_claim, a_node, a_pod

BEGIN: Final = datetime(2026, 3, 6, 12, tzinfo=UTC)
DAY: Final = timedelta(days=1)
AMONG: Final = st.sampled_from
READY: Final[Manifest] = {"type": "Ready", "status": "True"}
CRONS: Final = ("0 */4 * * *", "30 2 * * *", "15 9 * * 1-5", "CRON_TZ=Europe/Berlin 0 22 * * *", "0 2 * * *;0 14 * * 6")


@st.composite
def pools(draw: st.DrawFn, name: str) -> Put:
    budgets: list[Manifest] = [{"nodes": "100%"}]
    for _ in range(draw(st.integers(0, 2))):
        window = {"schedule": draw(AMONG(CRONS[:4])), "duration": draw(AMONG(("30m", "4h", "10h")))}
        reasons = draw(AMONG(([], ["Drifted"], ["Empty", "Underutilized"])))
        budgets.append({"nodes": draw(AMONG(("0", "1", "50%"))), "reasons": reasons, **window})
    spec = {
        "disruption": {"budgets": budgets, "consolidateAfter": draw(AMONG(("0s", "2h", "30h", "Never")))},
        "template": {"spec": {"nodeClassRef": {"group": CLASS.group, "kind": CLASS.kind, "name": "default"}}},
    }
    return "nodepools", {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [READY]}}


@st.composite
def protections(draw: st.DrawFn) -> dict[str, str]:
    match draw(st.integers(0, 4)):
        case 0:
            return {names.DO_NOT_DISRUPT: draw(AMONG(("true", "3h", "13h", "40h")))}
        case 1:
            duration = draw(AMONG(("30m", "6h")))
            return {names.DISRUPTION_SCHEDULE: draw(AMONG(CRONS)), names.DISRUPTION_SCHEDULE_DURATION: duration}
        case 2:
            duration = draw(AMONG(("20m", "8h")))
            return {names.DISRUPTION_BLOCK_SCHEDULE: draw(AMONG(CRONS)), names.DISRUPTION_BLOCK_DURATION: duration}
    return {}


@st.composite
def clusters(draw: st.DrawFn) -> World:
    world = World()
    world.feed(draw(pools("a")), draw(pools("b")))
    for number in range(draw(st.integers(1, 4))):
        pool, name = draw(AMONG("ab")), f"n{number}"
        created = _text(BEGIN - draw(st.integers(0, 40)) * timedelta(minutes=37))
        initialized = draw(st.integers(0, 4)) > 0
        true = ["Launched", "Registered", *(["Initialized"] if initialized else [])]
        true += sorted(draw(st.sets(AMONG(("Drifted", "Consolidatable", "Expired")))))
        labels = {
            names.NODEPOOL_LABEL: pool,
            names.REGISTERED_LABEL: "true",
            names.INSTANCE_TYPE_LABEL: "small",
            **({names.INITIALIZED_LABEL: "true"} if initialized else {}),
        }
        plural, claim = a_claim(f"c{number}", name, pool=pool, true=true, creationTimestamp=created)
        claim["status"]["lastPodEventTime"] = created
        if draw(st.booleans()):
            claim["spec"]["terminationGracePeriod"] = draw(AMONG(("1h", "20h")))
        annotations = draw(AMONG(({}, {}, {names.DO_NOT_DISRUPT: "true"}, {names.DO_NOT_DISRUPT: "7h"})))
        node = a_node(name, name, labels=labels, annotations=annotations, creationTimestamp=created)
        node[1]["status"]["conditions"] = [READY]
        world.feed((plural, claim), node)
        for pod in range(draw(st.integers(0, 3))):
            meta: Manifest = {"annotations": draw(protections()), "creationTimestamp": created}
            world.feed(a_pod(f"p{number}-{pod}", name, **meta))
    for pool_ in world.placing.usable_pools():
        world.state.instance_types.answered(pool_, TYPES, at=0.0)
    return world


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def assessed(world: World, at: datetime) -> DisruptionAssessment:
    return DisruptionPlanner(options=SchedulingOptions()).assess(DisruptionInputs(snapshot=world.placing.snapshot(at)))


def answers(assessment: DisruptionAssessment) -> tuple[Any, ...]:
    """What a pass decides by, and what it reports."""
    both = [(reason, each) for reason, some in assessment.candidates.items() for each in some]
    candidates = [(reason, each.node, [pod.uid for pod in each.pods]) for reason, each in both]
    limits = {(each.pool, reason): assessment.spending[each.pool].allowances[reason].limit for reason, each in both}
    return candidates, limits, {(each.node, each.verdict.reason): _blockers(each) for each in assessment.left}


def _blockers(blocked: BlockedNode) -> list[tuple[Any, ...]]:
    """What blocks a node for a reason, without budgets: they count where nothing else blocks."""
    blocking = [each for each in blocked.verdict.verdicts if not each.allowed and each.rule is not Rule.BUDGET]
    return [(each.object, each.rule, each.until) for verdict in blocking for each in (verdict, *verdict.blockers)]


def check_holds(earlier: tuple[Any, ...], later: tuple[Any, ...]) -> None:
    """The decision is the same, and whatever blocked a node still does. Other rules may have begun to."""
    assert earlier[:2] == later[:2]
    assert earlier[2].keys() == later[2].keys()
    for node, blockers in earlier[2].items():
        assert set(blockers) <= set(later[2][node]), node


def wakes(world: World, end: datetime) -> dict[datetime, tuple[Any, ...]]:
    """The answers of the passes, from the first to the end, if nothing changes but the time."""
    found, at = {}, BEGIN
    while at < end:
        assessment = assessed(world, at)
        found[at] = answers(assessment)
        assert assessment.wake_at is None or assessment.wake_at > at
        at = assessment.wake_at or end
    return found


@settings(max_examples=max(15, settings().max_examples // 4))
@given(clusters(), st.lists(st.integers(0, 24 * 60 * 60 - 1), max_size=4))
def test_the_engine_wakes_whenever_a_verdict_changes_and_at_no_other_time(world: World, seconds: list[int]) -> None:
    found = wakes(world, BEGIN + DAY)
    assert all(before != after for before, after in pairwise(found.values())), found
    just_before = [at - timedelta(microseconds=1) for at in list(found)[1:]]
    for at in (*just_before, *(BEGIN + timedelta(seconds=each) for each in seconds)):
        last = max(wake for wake in found if wake <= at)
        check_holds(found[last], answers(assessed(world, at)))
