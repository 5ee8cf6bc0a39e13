"""The rule `replacement`: whether the pods of a node have another place, or a new node can be had (02 §7.3, §7.4).

It applies to reasons that replace nodes. Prices matter to consolidation alone, which has its own answers.
"""

from collections.abc import Container, Mapping
from datetime import datetime

from dovetail.api.names import Reason
from dovetail.model.refs import Redactable, Ref
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, PoolFacts
from dovetail.planning.disruption.methods import NodeExchange
from dovetail.planning.disruption.replacing import NotConsolidatable
from dovetail.rules.reasons import MARKED
from dovetail.rules.verdict import Rule, Verdict, allow, judge, refuse
from dovetail.scheduling.no_place import LIMITS
from dovetail.scheduling.placement import Solution
from dovetail.values.schedule.instants import since
from dovetail.values.timestamp import spoken_time

ReplacementVerdicts = Mapping[tuple[str, Reason], Verdict]
# To say why a pod has no place takes many times longer than to find out. For more nodes it is not said.
_EXPLAINED = 100
_UNKNOWN = "a new node is needed, and the instance types that can be had are not known"


def replacement_verdicts(
    board: DisruptionBoard,
    backoffs: Mapping[str, datetime | None],
    *,
    only: Container[str] | None = None,
    types_known: bool = True,
) -> dict[tuple[str, Reason], Verdict]:
    """The verdicts for nodes that nothing but budgets blocks, by node and reason.

    `backoffs`: the pools whose last replacements failed (R23, R52). `only`: names of nodes. `types_known`: the instance
    types are those of the provider.
    """
    verdicts: dict[tuple[str, Reason], Verdict] = {}
    refused = 0
    for reason in MARKED:
        candidates = board.of(reason)
        exchange = NodeExchange(
            board, [candidate for candidate in candidates if board.pools[candidate.pool].replicas is None]
        )
        for candidate in candidates:
            if only is not None and candidate.node not in only:
                continue
            verdict = blocked_by_pool(board, candidate, backoffs)
            if verdict is None:
                placed = exchange.place(candidate, explain=refused < _EXPLAINED)
                refused += isinstance(placed, NotConsolidatable)
                verdict = _placed(candidate, placed, board.pools[candidate.pool], types_known=types_known)
            verdicts[candidate.node, reason] = verdict
    return verdicts


def blocked_by_pool(
    board: DisruptionBoard, candidate: Candidate, backoffs: Mapping[str, datetime | None]
) -> Verdict | None:
    """The verdict if it takes no scheduling simulation, else None."""
    pool = board.pools[candidate.pool]
    if pool.replicas is None and candidate.bare:
        return allow(Rule.REPLACEMENT, _node(candidate), "it needs no replacement: no pod needs another place")
    if candidate.pool in backoffs:
        return _in_backoff(candidate.pool, backoffs[candidate.pool], board.at)
    return None if pool.replicas is None else _like_for_like(candidate, pool, pool.replicas)


def without_place(candidate: Candidate, found: NotConsolidatable, pool: PoolFacts) -> Verdict:
    """The verdict about a node whose pods have no place: about its NodePool if that makes no nodes, else about the
    first of the pods (R49)."""
    if pool.not_ready:
        message = f"NodePool {pool.name} makes no new nodes: {pool.not_ready}"
        return refuse(Rule.REPLACEMENT, Ref("NodePool", "", pool.name), message)
    about = next((part.ref for part in found.message.parts if isinstance(part, Redactable)), _node(candidate))
    return refuse(Rule.REPLACEMENT, about, str(found), details=found.details, field=found.field)


def _placed(
    candidate: Candidate, found: Solution | NotConsolidatable, pool: PoolFacts, *, types_known: bool
) -> Verdict:
    if isinstance(found, NotConsolidatable):
        return without_place(candidate, found, pool) if types_known else _unknown(candidate)
    new = found.new_for({pod.uid for pod in candidate.pods})
    if new and not types_known:
        return _unknown(candidate)
    pods = "its pod fits" if len(candidate.pods) == 1 else f"its {len(candidate.pods)} pods fit"
    if not new:
        return allow(Rule.REPLACEMENT, _node(candidate), f"{pods} on other nodes")
    pools = ", ".join(sorted({claim.pool for claim in new}))
    number = "1 new node" if len(new) == 1 else f"{len(new)} new nodes"
    return allow(Rule.REPLACEMENT, _node(candidate), f"{pods} with {number} of NodePool {pools}")


def _unknown(candidate: Candidate) -> Verdict:
    return allow(Rule.REPLACEMENT, _node(candidate), _UNKNOWN)


def _in_backoff(pool: str, until: datetime | None, now: datetime) -> Verdict:
    about = Ref("NodePool", "", pool)
    if until is None:
        why = f"the last replacement of NodePool {pool} did not come up, and is there still"
        return refuse(Rule.REPLACEMENT, about, why, transient=True)
    why = f"the last replacement of NodePool {pool} failed; the next one is tried {spoken_time(until)}"
    return judge(Rule.REPLACEMENT, about, since(until), now, allowed="", blocked=why)


def _like_for_like(candidate: Candidate, pool: PoolFacts, replicas: int) -> Verdict:
    about = Ref("NodePool", "", pool.name)
    if pool.claims > replicas:
        why = f"NodePool {pool.name} has {pool.claims} nodes of {replicas}, and removes the surplus first"
        return refuse(Rule.REPLACEMENT, about, why, transient=True)
    if pool.free_claims is not None and pool.free_claims <= 0:
        used = f"limits.nodes: {(pool.node_limit or 0) - pool.free_claims} of {pool.node_limit} in use"
        why = f"NodePool {pool.name}: its limit of nodes is reached ({used}), and the replacement comes first"
        return refuse(Rule.REPLACEMENT, about, why, field=LIMITS)
    return allow(Rule.REPLACEMENT, _node(candidate), f"1 new node of NodePool {pool.name} replaces it")


def _node(candidate: Candidate) -> Ref:
    return Ref("Node", "", candidate.node)
