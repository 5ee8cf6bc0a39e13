"""May each pod and node be disrupted now, and if not, which rules block it and until when? The contract of 09."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from dovetail.api.names import Reason
from dovetail.model.problem import Problem
from dovetail.model.records import Owner, PodRecord, PoolRecord
from dovetail.model.refs import Ref
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.rules.budgets import (
    Reading,
)
from dovetail.rules.deadlines import expires_at, forced_deletion, gracefully_expires_at, node_deadline, until_forced
from dovetail.rules.nodes import (
    PodsStanding,
    ReasonVerdict,
    is_wanted,
    judge_reasons,
    own_verdicts,
    pods_standing,
    when_free,
)
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import may_be_protected, protection
from dovetail.rules.states import state_of
from dovetail.rules.verdict import Verdict, together
from dovetail.values.schedule.instants import ALWAYS
from dovetail.views.explain.problems import snapshot_problems
from dovetail.views.pools import Pool, read_pools
from dovetail.views.turns import turns


class View(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of what is printed: keys are stable, new ones may be added."""


class VerdictView(View, frozen=True, omit_defaults=True):
    rule: str
    allowed: bool
    until: datetime | None
    object: Ref
    message: str
    blockers: tuple["VerdictView", ...] = ()


class ChangeView(View, frozen=True):
    """From here on the pod may, or may not, be disrupted."""

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
    """Within the span asked about; as everywhere, if nothing but time changes."""


class ReasonView(View, frozen=True):
    reason: str
    wanted: bool
    allowed: bool
    until: datetime | None
    verdicts: tuple[VerdictView, ...]


class ReasonChangeView(View, frozen=True):
    """What holds for the reason from here on."""

    at: datetime
    reason: str
    wanted: bool
    allowed: bool


class DeletionView(View, frozen=True):
    """R17: when a pod of a draining node is deleted if it is still there."""

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


class ConsumerView(View, frozen=True):
    node: str
    state: str
    unhealthy: bool


class BudgetView(View, frozen=True):
    reason: str
    limit: int
    disrupting: int
    unhealthy: int
    allowed: int
    until: datetime | None
    binding: int | None
    forceful: bool
    """The reason asks no budget (R19), so that these figures have no effect."""
    consumers: tuple[ConsumerView, ...]


class PoolView(View, frozen=True):
    name: str
    nodes: int
    budgets: tuple[BudgetView, ...]


class Explanation(View, frozen=True, kw_only=True):
    at: datetime
    end: datetime | UnsetType = UNSET
    """Of the span asked about."""
    pods: tuple[PodView, ...]
    nodes: tuple[NodeView, ...]
    nodepools: tuple[PoolView, ...]
    problems: tuple[Problem, ...]

    @property
    def all_allowed(self) -> bool:
        """Whether nothing in it is blocked: each pod, each wanted reason or else a free node, each pool's budgets."""
        return (
            all(pod.allowed for pod in self.pods)
            and all(_node_allowed(node, self.at) for node in self.nodes)
            and all(budget.allowed > 0 or budget.forceful for pool in self.nodepools for budget in pool.budgets)
        )


def _node_allowed(node: NodeView, at: datetime) -> bool:
    wanted = [reason.allowed for reason in node.reasons if reason.wanted]
    return any(wanted) if wanted else node.free_at == at


def explain(
    snapshot: Snapshot,
    at: datetime,
    *,
    end: datetime | None = None,
    reading: Reading = Reading.SEED,
    problems: Iterable[Problem] = (),
    only: Container[str] | None = None,
) -> Explanation:
    """Ask every rule about everything in the snapshot; with an end, also what changes until then.

    `only`: of the nodes just these are told about; the others still count for the budgets.
    """
    verdicts_on: dict[str, list[Verdict]] = defaultdict(list)
    pods = []
    for pod, verdicts in _pod_verdicts(snapshot, at):
        # Verdicts that time and protection do not touch say nothing about the node.
        telling = [verdict for verdict in verdicts if verdict.when is not ALWAYS]
        if telling:
            verdicts_on[pod.node_name] += telling
        pods.append(_pod_view(pod, verdicts, telling, at, end))
    pools = read_pools(snapshot, at, reading)
    nodes = [
        (member, pods_standing(verdicts_on[member.name] if member.node is not None else (), len(member.pods)))
        for member in snapshot.nodes
        if only is None or member.name in only
    ]
    return Explanation(
        at=at,
        end=UNSET if end is None else end,
        pods=tuple(pods),
        nodes=tuple(_node_view(member, pools.get(member.pool), standing, at, end) for member, standing in nodes),
        nodepools=tuple(_pool_view(pool) for pool in pools.values()),
        problems=(*problems, *snapshot.problems, *snapshot_problems(snapshot, nodes, pools.values(), at)),
    )


def _pod_verdicts(snapshot: Snapshot, at: datetime) -> Iterator[tuple[PodRecord, Sequence[Verdict]]]:
    """Each pod with every verdict about it, until it is deleted for its node's deadline."""
    pdbs = PdbIndex(snapshot.pdbs, snapshot.pods)
    deadlines = _deadlines(snapshot)
    # Replicas that nothing protects are told the same, but for the name, which `_pod_view` puts right.
    unprotected: dict[tuple[object, ...], Sequence[Verdict]] = {}
    for pod in snapshot.pods:
        alike = None
        if pod.owner is Owner.NONE and not may_be_protected(pod):  # to hash flags is slow
            labels, deleting = id(pod.labels), pod.deleted_at is not None
            alike = (pod.namespace, labels, pod.phase, pod.ready, deleting, pod.tolerates_disrupted)
        verdicts = unprotected.get(alike, ()) if alike is not None else ()
        if not verdicts:
            verdicts = (*protection(pod, at), pdbs.verdict(pod))
            if alike is not None and verdicts[-1].when is ALWAYS:
                unprotected[alike] = verdicts
        deadline = deadlines.get(pod.node_name)
        if deadline is not None and (forced := forced_deletion(pod, deadline, at)) is not None:
            verdicts = tuple(until_forced(verdict, forced, at) for verdict in verdicts)
        yield pod, verdicts


def _deadlines(snapshot: Snapshot) -> dict[str, datetime]:
    """When the drain of each draining node ends by force."""
    deadlines = {
        member.node.name: node_deadline(member.claim)
        for member in snapshot.nodes
        if member.node is not None and member.claim is not None
    }
    return {name: deadline for name, deadline in deadlines.items() if deadline is not None}


# -- views ------------------------------------------------------------------------------------------------------------


def _pod_view(
    pod: PodRecord, verdicts: Sequence[Verdict], telling: Sequence[Verdict], at: datetime, end: datetime | None
) -> PodView:
    object_ = pod.object
    when = together(telling) if telling else ALWAYS
    return PodView(
        pod.namespace,
        pod.name,
        pod.node_name or None,
        not telling or when.contains(at),
        when.until(at) if telling else None,
        tuple(
            [
                VerdictView(verdict.rule, verdict.allowed, verdict.until, object_, verdict.message)
                for verdict in verdicts
            ]
        ),
        UNSET if end is None else tuple(ChangeView(turn, when.contains(turn)) for turn in turns(when, at, end)),
    )


def _node_view(
    member: ClusterNode, pool: Pool | None, standing: PodsStanding, at: datetime, end: datetime | None
) -> NodeView:
    record = None if pool is None else pool.record
    claim = member.claim
    deadline = None if claim is None else node_deadline(claim)
    own = own_verdicts(member, record, at)
    allowances = None if pool is None else pool.allowances
    judged = judge_reasons(member, record, at, pods=standing, allowances=allowances, own=own)
    views: dict[int, VerdictView] = {}
    return NodeView(
        name=member.name,
        nodepool=member.pool or None,
        node_claim=None if claim is None else claim.name,
        state=state_of(member),
        ready=None if member.node is None else member.node.ready,
        pods=len(member.pods),
        reasons=tuple(
            [
                ReasonView(one.reason, one.wanted, one.allowed, one.until, _verdict_views(one.verdicts, views))
                for one in judged
            ]
        ),
        free_at=when_free(member, record, standing, at, own).first(at),
        expires_at=None if claim is None else expires_at(claim),
        gracefully_expires_at=None if claim is None else gracefully_expires_at(claim, record),
        deadline=deadline,
        forced_deletions=() if deadline is None else _forced_deletions(member.pods, deadline, at),
        changes=UNSET if end is None else _node_changes(member, record, judged, at, end),
    )


def _verdict_views(verdicts: Sequence[Verdict], views: dict[int, VerdictView]) -> tuple[VerdictView, ...]:
    """Several reasons share verdicts, which must live as long as `views`."""
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
    member: ClusterNode, pool: PoolRecord | None, judged: Sequence[ReasonVerdict], at: datetime, end: datetime
) -> tuple[ReasonChangeView, ...]:
    """Reasons come by expiring; whether they are allowed changes with the sets of the verdicts."""
    claim = member.claim
    expirations = () if claim is None else (expires_at(claim), gracefully_expires_at(claim, pool))
    expiring = [expires for expires in expirations if expires is not None and at < expires <= end]
    changes = []
    for one in judged:
        before = (one.wanted, one.allowed)
        for turn in sorted({*turns(one.when, at, end), *expiring}):
            now = (is_wanted(member, pool, one.reason, turn), one.when.contains(turn))
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


def _pool_view(pool: Pool) -> PoolView:
    consumers = tuple(
        ConsumerView(node=consumer.node, state=consumer.state, unhealthy=consumer.unhealthy)
        for consumer in pool.counts.consumers
    )
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
                forceful=reason is Reason.EXPIRED and pool.record.graceful_expire_after_ns is None,
                consumers=consumers,
            )
            for reason, allowed in pool.allowances.items()
        ),
    )
