"""Explains whether each pod and node may be disrupted now, and which rules block it until when. The contract of 09."""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from dovetail.model.finding import Finding
from dovetail.model.records import Owner, PodRecord
from dovetail.model.refs import Ref
from dovetail.rules.budgets import BudgetConsumer
from dovetail.rules.deadlines import forced_deletion
from dovetail.rules.nodes import ReasonVerdict, is_wanted
from dovetail.rules.reasons import is_budgeted
from dovetail.rules.verdict import Verdict, together
from dovetail.values.schedule.instants import ALWAYS
from dovetail.views.assessment import Assessment, NodeAssessment, PoolAssessment
from dovetail.views.explain.problems import found_problems
from dovetail.views.turns import turns


class View(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of everything that is printed. Keys are stable; new ones may be added."""


class VerdictView(View, frozen=True, omit_defaults=True):
    rule: str
    allowed: bool
    until: datetime | None
    object: Ref
    message: str
    blockers: tuple["VerdictView", ...] = ()


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
    end: datetime | UnsetType = UNSET
    """Of the span."""
    pods: tuple[PodView, ...]
    nodes: tuple[NodeView, ...]
    nodepools: tuple[PoolView, ...]
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
    pods = snapshot.pods if only is None else [pod for member in members for pod in member.pods]
    nodes = [assessment.node(member) for member in members]
    return Explanation(
        at=at,
        end=UNSET if end is None else end,
        pods=tuple([_pod_view(pod, assessment, end) for pod in pods]),
        nodes=tuple(_node_view(assessment, node, end) for node in nodes),
        nodepools=tuple(_pool_view(pool) for pool in assessment.pools.values()),
        problems=(*problems, *snapshot.problems, *found_problems(assessment, pods, nodes)),
    )


# -- views ------------------------------------------------------------------------------------------------------------


def _pod_view(pod: PodRecord, assessment: Assessment, end: datetime | None) -> PodView:
    object_, at = pod.object, assessment.at
    verdicts, limiting = assessment.verdicts(pod), assessment.limiting(pod)
    when = together(limiting) if limiting else ALWAYS
    return PodView(
        pod.namespace,
        pod.name,
        pod.node_name or None,
        not limiting or when.contains(at),
        when.until(at) if limiting else None,
        tuple(
            [
                VerdictView(verdict.rule, verdict.allowed, verdict.until, object_, verdict.message)
                for verdict in verdicts
            ]
        ),
        UNSET if end is None else tuple(ChangeView(turn, when.contains(turn)) for turn in turns(when, at, end)),
    )


def _node_view(assessment: Assessment, node: NodeAssessment, end: datetime | None) -> NodeView:
    at, member, claim, deadline = assessment.at, node.member, node.member.claim, node.deadline
    judged = assessment.judge(node)
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
                ReasonView(one.reason, one.wanted, one.allowed, one.until, _verdict_views(one.verdicts, views))
                for one in judged
            ]
        ),
        free_at=node.free.first(at),
        expires_at=node.expires_at,
        gracefully_expires_at=node.gracefully_expires_at,
        deadline=deadline,
        forced_deletions=() if deadline is None else _forced_deletions(member.pods, deadline, at),
        changes=UNSET if end is None else _node_changes(node, judged, at, end),
    )


def _verdict_views(verdicts: Sequence[Verdict], views: dict[int, VerdictView]) -> tuple[VerdictView, ...]:
    """Reasons share verdicts, so each is converted once. The verdicts must live as long as `views`."""
    found = []
    for verdict in verdicts:
        view = views.get(id(verdict))
        if view is None:
            blockers = _verdict_views(verdict.blockers, views) if verdict.blockers else ()
            view = VerdictView(verdict.rule, verdict.allowed, verdict.until, verdict.object, verdict.message, blockers)
            views[id(verdict)] = view
        found.append(view)
    return tuple(found)


def _node_changes(
    node: NodeAssessment, judged: Iterable[ReasonVerdict], at: datetime, end: datetime
) -> tuple[ReasonChangeView, ...]:
    """Expiration adds reasons; the sets of the verdicts say when reasons are allowed."""
    expirations = (node.expires_at, node.gracefully_expires_at)
    expiring = [expires for expires in expirations if expires is not None and at < expires <= end]
    changes = []
    for one in judged:
        before = (one.wanted, one.allowed)
        for turn in sorted({*turns(one.when, at, end), *expiring}):
            now = (is_wanted(node.member, node.record, one.reason, turn), one.when.contains(turn))
            if now != before:
                changes.append(ReasonChangeView(turn, one.reason, *now))
            before = now
    return tuple(sorted(changes, key=lambda change: change.at))


def _forced_deletions(pods: Sequence[PodRecord], deadline: datetime, at: datetime) -> tuple[DeletionView, ...]:
    drained = [pod for pod in pods if not (pod.tolerates_disrupted or pod.owner & Owner.NODE)]
    found = [forced_deletion(pod, deadline, at) for pod in drained]
    return tuple(
        DeletionView(pod=deletion.pod.object, at=deletion.at, grace_seconds=deletion.grace_seconds)
        for deletion in sorted(filter(None, found), key=lambda deletion: (deletion.at, deletion.pod.object.path))
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
