"""The timelines of the seeds, to the second: who leaves when, who made it leave, and what is left. All controllers run.

The same timelines, shortened to seconds, run on a real control plane in tests/cluster/termination.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS
from dovetail.sim.actors.cluster import START
from dovetail.sim.actors.wire import SHUTDOWN, Raw
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.manifests import Manifest
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, Setting, annotation, is_deleting, play

pytestmark = stage(play)

MOMENT = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
GRACE = timedelta(seconds=30)  # of a pod that says nothing else
STUBBORN = {SHUTDOWN: "1000h"}  # ends when its grace period does


def of_app(app: str, pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"app": app}}}


def requested(pod: Raw | None) -> tuple[datetime, int]:
    """When a pod was asked to go, and with which grace."""
    assert pod is not None
    assert is_deleting(pod)
    grace = int(pod["metadata"]["deletionGracePeriodSeconds"])
    return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]) - timedelta(seconds=grace), grace


def note_of(setting: Setting, reason: EventReason, about: str) -> str:
    """What the one event about the object says."""
    (event,) = setting.events(reason, about)
    assert event["reportingController"] == names.COMPONENT
    return str(event["note"])


def assert_forced(setting: Setting, pod: str, deadline: datetime, *, own: int, granted: int) -> None:
    """R17: deleted and not evicted, and told who did it, why, and by which arithmetic."""
    note = note_of(setting, EventReason.DISRUPTED, pod)
    assert note.startswith("Deleted by dovetail")
    assert f"terminated by {format_time(deadline)}" in note
    assert f"granted {granted} seconds of grace-period (its own {own} s" in note
    assert setting.events(EventReason.EVICTED, pod) == []


def assert_evicted(setting: Setting, pod: str, at: datetime, *, reason: str = "Forceful Termination") -> None:
    assert setting.tried_to_evict(pod)[-1] == at
    assert note_of(setting, EventReason.EVICTED, pod) == f"Evicted pod: {reason}"
    assert setting.events(EventReason.DISRUPTED, pod) == []


async def all_gone_by(setting: Setting, at: datetime, *, nodes: Iterable[str], claims: Iterable[str] = ("c1",)) -> None:
    """Nodes and claims go at this instant and not before, and leave no pod behind."""
    await setting.run_until(at - MOMENT)
    assert all(setting.node(node) is not None for node in nodes)
    await setting.run_past(at)
    assert setting.gone(NODES, *nodes)
    assert setting.gone(NODECLAIMS, *claims)
    # Whoever was cut short at the deadline has a second, and then it takes the garbage collector of pods a minute.
    await setting.sim.wait_until(
        lambda: all(pod["spec"].get("nodeName") not in nodes for pod in setting.sim.pods()), timeout="2m"
    )


# -- seed 002: three pods of 10 m grace under one budget, 15 m for the node --------------------------------------------


@pytest.mark.parametrize("nodes", [1, 3])
async def test_15_minutes_for_three_pods_of_10_that_may_go_one_at_a_time(setting: Setting, nodes: int) -> None:
    web = manifests.deployment("web", replicas=3, terminationGracePeriodSeconds=600, annotations=STUBBORN)
    anti_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names.HOSTNAME_LABEL}
        ]
    }
    if nodes == 3:
        web["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": anti_affinity}
    claims = [f"c{number}" for number in range(nodes)]
    hosts = [await setting.launch(claim, terminationGracePeriod="15m") for claim in claims]
    await setting.sim.apply(web, manifests.pdb("web", maxUnavailable=1))
    await setting.sim.wait_until(lambda: len(setting.sim.pods(app="web", ready=True)) == 3)
    await setting.sim.run_for("1s")  # the budget's status follows
    pods = [str(pod["metadata"]["name"]) for pod in setting.sim.pods(app="web")]
    deleted_at = setting.now()
    for claim in claims:
        await setting.delete_claim(claim)

    # One is evicted. Its replacement finds no node, so the budget allows no other.
    await setting.run_until(deleted_at + 5 * MINUTE - MOMENT)
    (first,) = (pod for pod in pods if is_deleting(setting.pod(pod)))
    assert requested(setting.pod(first)) == (deleted_at, 600)
    assert_evicted(setting, first, deleted_at)
    others = [pod for pod in pods if pod != first]
    assert all(setting.runs(pod) for pod in others)

    # At +5 m what is left would not end in time if it were asked any later.
    await setting.run_past(deleted_at + 5 * MINUTE)
    for pod in others:
        assert requested(setting.pod(pod)) == (deleted_at + 5 * MINUTE, 600)
        assert_forced(setting, pod, deleted_at + 15 * MINUTE, own=600, granted=600)

    await setting.run_past(deleted_at + 10 * MINUTE)
    assert setting.pod(first) is None
    ends = [host for host in hosts if setting.node(host) is not None]
    assert len(ends) == (1 if nodes == 1 else 2)
    left = [claim for claim in claims if setting.claim(claim) is not None]
    await all_gone_by(setting, deleted_at + 15 * MINUTE, nodes=ends, claims=left)
    assert setting.gone(PODS, *pods)


# -- seed 000: 4 h for the pod, 72 h for the node ----------------------------------------------------------------------


async def test_4_hours_for_the_pod_and_72_for_the_node(setting: Setting) -> None:
    """R16: whatever starts the drain in hour 0, the pod stays until hour 4; PDBs count from then on, until hour 72."""
    node = await setting.launch(terminationGracePeriod="72h")
    created_at = setting.now()
    four = manifests.pod("four", annotations={names.DO_NOT_DISRUPT: "4h"})
    await setting.bind(node, four, manifests.pod("ever", annotations=GUARDED, terminationGracePeriodSeconds=120))
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    assert format_time(created_at + 4 * HOUR) in note_of(setting, EventReason.DO_NOT_DISRUPT_UNTIL, "four")
    assert setting.deadline() == deleted_at + 72 * HOUR

    await setting.run_until(created_at + 4 * HOUR - MOMENT)
    assert setting.runs("four")
    assert setting.tried_to_evict() == []
    await setting.run_past(created_at + 4 * HOUR)
    assert_evicted(setting, "four", created_at + 4 * HOUR)
    assert len(setting.events(EventReason.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED, "four")) == 1

    # The other one is protected for good, and leaves in time for its two minutes of grace.
    await setting.run_until(deleted_at + 72 * HOUR - 2 * MINUTE - MOMENT)
    assert setting.gone(PODS, "four")
    assert setting.runs("ever")
    await setting.run_past(deleted_at + 72 * HOUR - 2 * MINUTE)
    assert requested(setting.pod("ever")) == (deleted_at + 72 * HOUR - 2 * MINUTE, 120)
    assert_forced(setting, "ever", deleted_at + 72 * HOUR, own=120, granted=120)
    await all_gone_by(setting, deleted_at + 72 * HOUR - 2 * MINUTE + SECOND, nodes=[node])


async def test_after_4_hours_a_budget_still_counts(setting: Setting) -> None:
    """Seed 000: the protection is looked at before PDBs, and does not circumvent them."""
    node = await setting.launch(terminationGracePeriod="12h")
    created_at = setting.now()
    await setting.bind(node, manifests.pod("web", annotations={names.DO_NOT_DISRUPT: "4h"}))
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.run_until(created_at + 4 * HOUR - MOMENT)
    assert setting.tried_to_evict() == []
    await setting.run_until(deleted_at + 12 * HOUR - GRACE - MOMENT)
    assert setting.runs("web")
    await setting.run_past(deleted_at + 12 * HOUR - GRACE)
    assert_forced(setting, "web", deleted_at + 12 * HOUR, own=30, granted=30)


# -- seed 002: no time at all, and less than a pod needs ---------------------------------------------------------------


async def test_0_is_by_force_at_once(setting: Setting) -> None:
    pods = [
        manifests.pod("web", annotations={**GUARDED, **STUBBORN}),
        manifests.pod("core", priorityClassName="system-node-critical", annotations=STUBBORN),
    ]
    node = await setting.launch(pods=pods, terminationGracePeriod="0s")
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.run_past(deleted_at)
    for pod in ("web", "core"):
        assert requested(setting.pod(pod)) == (deleted_at, 1)
        assert_forced(setting, pod, deleted_at, own=30, granted=1)
    assert setting.tried_to_evict() == []
    await all_gone_by(setting, deleted_at + MOMENT, nodes=[])
    assert setting.gone(NODES, node)


@pytest.mark.parametrize(("own", "granted"), [(900, 900), (901, 900), (86_400, 900)])
async def test_a_pod_that_needs_longer_than_its_node_has_goes_at_once(setting: Setting, own: int, granted: int) -> None:
    pod = manifests.pod("slow", annotations={**GUARDED, **STUBBORN}, terminationGracePeriodSeconds=own)
    node = await setting.launch(pods=[pod], terminationGracePeriod="15m")
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.run_past(deleted_at)
    assert requested(setting.pod("slow")) == (deleted_at, granted)
    assert_forced(setting, "slow", deleted_at + 15 * MINUTE, own=own, granted=granted)
    await all_gone_by(setting, deleted_at + 15 * MINUTE, nodes=[node])


# -- seed 001: two nodes reach their deadline together -----------------------------------------------------------------


async def test_two_nodes_that_expire_together_override_the_budget_of_both(setting: Setting) -> None:
    """PDBs, do-not-disrupt and expiry at once: until the deadline neither pod is touched, and then both go."""
    created_at = setting.now()
    claims = ("c1", "c2")
    lasting: dict[str, Any] = {"expireAfter": "12h", "terminationGracePeriod": "24h"}
    for claim in claims:
        await setting.want(claim, **lasting)
    nodes = [await setting.launch(claim, **lasting) for claim in claims]
    await setting.sim.apply(manifests.node("spare"))
    for number, node in enumerate((*nodes, "spare"), start=1):
        await setting.bind(node, of_app("web", manifests.pod(f"web-{number}", annotations=GUARDED)))
    await setting.sim.apply(manifests.pdb("web", minAvailable=2))
    expired_at = created_at + 12 * HOUR
    deadline = expired_at + 24 * HOUR
    await setting.run_until(expired_at - MOMENT)
    assert not any(is_deleting(setting.claim(claim)) for claim in claims)
    await setting.run_past(expired_at)
    assert [setting.deadline(claim) for claim in claims] == [deadline, deadline]
    await setting.run_until(deadline - GRACE - MOMENT)
    assert all(setting.runs(f"web-{number}") for number in (1, 2, 3))
    await setting.run_past(deadline - GRACE)
    for pod in ("web-1", "web-2"):
        assert requested(setting.pod(pod)) == (deadline - GRACE, 30)
        assert_forced(setting, pod, deadline, own=30, granted=30)
    assert setting.tried_to_evict() == []
    await all_gone_by(setting, deadline - GRACE + SECOND, nodes=nodes, claims=claims)
    assert setting.runs("web-3")


# -- the orders of a drain ---------------------------------------------------------------------------------------------

GROUPS = ("ordinary", "daemon", "critical", "critical-daemon")


async def one_of_each_group(setting: Setting, node: str, *, forced: str | None) -> list[str]:
    """The names of the four pods, in order. The forced one needs longer than its node has."""
    for group in GROUPS:
        spec: dict[str, Any] = {"annotations": {SHUTDOWN: "20s"}}
        if group.startswith("critical"):
            spec["priorityClassName"] = "system-cluster-critical"
        if group == forced:
            spec["terminationGracePeriodSeconds"] = 7200
        if group.endswith("daemon"):
            await setting.sim.apply(manifests.workload("DaemonSet", group, **spec))
        else:
            await setting.bind(node, manifests.pod(group, **spec))
    await setting.sim.wait_until(lambda: all(setting.sim.pods(app=group, ready=True) for group in GROUPS))
    return [str(setting.sim.pods(app=group)[0]["metadata"]["name"]) for group in GROUPS]


@pytest.mark.parametrize("forced", [None, *GROUPS])
async def test_the_five_orders_of_a_drain(setting: Setting, forced: str | None) -> None:
    """One group after the other, each when the one before is gone; whoever must go for the deadline waits for none."""
    takes = timedelta(seconds=20)
    # An ordinary pod that is protected holds all others back, but neither those of its group nor the forced one.
    first = manifests.pod("first", annotations={**GUARDED, SHUTDOWN: "20s"})
    node = await setting.launch(pods=[first], terminationGracePeriod="1h")
    pods = await one_of_each_group(setting, node, forced=forced)
    by_group = dict(zip(GROUPS, pods, strict=True))
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.run_past(deleted_at)
    going = [group for group, name in by_group.items() if is_deleting(setting.pod(name))]
    assert going == [group for group in GROUPS if group in ("ordinary", forced)]
    if forced != "ordinary":
        assert_evicted(setting, by_group["ordinary"], deleted_at)
    if forced is not None:
        assert_forced(setting, by_group[forced], deleted_at + HOUR, own=7200, granted=3600)

    removed_at = deleted_at + MINUTE
    await setting.run_until(removed_at)
    await setting.annotate(PODS, "first", {names.DO_NOT_DISRUPT: None})
    in_turn = ["first", *(by_group[group] for group in GROUPS if group not in ("ordinary", forced))]
    for turn, pod in enumerate(in_turn):
        await setting.run_past(removed_at + turn * takes)
        assert_evicted(setting, pod, removed_at + turn * takes)
        await setting.run_until(removed_at + (turn + 1) * takes - MOMENT)
        assert all(setting.runs(later) for later in in_turn[turn + 1 :])
    await all_gone_by(setting, removed_at + len(in_turn) * takes, nodes=[node])


# -- what ends during a drain ------------------------------------------------------------------------------------------


async def test_a_budget_that_another_replica_frees_lets_the_pod_go_at_once(setting: Setting) -> None:
    node = await setting.launch(pods=[of_app("web", manifests.pod("web-1"))])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1), manifests.node("spare"))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("1h")
    assert setting.runs("web-1")
    notes = [str(event["note"]) for event in setting.events(EventReason.FAILED_DRAINING, node)]
    assert any("default/web-1" in note for note in notes)
    await setting.bind("spare", of_app("web", manifests.pod("web-2")))
    freed_at = setting.now()
    await setting.run_past(freed_at)
    assert_evicted(setting, "web-1", freed_at)
    await all_gone_by(setting, freed_at + SECOND, nodes=[node])
    assert setting.runs("web-2")


async def test_an_annotation_that_is_removed_lets_the_pod_go_at_once(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)])
    await setting.delete_claim()
    await setting.sim.run_for("6h")
    assert setting.runs("web")
    assert setting.tried_to_evict() == []
    removed_at = setting.now()
    await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.run_past(removed_at)
    assert_evicted(setting, "web", removed_at)
    await all_gone_by(setting, removed_at + SECOND, nodes=[node])


AT_NIGHT = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "4h"}


async def test_every_night_from_2_to_6(setting: Setting) -> None:
    """Seed 001: in the window one is evicted, by the budget; when it closes, who goes goes and who stays stays."""
    opens_at = START + 2 * HOUR
    closes_at = opens_at + 4 * HOUR
    slow: dict[str, Any] = {"annotations": {**AT_NIGHT, SHUTDOWN: "5h"}, "terminationGracePeriodSeconds": 36_000}
    node = await setting.launch(pods=[of_app("ml", manifests.pod(name, **slow)) for name in ("ml-1", "ml-2")])
    await setting.sim.apply(manifests.pdb("ml", minAvailable=1), manifests.node("spare"))
    await setting.delete_claim()
    await setting.run_until(opens_at - MOMENT)
    assert setting.tried_to_evict() == []
    await setting.run_past(opens_at)
    (going,) = (pod for pod in ("ml-1", "ml-2") if is_deleting(setting.pod(pod)))
    assert_evicted(setting, going, opens_at)
    (left,) = {"ml-1", "ml-2"} - {going}

    # From six on nothing is tried, though the budget now allows it, and what runs is not called off.
    await setting.run_until(closes_at)
    tried = len(setting.tried_to_evict())
    await setting.bind("spare", of_app("ml", manifests.pod("ml-3")))
    await setting.run_until(opens_at + 5 * HOUR - MOMENT)
    assert is_deleting(setting.pod(going))
    await setting.run_past(opens_at + 5 * HOUR)
    assert setting.pod(going) is None
    await setting.run_until(opens_at + 24 * HOUR - MOMENT)
    assert setting.runs(left)
    assert len(setting.tried_to_evict()) == tried
    await setting.run_past(opens_at + 24 * HOUR)
    assert_evicted(setting, left, opens_at + 24 * HOUR)
    await all_gone_by(setting, opens_at + 29 * HOUR, nodes=[node])


async def test_a_window_counts_until_the_node_has_only_the_pods_grace_left(setting: Setting) -> None:
    """R13: seed 001, the node's deadline takes precedence."""
    node = await setting.launch(pods=[manifests.pod("web", annotations=AT_NIGHT)], terminationGracePeriod="90m")
    deleted_at = setting.now()
    await setting.delete_claim()
    forced_at = deleted_at + 90 * MINUTE - GRACE
    await setting.run_until(forced_at - MOMENT)
    assert setting.runs("web")
    await setting.run_past(forced_at)
    assert_forced(setting, "web", deleted_at + 90 * MINUTE, own=30, granted=30)
    await all_gone_by(setting, forced_at + SECOND, nodes=[node])


# -- seed 003: expiry, and interruption --------------------------------------------------------------------------------


async def test_expiry_drains_by_the_deadline(setting: Setting) -> None:
    created_at = setting.now()
    pod = manifests.pod("web", annotations=GUARDED, terminationGracePeriodSeconds=60)
    node = await setting.launch(pods=[pod], expireAfter="24h", terminationGracePeriod="4h")
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "true"})  # R19: forceful methods do not look at it
    expires_at = created_at + 24 * HOUR
    await setting.run_until(expires_at - MOMENT)
    assert not is_deleting(setting.claim())
    await setting.run_past(expires_at)
    assert is_deleting(setting.claim())
    assert (names.DISRUPTED_TAINT, "NoSchedule") in setting.taints(node)
    for about in ("c1", node):
        assert format_time(expires_at) in note_of(setting, EventReason.DISRUPTION_TERMINATING, about)
    forced_at = expires_at + 4 * HOUR - MINUTE
    await setting.run_until(forced_at - MOMENT)
    assert setting.runs("web")
    await setting.run_past(forced_at)
    assert_forced(setting, "web", expires_at + 4 * HOUR, own=60, granted=60)
    await all_gone_by(setting, forced_at + SECOND, nodes=[node])


async def test_expiry_without_a_deadline_waits_and_says_for_whom(setting: Setting) -> None:
    created_at = setting.now()
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)], expireAfter="24h")
    expires_at = created_at + 24 * HOUR
    await setting.run_past(expires_at + timedelta(seconds=5))  # who is gone within the least time is not worth a word
    note = note_of(setting, EventReason.FAILED_DRAINING, node)
    assert "default/web" in note
    assert "do-not-disrupt" in note
    assert "no terminationGracePeriod" in note
    await setting.run_until(expires_at + 24 * HOUR)
    assert setting.runs("web")
    assert setting.tried_to_evict() == []
    removed_at = setting.now()
    await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.run_past(removed_at)
    assert_evicted(setting, "web", removed_at, reason="Expired")
    await all_gone_by(setting, removed_at + SECOND, nodes=[node])


@pytest.mark.parametrize("grace_period", [None, "1h"])
async def test_an_interruption_whose_deadline_comes_first(setting: Setting, grace_period: str | None) -> None:
    """R41: the notice's deadline is the node's."""
    period: dict[str, Any] = {} if grace_period is None else {"terminationGracePeriod": grace_period}
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)], **period)
    deadline = setting.now() + 2 * MINUTE
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: format_time(deadline)})
    await setting.sim.run_for("1s")
    assert is_deleting(setting.claim())
    assert setting.deadline() == deadline
    for about in ("c1", node):
        assert format_time(deadline) in note_of(setting, EventReason.DISRUPTION_TERMINATING, about)
    await setting.run_until(deadline - GRACE - MOMENT)
    assert setting.runs("web")
    await setting.run_past(deadline - GRACE)
    assert_forced(setting, "web", deadline, own=30, granted=30)
    await all_gone_by(setting, deadline - GRACE + SECOND, nodes=[node])


@pytest.mark.parametrize("grace_period", [None, "1h"])
@stage(cloud=True)
async def test_an_interruption_of_a_node_that_drains_already(setting: Setting, grace_period: str | None) -> None:
    period: dict[str, Any] = {} if grace_period is None else {"terminationGracePeriod": grace_period}
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)], **period)
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    deadline = setting.now() + 2 * MINUTE
    found = setting.node(node)
    assert found is not None
    setting.cloud.interrupt(found["spec"]["providerID"], deadline=deadline)
    await setting.sim.run_for("1s")
    assert setting.deadline() == deadline
    await setting.run_until(deadline - GRACE - MOMENT)
    assert setting.runs("web")
    await setting.run_past(deadline - GRACE)
    assert_forced(setting, "web", deadline, own=30, granted=30)
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))


async def test_an_interruption_whose_deadline_comes_last_changes_nothing(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)], terminationGracePeriod="2m")
    noticed_at = setting.now()
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: format_time(noticed_at + HOUR)})
    await setting.run_past(noticed_at + 2 * MINUTE - GRACE)
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) == format_time(noticed_at + 2 * MINUTE)
    assert_forced(setting, "web", noticed_at + 2 * MINUTE, own=30, granted=30)
    await all_gone_by(setting, noticed_at + 2 * MINUTE - GRACE + SECOND, nodes=[node])
