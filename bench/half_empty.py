"""A cluster that is half empty all at once (08 §11): what is put there, what it costs over time, and at least must.

A pool of machines of 16 cpus is filled: for each of N, ten pods of 250m to 1250m and one of 8 cpus. Then the large pods
go, and ten seconds later the pool may use machines of up to 32 cpus and consolidate at once, all nodes if it likes.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise, product
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.model.instance_types import InstanceType
from dovetail.providers.catalogue import allocatable, built_in
from dovetail.state.instance_types import BILLION, bought_as, machine_type, prices_of
from dovetail.values.quantity import parse_quantity
from tests.harness import manifests
from tests.harness.claims import NODE_CLASS_REF, node_class, node_pool
from tests.harness.manifests import Manifest

POOL: Final = "default"
LARGE: Final = "large"
PODS_EACH: Final = 11  # for each of N
PAUSE_SECONDS: Final = 10  # from the large pods' end to the change of the pool
REST_SECONDS: Final = 1_800  # for which it is watched once it is near the end
_NEAR: Final = 1.01
_MOST_CPUS: Final = 32
_SMALL: Final = (("250m", "1Gi"), ("500m", "2Gi"), ("750m", "1Gi"), ("1000m", "3Gi"), ("1250m", "4Gi"))
_OURS: Final = {names.CAPACITY_TYPE_LABEL: "on-demand", names.OS_LABEL: "linux", names.ARCH_LABEL: "amd64"}
_PINNED: Final = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-16x-amd64-linux"]}
_FREE: Final = {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "Lt", "values": [str(_MOST_CPUS + 1)]}

# -- what is put there -------------------------------------------------------------------------------------------------


def pool() -> tuple[Manifest, Manifest]:
    """Of one type, and at rest; with its node class."""
    return node_class(), node_pool(POOL, template={"requirements": _only(_PINNED)}, disruption=_disruption("Never"))


def set_free() -> Manifest:
    """A merge patch of the pool."""
    template = {"spec": {"nodeClassRef": NODE_CLASS_REF, "requirements": _only(_FREE), "expireAfter": "Never"}}
    return {"spec": {"template": template, "disruption": _disruption("0s")}}


def workloads(number: int) -> list[Manifest]:
    small = [_deployment(f"small-{size}", 2 * number, *sizes) for size, sizes in enumerate(_SMALL)]
    return [*small, _deployment(LARGE, number, "8", "24Gi")]


def _deployment(name: str, replicas: int, cpu: str, memory: str) -> Manifest:
    return manifests.deployment(name, replicas=replicas, cpu=cpu, memory=memory, terminationGracePeriodSeconds=0)


def _only(last: Manifest) -> list[Manifest]:
    return [*({"key": key, "operator": "In", "values": [value]} for key, value in _OURS.items()), last]


def _disruption(after: str) -> Manifest:
    return {"consolidateAfter": after, "budgets": [{"nodes": "100%"}]}


# -- what it costs -----------------------------------------------------------------------------------------------------

_PRICES: Final = prices_of([type_ for listed in built_in() if (type_ := machine_type(listed, print)) is not None])


def cost_of(labels: Iterable[Mapping[str, str]]) -> float:
    """By the hour, of Nodes with these labels."""
    return sum(_PRICES[bought_as(node)] for node in labels) / BILLION


def least_cost(number: int) -> float:
    """No nodes on which the small pods fit cost less by the hour.

    As if pods could be cut and machines be had in part. Choose what a cpu and what a GiB are worth so that no type is
    worth more than it costs: then whatever machines hold the pods cost no less than the pods are worth. The best choice
    is among those by which two types are worth just what they cost.
    """
    types = [_machine(type_) for type_ in built_in() if _is_ours(type_)]
    cpu, memory = (2 * number * sum(_amount(size[which]) for size in _SMALL) for which in (0, 1))
    worths = [(1.0, 0.0), (0.0, 1.0), *(_meet(*two) for two in product(types, types))]
    return max(_scaled(worth, types, cpu, memory) for worth in worths if min(worth) >= 0 and max(worth) > 0)


def _machine(type_: InstanceType) -> tuple[float, float, float]:
    """The cpus and bytes that pods may have, and the price."""
    room = allocatable(type_)
    price = (
        min(cost for (name, _, kind), cost in _PRICES.items() if (name, kind) == (type_.name, "on-demand")) / BILLION
    )
    return _amount(room["cpu"]), _amount(room["memory"]), price


def _is_ours(type_: InstanceType) -> bool:
    return type_.name.endswith("-amd64-linux") and _amount(type_.capacity["cpu"]) <= _MOST_CPUS


def _amount(text: str) -> float:
    return parse_quantity(text).nano / 1e9


def _meet(one: tuple[float, float, float], other: tuple[float, float, float]) -> tuple[float, float]:
    """The worth of a cpu and of a byte by which both are worth what they cost; nothing if there is no such."""
    area = one[0] * other[1] - other[0] * one[1]
    if not area:
        return 0.0, 0.0
    return (one[2] * other[1] - other[2] * one[1]) / area, (one[0] * other[2] - other[0] * one[2]) / area


def _scaled(
    worth: tuple[float, float], types: Iterable[tuple[float, float, float]], cpu: float, memory: float
) -> float:
    """What the pods are worth, when the worths are as high as the types allow."""
    most = min(price / (worth[0] * has_cpu + worth[1] * has_memory) for has_cpu, has_memory, price in types)
    return most * (worth[0] * cpu + worth[1] * memory)


# -- over time ---------------------------------------------------------------------------------------------------------


class Moment(msgspec.Struct, frozen=True):
    """`at`: seconds since the pool was set free; `moved`: pods that were made anew since then."""

    at: float
    nodes: int
    cost: float
    moved: int


class Started(msgspec.Struct, frozen=True):
    """A command, as the log tells of it."""

    at: float
    method: str
    nodes: int
    replacements: int

    @classmethod
    def read(cls, at: float, line: Mapping[str, Any]) -> "Started":
        return cls(at, line["method"], line["disrupted-node-count"], line["replacement-node-count"])


class Course(msgspec.Struct):
    """What was seen, oldest first."""

    moments: list[Moment] = []
    commands: list[Started] = []

    def add(self, at: float, labels: Iterable[Mapping[str, str]], moved: int) -> None:
        nodes = list(labels)
        self.moments.append(Moment(at, len(nodes), cost_of(nodes), moved))

    @property
    def lowest(self) -> float:
        return min(moment.cost for moment in self.moments)

    @property
    def near(self) -> Moment:
        """The first at which the cost was within 1 % of the lowest."""
        return next(moment for moment in self.moments if moment.cost <= _NEAR * self.lowest)

    def at_most(self, cost: float) -> float | None:
        """When it cost no more than that for the first time."""
        return next((moment.at for moment in self.moments if moment.cost <= cost), None)

    def changed_at(self) -> float:
        """When nodes came or went for the last time."""
        changes = (two.at for one, two in pairwise(self.moments) if (one.nodes, one.cost) != (two.nodes, two.cost))
        return max(changes, default=0.0)


# -- figures -----------------------------------------------------------------------------------------------------------


class Figures(msgspec.Struct, frozen=True):
    """A row of the table; None where nobody has said.

    `seconds`: until the cost was within 1 % of the lowest. `later`: what happened after that.
    """

    nodes: tuple[int, int]
    cost: tuple[float, float]
    seconds: float
    as_peer: float | None = None  # until it was within 1 % of what the peer comes to
    commands: int | None = None
    moved: int | None = None
    later: tuple[int, int] | None = None  # commands, and pods moved
    cpu_seconds: float | None = None
    peak_mb: float | None = None


# Karpenter 1.15.0 on a machine like ours (08 §11).
PEER: Final = {
    200: Figures((260, 101), (121.9, 45.3), 99, cpu_seconds=77, peak_mb=374 * 1.048576),
    500: Figures((678, 244), (317.8, 113.5), 195, cpu_seconds=134, peak_mb=781 * 1.048576),
    1_000: Figures((1_277, 483), (598.6, 227.8), 345, cpu_seconds=263, peak_mb=1_518 * 1.048576),
}


def figures(number: int, course: Course, *, cpu_seconds: float | None = None, peak_mb: float | None = None) -> Figures:
    first, last, near = course.moments[0], course.moments[-1], course.near
    later = sum(command.at > near.at for command in course.commands)
    return Figures(
        nodes=(first.nodes, last.nodes),
        cost=(first.cost, last.cost),
        seconds=near.at,
        as_peer=course.at_most(_NEAR * PEER[number].cost[1]) if number in PEER else None,
        commands=len(course.commands) - later,
        moved=near.moved,
        later=(later, last.moved - near.moved),
        cpu_seconds=cpu_seconds,
        peak_mb=peak_mb,
    )


_COLUMNS: Final = (
    ("nodes", 12),
    ("$/h", 16),
    ("least", 8),
    ("near after", 12),
    ("peer's after", 14),
    ("commands", 10),
    ("moved", 8),
    ("then", 10),
    ("CPU", 8),
    ("peak", 9),
)
HEAD: Final = f"{'':<20}" + "".join(f"{head:>{width}}" for head, width in _COLUMNS)


def row(name: str, figures: Figures, least: float | None = None) -> str:
    """`then`: commands and pods moved after the cost was near its lowest."""
    values = (
        f"{figures.nodes[0]} → {figures.nodes[1]}",
        f"{figures.cost[0]:.1f} → {figures.cost[1]:.1f}",
        _shown(least, ".1f"),
        _shown(figures.seconds, ".0f", " s"),
        _shown(figures.as_peer, ".0f", " s"),
        _shown(figures.commands),
        _shown(figures.moved),
        "" if figures.later is None else "{}, {}".format(*figures.later),
        _shown(figures.cpu_seconds, ".0f", " s"),
        _shown(figures.peak_mb, ".0f", " MB"),
    )
    return f"{name:<20}" + "".join(f"{value:>{width}}" for value, (_, width) in zip(values, _COLUMNS, strict=True))


def _shown(value: object, form: str = "", unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def print_rows(number: int, figures: Figures) -> None:
    """Ours, and the peer's where it is known."""
    print(row(f"{number} of each", figures, least_cost(number)))
    if number in PEER:
        print(row("  Karpenter 1.15.0", PEER[number]), flush=True)
