"""The values of annotations by which guard and drive mark what is theirs, beside Karpenter.

Everybody who may edit an object can write such a value. A value that cannot be read is reported, and never acted upon:
the annotation that it marks then counts as a user's.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.values import limits
from dovetail.values.timestamp import spoken_time

T = TypeVar("T")

OFF: Final = "off"
_RULE_NAME: Final = re.compile("[a-z-]+")


class BesideMode(StrEnum):
    """Who decides beside Karpenter: Karpenter itself, kept off some nodes, or Dovetail."""

    GUARD = "guard"
    DRIVE = "drive"


class RollCause(StrEnum):
    """Why a NodeClaim is to be replaced gracefully."""

    EXPIRED = "expired"
    ASKED = "asked"


class Hold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The value of `dovetail.dev/held` on a Node: its do-not-disrupt is ours.

    `until`: when the verdict behind it changes by time alone. `why`: the rule, for people, and not the pod: whoever
    reads it may list Nodes and no pods (R49).
    """

    by: BesideMode
    until: objects.Instant | None = None
    why: str = ""

    @property
    def sentence(self) -> str:
        """For people. What somebody has written instead of the name of a rule is not repeated (R49)."""
        until = "" if self.until is None else f" until {spoken_time(self.until)}"
        rule = f": {self.why}" if _RULE_NAME.fullmatch(self.why) else ""
        return f"held by Dovetail {self.by}{until}{rule}"


class PodHold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The value of `dovetail.dev/hold` on a Pod: its do-not-disrupt is ours, as long as it has this value."""

    until: objects.Instant
    value: str


class Roll(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The value of `dovetail.dev/rolled` on a NodeClaim: why it is to be replaced, and since when."""

    why: RollCause
    at: objects.Instant

    @property
    def sentence(self) -> str:
        what = "asked by roll" if self.why is RollCause.ASKED else "stamped by guard for graceful expiry"
        return f"{what} since {spoken_time(self.at)}"


def is_opted_out(pool: objects.NodePool) -> bool:
    """Whether guard and drive leave its nodes alone."""
    return pool.metadata.annotations.get(names.BESIDE) == OFF


def stamp_at(at: datetime) -> str:
    """The value of the NodePool's hash on a NodeClaim that Karpenter is to replace."""
    return f"{names.STAMP_PREFIX}{int(at.timestamp())}"


def is_stamped(annotations: Mapping[str, str]) -> bool:
    """Whether the NodePool's hash on a NodeClaim is ours."""
    return annotations.get(names.NODEPOOL_HASH, "").startswith(names.STAMP_PREFIX)


def written_mark(value: Hold | PodHold | Roll) -> str:
    """The text of an annotation."""
    return msgspec.json.encode(value, order="deterministic").decode()


def read_hold(text: str) -> Hold | None:
    """Returns None for a text that is not a hold."""
    return _read(text, Hold)


def read_pod_hold(text: str) -> PodHold | None:
    """Returns None for a text that is not a hold."""
    return _read(text, PodHold)


def read_roll(text: str) -> Roll | None:
    """Returns None for a text that is not a roll."""
    return _read(text, Roll)


def asked_roll(text: str | None) -> Roll | None:
    """The roll that somebody has asked for by hand. Returns None for a stamp of guard, and for any other text."""
    roll = None if text is None else read_roll(text)
    return roll if roll is not None and roll.why is RollCause.ASKED else None


def read_budgets(text: str) -> tuple[objects.Budget, ...] | None:
    """The budgets of `dovetail.dev/budgets`. Returns None for a text that is not a list of budgets."""
    return _decoded(text, tuple[objects.Budget, ...], limits.COMMAND)


@lru_cache(maxsize=4096)
def _read(text: str, type_: type[T]) -> T | None:
    return _decoded(text, type_, limits.VALUE)


def _decoded(text: str, type_: type[T], longest: int) -> T | None:
    if len(text) > longest:
        return None
    try:
        decoded = msgspec.json.decode(text, type=type_)
    except (msgspec.MsgspecError, RecursionError, OverflowError):
        return None
    return decoded if _is_utc_time(getattr(decoded, "until", None) or getattr(decoded, "at", None)) else None


def _is_utc_time(at: datetime | None) -> bool:
    """The first and last hours of the calendar have no time in UTC."""
    try:
        return at is None or at.astimezone(UTC) is not None
    except OverflowError:
        return False


def at_second(at: datetime) -> datetime:
    """Marks name whole seconds."""
    return at.replace(microsecond=0)
