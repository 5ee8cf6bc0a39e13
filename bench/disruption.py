"""What does a pass over all nodes cost: each for itself, and sets of them (08 §4, §8)?

`python -m bench.disruption` prints the tables; `python -m bench.disruption profile single tight 1000` says where the
time goes. All is processor time of one core.
"""

import cProfile
import json
import math
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench.scheduling import synthetic_types, used_cluster
from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Board, Candidate, PoolFacts
from dovetail.planning.disruption.consolidation import multi, single
from dovetail.planning.disruption.replacing import Rules
from dovetail.rules.budgets import Allowance
from dovetail.scheduling.fast import World
from dovetail.scheduling.problem import MachineType, Node, Options, Origin, Pod, Pool
from dovetail.scheduling.requirements import of_labels, one_of
from dovetail.values.instants import ALWAYS

_AT: Final = datetime(2026, 3, 6, 12, tzinfo=UTC)
_POOLS: Final = ("alpha", "beta", "gamma", "delta")
# How much larger than its pods need a node is: by rounding up to a type alone, or by half as well.
_SLACK: Final = {"tight": 1.0, "loose": 1.5}


def big_board(nodes: int, kind: str) -> Board:
    """Nodes with 20 pods each, of 300 shapes, in four pools; budgets do not matter."""
    problem, pods = used_cluster(nodes)
    types = synthetic_types(100)
    there, candidates = [], []
    for number, node in enumerate(problem.nodes):
        pool = _POOLS[number % len(_POOLS)]
        type_ = types[math.ceil(_size(node) * _SLACK[kind]) - 1]
        there.append(_fitted(node, pool, type_))
        candidates.append(_candidate(there[-1], type_, pods[node.name]))
    own = of_labels({names.CAPACITY_TYPE_LABEL: "on-demand"})
    pools = [Pool(name=pool, requirements=own.add(one_of(names.NODEPOOL_LABEL, (pool,)))) for pool in _POOLS]
    world = World(there, pools, dict.fromkeys(_POOLS, types), (), Options(refuse_uninitialized=True))
    return Board(
        at=_AT,
        world=world,
        candidates={Reason.UNDERUTILIZED: tuple(candidates)},
        allowances={(pool, Reason.UNDERUTILIZED): _unlimited(nodes) for pool in _POOLS},
        pools={pool: PoolFacts(name=pool) for pool in _POOLS},
    )


def _size(node: Node) -> float:
    """In parts of the smallest type."""
    smallest = synthetic_types(1)[0].allocatable
    return max(node.requested[name] / smallest[name] for name in smallest)


def _fitted(node: Node, pool: str, type_: MachineType) -> Node:
    more = {names.NODEPOOL_LABEL: pool, names.INSTANCE_TYPE_LABEL: type_.name}
    return msgspec.structs.replace(
        node, labels={**node.labels, **more}, allocatable=type_.allocatable, capacity=type_.capacity, pool=pool
    )


def _candidate(node: Node, type_: MachineType, pods: list[Pod]) -> Candidate:
    return Candidate(
        node=node.name,
        claim=node.name,
        claim_uid=node.name,
        pool=node.pool,
        type=type_.name,
        zone=node.labels[names.ZONE_LABEL],
        capacity_type="on-demand",
        price=type_.offers[0].price,
        cost=1.0 + len(pods),
        pods=tuple(msgspec.structs.replace(pod, origin=Origin.CANDIDATE) for pod in pods),
    )


def _unlimited(nodes: int) -> Allowance:
    return Allowance(reason=Reason.UNDERUTILIZED, limit=nodes, binding=None, allowed=nodes, until=None, when=ALWAYS)


# -- figures -----------------------------------------------------------------------------------------------------------


def _single(board: Board) -> dict[str, float]:
    found = single(board, Rules(), lambda: True)
    return {"moves": len(found.moves), "deleted": sum(not move.replacements for move in found.moves)}


def _multi(board: Board) -> dict[str, float]:
    move = multi(board, Rules(), lambda: True)
    return {"moves": 0 if move is None else len(move.candidates), "saved": 0 if move is None else move.savings / 1e9}


_PASSES: Final[dict[str, Callable[[Board], dict[str, float]]]] = {"single": _single, "multi": _multi}


def measure(method: str, kind: str, nodes: int) -> dict[str, float]:
    """From a cold start; then once more, when all that can be known beforehand is."""
    board, times, found = big_board(nodes, kind), [], dict[str, float]()
    for _ in range(2):
        started = time.process_time()
        found = _PASSES[method](board)
        times.append(time.process_time() - started)
    return {"first": times[0], "again": times[1], **found}


def profile(method: str, kind: str, nodes: int, most: int = 25) -> None:
    board = big_board(nodes, kind)
    profiler = cProfile.Profile()
    profiler.runcall(_PASSES[method], board)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(most)


def print_disruption(sizes: tuple[int, ...] = (100, 1_000, 5_000)) -> None:
    """Each row in a process of its own."""
    print("consolidation: 20 pods a node, 300 shapes, four pools; processor time")
    print(f"{'':<14} {'nodes':>7} {'first':>9} {'again':>9} {'a node':>9}  found")
    for method in _PASSES:
        for kind in _SLACK:
            for nodes in sizes:
                command = [sys.executable, "-m", "bench.disruption", "measure", method, kind, str(nodes)]
                run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found: dict[str, Any] = json.loads(run.stdout)
                first, again = found.pop("first"), found.pop("again")
                shown = ", ".join(f"{name} {value:g}" for name, value in found.items())
                print(
                    f"{method:<7}{kind:<7} {nodes:>7} {first:>7.2f} s {again:>7.2f} s {again / nodes * 1e6:>6.0f} µs"
                    f"  {shown}"
                )
    print()


def main(arguments: list[str]) -> None:
    match arguments:
        case ["measure", method, kind, nodes]:
            print(json.dumps(measure(method, kind, int(nodes))))
        case ["profile", method, kind, nodes]:
            profile(method, kind, int(nodes))
        case _:
            print_disruption()


if __name__ == "__main__":
    main(sys.argv[1:])
