"""Are pods apart that must be, together that must be, and no more on a host than their spread wants (05 §7)?"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dovetail.scheduling.placement import (
    BoundPod,
    NewClaim,
    NodeFilter,
    NodeInfo,
    PlacementRequest,
    PodInfo,
    Solution,
    TopologyRule,
    TopologyRuleKind,
)
from tests.scheduling.plain import HOST, meets, node_labels, tolerated


class Spot(NamedTuple):
    """A pod, and where it is or will be. `node`: that of a pod on a node that is there."""

    pod: PodInfo | BoundPod
    place: str
    node: NodeInfo | None
    claim: NewClaim | None

    def domains(self, key: str) -> frozenset[str] | None:
        """All in which it may turn out to be; None: nobody knows yet."""
        if self.node is not None:
            labels = node_labels(self.node)
            return frozenset((labels[key],)) if key in labels else frozenset()
        if key == HOST:
            return frozenset((self.place,))
        assert self.claim is not None
        requirement = self.claim.requirements.get(key)
        return None if requirement.complement else requirement.values


def spots(problem: PlacementRequest, solution: Solution) -> list[Spot]:
    """Of all pods that have a place, new ones first."""
    return [*_placed(problem, solution), *_bound(problem)]


def _placed(problem: PlacementRequest, solution: Solution) -> Iterator[Spot]:
    pods, nodes = {pod.uid: pod for pod in problem.pods}, {node.name: node for node in problem.nodes}
    for name, uids in solution.existing.items():
        yield from (Spot(pods[uid], name, nodes[name], None) for uid in uids)
    for index, claim in enumerate(solution.new_claims):
        yield from (Spot(pods[uid], f"new {index}", None, claim) for uid in claim.pods)


def _bound(problem: PlacementRequest) -> Iterator[Spot]:
    """Those that count, and stay."""
    moving = {pod.uid for pod in problem.pods}
    for node in problem.nodes:
        yield from (Spot(pod, node.name, node, None) for pod in node.pods if pod.counts and pod.uid not in moving)


def selects(rule: TopologyRule, pod: PodInfo | BoundPod) -> bool:
    """Of namespaces and labels; a rule without a selector is about nobody."""
    if rule.selector is None or (rule.namespaces is not None and pod.namespace not in rule.namespaces):
        return False
    if any(pod.labels.get(key) != value for key, value in rule.selector.labels):
        return False
    for each in rule.selector.expressions:
        value = pod.labels.get(each.key)
        wanted = {
            "In": value in each.values,
            "NotIn": value not in each.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not wanted[each.operator]:
            return False
    return True


def required(spot: Spot, kind: TopologyRuleKind) -> list[TopologyRule]:
    if isinstance(spot.pod, PodInfo):
        return [rule for rule in spot.pod.rules if rule.kind is kind]
    return list(spot.pod.apart) if kind is TopologyRuleKind.APART else []


def _is_new(spot: Spot) -> bool:
    return isinstance(spot.pod, PodInfo)


def not_apart(spots: Sequence[Spot]) -> Iterator[str]:
    """Nobody new is with somebody that it must not be with, nor with somebody that must not be with it."""
    for carrier in spots:
        for rule in required(carrier, TopologyRuleKind.APART):
            mine = carrier.domains(rule.key)
            if _is_new(carrier) and mine is not None and not mine:
                yield f"pod {carrier.pod.uid} is in no domain of {rule.key}"
            for other in spots:
                if other is carrier or not (_is_new(carrier) or _is_new(other)) or not selects(rule, other.pod):
                    continue
                theirs = other.domains(rule.key)
                if mine is not None and theirs is not None and mine & theirs:
                    yield f"pods {carrier.pod.uid} and {other.pod.uid} are not apart ({rule.key})"


def not_together(spots: Sequence[Spot], failed: Sequence[PodInfo]) -> Iterator[str]:
    """Somebody selected is in each domain; a pod that failed late may have been the one."""
    for spot in spots:
        for rule in required(spot, TopologyRuleKind.TOGETHER):
            if any(selects(rule, pod) for pod in failed):
                continue
            pinned = {
                domain
                for other in spots
                if selects(rule, other.pod) and (theirs := other.domains(rule.key)) is not None and len(theirs) == 1
                for domain in theirs
            }
            mine = spot.domains(rule.key)
            if mine is None or not mine or not mine <= pinned:
                yield f"pod {spot.pod.uid} is with nobody that it wants to be with ({rule.key})"


def crowded(spots: Sequence[Spot]) -> Iterator[str]:
    """On one host no more than the skew, where only pods with this rule have come (05 §7.2)."""
    rules = dict.fromkeys(
        rule for spot in spots for rule in required(spot, TopologyRuleKind.SPREAD) if rule.key == HOST
    )
    for rule in rules:
        counted = [spot for spot in spots if selects(rule, spot.pod) and _looks_at(rule.nodes, spot)]
        hosts = {next(iter(spot.domains(HOST) or ()), "") for spot in counted}
        for host in sorted(hosts):
            there = [spot for spot in counted if (spot.domains(HOST) or frozenset()) == frozenset((host,))]
            new = [spot for spot in there if _is_new(spot)]
            if (
                new
                and all(rule in required(spot, TopologyRuleKind.SPREAD) for spot in new)
                and len(there) > rule.max_skew
            ):
                yield f"{len(there)} pods on {host}, where the spread wants {rule.max_skew}"


def _looks_at(filter_: NodeFilter, spot: Spot) -> bool:
    """What a claim was like when a pod came is not known any more: there, only filters that pass everything count."""
    if spot.node is None:
        return filter_.tolerations is None and any(not len(each) for each in filter_.alternatives)
    labels = node_labels(spot.node)
    if filter_.tolerations is not None and not all(tolerated(filter_.tolerations, each) for each in spot.node.taints):
        return False
    return any(meets(labels, each) for each in filter_.alternatives)
