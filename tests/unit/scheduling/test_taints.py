"""What pods tolerate, and which taints of a node count. Docstrings cite 05 §13."""

from datetime import UTC, datetime

import msgspec
import pytest

from dovetail.api.objects import Toleration
from dovetail.scheduling.taints import (
    SOFT_TAINTS_TOLERATED,
    is_ephemeral,
    node_taints,
    template_taints,
    untolerated,
)
from tests.unit.scheduling.wire import claim, node, taint, toleration

NONE: frozenset[Toleration] = frozenset()


def tolerated(by: Toleration, text: str) -> bool:
    return untolerated(frozenset((by,)), [taint(text)]) is None


# -- tolerations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "text", "expected"),
    [
        (toleration(operator="Exists"), "key=value:NoSchedule", True),
        (toleration(operator="Exists", effect="NoExecute"), "key:NoSchedule", False),
        (toleration(operator="Exists", effect="NoExecute"), "key:NoExecute", True),
        (toleration("key", "Exists"), "key=anything:NoExecute", True),
        (toleration("key", "Exists"), "other:NoExecute", False),
        (toleration("key", "Equal", "value"), "key=value:NoSchedule", True),
        (toleration("key", "", "value"), "key=value:NoSchedule", True),
        (toleration("key", "Equal", "value"), "key=other:NoSchedule", False),
        (toleration("key"), "key:NoSchedule", True),
        (toleration("key", effect="NoSchedule"), "key:PreferNoSchedule", False),
        (toleration(value="value"), "key=value:NoSchedule", False),  # Equal without a key matches nothing
        (toleration("key", "Near", "value"), "key=value:NoSchedule", False),
        # Gt: the node has more than the pod insists on.
        (toleration("sla", "Gt", "900"), "sla=950:NoSchedule", True),
        (toleration("sla", "Gt", "950"), "sla=950:NoSchedule", False),
        (toleration("sla", "Lt", "900"), "sla=950:NoSchedule", False),
        (toleration("sla", "Lt", "1000"), "sla=950:NoSchedule", True),
        (toleration("sla", "Gt", "900"), "sla=high:NoSchedule", False),
        (toleration("sla", "Gt", "much"), "sla=950:NoSchedule", False),
        (toleration("sla", "Gt", "9.5"), "sla=950:NoSchedule", False),
        (toleration("sla", "Gt", "0900"), "sla=950:NoSchedule", False),
        (toleration("sla", "Gt", "900"), "sla=0950:NoSchedule", False),
        (toleration("sla", "Gt", "-1"), "sla=0:NoSchedule", True),
        (toleration("sla", "Gt", ""), "sla=950:NoSchedule", False),
        (toleration("sla", "Gt", "900"), "sla=9223372036854775808:NoSchedule", False),
        (toleration("sla", "Gt", "9", "NoExecute"), "sla=950:NoSchedule", False),
        (toleration("", "Gt", "900"), "sla=950:NoSchedule", False),
    ],
)
def test_what_a_toleration_matches(by: Toleration, text: str, expected: bool) -> None:
    assert tolerated(by, text) is expected


def test_every_taint_has_to_be_tolerated_and_the_first_that_is_not_is_named() -> None:
    taints = [taint("a:NoSchedule"), taint("b:NoExecute"), taint("c:PreferNoSchedule")]
    some = frozenset((toleration("a", "Exists"),))
    assert untolerated(some, taints) == taint("b:NoExecute")
    assert untolerated(some | {toleration("b", "Exists")}, taints) == taint("c:PreferNoSchedule")
    assert untolerated(frozenset((toleration(operator="Exists"),)), taints) is None
    assert untolerated(NONE, []) is None


def test_prefer_no_schedule_keeps_a_pod_away_until_relaxation_tolerates_it() -> None:
    """05 §13.22."""
    soft = taint("spot:PreferNoSchedule")
    assert untolerated(NONE, [soft]) == soft
    assert untolerated(NONE | {SOFT_TAINTS_TOLERATED}, [soft]) is None
    assert untolerated(NONE | {SOFT_TAINTS_TOLERATED}, [soft, taint("spot:NoSchedule")]) == taint("spot:NoSchedule")


# -- nodes -------------------------------------------------------------------------------------------------------------


def texts(taints: object) -> list[str]:
    assert isinstance(taints, tuple)
    return [f"{each.key}:{each.effect}" for each in taints]


def test_a_startup_taint_is_ignored_before_initialization_and_obeyed_after() -> None:
    """05 §13.20."""
    owner = claim("own:NoSchedule", startup=("boot=1:NoSchedule",))
    taints = ("own:NoSchedule", "boot=other:NoSchedule")
    assert texts(node_taints(node(*taints, initialized=False), owner)) == ["own:NoSchedule"]
    assert texts(node_taints(node(*taints), owner)) == ["boot:NoSchedule", "own:NoSchedule"]


def test_a_startup_taint_of_another_effect_is_another_taint() -> None:
    """05 §13.20."""
    owner = claim(startup=("boot:NoSchedule",))
    assert texts(node_taints(node("boot:NoExecute", initialized=False), owner)) == ["boot:NoExecute"]


@pytest.mark.parametrize(
    "text",
    [
        "node.kubernetes.io/not-ready:NoExecute",
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "karpenter.sh/unregistered:NoExecute",
        "readiness.k8s.io/gpu:NoSchedule",
    ],
)
def test_taints_of_a_starting_node_are_ignored_until_it_is_initialized(text: str) -> None:
    """05 §13.21."""
    assert is_ephemeral(taint(text))
    assert node_taints(node(text, initialized=False), claim()) == ()
    assert len(node_taints(node(text), claim())) == 1
    assert len(node_taints(node(text, initialized=False), None)) == 1  # nobody waits for a node that is not managed


@pytest.mark.parametrize("text", ["node.kubernetes.io/unreachable:NoExecute", "karpenter.sh/disrupted:NoSchedule"])
def test_other_taints_count_at_all_times(text: str) -> None:
    assert not is_ephemeral(taint(text))
    assert len(node_taints(node(text, initialized=False), claim())) == 1


def test_before_registration_the_claims_taints_count() -> None:
    owner = claim("own:NoSchedule", startup=("boot:NoSchedule",))
    coming = node("karpenter.sh/unregistered:NoExecute", "kubelet:NoSchedule", registered=False, initialized=False)
    assert texts(node_taints(coming, owner)) == ["own:NoSchedule"]
    assert texts(node_taints(None, owner)) == ["own:NoSchedule"]


def test_startup_taints_do_not_count_on_new_nodes_of_a_claim_or_template() -> None:
    """05 §13.23."""
    assert node_taints(None, claim(startup=("boot:NoSchedule",))) == ()
    both = claim("boot:NoSchedule", startup=("boot:NoSchedule",))
    assert node_taints(None, both) == ()
    assert texts(template_taints([taint("own:NoSchedule")])) == ["own:NoSchedule"]


def test_the_sign_of_a_candidate_is_invisible() -> None:
    """05 §13.24."""
    marked = node("karpenter.sh/candidate:PreferNoSchedule", "own:NoSchedule")
    for owner in (claim(), None):
        assert node_taints(marked, owner) == node_taints(node("own:NoSchedule"), owner)
    # Only that one: other effects, and the taint of S3, are somebody's will.
    other = ("karpenter.sh/candidate:NoSchedule", "karpenter.sh/disrupted:NoSchedule")
    assert texts(node_taints(node(*other), claim())) == list(other)


def test_equal_taints_are_equal_values_whatever_their_order() -> None:
    assert node_taints(node("b:NoSchedule", "a=1:NoExecute"), None) == node_taints(
        node("a=1:NoExecute", "b:NoSchedule", "b:NoSchedule"), None
    )
    timed = msgspec.structs.replace(taint("b:NoSchedule"), time_added=datetime(2026, 3, 1, tzinfo=UTC))
    assert {template_taints([timed]): 1}[node_taints(node("b:NoSchedule"), None)] == 1
