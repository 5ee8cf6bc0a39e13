"""What rules take as settings: one value, which travels with the state and the snapshot of a cluster (R56).

An option that rules read is a field here. Records that are read in different ways carry it, and whoever asks a rule
about something else has a snapshot or a state at hand. The differences between Karpenter and Dovetail are the fields,
and `READINGS` says them in words.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from dovetail.api.names import GRACEFUL_EXPIRE_AFTER, DovetailMode
from dovetail.model.decider import DOVETAIL, Decider, DecidingController

# From this version on Karpenter reads durations of do-not-disrupt.
DURATIONS_SINCE: Final = (1, 12)


class BudgetSemantics(StrEnum):
    """Whether a budget without reasons applies only to reasons that no active budget names, or to all (R25)."""

    SEED = "by-reason"
    UPSTREAM = "upstream"


class SpanStart(StrEnum):
    """From when a duration of do-not-disrupt on a pod counts (R2)."""

    CREATION = "creation"
    START = "start"
    NEVER = "never"  # it is not read


class GracefulExpiry(StrEnum):
    """How a NodePool asks for nodes that expire under budgets (R20)."""

    FIELD = "field"
    ANNOTATION = "annotation"  # Karpenter's CRD drops the field
    NEVER = "never"


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How rules read what users write."""

    decider: Decider = DOVETAIL
    """Who decides in the cluster."""
    budgets: BudgetSemantics = BudgetSemantics.SEED
    durations: SpanStart = SpanStart.CREATION
    unreadable_protects: bool = True
    """Whether a do-not-disrupt that cannot be read protects the pod (R2)."""
    node_durations: bool = True
    """Whether a duration on a Node counts (R6)."""
    schedules: bool = True
    """Whether schedules on pods are read (R7)."""
    graceful_expiry: GracefulExpiry = GracefulExpiry.FIELD
    """Whether nodes expire under budgets, and what asks for it (R20)."""
    expired_budgets: bool = True
    """Whether budgets can name Expired (R28)."""
    budget_zones: bool = True
    """Whether schedules of budgets can name a time zone (R29)."""
    node_repair: bool = True
    """Whether unhealthy nodes are replaced by default (R39)."""
    waits_to_consolidate: bool = True
    """Whether consolidation leaves NotReady nodes alone, and NodePools in which nodes start for pending pods."""
    drains_as: DecidingController = DecidingController.DOVETAIL
    """Who drains nodes, and so in whose reading their pods are protected then (R56)."""
    ends_at_deadline: bool = True
    """Whether an instance ends at the deadline of its drain, whatever is left on it (R17)."""

    @property
    def reads_protections(self) -> bool:
        """Whether every protection that Dovetail knows is in force."""
        return self.schedules and self.unreadable_protects

    @property
    def reads_durations(self) -> bool:
        """Whether a duration of do-not-disrupt on a pod counts."""
        return self.durations is not SpanStart.NEVER

    @property
    def karpenter_drains(self) -> bool:
        return self.drains_as is DecidingController.KARPENTER

    @property
    def in_drains(self) -> "RuleSettings":
        """How the pods of a node that drains are read: beside Karpenter, as Karpenter does."""
        if not (self.karpenter_drains and self.schedules):
            return self
        theirs = _karpenters_start(self.decider)
        return msgspec.structs.replace(self, durations=theirs, unreadable_protects=False, schedules=False)

    @property
    def is_in_drain(self) -> bool:
        """Whether Karpenter reads although Dovetail guards or decides."""
        return self.decider.controller is DecidingController.DOVETAIL and not self.schedules


DEFAULT_SETTINGS: Final = RuleSettings()


def settings_of(decider: Decider, budgets: BudgetSemantics | None = None) -> RuleSettings:
    """The settings with which this one decides. `budgets`: another reading of budgets.

    A Karpenter of unknown version counts as a current one. Beside Dovetail's guard, Karpenter spends the budgets.
    """
    own = decider.controller is DecidingController.DOVETAIL
    alone, spends = decider.mode is DovetailMode.RUN, decider.own_budgets
    return RuleSettings(
        decider=decider,
        budgets=budgets or (BudgetSemantics.SEED if spends else BudgetSemantics.UPSTREAM),
        durations=SpanStart.CREATION if own else _karpenters_start(decider),
        unreadable_protects=own,
        node_durations=spends,
        schedules=own,
        graceful_expiry=GracefulExpiry.NEVER
        if not own
        else GracefulExpiry.FIELD
        if alone
        else GracefulExpiry.ANNOTATION,
        expired_budgets=spends,
        budget_zones=spends,
        node_repair=alone,
        waits_to_consolidate=spends,
        drains_as=DecidingController.DOVETAIL if alone else DecidingController.KARPENTER,
        ends_at_deadline=alone,
    )


def _karpenters_start(decider: Decider) -> SpanStart:
    old = decider.release is not None and decider.release < DURATIONS_SINCE
    return SpanStart.NEVER if old else SpanStart.START


# -- in words ---------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """Something that is read in several ways: the field of the settings, and what each value of it means."""

    what: str
    field: str
    words: Mapping[object, str]


READINGS: Final = (
    Reading(
        '`do-not-disrupt: "4h"` on a pod',
        "durations",
        {
            SpanStart.CREATION: "protects, from the pod's creation",
            SpanStart.START: "protects, from the pod's start",
            SpanStart.NEVER: "is ignored",
        },
    ),
    Reading(
        '`do-not-disrupt` that cannot be read, such as `"yes"` or `"1d"`',
        "unreadable_protects",
        {True: "protects until it is corrected", False: "is ignored"},
    ),
    Reading(
        '`do-not-disrupt: "4h"` on a Node', "node_durations", {True: "protects", False: 'is ignored: only `"true"`'}
    ),
    Reading(
        "`disruption-schedule`, `disruption-block-schedule`", "schedules", {True: "windows", False: "are not read"}
    ),
    Reading(
        "a budget without reasons",
        "budgets",
        {
            BudgetSemantics.SEED: "for the reasons that no active budget names",
            BudgetSemantics.UPSTREAM: "for every reason",
        },
    ),
    Reading(
        "a time zone in the schedule of a budget",
        "budget_zones",
        {True: "is read", False: "cannot be read: the budget allows 0"},
    ),
    Reading("budgets for `Expired`", "expired_budgets", {True: "are read", False: "the CRD refuses them"}),
    Reading(
        "`gracefulExpireAfter`",
        "graceful_expiry",
        {
            GracefulExpiry.FIELD: "nodes expire under budgets",
            GracefulExpiry.ANNOTATION: f"the CRD drops it; the annotation `{GRACEFUL_EXPIRE_AFTER}` has its effect",
            GracefulExpiry.NEVER: "the CRD drops it",
        },
    ),
    Reading(
        "unhealthy nodes",
        "node_repair",
        {
            True: "are replaced, after a drain that terminationGracePeriod limits",
            False: "stay: the feature gate NodeRepair is off by default; with it they end without a drain",
        },
    ),
    Reading(
        "a node that is NotReady, or in whose NodePool others start for pending pods",
        "waits_to_consolidate",
        {True: "is not consolidated if it is underutilized", False: "is consolidated like any other"},
    ),
    Reading(
        "pods of a node that drains",
        "drains_as",
        {
            DecidingController.DOVETAIL: "are protected as above",
            DecidingController.KARPENTER: "Karpenter's drain: protected as in the column of Karpenter",
        },
    ),
    Reading(
        "the forced end of a drain, at its deadline",
        "ends_at_deadline",
        {
            True: "the instance ends at once, whatever is left on it",
            False: "what is left is deleted, and the instance ends when it is gone",
        },
    ),
)
