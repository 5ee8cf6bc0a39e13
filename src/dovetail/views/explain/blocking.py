"""Who blocks most: the owners of what keeps nodes that should go, with the number of these nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator

from dovetail.model.refs import Ref
from dovetail.rules.nodes import ReasonVerdict
from dovetail.rules.states import IN_DISRUPTION, NodeState
from dovetail.rules.verdict import Rule, Verdict
from dovetail.views.assessment import Assessment, NodeAssessment
from dovetail.views.explain.data import View
from dovetail.views.explain.workloads import workload_of

_OF_POOLS = frozenset({Rule.BUDGET, Rule.NODEPOOL, Rule.SCALE_OUT, Rule.CONSOLIDATE_AFTER})


class BlockerView(View, frozen=True):
    """Who can end it, which rule that is, and how many nodes it keeps that should go."""

    owner: Ref
    rule: str
    nodes: int


def who_blocks(assessment: Assessment, nodes: Iterable[NodeAssessment]) -> tuple[BlockerView, ...]:
    """The owners that block most nodes first. A node counts for each of those that block it."""
    totals: Counter[tuple[Ref, str]] = Counter()
    for node in nodes:
        totals.update({_owner(assessment, node, verdict) for verdict in _blockers(assessment, node)})
    ranked = sorted(totals.items(), key=lambda entry: (-entry[1], str(entry[0][0]), entry[0][1]))
    return tuple(BlockerView(owner, rule, number) for (owner, rule), number in ranked)


def _blockers(assessment: Assessment, node: NodeAssessment) -> Iterator[Verdict]:
    """What keeps a node that has a reason to go, or its drain."""
    if node.state is NodeState.DRAINING:
        yield from (verdict for _, verdict in node.limiting if not verdict.allowed)
    elif node.state not in IN_DISRUPTION:
        wanted = [verdict for verdict in assessment.reasons(node).values() if verdict.wanted]
        if not any(verdict.allowed for verdict in wanted):
            for reason_verdict in wanted:
                yield from _refusals(reason_verdict)


def _refusals(reason_verdict: ReasonVerdict) -> Iterator[Verdict]:
    for verdict in reason_verdict.verdicts:
        if not verdict.allowed:
            yield from verdict.blockers or (verdict,)


def _owner(assessment: Assessment, node: NodeAssessment, verdict: Verdict) -> tuple[Ref, str]:
    """A PodDisruptionBudget, the workload of a pod, the NodePool, or the object that the rule is about."""
    if verdict.rule in _OF_POOLS or verdict.field:
        return Ref("NodePool", "", node.member.pool), verdict.rule
    pod = next((pod for pod in node.member.pods if pod.object == verdict.object), None)
    if pod is None:
        return verdict.object, verdict.rule
    budgets = assessment.pdbs.matching(pod) if verdict.rule is Rule.POD_DISRUPTION_BUDGET else ()
    return (budgets[0].object if budgets else workload_of(pod)), verdict.rule
