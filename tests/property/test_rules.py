"""Laws of the rules: an answer stands until it says, groups are the sum of their parts, budgets only tighten."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.node_records import NodeRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.model.snapshot import ClusterNode
from dovetail.rules import protection as protection_module
from dovetail.rules.budgets import (
    BUDGETED,
    BudgetConsumer,
    PoolCounts,
    allowance,
    limit_at,
    limit_below,
    read_budgets,
    readings_differ,
)
from dovetail.rules.deadlines import forced_deletion
from dovetail.rules.nodes import ReasonVerdict, judge_reason, pods_standing, when_free
from dovetail.rules.protection import node_do_not_disrupt, protection
from dovetail.rules.states import NodeState
from dovetail.rules.verdict import Verdict, together
from dovetail.values.schedule import instants as instants_module
from dovetail.values.schedule.instants import HORIZON, Instants
from tests.harness.builders import budget, claim, member, node, pod, pool
from tests.harness.soak import examples

TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
# Some laws take many answers for one example.
FEWER = settings(max_examples=examples(max(50, settings().max_examples // 4), quick=20))

# -- what is made up --------------------------------------------------------------------------------------------------

zones = st.sampled_from(["", "", "", "CRON_TZ=Europe/Berlin ", "TZ=America/New_York ", "CRON_TZ=Asia/Kolkata "])
fields = st.tuples(
    st.sampled_from(["0", "0", "30", "*", "*/15", "59", "0,45", "10-20"]),
    st.sampled_from(["2", "9", "22", "*", "*/6", "0", "23", "9-17"]),
    st.sampled_from(["*", "*", "*", "1", "31", "*/2", "29", "?"]),
    st.sampled_from(["*", "*", "*", "2", "3,10", "JAN", "*/3"]),
    st.sampled_from(["*", "*", "6", "0", "1-5", "7", "MON,WED", "*/2"]),
).map(" ".join)
good_crons = st.builds(
    lambda zone, text: zone + text,
    zones,
    st.one_of(fields, st.sampled_from(["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "0 0 31 2 *"])),
)
bad_crons = st.sampled_from(
    ["", "nonsense", "0 2 * *", "0 22-6 * * *", "@every 1h", "0 0 * * 8", "TZ=Nowhere/At 0 0 * * *"]
)
crons = st.one_of(good_crons, good_crons, good_crons, bad_crons)
spans = st.one_of(
    st.sampled_from(["1m", "30m", "1h", "4h", "8h", "24h", "25h", "36h", "168h"]),
    st.sampled_from(["1h0m30s", "90.5s", "2h0.000001s", "23h59m59s", "4h0m15s"]),  # they close within a minute
)
odd_spans = st.sampled_from(["", "0", "-1h", "30s", "169h", "99999h", "1d", "four hours", "1h;", "1h;2h"])


@st.composite
def schedules(draw: st.DrawFn) -> tuple[str, str | None]:
    """The two annotations of a schedule."""
    texts = draw(st.lists(crons, min_size=1, max_size=3))
    each = st.lists(spans, min_size=len(texts), max_size=len(texts)).map(";".join)
    return ";".join(texts), draw(st.one_of(spans, spans, each, odd_spans, st.none()))


protections = st.sampled_from(
    [
        "true",
        "false",
        "4h",
        "1h30m",
        "24h",
        "720h",
        "9000h",
        "90s",
        "1ns",
        "0.5s",
        "",
        "0",
        "-1h",
        "4hours",
        "1d",
        "50000h",
    ]
)
moments = st.one_of(
    st.datetimes(datetime(2025, 1, 1), datetime(2029, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.datetimes(datetime(2025, 1, 1), datetime(2029, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
        lambda at: at.replace(minute=0, second=0, microsecond=0)
    ),
)
stamps = moments.map(lambda at: f"{at:%Y-%m-%dT%H:%M:%S.%fZ}")


@st.composite
def pods(draw: st.DrawFn) -> PodRecord:
    schedule, duration = draw(st.one_of(st.just((None, None)), schedules()))
    block_schedule, block_duration = draw(st.one_of(st.just((None, None)), st.just((None, None)), schedules()))
    return pod(
        f"pod-{draw(st.integers(0, 9))}",
        do_not_disrupt=draw(st.one_of(st.none(), st.none(), protections)),
        schedule=schedule,
        duration=duration,
        block_schedule=block_schedule,
        block_duration=block_duration,
        created=draw(st.one_of(stamps, stamps, st.none())),
        deleted=draw(st.sampled_from([None, None, None, None, None, "2026-03-07T02:00:00Z"])),
        phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"])),
        owner=draw(st.sampled_from(["ReplicaSet", "DaemonSet", "Node", None])),
    )


nodes = st.builds(
    lambda do_not_disrupt, created: node(do_not_disrupt=do_not_disrupt, created=created),
    st.one_of(st.none(), st.none(), protections),
    st.one_of(stamps, st.none()),
)

amounts = st.one_of(
    st.integers(0, 12).map(str), st.integers(0, 100).map(lambda n: f"{n}%"), st.sampled_from(["0", "5", "10%", "100%"])
)
reason_lists = st.lists(st.sampled_from(["Empty", "drifted", "Underutilized", "expired"]), max_size=2)
good_budgets = st.builds(
    lambda amount, reasons, window: budget(amount, reasons, *window),
    amounts,
    reason_lists,
    st.one_of(
        st.just((None, None)), st.tuples(good_crons, st.sampled_from(["1m", "30m", "1h", "8h", "24h", "48h", "1h30m"]))
    ),
)
bad_budgets = st.builds(
    lambda reasons, kind: budget(kind[0], [*reasons, *kind[1]], kind[2], kind[3]),
    reason_lists,
    st.sampled_from(
        [
            ("lots", (), None, None),
            ("101%", (), None, None),
            ("5", (), "@daily", None),
            ("5", (), "nonsense", "1h"),
            ("5", (), "@daily", "90s"),
            ("5", ("drift",), None, None),
        ]
    ),
)
budgets = st.one_of(good_budgets, good_budgets, good_budgets, bad_budgets)
budget_lists = st.lists(budgets, max_size=5)
reasons_ = st.sampled_from(BUDGETED)
readings = st.sampled_from(list(BudgetSemantics))


@st.composite
def pool_counts_(draw: st.DrawFn) -> PoolCounts:
    total = draw(st.integers(0, 30))
    busy = draw(st.integers(0, total) | st.integers(0, total // 4))
    sick = draw(st.integers(0, busy))
    return PoolCounts(
        nodes=total,
        consumers=tuple(
            BudgetConsumer(node=f"n-{n}", state=NodeState.DRAINING, unhealthy=n < sick) for n in range(busy)
        ),
    )


# -- sampling ---------------------------------------------------------------------------------------------------------


def forget() -> None:
    """Drop remembered runs, so that an answer asked for again is found anew."""
    for module in (protection_module, instants_module):
        for thing in vars(module).values():
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()


LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def afresh(rule: Callable[[datetime], Sequence[Verdict]]) -> list[Instants]:
    """The instants at which each verdict allows, from sets that have not been asked about the time of interest."""
    forget()
    return [verdict.when for verdict in rule(LONG_AGO)]


def samples(start: datetime, stop: datetime, data: st.DataObject) -> list[datetime]:
    """Some instants of [start, stop): both ends, whole minutes, and any."""
    length = (stop - start) // TICK
    some = data.draw(st.lists(st.integers(0, max(0, length - 1)), min_size=6, max_size=6))
    drawn = [start + offset * TICK for offset in some]
    whole = [at.replace(second=0, microsecond=0) for at in drawn]
    edges = [start, start + TICK, start + MINUTE, stop - MINUTE, stop - TICK]
    return [at for at in (*edges, *drawn, *whole, *(at - TICK for at in whole)) if start <= at < stop]


def changes(sets: Sequence[Instants], start: datetime) -> list[datetime]:
    """The next few instants after `start` at which one of the sets changes, and their neighbours."""
    found = []
    for instants in sets:
        at: datetime | None = start
        for _ in range(4):
            at = None if at is None else instants.until(at)
            if at is not None:
                found += [at - TICK, at, at + TICK]
    return found


BEFORE = st.sampled_from([TICK, timedelta(seconds=1), timedelta(seconds=29.5), timedelta(seconds=59), MINUTE, None])


def nearer(now: datetime, sets: Sequence[Instants], data: st.DataObject) -> datetime:
    """`now`, or an instant shortly before one of the sets changes."""
    before, edges = data.draw(BEFORE), changes(sets, now)
    return now if before is None or not edges else data.draw(st.sampled_from(edges)) - before


# -- pods -------------------------------------------------------------------------------------------------------------


@given(pods(), moments, st.data())
def test_a_verdict_stands_until_it_says_and_then_changes(
    subject: PodRecord, now: datetime, data: st.DataObject
) -> None:
    now = nearer(now, afresh(lambda at: protection(subject, at)), data)
    forget()
    verdicts = protection(subject, now)
    fresh = afresh(lambda at: protection(subject, at))
    for verdict, when in zip(verdicts, fresh, strict=True):
        assert when.contains(now) is verdict.allowed
        assert verdict.until is None or verdict.until > now
        stop = now + HORIZON if verdict.until is None else verdict.until
        for at in samples(now, stop, data):
            assert when.contains(at) is verdict.allowed, (verdict, at)
        if verdict.until is not None:
            assert when.contains(verdict.until) is not verdict.allowed, verdict


@given(pods(), moments)
def test_the_message_tells_the_same_instant(subject: PodRecord, now: datetime) -> None:
    for verdict in protection(subject, now):
        assert verdict.message
        assert "\n" not in verdict.message
        if verdict.until is not None:
            assert f"{verdict.until:%Y-%m-%dT%H:%M:%S}" in verdict.message


@FEWER
@given(st.lists(pods(), max_size=4), moments, st.data())
def test_a_group_allows_when_all_its_verdicts_do(group: list[PodRecord], now: datetime, data: st.DataObject) -> None:
    now = nearer(now, afresh(lambda at: [verdict for each in group for verdict in protection(each, at)]), data)
    forget()
    verdicts = [verdict for each in group for verdict in protection(each, now)]
    when = together(verdicts)
    assert when.contains(now) is all(verdict.allowed for verdict in verdicts)
    until = when.until(now)
    assert until is None or until > now
    fresh = afresh(lambda at: [verdict for each in group for verdict in protection(each, at)])
    stop = now + HORIZON if until is None else until
    edges = [at for at in changes(fresh, now) if now <= at < stop]
    forget()
    fresh = afresh(lambda at: [verdict for each in group for verdict in protection(each, at)])
    answer = when.contains(now)
    for at in (*samples(now, stop, data), *edges):
        assert all(one.contains(at) for one in fresh) is answer, at
    if until is not None:
        assert all(one.contains(until) for one in fresh) is not answer


# -- nodes ------------------------------------------------------------------------------------------------------------


def judged(
    subject: ClusterNode, reason: Reason, at: datetime, written: list[objects.Budget], counts: PoolCounts
) -> ReasonVerdict:
    graceful = pool(budgets=written, graceful_expire_after="1h", consolidate_after="1h")
    verdicts = [verdict for each in subject.pods for verdict in protection(each, at)]
    left = allowance(read_budgets(written), reason=reason, now=at, counts=counts)
    return judge_reason(subject, graceful, reason, at, pods=pods_standing(verdicts, len(subject.pods)), allowance=left)


@pytest.mark.parametrize("grace_period", [None, "1h"], ids=["without a limit", "with a limited drain"])
@FEWER
@given(
    group=st.lists(pods(), max_size=3),
    host=nodes,
    reason=reasons_,
    written=st.one_of(st.just([]), st.lists(good_budgets, max_size=2), st.lists(budgets, max_size=3)),
    counts=pool_counts_(),
    expire_after=st.sampled_from(["Never", "0s", "720h", "9000h0m30s", "30000h"]),
    now=moments,
    data=st.data(),
)
def test_a_node_is_allowed_when_every_rule_allows_and_until_it_says(
    *,
    grace_period: str | None,
    group: list[PodRecord],
    host: NodeRecord,
    reason: Reason,
    written: list[objects.Budget],
    counts: PoolCounts,
    expire_after: str,
    now: datetime,
    data: st.DataObject,
) -> None:
    if grace_period is not None:
        assume(reason in {Reason.DRIFTED, Reason.EXPIRED})
    subject = member(
        claim(grace_period=grace_period, expire_after=expire_after, last_pod_event="2026-03-07T02:00:30Z"), host, group
    )
    found = judged(subject, reason, now, written, counts)
    assert found.allowed is all(verdict.allowed for verdict in found.verdicts)
    assert found.allowed is found.when.contains(now)
    assert found.until is None or found.until > now
    stop = now + HORIZON if found.until is None else found.until
    edges = changes(afresh(lambda at: [verdict for each in group for verdict in protection(each, at)]), now)
    for at in (*samples(now, stop, data), *(edge for edge in edges[:12] if now <= edge < stop)):
        forget()
        assert judged(subject, reason, at, written, counts).allowed is found.allowed, at
    if found.until is not None:
        forget()
        assert judged(subject, reason, found.until, written, counts).allowed is not found.allowed


@FEWER
@given(st.lists(pods(), max_size=4), nodes, moments, st.data())
def test_free_at_is_the_first_instant_at_which_nothing_blocks(
    group: list[PodRecord], host: NodeRecord, now: datetime, data: st.DataObject
) -> None:
    def rules(at: datetime) -> list[Verdict]:
        return [node_do_not_disrupt(host, at), *(verdict for each in group for verdict in protection(each, at))]

    subject = member(claim(), host, group)
    standing = pods_standing([verdict for each in group for verdict in protection(each, now)], len(group))
    free_at = when_free(subject, pool(), standing, now).first(now)
    stop = now + HORIZON if free_at is None else free_at
    edges = [at for at in changes(afresh(rules), now) if now <= at < stop]
    fresh = afresh(rules)
    if stop > now:
        for at in (*samples(now, stop, data), *edges):
            assert not all(one.contains(at) for one in fresh), at
    if free_at is not None:
        assert free_at >= now
        assert all(one.contains(free_at) for one in fresh)


# -- budgets ----------------------------------------------------------------------------------------------------------


@given(
    written=budget_lists,
    reason=reasons_,
    now=moments,
    count=st.integers(0, 30),
    reading=readings,
    value=st.integers(0, 40),
)
def test_limit_at_and_limit_below_agree(
    *, written: list[objects.Budget], reason: Reason, now: datetime, count: int, reading: BudgetSemantics, value: int
) -> None:
    rules = read_budgets(written)
    limit, binding = limit_at(rules, reason, now, count, reading)
    assert limit >= 0
    for compared in {value, limit, limit + 1}:
        assert limit_below(rules, reason, compared, count, reading).contains(now) is (limit < compared)
    if binding is None:
        assert limit == count
    else:
        assert rules[binding].limit(count) == limit
        assert rules[binding].active.contains(now)


@given(budget_lists, st.tuples(budgets, budgets), reasons_, moments, st.integers(0, 30))
def test_another_budget_for_a_reason_that_has_one_never_allows_more(
    written: list[objects.Budget],
    pair: tuple[objects.Budget, objects.Budget],
    reason: Reason,
    now: datetime,
    count: int,
) -> None:
    first, extra = (budget(one.nodes, [*one.reasons, reason.value], one.schedule, one.duration) for one in pair)
    rules = read_budgets([*written, first])
    assume(any(reason in rule.reasons and rule.active.contains(now) for rule in rules))
    added = read_budgets([*written, first, extra])
    assert limit_at(added, reason, now, count)[0] <= limit_at(rules, reason, now, count)[0]


@given(
    written=budget_lists,
    extra=good_budgets,
    reason=reasons_,
    now=moments,
    count=st.integers(0, 30),
    reading=readings,
)
def test_another_budget_without_reasons_never_allows_more(
    *,
    written: list[objects.Budget],
    extra: objects.Budget,
    reason: Reason,
    now: datetime,
    count: int,
    reading: BudgetSemantics,
) -> None:
    default = budget(extra.nodes, [], extra.schedule, extra.duration)
    before, after = (
        limit_at(read_budgets(each), reason, now, count, reading)[0] for each in (written, [*written, default])
    )
    # A limit above the pool's nodes is no limit.
    assert min(after, count) <= min(before, count)


@given(
    written=budget_lists,
    extra=bad_budgets,
    reason=reasons_,
    now=moments,
    count=st.integers(0, 30),
    reading=readings,
)
def test_an_unreadable_budget_never_allows_more(
    *,
    written: list[objects.Budget],
    extra: objects.Budget,
    reason: Reason,
    now: datetime,
    count: int,
    reading: BudgetSemantics,
) -> None:
    before, after = (
        limit_at(read_budgets(each), reason, now, count, reading)[0] for each in (written, [*written, extra])
    )
    assert after <= before


@given(st.lists(good_budgets, max_size=5), reasons_, moments, st.integers(0, 30))
def test_upstream_never_allows_more_and_differs_just_when_we_say(
    written: list[objects.Budget], reason: Reason, now: datetime, count: int
) -> None:
    rules = read_budgets(written)
    ours, theirs = (limit_at(rules, reason, now, count, reading)[0] for reading in BudgetSemantics)
    assert theirs <= ours
    # Limits beyond the number of nodes are all the same.
    assert readings_differ(rules, reason, count).contains(now) is (min(theirs, count) != min(ours, count))


@given(written=budget_lists, reason=reasons_, now=moments, counts=pool_counts_(), reading=readings, data=st.data())
def test_allowance_is_the_second_equation_and_stands_until_it_says(
    *,
    written: list[objects.Budget],
    reason: Reason,
    now: datetime,
    counts: PoolCounts,
    reading: BudgetSemantics,
    data: st.DataObject,
) -> None:
    found = allowance(read_budgets(written), reason=reason, now=now, counts=counts, reading=reading)
    assert found.limit == limit_at(read_budgets(written), reason, now, counts.nodes, reading)[0]
    assert found.allowed == max(0, found.limit - counts.unhealthy - counts.disrupting)
    assert found.when.contains(now) is (found.allowed > 0)

    forget()
    rules = read_budgets(written)

    @cache
    def limit(at: datetime) -> int:
        return limit_at(rules, reason, at, counts.nodes, reading)[0]

    stop = now + HORIZON if found.until is None else found.until
    edges = changes([rule.active for rule in rules], now)
    forget()
    rules = read_budgets(written)
    for at in (*samples(now, stop, data), *(edge for edge in edges if now <= edge < stop)):
        assert limit(at) == found.limit, at
    if found.until is not None:
        assert found.until > now
        assert limit(found.until) != found.limit
    next_change = found.when.until(now)
    for at in samples(now, now + HORIZON if next_change is None else next_change, data):
        assert (limit(at) > len(counts.consumers)) is (found.allowed > 0), at


# -- deadlines --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), moments, st.timedeltas(timedelta(-3), timedelta(3)), st.none() | stamps)
def test_a_forced_pod_is_gone_by_the_deadline_if_that_is_still_possible(
    grace: int, now: datetime, left: timedelta, deleted: str | None
) -> None:
    subject, deadline = pod(grace=grace, deleted=deleted), now + left
    found = forced_deletion(subject, deadline, now)
    if found is None:
        assert subject.deleted_at is not None
        assert subject.deleted_at <= deadline or subject.deleted_at - now <= timedelta(seconds=1)
        return
    assert found.at >= now
    if subject.deleted_at is not None:  # otherwise it would be deleted over and over
        assert now + timedelta(seconds=found.grace_seconds) < subject.deleted_at
    assert 1 <= found.grace_seconds <= max(1, grace)
    if found.grace_seconds > 1:
        assert found.at + timedelta(seconds=found.grace_seconds) <= deadline
    if subject.deleted_at is None and found.at > now:
        assert found.grace_seconds == max(1, grace)
