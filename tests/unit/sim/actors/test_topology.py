"""What the pods around say to a pod: spread, affinity, anti-affinity."""

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api.names import HOSTNAME_LABEL, ZONE_LABEL
from dovetail.sim.actors.scheduling.demand import Demand
from dovetail.sim.actors.scheduling.fit import NodeUsage
from dovetail.sim.actors.scheduling.placement import Answers, SchedulerCache, place
from dovetail.sim.actors.scheduling.topology import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI,
    SPREAD,
    SPREAD_LABEL,
    Surroundings,
)
from tests.harness import manifests

WEB = {"matchLabels": {"app": "web"}}
DB = {"matchLabels": {"app": "db"}}


def pod(name: str, node: str = "", *, app: str = "web", leaving: bool = False, **spec: Any) -> dict[str, Any]:
    made = manifests.pod(name, **spec)
    made["metadata"] |= {"namespace": "default", "labels": {"app": app, "rev": name}}
    if leaving:
        made["metadata"]["deletionTimestamp"] = "2026-03-02T00:00:00Z"
    if node:
        made["spec"]["nodeName"] = node
    return made


def cluster(zones: Mapping[str, str], *pods: dict[str, Any]) -> SchedulerCache:
    found = SchedulerCache()
    for name, zone in zones.items():
        found.node_changed(None, manifests.node(name, zone=zone))
    for each in pods:
        found.pod_changed(None, each)
    return found


def reasons(where: SchedulerCache, incoming: dict[str, Any]) -> dict[str, str]:
    around = Surroundings(where.demand(incoming), where.nodes, where.crowd)
    found = {name: around.fit(node).reasons for name, node in where.nodes.items()}
    return {name: why[0] for name, why in found.items() if why}


def spread(**changes: Any) -> list[dict[str, Any]]:
    constraint = {"topologyKey": ZONE_LABEL, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return [{**constraint, **changes}]


def around(kind: str, key: str, selector: dict[str, Any] | None = None, **term: Any) -> dict[str, Any]:
    wanted = {"topologyKey": key, "labelSelector": selector or WEB, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}


ZONES = {"a1": "a", "b1": "b", "c1": "c"}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, {"a1", "b1"}),  # the pod on c1 is leaving
        ({"maxSkew": 2}, set()),
        ({"minDomains": 4}, {"a1", "b1"}),
        ({"matchLabelKeys": ["rev"]}, set()),
        ({"labelSelector": {"matchLabels": {"app": "other"}}}, set()),
    ],
)
def test_spread_over_zones(changes: dict[str, Any], refused: set[str]) -> None:
    where = cluster(ZONES, pod("1", "a1"), pod("2", "b1"), pod("gone", "c1", leaving=True))
    got = reasons(where, pod("new", topologySpreadConstraints=spread(**changes)))
    assert set(got) == refused
    assert set(got.values()) <= {SPREAD}


def test_a_node_without_the_key_is_no_place_for_a_spread_pod() -> None:
    where = cluster({"a1": "a", "x": ""})
    assert reasons(where, pod("new", topologySpreadConstraints=spread())) == {"x": SPREAD_LABEL}


def test_domains_the_pod_cannot_reach_do_not_set_the_minimum() -> None:
    where = cluster(ZONES, pod("1", "a1"), pod("2", "b1"))
    only = {"nodeAffinity": _in_zones("a", "b")}
    assert reasons(where, pod("new", topologySpreadConstraints=spread(), affinity=only)) == {}
    ignoring = spread(nodeAffinityPolicy="Ignore")
    assert set(reasons(where, pod("new", topologySpreadConstraints=ignoring, affinity=only))) == {"a1", "b1"}


def _in_zones(*zones: str) -> dict[str, Any]:
    expression = {"key": ZONE_LABEL, "operator": "In", "values": list(zones)}
    terms = [{"matchExpressions": [expression]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def test_tainted_domains_count_unless_taints_are_honoured() -> None:
    where = cluster({"a1": "a"}, pod("1", "a1"))
    where.node_changed(None, manifests.node("b1", zone="b", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert set(reasons(where, pod("new", topologySpreadConstraints=spread()))) == {"a1"}
    honoured = reasons(where, pod("new", topologySpreadConstraints=spread(nodeTaintsPolicy="Honor")))
    assert "a1" not in honoured


def test_anti_affinity_and_its_symmetry() -> None:
    apart = around("podAntiAffinity", HOSTNAME_LABEL)
    where = cluster(ZONES, pod("1", "a1", affinity=apart))
    assert reasons(where, pod("2", affinity=apart)) == {"a1": ANTI_AFFINITY}
    # A pod without a rule of its own is kept away too, if the other one selects it.
    assert reasons(where, pod("3")) == {"a1": EXISTING_ANTI}
    assert reasons(where, pod("4", app="other")) == {}


def test_affinity_needs_company_except_for_the_first() -> None:
    together = around("podAffinity", ZONE_LABEL)
    assert reasons(cluster(ZONES), pod("1", affinity=together)) == {}
    assert reasons(cluster(ZONES, pod("1", "a1")), pod("2", affinity=together)) == {"b1": AFFINITY, "c1": AFFINITY}
    other = around("podAffinity", ZONE_LABEL, {"matchLabels": {"app": "db"}})
    assert set(reasons(cluster(ZONES), pod("1", affinity=other))) == set(ZONES)


@pytest.mark.parametrize(
    ("term", "selects"),
    [
        ({}, False),
        ({"namespaces": ["other"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, True),
    ],
)
def test_namespaces_of_a_term(term: dict[str, Any], selects: bool) -> None:
    demand = Demand(pod("1", affinity=around("podAffinity", ZONE_LABEL, **term)))
    assert demand.affinity[0].select("other", {"app": "web"}) is selects


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, "b1"),  # a1 is fuller
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": ["c"]}]}}
        ]}}}, "c1"),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 9, "podAffinityTerm": {"topologyKey": ZONE_LABEL, "labelSelector": DB}}
        ]}}}, "a1"),
        ({"topologySpreadConstraints": spread(whenUnsatisfiable="ScheduleAnyway")}, "b1"),
    ],
)  # fmt: skip
def test_scores(spec: dict[str, Any], chosen: str) -> None:
    where = cluster(ZONES, pod("1", "a1", app="db", cpu="1"))
    demand = where.demand(pod("new", **spec))
    assert place(demand, where, Answers(demand))[0] == chosen


def test_a_node_with_a_soft_taint_comes_last() -> None:
    where = cluster({"b": "b"})
    where.node_changed(None, manifests.node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}]))
    demand = where.demand(pod("new"))
    assert place(demand, where, Answers(demand))[0] == "b"


def test_answers_are_renewed_when_a_node_changes() -> None:
    where = cluster({"a1": "a"})
    demand = where.demand(pod("new", cpu="3"))
    answers = Answers(demand)
    assert place(demand, where, answers)[0] == "a1"
    where.pod_changed(None, pod("1", "a1", cpu="2"))
    assert place(demand, where, answers)[0] is None
    where.pod_changed(pod("1", "a1", cpu="2"), None)
    assert place(demand, where, answers)[0] == "a1"
    where.node_changed(manifests.node("a1"), None)
    assert place(demand, where, answers) == (None, {})


def test_pods_of_a_node_seen_before_the_node_count_once_it_comes() -> None:
    where = cluster({}, pod("1", "late", cpu="3"))
    where.node_changed(None, manifests.node("late"))
    assert isinstance(where.nodes["late"], NodeUsage)
    assert where.nodes["late"].used["cpu"] == 3000
