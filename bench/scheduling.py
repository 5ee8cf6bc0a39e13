"""How many pods a second are placed, how does that grow, and what does one what-if of a large cluster cost?

`python -m bench.scheduling` prints the tables; `print_scheduling` does so for `make bench`. Each row is measured in a
process of its own. Times are of the CPU: an engine waits for nothing, and neighbours do not count.
"""

import gc
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dovetail.api import names
from dovetail.scheduling import fast, reference
from dovetail.scheduling.node_affinity import ANYWHERE, ParsedNodeAffinity
from dovetail.scheduling.placement import (
    BoundPod,
    MachineType,
    NodeFilter,
    NodeInfo,
    Offer,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
    TopologyRule,
    TopologyRuleKind,
)
from dovetail.scheduling.requirements import Requirements, of_labels, one_of
from dovetail.scheduling.resources import NOTHING, Resources, total
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED
from dovetail.values.selector import make_selector

_MIB: Final = 2**20
_ZONES: Final = ("zone-1", "zone-2", "zone-3")
_CPU: Final = (100, 250, 500, 1000, 1500)
_MEMORY: Final = (100, 256, 512, 1024, 2048, 4096)
_LABELS: Final = "abcdefg"
# Pods a second of the peer on two cores like these, by number of pods (08 §11).
_PEER: Final = {100: 281, 500: 273, 1_000: 285, 2_000: 237, 5_000: 205}
_SIZES: Final = (1, 10, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
_PODS_PER_NODE: Final = 20
_SHAPES: Final = 300
_SAMPLES: Final = 300
_SOFT: Final = frozenset((SOFT_TAINTS_TOLERATED,))


# -- the engines -------------------------------------------------------------------------------------------------------

SOLVE: Final[dict[str, Callable[[PlacementRequest], Solution]]] = {"fast": fast.solve, "reference": reference.solve}
WhatIf = Callable[[NodeInfo, list[PodInfo]], Solution]


def what_if_of(problem: PlacementRequest) -> WhatIf:
    """The question of where pods of a node go without it, to an engine that knows the cluster already."""
    world = fast.World(problem.nodes, problem.pools, problem.types, problem.daemons, problem.options)
    return lambda node, pods: world.what_if(pods, without=(node.name,))


# -- an empty cluster, and pods of five kinds --------------------------------------------------------------------------


def synthetic_types(count: int = 400) -> tuple[MachineType, ...]:
    """The i-th has i cpus, 2i GiB and room for 10i pods; a cpu costs the same everywhere, and less on spot."""
    return tuple(_type(size) for size in range(1, count + 1))


def _type(size: int) -> MachineType:
    room = Resources({"cpu": 1000 * size, "memory": 2048 * size * _MIB, "pods": 10 * size})
    how = {"on-demand": 1_000_000, "spot": 700_000}
    return MachineType(
        name=f"synthetic-{size:03}",
        requirements=Requirements(
            (
                one_of(names.INSTANCE_TYPE_LABEL, (f"synthetic-{size:03}",)),
                one_of(names.ZONE_LABEL, _ZONES),
                one_of(names.CAPACITY_TYPE_LABEL, how),
                one_of(names.ARCH_LABEL, ("amd64",)),
                one_of(names.OS_LABEL, ("linux",)),
            )
        ),
        capacity=room,
        allocatable=room,
        offers=tuple(
            Offer(
                requirements=of_labels({names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: capacity_type}),
                price=price * size,
            )
            for zone in _ZONES
            for capacity_type, price in how.items()
        ),
    )


def _spread(key: str, selected: str) -> TopologyRule:
    selector = make_selector({"spread": selected})
    return TopologyRule(TopologyRuleKind.SPREAD, key, frozenset(("default",)), selector, max_skew=1, nodes=NodeFilter())


def _term(kind: TopologyRuleKind, key: str, label: str, value: str) -> TopologyRule:
    return TopologyRule(kind, key, frozenset(("default",)), make_selector({label: value}), tolerations=_SOFT)


def mixed_pods(count: int) -> Iterator[PodInfo]:
    """Plain, spread over zones, over hosts, together in a zone, and apart on hosts: a fifth each (08 §2).

    Labels and selectors have seven values. Those that spread draw both; the others select their own kind.
    """
    dice = random.Random(count)
    for number in range(count):
        drawn, selected = dice.choice(_LABELS), dice.choice(_LABELS)
        labels: dict[str, str] = {}
        rules: tuple[TopologyRule, ...] = ()
        match number % 5:
            case 1:
                labels, rules = {"spread": drawn}, (_spread(names.ZONE_LABEL, selected),)
            case 2:
                labels, rules = {"spread": drawn}, (_spread(names.HOSTNAME_LABEL, selected),)
            case 3:
                labels, rules = {"near": drawn}, (_term(TopologyRuleKind.TOGETHER, names.ZONE_LABEL, "near", drawn),)
            case 4:
                labels, rules = {"apart": drawn}, (_term(TopologyRuleKind.APART, names.HOSTNAME_LABEL, "apart", drawn),)
        yield PodInfo(uid=f"pod-{number:05}", labels=labels, request=_request(dice), rules=rules)


def plain_pods(count: int) -> Iterator[PodInfo]:
    """With a size and nothing else."""
    dice = random.Random(count)
    return (PodInfo(uid=f"pod-{number:05}", request=_request(dice)) for number in range(count))


def wishing_pods(count: int) -> Iterator[PodInfo]:
    """Each prefers a zone and one of spot or on-demand, to be near its kind, or apart from it, or spread."""
    dice = random.Random(count)
    for number in range(count):
        label = dice.choice(_LABELS)
        zone = of_labels({names.ZONE_LABEL: dice.choice(_ZONES)})
        how = of_labels({names.CAPACITY_TYPE_LABEL: dice.choice(("spot", "on-demand"))})
        apart, together, spread = number % 3 == 0, number % 3 == 1, number % 3 == 2
        yield PodInfo(
            uid=f"pod-{number:05}",
            labels={"app": label, "spread": label},
            request=_request(dice),
            affinity=ParsedNodeAffinity(preferences=(zone & how, how)),
            preferred_apart=(_term(TopologyRuleKind.APART, names.HOSTNAME_LABEL, "app", label),) if apart else (),
            preferred_together=(_term(TopologyRuleKind.TOGETHER, names.ZONE_LABEL, "app", label),) if together else (),
            preferred_spread=(_spread(names.ZONE_LABEL, label),) if spread else (),
        )


def _request(dice: random.Random) -> Resources:
    return Resources({"cpu": dice.choice(_CPU), "memory": dice.choice(_MEMORY) * _MIB, "pods": 1})


_PODS: Final[dict[str, Callable[[int], Iterator[PodInfo]]]] = {
    "mixed": mixed_pods,
    "plain": plain_pods,
    "respect": wishing_pods,
    "ignore": wishing_pods,
}


def empty_cluster(kind: str, count: int) -> PlacementRequest:
    own = of_labels({names.NODEPOOL_LABEL: "default"})
    return PlacementRequest(
        pods=tuple(_PODS[kind](count)),
        pools=(Pool(name="default", requirements=own),),
        types={"default": synthetic_types()},
        options=SchedulingOptions(respect_preferences=kind != "ignore"),
    )


def measure_solve(kind: str, count: int, engine: str) -> dict[str, float]:
    """The best of three where that is quick."""
    problem, solve, seconds = empty_cluster(kind, count), SOLVE[engine], []
    for _ in range(3 if count <= 1_000 and engine == "fast" else 1):
        started = time.process_time()
        solution = solve(problem)
        seconds.append(time.process_time() - started)
    return {
        "seconds": min(seconds),
        "peak_mb": _peak_mb(),
        "claims": len(solution.new_claims),
        "errors": len(solution.errors),
    }


# -- a cluster that is in use ------------------------------------------------------------------------------------------


def used_cluster(nodes: int) -> tuple[PlacementRequest, dict[str, list[PodInfo]]]:
    """Nodes with 20 pods each, of 300 shapes, and the pods by node."""
    dice = random.Random(nodes)
    shapes = [_shape(dice, number) for number in range(_SHAPES)]
    built, pods = [], dict[str, list[PodInfo]]()
    for number in range(nodes):
        name = f"node-{number:05}"
        there = [dice.choice(shapes) for _ in range(_PODS_PER_NODE)]
        pods[name] = [_named(shape, f"{name}-{index:02}") for index, shape in enumerate(there)]
        built.append(_used_node(dice, name, pods[name]))
    own = of_labels({names.NODEPOOL_LABEL: "default"})
    pool = Pool(name="default", requirements=own)
    return PlacementRequest(pods=(), nodes=tuple(built), pools=(pool,), types={"default": synthetic_types(100)}), pods


def _shape(dice: random.Random, number: int) -> PodInfo:
    """A workload of its own; one in ten spreads over zones, one over hosts, one asks for a zone."""
    labels = {"app": f"app-{number:03}"}
    selector = make_selector(labels)
    spread = TopologyRule(TopologyRuleKind.SPREAD, names.ZONE_LABEL, frozenset(("default",)), selector, max_skew=5)
    hosts = TopologyRule(TopologyRuleKind.SPREAD, names.HOSTNAME_LABEL, frozenset(("default",)), selector, max_skew=3)
    zone = ParsedNodeAffinity(of_labels({names.ZONE_LABEL: dice.choice(_ZONES)}))
    return PodInfo(
        uid="",
        labels=labels,
        request=_request(dice),
        rules={0: (spread,), 1: (hosts,)}.get(number % 10, ()),
        affinity=zone if number % 10 == 2 else ANYWHERE,
    )


def _named(shape: PodInfo, uid: str) -> PodInfo:
    return PodInfo(uid=uid, labels=shape.labels, request=shape.request, rules=shape.rules, affinity=shape.affinity)


def _used_node(dice: random.Random, name: str, pods: list[PodInfo]) -> NodeInfo:
    """With a little room: pods of small clusters do not all find a place, those of large ones do."""
    requested = total(pod.request for pod in pods)
    room = requested + Resources({"cpu": dice.choice((0, 0, 0, 0, 500, 1000)), "memory": 4096 * _MIB, "pods": 10})
    labels = {
        names.HOSTNAME_LABEL: name,
        names.ZONE_LABEL: dice.choice(_ZONES),
        names.NODEPOOL_LABEL: "default",
        names.CAPACITY_TYPE_LABEL: "on-demand",
    }
    return NodeInfo(
        name=name,
        labels=labels,
        allocatable=room,
        capacity=room,
        requested=requested,
        requested_by_daemons=NOTHING,
        pool="default",
        pods=tuple(BoundPod(uid=pod.uid, labels=pod.labels) for pod in pods),
    )


def measure_what_if(nodes: int) -> dict[str, float]:
    """All nodes, each for itself, from a cold start; then some of them again."""
    problem, pods = used_cluster(nodes)
    started = time.process_time()
    what_if = what_if_of(problem)
    prepared = time.process_time() - started
    gc.freeze()  # as `run` does once it has read the cluster
    solutions = [what_if(node, pods[node.name]) for node in problem.nodes]
    whole = time.process_time() - started - prepared
    samples = []
    for node in problem.nodes[:_SAMPLES]:
        before = time.process_time()
        what_if(node, pods[node.name])
        samples.append(time.process_time() - before)
    return {
        "prepared": prepared,
        "all": whole,
        "median": statistics.median(samples),
        "p99": statistics.quantiles(samples, n=100)[98],
        "deleted": sum(solution.all_scheduled and not solution.new_claims for solution in solutions),
        "replaced": sum(solution.all_scheduled and len(solution.new_claims) == 1 for solution in solutions),
        "peak_mb": _peak_mb(),
    }


# -- tables ------------------------------------------------------------------------------------------------------------


def _peak_mb() -> float:
    """Of this process alone: what it inherits from its parent counts in `getrusage`, but not here."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024


def _measured(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.scheduling", *map(str, arguments)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def print_solves(title: str, kind: str, sizes: tuple[int, ...], engine: str = "fast") -> None:
    print(title)
    heads = (("pods", 7), ("time", 10), ("pods/s", 9), ("growth", 7), ("memory", 9), ("claims", 7), ("errors", 7))
    print(*(f"{head:>{width}}" for head, width in heads), f"{'peer':>7} {'ratio':>6}" if kind == "mixed" else "")
    before: tuple[int, float] | None = None
    for count in sizes:
        figures = _measured("solve", kind, count, engine)
        seconds, rate = figures["seconds"], count / figures["seconds"]
        growth = "" if before is None else f"{math.log(seconds / before[1]) / math.log(count / before[0]):.2f}"
        peer = _PEER.get(count) if kind == "mixed" else None
        beside = f"{peer:>7} {rate / peer:>5.1f}x" if peer else ""
        print(
            f"{count:>7} {seconds * 1000:>7.1f} ms {rate:>9,.0f} {growth:>7} {figures['peak_mb']:>6.0f} MB "
            f"{figures['claims']:>7.0f} {figures['errors']:>7.0f} {beside}"
        )
        before = (count, seconds)
    print()


def print_what_ifs(sizes: tuple[int, ...] = (100, 1_000, 5_000)) -> None:
    print(f"what if one node went: {_PODS_PER_NODE} pods a node, {_SHAPES} shapes")
    heads = (("nodes", 7), ("pods", 8), ("prepared", 10), ("all nodes", 10), ("median", 11), ("p99", 11))
    print(*(f"{head:>{width}}" for head, width in heads), f"{'deleted':>8} {'replaced':>8} {'memory':>9}")
    for nodes in sizes:
        figures = _measured("what-if", nodes)
        print(
            f"{nodes:>7} {nodes * _PODS_PER_NODE:>8} {figures['prepared'] * 1000:>7.0f} ms {figures['all']:>8.2f} s "
            f"{figures['median'] * 1e6:>8.0f} µs {figures['p99'] * 1e6:>8.0f} µs "
            f"{figures['deleted']:>8.0f} {figures['replaced']:>8.0f} {figures['peak_mb']:>6.0f} MB"
        )
    print()


def print_scheduling() -> None:
    """All tables."""
    print_solves("pods of five kinds on an empty cluster, 400 types; peer: Karpenter 1.15.0", "mixed", _SIZES)
    print_solves("the same, one pod at a time (the reference engine)", "mixed", (10, 100), "reference")
    print_solves("plain pods", "plain", (2_000, 20_000))
    print_solves("pods with preferences, respected", "respect", (4_000,))
    print_solves("pods with preferences, ignored", "ignore", (4_000,))
    print_what_ifs()


def main(arguments: list[str]) -> None:
    figures: Any
    match arguments:
        case ["solve", kind, count, engine]:
            figures = measure_solve(kind, int(count), engine)
        case ["what-if", nodes]:
            figures = measure_what_if(int(nodes))
        case _:
            return print_scheduling()
    return print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
