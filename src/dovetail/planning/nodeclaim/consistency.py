"""Is a node what its claim was promised (02 §11)? This is for people: nothing is done about it."""

from dovetail.api import objects
from dovetail.values.quantity import QuantityError, parse_quantity

_LEAST_PERCENT = 90


def shape_flaws(claim: objects.NodeClaim, node: objects.Node) -> list[str]:
    """What the node has much less of than the claim's capacity says, among the resources that are asked for."""
    flaws = []
    for name in sorted(claim.spec.resources.requests):
        expected, found = _nano(claim.status.capacity.get(name)), _nano(node.status.capacity.get(name))
        if found * 100 < expected * _LEAST_PERCENT:
            promised, there = claim.status.capacity[name], node.status.capacity.get(name, "0")
            percent = found * 1000 // expected / 10  # rounded down: 89.99 is not 90
            flaws.append(f"expected {promised} of resource {name}, but found {there} ({percent}% of expected)")
    return flaws


def _nano(quantity: str | float | None) -> int:
    """What is not said, or cannot be read, counts nothing (R32)."""
    try:
        return 0 if quantity is None else parse_quantity(str(quantity)).nano
    except QuantityError:
        return 0
