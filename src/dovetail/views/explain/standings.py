"""What a node needs in order to go, and when it is free: the words that every command and the dashboard use."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from dovetail.rules.states import IN_DISRUPTION


class NodeStanding(StrEnum):
    """What a node needs in order to go."""

    STEADY = "steady"  # it has no reason to go
    STARTING = "starting"  # it is not there yet
    FREE = "free"  # nothing: it may go now
    WAITING = "waiting"  # time, or the end of something that is under way
    STUCK = "stuck"  # somebody


LEAVING: Final = "leaving"
# How overviews count one node or several, what matters most first.
_COUNTED: Final = {
    NodeStanding.STUCK.value: ("stuck", "stuck"),
    NodeStanding.WAITING.value: ("waiting", "waiting"),
    LEAVING: (LEAVING, LEAVING),
    NodeStanding.STARTING.value: ("starting", "starting"),
    NodeStanding.FREE.value: ("may go", "may go"),
    NodeStanding.STEADY.value: ("stays", "stay"),
}
NEVER: Final = "never"
NOW: Final = "now"


def standing_word(standing: str, state: str) -> str:
    """The standing; `leaving` for a node on its way out, unless it is stuck."""
    return LEAVING if state in IN_DISRUPTION and standing != NodeStanding.STUCK else standing


def counted(words: Mapping[str, int]) -> dict[str, str]:
    """`1 stuck`, `3 stay`: how many nodes have each of these standings, each node once."""
    return {word: f"{number} {said[number > 1]}" for word, said in _COUNTED.items() if (number := words.get(word, 0))}


def free_word(word: str, free_at: datetime | None, now: datetime, *, undated: bool, managed: bool) -> str:
    """When a node is free, for a reason that it has or might have; empty: at `free_at`.

    `word`: of its standing. `free_at`: when no rule of the node or its pods blocks it any more. `never`: if nothing but
    time changes.
    """
    if not managed:
        return "-"
    if word in (LEAVING, NodeStanding.STARTING, NodeStanding.STUCK):
        return word
    if word == NodeStanding.FREE:
        return NOW
    if free_at is not None and free_at > now:
        return ""
    if word == NodeStanding.WAITING:
        return word
    return NOW if free_at is not None else "no date" if undated else NEVER
