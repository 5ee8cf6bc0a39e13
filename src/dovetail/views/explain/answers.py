"""The answer for a node in one sentence: why it stays or goes, since when, until when, and what to do next.

A node that waits goes without anybody's help: an instant comes, a budget is free again, a replacement is ready. A node
is stuck if somebody has to act.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from dovetail.api.names import DO_NOT_DISRUPT, ConditionType, Reason
from dovetail.model.refs import Redactable, Sentence
from dovetail.planning.node.drain import DrainAction, PodStep, drain_plan, tells_most
from dovetail.rules.nodes import ReasonVerdict
from dovetail.rules.reasons import DISRUPTION_REASONS, MARKED
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.rules.verdict import Rule, Verdict
from dovetail.values.timestamp import format_time
from dovetail.views.assessment import Assessment, NodeAssessment
from dovetail.views.explain.data import AnswerView


class NodeStanding(StrEnum):
    """What a node needs in order to go."""

    STEADY = "steady"  # it has no reason to go
    FREE = "free"  # nothing: it may go now
    WAITING = "waiting"  # time, or the end of something that is under way
    STUCK = "stuck"  # somebody


def answer(assessment: Assessment, node: NodeAssessment, judged: Sequence[ReasonVerdict]) -> AnswerView:
    """The answer for a node of the assessment; `judged`: for each reason."""
    if node.state is NodeState.DISRUPTING:
        return _replaced(node, judged)
    if node.state in IN_DISRUPTION:
        return _draining(assessment, node)
    wanted = sorted((one for one in judged if one.wanted), key=lambda one: one.reason not in MARKED)
    free = next((one for one in wanted if one.allowed), None)
    if free is not None:
        return _free(assessment, node, free)
    if wanted:
        return _blocked(node, wanted[0], assessment.at)
    return _steady(judged)


# -- nodes that have a reason ------------------------------------------------------------------------------------------


def _free(assessment: Assessment, node: NodeAssessment, one: ReasonVerdict) -> AnswerView:
    replacement = next((each for each in one.verdicts if each.rule is Rule.REPLACEMENT), None)
    cause: list[str | Redactable] = [f"may be disrupted now for {one.reason.value}"]
    if replacement is not None:
        cause.append(f": {replacement.message}")
    waiting = assessment.in_turn(node.member.pool, one.reason)
    pool = assessment.pool(node)
    left = None if pool is None else pool.allowances[one.reason].allowed
    if left is not None and waiting > left and not _is_forced(one):
        places = "1 place" if left == 1 else f"{left} places"
        cause.append(f"; it waits for its turn: {waiting} nodes of NodePool {node.member.pool}, {places} in its budget")
    return AnswerView(NodeStanding.FREE, one.reason, Sentence(*cause), _since(node, one.reason), one.until)


def _is_forced(one: ReasonVerdict) -> bool:
    return one.reason is Reason.EXPIRED and all(each.allowed for each in one.verdicts if each.rule is Rule.BUDGET)


def _blocked(node: NodeAssessment, one: ReasonVerdict, now: datetime) -> AnswerView:
    """The blocker that lasts longest: one that somebody has to end, else the one that ends last."""
    blockers = [each for verdict in one.verdicts if not verdict.allowed for each in (verdict.blockers or (verdict,))]
    cause = max(blockers, key=_lasts)
    more = len({each.object for each in blockers}) - 1
    others = f"; and {more} other blocker{'s' if more > 1 else ''}" if more else ""
    free_at = one.when.first(now)
    if free_at is not None and free_at == node.expires_at:
        others += "; then expireAfter removes it by force"
    standing = NodeStanding.WAITING if free_at is not None or not _needs_somebody(cause) else NodeStanding.STUCK
    return AnswerView(
        standing,
        one.reason,
        Sentence(_about(cause), others),
        _since(node, one.reason),
        free_at,
        Sentence(next_step(cause, node)),
        cause.rule,
    )


def _lasts(verdict: Verdict) -> tuple[bool, float]:
    return _needs_somebody(verdict), 0.0 if verdict.until is None else verdict.until.timestamp()


def _needs_somebody(verdict: Verdict) -> bool:
    return verdict.until is None and not verdict.transient


def _about(verdict: Verdict) -> Redactable:
    """The message, with the name of a pod that it does not name itself."""
    is_named = verdict.object.kind != "Pod" or verdict.rule is Rule.REPLACEMENT
    named = "" if is_named else f"{verdict.object}: "
    return Redactable(verdict.object, f"{named}{verdict.message}")


def _since(node: NodeAssessment, reason: Reason) -> datetime | None:
    claim = node.member.claim
    since = None if claim is None else claim.true_since(DISRUPTION_REASONS[reason].condition)
    return node.expires_at if since is None and reason is Reason.EXPIRED else since


def _steady(judged: Iterable[ReasonVerdict]) -> AnswerView:
    blocker = next(
        (
            verdict
            for one in judged
            if one.reason is Reason.DRIFTED
            for verdict in one.verdicts
            if not verdict.allowed and verdict.rule is not Rule.BUDGET
        ),
        None,
    )
    cause: list[str | Redactable] = ["has no reason to go"]
    if blocker is not None:
        first = max(blocker.blockers, key=_lasts) if blocker.blockers else blocker
        cause += ["; if it had one: ", _about(first)]
    return AnswerView(NodeStanding.STEADY, None, Sentence(*cause), None, None if blocker is None else blocker.until)


# -- nodes that are leaving --------------------------------------------------------------------------------------------


def _replaced(node: NodeAssessment, judged: Sequence[ReasonVerdict]) -> AnswerView:
    claim = node.member.claim
    assert claim is not None
    condition = claim.conditions.get(ConditionType.DISRUPTION_REASON)
    reason = "" if condition is None else condition.reason
    found = (each for one in judged for each in one.verdicts if each.rule is Rule.REPLACEMENT)
    awaited = next((each for each in found if not each.allowed), None)
    cause, step = "goes as soon as its command is carried on", ""
    if awaited is not None:
        cause = awaited.message
        step = f"kubectl describe nodeclaim {awaited.object.name}"
    since = claim.true_since(ConditionType.DISRUPTION_REASON)
    until = None if awaited is None else awaited.until
    return AnswerView(
        NodeStanding.WAITING, reason or None, Sentence(cause), since, until, Sentence(step), Rule.REPLACEMENT
    )


def _draining(assessment: Assessment, node: NodeAssessment) -> AnswerView:
    member = node.member
    gone = [part.deleted_at for part in (member.claim, member.node) if part is not None and part.deleted_at is not None]
    since = min(gone, default=None)
    if node.state is not NodeState.DRAINING:
        cause = Sentence(f"{MEANING[node.state]}: its pods are gone")
        return AnswerView(NodeStanding.WAITING, None, cause, since, None)
    steps = drain_plan(member.pods, deadline=node.deadline, now=assessment.at).steps
    waits = [_waited_for(assessment, step) for step in sorted(steps, key=tells_most)]
    if not waits:
        return AnswerView(NodeStanding.WAITING, None, Sentence("drained; its instance is terminated next"), since, None)
    step, text, verdict = waits[0]
    stuck = node.deadline is None and verdict is not None and _needs_somebody(verdict)
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    forced = "; no terminationGracePeriod limits the drain" if stuck else ""
    if node.deadline is not None:
        forced = f"; what is left is deleted by {format_time(node.deadline)}"
    return AnswerView(
        NodeStanding.STUCK if stuck else NodeStanding.WAITING,
        None,
        Sentence("waits for ", step.pod.object, f"{more}: ", Redactable(step.pod.object, text), forced),
        since,
        node.deadline if verdict is None or verdict.until is None else verdict.until,
        Sentence("" if verdict is None else next_step(verdict, node)),
        "" if verdict is None else verdict.rule,
    )


def _waited_for(assessment: Assessment, step: PodStep) -> tuple[PodStep, str, Verdict | None]:
    """The pod, why the drain waits for it, and the verdict that blocks it."""
    if step.action is DrainAction.GOING:
        return step, step.why, None
    blocking = [verdict for verdict in assessment.limiting(step.pod) if not verdict.allowed]
    if not blocking:
        return step, step.why, None
    verdict = max(blocking, key=_lasts)
    return step, verdict.message, verdict


# -- the next step -----------------------------------------------------------------------------------------------------


def next_step(verdict: Verdict, node: NodeAssessment) -> str | Redactable:
    """What to do about what blocks the node."""
    about, pool, name = verdict.object, node.member.pool, node.member.name
    match verdict.rule:
        case Rule.DO_NOT_DISRUPT:
            if verdict.until is not None:
                return Redactable(about, f"wait, or delete {about} yourself")
            return Redactable(about, f"remove the annotation {DO_NOT_DISRUPT} from {about}, or delete the pod")
        case Rule.DISRUPTION_SCHEDULE | Rule.DISRUPTION_BLOCK_SCHEDULE:
            return Redactable(about, f"wait for the window, or delete {about} yourself")
        case Rule.POD_DISRUPTION_BUDGET:
            look = f"kubectl get pdb -n {about.namespace}"
            if verdict.transient:
                return Redactable(about, f"{look}: it allows more when its pods are ready")
            return Redactable(about, f"change the PodDisruptionBudget or add replicas: {look}")
        case Rule.NODE_DO_NOT_DISRUPT:
            return f"remove the annotation from the Node: kubectl annotate node {name} {DO_NOT_DISRUPT}-"
        case Rule.INITIALIZED:
            return f"kubectl describe node {name}"
        case Rule.BUDGET if not verdict.transient and verdict.until is None:
            return f"correct spec.disruption.budgets: kubectl edit nodepool {pool}"
        case Rule.BUDGET | Rule.CONSOLIDATE_AFTER:
            return f"wait; dovetail explain nodepool/{pool} lists what uses its budgets"
        case Rule.REPLACEMENT if about.kind == "NodePool":
            return f"kubectl describe nodepool {about.name}"
        case Rule.REPLACEMENT:
            raise_limits = "raise spec.limits" if "limits." in verdict.message else "give its pods a place"
            return f"{raise_limits}; dovetail plan --remove {name} tries it for each pod"
        case _:
            return f"kubectl get nodepool {pool} -o yaml" if pool else ""
