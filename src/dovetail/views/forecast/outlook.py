"""What do the rules say of each node, for all time? Asked once; everything in a forecast is read off these sets."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.api.names import Reason
from dovetail.model.records import PodRecord, PoolRecord
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.rules.deadlines import expires_at, gracefully_expires_at, node_deadline
from dovetail.rules.nodes import (
    OwnVerdicts,
    PodsStanding,
    ReasonVerdict,
    judge_reasons,
    own_verdicts,
    pods_standing,
    when_free,
)
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import limiting_verdicts
from dovetail.rules.states import State, state_of
from dovetail.rules.verdict import Verdict
from dovetail.values.schedule.instants import Instants
from dovetail.views.pools import Pool


class Outlook(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One node, its pool, and every answer of the rules about it."""

    member: ClusterNode
    pool: Pool | None
    state: State
    own: OwnVerdicts
    telling: tuple[tuple[PodRecord, Verdict], ...]
    """The verdicts of its pods that block now or at some other time."""
    standing: PodsStanding
    free: Instants
    judged: dict[Reason, ReasonVerdict]
    expires_at: datetime | None
    gracefully_expires_at: datetime | None
    deadline: datetime | None
    """Of a drain that has begun."""

    @property
    def record(self) -> PoolRecord | None:
        return None if self.pool is None else self.pool.record


def outlooks(snapshot: Snapshot, pools: Mapping[str, Pool], pdbs: PdbIndex, at: datetime) -> list[Outlook]:
    """Ask every rule about every node."""
    telling: dict[str, list[tuple[PodRecord, Verdict]]] = defaultdict(list)
    for pod in snapshot.pods:
        if not pod.node_name:
            continue
        if verdicts := limiting_verdicts(pod, pdbs, at):
            telling[pod.node_name] += [(pod, verdict) for verdict in verdicts]
    return [
        _outlook(member, pools.get(member.pool), telling.get(member.name, []) if member.node is not None else [], at)
        for member in snapshot.nodes
    ]


def _outlook(
    member: ClusterNode, pool: Pool | None, telling: Sequence[tuple[PodRecord, Verdict]], at: datetime
) -> Outlook:
    record = None if pool is None else pool.record
    claim = member.claim
    own = own_verdicts(member, record, at)
    standing = pods_standing([verdict for _, verdict in telling], len(member.pods))
    return Outlook(
        member=member,
        pool=pool,
        state=state_of(member),
        own=own,
        telling=tuple(telling),
        standing=standing,
        free=when_free(member, record, standing, at, own),
        judged={
            judged.reason: judged
            for judged in judge_reasons(
                member, record, at, pods=standing, allowances=None if pool is None else pool.allowances, own=own
            )
        },
        expires_at=None if claim is None else expires_at(claim),
        gracefully_expires_at=None if claim is None else gracefully_expires_at(claim, record),
        deadline=None if claim is None else node_deadline(claim),
    )
