"""The answer for a node in one sentence: why it stays or goes, since when, until when, and what to do next.

A node that waits goes without anybody's help: an instant comes, a budget is free again, a replacement is ready. A node
is stuck if somebody has to act.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.names import DO_NOT_DISRUPT, ConditionType, Reason
from dovetail.model.node_records import NodeRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.node.drain import DrainAction, PodStep, drain_plan, failing_evictions, tells_most
from dovetail.rules.budgets import BudgetConsumer, BudgetRule, PoolCounts
from dovetail.rules.nodes import NOT_REPAIRED, ReasonVerdict, consolidation_reason
from dovetail.rules.reasons import DISRUPTION_REASONS, MARKED
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.rules.verdict import Rule, Verdict
from dovetail.scheduling.no_place import LIMITS
from dovetail.values.timestamp import spoken_time
from dovetail.views.assessment import Assessment, NodeAssessment, PoolAssessment
from dovetail.views.explain.badges import Badge, foreign_finalizers, hanging, is_overdue, startup
from dovetail.views.explain.data import AnswerView
from dovetail.views.explain.standings import NodeStanding
from dovetail.views.findings.budgets import inverse_budget, never_blocks

_MOST_USERS: Final = 3
_USUAL_EVICTION: Final = timedelta(minutes=1)


def answer(assessment: Assessment, node: NodeAssessment, judged: Sequence[ReasonVerdict]) -> AnswerView:
    """The answer for a node of the assessment; `judged`: for each reason."""
    if node.state is NodeState.DISRUPTING:
        return _replaced(node, judged)
    if node.state in IN_DISRUPTION:
        return _draining(assessment, node)
    wanted = sorted((verdict for verdict in judged if verdict.wanted), key=lambda verdict: verdict.reason not in MARKED)
    free = next((verdict for verdict in wanted if verdict.allowed), None)
    if free is not None:
        return _free(assessment, node, free)
    if wanted:
        return _blocked(assessment, node, wanted[0])
    if (badge := startup(node.member)) is not None:
        return _starting(node.member, badge, assessment.at)
    return _steady(node.member, judged)


# -- nodes that have a reason ------------------------------------------------------------------------------------------


def _free(assessment: Assessment, node: NodeAssessment, reason_verdict: ReasonVerdict) -> AnswerView:
    replacement = next((verdict for verdict in reason_verdict.verdicts if verdict.rule is Rule.REPLACEMENT), None)
    cause: list[str | Redactable] = [f"may be disrupted now for {reason_verdict.reason.value}"]
    step = ""
    if replacement is not None:
        cause.append(f": {replacement.message}")
    waiting = assessment.in_turn(node.member.pool, reason_verdict.reason)
    pool = assessment.pool(node)
    left = None if pool is None else pool.allowances[reason_verdict.reason].allowed
    if left is not None and waiting > left and not _is_forced(reason_verdict):
        places = "1 place" if left == 1 else f"{left} places"
        cause.append(f"; it waits for its turn: {waiting} nodes of NodePool {node.member.pool}, {places} in its budget")
    if (
        pool is not None
        and pool.budgets
        and pool.allowances[reason_verdict.reason].binding is None
        and not _is_forced(reason_verdict)
    ):
        cause.append(f"; no budget of NodePool {node.member.pool} limits that now")
        window = _next_window(pool, reason_verdict.reason)
        if window is not None:
            budget, opens_at = window
            cause.append(f": budgets[{budget.index}] does so only in its window, from {spoken_time(opens_at)}")
            if never_blocks(pool.budgets, reason_verdict.reason):
                step = f"if disruptions are meant only then, add {inverse_budget(budget, pool.settings)}"
    return AnswerView(
        NodeStanding.FREE,
        reason_verdict.reason,
        Sentence(*cause),
        _since(node, reason_verdict.reason),
        reason_verdict.until,
        Sentence(step),
    )


def _next_window(pool: PoolAssessment, reason: Reason) -> tuple[BudgetRule, datetime] | None:
    """The budget that limits the reason next, and from when."""
    opens_at = pool.allowances[reason].until
    binding = None if opens_at is None else pool.allowance_at(reason, opens_at).binding
    return None if opens_at is None or binding is None else (pool.budgets[binding], opens_at)


def _is_forced(reason_verdict: ReasonVerdict) -> bool:
    return reason_verdict.reason is Reason.EXPIRED and all(
        verdict.allowed for verdict in reason_verdict.verdicts if verdict.rule is Rule.BUDGET
    )


def _blocked(assessment: Assessment, node: NodeAssessment, reason_verdict: ReasonVerdict) -> AnswerView:
    """The blocker that lasts longest: one that somebody has to end, else the one that ends last."""
    blockers = [
        blocker
        for verdict in reason_verdict.verdicts
        if not verdict.allowed
        for blocker in (verdict.blockers or (verdict,))
    ]
    cause = max(blockers, key=_lasts)
    more = len({blocker.object for blocker in blockers}) - 1
    others = f"; and {more} other blocker{'s' if more > 1 else ''}" if more else ""
    pool = assessment.pool(node)
    spent = pool is not None and cause.rule is Rule.BUDGET and cause.transient and cause.until is None
    used = _uses(pool, reason_verdict.reason, assessment.at) if spent and pool is not None else ""
    free_at = reason_verdict.when.first(assessment.at)
    if free_at is not None and free_at == node.expires_at:
        others += "; then expireAfter removes it by force"
    standing = NodeStanding.WAITING if free_at is not None or not _needs_somebody(cause) else NodeStanding.STUCK
    return AnswerView(
        standing,
        reason_verdict.reason,
        Sentence(cause.told, used, others),
        _since(node, reason_verdict.reason),
        free_at,
        Sentence(budget_step(pool, node.member.name) if spent and pool is not None else next_step(cause, node)),
        cause.rule,
    )


def _uses(pool: PoolAssessment, reason: Reason, now: datetime) -> str:
    """The nodes that use its budget up, and when one of them is gone at the latest."""
    users = pool.counts.consumers
    named = ", ".join(f"{user.node} ({consumer_state(user)})" for user in users[:_MOST_USERS])
    more = f" and {len(users) - _MOST_USERS} more" if len(users) > _MOST_USERS else ""
    latest, ends = _place_free_at(pool, reason, now), ""
    if latest is not None:
        ends = f"; a place is free at the latest {spoken_time(latest)}"
    elif any(user.unhealthy for user in users):
        ends = "; a node that is NotReady counts until it is Ready or gone"
    return f": {named}{more}{ends}"


def _place_free_at(pool: PoolAssessment, reason: Reason, now: datetime) -> datetime | None:
    """The first instant at which forced ends of drains leave a place, whatever happens before.

    A node that has gone may have no successor. Then a budget in percent allows less.
    """
    counts, opens_at = pool.counts, pool.allowances[reason].opens_at
    for at in sorted({user.until for user in counts.consumers if user.until is not None} | {opens_at or now}):
        left = tuple(user for user in counts.consumers if user.until is None or user.until > at)
        fewest = PoolCounts(nodes=counts.nodes - len(counts.consumers) + len(left), consumers=left)
        if at > now and pool.allowance_at(reason, at, fewest).allowed:
            return at
    return None


def consumer_state(user: BudgetConsumer) -> str:
    """Why the node counts for its budgets, and since when."""
    since = "" if user.since is None else f" since {spoken_time(user.since)}"
    return f"{'NotReady' if user.unhealthy else MEANING[user.state]}{since}"


def _lasts(verdict: Verdict) -> tuple[bool, float]:
    return _needs_somebody(verdict), 0.0 if verdict.until is None else verdict.until.timestamp()


def _needs_somebody(verdict: Verdict) -> bool:
    return verdict.until is None and not verdict.transient


def _since(node: NodeAssessment, reason: Reason) -> datetime | None:
    claim = node.member.claim
    since = None if claim is None else claim.true_since(DISRUPTION_REASONS[reason].condition)
    return node.expires_at if since is None and reason is Reason.EXPIRED else since


def _steady(member: ClusterNode, judged: Iterable[ReasonVerdict]) -> AnswerView:
    if not member.managed:
        group = f" but to {member.machine.group}" if member.machine.group else ""
        words = f"belongs to no NodePool{group}, so nothing here disrupts it"
        return AnswerView(NodeStanding.STEADY, None, Sentence(words), None, None)
    if member.node is not None and not member.node.ready and not member.node.settings.node_repair:
        return _unrepaired(member, member.node)
    cause: list[str | Redactable] = ["has no reason to go"]
    step: str | Redactable = ""
    blocker = _longest(judged, Reason.DRIFTED)
    if blocker is not None:
        cause += ["; if it had one: ", blocker.told]
    elif (consolidation_blocker := _longest(judged, consolidation_reason(member))) is not None:
        cause += ["; it is not consolidated: ", consolidation_blocker.told]
        if consolidation_blocker.rule is Rule.POD_DISRUPTION_BUDGET and consolidation_blocker.transient:
            about = consolidation_blocker.object
            step = Redactable(about, f"see which pod is not healthy: kubectl get pods -n {about.namespace}")
    until = None if blocker is None else blocker.until
    return AnswerView(NodeStanding.STEADY, None, Sentence(*cause), None, until, Sentence(step))


def _unrepaired(member: ClusterNode, node: NodeRecord) -> AnswerView:
    """Nothing else matters for a node that does not work."""
    left_alone = "; a node that is NotReady is not consolidated" if node.settings.waits_to_consolidate else ""
    cause = NOT_REPAIRED + left_alone
    step = f"see why: kubectl describe node {node.name}"
    if member.claim is not None:
        step += f"; to have it replaced: kubectl delete nodeclaim {member.claim.name}"
    return AnswerView(NodeStanding.STEADY, None, Sentence(cause), None, None, Sentence(step), Rule.READY)


def _longest(judged: Iterable[ReasonVerdict], reason: Reason) -> Verdict | None:
    """What would block the reason longest, budgets aside."""
    verdicts = [
        verdict for reason_verdict in judged if reason_verdict.reason is reason for verdict in reason_verdict.verdicts
    ]
    blocked = [verdict for verdict in verdicts if not verdict.allowed and verdict.rule is not Rule.BUDGET]
    blockers = [blocker for verdict in blocked[:1] for blocker in (verdict.blockers or (verdict,))]
    return max(blockers, key=_lasts, default=None)


def _starting(member: ClusterNode, badge: Badge, now: datetime) -> AnswerView:
    overdue = is_overdue(badge, now)
    given_up = "" if badge.until is None else f"; its controller gives it up {spoken_time(badge.until)}"
    if overdue and badge.until is not None:
        given_up = f"; its controller should have given it up {spoken_time(badge.until)}: is it running?"
    claim = "" if member.claim is None else member.claim.name
    return AnswerView(
        NodeStanding.STUCK if overdue else NodeStanding.STARTING,
        None,
        Sentence(f"{badge.why}{given_up}"),
        badge.since,
        None if overdue else badge.until,
        Sentence(f"kubectl describe nodeclaim {claim}"),
        Rule.INITIALIZED,
    )


# -- nodes that are leaving --------------------------------------------------------------------------------------------


def _replaced(node: NodeAssessment, judged: Sequence[ReasonVerdict]) -> AnswerView:
    claim = node.member.claim
    assert claim is not None
    condition = claim.conditions.get(ConditionType.DISRUPTION_REASON)
    reason = "" if condition is None else condition.reason
    replacements = (
        verdict for reason_verdict in judged for verdict in reason_verdict.verdicts if verdict.rule is Rule.REPLACEMENT
    )
    awaited = next((verdict for verdict in replacements if not verdict.allowed), None)
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
    theirs = assessment.settings.karpenter_drains
    if (badge := hanging(member, assessment.at)) is not None:
        foreign = foreign_finalizers(member)
        look = (
            release_step(*foreign[0])
            if foreign
            else f"look for {member.object.name} in the log of {'Karpenter' if theirs else 'Dovetail'}, and at "
            f"kubectl get {member.object.kind.lower()} {member.object.name} -o yaml"
        )
        return AnswerView(NodeStanding.STUCK, None, Sentence(badge.why), since, None, Sentence(look), Rule.DELETING)
    if node.state is not NodeState.DRAINING:
        return AnswerView(NodeStanding.WAITING, None, Sentence("its pods are gone"), since, None)
    steps = drain_plan(member.pods, deadline=node.deadline, now=assessment.at).steps
    failing = failing_evictions(member.claim)
    waits = [_waited_for(assessment, step, failing) for step in sorted(steps, key=tells_most)]
    if not waits:
        cause = Sentence(
            f"drained; {'Karpenter terminates its instance' if theirs else 'its instance is terminated'} next"
        )
        return AnswerView(NodeStanding.WAITING, None, cause, since, None)
    step, text, verdict = waits[0]
    stuck = node.deadline is None and (text == failing if verdict is None else _needs_somebody(verdict))
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    forced = "; no terminationGracePeriod limits the drain" if stuck else ""
    if node.deadline is not None:
        forced = f"; what is left is deleted by {spoken_time(node.deadline)}"
    return AnswerView(
        NodeStanding.STUCK if stuck else NodeStanding.WAITING,
        None,
        Sentence(
            "Karpenter's drain waits for " if theirs else "waits for ",
            step.pod.object,
            f"{more}: ",
            Redactable(step.pod.object, text),
            forced,
        ),
        since,
        node.deadline if verdict is None or verdict.until is None else verdict.until,
        Sentence(_drain_step(step, verdict, node, since, assessment.at)),
        "" if verdict is None else verdict.rule,
    )


def _waited_for(assessment: Assessment, step: PodStep, failing: str) -> tuple[PodStep, str, Verdict | None]:
    """The pod, why the drain waits for it, and the verdict that blocks it."""
    if step.action is DrainAction.GOING:
        return step, step.why, None
    blocking = [verdict for verdict in assessment.limiting(step.pod) if not verdict.allowed]
    if not blocking:
        return step, (failing if step.action is DrainAction.EVICT else "") or step.why, None
    verdict = max(blocking, key=_lasts)
    return step, verdict.words, verdict


def _drain_step(
    step: PodStep, verdict: Verdict | None, node: NodeAssessment, since: datetime | None, at: datetime
) -> str | Redactable:
    if verdict is not None:
        return next_step(verdict, node)
    if step.action is DrainAction.EVICT:
        overdue = since is not None and at - since > _USUAL_EVICTION
        return f"see why: kubectl events -n default --for node/{node.member.name}" if overdue else ""
    ends_at = step.pod.deleted_at
    return "" if ends_at is None or ends_at > at else Redactable(step.pod.object, overdue_step(step.pod))


# -- the next step -----------------------------------------------------------------------------------------------------


def overdue_step(pod: PodRecord) -> str:
    """What to do about a pod that should be gone."""
    if pod.finalizers:
        return release_step(pod.object, pod.finalizers[0])
    return f"its kubelet does not confirm that it ended: kubectl describe node {pod.node_name}" if pod.node_name else ""


def release_step(about: Ref, finalizer: str) -> str:
    """Who owns a finalizer, and how to remove it if nobody does."""
    target = f"{about.kind.lower()} {about.name}" + (f" -n {about.namespace}" if about.namespace else "")
    return (
        f"find who sets finalizer {finalizer}: kubectl get {target} -o yaml --show-managed-fields; "
        f"if nobody removes it, do: kubectl edit {target}"
    )


def _replacement_step(verdict: Verdict, pool: str, name: str) -> str:
    if verdict.object.kind == "NodePool" and not verdict.field:
        return f"kubectl describe nodepool {verdict.object.name}"
    change = "raise" if verdict.field == LIMITS else "correct"
    first = f"{change} {verdict.field}: kubectl edit nodepool {pool}" if verdict.field else "give its pods a place"
    return f"{first}; dovetail plan --remove {name} says where each could go"


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
            return _wait_for_budgets(pool)
        case Rule.REPLACEMENT:
            return _replacement_step(verdict, pool, name)
        case _:
            return f"kubectl get nodepool {pool} -o yaml" if pool else ""


def budget_step(pool: PoolAssessment, node: str) -> str:
    """What to do about budgets that other nodes use up: to wait is no help while one does so without an end."""
    user = next((user for user in pool.counts.consumers if user.until is None and user.node != node), None)
    if user is None:
        return _wait_for_budgets(pool.record.name)
    look = f"dovetail explain node/{user.node}"
    if user.unhealthy:
        return f"wait until {user.node} is Ready, or have it replaced: {look} says how"
    return f"wait; {look} says what its drain waits for"


def _wait_for_budgets(pool: str) -> str:
    return f"wait; dovetail explain nodepool/{pool} lists what uses its budgets"
