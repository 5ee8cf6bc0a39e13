"""What does a random problem consist of, and how often? Drawn from the seed alone, so equal in every process."""

from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

from dovetail.api import names
from dovetail.api.objects import Taint, Toleration
from dovetail.scheduling.host_ports import HostPort, HostPorts
from dovetail.scheduling.requirements import Requirement, Requirements, one_of, read_requirement
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.taints import Taints, Tolerations, template_taints
from tests.unit.scheduling.wire import entry

T = TypeVar("T")

ZONE, HOST, ARCH = names.ZONE_LABEL, names.HOSTNAME_LABEL, names.ARCH_LABEL
CAPACITY_TYPE, TYPE, POOL = names.CAPACITY_TYPE_LABEL, names.INSTANCE_TYPE_LABEL, names.NODEPOOL_LABEL
RACK, TIER, GENERATION = "example.com/rack", "example.com/tier", "example.com/generation"
RESERVATION: Final = "example.com/reservation"
GPU: Final = "example.com/gpu"
MIB: Final = 2**20

VALUES: Final = {
    ZONE: ("a", "b", "c"),
    ARCH: ("amd64", "arm64"),
    CAPACITY_TYPE: ("on-demand", "spot", "reserved"),
    RACK: ("r1", "r2", "r3", "r4"),
    TIER: ("gold", "silver"),
    GENERATION: ("1", "2", "3", "4", "old"),
}
APPS: Final = ("web", "db", "batch", "cache")
TRACKS: Final = ("blue", "green")
NAMESPACES: Final = ("shop", "bank", "lab")
POOLS: Final = ("alpha", "beta", "gamma", "delta")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")
_TAINTS = (("team", "red"), ("team", "blue"), ("dedicated", ""), ("level", "3"), ("level", "7"))
_OPERATORS = ("In", "In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class Dice:
    """Chances of one problem. A feature is nowhere, here and there, or everywhere in it."""

    def __init__(self, seed: int, throw: object = "") -> None:
        self.seed = seed
        self._random = Random(f"{seed} {throw}")
        self._busy = Random(f"{seed} busy").choice((0.05, 0.15, 0.3, 0.6, 0.9))
        self._densities: dict[str, float] = {}

    def thrown(self, throw: object) -> "Dice":
        """Other dice for the same problem: the same throw gives the same values."""
        return Dice(self.seed, throw)

    def has(self, feature: str, most: float = 1.0) -> bool:
        """Whether a thing has the feature, in as large a part of them as this problem wants."""
        if feature not in self._densities:
            dice = Random(f"{self.seed} {feature}")
            self._densities[feature] = dice.choice((0.1, 0.3, 0.7, 1.0)) if dice.random() < self._busy else 0.0
        return self._random.random() < self._densities[feature] * most

    def chance(self, of: float) -> bool:
        return self._random.random() < of

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def one(self, of: Sequence[T]) -> T:
        return self._random.choice(of)

    def some(self, of: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        """So many different ones, in the order given."""
        count = self.between(least, len(of) if most is None else min(most, len(of)))
        chosen = sorted(self._random.sample(range(len(of)), count))
        return [of[index] for index in chosen]

    def shuffled(self, of: Sequence[T]) -> list[T]:
        return self._random.sample(of, len(of))


# -- things that several parts have ------------------------------------------------------------------------------------


def amounts(cpu: int, mebibytes: int, **others: int) -> Resources:
    return Resources({"cpu": cpu, "memory": mebibytes * MIB, **others})


def random_taints(dice: Dice, feature: str) -> Taints:
    if not dice.has(feature, 0.8):
        return ()
    chosen = dice.some(_TAINTS, 1, 2)
    return template_taints(Taint(key=key, value=value, effect=dice.one(_EFFECTS)) for key, value in chosen)


def random_tolerations(dice: Dice, feature: str) -> Tolerations:
    if not dice.has(feature):
        return frozenset()
    return frozenset(_toleration(dice) for _ in range(dice.between(1, 3)))


def _toleration(dice: Dice) -> Toleration:
    effect = dice.one(("", "", *_EFFECTS))
    key, value = dice.one(_TAINTS)
    match dice.between(0, 5):
        case 0:
            return Toleration(operator="Exists", effect=effect)
        case 1:
            return Toleration(key=key, operator="Exists", effect=effect)
        case 2:
            return Toleration(key="level", operator=dice.one(("Gt", "Lt")), value="5", effect=effect)
        case 3:
            return Toleration(key=key, operator=dice.one(("Equal", "")), value="other", effect=effect)
        case _:
            return Toleration(key=key, operator=dice.one(("Equal", "")), value=value, effect=effect)


def random_ports(dice: Dice, feature: str) -> HostPorts:
    if not dice.has(feature):
        return frozenset()
    addresses = ("0.0.0.0", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2")
    return frozenset(
        HostPort(dice.between(80, 83), dice.one(("TCP", "TCP", "UDP")), dice.one(addresses))
        for _ in range(dice.between(1, 2))
    )


def random_requirement(dice: Dice, key: str) -> Requirement:
    """About one label, by any operator that makes sense for it."""
    operator = dice.one(_OPERATORS)
    if operator in ("Gt", "Lt") and key != GENERATION:
        operator = "In"
    if operator in ("Gt", "Lt"):
        return read_requirement(entry(key, dice.one(("Gt", "Lt", "Gte", "Lte")), str(dice.between(0, 5))))
    if operator in ("In", "NotIn"):
        return read_requirement(entry(key, operator, *dice.some(VALUES[key], 1, 2)))
    return read_requirement(entry(key, operator))


def random_requirements(dice: Dice, most: int = 2, keys: Sequence[str] = tuple(VALUES)) -> Requirements:
    return Requirements(random_requirement(dice, key) for key in dice.some(keys, 1, most))


def pinned(dice: Dice, key: str, most: int = 2) -> Requirement:
    """One of a few values."""
    return one_of(key, dice.some(VALUES[key], 1, most))
