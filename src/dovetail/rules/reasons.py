"""The reasons to disrupt a node that a budget can name (R28).

Rules, engine, views, metrics and checkers read this table. Reasons are shown in this order. The order in which they are
acted on is that of the methods in `planning/disruption/methods.py`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dovetail.api.names import ConditionType, Reason


class DisruptionReason(NamedTuple):
    """The properties of a reason."""

    condition: ConditionType
    """While this condition of the NodeClaim is True, the node has the reason, since the last transition."""
    consolidates: bool = False
    """The reason saves money: it waits for consolidateAfter and never overrides protected pods."""
    upstream: bool = False
    """Karpenter writes the condition too, so `cleanup` leaves it on NodeClaims."""
    former_names: tuple[str, ...] = ()
    """Names in other documents. The API refuses them in budgets, but their meaning is clear."""


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

# Reasons with a condition of the same name, which alone decides whether a node has the reason.
MARKED: Final = {reason: row.condition for reason, row in DISRUPTION_REASONS.items() if not row.consolidates}


def is_budgeted(reason: Reason, *, graceful_expiry: bool) -> bool:
    """Expiration ignores budgets, unless the pool lets its nodes expire gracefully (R19–R20)."""
    return graceful_expiry or reason is not Reason.EXPIRED
