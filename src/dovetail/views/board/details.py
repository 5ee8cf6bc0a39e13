"""The details of one node: every verdict, its pods, its history, and why it stays."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET

from dovetail.model.finding import Finding
from dovetail.model.refs import MaySee, Ref, Sentence
from dovetail.model.snapshot import ClusterNode
from dovetail.views.explain.data import View
from dovetail.views.explain.verdicts import Explanation, NodeView, PodView, VerdictView

# Shown instead of a pod whose name is withheld.
A_POD: Final = Ref("Pod")


class DecisionView(View, frozen=True, kw_only=True):
    """A decision of the controller; `rejected`: why validation rejected it."""

    at: datetime
    text: str
    nodes: tuple[str, ...]
    rejected: Sentence = Sentence()


class HistoryEntry(View, frozen=True):
    """Something that happened to a node."""

    at: datetime
    what: Sentence
    message: str


class NodeDetails(View, frozen=True, kw_only=True):
    """Everything about one node."""

    at: datetime
    key: str
    node: NodeView
    pods: tuple[PodView, ...]
    hidden_pods: int
    """Pods in namespaces that the reader may not list."""
    history: tuple[HistoryEntry, ...]
    """The latest first."""
    left_alone: Sentence | None
    commands: tuple[str, ...]
    problems: tuple[Finding, ...]


def make_details(
    member: ClusterNode,
    explanation: Explanation,
    *,
    decisions: Sequence[DecisionView] = (),
    left_alone: Sentence | None = None,
    commands: Sequence[str] = (),
    may_see: MaySee | None = None,
) -> NodeDetails:
    """The part of the explanation about this node and its pods. Raises LookupError if there is none."""
    claim = None if member.claim is None else member.claim.name
    view = next((node for node in explanation.nodes if (node.name, node.node_claim) == (member.name, claim)), None)
    if view is None:
        raise LookupError(str(member.object))
    there = {pod.object for pod in member.pods}
    pods = tuple(pod for pod in explanation.pods if Ref("Pod", pod.namespace, pod.name) in there)
    named = {
        member.object,
        *there,
        *(() if claim is None else (Ref("NodeClaim", "", claim),)),
        Ref("NodePool", "", member.pool),
    }
    details = NodeDetails(
        at=explanation.at,
        key=str(member.object),
        node=view,
        pods=pods,
        hidden_pods=0,
        history=_history(member, decisions if may_see is None else redacted_decisions(decisions, may_see)),
        left_alone=left_alone,
        commands=tuple(commands),
        problems=tuple(problem for problem in explanation.problems if problem.object in named),
    )
    return details if may_see is None else _redacted_details(details, may_see)


def _history(member: ClusterNode, decisions: Sequence[DecisionView]) -> tuple[HistoryEntry, ...]:
    """Decisions of the controller, and what the objects record."""
    steps = [
        HistoryEntry(
            decision.at,
            Sentence("rejected: ", decision.rejected) if decision.rejected else Sentence("decided"),
            decision.text,
        )
        for decision in decisions
        if member.name in decision.nodes
    ]
    for part in (member.claim, member.node):
        if part is not None and part.created_at is not None:
            steps.append(HistoryEntry(part.created_at, Sentence("created"), str(part.object)))
        if part is not None and part.deleted_at is not None:
            steps.append(HistoryEntry(part.deleted_at, Sentence("deleted"), f"{part.object} is being deleted"))
    for type_, condition in ({} if member.claim is None else member.claim.conditions).items():
        if condition.last_transition_time is not None:
            reason = condition.message or (condition.reason if condition.reason != type_ else "")
            steps.append(HistoryEntry(condition.last_transition_time, Sentence(f"{type_} {condition.status}"), reason))
    return tuple(sorted(steps, key=lambda step: (step.at, str(step.what)), reverse=True))


def _redacted_details(details: NodeDetails, may_see: MaySee) -> NodeDetails:
    node = details.node
    reasons = tuple(
        msgspec.structs.replace(reason, verdicts=_redacted_verdicts(reason.verdicts, may_see))
        for reason in node.reasons
    )
    seen = tuple(pod for pod in details.pods if may_see(pod.namespace))
    forced = tuple(
        deletion if deletion.pod.is_seen_by(may_see) else msgspec.structs.replace(deletion, pod=A_POD)
        for deletion in node.forced_deletions
    )
    answer = node.answer
    if answer is not UNSET:
        answer = msgspec.structs.replace(
            answer, cause=answer.cause.redacted(may_see), next_step=answer.next_step.redacted(may_see)
        )
    return msgspec.structs.replace(
        details,
        node=msgspec.structs.replace(node, reasons=reasons, forced_deletions=forced, answer=answer),
        pods=seen,
        hidden_pods=len(details.pods) - len(seen),
        left_alone=None if details.left_alone is None else details.left_alone.redacted(may_see),
        problems=redacted_problems(details.problems, may_see),
    )


def redacted_decisions(decisions: Iterable[DecisionView], may_see: MaySee) -> tuple[DecisionView, ...]:
    """Without names of hidden pods in the reasons for rejection (R49)."""
    return tuple(
        msgspec.structs.replace(decision, rejected=decision.rejected.redacted(may_see))
        if decision.rejected
        else decision
        for decision in decisions
    )


def redacted_problems(problems: Iterable[Finding], may_see: MaySee) -> tuple[Finding, ...]:
    """Problems of objects that the reader may see, without the names of hidden pods."""
    return tuple(
        msgspec.structs.replace(problem, message=problem.message.redacted(may_see))
        if isinstance(problem.message, Sentence)
        else problem
        for problem in problems
        if problem.object.is_seen_by(may_see)
    )


def _redacted_verdicts(verdicts: Sequence[VerdictView], may_see: MaySee) -> tuple[VerdictView, ...]:
    return tuple(
        msgspec.structs.replace(verdict, blockers=_redacted_verdicts(verdict.blockers, may_see))
        if verdict.object.is_seen_by(may_see)
        else msgspec.structs.replace(verdict, object=A_POD, message=verdict.object.hidden(), details="")
        for verdict in verdicts
    )
