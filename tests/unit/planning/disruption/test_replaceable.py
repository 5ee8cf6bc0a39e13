"""The rule `replacement`: can the pods of a node go elsewhere, or can a new node be had?"""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.names import Reason
from dovetail.planning.disruption.board import DisruptionBoard, PoolFacts
from dovetail.planning.disruption.replaceable import replacement_verdicts
from dovetail.rules.verdict import Verdict
from dovetail.scheduling.requirements import of_labels
from tests.unit.planning.disruption.boards import AT, board, pod, used
from tests.unit.scheduling.problems import machine, pool

LARGE = machine("large", 4)


def drifted(*pods: Any, others: Any = (), **fields: Any) -> DisruptionBoard:
    old = used("old", *pods)
    return board(old, *others, reasons={Reason.DRIFTED: [old]}, **{"types": [LARGE], **fields})


def ask(of: DisruptionBoard, **options: Any) -> Verdict:
    backoffs = options.pop("backoffs", {})
    return replacement_verdicts(of, backoffs, **options)["old", Reason.DRIFTED]


def test_a_node_without_pods_needs_no_replacement() -> None:
    assert ask(drifted(types=[])).message == "it needs no replacement: no pod needs another place"


def test_pods_that_fit_on_other_nodes() -> None:
    verdict = ask(drifted(pod("a"), pod("b"), others=[used("other")], types=[]))
    assert (verdict.allowed, verdict.message) == (True, "its 2 pods fit on other nodes")


def test_pods_that_need_a_new_node() -> None:
    verdict = ask(drifted(pod("a")))
    assert (verdict.allowed, verdict.message) == (True, "its pod fits with 1 new node of NodePool default")


def test_what_is_not_known_blocks_nothing() -> None:
    for types in ([LARGE], []):
        verdict = ask(drifted(pod("a"), types=types), types_known=False)
        assert (verdict.allowed, "not known" in verdict.message) == (True, True)
    assert ask(drifted(pod("a"), others=[used("other")]), types_known=False).message == "its pod fits on other nodes"


def test_limits_are_named_with_their_amounts() -> None:
    limited = pool(limits={"cpu": 4000})
    verdict = ask(drifted(pod("a"), others=[used("other", pod("b", "4"))], pools=[limited]))
    assert (verdict.allowed, verdict.until, verdict.transient) == (False, None, False)
    assert verdict.object.kind == "Pod"
    assert verdict.message == (
        "shop/a fits on no other node, and NodePool default can make none: its limits leave no room "
        "(limits.cpu: 8 of 4 in use, a new node takes at least 4)"
    )
    assert (verdict.details, verdict.field) == ("1 node: too little cpu", "spec.limits")


def test_requirements_that_no_type_meets_are_the_field_to_correct() -> None:
    nowhere = pool(requirements=of_labels({"topology.kubernetes.io/zone": "nowhere"}))
    verdict = ask(drifted(pod("a"), pools=[nowhere]))
    assert verdict.message.endswith("NodePool default can make none: no instance type meets its requirements")
    assert verdict.field == "spec.template.spec.requirements"


def test_a_pool_that_is_not_ready_is_named_if_it_would_have_to_make_a_node() -> None:
    broken = [PoolFacts(name="default", not_ready="it is not Ready: no node class")]
    verdict = ask(drifted(pod("a"), types=[], facts=broken))
    assert (verdict.allowed, str(verdict.object)) == (False, "NodePool/default")
    assert verdict.message == "NodePool default makes no new nodes: it is not Ready: no node class"
    elsewhere = drifted(pod("a"), others=[used("other")], types=[], facts=broken)
    assert ask(elsewhere).message == "its pod fits on other nodes"


def test_a_pool_in_backoff_is_tried_again_at_an_instant() -> None:
    again_at = AT + timedelta(minutes=1)
    verdict = ask(drifted(pod("a")), backoffs={"default": again_at})
    assert (verdict.allowed, verdict.until) == (False, again_at)
    still_there = ask(drifted(pod("a")), backoffs={"default": None})
    assert (still_there.allowed, still_there.until, still_there.transient) == (False, None, True)
    assert ask(drifted(), backoffs={"default": again_at}).allowed  # it needs no replacement


@pytest.mark.parametrize(
    ("facts", "allowed", "message"),
    [
        ({"claims": 2}, True, "1 new node of NodePool default replaces it"),
        ({"claims": 3}, False, "NodePool default has 3 nodes of 2, and removes the surplus first"),
        (
            {"claims": 2, "node_limit": 2, "free_claims": 0},
            False,
            "NodePool default: its limit of nodes is reached (limits.nodes: 2 of 2 in use), "
            "and the replacement comes first",
        ),
    ],
)
def test_pools_with_replicas(facts: dict[str, Any], allowed: bool, message: str) -> None:
    verdict = ask(drifted(pod("a"), facts=[PoolFacts(name="default", replicas=2, **facts)]))
    assert (verdict.allowed, verdict.message) == (allowed, message)
