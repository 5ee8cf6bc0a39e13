"""The verdict of one rule for one object at one instant, and until when it is valid (R1).

A rule returns the set of instants at which it allows. The answer for now, `until`, groups of rules, budgets and
forecasts are all derived from such sets, so that no rule is written twice.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model.refs import Redactable, Ref
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of

_BUDGETS: Final = "PodDisruptionBudget"


class Rule(StrEnum):
    """The rules, in the order in which they are evaluated (R5, 02 §3)."""

    DO_NOT_DISRUPT = "do-not-disrupt"
    DISRUPTION_SCHEDULE = "disruption-schedule"
    DISRUPTION_BLOCK_SCHEDULE = "disruption-block-schedule"
    POD_DISRUPTION_BUDGET = "pod-disruption-budget"

    REASON = "reason"
    NODE_DO_NOT_DISRUPT = "node-do-not-disrupt"
    INITIALIZED = "initialized"
    DELETING = "deleting"
    READY = "ready"
    NODEPOOL = "nodepool"
    CONSOLIDATE_AFTER = "consolidate-after"
    SCALE_OUT = "scale-out"
    PODS = "pods"
    BUDGET = "budget"
    REPLACEMENT = "replacement"


class Remark(StrEnum):
    """What is unusual about a verdict that allows."""

    UNCHECKED = "unchecked"  # the reason ignores the rule
    NOT_IN_FORCE = "not-in-force"  # the rule allows because whoever decides does not read what was written
    MISTAKE = "mistake"  # the rule allows because what was written cannot be read


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whether the rule allows a disruption now, when time alone changes that (None: never), and why."""

    rule: Rule
    object: Ref
    allowed: bool
    until: datetime | None
    message: str
    when: Instants
    blockers: tuple["Verdict", ...] = ()
    transient: bool = False
    """What blocks ends without an edit, nobody knows when: a pod becomes ready, another disruption ends."""
    remark: Remark | None = None
    details: str = ""
    """What explains the message further, and is not needed to act."""
    field: str = ""
    """What an edit of the node's NodePool has to change; empty: something else, or it is not known."""

    @property
    def words(self) -> str:
        """The message for somebody who does not see the rule."""
        is_bare = self.rule is Rule.POD_DISRUPTION_BUDGET and _BUDGETS not in self.message
        return f"{_BUDGETS} {self.message}" if is_bare else self.message

    @property
    def told(self) -> Redactable:
        """The words for somebody who knows the node, with the annotated object if they do not name it themselves."""
        is_pods = self.object.kind == "Pod" and self.rule is not Rule.REPLACEMENT
        about = f"{self.object}: " if is_pods or self.rule is Rule.NODE_DO_NOT_DISRUPT else ""
        return Redactable(self.object, f"{about}{self.words}")


def judge(
    rule: Rule,
    object_: Ref,
    when: Instants,
    now: datetime,
    *,
    allowed: str,
    blocked: str,
    blockers: tuple[Verdict, ...] = (),
    transient: bool = False,
) -> Verdict:
    """The verdict of a rule that allows at the instants `when`."""
    holds = when.contains(now)
    return Verdict(
        rule=rule,
        object=object_,
        allowed=holds,
        until=when.until(now),
        message=allowed if holds else blocked,
        when=when,
        blockers=blockers,
        transient=transient and not holds,
    )


def allow(
    rule: Rule, object_: Ref, message: str, blockers: tuple[Verdict, ...] = (), *, remark: Remark | None = None
) -> Verdict:
    """A verdict that only an edit can turn into a refusal."""
    return Verdict(
        rule=rule,
        object=object_,
        allowed=True,
        until=None,
        message=message,
        when=ALWAYS,
        blockers=blockers,
        remark=remark,
    )


def refuse(
    rule: Rule, object_: Ref, message: str, *, transient: bool = False, details: str = "", field: str = ""
) -> Verdict:
    """A verdict that time alone does not turn into a permission."""
    return Verdict(
        rule=rule,
        object=object_,
        allowed=False,
        until=None,
        message=message,
        when=NEVER,
        transient=transient,
        details=details,
        field=field,
    )


def together(verdicts: Iterable[Verdict]) -> Instants:
    """When all of these allow."""
    return all_of([verdict.when for verdict in verdicts])
