"""The states of seed 003 and the ways between them, and what protected pods keep, on a real control plane.

S2 → S3 → S2, and a program that dies in S3, are in test_replacements.
"""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason, Reason
from dovetail.ports import NODES, PODS
from dovetail.values.timestamp import parse_time
from tests.cluster.disruption.chronicle import is_deleted, is_initialized
from tests.cluster.disruption.playing import Endings, Timeline, judge, name_of
from tests.cluster.disruption.setting import CANDIDATE, EVERYTHING, FOUR_CPUS, NOT_READY, NOTHING, Setting
from tests.cluster.termination.setting import GUARDED

EIGHT_CPUS = "c-8x-amd64-linux"


# -- S1 → S2 → S1 ------------------------------------------------------------------------------------------------------


async def candidates_come_and_go(setting: Setting) -> None:
    """Seed 003: "Candidate nodes get tainted as PreferNoSchedule, so pods prioritize scheduling elsewhere. If a node is
    un-drifted or becomes utilized, the candidacy is removed (S2 → S1)"."""
    await setting.begin(budgets=NOTHING, consolidationPolicy="WhenEmpty")
    first, second = await setting.hold("a", "b")
    await setting.is_in(first, "S1")
    await setting.outdate(first)
    await setting.are_candidates([first])
    await setting.is_in(first, "S2")
    await setting.deploy("web", replicas=4, cpu="100m")
    assert {pod.spec["nodeName"] for pod in setting.pods("web")} == {setting.node(second)}
    await setting.outdate(first, undo=True)
    await setting.is_no_candidate(first)
    await setting.is_in(first, "S1")

    await setting.change_pool(disruption={"consolidateAfter": "0s"})
    await setting.empty(first)
    await setting.are_candidates([first])
    await setting.is_in(first, "S2")
    await setting.occupy(first)
    await setting.is_no_candidate(first)
    await setting.is_in(first, "S1")
    assert setting.chronicle.states(first) == ["S1", "S2", "S1", "S2", "S1"]
    assert setting.chronicle.states(second) == ["S1"]
    setting.assert_within(lambda _: 0)
    assert setting.ever() == {first, second}


# -- S3 → S4 -----------------------------------------------------------------------------------------------------------


async def all_replacements_are_waited_for(setting: Setting) -> None:
    """Seed 003: "Karpenter waits for necessary capacity in the cluster to be healthy and initialized. Once capacity is
    available, Karpenter will kubectl delete the node(s)"; what is there already is part of it, and
    stays though empty."""
    await setting.begin(types=(EIGHT_CPUS,), consolidateAfter="0s", consolidationPolicy="WhenEmpty", budgets=EVERYTHING)
    await setting.deploy("web", replicas=2, cpu="3")
    (old,) = await setting.has_nodes(1)
    requirements = setting.machines(FOUR_CPUS)["requirements"]
    await setting.change_pool(template={"metadata": {"labels": NOT_READY}, "spec": {"requirements": requirements}})
    await setting.history.until(lambda: len(setting.claims()) == 3, f"{old} gets two replacements")
    one, other = sorted(setting.ever() - {old})
    for claim in (one, other):
        await setting.is_true(claim, ConditionType.REGISTERED)
    await setting.mark_ready(one, ready=True)
    await setting.is_true(one, ConditionType.INITIALIZED)
    await setting.is_in(old, "S3")
    await setting.all_methods_are_tried()
    assert not any(moment.deleted for moment in setting.chronicle.moments(setting.name))
    await setting.mark_ready(other, ready=True)
    await setting.are_gone(old)
    went = setting.chronicle.number_when(old, is_deleted)
    assert all(setting.chronicle.number_when(claim, is_initialized) < went for claim in (one, other))
    await setting.runs_all("web", 2)
    assert {pod.spec["nodeName"] for pod in setting.pods("web")} == {setting.node(claim) for claim in (one, other)}
    assert setting.ever() == {old, one, other}


async def who_is_interrupted_in_s3_waits_no_longer(setting: Setting) -> None:
    """T1b of seed 003 holds in every state before S4."""
    old, new = await setting.in_s3()
    await setting.annotate(NODES, setting.node(old), {names.KWOK_INTERRUPTED: "true"})
    await setting.are_gone(old)
    await setting.delay_nodes("0s")
    await setting.runs_all("web", 1)
    assert await setting.has_nodes(1) == [new]
    went = setting.chronicle.number_when(old, is_deleted)
    assert went < setting.chronicle.number_when(new, is_initialized)
    assert setting.ever() == {old, new}


# -- protected pods ----------------------------------------------------------------------------------------------------


async def drift_takes_a_node_with_a_guarded_pod(setting: Setting) -> None:
    """Seed 002: "When set, drifted nodes will begin draining even if there are pods blocking eviction. Draining will
    respect PDBs and the do-not-disrupt annotation until the TGP is reached"; and "that pod will be deleted at T = node
    timeout - pod terminationGracePeriodSeconds" (R17). Nothing is brought up for it before."""
    grace, own = timedelta(seconds=25), timedelta(seconds=5)
    await setting.begin(budgets=EVERYTHING, template={"terminationGracePeriod": "25s"})
    await setting.deploy("free", cpu="1500m")
    await setting.deploy("kept", cpu="2", annotations=GUARDED, terminationGracePeriodSeconds=5)
    (old,) = await setting.has_nodes(1)
    (free,), (kept,) = ([pod.metadata.name for pod in setting.pods(app)] for app in ("free", "kept"))
    await setting.let_drift()
    await setting.are_gone(old)
    new = setting.assert_replaced_first(old)
    first, *_ = setting.chronicle.things(new)
    assert first.spec["resources"]["requests"]["cpu"] == "1500m"
    last = setting.chronicle.things(old)[-1]
    deleted_at = last.metadata.deletion_timestamp
    assert deleted_at is not None
    deadline = parse_time(last.metadata.annotations[names.TERMINATION_TIMESTAMP])
    assert deadline == deleted_at + grace
    asked = await setting.asked(kept)
    assert asked.at >= deadline - own
    assert (await setting.asked(free)).number < asked.number
    await setting.event(EventReason.DISRUPTED, kept, setting.name)
    assert setting.history.events(EventReason.EVICTED, kept, setting.name) == []
    for app in ("free", "kept"):
        await setting.runs_all(app, 1)
    assert setting.ever() == {old, new}


async def consolidation_never_does_that(setting: Setting) -> None:
    """02 §14.7: even with TGP; seed 000: "Workload owners should have full control to block these". The same node goes
    as soon as its pod is guarded no more."""
    await setting.begin(budgets=EVERYTHING)
    spare, kept = await setting.launch_bare("spare", "kept", terminationGracePeriod="25s")
    await setting.occupy(spare, kept, cpu="100m", annotations=GUARDED)
    await setting.change_pool(disruption={"consolidateAfter": "0s"})
    for claim in (spare, kept):
        await setting.is_true(claim, ConditionType.CONSOLIDATABLE)
    await setting.all_methods_are_tried()
    assert setting.disrupted() == set()
    assert not any(setting.was_tainted(claim, CANDIDATE) for claim in (spare, kept))
    async with setting.consolidating:
        await setting.unguard(spare)
        await setting.go(spare)
    (command,) = setting.chronicle.commands_of(spare)
    assert command.reason is Reason.UNDERUTILIZED
    await setting.release(spare)
    assert setting.disrupted() == set()
    assert setting.runs(kept)


async def a_node_goes_when_its_pods_protection_ends(setting: Setting) -> None:
    """Seed 000: "After the grace period expires, the pod is treated as if it doesn't have the do-not-disrupt
    annotation. The node becomes eligible for disruption if no other constraints prevent it"."""
    await setting.begin(budgets=EVERYTHING)
    (old,) = await setting.hold("old", annotations={names.DO_NOT_DISRUPT: "4h"})
    found = setting.pod(old)
    assert found is not None
    created_at = found.metadata.creation_timestamp
    assert created_at is not None
    await setting.outdate(old)
    await setting.all_methods_are_tried()
    assert setting.disrupted() == set()
    ends_at = (setting.history.now() + timedelta(seconds=8)).replace(microsecond=0)
    span = f"{(ends_at - created_at).total_seconds():.0f}s"
    await setting.annotate(PODS, old, {names.DO_NOT_DISRUPT: span})
    await setting.release(old)
    setting.assert_not_before(ends_at, old)
    setting.assert_replaced_first(old)


TIMELINES: Sequence[Timeline] = (
    candidates_come_and_go,
    all_replacements_are_waited_for,
    who_is_interrupted_in_s3_waits_no_longer,
    drift_takes_a_node_with_a_guarded_pod,
    consolidation_never_does_that,
    a_node_goes_when_its_pods_protection_ends,
)


@pytest.mark.parametrize("timeline", TIMELINES, ids=name_of)
def test_timeline(timeline: Timeline, endings: Endings) -> None:
    judge(timeline, endings)
