"""The states S1–S6 of a node, derived from objects alone (R21, R24)."""

from enum import StrEnum
from typing import Final

from dovetail.api import objects
from dovetail.api.names import BESIDE_DISRUPTED_TAINT, CANDIDATE_TAINT, DISRUPTED_TAINT, ConditionType, TaintEffect
from dovetail.model.node_records import ClaimRecord, NodeRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.reasons import MARKED

DISRUPTED: Final = objects.Taint(key=DISRUPTED_TAINT, effect=TaintEffect.NO_SCHEDULE)
# In drive, where Karpenter removes the other one (10 §I.4).
BESIDE_DISRUPTED: Final = objects.Taint(key=BESIDE_DISRUPTED_TAINT, effect=TaintEffect.NO_SCHEDULE)


class NodeState(StrEnum):
    """S1–S3 can go back to S1; S4 and later cannot."""

    STEADY = "S1"
    CANDIDATE = "S2"
    DISRUPTING = "S3"
    DRAINING = "S4"
    TERMINATING = "S5"
    CLEANUP = "S6"


MEANING = {
    NodeState.STEADY: "steady",
    NodeState.CANDIDATE: "candidate",
    NodeState.DISRUPTING: "disrupting",
    NodeState.DRAINING: "draining",
    NodeState.TERMINATING: "instance terminating",
    NodeState.CLEANUP: "cleanup",
}

# Nodes in these states count for every budget (R26).
IN_DISRUPTION = frozenset({NodeState.DISRUPTING, NodeState.DRAINING, NodeState.TERMINATING, NodeState.CLEANUP})


def state_of(member: ClusterNode) -> NodeState:
    """The furthest state whose marks are all present."""
    claim, node = member.claim, member.node
    if claim is not None and claim.is_true(ConditionType.INSTANCE_TERMINATING):
        if node is not None:
            return NodeState.TERMINATING
        if member.deleting:
            return NodeState.CLEANUP
    if member.deleting:
        return NodeState.DRAINING
    if claim is None or node is None or not (node.registered or claim.is_true(ConditionType.REGISTERED)):
        return NodeState.STEADY  # not registered yet, so there is nothing to disrupt (R21)
    if _is_disrupting(claim, node):
        return NodeState.DISRUPTING
    if any(map(claim.is_true, MARKED.values())) or is_tainted_candidate(member):
        return NodeState.CANDIDATE
    return NodeState.STEADY


def _is_disrupting(claim: ClaimRecord, node: NodeRecord) -> bool:
    """Whether the marks of S3 are there: those of the controller of the cluster, or those of drive."""
    if claim.is_true(ConditionType.DISRUPTION_REASON) and has_disrupted_taint(node):
        return True
    return claim.awaits is not None and has_disrupted_taint(node, BESIDE_DISRUPTED)


def is_tainted_candidate(member: ClusterNode) -> bool:
    """Whether the node has the candidate taint: it has a reason, and no command yet (R22)."""
    return member.node is not None and (CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE) in member.node.taints


def has_disrupted_taint(node: NodeRecord | objects.Node, disrupted: objects.Taint = DISRUPTED) -> bool:
    """Whether the node takes no new pods because it is being disrupted (R23). `disrupted`: by whom."""
    if isinstance(node, NodeRecord):
        return (disrupted.key, disrupted.effect) in node.taints
    return any(taint.matches(disrupted) for taint in node.spec.taints)
