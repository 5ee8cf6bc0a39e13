"""How pools with replicas grow and shrink (06 §9)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.names import DISRUPTED_TAINT, ConditionType
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.nodepool.static_capacity import ClaimCensus, census, disruption_cost, growth, victims
from dovetail.rules.pdb import PdbIndex
from tests.harness.builders import at, claim, member, node, pdb, pod

NOW = at("2026-03-01T12:00:00Z")
NO_BUDGETS = PdbIndex((), ())


def machine(name: str, *pods: PodRecord, **fields: Any) -> ClusterNode:
    """A claim and its initialized Node."""
    return member(claim(f"c-{name}", provider_id=f"kwok://{name}", **fields), node(name), pods)


def counted(active: int = 0, pending: int = 0, deleting: int = 0, reserved: int = 0) -> ClaimCensus:
    members = tuple(machine(str(number)) for number in range(active))
    return ClaimCensus(active=members, pending_disruption=pending, deleting=deleting, reserved=reserved)


def test_claims_are_counted_by_where_they_stand() -> None:
    going = machine("going", deleted="2026-03-01T11:00:00Z")
    leaving = member(
        claim("c-leaving", provider_id="kwok://leaving", true=[ConditionType.DISRUPTION_REASON]),
        node("leaving", taints=[(DISRUPTED_TAINT, "NoSchedule")]),
    )
    ending = machine("ending", true=[ConditionType.INSTANCE_TERMINATING])
    new = member(claim("c-new", provider_id="", statuses={}))
    found = census([machine("steady"), going, leaving, ending, new], reserved=2)
    assert [each.name for each in found.active] == ["steady", "c-new"]
    assert (found.pending_disruption, found.deleting, found.reserved, found.total) == (1, 2, 2, 7)


@pytest.mark.parametrize(
    ("found", "replicas", "limit", "lacking", "granted"),
    [
        (counted(), 3, None, 3, 3),
        (counted(active=3), 3, None, 0, 0),
        (counted(active=5), 3, None, 0, 0),
        (counted(active=1, reserved=2), 3, None, 0, 0),
        (counted(active=2, pending=1), 3, None, 0, 0),
        (counted(active=2, deleting=1), 3, None, 1, 1),
        (counted(active=2, deleting=1), 3, 3, 1, 0),
        (counted(active=1), 5, 3, 4, 2),
        (counted(active=1, pending=1, deleting=1), 5, 4, 3, 1),
        (counted(active=9), 10, 3, 1, 0),
        (counted(), 0, None, 0, 0),
    ],
)
def test_what_is_lacking_and_what_the_limit_allows(
    found: ClaimCensus, replicas: int, limit: int | None, lacking: int, granted: int
) -> None:
    made = growth(found, replicas=replicas, limit=limit)
    assert (made.lacking, made.granted) == (lacking, granted)


@given(
    found=st.builds(counted, *[st.integers(0, 20)] * 4),
    replicas=st.integers(0, 20),
    limit=st.none() | st.integers(0, 20),
)
def test_growing_never_exceeds_replicas_or_limit(found: ClaimCensus, replicas: int, limit: int | None) -> None:
    made = growth(found, replicas=replicas, limit=limit)
    assert 0 <= made.granted <= made.lacking
    if made.granted:
        assert len(found.active) + found.pending_disruption + found.reserved + made.granted <= replicas
        assert limit is None or found.total + made.granted <= limit


# -- shrinking ---------------------------------------------------------------------------------------------------------


def chosen(members: Iterable[ClusterNode], *, replicas: int, pdbs: Iterable[PdbRecord] = ()) -> list[str]:
    found = victims(census(members), replicas=replicas, pdbs=PdbIndex(pdbs, ()), now=NOW)
    return [each.name for each in found]


def test_nothing_goes_while_nothing_is_too_many() -> None:
    assert chosen([machine("a"), machine("b")], replicas=2) == []
    assert chosen([machine("a"), machine("b", deleted="2026-03-01T11:00:00Z")], replicas=1) == []


def test_who_goes_first() -> None:
    """What has no machine, what is empty or has daemons only, then the cheapest; what is protected last."""
    members = [
        machine("busy", pod("p1", node="busy"), pod("p2", node="busy")),
        machine("light", pod("p3", node="light")),
        machine("guarded", pod("p4", node="guarded", do_not_disrupt="true")),
        machine("daemons", pod("d", node="daemons", owner="DaemonSet")),
        machine("empty"),
        member(claim("unlaunched", provider_id="", statuses={})),
    ]
    order = ["unlaunched", "empty", "daemons", "light", "busy", "guarded"]
    for number in range(7):
        assert chosen(members, replicas=6 - number) == order[:number]


def test_broken_nodes_go_before_healthy_ones() -> None:
    """R52: not initialized first, whatever runs there; then not Ready."""
    members = [
        machine("empty"),
        member(claim("c-ill", provider_id="kwok://ill"), node("ill", ready="False"), [pod("p", node="ill")]),
        member(claim("c-lost", provider_id="kwok://lost")),
        member(
            claim("c-raw", provider_id="kwok://raw", statuses={"Launched": "True", "Registered": "True"}),
            node("raw", initialized=False),
            [pod("q", node="raw"), pod("r", node="raw")],
        ),
        member(claim("unlaunched", provider_id="", statuses={})),
    ]
    order = ["unlaunched", "c-lost", "raw", "ill", "empty"]
    for number in range(6):
        assert chosen(members, replicas=5 - number) == order[:number]


def test_a_replacement_in_flight_is_no_surplus() -> None:
    new = member(claim("c-new", provider_id="", statuses={}))
    found = census([machine("a"), machine("b"), new, machine("old")], in_commands={"c-old"}, awaited={"c-new"})
    assert (len(found.active), found.pending_disruption) == (3, 1)
    for replicas, goes in ((3, []), (2, ["a"]), (1, ["a", "b"]), (0, ["a", "b"])):
        assert [each.name for each in victims(found, replicas=replicas, pdbs=NO_BUDGETS, now=NOW)] == goes


def test_a_daemon_that_is_protected_keeps_its_node_from_going_early() -> None:
    guarded = machine("a", pod("d", node="a", owner="DaemonSet", do_not_disrupt="true"))
    assert chosen([guarded, machine("b", pod("p", node="b"))], replicas=1) == ["b"]


def test_a_budget_protects_too() -> None:
    blocked = pdb(match={"app": "web"}, max_unavailable=0, allowed=0, expected=1)
    web = machine("a", pod("w", node="a", labels={"app": "web"}))
    two = machine("b", pod("p", node="b"), pod("q", node="b"))
    assert chosen([web, two], replicas=1) == ["a"]
    assert chosen([web, two], replicas=1, pdbs=[blocked]) == ["b"]


def test_the_nearer_its_end_the_cheaper() -> None:
    pods = (pod("p"), pod("q"))
    old = machine("old", *pods, expire_after="16h")
    assert disruption_cost(old, NOW) == pytest.approx(0.5)
    assert disruption_cost(machine("new", *pods), NOW) == 2
    assert disruption_cost(old, at("2026-03-09T00:00:00Z")) == 0
    assert chosen([machine("new", pod("r", node="new")), old], replicas=1) == ["old"]
