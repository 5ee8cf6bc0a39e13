"""Small clusters for the tests of disruption: nodes with pods on them, what they cost, and what may go."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, PoolFacts
from dovetail.rules.budgets import Allowance
from dovetail.scheduling.fast import World
from dovetail.scheduling.placement import (
    BoundPod,
    MachineType,
    NodeInfo,
    Origin,
    PodInfo,
    Pool,
    SchedulingOptions,
    TopologyRuleKind,
)
from dovetail.scheduling.resources import Resources, total
from dovetail.values.schedule.instants import ALWAYS
from tests.unit.scheduling import problems

AT: Final = datetime(2026, 3, 6, 12, tzinfo=UTC)
EMPTY, DRIFTED, UNDERUTILIZED, EXPIRED = Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED, Reason.EXPIRED


class Used(NamedTuple):
    """A node, and what would go with it."""

    node: NodeInfo
    candidate: Candidate


def pod(name: str, cpu: str = "1", labels: dict[str, str] | None = None, **wire: Any) -> PodInfo:
    return problems.pod(name, labels, cpu=cpu, **{"origin": Origin.CANDIDATE, **wire})


def still(each: PodInfo) -> BoundPod:
    """The pod where it is."""
    apart = tuple(rule.inverse() for rule in each.rules if rule.kind is TopologyRuleKind.APART)
    return BoundPod(uid=each.uid, namespace=each.namespace, labels=each.labels, apart=apart)


def used(
    name: str,
    *pods: PodInfo,
    cpu: int = 4,
    zone: str = "a",
    pool: str = "default",
    type_: str = "",
    how: str = "on-demand",
    price: int | None = -1,
    initialized: bool = True,
    **candidate: Any,
) -> Used:
    """A node of so many cpus with these pods. A cpu costs 1, a pod costs 1 to move."""
    room = Resources({"cpu": cpu * 1000, "pods": 110})
    labels = {
        names.HOSTNAME_LABEL: name,
        names.ZONE_LABEL: zone,
        names.NODEPOOL_LABEL: pool,
        names.CAPACITY_TYPE_LABEL: how,
        names.INSTANCE_TYPE_LABEL: type_,
    }
    node = NodeInfo(
        name=name,
        labels=labels,
        allocatable=room,
        capacity=room,
        requested=total(each.request for each in pods),
        pool=pool,
        initialized=initialized,
        pods=tuple(map(still, pods)),
    )
    fields = {
        "cost": 1.0 + len(pods),
        "pods": pods,
        "type": type_,
        "zone": zone,
        "capacity_type": how,
        "price": cpu if price == -1 else price,
        **candidate,
    }
    return Used(node, Candidate(node=name, claim=f"{name}-claim", claim_uid=f"{name}-uid", pool=pool, **fields))


def allowance(reason: Reason, allowed: int, limit: int | None = None) -> Allowance:
    limit = allowed if limit is None else limit
    return Allowance(reason=reason, limit=limit, binding=0, allowed=allowed, until=None, when=ALWAYS)


def board(
    *nodes: Used | NodeInfo,
    reasons: Mapping[Reason, Sequence[Used]] | None = None,
    allowed: Mapping[str, int] | int = 100,
    types: Sequence[MachineType] = (),
    pools: Sequence[Pool] = (),
    facts: Sequence[PoolFacts] = (),
    owed: Sequence[PodInfo] = (),
    **options: Any,
) -> DisruptionBoard:
    """All the nodes that could go are underutilized, unless it is said what they are. Pools have the same types."""
    there = [each.node if isinstance(each, Used) else each for each in nodes]
    found = {UNDERUTILIZED: [each for each in nodes if isinstance(each, Used)]} if reasons is None else reasons
    made = tuple(pools) or (problems.pool("default"),)
    known = {each.name for each in made} | {node.pool for node in there if node.pool}
    given = {each.name: each for each in facts}
    budget = allowed if isinstance(allowed, Mapping) else dict.fromkeys(known, allowed)
    settings = SchedulingOptions(**{"refuse_uninitialized": True, **options})
    return DisruptionBoard(
        at=AT,
        world=World(there, made, {each.name: tuple(types) for each in made}, (), settings),
        owed=tuple(owed),
        candidates={reason: tuple(each.candidate for each in some) for reason, some in found.items()},
        allowances={
            (pool, reason): allowance(reason, number) for pool, number in budget.items() for reason in list(Reason)[:4]
        },
        pools={name: given.get(name, PoolFacts(name=name)) for name in sorted(known)},
    )


def later(before: DisruptionBoard, **changes: Any) -> DisruptionBoard:
    return msgspec.structs.replace(before, **changes)


def room(name: str, cpu: int, **fields: Any) -> NodeInfo:
    """A node without pods that is not to go."""
    return used(name, cpu=cpu, **fields).node
