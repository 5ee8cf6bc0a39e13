"""Guard beside the real Karpenter and beside the simulated one: windows that open and close, late nodes, durations."""

from datetime import timedelta

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.model.beside import read_hold
from dovetail.sim.actors.wire import Raw
from tests.harness.beside import BesideKarpenter
from tests.harness.hold_witness import looking_on

# Open for a minute, closed for a minute; guard holds from the middle of each open minute on.
EACH_OTHER_MINUTE = {names.DISRUPTION_SCHEDULE: "*/2 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "1m"}
NEVER = {names.DISRUPTION_SCHEDULE: "0 0 31 2 *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
# A machine that is busy shows things late.
PATIENT = {"slack_seconds": 3.0, "noticed_seconds": 5.0}


async def annotations_of(beside: BesideKarpenter, claim: Raw) -> dict[str, str]:
    """Those on its Node by which Karpenter is kept off."""
    node = await beside.node(claim)
    given = {} if node is None else node["metadata"].get("annotations") or {}
    return {key: value for key, value in given.items() if key in (names.DO_NOT_DISRUPT, names.HELD)}


async def until_held(beside: BesideKarpenter, claim: Raw, *, held: bool = True, timeout: float = 30) -> None:
    await beside.cluster.eventually(
        lambda: annotations_of(beside, claim), lambda found: bool(found) == held, timeout=timeout
    )


async def test_a_pool_drifts_as_a_whole_and_only_open_windows_let_it_go(beside: BesideKarpenter) -> None:
    pool = await beside.pool(guarded=True, boots="3s")
    async with (
        beside.guard(),
        looking_on(beside.cluster.client(), beside.cluster.clock, **PATIENT) as witness,
    ):
        witness.guard_since = beside.cluster.now()
        app = await beside.run(pool, 3, annotations=EACH_OTHER_MINUTE)
        old = await beside.claims(pool)
        for each in old:
            await beside.stamp(each)
        for each in old:
            await beside.until_gone(each, timeout=240)
        await beside.until_ready(app, 3)
        mine = {each["status"]["nodeName"] for each in old}
        assert not [text for text in witness.broken if any(node in text for node in mine)]
        assert mine <= set(witness.taken)
        assert await beside.late(pool) == len(witness.late & mine)


async def test_a_closed_window_holds_and_the_end_of_the_annotation_releases(beside: BesideKarpenter) -> None:
    pool = await beside.pool(guarded=True)
    async with beside.guard():
        app = await beside.run(pool, annotations=NEVER)
        (claim,) = await beside.claims(pool)
        await until_held(beside, claim)
        given = await annotations_of(beside, claim)
        assert given[names.DO_NOT_DISRUPT] == "true"
        hold = read_hold(given[names.HELD])
        assert hold is not None
        assert hold.until is None
        await beside.stamp(claim)
        await beside.untouched(claim, seconds=20)
        (pod,) = await beside.pods(app)
        for key in NEVER:
            await beside.annotate_pod(pod, None, key=key)
        await until_held(beside, claim, held=False, timeout=5)
        await beside.until_going(claim, timeout=90)


async def test_a_duration_holds_until_it_has_elapsed(beside: BesideKarpenter) -> None:
    """It counts from the creation of the pod, also with a Karpenter that reads no durations."""
    pool = await beside.pool(guarded=True)
    async with beside.guard():
        app = await beside.run(pool, annotations={names.DO_NOT_DISRUPT: "40s"})
        (claim,) = await beside.claims(pool)
        (pod,) = await beside.pods(app)
        await until_held(beside, claim, timeout=5)
        await beside.stamp(claim)
        await beside.until_going(claim, timeout=90)
        seconds = beside.cluster.now() - beside.created_at(pod)
        assert seconds >= timedelta(seconds=40)


async def test_a_node_that_was_taken_before_is_late_and_counted(beside: BesideKarpenter) -> None:
    """E3: a window closes while the replacement starts, and no hold helps any more."""
    pool = await beside.pool(guarded=True, boots="10s")
    async with beside.guard():
        app = await beside.run(pool)
        (claim,) = await beside.claims(pool)
        (pod,) = await beside.pods(app)
        await beside.stamp(claim)
        await beside.until(claim, ConditionType.DISRUPTION_REASON, timeout=90)
        for key, value in NEVER.items():
            await beside.annotate_pod(pod, value, key=key)
        await beside.until_pod_goes(pod, timeout=60)
        assert await beside.late(pool) == 1


async def test_what_a_user_annotated_stays_as_it_is(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    app = await beside.run(pool, 2, annotations=NEVER)
    first, second = await beside.claims(pool)
    await beside.annotate_node(first, "true")
    async with beside.guard():
        await beside.let_guard_in(pool)
        await until_held(beside, second, timeout=10)
        assert await annotations_of(beside, first) == {names.DO_NOT_DISRUPT: "true"}
        await beside.remove(app)
        await until_held(beside, second, held=False, timeout=10)
    assert await annotations_of(beside, first) == {names.DO_NOT_DISRUPT: "true"}


async def test_karpenter_replaces_a_node_that_guard_finds_too_old(beside: BesideKarpenter) -> None:
    """Guard stamps it, and Karpenter takes it for drifted. A node that is held is not stamped."""
    pool = await beside.pool(guarded=True, annotations={names.GRACEFUL_EXPIRE_AFTER: "30s"})
    async with beside.guard():
        protected = await beside.run(pool, annotations=NEVER)
        (held,) = await beside.claims(pool)
        await beside.run(pool)
        (old,) = [each for each in await beside.claims(pool) if each["metadata"]["uid"] != held["metadata"]["uid"]]
        await beside.cluster.eventually(lambda: is_stamped(beside, old), timeout=120)
        assert beside.cluster.now() - beside.created_at(old) >= timedelta(seconds=30)
        await beside.until_going(old, timeout=90)
        assert not await is_stamped(beside, held)
        await beside.remove(protected)


async def is_stamped(beside: BesideKarpenter, claim: Raw) -> bool:
    found = await beside.claim(claim)
    given = {} if found is None else found["metadata"]["annotations"]
    return names.HASH_BEFORE in given and names.ROLLED in given
