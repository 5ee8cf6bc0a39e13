"""The timelines of the seeds, shortened to seconds (R44), with all controllers on a real control plane and kwok.

They run beside each other under one program, so that all of them take hardly longer than the longest, and each is
judged by a test of its own. The same timelines at full length, to the second, are in tests/sim/termination.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.kube.client import connect
from dovetail.ports import NODECLAIMS, NODES, PDBS, PODS, Delete
from dovetail.values.timestamp import format_time
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.termination.history import recording
from tests.cluster.termination.program import running
from tests.cluster.termination.setting import AT_ONCE, ENDS_AFTER, GUARDED, LATE, READY_AFTER, Setting, of_app, quick
from tests.harness import manifests
from tests.harness.manifests import Manifest

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
TIMELINE_SECONDS = 300
CRITICAL = "system-cluster-critical"
GROUPS = ("ordinary", "daemon", "critical", "critical-daemon")

Timeline = Callable[[Setting], Coroutine[Any, Any, None]]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def spread(workload: Manifest, setting: Setting, *, apart: bool = False) -> Manifest:
    """Keep the workload's pods to the timeline's Nodes, each on another if wished."""
    spec = workload["spec"]["template"]["spec"]
    spec["nodeSelector"] = setting.selector
    if apart:
        term = {"labelSelector": workload["spec"]["selector"], "topologyKey": names.HOSTNAME_LABEL}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return workload


async def run_replicas(setting: Setting, workload: Manifest, pdb: Manifest) -> list[str]:
    """The names of the three replicas, once they run and the budget counts them."""
    app = workload["metadata"]["name"]
    await setting.apply(workload, pdb)

    def counted() -> bool:
        found = setting.history.get(PDBS, app, setting.name)
        return found is not None and found.status.get("currentHealthy") == 3

    await setting.history.until(counted, f"{app} has three replicas")
    return [pod.metadata.name for pod in setting.pods(app)]


# -- seed 002 ----------------------------------------------------------------------------------------------------------


async def fifteen_minutes_for_three_pods_of_ten(setting: Setting) -> None:
    """A minute is two seconds here: 30 s for the node, 20 s for each pod, so at +10 s all that are left go together."""
    node = await setting.launch(terminationGracePeriod="30s")
    web = spread(manifests.deployment("web", replicas=3, terminationGracePeriodSeconds=20), setting)
    pods = await run_replicas(setting, web, manifests.pdb("web", maxUnavailable=1))
    deleted_at = await setting.delete_claim()
    await setting.history.until(lambda: any(setting.history.asked(pod, setting.name) for pod in pods), "one goes")
    (first,) = (pod for pod in pods if not setting.runs(pod))
    await setting.evicted(first, due=deleted_at, own=20, late=seconds(9))
    for pod in pods:
        if pod != first:
            await setting.forced(pod, due=deleted_at + seconds(10), deadline=deleted_at + seconds(30), own=20)
    await setting.all_gone(node)
    ended = setting.history.gone(NODES, node)
    assert ended is not None
    assert ended.at <= deleted_at + seconds(30) + 2 * LATE


async def no_time_at_all(setting: Setting) -> None:
    pods = (manifests.pod("web", annotations=GUARDED), manifests.pod("core", priorityClassName=CRITICAL))
    node = await setting.launch(pods=pods, terminationGracePeriod="0s")
    await setting.apply(manifests.pdb("web", minAvailable=1))
    deleted_at = await setting.delete_claim()
    for pod in ("web", "core"):
        asked = await setting.forced(pod, due=deleted_at, deadline=deleted_at, late=AT_ONCE)
        assert asked.grace_seconds == 1
    await setting.all_gone(node)


async def a_pod_that_needs_longer_than_its_node_has(setting: Setting) -> None:
    pod = manifests.pod("slow", annotations=GUARDED, terminationGracePeriodSeconds=3600)
    node = await setting.launch(pods=(pod,), terminationGracePeriod="30s")
    deleted_at = await setting.delete_claim()
    deadline = deleted_at + seconds(30)
    await setting.forced("slow", due=deleted_at, deadline=deadline, own=3600, late=AT_ONCE)
    await setting.all_gone(node)


# -- seed 000 ----------------------------------------------------------------------------------------------------------


async def four_hours_for_the_pod_and_72_for_the_node(setting: Setting) -> None:
    """15 s from its creation for one, and for the other all of the 50 s of its node but its own grace."""
    node = await setting.launch(terminationGracePeriod="50s")
    four = manifests.pod("four", annotations=quick(**{names.DO_NOT_DISRUPT: "15s"}))
    ever = manifests.pod("ever", annotations=quick(**GUARDED), terminationGracePeriodSeconds=10)
    await setting.bind(node, four, ever)
    found = setting.pod("four")
    assert found is not None
    assert found.metadata.creation_timestamp is not None
    ends_at = found.metadata.creation_timestamp + seconds(15)
    deleted_at = await setting.delete_claim()
    assert deleted_at < ends_at, "the machine is too busy for this timeline"
    await setting.evicted("four", due=ends_at)
    until = await setting.event(EventReason.DO_NOT_DISRUPT_UNTIL, "four", setting.name)
    assert format_time(ends_at) in until.note
    await setting.event(EventReason.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED, "four", setting.name)
    assert setting.runs("ever")
    await setting.forced("ever", due=deleted_at + seconds(40), deadline=deleted_at + seconds(50), own=10)
    await setting.all_gone(node)


# -- seed 001 ----------------------------------------------------------------------------------------------------------


async def two_nodes_reach_their_deadline_together(setting: Setting) -> None:
    """Both lose their pod, although the budget of the three allows one."""
    claims = ("c1", "c2", "c3")
    for claim in claims:
        await setting.want(claim, terminationGracePeriod="20s")
    nodes = [await setting.node_of(claim) for claim in claims]
    web = manifests.deployment("web", replicas=3, annotations=GUARDED, terminationGracePeriodSeconds=10)
    await run_replicas(setting, spread(web, setting, apart=True), manifests.pdb("web", maxUnavailable=1))
    pod_on = {str(pod.spec["nodeName"]): pod.metadata.name for pod in setting.pods("web")}
    deleted_at = {claim: await setting.delete_claim(claim) for claim in claims[:2]}
    for (_, at), node in zip(deleted_at.items(), nodes, strict=False):
        await setting.forced(pod_on[node], due=at + seconds(10), deadline=at + seconds(20), own=10)
    await setting.all_gone(*nodes[:2], claims=claims[:2])
    assert setting.runs(pod_on[nodes[2]])


async def a_window_opens_and_another_closes(setting: Setting) -> None:
    """At the turn of one minute: who was being evicted goes on, who was held back stays, and who waited goes."""
    node = await setting.launch()
    now = setting.history.now()
    turn = (now + seconds(20) + MINUTE).replace(second=0, microsecond=0)
    opening, closing = window(turn), window(turn - MINUTE)
    held = manifests.pod("held", annotations=quick(**closing))
    await setting.bind(node, held)
    await setting.apply(manifests.pdb("held", minAvailable=1))
    going = manifests.pod("going", annotations={ENDS_AFTER: "1h", **closing}, terminationGracePeriodSeconds=3600)
    later = manifests.pod("later", annotations=quick(**opening))
    await setting.bind(node, going, later, manifests.pod("last", annotations=quick(**GUARDED)))
    await setting.delete_claim()
    before = await setting.asked("going")
    assert before.at < turn
    assert setting.runs("held")
    assert setting.runs("later")
    await setting.evicted("later", due=turn)

    # Now the budget would allow it, but no longer the window. Whatever is done next shows that this has been noticed.
    await setting.api.write(Delete(PDBS, "held", namespace=setting.name))
    removed_at = await setting.annotate(PODS, "last", {names.DO_NOT_DISRUPT: None})
    await setting.evicted("last", due=removed_at)
    await setting.history.until(lambda: setting.pod("last") is None, "the last one is gone")
    assert setting.runs("held")
    assert setting.history.asked("going", setting.name) == [before]

    removed_at = await setting.annotate(PODS, "held", dict.fromkeys(closing))
    await setting.evicted("held", due=removed_at)
    await setting.api.write(Delete(PODS, "going", namespace=setting.name, grace_seconds=0))
    await setting.all_gone(node)


def window(opens_at: datetime) -> dict[str, str]:
    """One of a minute, the shortest there is."""
    return {
        names.DISRUPTION_SCHEDULE: f"{opens_at.minute} {opens_at.hour} * * *",
        names.DISRUPTION_SCHEDULE_DURATION: "1m",
    }


# -- the orders of a drain ---------------------------------------------------------------------------------------------


async def one_of_each_group(setting: Setting, node: str, *, forced: str | None) -> list[str]:
    """The names of the four pods, in order. The forced one needs longer than its node has."""
    for group in GROUPS:
        spec: dict[str, Any] = {"annotations": quick()}
        if group.startswith("critical"):
            spec["priorityClassName"] = CRITICAL
        if group == forced:
            spec["terminationGracePeriodSeconds"] = 7200
        if group.endswith("daemon"):
            await setting.apply(spread(manifests.workload("DaemonSet", group, **spec), setting))
        else:
            await setting.bind(node, manifests.pod(group, **spec))

    def ready() -> bool:
        return all(any(setting.runs(pod.metadata.name) for pod in setting.pods(group)) for group in GROUPS)

    await setting.history.until(ready, "one pod of each group")
    return [setting.pods(group)[0].metadata.name for group in GROUPS]


def in_the_order(forced: str | None) -> Timeline:
    """One group after the other, each when the one before is gone; whoever must go for the deadline waits for none."""

    async def timeline(setting: Setting) -> None:
        # An ordinary pod that is protected holds all of them back, but not the forced one.
        node = await setting.launch(terminationGracePeriod="1h")
        await setting.bind(node, manifests.pod("first", annotations=quick(**GUARDED)))
        pods = await one_of_each_group(setting, node, forced=forced)
        by_group = dict(zip(GROUPS, pods, strict=True))
        deleted_at = await setting.delete_claim()
        if forced is not None:
            deadline = deleted_at + timedelta(hours=1)
            await setting.forced(by_group[forced], due=deleted_at, deadline=deadline, own=7200, late=AT_ONCE)
        in_turn = [by_group[group] for group in GROUPS if group != forced]
        before = ["first"]
        if forced != "ordinary":
            before.append(in_turn.pop(0))  # of the same group
            await setting.asked(before[-1])
        assert all(setting.runs(pod) for pod in in_turn)
        await setting.annotate(PODS, "first", {names.DO_NOT_DISRUPT: None})
        for pod in in_turn:
            asked = await setting.asked(pod)
            ends = [setting.history.gone(PODS, name, setting.name) for name in before]
            assert all(end is not None and end.number < asked.number for end in ends), (before, pod)
            await setting.event(EventReason.EVICTED, pod, setting.name)
            before.append(pod)
        await setting.all_gone(node)

    timeline.__name__ = "in_order" if forced is None else f"in_order_but_for_the_{forced.replace('-', '_')}"
    return timeline


# -- what ends during a drain ------------------------------------------------------------------------------------------


async def a_budget_is_freed_by_another_replica(setting: Setting) -> None:
    node = await setting.launch(pods=(of_app("web", manifests.pod("web-1", annotations=quick())),))
    spare = await setting.spare_node()
    await setting.apply(manifests.pdb("web", minAvailable=1))
    await setting.history.until(lambda: allowed(setting) == 0, "the budget allows nothing")
    await setting.delete_claim()
    assert "web-1" in (await setting.event(EventReason.FAILED_DRAINING, node)).note
    assert setting.runs("web-1")
    web = manifests.pod("web-2", annotations={READY_AFTER: "2s"})
    await setting.bind(spare, of_app("web", web))
    await setting.asked("web-1")
    versions = setting.history.versions(PDBS, "web", setting.name)
    freed = next(each for each in versions if each.thing is not None and each.thing.status.get("disruptionsAllowed"))
    await setting.evicted("web-1", due=freed.at.replace(microsecond=0) - SECOND)  # the program may be told before us
    await setting.all_gone(node)
    assert setting.runs("web-2")


def allowed(setting: Setting) -> int | None:
    found = setting.history.get(PDBS, "web", setting.name)
    return None if found is None else found.status.get("disruptionsAllowed")


async def an_annotation_is_removed(setting: Setting) -> None:
    node = await setting.launch(pods=(manifests.pod("web", annotations=quick(**GUARDED)),))
    await setting.delete_claim()
    note = (await setting.event(EventReason.FAILED_DRAINING, node)).note
    assert f"{setting.name}/web" in note
    assert setting.runs("web")
    removed_at = await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.evicted("web", due=removed_at)
    await setting.all_gone(node)


# -- seed 003 ----------------------------------------------------------------------------------------------------------


async def expiry_with_a_deadline(setting: Setting) -> None:
    created_at = await setting.want(expireAfter="40s", terminationGracePeriod="20s")
    node = await setting.node_of()
    await setting.bind(node, manifests.pod("web", annotations=quick(**GUARDED), terminationGracePeriodSeconds=10))
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "true"})  # R19: forceful methods do not look at it
    deleted_at = await setting.deleted_at()
    assert created_at + seconds(40) <= deleted_at <= created_at + seconds(40) + LATE
    for about in (setting.claim_name("c1"), node):
        note = (await setting.event(EventReason.DISRUPTION_TERMINATING, about)).note
        assert format_time(created_at + seconds(40)) in note
    await setting.forced("web", due=deleted_at + seconds(10), deadline=deleted_at + seconds(20), own=10)
    await setting.all_gone(node)


async def expiry_without_a_deadline(setting: Setting) -> None:
    created_at = await setting.want(expireAfter="40s")
    node = await setting.node_of()
    await setting.bind(node, manifests.pod("web", annotations=quick(**GUARDED)))
    deleted_at = await setting.deleted_at()
    assert created_at + seconds(40) <= deleted_at <= created_at + seconds(40) + LATE
    note = (await setting.event(EventReason.FAILED_DRAINING, node)).note
    assert f"{setting.name}/web" in note
    assert "no terminationGracePeriod" in note
    await setting.history.reaches(deleted_at + seconds(20))
    assert setting.runs("web")
    removed_at = await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.evicted("web", due=removed_at, reason="Expired")
    await setting.all_gone(node)


async def an_interruption_with_an_earlier_deadline(setting: Setting) -> None:
    pod = manifests.pod("web", annotations=quick(**GUARDED), terminationGracePeriodSeconds=10)
    node = await setting.launch(pods=(pod,), terminationGracePeriod="1h")
    deadline = setting.history.now().replace(microsecond=0) + seconds(25)
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: format_time(deadline)})
    await setting.deleted_at()

    def is_recorded() -> bool:
        return setting.claim().metadata.annotations.get(names.TERMINATION_TIMESTAMP) == format_time(deadline)

    await setting.history.until(is_recorded, "the deadline is recorded after the deletion")
    note = (await setting.event(EventReason.DISRUPTION_TERMINATING, node)).note
    assert format_time(deadline) in note
    await setting.forced("web", due=deadline - seconds(10), deadline=deadline, own=10)
    await setting.all_gone(node)
    versions = setting.history.versions(NODECLAIMS, setting.claim_name("c1"))
    stamps = [each.thing.metadata.annotations.get(names.TERMINATION_TIMESTAMP) for each in versions if each.thing]
    assert stamps[-1] == format_time(deadline)


# -- all of them -------------------------------------------------------------------------------------------------------

TIMELINES: Sequence[Timeline] = (
    a_window_opens_and_another_closes,
    fifteen_minutes_for_three_pods_of_ten,
    four_hours_for_the_pod_and_72_for_the_node,
    no_time_at_all,
    a_pod_that_needs_longer_than_its_node_has,
    two_nodes_reach_their_deadline_together,
    *(in_the_order(forced) for forced in (None, *GROUPS)),
    a_budget_is_freed_by_another_replica,
    an_annotation_is_removed,
    expiry_with_a_deadline,
    expiry_without_a_deadline,
    an_interruption_with_an_earlier_deadline,
)
Endings = dict[str, BaseException | None]


def name_of(timeline: Timeline) -> str:
    return str(getattr(timeline, "__name__", timeline))


async def play(plane: ControlPlane, timelines: Sequence[Timeline]) -> Endings:
    """How each of them ended, all beside each other: None is well."""
    async with connect(kubeconfig=str(plane.kubeconfig)) as api, recording(api) as history, running(plane):

        async def one(number: int, timeline: Timeline) -> None:
            setting = Setting(api, history, f"timeline-{number}")
            async with asyncio.timeout(TIMELINE_SECONDS):
                await setting.prepare()
                await timeline(setting)

        ended = await asyncio.gather(*map(one, range(len(timelines)), timelines), return_exceptions=True)
        return {name_of(timeline): error for timeline, error in zip(timelines, ended, strict=True)}
    raise AssertionError("the program ended before the timelines")


@pytest.fixture(scope="module")
def endings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Endings:
    """Of those that were asked for, on a control plane of their own: the program would act on others' claims, too."""
    wanted = {item.name for item in request.session.items}
    timelines = [timeline for timeline in TIMELINES if f"test_timeline[{name_of(timeline)}]" in wanted]
    with ControlPlane(tmp_path_factory.mktemp("timelines") / "plane", flags=PATIENT) as plane:
        plane.install_crds()
        return asyncio.run(play(plane, timelines))


@pytest.mark.parametrize("timeline", [name_of(timeline) for timeline in TIMELINES])
def test_timeline(timeline: str, endings: Endings) -> None:
    error = endings[timeline]
    if error is not None:
        raise error
