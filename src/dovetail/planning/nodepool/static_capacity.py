"""Which NodeClaims a NodePool with `replicas` lacks, and which are surplus (06 §9)."""

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from dovetail.api import names, objects
from dovetail.model.pod_records import PodRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.deadlines import expires_at
from dovetail.rules.nodes import is_empty
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import protection
from dovetail.rules.states import NodeState, state_of
from dovetail.scheduling.resources import offered_amounts


class ClaimCensus(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a pool: active ones, those that are being replaced, and those that are being deleted."""

    active: tuple[ClusterNode, ...] = ()
    awaited: frozenset[str] = frozenset()  # active claims that a command waits for
    pending_disruption: int = 0
    deleting: int = 0
    reserved: int = 0  # created, but not visible yet
    replacements: int = 0  # that commands have not created yet

    @property
    def total(self) -> int:
        return len(self.active) + self.pending_disruption + self.deleting + self.reserved + self.replacements


def census(
    members: Iterable[ClusterNode],
    *,
    in_commands: Collection[str] = (),
    awaited: Collection[str] = (),
    reserved: int = 0,
) -> ClaimCensus:
    """Counts the pool's claims.

    `in_commands` and `awaited`: the claims that commands replace, and their replacements. Records of commands count
    before the Node shows the taint, because the watches of claims and Nodes are independent.
    """
    active, pending, deleting = [], 0, 0
    missing = set(awaited)
    for member in members:
        assert member.claim is not None
        missing.discard(member.claim.name)
        state = state_of(member)
        if member.deleting or state in (NodeState.DRAINING, NodeState.TERMINATING, NodeState.CLEANUP):
            deleting += 1
        elif state is NodeState.DISRUPTING or member.claim.name in in_commands:
            pending += 1
        else:
            active.append(member)
    return ClaimCensus(
        active=tuple(active),
        awaited=frozenset(awaited),
        pending_disruption=pending,
        deleting=deleting,
        reserved=reserved,
        replacements=len(missing),
    )


def node_limit(pool: objects.NodePool) -> int | None:
    """The limit of nodes. A limit that cannot be read allows none."""
    limits = pool.spec.limits
    return offered_amounts(limits)[0][names.NODES_RESOURCE] if names.NODES_RESOURCE in limits else None


class ScaleUp(msgspec.Struct, frozen=True):
    """The number of missing claims, and how many of them the limit allows."""

    lacking: int
    granted: int


def growth(census: ClaimCensus, *, replicas: int, limit: int | None) -> ScaleUp:
    """A claim that is being replaced counts as one of the replicas."""
    lacking = max(0, replicas - len(census.active) - census.pending_disruption - census.reserved)
    room = lacking if limit is None else max(0, limit - census.total)
    return ScaleUp(lacking, min(lacking, room))


def victims(census: ClaimCensus, *, replicas: int, pdbs: PdbIndex, now: datetime) -> list[ClusterNode]:
    """The surplus claims: first uninitialized ones, then those that are not Ready (R52).

    Among equals: first claims without a machine, then empty ones, then those whose pods are cheap to move. Replacements
    of commands under way are not surplus.
    """
    excess = max(0, len(census.active) - replicas)
    free = (member for member in census.active if member.claim and member.claim.name not in census.awaited)
    return sorted(free, key=lambda member: _order(member, pdbs, now))[:excess]


def _order(member: ClusterNode, pdbs: PdbIndex, now: datetime) -> tuple[bool, bool, int, bool, float, str]:
    assert member.claim is not None
    initialized = member.node is not None and member.node.initialized
    ready = member.node is not None and member.node.ready
    protected = any(is_protected(pod, pdbs, now) for pod in member.pods)
    group = 0 if not member.claim.provider_id else 1 if is_empty(member) and not protected else 2
    return initialized, ready, group, protected, disruption_cost(member, now), member.claim.name


def is_protected(pod: PodRecord, pdbs: PdbIndex, now: datetime) -> bool:
    """By its annotations or by a PodDisruptionBudget."""
    return not (all(verdict.allowed for verdict in protection(pod, now)) and pdbs.verdict(pod).allowed)


def disruption_cost(member: ClusterNode, now: datetime) -> float:
    """The cost of moving its pods, reduced towards its expiration (02 §6)."""
    return sum(pod.eviction_cost for pod in member.pods) * _lifetime_left(member, now)


def _lifetime_left(member: ClusterNode, now: datetime) -> float:
    """The share of the lifetime that is left; 1 if the claim does not expire."""
    claim = member.claim
    at = None if claim is None else expires_at(claim)
    if claim is None or claim.created_at is None or at is None or at <= claim.created_at:
        return 1.0
    return min(1.0, max(0.0, (at - now) / (at - claim.created_at)))
