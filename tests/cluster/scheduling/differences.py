"""Where our engine answers otherwise than the kube-scheduler, on purpose. docs/scheduling-agreement.md says why.

An entry does not excuse a pod for what it looks like. It changes the question so that just this difference is taken
out of it, and a node is excused only if our engine then says of it what the scheduler says.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.scheduling.node_affinity import ANYWHERE
from dovetail.scheduling.placement import BoundPod, NodeInfo, PlacementRequest, PodInfo, TopologyRule, TopologyRuleKind
from dovetail.scheduling.requirements import Requirement, Requirements
from dovetail.values.selector import Expression, Selector
from tests.cluster.scheduling.world import Question

replace = msgspec.structs.replace
Fitting = Callable[[PlacementRequest, PodInfo], Iterable[str]]

_HOST: Final = "example.com/any-host"
_ENDING: Final = "example.com/ending"


class Difference(msgspec.Struct, frozen=True):
    """`undone`: the question without it, as far as one node goes; of several questions one yes is enough."""

    name: str
    undone: Callable[[Question, NodeInfo], Iterable[Question]]


def differing(question: Question, ours: frozenset[str], theirs: frozenset[str], fitting: Fitting) -> dict[str, str]:
    """Of each node of which the two do not say the same, the names of the differences that are why; empty: none is."""
    return {node: _explanation(question, node, node in theirs, fitting) for node in sorted(ours ^ theirs)}


def _explanation(question: Question, name: str, wanted: bool, fitting: Fitting) -> str:
    """The fewest that are enough."""
    for many in (1, 2):
        for chosen in combinations(DIFFERENCES, many):
            questions = [question]
            for each in chosen:
                questions = [undone for asked in questions for undone in each.undone(asked, _node(asked, name))]
            if any(name in fitting(asked.problem, asked.pod) for asked in questions) is wanted:
                return " and ".join(each.name for each in chosen)
    return ""


def _node(question: Question, name: str) -> NodeInfo:
    return next(node for node in question.problem.nodes if node.name == name)


def _ask(question: Question, pod: PodInfo, nodes: Iterable[NodeInfo]) -> Question:
    return Question(question.wire, pod, PlacementRequest(pods=(pod,), nodes=tuple(nodes)))


# -- the differences ---------------------------------------------------------------------------------------------------


def _hosts_can_be_added(question: Question, _: NodeInfo) -> Iterable[Question]:
    """With another name for the label, a host is a domain like any other."""
    pod = replace(
        question.pod,
        rules=tuple(
            replace(rule, key=_HOST)
            if (rule.kind, rule.key) == (TopologyRuleKind.SPREAD, names.HOSTNAME_LABEL)
            else rule
            for rule in question.pod.rules
        ),
    )
    nodes = (replace(node, labels={**node.labels, _HOST: node.name}) for node in question.problem.nodes)
    yield _ask(question, pod, nodes)


def _no_label_no_answer(question: Question, node: NodeInfo) -> Iterable[Question]:
    """Without rules to stay apart over labels that the node has not."""

    def kept(rules: tuple[TopologyRule, ...]) -> tuple[TopologyRule, ...]:
        return tuple(
            rule for rule in rules if rule.kind is not TopologyRuleKind.APART or rule.key in node.requirements()
        )

    def among(bound: BoundPod) -> BoundPod:
        return replace(bound, apart=kept(bound.apart))

    nodes = (replace(each, pods=tuple(map(among, each.pods))) for each in question.problem.nodes)
    yield _ask(question, replace(question.pod, rules=kept(question.pod.rules)), nodes)


def _overdrawn(question: Question, node: NodeInfo) -> Iterable[Question]:
    """With nothing left of what there is too much of."""
    clipped = replace(node, requested=node.requested & node.allocatable)
    nodes = (clipped if each is node else each for each in question.problem.nodes)
    yield _ask(question, question.pod, nodes)


def _terms_before_preferences(question: Question, _: NodeInfo) -> Iterable[Question]:
    """With each of the terms as the only one."""
    affinity = question.pod.affinity
    for index in range(max(1, len(affinity.terms))):
        one = replace(affinity, terms=affinity.terms[index : index + 1])
        yield _ask(question, replace(question.pod, affinity=one), question.problem.nodes)


def _domains_in_reach(question: Question, node: NodeInfo) -> Iterable[Question]:
    """Without affinity, if the node is like it: then all domains are in reach."""
    is_like_it = any(map(node.requirements().compatible, question.pod.affinity.alternatives()))
    pod = replace(question.pod, affinity=ANYWHERE) if is_like_it else question.pod
    yield _ask(question, pod, question.problem.nodes)


def _ending_pods(question: Question, _: NodeInfo) -> Iterable[Question]:
    """With pods that end for all rules but spreads."""

    def among(bound: BoundPod) -> BoundPod:
        return bound if bound.counts else replace(bound, counts=True, labels={**bound.labels, _ENDING: ""})

    def lasting(rule: TopologyRule) -> TopologyRule:
        if rule.kind is not TopologyRuleKind.SPREAD or rule.selector is None:
            return rule
        expressions = (*rule.selector.expressions, Expression(_ENDING, "DoesNotExist", frozenset()))
        return replace(rule, selector=Selector(rule.selector.labels, expressions))

    nodes = (replace(node, pods=tuple(map(among, node.pods))) for node in question.problem.nodes)
    yield _ask(question, replace(question.pod, rules=tuple(map(lasting, question.pod.rules))), nodes)


def _each_key_alone(question: Question, _: NodeInfo) -> Iterable[Question]:
    """With spreads that look only at nodes that have the labels of all of them."""
    spreads = [rule for rule in question.pod.rules if rule.kind is TopologyRuleKind.SPREAD]
    labelled = Requirements(Requirement(rule.key) for rule in spreads)

    def over_all(rule: TopologyRule) -> TopologyRule:
        alternatives = tuple(each & labelled for each in rule.nodes.alternatives)
        return replace(rule, nodes=replace(rule.nodes, alternatives=alternatives)) if rule in spreads else rule

    pod = replace(question.pod, rules=tuple(map(over_all, question.pod.rules)))
    yield _ask(question, pod, question.problem.nodes)


DIFFERENCES: Final = (
    Difference("another host is always possible", _hosts_can_be_added),
    Difference("a node without the label of an anti-affinity", _no_label_no_answer),
    Difference("an overcommitted node takes no pods", _overdrawn),
    Difference("required terms before preferences", _terms_before_preferences),
    Difference("domains that the pod selects", _domains_in_reach),
    Difference("terminating pods do not count", _ending_pods),
    Difference("each spread considers only its own label", _each_key_alone),
)
