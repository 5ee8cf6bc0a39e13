"""Is every command one that the rules allow, the best of its kind, and the same every time; on random clusters?

What is allowed is judged here anew, with the reference engine and plain arithmetic (05 §12; R36).
"""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, Method, RemainingBudgets
from dovetail.planning.disruption.commands import Command, with_final_landing
from dovetail.planning.disruption.consolidation import in_order, multi, single
from dovetail.planning.disruption.methods import _METHODS, _Pass, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, decide
from dovetail.planning.disruption.validation import RejectionCause, validated
from dovetail.planning.disruption.worth import gain, not_worth_it
from dovetail.scheduling import reference
from dovetail.scheduling.fast import World
from dovetail.scheduling.fast.bounds import witness
from dovetail.scheduling.placement import MachineType, NewClaim, Origin
from dovetail.scheduling.resources import Resources, total
from tests.harness.soak import SOAK, examples
from tests.scheduling.comparison import shown
from tests.scheduling.inspection import fingerprint
from tests.unit.planning.disruption.boards import allowance
from tests.unit.planning.disruption.random_boards import Cluster, random_cluster

_SEEDS = 2000 if SOAK else examples(200, quick=80)
_AT_ONCE = 40
_CHUNKS = range(0, _SEEDS, _AT_ONCE)
_RENEWING = frozenset({Method.DRIFT, Method.EXPIRATION})
_UNASKED = (Method.EMPTINESS, Method.STATIC_DRIFT, Method.STATIC_EXPIRATION)  # nobody looks for places then
_CONSOLIDATING = (Method.MULTI_NODE, Method.SINGLE_NODE)


def always() -> bool:
    return True


def clusters(first: int) -> list[tuple[int, Cluster]]:
    return [(seed, random_cluster(seed)) for seed in range(first, first + _AT_ONCE)]


# -- the rules, once more ----------------------------------------------------------------------------------------------


def worst(type_: MachineType, claim: NewClaim) -> int | None:
    """The dearest way to buy it of the first capacity type that it can be bought as."""
    may_use = claim.reservations or ("",)
    ways = [
        offer
        for offer in type_.offers
        if offer.available and offer.reservation in may_use and claim.requirements.intersects(offer.requirements)
    ]
    for how in ("reserved", "spot", "on-demand"):
        prices = [way.price for way in ways if way.requirements.get(names.CAPACITY_TYPE_LABEL).has(how)]
        if prices:
            return max(prices)
    return None


def wrong(cluster: Cluster, command: Command) -> str | None:
    """What is wrong with a command, whatever method has found it."""
    found = reference.solve(cluster.without(command.candidates))
    if any(error.origin is not Origin.PENDING for error in found.errors.values()):
        return f"pods would have no place: {[*map(str, found.errors.values())]}"
    moved = {pod.uid for each in command.candidates for pod in each.pods}
    new = [claim for claim in found.new_claims if not moved.isdisjoint(claim.pods)]
    if len(new) != len(command.replacements):
        return f"{len(new)} new nodes are needed, and {len(command.replacements)} planned"
    if set(command.landing) != moved:
        return "not every pod is said to land somewhere"
    if command.method in _CONSOLIDATING:
        return unpriced(cluster, command, new)
    if [(claim.pool, claim.types) for claim in new] != [(claim.pool, claim.types) for claim in command.replacements]:
        return "the replacements are not those that are needed"
    return None


def unpriced(cluster: Cluster, command: Command, new: Sequence[NewClaim]) -> str | None:
    """What is wrong with the price of what consolidation has planned."""
    if not new:
        return None
    if len(new) > 1 or any(each.price is None for each in command.candidates):
        return "consolidation has two new nodes, or one that nobody knows to be cheaper"
    planned = command.replacements[0]
    if planned.pool != new[0].pool or not set(planned.types) <= set(new[0].types) or not planned.types:
        return "the planned types are not among those that would do"
    limit = sum(each.price or 0 for each in command.candidates)
    types = {type_.name: type_ for type_ in cluster.problem.types[planned.pool]}
    prices = {name: worst(types[name], planned) for name in planned.types}
    if any(price is None or price >= limit for price in prices.values()):
        return f"not all types are cheaper than {limit}: {prices}"
    how = planned.requirements.get(names.CAPACITY_TYPE_LABEL)
    if how.has("spot") and how.has("on-demand") and any(sold_as_spot(types[name], planned) for name in planned.types):
        return "a failed launch of spot could become one on demand"
    for each in planned.requirements:
        values = {value for name in planned.types for value in sorted(types[name].requirements.get(each.key).values)}
        if each.min_values is not None and len(values) < each.min_values:
            return f"too few values of {each.key}"
    same = [each.price or 0 for each in command.candidates if each.type in planned.types]
    if len(command.candidates) > 1 and same and any((price or 0) >= min(same) for price in prices.values()):
        return "several become one of their own type that is no cheaper"
    if all(each.spot for each in command.candidates) and how.has("spot"):
        if not cluster.rules.spot_to_spot:
            return "spot becomes spot"
        if len(command.candidates) == 1 and len(planned.types) < 15:
            return "spot becomes spot with too few types"
    return None


def sold_as_spot(type_: MachineType, claim: NewClaim) -> bool:
    return any(
        offer.available
        and not offer.reservation
        and offer.requirements.get(names.CAPACITY_TYPE_LABEL).has("spot")
        and claim.requirements.intersects(offer.requirements)
        for offer in type_.offers
    )


def impossible(cluster: Cluster, candidate: Candidate) -> bool:
    """Whether it is plain from the reference's answer that the node cannot go: no place, or nothing that is cheaper."""
    found = reference.solve(cluster.without([candidate]))
    if any(error.origin is not Origin.PENDING for error in found.errors.values()):
        return True
    moved = {pod.uid for pod in candidate.pods}
    new = [claim for claim in found.new_claims if not moved.isdisjoint(claim.pods)]
    if not new:
        return False
    types = {type_.name: type_ for type_ in cluster.problem.types[new[0].pool]}
    prices = (worst(types[name], new[0]) for name in new[0].types)
    return len(new) > 1 or not any(price is not None and price < (candidate.price or 0) for price in prices)


# -- (a), (b), (f): what a pass decides --------------------------------------------------------------------------------


def passes(cluster: Cluster) -> list[tuple[Command, ...]]:
    """Of every method what it would do, were it its turn."""
    this = _Pass(cluster.board, cluster.rules, lambda: True)
    return [decide(this, method).commands for method, decide in _METHODS]


def decisions(cluster: Cluster) -> list[Command]:
    return [command for commands in passes(cluster) for command in commands]


@pytest.mark.parametrize("first", _CHUNKS)
def test_every_command_is_one_that_the_rules_allow(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed, cluster in clusters(first):
        alone = [commands[0] for commands in passes(cluster) if commands]  # what goes besides, see below
        for command in alone:
            assert command.nodes
            assert len(set(command.nodes)) == len(command.nodes), f"seed {seed}: {command.nodes}"
            assert (len(command.nodes) > 1) or command.method is not Method.MULTI_NODE
            seen[command.method] += 1
            if any(each.pods for each in command.candidates) and command.method not in _UNASKED:
                found = wrong(cluster, command)
                if command.method in _RENEWING and found is not None and found.endswith("is not initialized"):
                    continue  # an exchange does not wait for nodes that are coming up
                assert found is None, f"seed {seed}, {command.method}: {found}"
    assert seen[Method.SINGLE_NODE] > 3
    assert seen[Method.MULTI_NODE] > 0


@pytest.mark.parametrize("first", _CHUNKS)
def test_what_goes_side_by_side_has_room_together(first: int) -> None:
    several = 0
    for seed, cluster in clusters(first):
        nodes = {node.name: node for node in cluster.problem.nodes}
        for commands in passes(cluster):
            gone = {node for command in commands for node in command.nodes}
            pods = {pod.uid: pod for command in commands for each in command.candidates for pod in each.pods}
            landing = [pair for command in commands for pair in command.landing.items()]
            several += len(commands) > 1 and bool(landing)
            assert len(dict(landing)) == len(landing), f"seed {seed}: a pod goes to two places"
            taken: dict[str, list[Resources]] = defaultdict(list)
            for uid, where in landing:
                if where.node:
                    taken[where.node].append(pods[uid].request)
            assert gone.isdisjoint(taken), f"seed {seed}: pods go where nothing will be"
            for name, requests in taken.items():
                free = nodes[name].allocatable - nodes[name].requested
                assert total(requests).fits(free), f"seed {seed}: {name} is given more than it has"
    assert several > 3


@pytest.mark.parametrize("first", _CHUNKS)
def test_no_budget_is_exceeded_and_no_node_is_taken_twice(first: int) -> None:
    for seed, cluster in clusters(first):
        decision = decide_pass(cluster.board, cluster.rules)
        nodes = [node for command in decision.commands for node in command.nodes]
        assert len(set(nodes)) == len(nodes), f"seed {seed}"
        for reason in Reason:
            of = [each for command in decision.commands if command.reason is reason for each in command.candidates]
            for pool, number in Counter(each.pool for each in of).items():
                assert number <= cluster.board.allowances[pool, reason].allowed, f"seed {seed}: {pool}"
        for command in decision.commands:
            takes = Counter(each.pool for each in command.candidates)
            assert {pool: use.takes for pool, use in command.budgets.items()} == takes, f"seed {seed}"
        assert decision.standing.isdisjoint(decision.refused), f"seed {seed}"


def test_asking_leaves_no_trace() -> None:
    for seed in range(examples(100, quick=40)):
        cluster = random_cluster(seed)
        decisions(cluster)  # groups are made when they are first asked for
        before = fingerprint(cluster.board.world)
        again = decisions(cluster)
        assert again == decisions(cluster)
        assert fingerprint(cluster.board.world) == before, f"seed {seed}"


# -- (c): single nodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", _CHUNKS)
def test_every_node_is_looked_at_and_the_best_comes_first(first: int) -> None:
    possible = hopeless = 0
    for seed, cluster in clusters(first):
        board, rules = cluster.board, cluster.rules
        found = single(board, rules, always)
        alone = {each.node: wanted(board, [each], rules) for each in board.of(Reason.UNDERUTILIZED)}
        can = {node: move for node, move in alone.items() if move is not None}
        assert {move.candidates[0].node for move in found.moves} == can.keys(), f"seed {seed}"
        assert set(found.refused) == alone.keys() - can.keys(), f"seed {seed}"
        assert [move.savings_per_cost for move in found.moves] == sorted(
            (move.savings_per_cost for move in can.values()), reverse=True
        )
        possible += len(can)
        for each in board.of(Reason.UNDERUTILIZED):
            seen = witness(board.world, each.pods, [each.node], each.price or 0)
            if seen is not None and seen.dearer is not None and not each.unmovable:
                hopeless += 1
                assert impossible(cluster, each), f"seed {seed}, {each.node}: {seen}"
    assert possible > 10
    assert hopeless > 3


def wanted(board: DisruptionBoard, candidates: Sequence[Candidate], rules: ConsolidationOptions) -> Move | None:
    decided = decide(board, candidates, rules)
    return decided if isinstance(decided, Move) and not_worth_it(decided, board.pools) is None else None


# -- (d): sets ---------------------------------------------------------------------------------------------------------


def prefix_gain(board: DisruptionBoard, rules: ConsolidationOptions) -> float | None:
    """What upstream's search gains: by halves, the longest prefix of the first hundred (02 §7.8)."""
    budgets = RemainingBudgets(board, Reason.UNDERUTILIZED)
    movable = (each for each in in_order(board.of(Reason.UNDERUTILIZED)) if not each.unmovable)
    order = [each for each in movable if budgets.take(each)][:100]
    best, low, high = None, 2, len(order)
    while low <= high:
        middle = (low + high) // 2
        move = wanted(board, order[:middle], rules)
        if move is None:
            high = middle - 1
        else:
            best, low = gain(move, board.pools), middle + 1
    return best


@pytest.mark.parametrize("first", _CHUNKS)
def test_sets_gain_no_less_than_the_longest_prefix_and_keep_within_budgets(first: int) -> None:
    for seed, cluster in clusters(first):
        least = prefix_gain(cluster.board, cluster.rules)
        move = multi(cluster.board, cluster.rules, always)
        if move is not None:
            assert RemainingBudgets(cluster.board, Reason.UNDERUTILIZED).within(move.candidates), f"seed {seed}"
        if least is not None:
            assert move is not None, f"seed {seed}"
            assert gain(move, cluster.board.pools) >= least, f"seed {seed}"


def test_sets_are_found_that_are_no_prefix() -> None:
    more = 0
    for cluster in map(random_cluster, range(examples(200, quick=80))):
        least, move = prefix_gain(cluster.board, cluster.rules), multi(cluster.board, cluster.rules, always)
        more += move is not None and (least is None or gain(move, cluster.board.pools) > least)
    assert more > 3


# -- (e): the same in every process ------------------------------------------------------------------------------------

_DIGEST = "from tests.property.test_disruption import digest; print(digest())"


def digest() -> str:
    """Of what is decided on some boards."""
    said = []
    for seed in range(examples(60, quick=30)):
        cluster = random_cluster(seed)
        decision = decide_pass(cluster.board, cluster.rules)
        said.append(shown(decision))
        said += [shown(command) for command in decisions(cluster)]
    return hashlib.sha256("".join(said).encode()).hexdigest()


def test_a_board_has_the_same_decision_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert len(found) == 1


# -- (g): is it still right --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", _CHUNKS)
def test_a_command_is_still_right_until_something_changes(first: int) -> None:
    for seed, cluster in clusters(first):
        for commands in passes(cluster):
            if not commands or commands[0].method not in _CONSOLIDATING:
                continue
            board, still = cluster.board, []
            for command in commands:
                again, board = held_to(command, board, cluster, seed)
                still.append(again)
            assert with_final_landing(still, board) == commands, f"seed {seed}"


def held_to(command: Command, board: DisruptionBoard, cluster: Cluster, seed: int) -> tuple[Command, DisruptionBoard]:
    """The command looked at again, and the board with it."""
    still, rejected, after = validated(command, board, cluster.rules)
    assert rejected is None, f"seed {seed}: {rejected}"
    assert still is not None
    gone = tuple(each for each in board.of(Reason.UNDERUTILIZED) if each.node != command.nodes[-1])
    less = {**board.candidates, Reason.UNDERUTILIZED: gone}
    assert cause(command, msgspec.structs.replace(board, candidates=less), cluster) is RejectionCause.CHURN
    pool = command.candidates[0].pool
    none = {**board.allowances, (pool, Reason.UNDERUTILIZED): allowance(Reason.UNDERUTILIZED, 0)}
    assert cause(command, msgspec.structs.replace(board, allowances=none), cluster) is RejectionCause.BUDGET
    if any(each.pods for each in command.candidates):
        full = msgspec.structs.replace(board, world=nowhere(cluster))
        assert cause(command, full, cluster) is RejectionCause.SCHEDULING, f"seed {seed}"
    return still, after


def cause(command: Command, board: DisruptionBoard, cluster: Cluster) -> RejectionCause | None:
    still, rejected, _ = validated(command, board, cluster.rules)
    assert still is None
    return None if rejected is None else rejected.cause


def nowhere(cluster: Cluster) -> World:
    """The same nodes, none of which takes anything, and nothing to make new ones of."""
    nodes = [msgspec.structs.replace(node, open=False) for node in cluster.problem.nodes]
    return World(nodes, (), {}, cluster.problem.daemons, cluster.problem.options)
