"""Budgets by reason (R25–R30): the limit, what uses it up, what is left, and until when."""

from collections.abc import Sequence

import pytest

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import (
    BUDGETED,
    UNLIMITED,
    Allowance,
    BudgetConsumer,
    PoolCounts,
    allowance,
    budget_problems,
    is_initialized,
    limit_at,
    limit_below,
    pool_counts,
    read_budgets,
    readings_differ,
)
from dovetail.rules.states import NodeState
from tests.harness.builders import at, budget, claim, member, node, pool

EMPTY, DRIFTED, UNDERUTILIZED, EXPIRED = BUDGETED
NOW = "2026-03-04T12:00:00Z"  # a Wednesday
Budgets = Sequence[objects.Budget]


def limits(
    budgets: Budgets, now: str = NOW, nodes: int = 100, reading: BudgetSemantics = BudgetSemantics.SEED
) -> dict[str, int]:
    rules = read_budgets(budgets)
    return {reason.value: limit_at(rules, reason, at(now), nodes, reading)[0] for reason in BUDGETED}


def same(limit: int) -> dict[str, int]:
    return {"Empty": limit, "Drifted": limit, "Underutilized": limit, "Expired": limit}


def counts(nodes: int, *, disrupting: int = 0, unhealthy: int = 0) -> PoolCounts:
    busy = [BudgetConsumer(node=f"d-{n}", state=NodeState.DRAINING, unhealthy=False) for n in range(disrupting)]
    sick = [BudgetConsumer(node=f"u-{n}", state=NodeState.STEADY, unhealthy=True) for n in range(unhealthy)]
    return PoolCounts(nodes=nodes, consumers=(*busy, *sick))


def ask(budgets: Budgets, reason: Reason, now: str = NOW, pool_: PoolCounts | None = None) -> Allowance:
    return allowance(read_budgets(budgets), reason=reason, now=at(now), counts=pool_ or counts(100))


# -- the seed's worked example ----------------------------------------------------------------------------------------

SEED = [budget("15", ["drifted", "underutilized"]), budget("10", ["drifted"]), budget("5")]


def test_worked_example_limits() -> None:
    assert limits(SEED) == {"Empty": 5, "Drifted": 10, "Underutilized": 15, "Expired": 5}


@pytest.mark.parametrize(
    ("reason", "limit", "binding", "first_equation", "allowed"),
    [
        # Disrupting: 3 drifted, 6 underutilized, 3 expired, 2 empty. The first equation would take off only the
        # reason's own (the default's are expired and empty together); ours is the second, which takes off all 14.
        pytest.param(DRIFTED, 10, 1, 10 - 3, 0, id="drifted"),
        pytest.param(UNDERUTILIZED, 15, 0, 15 - 6, 1, id="underutilized"),
        pytest.param(EMPTY, 5, 2, 5 - 3 - 2, 0, id="empty"),
        pytest.param(EXPIRED, 5, 2, 5 - 3 - 2, 0, id="expired"),
    ],
)
def test_worked_example_allowed(reason: Reason, limit: int, binding: int, first_equation: int, allowed: int) -> None:
    found = ask(SEED, reason, pool_=counts(100, disrupting=3 + 6 + 3 + 2))
    assert (found.reason, found.limit, found.binding, found.allowed) == (reason, limit, binding, allowed)
    assert found.until is None
    assert found.when.contains(at(NOW)) is (allowed > 0)
    if reason in {DRIFTED, UNDERUTILIZED}:
        assert found.allowed != first_equation


def test_worked_example_upstream_applies_the_default_to_all() -> None:
    assert limits(SEED, reading=BudgetSemantics.UPSTREAM) == same(5)


# -- R25: the limit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([], same(100), id="an explicit empty list is unlimited: the node count"),
        pytest.param(objects.Disruption().budgets, same(10), id="absent is one of 10%"),
        pytest.param([budget("5")], same(5), id="one default"),
        pytest.param([budget("5"), budget("3")], same(3), id="the least default"),
        pytest.param([budget("3", ["Empty"])], {**same(100), "Empty": 3}, id="named only: the others are unlimited"),
        pytest.param([budget("5"), budget("30", ["Empty"])], {**same(5), "Empty": 30}, id="named above the default"),
        pytest.param([budget("5"), budget("0", ["Empty"])], {**same(5), "Empty": 0}, id="named below the default"),
        pytest.param(
            [budget("8", ["Empty", "Drifted"]), budget("9", ["Drifted", "Expired"]), budget("1")],
            {"Empty": 8, "Drifted": 8, "Underutilized": 1, "Expired": 9},
            id="the least of those that name it",
        ),
        pytest.param([budget("5", [])], same(5), id="reasons: [] is no reasons"),
        pytest.param([budget("7", ["empty", "Drifted"])], {**same(100), "Empty": 7, "Drifted": 7}, id="lower case"),
        pytest.param([budget("7", ["empty", "Empty"])], {**same(100), "Empty": 7}, id="twice the same"),
        pytest.param([budget(7)], same(7), id="a number instead of text"),
        pytest.param([budget("200")], same(200), id="above the node count"),
        pytest.param([budget("0")], same(0), id="nothing"),
        pytest.param([budget("007")], same(7), id="leading zeros"),
        pytest.param([budget("9" * 5000)], same(UNLIMITED), id="an absurd count"),
    ],
)
def test_limits(budgets: Budgets, expected: dict[str, int]) -> None:
    assert limits(budgets) == expected


def test_a_pool_without_the_field_has_one_budget_of_ten_percent() -> None:
    assert pool().budgets == (budget("10%"),)
    assert pool(budgets=[]).budgets == ()


def test_many_leading_zeros_do_not_lift_a_limit() -> None:
    # The CRD's pattern accepts any number of digits.
    assert limits([budget("0" * 11)]) == same(0)
    assert limits([budget("0" * 11 + "5")]) == same(5)


@pytest.mark.parametrize(
    ("nodes", "text", "limit"),
    [
        (3, "10%", 1),
        (3, "50%", 2),
        (3, "0%", 0),
        (0, "10%", 0),
        (0, "100%", 0),
        (1, "1%", 1),
        (10, "10%", 1),
        (11, "10%", 2),
        (19, "10%", 2),
        (20, "10%", 2),
        (21, "10%", 3),
        (7, "100%", 7),
        (7, "07%", 1),
        (200, "99%", 198),
    ],
)
def test_percentages_round_up(nodes: int, text: str, limit: int) -> None:
    assert limits([budget(text)], nodes=nodes) == same(limit)


def test_a_pool_without_nodes_allows_nothing() -> None:
    assert limits([], nodes=0) == same(0)
    found = ask([], DRIFTED, pool_=counts(0))
    assert (found.limit, found.allowed, found.when.contains(at(NOW))) == (0, 0, False)


def test_the_first_of_equal_budgets_binds() -> None:
    rules = read_budgets([budget("9"), budget("5"), budget("5%")])
    assert limit_at(rules, DRIFTED, at(NOW), 100) == (5, 1)
    assert limit_at((), DRIFTED, at(NOW), 100) == (100, None)


# -- windows ----------------------------------------------------------------------------------------------------------

# Business hours, Monday to Friday: no drift from 9 to 17, whatever the default.
HOURS = [budget("5"), budget("0", ["Drifted"], "0 9 * * 1-5", "8h")]


@pytest.mark.parametrize(
    ("now", "drifted", "until"),
    [
        pytest.param("2026-03-04T08:59:59.999999Z", 5, "2026-03-04T09:00:00Z", id="the last instant before"),
        pytest.param("2026-03-04T09:00:00Z", 0, "2026-03-04T17:00:00Z", id="as it opens"),
        pytest.param("2026-03-04T16:59:59.999999Z", 0, "2026-03-04T17:00:00Z", id="the last instant inside"),
        pytest.param("2026-03-04T17:00:00Z", 5, "2026-03-05T09:00:00Z", id="the end instant is inactive"),
        pytest.param("2026-03-06T17:00:00Z", 5, "2026-03-09T09:00:00Z", id="over the weekend"),
    ],
)
def test_a_named_budget_rules_while_active_and_then_the_default_again(now: str, drifted: int, until: str) -> None:
    found = ask(HOURS, DRIFTED, now)
    assert (found.limit, found.until) == (drifted, at(until))
    assert found.when.contains(at(now)) is (drifted > 0)
    assert limits(HOURS, now) == {**same(5), "Drifted": drifted}
    assert ask(HOURS, EMPTY, now).until is None


def test_a_generous_named_budget_lifts_the_default_only_in_its_window() -> None:
    budgets = [budget("0"), budget("20", ["Empty"], "0 22 * * *", "8h")]
    assert limits(budgets, "2026-03-04T21:59:59Z") == same(0)
    assert limits(budgets, "2026-03-04T22:00:00Z") == {**same(0), "Empty": 20}
    assert limits(budgets, "2026-03-05T06:00:00Z") == same(0)
    found = ask(budgets, EMPTY, NOW)
    assert (found.allowed, found.until, found.when.until(at(NOW))) == (
        0,
        at("2026-03-04T22:00:00Z"),
        at("2026-03-04T22:00:00Z"),
    )


@pytest.mark.parametrize(
    ("budgets", "until"),
    [
        pytest.param([budget("5"), budget("5", [], "0 14 * * *", "1h")], None, id="an equal default opens"),
        pytest.param([budget("5"), budget("9", [], "0 14 * * *", "1h")], None, id="a higher default opens"),
        pytest.param(
            [budget("5"), budget("3", [], "0 14 * * *", "1h")], "2026-03-04T14:00:00Z", id="a lower one opens"
        ),
        pytest.param([budget("5"), budget("5", ["Drifted"], "0 14 * * *", "1h")], None, id="a named equal one opens"),
        pytest.param(
            [budget("5"), budget("9", ["Drifted"], "0 14 * * *", "1h")],
            "2026-03-04T14:00:00Z",
            id="a named higher one opens",
        ),
        pytest.param(
            [budget("5"), budget("3", ["Empty"], "0 14 * * *", "1h")], None, id="one for another reason opens"
        ),
        pytest.param([budget("100", [], "0 14 * * *", "1h")], None, id="unlimited to as much"),
        pytest.param([budget("5", [], "0 9 * * *", "8h")], "2026-03-04T17:00:00Z", id="the only one closes"),
        pytest.param(
            [budget("5", [], "0 9 * * *", "8h"), budget("5", [], "0 16 * * *", "8h")],
            "2026-03-05T00:00:00Z",
            id="an equal one takes over until it closes too",
        ),
        pytest.param(
            [budget("5", ["Drifted"], "0 9 * * *", "8h"), budget("5")], None, id="the default takes over as before"
        ),
        pytest.param([budget("5", [], "@daily", "48h")], None, id="@daily for 48h is always active"),
        pytest.param([budget("5", [], "0 0 31 2 *", "1h")], None, id="February 31 is never active"),
    ],
)
def test_only_what_changes_the_limit_is_an_until(budgets: Budgets, until: str | None) -> None:
    assert ask(budgets, DRIFTED).until == (None if until is None else at(until))


def test_when_speaks_of_at_least_one_more_while_until_speaks_of_the_limit() -> None:
    # The limit falls from 5 to 3 at 14:00; with 2 disrupting one more stays allowed, with 3 none.
    budgets = [budget("5"), budget("3", [], "0 14 * * *", "1h")]
    two, three = (ask(budgets, DRIFTED, pool_=counts(100, disrupting=n)) for n in (2, 3))
    assert (two.allowed, two.until, two.when.until(at(NOW))) == (3, at("2026-03-04T14:00:00Z"), None)
    assert (three.allowed, three.until, three.when.until(at(NOW))) == (
        2,
        at("2026-03-04T14:00:00Z"),
        at("2026-03-04T14:00:00Z"),
    )


def test_daily_for_48_hours_is_always_active() -> None:
    for now in ("2026-03-04T00:00:00Z", "2026-03-04T23:59:59.999999Z"):
        assert limits([budget("5", [], "@daily", "48h")], now) == same(5)


def test_a_budget_that_never_opens_does_nothing() -> None:
    assert limits([budget("0", [], "0 0 31 2 *", "1h")]) == same(100)


@pytest.mark.parametrize("prefix", ["CRON_TZ", "TZ"])
def test_time_zone_prefix(prefix: str) -> None:
    # 9:00 in New York is 14:00Z in winter and 13:00Z in summer.
    budgets = [budget("0", [], f"{prefix}=America/New_York 0 9 * * 1-5", "8h")]
    assert ask(budgets, DRIFTED, "2026-03-04T13:59:59Z").until == at("2026-03-04T14:00:00Z")
    assert limits(budgets, "2026-03-04T14:00:00Z") == same(0)
    assert limits(budgets, "2026-07-01T12:59:59Z") == same(100)
    assert limits(budgets, "2026-07-01T13:00:00Z") == same(0)


def test_without_prefix_schedules_are_utc() -> None:
    assert ask([budget("0", [], "0 9 * * 1-5", "8h")], DRIFTED, "2026-07-01T08:00:00Z").until == at(
        "2026-07-01T09:00:00Z"
    )


# -- R29: what cannot be read -----------------------------------------------------------------------------------------

BAD = [
    pytest.param(budget("lots"), "nodes", id="nodes is a word"),
    pytest.param(budget(""), "nodes", id="nodes is empty"),
    pytest.param(budget("101%"), "nodes", id="above 100%"),
    pytest.param(budget("-1"), "nodes", id="negative"),
    pytest.param(budget(-1), "nodes", id="negative number"),
    pytest.param(budget("5.5"), "nodes", id="fraction"),
    pytest.param(budget(" 5"), "nodes", id="blank"),
    pytest.param(budget("5\n"), "nodes", id="newline"),
    pytest.param(budget("\u0665"), "nodes", id="Arabic-Indic digit"),
    pytest.param(budget("5", [], "0 9 * * 1-5"), "schedule", id="schedule alone"),
    pytest.param(budget("5", [], None, "8h"), "schedule", id="duration alone"),
    pytest.param(budget("5", [], "nonsense", "8h"), "schedule", id="bad cron"),
    pytest.param(budget("5", [], "", "8h"), "schedule", id="empty cron"),
    pytest.param(budget("5", [], "@every 1h", "8h"), "schedule", id="@every"),
    pytest.param(budget("5", [], "TZ=Mars/Olympus 0 9 * * *", "8h"), "schedule", id="unknown zone"),
    pytest.param(budget("5", [], "0 9 * * 1-5", "8"), "duration", id="duration without unit"),
    pytest.param(budget("5", [], "0 9 * * 1-5", "90s"), "duration", id="duration in seconds"),
    pytest.param(budget("5", [], "0 9 * * 1-5", ""), "duration", id="empty duration"),
]


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_an_unreadable_budget_without_reasons_allows_nothing(bad: objects.Budget, field: str) -> None:
    [rule] = read_budgets([bad])
    assert rule.fault is not None
    assert rule.field == field
    assert limits([bad]) == same(0)
    assert limits([budget("5"), bad]) == same(0)
    found = ask([bad], DRIFTED)
    assert (found.limit, found.allowed, found.until, found.binding) == (0, 0, None, 0)


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_an_unreadable_budget_with_reasons_allows_nothing_for_these(bad: objects.Budget, field: str) -> None:
    named = budget(bad.nodes, ["Drifted", "empty"], bad.schedule, bad.duration)
    assert read_budgets([named])[0].field == field
    assert limits([named]) == {**same(100), "Drifted": 0, "Empty": 0}
    assert limits([named, budget("5"), budget("9", ["Drifted"])]) == {**same(5), "Drifted": 0, "Empty": 0}


def test_an_unreadable_budget_without_reasons_also_stops_reasons_that_another_budget_names() -> None:
    # R29: "active with 0 ... for every reason if it names none"; it does not give way as a default does.
    assert limits([budget("lots"), budget("9", ["Drifted"])]) == same(0)


@pytest.mark.parametrize(
    ("name", "stopped"),
    [
        ("drift", ["Empty", "Drifted"]),
        ("consolidation", ["Empty", "Underutilized"]),
        ("DRIFTED", ["Empty", "Drifted"]),
        ("", list(BUDGETED)),
        ("Unhealthy", list(BUDGETED)),
        ("Interrupted", list(BUDGETED)),
    ],
)
def test_an_unknown_reason_stops_what_it_may_mean(name: str, stopped: list[str]) -> None:
    [rule] = read_budgets([budget("5", ["Empty", name])])
    assert rule.field == "reasons"
    assert rule.fault is not None
    assert rule.fault.endswith("is not a reason: want Empty, Drifted, Underutilized, Expired")
    assert limits([budget("5", ["Empty", name])]) == {**same(100), **dict.fromkeys(stopped, 0)}


def test_only_unknown_reasons_stop_every_reason() -> None:
    assert limits([budget("5", ["whim"])]) == same(0)


def test_one_unreadable_budget_leaves_the_others_standing() -> None:
    assert limits([budget("lots", ["Empty"]), budget("9", ["Drifted"]), budget("5")]) == {
        "Empty": 0,
        "Drifted": 9,
        "Underutilized": 5,
        "Expired": 5,
    }


def test_upstream_one_unreadable_budget_stops_all() -> None:
    budgets = [budget("lots", ["Empty"]), budget("9", ["Drifted"])]
    assert limits(budgets, reading=BudgetSemantics.UPSTREAM) == same(0)


# -- upstream's reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([], same(100), id="none"),
        pytest.param([budget("5"), budget("30", ["Empty"])], same(5), id="the default holds for all"),
        pytest.param([budget("5"), budget("3", ["Empty"])], {**same(5), "Empty": 3}, id="the least"),
        pytest.param([budget("3", ["Empty"])], {**same(100), "Empty": 3}, id="named only"),
    ],
)
def test_upstream_limits(budgets: Budgets, expected: dict[str, int]) -> None:
    assert limits(budgets, reading=BudgetSemantics.UPSTREAM) == expected


def test_allowance_by_upstreams_reading() -> None:
    found = allowance(
        read_budgets(SEED),
        reason=UNDERUTILIZED,
        now=at(NOW),
        counts=counts(100, disrupting=3),
        reading=BudgetSemantics.UPSTREAM,
    )
    assert (found.limit, found.binding, found.allowed) == (5, 2, 2)


@pytest.mark.parametrize(
    ("budgets", "now", "differs", "until"),
    [
        pytest.param(SEED, NOW, True, None, id="the seed's example"),
        pytest.param([budget("5")], NOW, False, None, id="no named budget"),
        pytest.param([budget("5", ["Drifted"])], NOW, False, None, id="no default"),
        pytest.param([budget("5"), budget("5", ["Drifted"])], NOW, False, None, id="equal"),
        pytest.param([budget("5"), budget("4", ["Drifted"])], NOW, False, None, id="named is lower"),
        pytest.param([budget("5"), budget("6", ["Drifted"])], NOW, True, None, id="named is higher"),
        pytest.param([budget("5"), budget("6", ["Drifted"]), budget("5", ["drifted"])], NOW, False, None, id="least"),
        pytest.param([budget("5"), budget("6", ["Empty"])], NOW, False, None, id="another reason"),
        pytest.param([budget("5%"), budget("5", ["Drifted"])], NOW, False, None, id="5% of 100 is 5"),
        pytest.param([budget("4%"), budget("5", ["Drifted"])], NOW, True, None, id="4% of 100 is 4"),
        pytest.param(
            [budget("5"), budget("6", ["Drifted"], "0 14 * * *", "1h")],
            NOW,
            False,
            "2026-03-04T14:00:00Z",
            id="from 14:00 on",
        ),
        pytest.param(
            [budget("5", [], "0 9 * * *", "8h"), budget("6", ["Drifted"], "0 14 * * *", "8h")],
            "2026-03-04T14:00:00Z",
            True,
            "2026-03-04T17:00:00Z",
            id="while both are active",
        ),
        pytest.param([budget("lots"), budget("6", ["Drifted"])], NOW, False, None, id="faults are another matter"),
    ],
)
def test_readings_differ(budgets: Budgets, now: str, differs: bool, until: str | None) -> None:
    found = readings_differ(read_budgets(budgets), DRIFTED, 100)
    assert found.contains(at(now)) is differs
    assert found.until(at(now)) == (None if until is None else at(until))
    if not any(rule.fault for rule in read_budgets(budgets)):
        ours, theirs = (limits(budgets, now, reading=reading)["Drifted"] for reading in BudgetSemantics)
        assert (ours != theirs) is differs


# -- R26, R27: what uses it up ----------------------------------------------------------------------------------------

DELETED = "2026-03-04T11:00:00Z"
TAINTED = [("karpenter.sh/disrupted", "NoSchedule")]


@pytest.mark.parametrize(
    ("subject", "nodes", "state", "unhealthy"),
    [
        pytest.param(member(claim(), node()), 1, None, None, id="steady and ready"),
        pytest.param(member(claim(true=["Drifted"]), node()), 1, None, None, id="S2 uses nothing"),
        pytest.param(
            member(claim(true=["DisruptionReason"]), node(taints=TAINTED)), 1, NodeState.DISRUPTING, False, id="S3"
        ),
        pytest.param(member(claim(deleted=DELETED), node()), 1, NodeState.DRAINING, False, id="S4"),
        pytest.param(member(claim(), node(deleted=DELETED)), 1, NodeState.DRAINING, False, id="S4 by its Node"),
        pytest.param(
            member(claim(deleted=DELETED, true=["InstanceTerminating"]), node()),
            1,
            NodeState.TERMINATING,
            False,
            id="S5",
        ),
        pytest.param(
            member(claim(deleted=DELETED, true=["InstanceTerminating"])), 1, NodeState.CLEANUP, False, id="S6, no Node"
        ),
        pytest.param(member(claim(), node(ready="False")), 1, NodeState.STEADY, True, id="not ready"),
        pytest.param(member(claim(), node(ready="Unknown")), 1, NodeState.STEADY, True, id="readiness unknown"),
        pytest.param(member(claim(), node(ready=None)), 1, NodeState.STEADY, True, id="no Ready condition"),
        pytest.param(
            member(claim(true=["Drifted"]), node(ready="False")), 1, NodeState.CANDIDATE, True, id="S2, not ready"
        ),
        pytest.param(
            member(claim(deleted=DELETED), node(ready="False")),
            1,
            NodeState.DRAINING,
            False,
            id="S4 and not ready: once",
        ),
        pytest.param(member(claim(), node(initialized=False, ready="False")), 0, None, None, id="not initialized"),
        pytest.param(
            member(claim(deleted=DELETED), node(initialized=False)), 0, None, None, id="not initialized, draining"
        ),
        pytest.param(
            member(claim(deleted=DELETED, statuses={"InstanceTerminating": "True", "Initialized": "False"})),
            0,
            None,
            None,
            id="S6, never initialized",
        ),
        pytest.param(member(claim()), 1, NodeState.STEADY, True, id="its Node is gone"),
        pytest.param(member(claim(statuses={})), 0, None, None, id="a claim that is being launched"),
        pytest.param(member(None, node()), 1, None, None, id="a Node without claim"),
        pytest.param(
            member(None, node(deleted=DELETED)), 1, NodeState.DRAINING, False, id="a Node without claim, deleted"
        ),
    ],
)
def test_counting(subject: ClusterNode, nodes: int, state: NodeState | None, unhealthy: bool | None) -> None:
    assert is_initialized(subject) is (nodes == 1)
    found = pool_counts([subject])
    assert found.nodes == nodes
    assert [(consumer.state, consumer.unhealthy) for consumer in found.consumers] == (
        [] if state is None else [(state, unhealthy)]
    )
    assert (found.disrupting, found.unhealthy) == (int(unhealthy is False), int(unhealthy is True))


def test_nothing_at_all_is_not_initialized() -> None:
    assert not is_initialized(member())


def test_all_kinds_together_against_a_budget() -> None:
    members = [member(claim(f"c-{n}"), node(f"n-{n}")) for n in range(6)]
    members += [
        member(claim("c-6", true=["DisruptionReason"]), node("n-6", taints=TAINTED)),
        member(claim("c-7", deleted=DELETED), node("n-7", ready="False")),
        member(claim("c-8"), node("n-8", ready="False")),
        member(claim("c-9", deleted=DELETED, true=["InstanceTerminating"])),
        member(claim("c-10"), node("n-10", initialized=False, ready="False")),
    ]
    found = pool_counts(members)
    assert (found.nodes, found.disrupting, found.unhealthy) == (10, 3, 1)
    assert [consumer.node for consumer in found.consumers] == ["n-6", "n-7", "n-8", "c-9"]
    # 50% of 10 are 5, less 4.
    half = allowance(read_budgets([budget("50%")]), reason=DRIFTED, now=at(NOW), counts=found)
    assert (half.limit, half.allowed, half.when.contains(at(NOW))) == (5, 1, True)
    # 40% are 4: none is left.
    less = allowance(read_budgets([budget("40%")]), reason=DRIFTED, now=at(NOW), counts=found)
    assert (less.limit, less.allowed, less.when.contains(at(NOW))) == (4, 0, False)
    # Unlimited is the node count, less what is busy.
    none = allowance((), reason=DRIFTED, now=at(NOW), counts=found)
    assert (none.limit, none.allowed, none.binding) == (10, 6, None)


def test_allowed_is_never_negative() -> None:
    assert ask([budget("2")], DRIFTED, pool_=counts(10, disrupting=3, unhealthy=4)).allowed == 0


@pytest.mark.parametrize(("busy", "allowed"), [(4, 1), (5, 0), (6, 0)])
def test_the_last_slot(busy: int, allowed: int) -> None:
    found = ask([budget("5")], DRIFTED, pool_=counts(10, disrupting=busy - 1, unhealthy=1))
    assert (found.allowed, found.when.contains(at(NOW))) == (allowed, allowed > 0)


@pytest.mark.parametrize("reading", list(BudgetSemantics))
@pytest.mark.parametrize("reason", BUDGETED)
def test_limit_below_says_the_same_as_limit_at(reason: Reason, reading: BudgetSemantics) -> None:
    rules = read_budgets([budget("5"), budget("0", ["Drifted"], "0 9 * * 1-5", "8h"), budget("20%", ["Empty"])])
    for now in ("2026-03-04T08:59:59Z", "2026-03-04T09:00:00Z", "2026-03-04T17:00:00Z"):
        limit, _ = limit_at(rules, reason, at(now), 100, reading)
        below = [limit_below(rules, reason, value, 100, reading).contains(at(now)) for value in (limit, limit + 1)]
        assert below == [False, True]


# -- what is wrong ----------------------------------------------------------------------------------------------------


def problems(budgets: Budgets, *, graceful: bool = True, nodes: Sequence[int] = (100,)) -> list[tuple[str, str, str]]:
    found = budget_problems(
        Ref("NodePool", "", "default"), read_budgets(budgets), graceful_expiry=graceful, now=at(NOW), node_counts=nodes
    )
    assert {str(problem.object) for problem in found} <= {"NodePool/default"}
    return [(problem.rule, problem.field, str(problem.message)) for problem in found]


def test_nothing_is_wrong_with_good_budgets() -> None:
    assert problems([budget("5"), budget("3", ["Drifted"], "0 9 * * 1-5", "8h"), budget("1", ["Expired"])]) == []
    assert problems([]) == []


def test_an_unreadable_budget_is_a_problem_with_its_field() -> None:
    assert problems([budget("5"), budget("lots", ["Empty", "drifted"]), budget("5", [], "0 9 * * *", "8")]) == [
        (
            "InvalidBudget",
            "spec.disruption.budgets[1].nodes",
            "nodes 'lots' is neither a count nor a percentage up to 100%; this budget counts as 0 for Empty, Drifted",
        ),
        (
            "InvalidBudget",
            "spec.disruption.budgets[2].duration",
            "'8' is not a duration: want whole hours and minutes, such as 8h, 30m or 1h30m; "
            "this budget counts as 0 for every reason",
        ),
    ]


@pytest.mark.parametrize(("graceful", "found"), [(False, ["BudgetWithoutEffect"]), (True, [])])
def test_expired_without_graceful_expiry_does_nothing(graceful: bool, found: list[str]) -> None:
    assert [rule for rule, _, _ in problems([budget("5", ["expired"])], graceful=graceful)] == found


def test_expired_without_effect_names_the_budget() -> None:
    assert problems([budget("5"), budget("5", ["Empty", "Expired"])], graceful=False) == [
        (
            "BudgetWithoutEffect",
            "spec.disruption.budgets[1].reasons",
            "Expired has no effect: expireAfter is forceful and asks no budget",
        )
    ]


def test_differing_readings_are_pointed_out_once() -> None:
    assert problems(SEED) == [
        (
            "BudgetReadingDiffers",
            "spec.disruption.budgets",
            "with 100 nodes the limit for Drifted is 10 here but 5 in Karpenter, "
            "which applies a budget without reasons to every reason",
        )
    ]


def test_differing_readings_depend_on_the_node_count() -> None:
    # 50% of 10 are 5, no less than 5; of 8 they are 4.
    budgets = [budget("50%"), budget("5", ["Drifted"])]
    assert problems(budgets, nodes=[10, 20]) == []
    [(rule, _, message)] = problems(budgets, nodes=[10, 8])
    assert rule == "BudgetReadingDiffers"
    assert message.startswith("with 8 nodes the limit for Drifted is 5 here but 4 in Karpenter")


def test_limits_beyond_the_number_of_nodes_are_all_the_same() -> None:
    budgets = [budget("20"), budget("30", ["Drifted"])]
    assert problems(budgets, nodes=[20]) == []
    assert [rule for rule, _, _ in problems(budgets, nodes=[21])] == ["BudgetReadingDiffers"]


def test_readings_that_differ_only_later_are_pointed_out_now() -> None:
    [(_, _, message)] = problems([budget("5"), budget("9", ["Empty"], "0 22 * * *", "8h")])
    assert message.startswith("with 100 nodes the limit for Empty is 9 here but 5 in Karpenter")
