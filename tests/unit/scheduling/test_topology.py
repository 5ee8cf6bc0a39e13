"""What rules between pods leave of the domains. Docstrings cite 05 §13."""

from typing import Any

import pytest

from dovetail.scheduling.placement import PlacementRequest, PodInfo, TopologyRule, TopologyRuleKind, queue
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, one_of
from dovetail.scheduling.topology import Topology, TopologyGroup
from tests.unit.scheduling.problems import (
    HOST,
    ZONE,
    affinity,
    app,
    bound,
    expressing,
    machine,
    node,
    nodes_like,
    pod,
    pool,
    preferring,
    spread,
    term,
)

ANY_NODE = NO_REQUIREMENTS


def problem(*pods: PodInfo, nodes: tuple[Any, ...] = (), zones: tuple[str, ...] = ("a", "b", "c")) -> PlacementRequest:
    return PlacementRequest(pods=pods, nodes=nodes, pools=(pool(),), types={"default": (machine("m", zones=zones),)})


def left(topology: Topology, asking: PodInfo, where: Requirements = ANY_NODE, key: str = ZONE) -> list[str] | None:
    """The domains that the pod's required rules leave of a new node; None: it cannot go there."""
    strict = asking.affinity.strict()
    found = topology.narrowed(asking, asking.rules, strict, where & strict, frozenset({ZONE}))
    return None if isinstance(found, TopologyRule) else sorted(found.get(key).values)


def zone(*zones: str) -> Requirements:
    return Requirements((one_of(ZONE, zones),))


def in_zones(*counts: tuple[str, int], of: str = "web") -> tuple[Any, ...]:
    """Nodes, one in each zone, with so many pods."""
    return tuple(
        node(f"node-{where}", where, *(bound(f"{where}{index}", app(of)) for index in range(count)))
        for where, count in counts
    )


# -- spread ------------------------------------------------------------------------------------------------------------


def test_a_spread_takes_the_domain_with_the_fewest_and_of_equals_the_first_by_name() -> None:
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web")])
    assert left(Topology.of(problem(web)), web) == ["a"]
    assert left(Topology.of(problem(web, nodes=in_zones(("a", 1), ("b", 0)))), web) == ["b"]
    topology = Topology.of(problem(web))
    for expected in ("a", "b", "c", "a"):
        assert left(topology, web) == [expected]
        topology.record(web, zone(expected), ())


def test_preferred_node_affinity_does_not_shrink_the_domains_for_skew() -> None:
    """05 §13.19."""
    web = pod(
        "w",
        app("web"),
        affinity=nodes_like(preferred=(expressing(ZONE, "a"),)),
        topologySpreadConstraints=[spread(ZONE, "web")],
    )
    topology = Topology.of(problem(web, nodes=in_zones(("a", 1))))
    assert left(topology, web, zone("a")) is None  # the other zones have none, preference or not
    assert left(topology, web) == ["b"]


def test_domains_that_are_not_the_least_are_used_as_long_as_the_skew_allows() -> None:
    """05 §13.44."""
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web", 2)])
    topology = Topology.of(problem(web, nodes=in_zones(("a", 1), ("b", 0))))
    assert left(topology, web, zone("a")) == ["a"]
    topology.record(web, zone("a"), ())
    assert left(topology, web, zone("a")) is None


def test_a_domain_that_the_pod_may_not_use_does_not_set_the_minimum() -> None:
    """05 §13.45."""
    constraint = [spread(ZONE, "web")]
    free = pod("w", app("web"), topologySpreadConstraints=constraint)
    tied = pod("t", app("web"), affinity=nodes_like(expressing(ZONE, "a", "b")), topologySpreadConstraints=constraint)
    topology = Topology.of(problem(free, tied, nodes=in_zones(("a", 3), ("b", 3))))
    assert left(topology, free, zone("a", "b")) is None  # c has none
    assert left(topology, tied) == ["a"]


def test_domains_known_only_from_nodes_count() -> None:
    """05 §13.46."""
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web", 5)])
    topology = Topology.of(problem(web, nodes=in_zones(("a", 1), ("b", 1)), zones=("c",)))
    placed = 0
    while left(topology, web, zone("c")) == ["c"]:
        topology.record(web, zone("c"), ())
        placed += 1
    assert placed == 6


@pytest.mark.parametrize(("least", "expected"), [(None, ["a"]), (3, ["a"]), (4, None)])
def test_with_too_few_domains_the_minimum_is_0(least: int | None, expected: list[str] | None) -> None:
    """05 §13.47."""
    more: dict[str, Any] = {} if least is None else {"minDomains": least}
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web", **more)])
    assert left(Topology.of(problem(web, nodes=in_zones(("a", 1), ("b", 1), ("c", 1)))), web) == expected


def test_rules_that_differ_in_min_domains_are_two_groups() -> None:
    one, two = (
        pod(str(least), app("web"), topologySpreadConstraints=[spread(ZONE, "web", minDomains=least)])
        for least in (2, 3)
    )
    topology = Topology.of(problem(one, two))
    assert topology.group(one.rules[0]) is not topology.group(two.rules[0])
    same = pod("same", app("web"), topologySpreadConstraints=[spread(ZONE, "web", minDomains=2)])
    assert same.rules == one.rules


def test_the_minimum_of_hosts_is_always_0() -> None:
    """05 §13.48."""
    web = pod("w", app("web"), topologySpreadConstraints=[spread(HOST, "web")])
    full = tuple(node(name, "a", bound(f"on-{name}", app("web"))) for name in ("n1", "n2"))
    topology = Topology.of(problem(web, nodes=full))
    assert left(topology, web, of_labels({HOST: "n1"}), HOST) is None
    assert left(topology, web, of_labels({HOST: "new"}), HOST) == ["new"]


def test_no_selector_is_no_rule_and_an_empty_one_is_of_all_pods() -> None:
    """05 §13.49."""
    nobody = pod("n", app("web"), topologySpreadConstraints=[spread(ZONE, None)])
    everybody = pod("e", app("web"), topologySpreadConstraints=[spread(ZONE, "")])
    assert nobody.rules == ()
    topology = Topology.of(problem(nobody, everybody, nodes=in_zones(("a", 2), ("b", 1), of="other")))
    assert left(topology, nobody) == []
    assert left(topology, everybody) == ["c"]
    assert topology.group(everybody.rules[0]).counts == {"a": 2, "b": 1, "c": 0}


def test_a_selector_that_cannot_be_read_selects_nothing() -> None:
    bad = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]}
    odd = pod("o", app("web"), topologySpreadConstraints=[{**spread(ZONE, "web"), "labelSelector": bad}])
    assert odd.rules == ()


def test_match_label_keys_separate_revisions() -> None:
    """05 §13.50."""

    def revision(name: str, number: str) -> PodInfo:
        constraint = spread(ZONE, "web", matchLabelKeys=["rev", "absent"])
        return pod(name, {**app("web"), "rev": number}, topologySpreadConstraints=[constraint])

    old, new = revision("old", "1"), revision("new", "2")
    there = node("n", "a", bound("w1", {**app("web"), "rev": "1"}))
    topology = Topology.of(problem(old, new, nodes=(there,)))
    assert left(topology, old, zone("a")) is None
    assert left(topology, new, zone("a")) == ["a"]


def test_mismatched_label_keys_mean_all_others() -> None:
    own = pod("p", {"tenant": "x"}, affinity=affinity(apart=[term(ZONE, "", mismatchLabelKeys=["tenant"])]))
    nodes = (node("n1", "a", bound("x", {"tenant": "x"})), node("n2", "b", bound("y", {"tenant": "y"})))
    assert left(Topology.of(problem(own, nodes=nodes)), own) == ["a", "c"]


@pytest.mark.parametrize(("policy", "expected"), [("Ignore", None), ("Honor", ["a"])])
def test_with_honor_domains_behind_taints_are_dropped(policy: str, expected: list[str] | None) -> None:
    """05 §13.51."""
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web", nodeTaintsPolicy=policy)])
    pools = (pool("open"), pool("own", taints=("own:NoSchedule",)))
    types = {"open": (machine("m", zones=("a",)),), "own": (machine("m", zones=("b",)),)}
    nodes = (*in_zones(("a", 1)), node("tainted", "c", taints=("own:NoSchedule",)))
    topology = Topology.of(PlacementRequest(pods=(web,), nodes=nodes, pools=pools, types=types))
    assert left(topology, web, zone("a")) == expected
    assert sorted(topology.group(web.rules[0]).counts) == (["a"] if policy == "Honor" else ["a", "b", "c"])


def test_soft_taints_hide_no_domain() -> None:
    web = pod("w", app("web"), affinity=affinity(together=[term(ZONE, "web")]))
    types = {"soft": (machine("m", zones=("b",)),)}
    topology = Topology.of(
        PlacementRequest(pods=(web,), pools=(pool("soft", taints=("x:PreferNoSchedule",)),), types=types)
    )
    assert left(topology, web) == ["b"]


def test_the_zone_of_a_volume_does_not_change_what_is_counted() -> None:
    """05 §13.52."""
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web")])
    topology = Topology.of(problem(web, nodes=in_zones(("a", 1), ("b", 0))))
    assert left(topology, web, zone("a")) is None  # a volume narrows the node only, and b still has none
    assert left(topology, web, zone("b")) == ["b"]


@pytest.mark.parametrize(("policy", "counted"), [("Honor", {"a": 1, "b": 0}), ("Ignore", {"a": 1, "b": 1})])
def test_nodes_that_the_pod_cannot_use_are_not_counted(policy: str, counted: dict[str, int]) -> None:
    """`b` is offered by a pool, but the node there is not like what the pod asks for."""
    web = pod(
        "w",
        app("web"),
        affinity=nodes_like(expressing("disk", "fast"), expressing("disk", "faster")),
        topologySpreadConstraints=[spread(ZONE, "web", nodeAffinityPolicy=policy)],
    )
    nodes = (
        node("n1", "a", bound("1", app("web")), labels={"disk": "faster"}),
        node("n2", "b", bound("2", app("web")), labels={"disk": "slow"}),
    )
    group = Topology.of(problem(web, nodes=nodes, zones=("a", "b"))).group(web.rules[0])
    assert group.counts == counted


def test_a_new_node_that_leaves_a_label_open_does_not_pass_the_filter() -> None:
    web = pod(
        "w",
        app("web"),
        nodeSelector={"topology.kubernetes.io/region": "r"},
        topologySpreadConstraints=[spread(ZONE, "web")],
    )
    topology = Topology.of(problem(web))
    topology.record(web, zone("a"), ())
    assert topology.group(web.rules[0]).counts["a"] == 0
    topology.record(web, zone("a") & of_labels({"topology.kubernetes.io/region": "r"}), ())
    assert topology.group(web.rules[0]).counts["a"] == 1


def test_a_live_node_without_the_label_never_will_do() -> None:
    web = pod("w", app("web"), topologySpreadConstraints=[spread("rack", "web")])
    topology = Topology.of(problem(web, nodes=(node("n1", labels={"rack": "1"}), node("n2"))))
    found = topology.narrowed(web, web.rules, NO_REQUIREMENTS, of_labels({HOST: "n2"}))
    assert found == web.rules[0]
    assert str(found) == "spread over rack"


# -- apart -------------------------------------------------------------------------------------------------------------


def test_a_carrier_that_could_be_anywhere_keeps_its_target_away() -> None:
    """05 §13.33."""
    carrier = pod("c", app("db"), affinity=affinity(apart=[term(ZONE, "web")]))
    target = pod("t", app("web"))
    topology = Topology.of(problem(carrier, target))
    assert left(topology, target) == ["a", "b", "c"]
    topology.record(carrier, ANY_NODE, ())
    assert left(topology, target) is None
    pinned = Topology.of(problem(carrier, target))
    pinned.record(carrier, zone("b"), ())
    assert left(pinned, target) == ["a", "c"]


def test_a_carrier_keeps_away_from_a_target_that_could_be_anywhere() -> None:
    carrier = pod("c", app("db"), affinity=affinity(apart=[term(ZONE, "web")]))
    target = pod("t", app("web"))
    topology = Topology.of(problem(carrier, target))
    topology.record(target, zone("a", "b"), ())
    assert left(topology, carrier) == ["c"]
    topology.record(target, ANY_NODE, ())
    assert left(topology, carrier) is None


def test_a_target_avoids_the_zones_of_carriers_without_a_rule_of_its_own() -> None:
    """05 §13.34."""
    carrier = bound("c", app("db"), affinity=affinity(apart=[term(ZONE, "web")]))
    target, other = pod("t", app("web")), pod("o", app("other"))
    topology = Topology.of(problem(target, other, nodes=(node("n", "b", carrier),)))
    assert left(topology, target) == ["a", "c"]
    assert left(topology, other) == []


def test_preferred_rules_of_others_keep_nobody_away() -> None:
    """05 §13.35."""
    wish = preferring("podAntiAffinity", term(ZONE, "web"))
    carrier = bound("c", app("db"), affinity=wish)
    moving = pod("m", app("db"), affinity=wish)
    target = pod("t", app("web"))
    topology = Topology.of(problem(target, moving, nodes=(node("n", "b", carrier),)))
    topology.record(moving, zone("a"), ())
    assert left(topology, target) == []


def test_carriers_that_are_moved_do_not_block() -> None:
    """05 §13.36."""
    wire: dict[str, Any] = {"affinity": affinity(apart=[term(ZONE, "web")])}
    target, moving = pod("t", app("web")), pod("c", app("db"), **wire)
    nodes = (node("n", "b", bound("c", app("db"), **wire), open=False),)
    assert left(Topology.of(problem(target, moving, nodes=nodes)), target) == ["a", "b", "c"]
    assert left(Topology.of(problem(target, nodes=nodes)), target) == ["a", "c"]


def test_pods_that_avoid_themselves_are_one_per_host() -> None:
    """05 §13.37."""
    web = pod("w", app("web"), affinity=affinity(apart=[term(HOST, "web")]))
    topology = Topology.of(problem(web, nodes=(node("n1", "a"),)))
    assert left(topology, web, of_labels({HOST: "n1"}), HOST) == ["n1"]
    topology.record(web, of_labels({HOST: "n1"}), ())
    assert left(topology, web, of_labels({HOST: "n1"}), HOST) is None
    assert left(topology, web, of_labels({HOST: "new"}), HOST) == ["new"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({}, ["a", "c"]),
        ({"phase": "Failed"}, ["a", "b", "c"]),
        ({"phase": "Succeeded"}, ["a", "b", "c"]),
        ({"deleted": "2026-03-01T00:00:00Z"}, ["a", "b", "c"]),
    ],
)
def test_pods_that_end_are_not_counted(ends: dict[str, str], expected: list[str]) -> None:
    """05 §13.38."""
    rule = affinity(apart=[term(ZONE, "web")])
    shy = pod("s", affinity=rule)
    assert left(Topology.of(problem(shy, nodes=(node("n", "b", bound("x", app("web"), **ends)),))), shy) == expected
    target = pod("t", app("web"))
    carrier = bound("c", app("db"), affinity=rule, **ends)
    found = left(Topology.of(problem(target, nodes=(node("n", "b", carrier),))), target)
    assert found == ([] if ends else ["a", "c"])


# -- together ----------------------------------------------------------------------------------------------------------


def test_there_is_no_way_to_be_with_nobody_unless_one_selects_oneself() -> None:
    """05 §13.39."""
    rule = affinity(together=[term(ZONE, "web")])
    alone, itself = pod("a", app("db"), affinity=rule), pod("i", app("web"), affinity=rule)
    topology = Topology.of(problem(alone, itself))
    assert left(topology, alone) is None
    assert left(topology, itself) == ["a"]
    topology.record(itself, zone("a"), ())
    assert left(topology, alone) == ["a"]
    nobody = pod("n", app("web"), affinity=affinity(together=[term(ZONE, None)]))
    assert left(Topology.of(problem(nobody)), nobody) is None


def test_those_that_want_one_host_do_not_begin_a_second() -> None:
    """05 §13.40."""
    web = pod("w", app("web"), affinity=affinity(together=[term(HOST, "web")]))
    topology = Topology.of(problem(web))
    assert left(topology, web, of_labels({HOST: "new-1"}), HOST) == ["new-1"]
    topology.record(web, of_labels({HOST: "new-1"}), ())
    assert left(topology, web, of_labels({HOST: "new-1"}), HOST) == ["new-1"]
    assert left(topology, web, of_labels({HOST: "new-2"}), HOST) is None
    there = node("n", "a", bound("first", app("web")))  # the next batch
    assert left(Topology.of(problem(web, nodes=(there,))), web, of_labels({HOST: "new-1"}), HOST) is None


def test_those_that_cannot_be_where_the_others_are_begin_anew() -> None:
    """05 §13.41."""
    rule = {"podAffinity": affinity(together=[term(ZONE, "web")])["podAffinity"]}
    one, two = (
        pod(where, app("web"), affinity={**rule, **nodes_like(expressing(ZONE, where))}) for where in ("a", "b")
    )
    topology = Topology.of(problem(one, two))
    topology.record(one, zone("a"), ())
    assert left(topology, two) == ["b"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ["a"]),
        ({"namespaces": ["other"]}, ["b"]),
        ({"namespaceSelector": {}}, ["a", "b", "c"]),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, ["c"]),
        ({"namespaces": ["shop"], "namespaceSelector": {"matchLabels": {"team": "red"}}}, ["a", "c"]),
        ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, None),
    ],
)
def test_namespaces_by_name_by_label_all_or_the_own(more: dict[str, Any], expected: list[str] | None) -> None:
    """05 §13.43."""
    known = {"shop": {}, "other": {}, "red": {"team": "red"}}
    asking = pod("p", affinity=affinity(together=[term(ZONE, "web", **more)]), namespaces=known)
    nodes = tuple(
        node(f"n{where}", where, bound(where, app("web"), namespace=name))
        for where, name in (("a", "shop"), ("b", "other"), ("c", "red"))
    )
    assert left(Topology.of(problem(asking, nodes=nodes)), asking) == expected


def test_an_unpinned_node_is_no_company_yet() -> None:
    web = pod("w", app("web"), affinity=affinity(together=[term(ZONE, "web")]))
    topology = Topology.of(problem(web))
    topology.record(web, zone("a", "b"), ())
    assert topology.group(web.rules[0]).counts == {"a": 0, "b": 0, "c": 0}


# -- all together ------------------------------------------------------------------------------------------------------


def test_a_spread_chooses_among_what_the_other_rules_leave() -> None:
    web = pod(
        "w",
        app("web"),
        affinity=affinity(together=[term(ZONE, "db")], apart=[term(ZONE, "noise")]),
        topologySpreadConstraints=[spread(ZONE, "web", 5)],
    )
    nodes = (
        node("n1", "a", bound("1", app("noise")), bound("2", app("db"))),
        node("n2", "b"),
        node("n3", "c", bound("3", app("web")), bound("4", app("db"))),
    )
    assert left(Topology.of(problem(web, nodes=nodes)), web) == ["c"]


def test_pods_on_nodes_that_go_count_but_their_empty_domains_do_not() -> None:
    web = pod("w", app("web"), topologySpreadConstraints=[spread(ZONE, "web")])
    empty = problem(web, nodes=(node("n", "z", open=False),))
    assert "z" not in Topology.of(empty).group(web.rules[0]).counts
    used = problem(web, nodes=(node("n", "z", bound("x", app("web")), open=False),))
    assert Topology.of(used).group(web.rules[0]).counts["z"] == 1


def test_an_old_name_of_a_topology_key_is_the_new_one() -> None:
    old = pod("w", app("web"), topologySpreadConstraints=[spread("failure-domain.beta.kubernetes.io/zone", "web")])
    assert old.rules[0].key == ZONE


def test_a_group_of_hosts_takes_all_that_are_allowed_and_other_spreads_take_one() -> None:
    def group(key: str) -> TopologyGroup:
        return TopologyGroup(TopologyRule(TopologyRuleKind.SPREAD, key, None, None, max_skew=1), ("x", "y"))

    for key, expected in ((HOST, {"x", "y"}), ("rack", {"x"})):
        both = one_of(key, ("x", "y"))
        assert group(key).choose(NO_REQUIREMENTS.get(key), both, True) == expected


# -- the order of pods -------------------------------------------------------------------------------------------------


def test_pods_are_queued_by_size_then_alike_then_by_age() -> None:
    days = [f"2026-03-0{day}T00:00:00Z" for day in range(1, 8)]
    pods = (
        pod("small", created=days[0]),
        pod("big", created=days[6], cpu="3"),
        pod("web-1", cpu="2", created=days[1], topologySpreadConstraints=[spread(ZONE, "web")]),
        pod("plain-2", cpu="2", created=days[2], labels=app("x")),
        pod("web-2", cpu="2", created=days[3], topologySpreadConstraints=[spread(ZONE, "web")]),
        pod("plain-1", cpu="2", created=days[2], labels=app("x")),
        pod("labelled", cpu="2", created=days[4], labels={"unread": "1"}),
        pod("plain-3", cpu="2", created=days[5]),
    )
    expected = ["big", "web-1", "web-2", "plain-1", "plain-2", "labelled", "plain-3", "small"]
    assert [each.uid for each in queue(problem(*pods))] == expected
    assert [each.uid for each in queue(problem(*reversed(pods)))] == expected
