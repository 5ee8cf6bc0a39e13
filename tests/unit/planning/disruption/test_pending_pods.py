"""Pending pods hold back the consolidation of nodes that they could use, and of pools in which they need new ones."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.pending_pods import PendingPods, WaitingGroup, held_back, pending_pods
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.rules.nodes import LONGEST_BOOT
from dovetail.scheduling.placement import Origin, PodInfo
from tests.unit.planning.disruption.boards import AT, EMPTY, UNDERUTILIZED, board, pod, used
from tests.unit.scheduling import problems

TYPES = [problems.machine("large", 4)]
TICK = timedelta(microseconds=1)


def waiting(name: str, cpu: str = "1", *, age: timedelta = timedelta(minutes=1), **wire: Any) -> PodInfo:
    made = pod(name, cpu, **{"origin": Origin.PENDING, **wire})
    return msgspec.structs.replace(made, created=AT - age)


def names(groups: Mapping[str, WaitingGroup]) -> dict[str, str]:
    return {name: group.pod.name for name, group in groups.items()}


def test_pods_wait_for_a_node_or_for_a_new_one() -> None:
    nodes = [used("a", pod("x", "3")), used("starting", initialized=False, pool="other")]
    owed = (waiting("fits"), waiting("large", "4", age=timedelta(minutes=2)), waiting("larger", "4"))
    made = board(*nodes, types=TYPES, owed=owed, pools=[problems.pool("default"), problems.pool("other", weight=1)])
    found = pending_pods(made.world, made.owed, AT)
    assert (names(found.by_node), names(found.by_pool)) == ({"a": "fits"}, {"other": "large"})
    assert [group.until for group in found.by_pool.values()] == [AT + LONGEST_BOOT - timedelta(minutes=1)]


def test_pods_that_no_node_can_take_do_not_count() -> None:
    made = board(used("a"), types=TYPES, owed=[waiting("huge", "5")])
    assert pending_pods(made.world, made.owed, AT) == PendingPods()


def test_pods_that_have_to_leave_their_node_do_not_count() -> None:
    made = board(used("a", pod("x", "4")), types=TYPES, owed=[waiting("moves", "4", origin=Origin.DELETING)])
    assert pending_pods(made.world, made.owed, AT) == PendingPods()


def test_no_pod_counts_for_longer_than_a_node_takes_to_start() -> None:
    for age, count in ((LONGEST_BOOT - TICK, 1), (LONGEST_BOOT, 0)):
        made = board(used("a", pod("x", "4")), types=TYPES, owed=[waiting("large", "4", age=age)])
        assert len(pending_pods(made.world, made.owed, AT).by_pool) == count


def test_what_is_held_back_says_for_which_pod_and_until_when() -> None:
    ends = [AT + timedelta(minutes=number) for number in (9, 8)]
    found = PendingPods({"a": WaitingGroup(waiting("p"), ends[0])}, {"default": WaitingGroup(waiting("o"), ends[1])})
    assert found.until() == ends[1]
    assert PendingPods().until() is None
    until = "2026-03-06T12:09:00Z"
    a, b = (used(name, pod(f"x{name}")).candidate for name in "ab")
    for reason in (EMPTY, UNDERUTILIZED):
        (why,) = held_back(a, reason, found).unmovable
        assert str(why) == f"pending pods like shop/p could run here; it stays until {until} at most"
        assert "shop/p" not in str(why.redacted(lambda _: False))
    (why,) = held_back(b, UNDERUTILIZED, found).unmovable
    until = "2026-03-06T12:08:00Z"
    assert str(why) == f"pending pods like shop/o need new nodes of NodePool default; it stays until {until} at most"
    assert held_back(b, EMPTY, found) is b
    other = used("c", pool="other").candidate
    assert held_back(other, UNDERUTILIZED, found) is other


def test_an_empty_node_that_a_pending_pod_could_use_stays_and_another_goes() -> None:
    nodes = [used("a"), used("b")]
    made = board(*nodes, types=TYPES, reasons={EMPTY: nodes}, owed=[waiting("p")])
    pending = pending_pods(made.world, made.owed, AT)
    held = tuple(held_back(each, EMPTY, pending) for each in made.of(EMPTY))
    decision = decide_pass(msgspec.structs.replace(made, candidates={EMPTY: held}), ConsolidationOptions())
    assert [command.nodes for command in decision.commands] == [["b"]]
    assert "could run here" in str(decision.refused["a"])
