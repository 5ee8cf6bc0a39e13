"""May each pod and node be disrupted now, and if not, which rules block it and until when? The contract of 09."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.model.problem import Problem, Severity
from dovetail.model.records import Owner, PodRecord, PoolRecord
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.rules.budgets import (
    BUDGETED,
    Allowance,
    BudgetRule,
    PoolCounts,
    Reading,
    allowance,
    budget_problems,
    pool_counts,
    read_budgets,
)
from dovetail.rules.deadlines import expires_at, forced_deletion, gracefully_expires_at, node_deadline, until_forced
from dovetail.rules.nodes import PodsStanding, judge_reason, pods_standing, when_free
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import pod_problems, protection, read_do_not_disrupt
from dovetail.rules.states import State, state_of
from dovetail.rules.verdict import Verdict, together
from dovetail.values.duration import shown
from dovetail.values.instants import ALWAYS
from dovetail.values.timestamp import TimeError, parse_time

# Pools grow, and what makes no difference with one node will make one then.
_GROWN = (10, 100, 1000)


class View(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of what is printed: keys are stable, new ones may be added."""


class VerdictView(View, frozen=True, omit_defaults=True):
    rule: str
    allowed: bool
    until: datetime | None
    object: str
    message: str
    blockers: tuple["VerdictView", ...] = ()


class PodView(View, frozen=True):
    namespace: str
    name: str
    node: str | None
    allowed: bool
    until: datetime | None
    verdicts: tuple[VerdictView, ...]


class ReasonView(View, frozen=True):
    reason: str
    wanted: bool
    allowed: bool
    until: datetime | None
    verdicts: tuple[VerdictView, ...]


class DeletionView(View, frozen=True):
    """R17: when a pod of a draining node is deleted if it is still there."""

    pod: str
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


class Explanation(View, frozen=True):
    at: datetime
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


class _Pool(msgspec.Struct, frozen=True):
    """A pool with its budgets read and counted, once for all its nodes."""

    record: PoolRecord
    budgets: tuple[BudgetRule, ...]
    counts: PoolCounts
    allowances: dict[Reason, Allowance]


def explain(
    snapshot: Snapshot, at: datetime, *, reading: Reading = Reading.SEED, problems: Iterable[Problem] = ()
) -> Explanation:
    """Ask every rule about everything in the snapshot."""
    pdbs = PdbIndex(snapshot.pdbs, snapshot.pods)
    verdicts_on: dict[str, list[Verdict]] = defaultdict(list)
    pods: list[PodView] = []
    found = [*problems, *snapshot.problems]
    deadlines = _deadlines(snapshot)
    for pod in snapshot.pods:
        verdicts: tuple[Verdict, ...] = (*protection(pod, at), pdbs.verdict(pod))
        deadline = deadlines.get(pod.node_name)
        if deadline is not None and (forced := forced_deletion(pod, deadline, at)) is not None:
            verdicts = tuple(until_forced(verdict, forced, at) for verdict in verdicts)
        # Verdicts that time and protection do not touch say nothing about the node.
        verdicts_on[pod.node_name].extend([verdict for verdict in verdicts if verdict.when is not ALWAYS])
        pods.append(_pod_view(pod, verdicts, at))
        if pod.annotations and pod.active:
            found += pod_problems(pod)
    pools = _pools(snapshot, at, reading)
    nodes = []
    for member in snapshot.nodes:
        standing = pods_standing(verdicts_on[member.name] if member.node is not None else (), len(member.pods))
        nodes.append(_node_view(member, pools.get(member.pool), standing, at))
        found += _node_problems(member, standing)
    for pool in pools.values():
        graceful = pool.record.graceful_expire_after_ns is not None
        found += budget_problems(
            pool.record.object,
            pool.budgets,
            graceful_expiry=graceful,
            now=at,
            node_counts=[pool.counts.nodes, *_GROWN],
        )
    if snapshot.nodes and not snapshot.pods:
        found.append(_NO_PODS)
    found += [_bad_selector(pdb.object, pdb.selector_problem) for pdb in snapshot.pdbs if pdb.selector_problem]
    return Explanation(
        at=at,
        pods=tuple(pods),
        nodes=tuple(nodes),
        nodepools=tuple(_pool_view(pool) for pool in pools.values()),
        problems=tuple(found),
    )


def _deadlines(snapshot: Snapshot) -> dict[str, datetime]:
    """When the drain of each draining node ends by force."""
    deadlines = {
        member.node.name: node_deadline(member.claim)
        for member in snapshot.nodes
        if member.node is not None and member.claim is not None
    }
    return {name: deadline for name, deadline in deadlines.items() if deadline is not None}


def _pools(snapshot: Snapshot, at: datetime, reading: Reading) -> dict[str, _Pool]:
    members: dict[str, list[ClusterNode]] = defaultdict(list)
    for member in snapshot.nodes:
        members[member.pool].append(member)
    pools = {}
    for name, record in snapshot.pools.items():
        budgets, counts = read_budgets(record.budgets), pool_counts(members[name])
        pools[name] = _Pool(
            record,
            budgets,
            counts,
            {reason: allowance(budgets, reason=reason, now=at, counts=counts, reading=reading) for reason in BUDGETED},
        )
    return pools


# -- views ------------------------------------------------------------------------------------------------------------


def _verdict_views(verdicts: Sequence[Verdict]) -> tuple[VerdictView, ...]:
    return tuple(
        VerdictView(
            rule=verdict.rule,
            allowed=verdict.allowed,
            until=verdict.until,
            object=verdict.object,
            message=verdict.message,
            blockers=_verdict_views(verdict.blockers) if verdict.blockers else (),
        )
        for verdict in verdicts
    )


def _pod_view(pod: PodRecord, verdicts: Sequence[Verdict], at: datetime) -> PodView:
    when = together(verdicts)
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node_name or None,
        allowed=all(verdict.allowed for verdict in verdicts),
        until=when.until(at),
        verdicts=_verdict_views(verdicts),
    )


def _node_view(member: ClusterNode, pool: _Pool | None, standing: PodsStanding, at: datetime) -> NodeView:
    record = None if pool is None else pool.record
    claim = member.claim
    deadline = None if claim is None else node_deadline(claim)
    reasons = []
    for reason in BUDGETED:
        allowed = None if pool is None else pool.allowances[reason]
        judged = judge_reason(member, record, reason, at, pods=standing, allowance=allowed)
        reasons.append(
            ReasonView(
                reason=reason,
                wanted=judged.wanted,
                allowed=judged.allowed,
                until=judged.until,
                verdicts=_verdict_views(judged.verdicts),
            )
        )
    return NodeView(
        name=member.name,
        nodepool=member.pool or None,
        node_claim=None if claim is None else claim.name,
        state=state_of(member),
        ready=None if member.node is None else member.node.ready,
        pods=len(member.pods),
        reasons=tuple(reasons),
        free_at=when_free(member, record, standing, at).first(at),
        expires_at=None if claim is None else expires_at(claim),
        gracefully_expires_at=None if claim is None else gracefully_expires_at(claim, record),
        deadline=deadline,
        forced_deletions=() if deadline is None else _forced_deletions(member.pods, deadline, at),
    )


def _forced_deletions(pods: Sequence[PodRecord], deadline: datetime, at: datetime) -> tuple[DeletionView, ...]:
    drained = [pod for pod in pods if not (pod.tolerates_disrupted or pod.owner & Owner.NODE)]
    found = [forced_deletion(pod, deadline, at) for pod in drained]
    return tuple(
        DeletionView(pod=deletion.pod.object, at=deletion.at, grace_seconds=deletion.grace_seconds)
        for deletion in sorted(filter(None, found), key=lambda deletion: (deletion.at, deletion.pod.object))
    )


def _pool_view(pool: _Pool) -> PoolView:
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


# -- problems ---------------------------------------------------------------------------------------------------------


def _node_problems(member: ClusterNode, standing: PodsStanding) -> Iterable[Problem]:
    claim, node = member.claim, member.node
    if node is not None and node.do_not_disrupt is not None:
        meaning = read_do_not_disrupt(node.do_not_disrupt)
        if meaning.fault is not None:
            yield Problem(
                severity=Severity.WARNING,
                rule=names.EventReason.INVALID_DO_NOT_DISRUPT,
                object=node.object,
                field=f"metadata.annotations[{names.DO_NOT_DISRUPT}]",
                message=f"{shown(node.do_not_disrupt)} on a Node blocks nothing",
                remedy='write "true" or a positive Go duration such as "4h"',
            )
    if node is not None and node.pool and claim is None:
        yield Problem(
            severity=Severity.WARNING,
            rule="NodeClaimMissing",
            object=node.object,
            field="spec.providerID",
            message="no NodeClaim has this Node's provider ID, so its limits and reasons are unknown",
            remedy="put the NodeClaims and NodePools into the dump too: kubectl get nodepools,nodeclaims -o yaml",
        )
    if claim is None:
        return
    if claim.created_at is None and claim.expire_after_ns is not None:
        yield Problem(
            severity=Severity.INFO,
            rule="CreationTimestampMissing",
            object=claim.object,
            field="metadata.creationTimestamp",
            message="without a creation time it is unknown when the NodeClaim expires",
            remedy="dump the object from the cluster",
        )
    if claim.termination_timestamp is not None:
        try:
            parse_time(claim.termination_timestamp)
        except TimeError as error:
            yield Problem(
                severity=Severity.WARNING,
                rule="InvalidTerminationTimestamp",
                object=claim.object,
                field=f"metadata.annotations[{names.TERMINATION_TIMESTAMP}]",
                message=f"{error}; nothing is forced until it is corrected",
                remedy="remove the annotation, or write an RFC 3339 time",
            )
    if state_of(member) is State.DRAINING and node_deadline(claim) is None and standing.blockers:
        waits_for = ", ".join(dict.fromkeys(verdict.object for verdict in standing.blockers[:5]))
        yield Problem(
            severity=Severity.WARNING,
            rule="DrainHasNoDeadline",
            object=claim.object,
            field="spec.terminationGracePeriod",
            message=f"draining without a limit and waiting for {waits_for}; meanwhile it holds a slot of every budget",
            remedy="unblock or delete these pods; set terminationGracePeriod in the NodePool's template for new nodes",
        )


_NO_PODS = Problem(
    severity=Severity.WARNING,
    rule="NoPods",
    object="Pod",
    field="kind",
    message="the input holds nodes but no pods, so that nothing protects them here",
    remedy="put the pods and PodDisruptionBudgets into the dump too: kubectl get pods,pdb -A -o yaml",
)


def _bad_selector(object_: str, problem: str) -> Problem:
    return Problem(
        severity=Severity.ERROR,
        rule="InvalidSelector",
        object=object_,
        field="spec.selector",
        message=f"{problem}; it selects nothing",
        remedy="correct the selector",
    )
