"""How much is there of a NodePool: what its status counts, and its limits are held against (01 §5.1)?"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.values.quantity import Quantity, QuantityError, parse_quantity

_ALWAYS: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_NOTHING: Final = Quantity(0)


class PoolUsage(msgspec.Struct, frozen=True):
    """The nodes, and the sum of their capacities; the nodes are among the resources, too."""

    nodes: int
    resources: Mapping[str, Quantity]

    @property
    def texts(self) -> dict[str, str]:
        return {name: str(amount) for name, amount in self.resources.items()}


def usage(held: Iterable[tuple[objects.NodeClaim | None, objects.Node | None]]) -> PoolUsage:
    """Of claims and their Nodes, either of which may be missing."""
    capacities = [_capacity(claim, node) for claim, node in held]
    alike = Counter(map(id, capacities))  # those of one size are one object
    total: dict[str, Quantity] = dict.fromkeys(_ALWAYS, _NOTHING)
    for amounts in capacities:
        for name, amount in amounts.items() if (count := alike.pop(id(amounts), 0)) else ():
            total[name] = _sum(total.get(name, _NOTHING), amount, count)
    nodes = len(capacities)
    total[names.NODES_RESOURCE] = parse_quantity(str(nodes))
    return PoolUsage(nodes, total)


def _capacity(claim: objects.NodeClaim | None, node: objects.Node | None) -> dict[str, Quantity]:
    """What the Node says; until it is initialized, what it does not say yet is as the claim expects it."""
    expected = {} if claim is None else _amounts(claim.status.capacity)
    if node is None:
        return expected
    found = _amounts(node.status.capacity)
    if node.metadata.labels.get(names.INITIALIZED_LABEL) == "true":
        return found
    return {name: found.get(name) or expected.get(name, _NOTHING) for name in found | expected}


def _amounts(quantities: objects.Quantities) -> dict[str, Quantity]:
    return _read(tuple(quantities.items()))


@lru_cache(maxsize=4096)  # thousands of nodes are of a few sizes
def _read(quantities: tuple[tuple[str, object], ...]) -> dict[str, Quantity]:
    """Without those that are nothing."""
    amounts = {name: _amount(str(text)) for name, text in quantities}
    return {name: amount for name, amount in amounts.items() if amount.nano}


def _amount(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError:
        return _NOTHING  # R32: one bad number must not stop the count


def _sum(total: Quantity, amount: Quantity, count: int) -> Quantity:
    """Of so many alike; written as the first of them was."""
    return Quantity(total.nano + amount.nano * count, total.format if total.nano else amount.format)
