"""Which reasons to disrupt a node can a budget name (R28), and what distinguishes each from the others?

Rules, engine, views, metrics and checkers read this table. The order is the order in which reasons are shown; which
reason is acted on first is the order of the methods in `planning/disruption/methods.py`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dovetail.api.names import ConditionType, Reason


class DisruptionReason(NamedTuple):
    """What the program has to know of a reason."""

    condition: ConditionType
    """Of the NodeClaim. While it is True the node has the reason, since its last transition."""
    consolidates: bool = False
    """Nodes go to save money: they wait for consolidateAfter and never override protected pods."""
    upstream: bool = False
    """Karpenter writes the condition too, so `cleanup` leaves it on NodeClaims."""
    former_names: tuple[str, ...] = ()
    """What other documents call it. The API refuses such a name in a budget, but what it means is plain."""


DISRUPTION_REASONS: Final[Mapping[Reason, DisruptionReason]] = {
    Reason.EMPTY: DisruptionReason(
        ConditionType.CONSOLIDATABLE, consolidates=True, upstream=True, former_names=("emptiness",)
    ),
    Reason.DRIFTED: DisruptionReason(ConditionType.DRIFTED, upstream=True, former_names=("drift",)),
    Reason.UNDERUTILIZED: DisruptionReason(
        ConditionType.CONSOLIDATABLE,
        consolidates=True,
        upstream=True,
        former_names=("consolidation", "consolidatable", "underutilised"),
    ),
    Reason.EXPIRED: DisruptionReason(ConditionType.EXPIRED, former_names=("expiration", "expire")),
}

# Each of these has a condition of its own and of its name, which alone says whether a node has the reason.
MARKED: Final = {reason: row.condition for reason, row in DISRUPTION_REASONS.items() if not row.consolidates}


def is_budgeted(reason: Reason, *, graceful_expiry: bool) -> bool:
    """R19–R20: expiration is forceful and asks no budget, unless the pool lets its nodes expire gracefully."""
    return graceful_expiry or reason is not Reason.EXPIRED
