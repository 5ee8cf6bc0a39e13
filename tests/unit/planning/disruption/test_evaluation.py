"""The reasons of a node, which are cached until time changes them."""

from datetime import timedelta

from dovetail.api.names import Reason
from dovetail.planning.disruption.evaluation import NodeEvaluator
from dovetail.rules.states import state_of
from dovetail.state.nodes import ManagedNode, NodeKey, NodeKeyKind
from dovetail.state.protections import PodProtections
from tests.harness import builders


def test_a_cached_node_has_a_new_reason_from_its_instant_on() -> None:
    pool = builders.pool(graceful_expire_after="1h")
    member = builders.member(builders.claim(expire_after="2h"), builders.node(), [builders.pod()])
    members = {NodeKey(NodeKeyKind.NODE, "node-1"): ManagedNode(None, None, True, member, state_of(member))}
    evaluator, created = NodeEvaluator(PodProtections()), builders.at(builders.CREATED)

    def wanted(after: timedelta) -> tuple[Reason, ...]:
        (found,) = evaluator.at(created + after, members, {"default": pool})
        return found.wanted

    hour = timedelta(hours=1)
    assert wanted(hour - timedelta(seconds=1)) == ()
    assert wanted(hour) == (Reason.EXPIRED,)
