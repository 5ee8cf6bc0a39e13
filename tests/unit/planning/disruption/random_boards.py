"""Which board belongs to a seed: a random cluster whose nodes have prices, pods that can move, reasons and budgets."""

import random
from collections.abc import Sequence

import msgspec

from dovetail.api import names
from dovetail.api.names import ConsolidationPolicy, Reason
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, PoolFacts
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.scheduling.fast import World
from dovetail.scheduling.placement import NodeInfo, Origin, PlacementRequest, PodInfo
from tests.scheduling.dice import POOLS
from tests.scheduling.generator import random_problem
from tests.unit.planning.disruption.boards import AT, allowance, still

_REASONS = (Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED, Reason.EXPIRED)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A board, and the problem that it was made of: its pods are those that are owed."""

    board: DisruptionBoard
    problem: PlacementRequest
    rules: ConsolidationOptions

    def without(self, candidates: Sequence[Candidate]) -> PlacementRequest:
        """What is asked of an engine when these go."""
        going = {each.node for each in candidates}
        nodes = tuple(
            msgspec.structs.replace(node, open=node.open and node.name not in going) for node in self.problem.nodes
        )
        pods = (*(pod for each in candidates for pod in each.pods), *self.board.owed)
        return msgspec.structs.replace(self.problem, pods=pods, nodes=nodes)


def random_cluster(seed: int, *, nodes: int = 12, pods: int = 30) -> Cluster:
    dice = random.Random(f"{seed} disruption")
    problem = random_problem(seed, nodes=nodes, pods=pods)
    options = msgspec.structs.replace(problem.options, refuse_uninitialized=True)
    asking = [pod for pod in problem.pods if not pod.resource_claims]
    owed = tuple(
        msgspec.structs.replace(pod, origin=dice.choice((Origin.PENDING, Origin.DELETING)))
        for pod in asking
        if dice.random() < dice.choice((0.0, 0.0, 0.2))
    )
    there, candidates = [], []
    for node in _more(dice, problem.nodes):
        taken = node.open and node.initialized and node.pool and dice.random() < 0.8
        moving = [_moving(dice, node, asking, number) for number in range(_crowd(dice) if taken and asking else 0)]
        there.append(msgspec.structs.replace(node, pods=(*node.pods, *map(still, moving))))
        if taken:
            candidates.append(_candidate(dice, node, moving))
    problem = msgspec.structs.replace(problem, pods=owed, nodes=tuple(there), options=options)
    pools = sorted({each.pool for each in candidates} | {pool.name for pool in problem.pools})
    world = World(problem.nodes, problem.pools, problem.types, problem.daemons, options)
    board = DisruptionBoard(
        at=AT,
        world=world,
        owed=owed,
        candidates=_by_reason(dice, candidates),
        allowances={
            (pool, reason): allowance(reason, dice.choice((0, 1, 2, 5, 100))) for pool in pools for reason in _REASONS
        },
        pools={pool: _facts(dice, pool, candidates) for pool in pools},
    )
    return Cluster(board=board, problem=problem, rules=ConsolidationOptions(spot_to_spot=dice.random() < 0.5))


def _more(dice: random.Random, nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    """Several like each; most are in a pool."""
    found = []
    for node in nodes:
        for number in range(dice.choice((1, 2, 4))):
            name = f"{node.name}-{number}"
            named = {names.HOSTNAME_LABEL: name} if node.labels.get(names.HOSTNAME_LABEL) == node.name else {}
            found.append(
                msgspec.structs.replace(
                    node,
                    name=name,
                    labels={**node.labels, **named},
                    pool=node.pool or dice.choice(("", *POOLS)),
                    pods=node.pods if number == 0 else (),
                )
            )
    return found


def _crowd(dice: random.Random) -> int:
    return dice.choice((0, 1, 1, 2, 3, 5))


def _moving(dice: random.Random, node: NodeInfo, asking: Sequence[PodInfo], number: int) -> PodInfo:
    """Like one of the problem's pods."""
    like = dice.choice(asking)
    return msgspec.structs.replace(like, uid=f"{node.name}-moves-{number}", origin=Origin.CANDIDATE)


def _candidate(dice: random.Random, node: NodeInfo, pods: Sequence[PodInfo]) -> Candidate:
    return Candidate(
        node=node.name,
        claim=node.name,
        claim_uid=node.name,
        pool=node.pool,
        type=f"type-{dice.randint(0, 9):02}",
        zone=node.labels.get(names.ZONE_LABEL, ""),
        capacity_type=node.labels.get(names.CAPACITY_TYPE_LABEL, ""),
        price=dice.choice((None, 0, 10, 40, 80, 160, 320, 320, 640)),
        cost=1.0 + dice.choice((0.5, 1.0, 2.0)) * len(pods),
        pods=tuple(pods),
        unmovable=(Sentence("it must stay"),) if dice.random() < 0.03 else (),
        since=dice.choice((None, AT)),
    )


def _by_reason(dice: random.Random, candidates: Sequence[Candidate]) -> dict[Reason, tuple[Candidate, ...]]:
    mixed = dice.random() < 0.3
    found: dict[Reason, list[Candidate]] = {reason: [] for reason in _REASONS}
    for each in candidates:
        if each.bare or (mixed and dice.random() < 0.1):  # with pods that cost nothing to move, now and then
            found[Reason.EMPTY] += [each] if mixed else []
        else:
            found[Reason.UNDERUTILIZED].append(each)
        if mixed and dice.random() < 0.3:
            found[dice.choice((Reason.DRIFTED, Reason.EXPIRED))].append(each)
    return {reason: tuple(some) for reason, some in found.items()}


def _facts(dice: random.Random, pool: str, candidates: Sequence[Candidate]) -> PoolFacts:
    own = [each for each in candidates if each.pool == pool]
    balanced = dice.random() < 0.2
    return PoolFacts(
        name=pool,
        policy=ConsolidationPolicy.BALANCED if balanced else ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED,
        replicas=len(own) if dice.random() < 0.1 else None,
        claims=len(own),
        free_claims=dice.choice((None, None, 0, 1)),
        total_cost=sum(each.price or 0 for each in own),
        total_disruption=sum(each.cost for each in own),
    )
