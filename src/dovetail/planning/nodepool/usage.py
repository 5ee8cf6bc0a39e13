"""The resources of a NodePool, for its status and its limits (01 §5.1)."""

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
    """The number of nodes and the sum of their capacities, which includes the number as a resource."""

    nodes: int
    resources: Mapping[str, Quantity]

    @property
    def texts(self) -> dict[str, str]:
        return {name: str(amount) for name, amount in self.resources.items()}


def usage(held: Iterable[tuple[objects.NodeClaim | None, objects.Node | None]]) -> PoolUsage:
    """Adds up claims and their Nodes, either of which may be missing."""
    capacities = [_capacity(claim, node) for claim, node in held]
    alike = Counter(map(id, capacities))  # equal capacities are the same object
    total: dict[str, Quantity] = dict.fromkeys(_ALWAYS, _NOTHING)
    for amounts in capacities:
        for name, amount in amounts.items() if (count := alike.pop(id(amounts), 0)) else ():
            total[name] = _sum(total.get(name, _NOTHING), amount, count)
    nodes = len(capacities)
    total[names.NODES_RESOURCE] = parse_quantity(str(nodes))
    return PoolUsage(nodes, total)


def _capacity(claim: objects.NodeClaim | None, node: objects.Node | None) -> dict[str, Quantity]:
    """The capacity of the Node. Until it is initialized, the claim's capacity fills the gaps."""
    expected = {} if claim is None else _amounts(claim.status.capacity)
    if node is None:
        return expected
    actual = _amounts(node.status.capacity)
    if node.metadata.labels.get(names.INITIALIZED_LABEL) == "true":
        return actual
    return {name: actual.get(name) or expected.get(name, _NOTHING) for name in actual | expected}


def _amounts(quantities: objects.Quantities) -> dict[str, Quantity]:
    return _read(tuple(quantities.items()))


@lru_cache(maxsize=4096)  # thousands of nodes are of a few sizes
def _read(quantities: tuple[tuple[str, object], ...]) -> dict[str, Quantity]:
    """Without zero amounts."""
    amounts = {name: _amount(str(text)) for name, text in quantities}
    return {name: amount for name, amount in amounts.items() if amount.nano}


def _amount(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError:
        return _NOTHING  # one bad quantity must not stop the count (R32)


def _sum(total: Quantity, amount: Quantity, count: int) -> Quantity:
    """Adds `count` equal amounts, in the format of the first one."""
    return Quantity(total.nano + amount.nano * count, total.format if total.nano else amount.format)
