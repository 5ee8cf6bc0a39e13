"""What is there to say about one node: every verdict, its pods, what happened to it, and why it is left alone?"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from dovetail.model.problem import Problem
from dovetail.model.snapshot import ClusterNode
from dovetail.views.explain import DeletionView, Explanation, NodeView, PodView, VerdictView, View

_POD: Final = re.compile(r"Pod/([^/\s]+)/")

MaySee: TypeAlias = Callable[[str], bool]


class Decided(View, frozen=True, kw_only=True):
    """A decision of the controller; `rejected`: why it was not carried out after all."""

    at: datetime
    text: str
    nodes: tuple[str, ...]
    rejected: str = ""


class Step(View, frozen=True):
    """Something that has happened to a node."""

    at: datetime
    what: str
    message: str


class Details(View, frozen=True, kw_only=True):
    """Everything about one node."""

    at: datetime
    key: str
    node: NodeView
    pods: tuple[PodView, ...]
    hidden_pods: int
    """Pods in namespaces that the reader may not list."""
    history: tuple[Step, ...]
    """The latest first."""
    left_alone: str | None
    commands: tuple[str, ...]
    problems: tuple[Problem, ...]


def make_details(
    member: ClusterNode,
    explanation: Explanation,
    *,
    decisions: Sequence[Decided] = (),
    left_alone: str | None = None,
    commands: Sequence[str] = (),
    may_see: MaySee | None = None,
) -> Details:
    """What the explanation says of this node and its pods. Raises LookupError if it says nothing."""
    claim = None if member.claim is None else member.claim.name
    view = next((node for node in explanation.nodes if (node.name, node.node_claim) == (member.name, claim)), None)
    if view is None:
        raise LookupError(member.object)
    there = {pod.object for pod in member.pods}
    pods = tuple(pod for pod in explanation.pods if f"Pod/{pod.namespace}/{pod.name}" in there)
    named = {member.object, *there, *(() if claim is None else (f"NodeClaim/{claim}",)), f"NodePool/{member.pool}"}
    details = Details(
        at=explanation.at,
        key=member.object,
        node=view,
        pods=pods,
        hidden_pods=0,
        history=_history(member, decisions if may_see is None else redacted_decisions(decisions)),
        left_alone=left_alone,
        commands=tuple(commands),
        problems=tuple(problem for problem in explanation.problems if problem.object in named),
    )
    return details if may_see is None else _redacted_details(details, may_see)


def _history(member: ClusterNode, decisions: Sequence[Decided]) -> tuple[Step, ...]:
    """What the controller decided, and what the objects themselves remember."""
    steps = [Step(each.at, _verdict_on(each), each.text) for each in decisions if member.name in each.nodes]
    for part in (member.claim, member.node):
        if part is not None and part.created_at is not None:
            steps.append(Step(part.created_at, "created", part.object))
        if part is not None and part.deleted_at is not None:
            steps.append(Step(part.deleted_at, "deleted", f"{part.object} is being deleted"))
    for type_, condition in ({} if member.claim is None else member.claim.conditions).items():
        if condition.last_transition_time is not None:
            reason = condition.message or (condition.reason if condition.reason != type_ else "")
            steps.append(Step(condition.last_transition_time, f"{type_} {condition.status}", reason))
    return tuple(sorted(steps, key=lambda step: (step.at, step.what), reverse=True))


def _verdict_on(decided: Decided) -> str:
    return f"rejected: {decided.rejected}" if decided.rejected else "decided"


def _redacted_details(details: Details, may_see: MaySee) -> Details:
    node = details.node
    reasons = tuple(
        msgspec.structs.replace(reason, verdicts=_redacted_verdicts(reason.verdicts, may_see))
        for reason in node.reasons
    )
    seen = tuple(pod for pod in details.pods if may_see(pod.namespace))
    forced = tuple(_redacted_deletion(deletion, may_see) for deletion in node.forced_deletions)
    told = details.left_alone
    return msgspec.structs.replace(
        details,
        node=msgspec.structs.replace(node, reasons=reasons, forced_deletions=forced),
        pods=seen,
        hidden_pods=len(details.pods) - len(seen),
        # It is a sentence, and may name any pod: then only the reason before the first colon is told.
        left_alone=None if told is None else told if _names_only(told, may_see) else told.partition(":")[0],
        problems=tuple(problem for problem in details.problems if may_read(problem.object, may_see)),
    )


def redacted_decisions(decisions: Sequence[Decided]) -> tuple[Decided, ...]:
    """Why a command was rejected is a sentence, and may name any pod (R49)."""
    hidden = "the cause is told to those who may list pods in all namespaces"
    return tuple(msgspec.structs.replace(each, rejected=hidden) if each.rejected else each for each in decisions)


def _redacted_verdicts(verdicts: Sequence[VerdictView], may_see: MaySee) -> tuple[VerdictView, ...]:
    return tuple(
        msgspec.structs.replace(verdict, blockers=_redacted_verdicts(verdict.blockers, may_see))
        if may_read(verdict.object, may_see)
        else msgspec.structs.replace(verdict, object="Pod", message="a pod in a namespace that you may not list")
        for verdict in verdicts
    )


def _redacted_deletion(deletion: DeletionView, may_see: MaySee) -> DeletionView:
    return deletion if may_read(deletion.pod, may_see) else msgspec.structs.replace(deletion, pod="Pod")


def _names_only(text: str, may_see: MaySee) -> bool:
    """Whether a sentence names no pod but those that may be seen, as far as that can be told from it."""
    return "od" not in text or (bool(_POD.search(text)) and all(may_see(found[1]) for found in _POD.finditer(text)))


def may_read(object_: str, may_see: MaySee) -> bool:
    """Objects without a namespace are everybody's who may see the board."""
    parts = object_.split("/", 2)
    return len(parts) < 3 or may_see(parts[1])
