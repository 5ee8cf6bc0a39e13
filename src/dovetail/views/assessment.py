"""What do the rules say of every pod, node and pool of a snapshot at one instant?

`explain`, `forecast`, the dashboard and `plan` read their answers off one Assessment. It holds records, verdicts and
sets of instants, no text of its own. `assess` takes over from an earlier Assessment what nothing has changed: such a
node or pool is the same object (`is`), so that whoever derives something from it can tell that it still holds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import msgspec

from dovetail.api.names import Reason
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import RuleSettings
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.planning.disruption.replaceable import ReplacementVerdicts
from dovetail.rules.budgets import (
    BUDGETED,
    Allowance,
    BudgetRule,
    PoolCounts,
    allowance,
    allowances,
    pool_counts,
    read_budgets,
)
from dovetail.rules.deadlines import (
    expires_at,
    forced_deletion,
    gracefully_expires_at,
    node_deadline,
    until_forced,
)
from dovetail.rules.nodes import (
    OwnVerdicts,
    PodsVerdict,
    ReasonVerdict,
    StartingNodes,
    judge_reasons,
    own_verdicts,
    pods_standing,
    standing_rules,
    starting_nodes,
    when_free,
)
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import may_be_protected, protection
from dovetail.rules.reasons import MARKED
from dovetail.rules.replacements import awaited_replacement
from dovetail.rules.states import NodeState, state_of
from dovetail.rules.verdict import Verdict
from dovetail.values.schedule.instants import ALWAYS, Instants
from dovetail.views.drained import read_drains

# Rules look five years ahead (R10). What they do not find there may come into sight later.
ASKED_AGAIN_AFTER: Final = timedelta(hours=1)
_ANY_POD: Final = Ref("Pod")
NO_REPLACEMENTS: Final[ReplacementVerdicts] = {}


class PoolAssessment(msgspec.Struct, frozen=True, eq=False):
    """A NodePool, its budgets, what uses them up, and what they allow."""

    record: PoolRecord
    budgets: tuple[BudgetRule, ...]
    counts: PoolCounts
    claims: int
    """NodeClaims that are not being deleted."""
    starting: StartingNodes | None
    settings: RuleSettings
    allowances: dict[Reason, Allowance]
    until: datetime
    """Time alone changes nothing here before this instant."""

    def allowance_at(self, reason: Reason, at: datetime, counts: PoolCounts | None = None) -> Allowance:
        """`counts`: other nodes than there are now."""
        counts = counts or self.counts
        return allowance(self.budgets, reason=reason, now=at, counts=counts, reading=self.settings.budgets)


class NodeAssessment(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A node and what the rules say of it, budgets aside."""

    member: ClusterNode
    record: PoolRecord | None
    """Its NodePool."""
    state: NodeState
    own: OwnVerdicts
    limiting: tuple[tuple[PodRecord, Verdict], ...]
    """The verdicts about its pods that block now or at some other time."""
    pods: PodsVerdict
    free: Instants
    """When no rule blocks a graceful disruption."""
    expires_at: datetime | None
    gracefully_expires_at: datetime | None
    deadline: datetime | None
    """Of a drain that has begun."""
    until: datetime
    """Time alone changes nothing here before this instant."""


class Assessment:
    """The answer of the rules. Each part is assessed when it is asked for, once."""

    def __init__(
        self,
        snapshot: Snapshot,
        at: datetime,
        before: "Assessment | None",
        replacements: ReplacementVerdicts,
    ) -> None:
        self.snapshot = snapshot = read_drains(snapshot)
        self.at = at
        self.settings = snapshot.settings
        self._replacements = replacements
        self.pdbs = PdbIndex(snapshot.pdbs, snapshot.pods)
        if before is not None and (before.at > at or before.settings != snapshot.settings):
            before = None
        self.pools: dict[str, PoolAssessment] = _assess_pools(snapshot, at, {} if before is None else before.pools)
        self._before = {} if before is None else before.nodes_by_identity
        self._changed_pdbs = _ChangedPdbs(before, self)
        self._deadlines = _deadlines(snapshot)
        # By `id`: the snapshot keeps members and pods, and `_nodes` what `_reasons` is about.
        self._limiting: dict[int, tuple[Verdict, ...]] = {}
        self._nodes: dict[int, NodeAssessment] = {}
        self._reasons: dict[int, dict[Reason, ReasonVerdict]] = {}
        self._unlimited: dict[tuple[object, ...], tuple[Verdict, ...]] = {}

    @property
    def nodes(self) -> Iterable[NodeAssessment]:
        """All nodes, in the order of the snapshot."""
        return map(self.node, self.snapshot.nodes)

    @cached_property
    def nodes_by_identity(self) -> dict[tuple[str, str], NodeAssessment]:
        return {identity(node.member): node for node in self.nodes}

    def node(self, member: ClusterNode) -> NodeAssessment:
        """A node of the snapshot."""
        assessed = self._nodes.get(id(member))
        if assessed is None:
            assessed = self._nodes[id(member)] = self._kept(member) or self._assess_node(member)
        return assessed

    def _kept(self, member: ClusterNode) -> NodeAssessment | None:
        """What the earlier assessment says of the node, if it still holds."""
        before = self._before.get(identity(member))
        if (
            before is None
            or self.at >= before.until
            or before.member != member
            or before.record != self.snapshot.pools.get(member.pool)
            or self._changed_pdbs.select(member.pods)
        ):
            return None
        return before

    def _assess_node(self, member: ClusterNode) -> NodeAssessment:
        at, claim, record = self.at, member.claim, self.snapshot.pools.get(member.pool)
        own = own_verdicts(member, record, at)
        bound = member.pods if member.node is not None else ()
        limiting = tuple([(pod, verdict) for pod in bound if (limits := self.limiting(pod)) for verdict in limits])
        verdicts = [verdict for _, verdict in limiting]
        pods = pods_standing(verdicts, len(member.pods))
        hard, soft, deadline = (
            (None, None, None)
            if claim is None
            else (expires_at(claim), gracefully_expires_at(claim, record), node_deadline(claim))
        )
        turns = [hard, soft, *(verdict.until for verdict in (*own.standing, own.quiet, *verdicts))]
        return NodeAssessment(
            member=member,
            record=record,
            state=state_of(member),
            own=own,
            limiting=limiting,
            pods=pods,
            free=when_free(member, record, pods, at, own),
            expires_at=hard,
            gracefully_expires_at=soft,
            deadline=deadline,
            until=first_turn(turns, at),
        )

    def node_of(self, pod: PodRecord) -> NodeAssessment | None:
        """The node that the pod is on."""
        member = self._by_name.get(pod.node_name)
        return None if member is None else self.node(member)

    @cached_property
    def _by_name(self) -> dict[str, ClusterNode]:
        return {member.name: member for member in self.snapshot.nodes if member.node is not None}

    def verdicts(self, pod: PodRecord) -> tuple[Verdict, ...]:
        """Every verdict about a pod of the snapshot, in the order of R5.

        Replicas that nothing protects share their verdicts, which name no single pod.
        """
        alike = None
        if pod.owner is Owner.NONE and not may_be_protected(pod):  # to hash flags is slow
            labels, deleting = id(pod.labels), pod.deleted_at is not None
            alike = (pod.namespace, labels, pod.phase, pod.ready, deleting, pod.tolerates_disrupted)
            if (shared := self._unlimited.get(alike)) is not None:
                self._limiting[id(pod)] = ()
                return shared
        verdicts: tuple[Verdict, ...] = (*protection(pod, self.at), self.pdbs.verdict(pod))
        limiting = tuple([verdict for verdict in verdicts if verdict.when is not ALWAYS])
        if limiting and (deadline := self._deadlines.get(pod.node_name)) is not None:
            verdicts = tuple(limited_by_deadline(pod, verdict, deadline, self.at) for verdict in verdicts)
            limiting = tuple(verdict for verdict in verdicts if verdict.when is not ALWAYS)
        elif alike is not None and not limiting:
            verdicts = tuple(msgspec.structs.replace(verdict, object=_ANY_POD) for verdict in verdicts)
            self._unlimited[alike] = verdicts
        self._limiting[id(pod)] = limiting
        return verdicts

    def limiting(self, pod: PodRecord) -> tuple[Verdict, ...]:
        """Those of them that block now or at some other time. Only these are kept: most pods have none."""
        limiting = self._limiting.get(id(pod))
        if limiting is None:
            self.verdicts(pod)
            limiting = self._limiting[id(pod)]
        return limiting

    def pool(self, node: NodeAssessment) -> PoolAssessment | None:
        return self.pools.get(node.member.pool)

    def judge(self, node: NodeAssessment) -> list[ReasonVerdict]:
        """Whether the node may be disrupted, for each reason that a budget can name."""
        pool = self.pool(node)
        allowed, starting = (None, None) if pool is None else (pool.allowances, pool.starting)
        return judge_reasons(
            node.member,
            node.record,
            self.at,
            pods=node.pods,
            allowances=allowed,
            own=node.own,
            starting=starting,
            replacements=self.replacements(node),
        )

    def replacements(self, node: NodeAssessment) -> dict[Reason, Verdict]:
        """Whether the node can be replaced, for the reasons for which somebody has found out.

        A node in S3 waits for its replacements whatever the reason.
        """
        if node.state is NodeState.DISRUPTING:
            awaited = awaited_replacement(node.member, self._by_claim)
            return {} if awaited is None else dict.fromkeys(BUDGETED, awaited)
        if not self._replacements:
            return {}
        name = node.member.name
        return {reason: self._replacements[name, reason] for reason in MARKED if (name, reason) in self._replacements}

    def in_turn(self, pool: str, reason: Reason) -> int:
        """The number of nodes of the pool that have the reason and may go for it now."""
        return self._in_turn[pool, reason]

    @cached_property
    def _in_turn(self) -> Counter[tuple[str, Reason]]:
        marked = (node for node in self.nodes if node.member.claim is not None and node.state is NodeState.CANDIDATE)
        return Counter(
            (node.member.pool, verdict.reason)
            for node in marked
            for verdict in self.reasons(node).values()
            if verdict.wanted and verdict.allowed
        )

    @cached_property
    def _by_claim(self) -> dict[str, ClusterNode]:
        return {member.claim.name: member for member in self.snapshot.nodes if member.claim is not None}

    def reasons(self, node: NodeAssessment) -> dict[Reason, ReasonVerdict]:
        """The same, kept for those who ask several times."""
        verdicts = self._reasons.get(id(node))
        if verdicts is None:
            verdicts = self._reasons[id(node)] = {verdict.reason: verdict for verdict in self.judge(node)}
        return verdicts


def assess(
    snapshot: Snapshot,
    at: datetime,
    *,
    before: Assessment | None = None,
    replacements: ReplacementVerdicts = NO_REPLACEMENTS,
) -> Assessment:
    """Ask every rule about everything in the snapshot. `before`: an assessment of the same cluster a while ago.

    `replacements`: the verdicts of the one rule that takes a scheduling simulation, by node and reason.
    """
    return Assessment(snapshot, at, before, replacements)


def limited_by_deadline(pod: PodRecord, verdict: Verdict, deadline: datetime, at: datetime) -> Verdict:
    """The verdict about a pod of a node that is drained: it counts until the pod is deleted for the deadline (R17)."""
    forced = forced_deletion(pod, deadline, at)
    return verdict if forced is None else until_forced(verdict, forced, at)


def is_undated(node: NodeAssessment, at: datetime) -> bool:
    """Whether the node is free as soon as something has changed for which nobody has to act, such as a PDB's pods."""
    if node.free.first(at) is not None:
        return False
    standing = standing_rules(node.member, node.record, Reason.DRIFTED, at, node.own)
    blockers = [verdict for verdict in (*standing, *node.pods.blockers) if not verdict.allowed]
    return all(blocker.transient or blocker.until is not None for blocker in blockers)


def first_turn(turns: Iterable[datetime | None], at: datetime) -> datetime:
    """The first instant after `at` at which one of the answers turns, or must be asked for again."""
    return min((turn for turn in turns if turn is not None and turn > at), default=at + ASKED_AGAIN_AFTER)


def identity(member: ClusterNode) -> tuple[str, str]:
    """The names of the Node and of the NodeClaim; of one that has no Node, the NodeClaim's twice."""
    return member.name, "" if member.claim is None else member.claim.name


def _deadlines(snapshot: Snapshot) -> dict[str, datetime]:
    """When the drain of each draining node ends by force."""
    return {
        member.name: deadline
        for member in snapshot.nodes
        if member.node is not None and member.claim is not None and (deadline := node_deadline(member.claim))
    }


def _assess_pools(snapshot: Snapshot, at: datetime, before: Mapping[str, PoolAssessment]) -> dict[str, PoolAssessment]:
    members: dict[str, list[ClusterNode]] = defaultdict(list)
    for member in snapshot.nodes:
        members[member.pool].append(member)
    pools = {}
    for name, record in snapshot.pools.items():
        counts = pool_counts(members[name])
        claims = sum(member.claim is not None and not member.deleting for member in members[name])
        starting = starting_nodes(members[name], at)
        facts = (record, counts, claims, starting)
        assessed = before.get(name)
        if (
            assessed is None
            or at >= assessed.until
            or (assessed.record, assessed.counts, assessed.claims, assessed.starting) != facts
        ):
            budgets = read_budgets(record.budgets, snapshot.settings)
            allowed = allowances(budgets, now=at, counts=counts, reading=snapshot.settings.budgets)
            ends = [budget.active.until(at) for budget in budgets]
            until = first_turn([*ends, None if starting is None else starting.until], at)
            assessed = PoolAssessment(record, budgets, counts, claims, starting, snapshot.settings, allowed, until)
        pools[name] = assessed
    return pools


class _ChangedPdbs:
    """The PodDisruptionBudgets that answer otherwise than in an earlier assessment."""

    def __init__(self, before: Assessment | None, now: Assessment) -> None:
        self._indexes: Sequence[PdbIndex] = ()
        self._changed: set[tuple[str, str]] = set()
        if before is not None:
            self._indexes = before.pdbs, now.pdbs
            old, new = _answers(before), _answers(now)
            self._changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        self._namespaces = {namespace for namespace, _ in self._changed}

    def select(self, pods: Iterable[PodRecord]) -> bool:
        """Whether one of them selects one of the pods, or did."""
        return bool(self._changed) and any(
            (pdb.namespace, pdb.name) in self._changed
            for pod in pods
            if pod.namespace in self._namespaces
            for index in self._indexes
            for pdb in index.matching(pod)
        )


def _answers(assessment: Assessment) -> dict[tuple[str, str], object]:
    index = assessment.pdbs
    return {(pdb.namespace, pdb.name): (pdb, index.answer(pdb)) for pdb in assessment.snapshot.pdbs}
