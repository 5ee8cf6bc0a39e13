"""What rules take as settings: one value, which travels with the state and the snapshot of a cluster (R56).

An option that rules read is a field here. Whoever asks a rule has a snapshot or a state at hand, and so this value.
"""

from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model.decider import DOVETAIL, Decider


class BudgetSemantics(StrEnum):
    """Whether a budget without reasons applies only to reasons that no active budget names, or to all (R25)."""

    SEED = "by-reason"
    UPSTREAM = "upstream"


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How rules read what users write."""

    decider: Decider = DOVETAIL
    """Who decides in the cluster."""
    budgets: BudgetSemantics = BudgetSemantics.SEED


DEFAULT_SETTINGS: Final = RuleSettings()


def settings_of(decider: Decider, budgets: BudgetSemantics | None = None) -> RuleSettings:
    """The settings with which this one decides. `budgets`: another reading of budgets."""
    own = BudgetSemantics.SEED if decider.own_budgets else BudgetSemantics.UPSTREAM
    return RuleSettings(decider=decider, budgets=budgets or own)
