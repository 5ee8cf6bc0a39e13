"""Writes the condition ConsistentStateFound: whether a node has the capacity that its claim promises (02 §11)."""

from typing import Final

from dovetail.api import objects
from dovetail.api.names import ConditionReason, ConditionType, EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController
from dovetail.controllers.base.writing import about_claim, warn, write_status
from dovetail.planning.conditions import FALSE, Conditions
from dovetail.planning.timings import Timings
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.quantity import QuantityError, parse_quantity

_LEAST_PERCENT: Final = 90


class Consistency(ClaimController):
    """Checks a claim when it or its Node changes, but at most once in `consistency_seconds`."""

    name = "nodeclaim.consistency"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__(cluster)
        self._every_seconds = timings.consistency_seconds
        self._checked: dict[str, tuple[str, float]] = {}  # by name: the UID of the claim, and the time of the check
        self.follow(cluster.nodes, cluster.claim_names)

    def forget(self, key: str) -> None:
        self._checked.pop(key, None)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        key = claim.metadata.name
        if claim.metadata.deletion_timestamp is not None:
            self.forget(key)
            return Done()
        nodes = self.cluster.nodes_of(claim)
        conditions = Conditions(claim, self.clock.now())
        if len(nodes) != 1 or not conditions.is_true(ConditionType.INITIALIZED):
            return Done()
        uid, checked_at = self._checked.get(key, ("", 0.0))
        wait_seconds = checked_at + self._every_seconds - self.clock.monotonic()
        if uid == claim.metadata.uid and wait_seconds > 0:
            return Done(wait_seconds)
        flaws = shape_flaws(claim, nodes[0])
        note = "; ".join(flaws)
        if flaws:
            conditions.set(ConditionType.CONSISTENT_STATE_FOUND, FALSE, ConditionReason.CONSISTENCY_CHECK_FAILED, note)
        else:
            conditions.set(ConditionType.CONSISTENT_STATE_FOUND)
        await write_status(self.api, self.cluster, claim, conditions)
        self._checked[key] = (claim.metadata.uid, self.clock.monotonic())
        if flaws:
            about = about_claim(claim)
            warn(self.recorder, about, EventReason.FAILED_CONSISTENCY_CHECK, note, about.uid, note)
        return Done(self._every_seconds if flaws else None)  # the API server deletes events after a while


def shape_flaws(claim: objects.NodeClaim, node: objects.Node) -> list[str]:
    """Lists the requested resources of which the node has less than 90 % of the claim's capacity."""
    flaws = []
    for name in sorted(claim.spec.resources.requests):
        expected, actual = _nano(claim.status.capacity.get(name)), _nano(node.status.capacity.get(name))
        if actual * 100 < expected * _LEAST_PERCENT:
            promised, there = claim.status.capacity[name], node.status.capacity.get(name, "0")
            percent = actual * 1000 // expected / 10  # rounded down: 89.99 is not 90
            flaws.append(f"expected {promised} of resource {name}, but found {there} ({percent}% of expected)")
    return flaws


def _nano(quantity: str | float | None) -> int:
    """Returns 0 for a quantity that is missing or cannot be read (R32)."""
    try:
        return 0 if quantity is None else parse_quantity(str(quantity)).nano
    except QuantityError:
        return 0
