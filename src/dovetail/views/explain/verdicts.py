"""Explains whether each pod and node may be disrupted now, and which rules block it until when.

docs/explain.md describes the data for scripts.
"""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import UNSET, UnsetType

from dovetail.model.beside import Hold, Roll
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.model.refs import Ref
from dovetail.planning.node.drain import is_drainable, terminating
from dovetail.rules.budgets import BudgetConsumer
from dovetail.rules.deadlines import forced_deletion
from dovetail.rules.nodes import ReasonVerdict, is_wanted
from dovetail.rules.protection import protection
from dovetail.rules.reasons import is_budgeted
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule, Verdict, together
from dovetail.values.duration import add
from dovetail.values.schedule.instants import ALWAYS, Instants
from dovetail.views.assessment import Assessment, NodeAssessment, PoolAssessment, is_undated
from dovetail.views.drained import drained_pods
from dovetail.views.explain.answers import answer, overdue_step
from dovetail.views.explain.badges import Badge, badges
from dovetail.views.explain.blocking import BlockerView, who_blocks
from dovetail.views.explain.data import AnswerView, View
from dovetail.views.explain.pending import PendingSummary, PendingView, pending_pods
from dovetail.views.explain.problems import all_problems
from dovetail.views.explain.workloads import WorkloadView
from dovetail.views.turns import turns

DRAIN: Final = ("drain",)
"""What a pod blocks whose node is being drained."""


class VerdictView(View, frozen=True, omit_defaults=True):
    rule: str
    allowed: bool
    until: datetime | None
    object: Ref
    message: str
    blockers: tuple["VerdictView", ...] = ()
    remark: str | None = None
    """`unchecked`: the reason ignores the rule. `mistake`: it allows because what was written cannot be read.

    `not-in-force`: it allows because whoever decides does not read what was written.
    """
    details: str = ""
    """What explains the message further, and is not needed to act."""


class ChangeView(View, frozen=True):
    """Whether the pod may be disrupted from this instant on."""

    at: datetime
    allowed: bool


class PodView(View, frozen=True):
    namespace: str
    name: str
    node: str | None
    allowed: bool
    until: datetime | None
    verdicts: tuple[VerdictView, ...]
    changes: tuple[ChangeView, ...] | UnsetType = UNSET
    """Within the span, if nothing but time changes."""
    forced_at: datetime | UnsetType = UNSET
    """When the pod is deleted although it is protected, because its node drains or expires then."""
    blocks: tuple[str, ...] | UnsetType = UNSET
    """The reasons of its node that the pod blocks now, or `drain`."""
    pending: PendingView | UnsetType = UNSET
    """Why it is on no node; only for pods that the user has named, or of the namespace that the user asks about."""
    terminating: str | UnsetType = UNSET
    """Until when it has to end, and the finalizers that hold it, if it is being deleted."""
    next_step: str | UnsetType = UNSET
    """If it should be gone: how to find out why it is not."""


class ReasonView(View, frozen=True):
    reason: str
    wanted: bool
    allowed: bool
    until: datetime | None
    verdicts: tuple[VerdictView, ...]


class ReasonChangeView(View, frozen=True):
    """Whether the node has the reason, and is allowed to go for it, from this instant on."""

    at: datetime
    reason: str
    wanted: bool
    allowed: bool


class DeletionView(View, frozen=True):
    """When a pod of a draining node is deleted if it is still there (R17)."""

    pod: Ref
    at: datetime
    grace_seconds: int


class NodeView(View, frozen=True):
    name: str
    nodepool: str | None
    node_claim: str | None
    state: str
    ready: bool | None
    pods: int
    reasons: tuple[ReasonView, ...]
    free_at: datetime | None
    expires_at: datetime | None
    gracefully_expires_at: datetime | None
    deadline: datetime | None
    forced_deletions: tuple[DeletionView, ...] = ()
    answer: AnswerView | UnsetType = UNSET
    managed: bool = True
    """False: no NodePool owns it, and no rule here is about it."""
    instance_type: str | None = None
    capacity_type: str | None = None
    zone: str | None = None
    group: str | None = None
    """Who made it, if no NodePool did."""
    badges: tuple[Badge, ...] = ()
    undated: bool = False
    """Nobody has to free it, and when it becomes free is not known: `free_at` is None."""
    held: Hold | UnsetType = UNSET
    """Our own hold, which keeps Karpenter off the node and blocks nothing here."""
    rolled: Roll | UnsetType = UNSET
    """The graceful replacement that was asked for."""
    changes: tuple[ReasonChangeView, ...] | UnsetType = UNSET


class BudgetView(View, frozen=True):
    reason: str
    limit: int
    disrupting: int
    unhealthy: int
    allowed: int
    until: datetime | None
    binding: int | None
    forceful: bool
    """Budgets do not apply to the reason (R19), so these figures have no effect."""
    consumers: tuple[BudgetConsumer, ...]


class PoolView(View, frozen=True):
    name: str
    nodes: int
    budgets: tuple[BudgetView, ...]


class Explanation(View, frozen=True, kw_only=True):
    at: datetime
    decider: Decider
    end: datetime | UnsetType = UNSET
    """Of the span."""
    workloads: tuple[WorkloadView, ...] | UnsetType = UNSET
    """Those that the user has named."""
    pods: tuple[PodView, ...]
    nodes: tuple[NodeView, ...]
    nodepools: tuple[PoolView, ...]
    blockers: tuple[BlockerView, ...] | UnsetType = UNSET
    """Who blocks most of the nodes that should go, in the whole cluster."""
    pending: PendingSummary | UnsetType = UNSET
    problems: tuple[Finding, ...]

    @property
    def all_allowed(self) -> bool:
        """Whether no pod, no node (for the reasons it has, if any) and no budget is blocked."""
        return (
            all(pod.allowed for pod in self.pods)
            and all(_node_allowed(node, self.at) for node in self.nodes)
            and all(budget.allowed > 0 or budget.forceful for pool in self.nodepools for budget in pool.budgets)
        )


def _node_allowed(node: NodeView, at: datetime) -> bool:
    wanted = [reason.allowed for reason in node.reasons if reason.wanted]
    return any(wanted) if wanted else node.free_at == at


def explain(
    assessment: Assessment,
    *,
    end: datetime | None = None,
    problems: Iterable[Finding] = (),
    only: Container[str] | None = None,
) -> Explanation:
    """Explain everything in the assessment; with an end, also the changes until then.

    `only`: names of nodes. Only these and their pods are explained; the others still count for budgets.
    """
    snapshot, at = assessment.snapshot, assessment.at
    members = [member for member in snapshot.nodes if only is None or member.name in only]
    members.sort(key=lambda member: not member.managed)
    pods = snapshot.pods if only is None else [pod for member in members for pod in member.pods]
    nodes = [assessment.node(member) for member in members]
    return Explanation(
        at=at,
        decider=snapshot.settings.decider,
        end=UNSET if end is None else end,
        pods=tuple([_pod_view(pod, assessment, end) for pod in pods]),
        nodes=tuple(_node_view(assessment, node, end) for node in nodes),
        nodepools=tuple(_pool_view(pool) for pool in assessment.pools.values()),
        blockers=who_blocks(assessment, nodes) if only is None else UNSET,
        pending=pending_pods(pods) if only is None else UNSET,
        problems=all_problems(assessment, problems, pods, nodes),
    )


# -- views ------------------------------------------------------------------------------------------------------------


def _pod_view(pod: PodRecord, assessment: Assessment, end: datetime | None) -> PodView:
    object_, at = pod.object, assessment.at
    verdicts, limiting = assessment.verdicts(pod), assessment.limiting(pod)
    when = together(limiting) if limiting else ALWAYS
    allowed = not limiting or when.contains(at)
    return PodView(
        pod.namespace,
        pod.name,
        pod.node_name or None,
        allowed,
        when.until(at) if limiting else None,
        tuple(
            [
                VerdictView(verdict.rule, verdict.allowed, verdict.until, object_, verdict.message, (), verdict.remark)
                for verdict in verdicts
            ]
        ),
        UNSET if end is None else tuple(ChangeView(turn, when.contains(turn)) for turn in turns(when, at, end)),
        _forced_at(pod, assessment, when) if limiting else UNSET,
        UNSET if allowed else _blocks(pod, assessment) or UNSET,
        terminating=UNSET if pod.deleted_at is None else terminating(pod, at),
        next_step=UNSET if pod.deleted_at is None or pod.deleted_at > at else overdue_step(pod),
    )


def _blocks(pod: PodRecord, assessment: Assessment) -> tuple[str, ...]:
    node = assessment.node_of(pod)
    if node is None:
        return ()
    if node.state in IN_DISRUPTION:
        return DRAIN if is_drainable(pod) else ()
    return tuple(
        reason_verdict.reason
        for reason_verdict in assessment.reasons(node).values()
        if reason_verdict.wanted
        and any(verdict.rule is Rule.PODS and not verdict.allowed for verdict in reason_verdict.verdicts)
    )


def _forced_at(pod: PodRecord, assessment: Assessment, when: Instants) -> datetime | UnsetType:
    """When the drain of its node, under way or after the expiration, deletes the pod while it is protected (R17)."""
    node = assessment.node_of(pod)
    if node is None or node.member.claim is None or not is_drainable(pod):
        return UNSET
    begins_at, grace_ns, deadline = assessment.at, node.member.claim.grace_period_ns, node.deadline
    if deadline is None and node.state not in IN_DISRUPTION and node.expires_at is not None and grace_ns is not None:
        begins_at = max(assessment.at, node.expires_at)
        deadline = add(begins_at, grace_ns)
    forced = None if deadline is None else forced_deletion(pod, deadline, begins_at)
    if forced is None:
        return UNSET
    (drained,) = drained_pods([pod], assessment.settings)
    if drained is not pod:  # its protection in the drain to come
        when = together((*protection(drained, begins_at), assessment.pdbs.verdict(drained)))
    freed_at = when.first(begins_at)
    return forced.at if freed_at is None or freed_at >= forced.at else UNSET


def _node_view(assessment: Assessment, node: NodeAssessment, end: datetime | None) -> NodeView:
    at, member, claim, deadline = assessment.at, node.member, node.member.claim, node.deadline
    judged = list(assessment.reasons(node).values())
    views: dict[int, VerdictView] = {}
    return NodeView(
        name=member.name,
        nodepool=member.pool or None,
        node_claim=None if claim is None else claim.name,
        state=node.state,
        ready=None if member.node is None else member.node.ready,
        pods=len(member.pods),
        reasons=tuple(
            [
                ReasonView(
                    verdict.reason,
                    verdict.wanted,
                    verdict.allowed,
                    verdict.until,
                    _verdict_views(verdict.verdicts, views),
                )
                for verdict in judged
            ]
        ),
        free_at=node.free.first(at),
        expires_at=node.expires_at,
        gracefully_expires_at=node.gracefully_expires_at,
        deadline=deadline,
        forced_deletions=() if deadline is None else _forced_deletions(member.pods, deadline, at),
        answer=answer(assessment, node, judged),
        managed=member.managed,
        instance_type=member.machine.instance_type,
        capacity_type=member.machine.capacity_type,
        zone=member.machine.zone,
        group=None if member.managed else member.machine.group,
        badges=badges(member, at),
        undated=is_undated(node, at),
        held=(None if member.node is None else member.node.hold) or UNSET,
        rolled=(None if claim is None else claim.roll) or UNSET,
        changes=UNSET if end is None else _node_changes(node, judged, at, end),
    )


def _verdict_views(verdicts: Sequence[Verdict], views: dict[int, VerdictView]) -> tuple[VerdictView, ...]:
    """Reasons share verdicts, so each is converted once. The verdicts must live as long as `views`."""
    converted = []
    for verdict in verdicts:
        view = views.get(id(verdict))
        if view is None:
            blockers = _verdict_views(verdict.blockers, views) if verdict.blockers else ()
            named, until = verdict.object, verdict.until
            view = VerdictView(
                verdict.rule,
                verdict.allowed,
                until,
                named,
                verdict.message,
                blockers,
                verdict.remark,
                verdict.details,
            )
            views[id(verdict)] = view
        converted.append(view)
    return tuple(converted)


def _node_changes(
    node: NodeAssessment, judged: Iterable[ReasonVerdict], at: datetime, end: datetime
) -> tuple[ReasonChangeView, ...]:
    """Expiration adds reasons; the sets of the verdicts say when reasons are allowed."""
    expirations = (node.expires_at, node.gracefully_expires_at)
    expiring = [expires for expires in expirations if expires is not None and at < expires <= end]
    changes = []
    for verdict in judged:
        before = (verdict.wanted, verdict.allowed)
        for turn in sorted({*turns(verdict.when, at, end), *expiring}):
            now = (is_wanted(node.member, node.record, verdict.reason, turn), verdict.when.contains(turn))
            if now != before:
                changes.append(ReasonChangeView(turn, verdict.reason, *now))
            before = now
    return tuple(sorted(changes, key=lambda change: change.at))


def _forced_deletions(pods: Sequence[PodRecord], deadline: datetime, at: datetime) -> tuple[DeletionView, ...]:
    drained = [pod for pod in pods if not (pod.tolerates_disrupted or pod.owner & Owner.NODE)]
    deletions = [forced_deletion(pod, deadline, at) for pod in drained]
    return tuple(
        DeletionView(pod=deletion.pod.object, at=deletion.at, grace_seconds=deletion.grace_seconds)
        for deletion in sorted(filter(None, deletions), key=lambda deletion: (deletion.at, deletion.pod.object.path))
    )


def _pool_view(pool: PoolAssessment) -> PoolView:
    graceful = pool.record.graceful_expire_after_ns is not None
    return PoolView(
        name=pool.record.name,
        nodes=pool.counts.nodes,
        budgets=tuple(
            BudgetView(
                reason=reason,
                limit=allowed.limit,
                disrupting=pool.counts.disrupting,
                unhealthy=pool.counts.unhealthy,
                allowed=allowed.allowed,
                until=allowed.until,
                binding=allowed.binding,
                forceful=not is_budgeted(reason, graceful_expiry=graceful),
                consumers=tuple(pool.counts.consumers),
            )
            for reason, allowed in pool.allowances.items()
        ),
    )
