"""Where the reference engine puts pods. Docstrings cite 05 §13."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.api.objects import NodePool
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.host_ports import HostPort
from dovetail.scheduling.placement import (
    MachineType,
    NodeInfo,
    Origin,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
    read_pool,
)
from dovetail.scheduling.reference import solve
from dovetail.scheduling.relaxation import wishes
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, one_of
from dovetail.scheduling.resources import NOTHING, Resources
from dovetail.scheduling.volumes import Attachment, PodVolumes
from tests.unit.scheduling.problems import (
    HOST,
    ZONE,
    affinity,
    app,
    at_one_of,
    bound,
    expressing,
    machine,
    node,
    nodes_like,
    offer,
    pod,
    pool,
    preferring,
    spread,
    term,
)
from tests.unit.scheduling.wire import allof, required

TYPE = names.INSTANCE_TYPE_LABEL


def ask(
    *pods: PodInfo,
    nodes: tuple[NodeInfo, ...] = (),
    pools: tuple[Pool, ...] = (pool(),),
    types: tuple[MachineType, ...] = (machine("m"),),
    daemons: tuple[Daemon, ...] = (),
    **options: Any,
) -> Solution:
    """With the same types for each pool."""
    return solve(
        PlacementRequest(
            pods=pods,
            nodes=nodes,
            pools=pools,
            types={each.name: types for each in pools},
            daemons=daemons,
            options=SchedulingOptions(**options),
        )
    )


def shared(solution: Solution) -> list[list[str]]:
    """The pods of each new node."""
    assert not solution.errors, [*map(str, solution.errors.values())]
    return [sorted(claim.pods) for claim in solution.new_claims]


def zones(solution: Solution) -> list[list[str]]:
    return [sorted(claim.requirements.get(ZONE).values) for claim in solution.new_claims]


def why(solution: Solution, uid: str) -> str:
    return solution.errors[uid].reason


# -- the way of one pod ------------------------------------------------------------------------------------------------


def test_nodes_first_then_nodes_to_be_made_then_new_ones() -> None:
    found = ask(*(pod(f"p{index}") for index in range(8)), nodes=(node("n1", "a", cpu=2), node("n2", "a", cpu=1)))
    assert found.existing == {"n1": ("p0", "p1"), "n2": ("p2",)}
    assert [claim.pods for claim in found.new_claims] == [("p3", "p4", "p5", "p6"), ("p7",)]
    assert not found.errors
    assert found.new_claims[0].requests == Resources({"cpu": 4000, "pods": 4})


def test_initialized_nodes_come_before_others_and_then_it_goes_by_name() -> None:
    nodes = (node("c", cpu=1), node("a", cpu=1, initialized=False), node("b", cpu=1))
    found = ask(*(pod(f"p{index}") for index in range(3)), nodes=nodes)
    assert found.existing == {"b": ("p0",), "c": ("p1",), "a": ("p2",)}


def test_of_the_nodes_to_be_made_the_one_with_the_fewest_pods_comes_first() -> None:
    big = [pod(f"big-{index}", cpu="3") for index in range(2)]
    assert shared(ask(*big, pod("s1"), pod("s2"))) == [["big-0", "s1"], ["big-1", "s2"]]


def test_a_claim_says_what_its_pods_need() -> None:
    found = ask(
        pod("p", nodeSelector={ZONE: "b"}, cpu="3"),
        types=(machine("dear", 8), machine("cheap", 4), machine("small", 2), machine("elsewhere", zones=("a",))),
    )
    (claim,) = found.new_claims
    assert claim.types == ("cheap", "dear")
    assert claim.pool == "default"
    assert claim.requirements == of_labels({ZONE: "b", names.NODEPOOL_LABEL: "default"})


def test_what_is_asked_is_not_changed_and_the_answer_does_not_depend_on_its_order() -> None:
    pods = [pod(f"p{index}", app("web"), topologySpreadConstraints=[spread(ZONE, "web")]) for index in range(7)]
    nodes = (node("n1", "a", bound("x", app("web")), cpu=2), node("n2", "b", cpu=1))
    first = ask(*pods, nodes=nodes)
    assert ask(*pods, nodes=nodes) == first
    assert ask(*reversed(pods), nodes=nodes[::-1]) == first


def test_a_pod_that_fits_nowhere_is_told_why() -> None:
    found = ask(
        pod("p", nodeSelector={"team": "red"}),
        pod("q", cpu="9"),
        nodes=(node("n1", "a", taints=("own:NoSchedule",)), node("n2", "a", cpu=0), node("n3", "a", cpu=0)),
        pools=(pool("one"), pool("two", taints=("own=x:NoSchedule",))),
    )
    assert why(found, "q") == (
        "NodePool one: none of its instance types will do (1 too small); "
        "1 other NodePool: the taint own=x:NoSchedule is not tolerated; "
        "3 nodes do not fit: too little room 2, taints 1"
    )
    no_place = found.errors["q"].no_place
    assert no_place is not None
    assert no_place.sentence("two") == (
        "fits on no other node, and NodePool two can make none: the taint own=x:NoSchedule is not tolerated"
    )
    assert no_place.others("two") == (
        "1 other NodePool: none of its instance types will do (1 too small); "
        "3 nodes do not fit: too little room 2, taints 1"
    )
    assert "label 'team' does not have known values" in why(found, "p").replace('"', "'")
    assert found.errors["q"].pod.path == "shop/q"
    assert (
        why(solve(PlacementRequest(pods=(pod("p"),))), "p") == "there is no node, and no NodePool that could make one"
    )


def test_pods_with_resource_claims_are_not_guessed_at() -> None:
    found = ask(pod("p", resourceClaims=[{"name": "gpu"}]), pod("q"))
    assert why(found, "p") == "it has resource claims"
    assert [claim.pods for claim in found.new_claims] == [("q",)]


def test_when_time_is_up_what_is_placed_stays() -> None:
    calls = iter((True, True, False))
    pods = tuple(pod(f"p{index}") for index in range(4))
    found = solve(PlacementRequest(pods=pods, nodes=(node("n"),)), lambda: next(calls))
    assert found.existing == {"n": ("p0", "p1")}
    assert {uid: error.waiting for uid, error in found.errors.items()} == {"p2": True, "p3": True}


# -- relaxation --------------------------------------------------------------------------------------------------------


def test_wishes_are_given_up_one_by_one() -> None:
    asking = pod(
        "p",
        app("web"),
        affinity={
            **nodes_like(expressing("t", "1"), expressing("t", "2"), preferred=(expressing("n", "1"),)),
            **preferring("podAffinity", term("x", "a"), term("y", "a")),
            **preferring("podAntiAffinity", term("z", "a")),
        },
        topologySpreadConstraints=[spread("s", "web", anyway=True), spread("hard", "web")],
    )
    steps = [
        (
            "".join(sorted(each.full.get("t").values)),
            "n" in each.full,
            "".join(rule.key for rule in each.rules if rule.key != "hard"),
            bool(each.tolerations),
        )
        for each in wishes(asking)
    ]
    assert steps == [
        ("1", True, "xyzs", False),
        ("2", True, "xyzs", False),
        ("2", True, "yzs", False),
        ("2", True, "zs", False),
        ("2", True, "s", False),
        ("2", False, "s", False),
        ("2", False, "", False),
        ("2", False, "", True),
    ]
    ignoring = [("n" in each.full, len(each.rules)) for each in wishes(asking, respect_preferences=False)]
    assert ignoring == [(False, 1)] * 3


def test_the_last_required_term_is_never_dropped() -> None:
    """05 §13.13."""
    found = ask(pod("p", affinity=nodes_like(expressing(ZONE, "x"), expressing(ZONE, "y"))))
    assert why(found, "p") == "NodePool default: none of its instance types will do (1 with other requirements)"


def test_later_terms_are_tried_in_order() -> None:
    """05 §13.14."""
    terms = nodes_like(expressing(ZONE, "x"), expressing(ZONE, "c"), expressing(ZONE, "a"))
    assert zones(ask(pod("p", affinity=terms))) == [["c"]]


def test_a_preference_that_conflicts_with_a_requirement_is_dropped() -> None:
    """05 §13.15."""
    wish = nodes_like(expressing(ZONE, "a"), preferred=(expressing(ZONE, "b"),))
    assert zones(ask(pod("p", affinity=wish))) == [["a"]]


def test_of_preferences_in_conflict_the_lightest_that_works_places_the_pod() -> None:
    """05 §13.16."""
    wish = nodes_like(preferred=(expressing(ZONE, "x"), expressing(ZONE, "y"), expressing(ZONE, "b")))
    assert zones(ask(pod("p", affinity=wish))) == [["b"]]


def test_soft_taints_are_tolerated_only_after_all_affinity_steps() -> None:
    """05 §13.17."""
    wish = nodes_like(preferred=(expressing(ZONE, "b"),))
    soft = node("soft", "b", taints=("x:PreferNoSchedule",))
    assert ask(pod("p", affinity=wish), nodes=(soft, node("other", "a")), pools=()).existing == {"other": ("p",)}
    assert ask(pod("p", affinity=wish), nodes=(soft,), pools=()).existing == {"soft": ("p",)}


def test_with_policy_ignore_no_node_is_made_for_a_preference() -> None:
    """05 §13.18."""
    pods = [pod(zone, affinity=nodes_like(preferred=(expressing(ZONE, zone),))) for zone in ("a", "b")]
    pods += [pod(name, app("web"), affinity=preferring("podAntiAffinity", term(HOST, "web"))) for name in ("w1", "w2")]
    assert len(shared(ask(*pods))) == 2
    assert shared(ask(*pods, respect_preferences=False)) == [["a", "b", "w1", "w2"]]


def test_preferred_zones_do_not_shrink_the_domains_for_skew() -> None:
    """05 §13.19."""
    pods = [
        pod(
            f"p{index}",
            app("web"),
            affinity=nodes_like(preferred=(expressing(ZONE, "a"),)),
            topologySpreadConstraints=[spread(ZONE, "web")],
        )
        for index in range(3)
    ]
    assert zones(ask(*pods)) == [["a"], ["b"], ["c"]]


def test_a_pool_with_a_soft_taint_is_passed_over_when_another_fits() -> None:
    """05 §13.22."""
    pools = (pool("soft", weight=9, taints=("x:PreferNoSchedule",)), pool("plain"))
    assert [claim.pool for claim in ask(pod("p"), pools=pools).new_claims] == ["plain"]
    assert [claim.pool for claim in ask(pod("p"), pools=pools[:1]).new_claims] == ["soft"]


# -- apart -------------------------------------------------------------------------------------------------------------


def test_a_carrier_that_could_be_anywhere_blocks_its_target_until_the_next_batch() -> None:
    """05 §13.33."""
    carrier = pod("carrier", app("db"), cpu="2", affinity=affinity(apart=[term(ZONE, "web")]))
    target = pod("target", app("web"))
    found = ask(carrier, target)
    assert why(found, "target") == "NodePool default: anti-affinity over topology.kubernetes.io/zone does not allow it"
    there = node("n", "a", bound("carrier", app("db"), affinity=affinity(apart=[term(ZONE, "web")])))
    assert zones(ask(target, nodes=(there,))) == [["b", "c"]]


def test_a_target_avoids_the_zones_of_carriers() -> None:
    """05 §13.34."""
    carrier = bound("c", app("db"), affinity=affinity(apart=[term(ZONE, "web")]))
    found = ask(pod("t", app("web")), nodes=(node("n1", "a", carrier), node("n2", "a"), node("n3", "b")))
    assert found.existing == {"n3": ("t",)}


def test_what_others_would_rather_not_is_no_obstacle() -> None:
    """05 §13.35."""
    carrier = bound("c", app("db"), affinity=preferring("podAntiAffinity", term(ZONE, "web")))
    assert ask(pod("t", app("web")), nodes=(node("n1", "a", carrier),)).existing == {"n1": ("t",)}


def test_carriers_that_are_moved_do_not_block() -> None:
    """05 §13.36."""
    rule = affinity(apart=[term(HOST, "web")])
    moving = pod("c", app("db"), affinity=rule, origin=Origin.CANDIDATE, cpu="8")
    gone = node("n1", "a", bound("c", app("db"), affinity=rule), open=False)
    found = ask(moving, pod("t", app("web")), nodes=(gone, node("n2", "a"), node("n3", "a")))
    assert found.existing == {"n2": ("c",), "n3": ("t",)}


def test_pods_that_avoid_themselves_are_one_per_node() -> None:
    """05 §13.37."""
    pods = [pod(f"p{index}", app("web"), affinity=affinity(apart=[term(HOST, "web")])) for index in range(3)]
    found = ask(*pods, nodes=(node("n1", "a"),))
    assert found.existing == {"n1": ("p0",)}
    assert shared(found) == [["p1"], ["p2"]]


def test_pods_that_end_are_not_avoided() -> None:
    """05 §13.38."""
    shy = pod("p", affinity=affinity(apart=[term(HOST, "web")]))
    going = bound("x", app("web"), deleted="2026-03-01T00:00:00Z")
    assert ask(shy, nodes=(node("n1", "a", going),)).existing == {"n1": ("p",)}
    assert not ask(shy, nodes=(node("n1", "a", bound("x", app("web"))),)).existing


# -- together ----------------------------------------------------------------------------------------------------------


def test_who_wants_to_be_with_nobody_is_not_placed_unless_it_is_itself() -> None:
    """05 §13.39."""
    rule = affinity(together=[term(ZONE, "web")])
    assert "affinity over" in why(ask(pod("p", app("db"), affinity=rule)), "p")
    assert shared(ask(pod("p", app("web"), affinity=rule))) == [["p"]]


def test_those_that_want_one_host_fill_it_and_the_rest_waits() -> None:
    """05 §13.40."""
    rule = affinity(together=[term(HOST, "web")])
    found = ask(*(pod(f"p{index}", app("web"), affinity=rule) for index in range(6)))
    assert [len(claim.pods) for claim in found.new_claims] == [4]
    assert list(found.errors) == ["p4", "p5"]
    full = node("n1", "a", bound("p0", app("web"), affinity=rule), cpu=0)
    again = ask(pod("p4", app("web"), affinity=rule), nodes=(full,))
    assert list(again.errors) == ["p4"]


def test_two_with_themselves_in_different_zones_are_two_nodes() -> None:
    """05 §13.41."""
    pods = [
        pod(
            zone,
            app("web"),
            affinity={**affinity(together=[term(ZONE, "web")]), **nodes_like(expressing(ZONE, zone))},
        )
        for zone in ("a", "b")
    ]
    assert zones(ask(*pods)) == [["a"], ["b"]]


def test_a_chain_resolves_itself() -> None:
    """05 §13.42."""
    first = pod("a", app("a"), cpu="3", affinity=affinity(together=[term(ZONE, "b")]))
    second = pod("b", app("b"), cpu="2", affinity=affinity(together=[term(ZONE, "c")]))
    last = pod("c", app("c"), cpu="1", nodeSelector={ZONE: "b"})
    found = ask(first, second, last)
    assert not found.errors
    assert set(map(tuple, zones(found))) == {("b",)}


@pytest.mark.parametrize(
    ("more", "expected"), [({}, "n1"), ({"namespaces": ["other"]}, "n2"), ({"namespaceSelector": {}}, "n0")]
)
def test_three_ways_to_say_whose_pods(more: dict[str, Any], expected: str) -> None:
    """05 §13.43."""
    nodes = tuple(
        node(f"n{index}", zone, bound(zone, app("web"), namespace=namespace))
        for index, (zone, namespace) in enumerate((("a", "third"), ("b", "shop"), ("c", "other")))
    )
    asking = pod("p", affinity=affinity(together=[term(ZONE, "web", **more)]))
    assert ask(asking, nodes=nodes).existing == {expected: ("p",)}


# -- spread ------------------------------------------------------------------------------------------------------------


def web(count: int, *constraints: dict[str, Any], **wire: Any) -> list[PodInfo]:
    return [pod(f"p{index}", app("web"), topologySpreadConstraints=list(constraints), **wire) for index in range(count)]


def test_zones_that_are_not_the_least_are_used_as_long_as_the_skew_allows() -> None:
    """05 §13.44."""
    there = tuple(node(f"n-{zone}", zone, cpu=0) for zone in ("a", "b", "c"))
    only_a = (machine("m", 9, zones=("a",)),)
    pools = (pool(requirements=of_labels({ZONE: "a"})),)
    found = ask(*web(4, spread(ZONE, "web", 3)), nodes=there, pools=pools, types=only_a)
    assert [len(claim.pods) for claim in found.new_claims] == [3]
    assert list(found.errors) == ["p3"]


def test_a_zone_that_is_forbidden_does_not_set_the_minimum() -> None:
    """05 §13.45."""
    found = ask(*web(4, spread(ZONE, "web"), affinity=nodes_like(expressing(ZONE, "a", "b"))))
    assert zones(found) == [["a"], ["b"]]
    assert [len(claim.pods) for claim in found.new_claims] == [2, 2]


def test_zones_known_only_from_nodes_count() -> None:
    """05 §13.46."""
    there = tuple(node(f"n-{zone}", zone, bound(zone, app("web")), cpu=0) for zone in ("a", "b"))
    pools = (pool(requirements=of_labels({ZONE: "c"})),)
    found = ask(*web(9, spread(ZONE, "web", 5)), nodes=there, pools=pools, types=(machine("m", 9, zones=("c",)),))
    assert sum(len(claim.pods) for claim in found.new_claims) == 6


def test_with_too_few_zones_the_minimum_is_0() -> None:
    """05 §13.47."""
    found = ask(*web(9, spread(ZONE, "web", minDomains=4)))
    assert sum(len(claim.pods) for claim in found.new_claims) == 3
    assert not ask(*web(9, spread(ZONE, "web", minDomains=3))).errors


def test_the_minimum_of_hosts_is_always_0() -> None:
    """05 §13.48."""
    found = ask(*web(3, spread(HOST, "web")), nodes=(node("n1", "a", bound("x", app("web"))), node("n2", "a")))
    assert found.existing == {"n2": ("p0",)}
    assert [len(claim.pods) for claim in found.new_claims] == [1, 1]


def test_no_selector_has_no_effect_and_an_empty_one_means_all() -> None:
    """05 §13.49."""
    assert shared(ask(*web(3, spread(HOST, None)))) == [["p0", "p1", "p2"]]
    assert len(shared(ask(*web(3, spread(HOST, ""))))) == 3


def test_revisions_are_spread_apart_from_each_other() -> None:
    """05 §13.50."""
    constraint = spread(HOST, "web", matchLabelKeys=["rev"])
    pods = [
        pod(f"{revision}-{index}", {**app("web"), "rev": revision}, topologySpreadConstraints=[constraint])
        for revision in ("new", "old")
        for index in range(2)
    ]
    assert shared(ask(*pods)) == [["new-0", "old-0"], ["new-1", "old-1"]]


@pytest.mark.parametrize(("policy", "placed"), [("Ignore", 1), ("Honor", 3)])
def test_zones_behind_taints_do_not_count_where_they_are_honoured(policy: str, placed: int) -> None:
    """05 §13.51."""
    pools = (pool("open"), pool("own", taints=("own:NoSchedule",)))
    types = {"open": (machine("m", zones=("a",)),), "own": (machine("m", zones=("b",)),)}
    pods = tuple(web(3, spread(ZONE, "web", nodeTaintsPolicy=policy)))
    found = solve(PlacementRequest(pods=pods, pools=pools, types=types))
    assert sum(len(claim.pods) for claim in found.new_claims) == placed


def test_the_zone_of_a_volume_does_not_change_what_a_spread_counts() -> None:
    """05 §13.52."""
    found = ask(*web(2, spread(ZONE, "web"), volumes=at_one_of("a")))
    assert zones(found) == [["a"]]
    assert list(found.errors) == ["p1"]  # the other zones are still its own to use, so they are empty


# -- volumes, ports, daemons -------------------------------------------------------------------------------------------


def test_each_place_of_a_volume_is_tried() -> None:
    """05 §13.54."""
    assert zones(ask(pod("p", volumes=at_one_of("x", "b", "a")))) == [["b"]]
    found = ask(pod("p", volumes=at_one_of("x", "b")), nodes=(node("n1", "a"), node("n2", "b")))
    assert found.existing == {"n2": ("p",)}
    assert why(ask(pod("p", volumes=at_one_of("x")), nodes=(node("n1", "a"),)), "p").endswith(
        "1 node: its volumes cannot be used here"
    )
    torn = pod("p", nodeSelector={ZONE: "a"}, volumes=at_one_of("b", "c"))
    assert why(ask(torn), "p").startswith(f"NodePool default: its volumes: {ZONE} In [c] cannot be met")


def test_volumes_are_attached_to_nodes_up_to_their_limit() -> None:
    def using(name: str, claim: str) -> PodInfo:
        return pod(name, volumes=PodVolumes(attachments=frozenset({Attachment("ebs", "shop", claim)})))

    limited = node("n1", "a", attach_limits={"ebs": 1})
    found = ask(using("p0", "one"), using("p1", "two"), using("p2", "one"), nodes=(limited,), pools=())
    assert found.existing == {"n1": ("p0", "p2")}
    assert why(found, "p1") == "1 node: volumes of ebs are at their limit"


def test_host_ports_are_taken_once_on_each_node() -> None:
    ports = [{"name": "app", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    pods = [pod(f"p{index}", containers=ports) for index in range(3)]
    found = ask(*pods, nodes=(node("n1", "a"),))
    assert found.existing == {"n1": ("p0",)}
    assert shared(found) == [["p1"], ["p2"]]
    agent = Daemon("agent", (NO_REQUIREMENTS,), frozenset(), NOTHING, frozenset({HostPort(80, "TCP", "0.0.0.0")}))
    assert "1 with a DaemonSet on its host port" in why(ask(pods[0], daemons=(agent,)), "p0")


def test_daemons_take_their_part_of_nodes_and_of_new_ones() -> None:
    agent = Daemon("agent", (NO_REQUIREMENTS,), frozenset(), Resources({"cpu": 1000, "pods": 1}))
    pods = [pod(f"p{index}") for index in range(5)]
    found = ask(*pods, nodes=(node("n1", "a", cpu=2),), daemons=(agent,))
    assert found.existing == {"n1": ("p0",)}
    assert shared(found) == [["p1", "p2", "p3"], ["p4"]]
    assert found.new_claims[0].requests == Resources({"cpu": 4000, "pods": 4})


def test_a_daemon_that_nobody_expected_never_makes_room() -> None:
    """05 §13.58."""
    odd = Resources({"cpu": 1000, "pods": 1})
    there = node("n1", "a", cpu=2, requested=odd, requested_by_daemons=odd)
    assert ask(pod("p0"), pod("p1"), nodes=(there,), pools=()).existing == {"n1": ("p0",)}


# -- pools, limits, types ----------------------------------------------------------------------------------------------


def test_pools_go_by_weight_and_of_equals_the_last_name_comes_first() -> None:
    """05 §13.59."""
    pools = (pool("a"), pool("c"), pool("b", weight=1))
    assert ask(pod("p"), pools=pools).new_claims[0].pool == "b"
    assert ask(pod("p"), pools=pools[:2]).new_claims[0].pool == "c"


def test_limits_are_pessimistic_so_that_part_of_a_batch_is_placed() -> None:
    """05 §13.59."""
    limited = pool(limits={"cpu": 8000})
    types = (machine("small", 2), machine("large", 6))
    pods = [pod(f"p{index}", app("web"), affinity=affinity(apart=[term(HOST, "web")])) for index in range(3)]
    found = ask(*pods, pools=(limited,), types=types)
    assert [claim.types for claim in found.new_claims] == [("small", "large"), ("small",)]  # 8, then 2 are left
    limits = "(limits.cpu: 0 of 8 in use, 8 planned, a new node takes at least 2)"
    assert why(found, "p2") == f"NodePool default: its limits leave no room {limits}"


def test_limits_are_the_cause_only_if_they_rule_out_types_that_would_do() -> None:
    limited = pool(limits={"cpu": 4000}, requirements=Requirements([one_of(TYPE, ("small", "large"))]))
    there = node("n1", "a", cpu=0, pool="default", capacity=machine("small", 2).capacity)
    types = (machine("small", 2), machine("large", 8), machine("never-allowed", 6))
    found = ask(pod("p", cpu="5"), pod("q", cpu="9"), nodes=(there,), pools=(limited,), types=types)
    limits = "(limits.cpu: 2 of 4 in use, a new node takes at least 8)"
    assert why(found, "p").startswith(f"NodePool default: its limits leave no room {limits}")
    assert why(found, "q").startswith("NodePool default: none of its instance types will do (2 too small)")


def test_figures_of_limits_are_those_of_the_status_also_while_nodes_leave() -> None:
    limited = pool(limits={"cpu": 4000})
    there = [node(name, "a", cpu=0, pool="default", capacity=machine(name, 2).capacity) for name in ("n1", "n2")]
    leaving = msgspec.structs.replace(there[1], open=False)
    found = ask(pod("p", cpu="3"), nodes=(there[0], leaving), pools=(limited,), types=(machine("large", 4),))
    used = "limits.cpu: 4 of 4 in use, 2 left when the leaving nodes are gone, a new node takes at least 4"
    assert why(found, "p").startswith(f"NodePool default: its limits leave no room ({used})")


def test_limits_count_nodes_that_are_there_and_each_new_one() -> None:
    limited = pool(limits={"nodes": 3})
    there = (node("n1", "a", cpu=0, pool="default"), node("n2", "a", cpu=0, pool="default", open=False))
    found = ask(*web(4, spread(HOST, "web")), nodes=there, pools=(limited,))
    assert len(found.new_claims) == 2
    assert why(found, "p3").startswith(
        "NodePool default: its limits leave no room (limits.nodes: 2 of 3 in use, 1 planned)"
    )
    room = node("n1", "a", pool="default")
    over = ask(pod("p"), nodes=(room,), pools=(pool(limits={"cpu": 0}),))
    assert over.existing == {"n1": ("p",)}  # a pool over its limits still has its nodes


def test_pools_that_the_pod_does_not_ask_for_are_counted_only() -> None:
    mine = pod("p", cpu="50", nodeSelector={"karpenter.sh/nodepool": "a"})
    pools = [pool(name, requirements=of_labels({"karpenter.sh/nodepool": name})) for name in "abc"]
    pools[1] = msgspec.structs.replace(pools[1], limits={"cpu": 0})  # which is no reason for this pod
    nodes = [
        msgspec.structs.replace(node(f"n{name}", "a", cpu=0), labels={"karpenter.sh/nodepool": name}) for name in "abc"
    ]
    assert why(ask(mine, pools=tuple(pools), nodes=tuple(nodes)), "p") == (
        "NodePool a: none of its instance types will do (1 too small); "
        "2 other NodePools: the pod asks for another NodePool; "
        "3 nodes do not fit: the pod asks for another NodePool 2, too little room 1"
    )


def flexible(least: int) -> tuple[Pool, ...]:
    return (pool(requirements=allof(required(TYPE, "Exists", min_values=least))),)


def test_min_values_are_kept_or_lowered_by_the_first_pod() -> None:
    types = (machine("s", 1), machine("m", 2), machine("l", 4))
    assert len(ask(pod("p"), pools=flexible(3), types=types).new_claims[0].types) == 3
    strict = ask(pod("p", cpu="2"), pools=flexible(3), types=types)
    assert "minValues asks for 3 values of node.kubernetes.io/instance-type" in why(strict, "p")
    (claim,) = ask(pod("p", cpu="2"), pools=flexible(3), types=types, strict_min_values=False).new_claims
    assert claim.min_values_relaxed
    assert claim.requirements.get(TYPE).min_values == 2
    pair = ask(pod("p", cpu="2"), pod("q"), pools=flexible(2), types=types, strict_min_values=False)
    assert shared(pair) == [["p"], ["q"]]  # a second pod may not lower it


def test_types_are_cut_to_the_cheapest_and_min_values_must_still_hold() -> None:
    types = tuple(machine(f"m{cpu}", cpu) for cpu in (9, 3, 1, 2))
    assert ask(pod("p"), types=types, max_types=2).new_claims[0].types == ("m1", "m2")
    cut = ask(pod("p"), types=types, pools=flexible(3), max_types=2)
    assert not cut.new_claims
    assert "minValues asks for 3" in why(cut, "p")


def test_what_cannot_be_bought_now_is_no_choice() -> None:
    gone = machine("gone", offers=(offer("a", 1, available=False),))
    assert why(ask(pod("p"), types=(gone,)), "p").endswith("(1 not offered as required)")
    mixed = machine("mixed", offers=(offer("a", 1, available=False), offer("b", 9)))
    assert ask(pod("p"), types=(mixed, machine("m", 5))).new_claims[0].types == ("m", "mixed")


def test_a_pod_that_asks_for_a_host_by_name_gets_no_new_one() -> None:
    asking = pod("p", nodeSelector={HOST: "n2"})
    assert ask(asking, nodes=(node("n1"), node("n2"))).existing == {"n2": ("p",)}
    assert "kubernetes.io/hostname In [n2] cannot be met" in why(ask(asking), "p")


# -- reservations ------------------------------------------------------------------------------------------------------


def reserving(left: int) -> MachineType:
    return machine("r", offers=(offer("a", 0, "reserved", reservation="r-1", left=left), offer("a", 4)))


def test_a_claim_that_holds_a_reservation_is_launched_into_it() -> None:
    (claim,) = ask(pod("p"), types=(reserving(1), machine("m")), reservation_label="reservation").new_claims
    assert claim.reservations == ("r-1",)
    assert claim.types == ("r",)
    assert claim.requirements.get(names.CAPACITY_TYPE_LABEL).values == {"reserved"}
    assert claim.requirements.get("reservation").values == {"r-1"}


def test_reservations_that_are_taken_make_others_wait_or_fall_back() -> None:
    pods = web(3, spread(HOST, "web"))
    pools = (pool("first", weight=1), pool("second"))
    strict = ask(*pods, types=(reserving(2),), pools=pools)
    assert [claim.pool for claim in strict.new_claims] == ["first", "first"]
    assert strict.errors["p2"].waiting
    assert why(strict, "p2") == "the reservations that it could use are taken"
    loose = ask(*pods, types=(reserving(2),), pools=pools, strict_reserved=False)
    assert [claim.reservations for claim in loose.new_claims] == [("r-1",), ("r-1",), ()]
    only = machine("only", offers=(offer("a", 0, "reserved", reservation="r-1", left=1),))
    assert list(ask(*pods[:2], types=(only,), strict_reserved=False).errors) == ["p1"]


def test_a_reservation_is_not_lost_to_another_pod_but_may_be_let_go() -> None:
    """In c there is only what is to be paid for."""
    both = machine("r", offers=(offer("a", 0, "reserved", reservation="r-1", left=1), offer("c", 4)))
    first, second = pod("p", cpu="2"), pod("q", nodeSelector={ZONE: "c"})
    assert [claim.reservations for claim in ask(first, second, types=(both,)).new_claims] == [("r-1",), ()]
    (claim,) = ask(first, second, types=(both,), strict_reserved=False).new_claims
    assert (claim.pods, claim.reservations) == (("p", "q"), ())


def test_a_reservation_that_is_not_sold_as_one_makes_no_node() -> None:
    odd = machine("odd", offers=(offer("a", 1, "on-demand", reservation="r-1", left=1),))
    found = ask(pod("p"), types=(odd,))
    assert not found.new_claims
    assert why(found, "p") == "of its instance types, none can be bought as all its pods need it"


# -- what disruption asks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "refused", "fine"),
    [(Origin.CANDIDATE, True, False), (Origin.PENDING, True, True), (Origin.DELETING, False, True)],
)
def test_what_leaves_a_candidate_must_not_rely_on_a_node_that_is_coming(
    origin: Origin, refused: bool, fine: bool
) -> None:
    """05 §13.60."""
    coming = node("n1", "a", initialized=False)
    found = ask(pod("p", origin=origin), nodes=(coming,), refuse_uninitialized=True)
    assert bool(found.errors) is refused
    assert bool(found.existing) is not refused
    assert found.all_scheduled is fine
    assert ask(pod("p", origin=origin), nodes=(coming,)).existing == {"n1": ("p",)}


def test_pending_pods_take_room_but_block_nothing() -> None:
    pending, moving = pod("big", cpu="9"), pod("p", origin=Origin.CANDIDATE)
    assert ask(pending, moving, nodes=(node("n1", cpu=1),), pools=()).all_scheduled
    full = ask(pod("a", cpu="2"), moving, nodes=(node("n1", cpu=2),), pools=())
    assert not full.all_scheduled


# -- reading a pool ----------------------------------------------------------------------------------------------------


def test_a_pool_is_read_with_all_that_its_nodes_have() -> None:
    wire = {
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "red"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "kwok"},
                    "requirements": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                    "taints": [{"key": "own", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
                },
            },
            "limits": {"cpu": "0", "nodes": "3"},
        },
    }
    found = read_pool(msgspec.convert(wire, NodePool))
    assert found.requirements == of_labels(
        {
            "team": "red",
            names.ARCH_LABEL: "amd64",
            names.NODEPOOL_LABEL: "default",
            names.KWOK_NODECLASS_LABEL: "kwok",
        }
    )
    assert [each.key for each in found.taints] == ["own"]
    assert (found.limits, found.weight) == ({"cpu": 0, "nodes": 3}, 0)
    assert isinstance(found.requirements, Requirements)


# -- whatever is asked -------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zones": {"topologySpreadConstraints": [spread(ZONE, "zones")]},
    "hosts": {"topologySpreadConstraints": [spread(HOST, "hosts", 2)]},
    "together": {"affinity": affinity(together=[term(ZONE, "together")])},
    "apart": {"affinity": affinity(apart=[term(HOST, "apart")])},
    "rather": {"affinity": preferring("podAntiAffinity", term(ZONE, "apart"))},
    "picky": {"nodeSelector": {ZONE: "b"}},
}
ASKED = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 5)), max_size=14)
THERE = st.lists(st.tuples(st.sampled_from(["a", "b", "d"]), st.integers(0, 6)), max_size=4)


@given(ASKED, THERE, st.randoms(use_true_random=False))
def test_every_answer_keeps_the_rules_and_does_not_depend_on_the_order(
    asked: list[tuple[str, int]], there: list[tuple[str, int]], shuffle: Any
) -> None:
    pods = [pod(f"{kind}-{index}", app(kind), cpu=str(cpu), **KINDS[kind]) for index, (kind, cpu) in enumerate(asked)]
    nodes = [node(f"n{index}", zone, cpu=cpu) for index, (zone, cpu) in enumerate(there)]
    types = (machine("s", 2), machine("m", 4))
    found = ask(*pods, nodes=tuple(nodes), types=types)
    hosts: list[tuple[frozenset[str], int, tuple[str, ...]]] = [
        (frozenset((each.labels[ZONE],)), each.allocatable["cpu"], found.existing.get(each.name, ())) for each in nodes
    ]
    hosts += [(claim.requirements.get(ZONE).values, 4000, claim.pods) for claim in found.new_claims]
    by_uid = {each.uid: each for each in pods}

    placed = [uid for _, _, uids in hosts for uid in uids]
    assert sorted([*placed, *found.errors]) == sorted(by_uid)
    counts = {kind: dict.fromkeys("abc", 0) for kind in KINDS}
    for zones_, room, uids in hosts:
        kinds = [by_uid[uid].labels["app"] for uid in uids]
        assert sum(by_uid[uid].request["cpu"] for uid in uids) <= room
        assert kinds.count("apart") <= 1
        assert kinds.count("hosts") <= 2
        if "picky" in kinds:
            assert zones_ == {"b"}
        for kind in kinds:
            if kind in ("zones", "together"):
                (zone,) = zones_
                counts[kind][zone] = counts[kind].get(zone, 0) + 1
    assert max(counts["zones"].values()) - min(counts["zones"].values()) <= 1
    assert sum(map(bool, counts["together"].values())) <= 1
    for uid in found.errors:  # too large for any type, or a rule that the zones of nodes and pools cannot both keep
        assert by_uid[uid].request["cpu"] > 4000 or by_uid[uid].labels["app"] in ("zones", "together")

    shuffle.shuffle(pods)
    shuffle.shuffle(nodes)
    assert ask(*pods, nodes=tuple(nodes), types=types[::-1]) == found


def test_a_zone_that_only_other_nodes_are_in_is_no_choice_for_a_new_node() -> None:
    """It has the fewest pods, but no instance type is there."""
    web = [pod(f"web-{number}", app("web"), topologySpreadConstraints=[spread(ZONE, "web")]) for number in range(2)]
    found = ask(*web, nodes=(node("elsewhere", "z", cpu=0),))
    zones = [claim.requirements.get(ZONE).values for claim in found.new_claims]
    assert not found.errors
    assert zones == [frozenset({"a"}), frozenset({"b"})]
