"""The rules for disrupting a node for a reason. Every rule is evaluated, and every blocker is kept (02 §3)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from dovetail.api.names import ConditionType, ConsolidationPolicy, Reason
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import BUDGETED, Allowance, is_initialized
from dovetail.rules.deadlines import expires_at, gracefully_expires_at
from dovetail.rules.protection import node_do_not_disrupt
from dovetail.rules.reasons import DISRUPTION_REASONS, MARKED
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState, is_tainted_candidate, state_of
from dovetail.rules.verdict import Remark, Rule, Verdict, allow, judge, refuse, together
from dovetail.values.duration import add, short_duration
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of, any_of, since, with_time_left
from dovetail.values.timestamp import spoken_time

CONSOLIDATION = frozenset(reason for reason, row in DISRUPTION_REASONS.items() if row.consolidates)
# Parts of the time that a disruption takes: validation of consolidation, and the start of a replacement.
VALIDATION_SECONDS = 15.0
USUAL_BOOT = timedelta(minutes=1)
LONGEST_BOOT = timedelta(minutes=10)  # then the command is rolled back (R23)
# A scale-out without a break holds consolidation back for no longer than this.
LONGEST_SCALE_OUT = timedelta(minutes=30)
LONGEST_GRACE_SECONDS = 8 * 86_400  # longer than any window (R11); a pod may request more than a datetime can represent
_CLAIMS_NAMED = 3
_FORCEFUL = "not checked: expireAfter ignores it"
NOT_REPAIRED = "nothing replaces it unless the feature gate NodeRepair is on, which is off by default in Karpenter"
_NOT_MANAGED = "not managed: it has no karpenter.sh/nodepool label"
_NO_CLAIM = "no NodeClaim has its provider ID"
_NOT_ASKED: Mapping[Reason, Verdict] = {}


class PodsVerdict(msgspec.Struct, frozen=True):
    """The verdicts of a node's pods combined: when all allow, and those that block now."""

    when: Instants
    blockers: tuple[Verdict, ...]
    pods: int


class ReasonVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one node and one reason."""

    reason: Reason
    wanted: bool
    allowed: bool
    until: datetime | None
    when: Instants
    verdicts: tuple[Verdict, ...]


class StartingNodes(msgspec.Struct, frozen=True):
    """NodeClaims of a pool that are starting for pending pods, and until when they hold consolidation back."""

    claims: tuple[str, ...]
    until: datetime


class OwnVerdicts(NamedTuple):
    """Verdicts that do not depend on the reason, evaluated once for several reasons."""

    standing: tuple[Verdict, Verdict, Verdict]
    quiet: Verdict


def own_verdicts(member: ClusterNode, pool: PoolRecord | None, now: datetime) -> OwnVerdicts:
    """Evaluates the rules that do not depend on the reason."""
    annotated = (
        allow(Rule.NODE_DO_NOT_DISRUPT, member.object, "no Node")
        if member.node is None
        else node_do_not_disrupt(member.node, now)
    )
    return OwnVerdicts((annotated, _initialized(member), _deleting(member)), consolidate_after(member, pool, now))


def pods_standing(verdicts: Sequence[Verdict], pods: int) -> PodsVerdict:
    """Combines all verdicts of all pods on the node."""
    blockers = tuple(verdict for verdict in verdicts if not verdict.allowed)
    return PodsVerdict(together(verdicts), blockers, pods)


def judge_reason(
    member: ClusterNode,
    pool: PoolRecord | None,
    reason: Reason,
    now: datetime,
    *,
    pods: PodsVerdict,
    allowance: Allowance | None,
    own: OwnVerdicts | None = None,
    starting: StartingNodes | None = None,
    replacement: Verdict | None = None,
) -> ReasonVerdict:
    """Evaluates every rule of the node for the reason, in the order of the Rule enum. `starting`: in its pool.

    `replacement`: the verdict of the last rule, which takes a scheduling simulation; None: it was not asked.
    """
    own = own or own_verdicts(member, pool, now)
    waits = reason is Reason.UNDERUTILIZED and _waits_to_consolidate(member)
    forced = when_forced(member, pool, reason)
    if forced.contains(now):
        verdicts = _forceful(member)
        when = together(verdicts)
    else:
        verdicts = [
            *standing_rules(member, pool, reason, now, own),
            *([_scale_out(member, starting, now)] if starting and waits else []),
            pods_rule(member, reason, pods, now),
            budget_rule(member, reason, allowance, now),
            *([] if replacement is None else [replacement]),
        ]
        when = together(verdicts)
        if forced is not NEVER:
            when = any_of([when, all_of([forced, together(_forceful(member))])])
    return ReasonVerdict(
        reason=reason,
        wanted=is_wanted(member, pool, reason, now),
        allowed=when.contains(now),
        until=when.until(now),
        when=when,
        verdicts=tuple(verdicts),
    )


def judge_reasons(
    member: ClusterNode,
    pool: PoolRecord | None,
    now: datetime,
    *,
    pods: PodsVerdict,
    allowances: Mapping[Reason, Allowance] | None,
    own: OwnVerdicts,
    reasons: Iterable[Reason] = BUDGETED,
    replacements: Mapping[Reason, Verdict] = _NOT_ASKED,
    starting: StartingNodes | None = None,
) -> list[ReasonVerdict]:
    """The answers for the reasons, by default all that a budget can name.

    `allowances` and `starting`: of the pool, if it is known.
    """
    return [
        judge_reason(
            member,
            pool,
            reason,
            now,
            pods=pods,
            allowance=None if allowances is None else allowances[reason],
            own=own,
            replacement=replacements.get(reason),
            starting=starting,
        )
        for reason in reasons
    ]


def when_forced(member: ClusterNode, pool: PoolRecord | None, reason: Reason) -> Instants:
    """When expiration ignores all rules: always, or after `expireAfter` if the pool expires gracefully (R19–R20)."""
    if reason is not Reason.EXPIRED:
        return NEVER
    if pool is None or pool.graceful_expire_after_ns is None:
        return ALWAYS
    at = None if member.claim is None else expires_at(member.claim)
    return NEVER if at is None else since(at)


def when_free(
    member: ClusterNode, pool: PoolRecord | None, pods: PodsVerdict, now: datetime, own: OwnVerdicts | None = None
) -> Instants:
    """When no rule of the node or its pods blocks a graceful disruption, without budgets.

    `consolidateAfter` is not included: it blocks consolidation only.
    """
    return all_of([together(standing_rules(member, pool, Reason.DRIFTED, now, own)), pods.when])


def is_empty(member: ClusterNode) -> bool:
    """Whether no pod on the node needs another place (R51)."""
    return not any(pod.reschedulable for pod in member.pods)


def consolidation_reason(member: ClusterNode) -> Reason:
    """The reason, and so the budget, for consolidating the node.

    A node whose pods cost nothing to move counts as Empty (02 §3), although these pods need another place (R51).
    """
    return Reason.UNDERUTILIZED if any(map(costs_to_move, member.pods)) else Reason.EMPTY


def costs_to_move(pod: PodRecord) -> bool:
    """Whether the pod needs another place when its node is removed, and moving it costs something."""
    return pod.reschedulable and pod.eviction_cost > 0


def is_wanted(member: ClusterNode, pool: PoolRecord | None, reason: Reason, now: datetime) -> bool:
    """Whether the node has the reason now, according to its objects."""
    claim = member.claim
    if claim is None or member.node is None:
        return False
    if reason is Reason.EMPTY and is_empty(member):
        return is_initialized(member) and (pool is None or _consolidates(pool))
    if reason in CONSOLIDATION:
        # The candidate taint shows that the node has some graceful reason (R22). The other reasons have conditions.
        if not is_tainted_candidate(member) or is_empty(member):
            return False
        others = any(is_wanted(member, pool, other, now) for other in MARKED)
        return not others and consolidation_reason(member) is reason
    if reason not in MARKED:
        return False  # unhealthy and interrupted nodes are deleted at once, without a condition
    if reason is Reason.EXPIRED and any(at is not None and now >= at for at in _expirations(claim, pool)):
        return True
    return claim.is_true(MARKED[reason])


def _consolidates(pool: PoolRecord) -> bool:
    """Whether it ever does. Whoever has turned it off wants empty nodes to stay: nobody has to act."""
    return pool.consolidate_after_ns is not None and pool.replicas is None


def when_wanted(member: ClusterNode, pool: PoolRecord | None, reason: Reason) -> Instants:
    """When the node has the reason, if nothing but time changes. Assumes that pods always have another place."""
    claim = member.claim
    if claim is None or member.node is None:
        return NEVER
    if reason in CONSOLIDATION:
        return ALWAYS if consolidation_reason(member) is reason else NEVER
    if claim.is_true(MARKED[reason]):
        return ALWAYS
    if reason is Reason.EXPIRED:
        return any_of([since(at) for at in _expirations(claim, pool) if at is not None])
    return NEVER


def marked_reasons(member: ClusterNode, pool: PoolRecord | None) -> Iterator[Reason]:
    """The reasons that the engine acts on, from conditions and pods, before any rule is evaluated."""
    claim = member.claim
    if claim is None:
        return
    for reason, condition in MARKED.items():
        # The pool defines when its nodes expire (R20).
        if claim.is_true(condition) and (pool is not None or reason is not Reason.EXPIRED):
            yield reason
    if claim.is_true(ConditionType.CONSOLIDATABLE) and (pool is None or pool.replicas is None):
        yield consolidation_reason(member)


def _expirations(claim: ClaimRecord, pool: PoolRecord | None) -> tuple[datetime | None, datetime | None]:
    return expires_at(claim), gracefully_expires_at(claim, pool)


def still_allowed(
    member: ClusterNode, pool: PoolRecord | None, reason: Reason, now: datetime, blockers: Sequence[Verdict]
) -> list[Verdict]:
    """The rules that are checked again for a node in S3, right before it is drained, without budgets (R50).

    `blockers`: the verdicts of pods that must stay. Utilization and `consolidateAfter` are not checked: the node takes
    no new pods, and pods that leave only make it emptier.
    """
    if when_forced(member, pool, reason).contains(now):
        return []
    own = own_verdicts(member, pool, now)
    annotated, initialized, _ = own.standing
    pods = PodsVerdict(NEVER if blockers else ALWAYS, tuple(blockers), len(member.pods))
    return [
        _has_reason(member, pool, reason, now),
        annotated,
        initialized,
        _nodepool(member, pool, reason),
        pods_rule(member, reason, pods, now),
    ]


def _has_reason(member: ClusterNode, pool: PoolRecord | None, reason: Reason, now: datetime) -> Verdict:
    if reason in CONSOLIDATION:  # the node takes no new pods, so it stays underutilized
        has_reason = reason is Reason.UNDERUTILIZED or consolidation_reason(member) is reason
    else:
        has_reason = is_wanted(member, pool, reason, now)
    if has_reason:
        return allow(Rule.REASON, member.object, f"the node is {reason.value}")
    return refuse(Rule.REASON, member.object, f"the node is not {reason.value} any more")


# -- the rules --------------------------------------------------------------------------------------------------------


def standing_rules(
    member: ClusterNode, pool: PoolRecord | None, reason: Reason, now: datetime, own: OwnVerdicts | None = None
) -> list[Verdict]:
    """The rules of the node itself for a graceful disruption."""
    own = own or own_verdicts(member, pool, now)
    not_ready = _not_ready(member) if reason is Reason.UNDERUTILIZED and _waits_to_consolidate(member) else ()
    quiet = [own.quiet] if reason in CONSOLIDATION else []
    return [*own.standing, *not_ready, _nodepool(member, pool, reason), *quiet]


def _initialized(member: ClusterNode) -> Verdict:
    if member.node is None:
        return refuse(Rule.INITIALIZED, member.object, "the NodeClaim has no Node", transient=True)
    if not is_initialized(member):
        return refuse(Rule.INITIALIZED, member.object, "the node is not initialized yet", transient=True)
    return allow(Rule.INITIALIZED, member.object, "initialized")


def _deleting(member: ClusterNode, states: Collection[NodeState] = IN_DISRUPTION) -> Verdict:
    state = state_of(member)
    if state in states:
        return refuse(Rule.DELETING, member.object, f"already on its way out: {state} {MEANING[state]}")
    return allow(Rule.DELETING, member.object, "not being deleted")


def _waits_to_consolidate(member: ClusterNode) -> bool:
    return member.node is None or member.node.settings.waits_to_consolidate


def _not_ready(member: ClusterNode) -> Iterator[Verdict]:
    """Node repair takes care of a node that is not Ready. Pods are not moved from it to save something."""
    if member.node is not None and not member.node.ready:
        by = "node repair replaces it, not consolidation" if member.node.settings.node_repair else NOT_REPAIRED
        why = f"the node is NotReady; {by}"
        yield refuse(Rule.READY, member.object, why, transient=True)


def starting_nodes(members: Sequence[ClusterNode], now: datetime) -> StartingNodes | None:
    """The nodes of one pool that are starting, except replacements of commands.

    A node counts from its launch, since launches may fail again and again, and for LONGEST_BOOT at most. In a pool in
    which nodes have been starting without a break for LONGEST_SCALE_OUT, none counts.
    """
    starting = {
        claim.name: claim.created_at
        for member in members
        if not is_initialized(member) and (claim := member.claim) is not None and not claim.replacement
        if claim.provider_id and claim.deleted_at is None
        if claim.created_at is not None and now < claim.created_at + LONGEST_BOOT
    }
    if not starting:
        return None
    began_at = min(starting.values())
    claims = (member.claim for member in members if member.claim is not None and not member.claim.replacement)
    boots = ((claim.true_since(ConditionType.INITIALIZED), claim.created_at) for claim in claims)
    for up_at, created_at in sorted(((up, made) for up, made in boots if up and made), reverse=True):
        if up_at < began_at:
            break
        began_at = min(began_at, created_at)
    until = min(max(starting.values()) + LONGEST_BOOT, began_at + LONGEST_SCALE_OUT)
    return StartingNodes(tuple(sorted(starting)), until) if now < until else None


def _scale_out(member: ClusterNode, starting: StartingNodes, now: datetime) -> Verdict:
    """Pending pods have not used the room of this node, or of the new ones, yet."""
    claims = starting.claims
    named = ", ".join(claims[:_CLAIMS_NAMED]) + (
        f" and {more} more" if (more := len(claims) - _CLAIMS_NAMED) > 0 else ""
    )
    message = f"new nodes of its NodePool are starting for pending pods: {named}"
    return judge(Rule.SCALE_OUT, member.object, since(starting.until), now, allowed=message, blocked=message)


def _nodepool(member: ClusterNode, pool: PoolRecord | None, reason: Reason) -> Verdict:
    rule = Rule.NODEPOOL
    if not member.pool:
        return refuse(rule, member.object, _NOT_MANAGED)
    if member.claim is None:
        return refuse(rule, member.object, _NO_CLAIM)
    if pool is None:
        return refuse(rule, member.object, f"NodePool {member.pool} was not found")
    if reason in CONSOLIDATION and pool.replicas is not None:
        return refuse(
            rule, member.object, f"NodePool {pool.name} has a fixed number of replicas and never consolidates"
        )
    if pool.replicas is not None and pool.deleted_at is not None:  # 02 §7.3: its template makes the replacement
        return refuse(rule, member.object, f"NodePool {pool.name} is being deleted and creates no replacements")
    if reason is Reason.UNDERUTILIZED and pool.consolidation_policy == ConsolidationPolicy.WHEN_EMPTY:
        return refuse(rule, member.object, f"NodePool {pool.name} consolidates only when empty")
    return allow(rule, member.object, f"NodePool {pool.name}")


def consolidate_after(member: ClusterNode, pool: PoolRecord | None, now: datetime) -> Verdict:
    """`consolidateAfter` has passed since the last pod event, or since the initialization (02 §10)."""
    rule, claim = Rule.CONSOLIDATE_AFTER, member.claim
    if pool is None or claim is None:
        return refuse(rule, member.object, "no NodePool and NodeClaim to tell")
    if pool.consolidate_after_ns is None:
        return refuse(rule, member.object, f"NodePool {pool.name} never consolidates (consolidateAfter: Never)")
    quiet_since = claim.last_pod_event_at or claim.true_since(ConditionType.INITIALIZED)
    if quiet_since is None:
        return refuse(rule, member.object, "the NodeClaim does not say since when it is initialized")
    from_at = add(quiet_since, pool.consolidate_after_ns)
    if from_at is None:
        return refuse(rule, member.object, "consolidateAfter ends beyond the calendar")
    span = short_duration(pool.consolidate_after_ns)
    message = f"consolidateAfter {span} since pods last changed {spoken_time(quiet_since)}"
    return judge(
        rule, member.object, since(from_at), now, allowed=f"{message} has passed", blocked=f"{message} is not over"
    )


def drain_limit(member: ClusterNode, reason: Reason) -> int | None:
    """The terminationGracePeriod, with which drift and expiration may start despite protected pods, in ns (R16).

    None: protected pods block the disruption, as they always do for consolidation.
    """
    return None if reason in CONSOLIDATION or member.claim is None else member.claim.grace_period_ns


def pods_rule(member: ClusterNode, reason: Reason, pods: PodsVerdict, now: datetime) -> Verdict:
    """Whether the pods allow the disruption, or the drain has a limit (R16)."""
    protected = len({verdict.object for verdict in pods.blockers})
    message = f"{protected} of its {pods.pods} pods {'is' if protected == 1 else 'are'} protected"
    if pods.pods == 1:
        message = f"its only pod is {'' if protected else 'not '}protected"
    elif not protected:
        message = f"none of its {pods.pods} pods is protected" if pods.pods else "it has no pods"
    grace_ns = drain_limit(member, reason)
    if grace_ns is not None:
        limit = f"the drain is limited by terminationGracePeriod {short_duration(grace_ns)}"
        return allow(Rule.PODS, member.object, f"{message}{', but' if protected else ';'} {limit}", pods.blockers)
    if pods.when is ALWAYS or pods.when is NEVER:
        return judge(Rule.PODS, member.object, pods.when, now, allowed=message, blocked=message, blockers=pods.blockers)
    takes = time_taken(member, reason)
    when = with_time_left(pods.when, takes)
    blocked = message if when.contains(now) else _why_not_now(pods, when, takes, message, now)
    return judge(Rule.PODS, member.object, when, now, allowed=message, blocked=blocked, blockers=pods.blockers)


def _why_not_now(pods: PodsVerdict, when: Instants, takes: timedelta, protected: str, now: datetime) -> str:
    why = protected if pods.blockers else _too_short(pods.when.until(now), takes)
    if when.first(now) is None and pods.when.first(now) is not None:
        why = f"{why}; all windows of its pods are shorter than the {_span(takes)} that a disruption takes"
    return why


def _too_short(closes_at: datetime | None, takes: timedelta) -> str:
    closing = "" if closes_at is None else f" at {spoken_time(closes_at)}"
    return f"the window of its pods closes{closing}, and a disruption takes {_span(takes)}"


def _span(takes: timedelta) -> str:
    return short_duration(takes // timedelta(seconds=1) * 1_000_000_000)


def time_taken(member: ClusterNode, reason: Reason) -> timedelta:
    """The duration until the pods are gone: validation, start of the replacement, longest grace of the pods (R50).

    A replacement is expected to start as fast as this node did. An empty node needs none.
    """
    grace = grace_taken(max((pod.grace_seconds for pod in member.pods if pod.active), default=0))
    validation = timedelta(seconds=VALIDATION_SECONDS if reason in CONSOLIDATION else 0)
    return validation + grace + (timedelta() if reason is Reason.EMPTY else _boot(member))


def grace_taken(seconds: int) -> timedelta:
    return timedelta(seconds=min(seconds, LONGEST_GRACE_SECONDS))


def _boot(member: ClusterNode) -> timedelta:
    claim = member.claim
    up_at = None if claim is None else claim.true_since(ConditionType.INITIALIZED)
    if claim is None or up_at is None or claim.created_at is None:
        return USUAL_BOOT
    return min(max(up_at - claim.created_at, timedelta()), LONGEST_BOOT)


def budget_rule(member: ClusterNode, reason: Reason, allowance: Allowance | None, now: datetime) -> Verdict:
    """The budget of the reason, if the counts of the pool do not change (R25–R26)."""
    if allowance is None:
        return refuse(Rule.BUDGET, member.object, "no NodePool, so no budget")
    index = None if allowance.binding is None else f"budgets[{allowance.binding}]"
    left = f"{allowance.allowed} of {allowance.limit} left for {reason.value}{f' by {index}' if index else ''}"
    if allowance.fault:
        blocked = f"{index} of NodePool {member.pool} is invalid and counts as 0: {allowance.fault}"
    elif allowance.limit == 0:
        blocked = f"{index or 'the budget'} of NodePool {member.pool} allows 0 nodes for {reason.value} now"
        if allowance.opens_at is not None and allowance.when.first(now) is None:
            blocked += f", and other nodes use up what it allows from {spoken_time(allowance.opens_at)}"
    else:
        using = "1 node uses" if allowance.busy == 1 else f"{allowance.busy} nodes use"
        blocked = f"{left}: {using} it up"
    # A budget that is used up is free again when the disruptions end. One that is always 0 needs an edit.
    return judge(
        Rule.BUDGET,
        member.object,
        allowance.when,
        now,
        allowed=left,
        blocked=blocked,
        transient=allowance.opens_at is not None,
    )


def _forceful(member: ClusterNode) -> list[Verdict]:
    name = member.object
    ignored = {
        rule: allow(rule, name, _FORCEFUL, remark=Remark.UNCHECKED)
        for rule in (Rule.NODE_DO_NOT_DISRUPT, Rule.INITIALIZED, Rule.NODEPOOL, Rule.BUDGET)
    }
    owned = ignored[Rule.NODEPOOL]
    if member.claim is None:
        owned = refuse(Rule.NODEPOOL, name, _NO_CLAIM if member.pool else _NOT_MANAGED)
    return [
        ignored[Rule.NODE_DO_NOT_DISRUPT],
        ignored[Rule.INITIALIZED],
        _deleting(member, IN_DISRUPTION - {NodeState.DISRUPTING}),
        owned,
        allow(Rule.PODS, name, "protections hold while draining, until the node's deadline"),
        ignored[Rule.BUDGET],
    ]
