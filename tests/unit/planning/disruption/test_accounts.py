"""The accounts of consolidation commands, and the back-off of pools that follows from them."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.pod_specs import Container, ContainerResources, SchedulingPodSpec
from dovetail.model.pod_records import PodRecord, PodScheduling
from dovetail.planning.disruption.accounts import (
    AGAIN_WITHIN,
    AccountTotals,
    CommandAccount,
    ConsolidationAccounts,
    record_size,
    request_size,
)
from dovetail.planning.disruption.backoff import WATCHED
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.savings_backoff import (
    FIRST_DELAY,
    LONGEST_DELAY,
    SavingsBackoff,
    SavingsBackoffs,
    without_moves,
)
from dovetail.scheduling.resources import Resources
from tests.harness import builders
from tests.unit.planning.disruption.boards import AT, pod, used

SECOND = timedelta(seconds=1)
WEB = {"app": "web"}
KIND = ("shop", frozenset(WEB.items()))
GIB = 2**30


def node(name: str = "a", *, price: int = 100, pods: Sequence[str] = ("p1",), pool: str = "default") -> Candidate:
    return used(name, *(pod(each, labels=WEB) for each in pods), price=price, pool=pool).candidate


def command(
    *nodes: Candidate, id_: str = "id", savings: int | None = 100, method: Method = Method.SINGLE_NODE
) -> Command:
    return Command(id=id_, at=AT, method=method, candidates=nodes, savings=savings)


def on_node(name: str, where: str = "a", labels: dict[str, str] = WEB, cpu: str = "1") -> PodRecord:
    """The pod that `pod` plans for."""
    container = Container(name="main", resources=ContainerResources(requests={"cpu": cpu}))
    record = builders.pod(name, namespace="shop", node=where, labels=labels)
    return msgspec.structs.replace(
        record, uid=pod(name).uid, scheduling=PodScheduling(SchedulingPodSpec(containers=(container,)))
    )


class Books:
    """Accounts, and short ways to tell them what happens to the one node `a` of the pool `default`."""

    def __init__(self, *commands: Command) -> None:
        self.accounts = ConsolidationAccounts()
        for each in commands or (command(node()),):
            self.accounts.start(each, AT)

    def move(self, name: str = "p1", successor: str = "q1", *, where: str = "a", after: timedelta = SECOND) -> None:
        """The pod is evicted, and its successor appears."""
        self.accounts.pod_left(on_node(name, where), "default", AT + after, disrupted=True)
        self.accounts.pod_added(on_node(successor, ""), AT + after)

    def launch(self, claim: str, *pods: str, price: int = 100, labels: dict[str, str] = WEB) -> None:
        self.accounts.launched(claim, [pod(each, labels=labels) for each in pods])
        if self.accounts.lacks_price(claim):
            self.accounts.price_seen(claim, price)

    def close(self, *claims: str, after: timedelta = SECOND) -> list[CommandAccount]:
        """The claims are gone, and their accounts are closed when that is due."""
        for claim in claims or ("a-claim",):
            self.accounts.claim_gone(claim, AT + after)
        assert not self.accounts.settle(AT + after + WATCHED - SECOND, lambda _: 10.0).closed
        return self.accounts.settle(AT + after + WATCHED, lambda _: 10.0).closed


# -- accounts ----------------------------------------------------------------------------------------------------------


def test_a_deletion_realises_the_price_of_its_node() -> None:
    books = Books()
    books.move()
    (closed,) = books.close()
    assert (closed.promised, closed.realised, closed.nodes, closed.moved, closed.unplanned) == (100, 100, 1, 1, ())
    assert closed.is_kept
    assert str(closed) == "saved $0 of the promised $0 an hour; removed 1 node; moved 1 pod"


def test_a_replacement_costs_its_price() -> None:
    books = Books(command(node(price=100), savings=60))
    books.accounts.replacement_seen("r1", "id")
    books.accounts.price_seen("r1", None)
    assert books.accounts.lacks_price("r1")
    books.accounts.price_seen("r1", 40)
    books.accounts.replacement_seen("other", "other")
    assert not books.accounts.lacks_price("other")
    (closed,) = books.close()
    assert closed.realised == 60


def test_a_node_for_a_successor_is_unplanned() -> None:
    books = Books()
    books.move()
    books.launch("new", "q1", price=80)
    (closed,) = books.close()
    assert (closed.realised, closed.unplanned, closed.moved_in_vain) == (20, ("new",), 1)
    assert str(closed).endswith("moved 1 pod; 1 node launched for them that nobody planned")


def test_a_node_for_a_pod_that_is_still_to_be_moved_is_unplanned() -> None:
    books = Books()
    books.launch("new", "p1")
    (closed,) = books.close()
    assert closed.realised == 0


def test_a_node_for_a_pod_that_is_moved_again_is_charged_to_the_later_command() -> None:
    books = Books()
    books.move("p1", "q1")
    books.accounts.start(command(node("b", pods=("q1",)), id_="later"), AT)
    books.launch("new", "q1")
    closed = books.close("a-claim", "b-claim")
    assert {each.id: each.realised for each in closed} == {"id": 100, "later": 0}


def test_a_node_for_other_pods_is_not_charged() -> None:
    books = Books()
    books.move()
    books.launch("new", "other", labels={"app": "other"})
    (closed,) = books.close()
    assert (closed.realised, closed.unplanned) == (100, ())


def test_a_node_for_successors_and_others_is_charged_by_their_share() -> None:
    books = Books()
    books.move()
    books.launch("new", "q1", "x", "y", "z", price=80)
    (closed,) = books.close()
    assert closed.realised == 80


def test_a_node_whose_launch_failed_is_not_charged() -> None:
    books = Books()
    books.move()
    books.launch("new", "q1")
    books.accounts.claim_gone("new", AT + SECOND)
    (closed,) = books.close()
    assert (closed.realised, closed.unplanned) == (100, ())


def test_a_node_that_a_later_command_removes_stays_charged() -> None:
    """Otherwise both commands would claim the savings."""
    books = Books()
    books.move()
    books.launch("new-claim", "q1", price=100)
    books.accounts.start(command(node("new", pods=()), id_="later"), AT + SECOND)
    closed = books.close("a-claim", "new-claim")
    assert {each.id: each.realised for each in closed} == {"id": 0, "later": 100}


def test_a_pod_from_outside_excuses_a_node_up_to_its_size() -> None:
    books = Books()
    books.move()
    other = on_node("x", "b", {"app": "other"}, cpu="250m")
    books.accounts.pod_bound(other, "elsewhere")
    books.accounts.pod_bound(other, "default")
    assert (record_size(other), request_size(pod("q1").request)) == (0.25, 1.0)
    books.launch("new", "q1", price=100)
    (closed,) = books.close()
    assert closed.realised == 25
    assert closed.unplanned == ("new",)


def test_a_pod_from_outside_excuses_only_one_node() -> None:
    books = Books(command(node(price=300, pods=("p1", "p2")), savings=300))
    books.move("p1", "q1")
    books.move("p2", "q2")
    books.accounts.pod_bound(on_node("x", "b", {"app": "other"}), "default")
    books.launch("new1", "q1", price=100)
    books.launch("new2", "q2", price=100)
    (closed,) = books.close()
    assert (closed.realised, closed.unplanned) == (200, ("new2",))


def test_a_successor_is_not_from_outside() -> None:
    books = Books()
    books.move()
    books.accounts.pod_bound(on_node("q1", "b"), "default")
    books.launch("new", "q1", price=100)
    (closed,) = books.close()
    assert closed.realised == 0


def test_a_rolled_back_command_realises_nothing() -> None:
    books = Books()
    books.accounts.claim_stays("a-claim", AT)
    assert books.accounts.next_close_at == AT + WATCHED
    (closed,) = books.accounts.settle(AT + WATCHED, lambda _: 1.0).closed
    assert (closed.promised, closed.realised, closed.nodes) == (100, 0, 0)
    assert closed.is_given_up
    assert str(closed) == "was given up; it promised to save $0 an hour"
    assert AccountTotals().plus(closed) == AccountTotals(given_up=1)


def test_a_command_that_is_rolled_back_after_it_moved_pods_broke_its_promise() -> None:
    books = Books()
    books.move()
    books.accounts.claim_stays("a-claim", AT)
    (closed,) = books.accounts.settle(AT + WATCHED, lambda _: 1.0).closed
    totals = AccountTotals().plus(closed)
    assert (totals.commands, totals.given_up, totals.promised, totals.realised) == (1, 0, 100, 0)
    assert totals.moved_in_vain == 1


def test_a_command_with_several_nodes_ends_with_the_last() -> None:
    books = Books(command(node("a", price=10), node("b", price=30, pods=(), pool="other"), savings=40))
    books.accounts.claim_gone("a-claim", AT)
    assert books.accounts.next_close_at is None
    assert books.accounts.standing == [("b-claim", "id")]
    (closed,) = books.close("b-claim")
    assert closed.realised == 40
    assert {pool: part.share for pool, part in closed.pools.items()} == {"default": 0.25, "other": 0.75}


def test_a_pod_that_is_moved_twice_within_an_hour_counts() -> None:
    books = Books()
    books.move("p1", "q1")
    books.accounts.start(command(node("b", pods=("q1",)), id_="later"), AT)
    books.move("q1", "r1", where="b", after=AGAIN_WITHIN)
    closed = books.close("a-claim", "b-claim", after=AGAIN_WITHIN)
    assert [(each.id, each.moved, each.moved_again) for each in closed] == [("id", 1, 0), ("later", 1, 1)]


def test_a_pod_that_is_moved_twice_over_a_longer_time_does_not_count() -> None:
    books = Books()
    books.move("p1", "q1")
    books.accounts.start(command(node("b", pods=("q1",)), id_="later"), AT)
    books.move("q1", "r1", where="b", after=AGAIN_WITHIN + 2 * SECOND)
    closed = books.close("a-claim", "b-claim", after=AGAIN_WITHIN + 2 * SECOND)
    assert [each.moved_again for each in closed] == [0, 0]


def test_a_successor_may_come_after_the_grace_period() -> None:
    grace = timedelta(minutes=20)
    books = Books()
    left = msgspec.structs.replace(on_node("p1"), deleted_at=AT + grace)
    books.accounts.pod_left(left, "default", AT, disrupted=True)
    books.accounts.pod_added(on_node("q1", ""), AT + grace + WATCHED - SECOND)
    books.launch("new", "q1")
    (closed,) = books.close(after=grace)
    assert closed.unplanned == ("new",)


def test_a_pod_that_comes_too_late_is_no_successor() -> None:
    books = Books()
    books.accounts.pod_left(on_node("p1"), "default", AT, disrupted=True)
    books.accounts.pod_added(on_node("q1", ""), AT + WATCHED)
    books.launch("new", "q1")
    (closed,) = books.close()
    assert closed.unplanned == ()


def test_pods_of_other_disrupted_nodes_have_successors_without_account() -> None:
    books = Books()
    books.move("x1", "x2", where="drifted")
    books.launch("new", "x2")
    (closed,) = books.close()
    assert (closed.moved, closed.unplanned) == (0, ())


def test_pods_without_successors_are_forgotten() -> None:
    accounts = ConsolidationAccounts()
    for number in range(100):
        job = on_node(f"job-{number}", "drifted", {"job-name": str(number)})
        accounts.pod_left(job, "default", AT + number * WATCHED, disrupted=True)
    assert accounts.awaited_successors <= 3


def test_drift_has_no_account() -> None:
    books = Books(command(node(), method=Method.DRIFT))
    assert books.accounts.standing == []


def test_a_command_with_an_unknown_price_promises_and_realises_nothing() -> None:
    books = Books(command(node(price=100), savings=None, method=Method.EMPTINESS))
    (closed,) = books.close()
    assert (closed.promised, closed.realised, closed.nodes) == (0, 0, 1)


def test_totals_are_the_sums_of_accounts() -> None:
    books = Books()
    books.move()
    books.launch("new", "q1", price=80)
    (closed,) = books.close()
    assert AccountTotals().plus(closed).plus(closed) == AccountTotals(
        commands=2, promised=200, realised=40, moved=2, moved_again=0, moved_in_vain=2, unplanned=2
    )


def test_size_weighs_cpu_and_memory() -> None:
    assert request_size(Resources({"cpu": 1500, "memory": 2 * GIB})) == 2.0
    assert request_size(Resources({"pods": 1})) == 0.01


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 4), st.integers(0, 1)),
        st.tuples(st.just("move"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("launch"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("outside"), st.integers(0, 4), st.integers(0, 1)),
        st.tuples(st.just("gone"), st.integers(0, 4), st.integers(0, 0)),
        st.tuples(st.just("stays"), st.integers(0, 4), st.integers(0, 0)),
        st.tuples(st.just("wait"), st.integers(1, 20), st.integers(0, 0)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_account_is_closed_once_and_realises_at_most_what_was_removed(events: list[tuple[str, int, int]]) -> None:
    """Whatever happens in whichever order."""
    accounts, now, started = ConsolidationAccounts(), AT, dict[str, Command]()
    closed: list[CommandAccount] = []
    for step, (what, first, second) in enumerate(events):
        claim, name = f"n{first}-claim", f"p{second}"
        if what == "start" and claim not in {each for each, _ in accounts.standing}:
            made = command(node(f"n{first}", price=10 + first, pods=(f"p{first}",)), id_=f"c{step}", savings=10 + first)
            started[made.id] = made
            accounts.start(made, now)
        elif what == "move":
            accounts.pod_left(on_node(name, f"n{first}"), "default", now, disrupted=True)
            accounts.pod_added(on_node(f"{name}-{step}", ""), now)
        elif what == "launch":
            accounts.launched(f"new{step}", [pod(name), pod(f"{name}-{step - 1}")])
            accounts.price_seen(f"new{step}", 7)
        elif what == "outside":
            accounts.pod_bound(on_node(f"x{step}", "b", {"app": "other"}), "default")
        elif what == "gone":
            accounts.claim_gone(claim, now)
        elif what == "stays":
            accounts.claim_stays(claim, now)
        elif what == "wait":
            now += timedelta(minutes=first)
        closed += accounts.settle(now, lambda _: 1.0).closed
    for claim, _ in accounts.standing:
        accounts.claim_gone(claim, now)
    closed += accounts.settle(now + WATCHED, lambda _: 1.0).closed
    assert sorted(each.id for each in closed) == sorted(started)
    assert accounts.next_close_at is None
    for each in closed:
        removed = sum(candidate.price or 0 for candidate in started[each.id].candidates) if each.nodes else 0
        assert removed - 7 * len(each.unplanned) <= each.realised <= removed
        assert each.moved_again <= each.moved
        assert sum(part.share for part in each.pools.values()) == 1.0


# -- the back-off of pools ---------------------------------------------------------------------------------------------


def judged(backoffs: SavingsBackoffs, *realised: int, after: timedelta = timedelta()) -> SavingsBackoff | None:
    """Commands that promised 100 each, and realised so much."""
    last = None
    for each in realised:
        last = backoffs.judge("default", 100, each, AT + after, lambda _: 10.0)
    return last


def test_three_commands_that_realised_less_than_half_start_a_back_off() -> None:
    backoffs = SavingsBackoffs()
    assert judged(backoffs, 0, 0) is None
    began = judged(backoffs, 149)
    assert began is not None
    assert (began.promised, began.realised) == (300, 149)
    assert backoffs.active(AT) == {"default": began}
    assert backoffs.active(AT + FIRST_DELAY - SECOND)
    assert not backoffs.active(AT + FIRST_DELAY)


def test_half_of_the_promise_is_enough() -> None:
    assert judged(SavingsBackoffs(), 0, 50, 100) is None


def test_only_the_last_three_commands_count() -> None:
    backoffs = SavingsBackoffs()
    assert judged(backoffs, 100, 100, 100, 0) is None
    assert judged(backoffs, 0) is not None


def test_the_delay_doubles_up_to_a_day() -> None:
    backoffs, after = SavingsBackoffs(), timedelta()
    judged(backoffs, 0, 0)
    for number in range(7):
        began = judged(backoffs, 0, after=after)
        assert began is not None
        assert began.until - AT - after == min(FIRST_DELAY * 2**number, LONGEST_DELAY)
        after = began.until - AT


def test_commands_that_close_during_a_back_off_do_not_prolong_it() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    assert judged(backoffs, 0, 0, 0, after=FIRST_DELAY - SECOND) is None
    assert not backoffs.active(AT + FIRST_DELAY)


def test_a_good_command_ends_the_doubling() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    judged(backoffs, 150, 0, 0, after=FIRST_DELAY)
    again = judged(backoffs, 0, after=FIRST_DELAY)
    assert again is not None
    assert again.times == 1


def test_a_change_from_outside_of_a_tenth_resets_the_pool() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    backoffs.outside_change("default", KIND, 0.99)
    backoffs.outside_change("other", KIND, 10)
    assert backoffs.active(AT)
    backoffs.outside_change("default", KIND, 0.01)
    assert not backoffs.active(AT)
    assert not backoffs.follows("default")
    assert judged(backoffs, 0, 0) is None


def test_pods_that_come_and_go_again_are_no_change() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    for _ in range(100):
        backoffs.outside_change("default", KIND, 0.5)
        backoffs.outside_change("default", KIND, -0.5)
    assert backoffs.active(AT)


def test_growth_of_one_workload_does_not_cancel_the_shrinking_of_another() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    backoffs.outside_change("default", KIND, 0.5)
    backoffs.outside_change("default", ("shop", frozenset()), -0.5)
    assert not backoffs.active(AT)


def test_closed_accounts_judge_their_pools_if_pods_were_moved() -> None:
    accounts = ConsolidationAccounts()
    begun: list[list[str]] = []
    for number, name in enumerate(("a", "b", "c", "d")):
        at = AT + number * WATCHED
        accounts.start(command(node(name), id_=name), at)
        if name != "a":
            accounts.pod_left(on_node("p1", name), "default", at, disrupted=True)
        accounts.claim_stays(f"{name}-claim", at)
        begun.append(list(accounts.settle(at + WATCHED, lambda _: 100.0).backoffs))
    assert begun == [[], [], [], ["default"]]


def test_a_command_that_has_failed_is_judged_before_its_account_is_closed() -> None:
    """Once: it is not judged again when the account is closed."""
    books = Books(command(node("a"), id_="a"))
    judged(books.accounts.backoffs, 0, 0)
    books.move()
    books.launch("new1", "q1", price=50)
    assert not books.accounts.settle(AT, lambda _: 1.0).backoffs
    books.launch("new2", "q1", price=1)
    begun = books.accounts.settle(AT, lambda _: 1.0)
    assert (begun.closed, begun.backoffs["default"].realised) == ([], 49)
    books.accounts.claim_gone("a-claim", AT)
    later = books.accounts.settle(AT + FIRST_DELAY, lambda _: 1.0)
    assert (len(later.closed), later.backoffs) == (1, {})


def test_pods_from_outside_reset_a_pool() -> None:
    accounts = ConsolidationAccounts()
    judged(accounts.backoffs, 0, 0, 0)
    accounts.pod_left(on_node("x", "d", cpu="500m"), "default", AT, disrupted=False)
    accounts.pod_left(on_node("y", "d", cpu="5"), "default", AT, disrupted=True)
    accounts.pod_added(on_node("y2", "", cpu="5"), AT)
    accounts.pod_bound(on_node("y2", "e", cpu="5"), "default")
    assert accounts.backoffs.active(AT)
    accounts.pod_bound(on_node("z", "e", {"app": "other"}, cpu="500m"), "default")
    assert not accounts.backoffs.active(AT)


def test_a_node_with_pods_in_a_pool_in_back_off_is_unmovable() -> None:
    backoffs = SavingsBackoffs()
    judged(backoffs, 0, 0, 0)
    active = backoffs.active(AT)
    (why,) = without_moves(node(), active).unmovable
    assert str(why) == (
        "NodePool default: the last 3 consolidations that moved pods saved $0 of the promised $0 an hour; "
        "no pods are moved before 2026-03-06T13:00:00Z"
    )
    bare, elsewhere = node(pods=()), node(pool="other")
    assert without_moves(bare, active) is bare
    assert without_moves(elsewhere, active) is elsewhere
