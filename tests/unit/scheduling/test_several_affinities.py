"""Whom are several required affinities of a pod about? As the kube-scheduler has it, those that all of them select."""

from typing import Any

from dovetail.scheduling.placement import BoundPod, PlacementRequest
from tests.scheduling.inspection import fitting
from tests.unit.scheduling.problems import HOST, ZONE, affinity, bound, node, pod, term
from tests.unit.scheduling.wire import Manifest

BOTH = {"app": "web", "tier": "front"}
FRONT: Manifest = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"tier": "front"}}}


def fits(*present: BoundPod, terms: list[Manifest], labels: dict[str, str] | None = None, **more: Any) -> list[str]:
    """Of a node in zone a that has these pods, and an empty one in b, those that take a pod with the terms."""
    asks = pod("new", labels, affinity=affinity(together=terms), **more)
    nodes = (node("a1", "a", *present), node("b1", "b"))
    return list(fitting(PlacementRequest(pods=(asks,), nodes=nodes), asks))


def test_one_pod_that_all_terms_select_is_enough() -> None:
    assert fits(bound("old", BOTH), terms=[term(ZONE, "web"), FRONT]) == ["a1"]


def test_two_pods_that_one_term_each_selects_are_not() -> None:
    web, front = bound("w", {"app": "web"}), bound("f", {"tier": "front"})
    assert fits(web, front, terms=[term(ZONE, "web"), FRONT]) == []
    assert fits(web, front, terms=[term(ZONE, "web")]) == ["a1"]
    assert fits(web, front, terms=[FRONT]) == ["a1"]


def test_the_first_pod_has_to_be_one_of_those_itself() -> None:
    assert fits(terms=[term(ZONE, "web"), FRONT], labels=BOTH) == ["a1", "b1"]
    assert fits(terms=[term(ZONE, "web"), FRONT], labels={"app": "web"}) == []


def test_only_namespaces_of_all_terms_count() -> None:
    near = [term(ZONE, "web", namespaces=["shop", "bank"]), {**FRONT, "namespaces": ["shop", "lab"]}]
    assert fits(bound("old", BOTH, namespace="shop"), terms=near) == ["a1"]
    assert fits(bound("old", BOTH, namespace="bank"), terms=near) == []
    anywhere = [term(ZONE, "web", namespaceSelector={}), {**FRONT, "namespaceSelector": {}}]
    assert fits(bound("old", BOTH, namespace="bank"), terms=anywhere) == ["a1"]


def test_a_term_without_a_selector_is_about_nobody() -> None:
    assert fits(bound("old", BOTH), terms=[FRONT, term(ZONE, None)], labels=BOTH) == []
