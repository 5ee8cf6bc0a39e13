"""Which nodes a pod asks for, step by step. Docstrings cite 05 §13."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.scheduling.labels import is_restricted, likely_meant, normalised
from dovetail.scheduling.node_affinity import ANYWHERE, read_node_affinity
from dovetail.scheduling.requirements import RequirementError, of_labels, selecting
from tests.unit.scheduling.wire import allof, pod, required

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def in_zone(*zones: str) -> dict[str, Any]:
    return {"matchExpressions": [expression(names.ZONE_LABEL, "In", *zones)]}


def affinity(*terms: dict[str, Any], preferred: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    nodes: dict[str, Any] = {REQUIRED: {"nodeSelectorTerms": list(terms)}} if terms else {}
    nodes[PREFERRED] = [{"weight": weight, "preference": term} for weight, term in (preferred or {}).items()]
    return {"nodeAffinity": nodes}


def zone(*zones: str) -> Any:
    return required(names.ZONE_LABEL, "In", *zones)


# -- strict and full ---------------------------------------------------------------------------------------------------


def test_strict_is_the_selector_and_the_first_term_and_full_adds_the_heaviest_preference() -> None:
    asked = read_node_affinity(
        pod(
            nodeSelector={"team": "red"},
            affinity=affinity(
                in_zone("a", "b"), in_zone("c"), preferred={1: in_zone("b", "c"), 50: in_zone("a"), 7: in_zone("d")}
            ),
        ).spec
    )
    team = required("team", "In", "red")
    assert asked.strict() == allof(team, zone("a", "b"))
    assert asked.strict(1) == allof(team, zone("c"))
    assert asked.full() == allof(team, zone("a"))
    assert asked.full(0, 1) == allof(team, zone("a", "b"), zone("d"))
    assert asked.full(0, 2) == allof(team, zone("b"))
    assert asked.full(0, 3) == asked.strict()
    assert asked.full(1, 2) == allof(team, zone("c"))
    assert asked.alternatives() == (asked.strict(0), asked.strict(1))


def test_preferences_of_equal_weight_keep_their_order() -> None:
    terms = [{"weight": 5, "preference": in_zone(name)} for name in "ab"]
    asked = read_node_affinity(pod(affinity={"nodeAffinity": {PREFERRED: terms}}).spec)
    assert asked.preferences == (allof(zone("a")), allof(zone("b")))


def test_policy_ignore_never_looks_at_preferences() -> None:
    spec = pod(affinity=affinity(in_zone("a", "b"), preferred={9: in_zone("a")})).spec
    asked = read_node_affinity(spec, preferences=False)
    assert asked.full() == asked.strict() == allof(zone("a", "b"))


def test_a_pod_that_asks_for_nothing() -> None:
    asked = read_node_affinity(pod().spec)
    assert asked is ANYWHERE
    assert asked.alternatives() == (selecting({}),)


def test_the_last_required_term_is_never_dropped() -> None:
    asked = read_node_affinity(pod(affinity=affinity(in_zone("a"))).spec)
    with pytest.raises(AssertionError):
        asked.strict(1)


def test_match_fields_are_not_read() -> None:
    term = {"matchFields": [expression("metadata.name", "In", "node-1")]}
    asked = read_node_affinity(pod(affinity=affinity(term)).spec)
    assert asked.strict() == selecting({})


def test_an_empty_term_matches_no_node() -> None:
    asked = read_node_affinity(pod(affinity=affinity({}, in_zone("a"))).spec)
    assert asked.strict() == allof(zone("a"))
    with pytest.raises(RequirementError, match="matches no node"):
        read_node_affinity(pod(affinity=affinity({}, {})).spec)


def test_pods_that_ask_the_same_are_equal_keys() -> None:
    first = pod("web-1", affinity=affinity(in_zone("a", "b"), preferred={1: in_zone("b")}))
    second = pod("web-2", affinity=affinity(in_zone("b", "a"), preferred={2: in_zone("b")}))
    assert {read_node_affinity(first.spec): 1}[read_node_affinity(second.spec)] == 1


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ],
)
def test_old_names_of_labels_in_selectors_and_terms(old: str, new: str) -> None:
    """05 §13.10."""
    assert normalised(old) == new
    term = {"matchExpressions": [expression(old, "In", "x")]}
    for spec in (pod(nodeSelector={old: "x"}).spec, pod(affinity=affinity(term)).spec):
        assert of_labels({new: "x"}).compatible(read_node_affinity(spec).strict())
        assert not of_labels({new: "y"}).compatible(read_node_affinity(spec).strict())


def test_an_old_name_and_the_new_one_have_to_agree() -> None:
    """05 §13.10."""
    spec = pod(nodeSelector={"beta.kubernetes.io/os": "linux", names.OS_LABEL: "windows"}).spec
    assert read_node_affinity(spec).strict().impossible


@pytest.mark.parametrize(
    ("key", "restricted"),
    [
        ("kubernetes.io/hostname", True),
        ("karpenter.sh/registered", True),
        ("deep.sub.karpenter.sh/x", True),
        ("karpenter.kwok.sh/partition", True),
        ("karpenter.sh/nodepool", False),
        ("karpenter.sh/capacity-type", False),
        ("karpenter.kwok.sh/instance-cpu", False),
        ("notkarpenter.sh/x", False),
        ("karpenter.sh", False),  # a name without a domain
        ("karpenter.sh.example.com/x", False),
        ("node-restriction.kubernetes.io/x", False),
        ("topology.kubernetes.io/zone", False),
        ("team", False),
    ],
)
def test_restricted_labels(key: str, restricted: bool) -> None:
    assert is_restricted(key) is restricted


def test_labels_of_offerings_are_well_known_too() -> None:
    key = "karpenter.kwok.sh/reservation"
    assert is_restricted(key)
    assert not is_restricted(key, names.WELL_KNOWN_LABELS | {key})


def test_nothing_is_meant_by_an_empty_key() -> None:
    assert likely_meant("", names.WELL_KNOWN_LABELS) is None
    assert likely_meant("example.com/", names.WELL_KNOWN_LABELS) is None
