"""Filters, sorts and counts the rows of the board. The filter is the same as the dashboard's."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.cli.top.fitting import instant
from dovetail.rules.states import IN_DISRUPTION
from dovetail.views.board.rows import BlockerEntry, NodeRow, RowSpan
from dovetail.views.explain.badges import BadgeKind
from dovetail.views.explain.standings import NEVER, NOW, free_word
from dovetail.views.forecast.data import ForecastEventType, SpanKind

DAY: Final = 24 * 60 * 60
KINDS: Final = tuple(SpanKind)
FORCEFUL: Final = (ForecastEventType.FORCED, ForecastEventType.DEADLINE)
EXPIRING: Final = (ForecastEventType.EXPIRES, ForecastEventType.GRACEFULLY_EXPIRES)
_LAST: Final = 2**62
_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')  # a quoted value may contain spaces


class Order(StrEnum):
    """How rows are sorted."""

    PRESSING = "pressing"
    FREE = "free"
    EXPIRY = "expiry"
    PODS = "pods"
    NAME = "name"


# -- one row -----------------------------------------------------------------------------------------------------------


def span_at(row: NodeRow, now: int) -> RowSpan:
    """The span at this instant."""
    return next((span for span in reversed(row.spans) if span[0] <= now), row.spans[0])


def kind_at(row: NodeRow, now: int) -> SpanKind:
    return KINDS[span_at(row, now)[1]]


def causes_at(row: NodeRow, now: int) -> list[BlockerEntry]:
    """What blocks the node now, or what its drain waits for; the longest first."""
    later = [span for span in row.spans if span[0] > now]
    ends = {
        row.causes[index]: next((span[0] for span in later if index not in span[2:]), _LAST)
        for index in span_at(row, now)[2:]
    }
    return sorted(ends, key=lambda cause: (-ends[cause], cause))


def is_leaving(row: NodeRow) -> bool:
    return row.state in IN_DISRUPTION


def free_at(row: NodeRow, now: int) -> int | None:
    """None: never."""
    if kind_at(row, now) is SpanKind.FREE:
        return now
    return next((span[0] for span in row.spans if span[0] > now and KINDS[span[1]] is SpanKind.FREE), row.free or None)


def free_words(row: NodeRow, now: int) -> str:
    """As `explain` says it; empty: at an instant."""
    at = free_at(row, now)
    instants = (None if at is None else instant(at)), instant(now)
    return free_word(row.standing, *instants, undated=row.undated, managed=row.managed)


def has_badge(row: NodeRow, kind: BadgeKind) -> bool:
    return any(badge_kind == kind for badge_kind, *_ in row.badges)


def becomes_free(row: NodeRow, now: int) -> bool:
    """Whether the node becomes free within a day."""
    return kind_at(row, now) is not SpanKind.FREE and any(
        now < span[0] <= now + DAY and KINDS[span[1]] is SpanKind.FREE for span in row.spans
    )


def comes(row: NodeRow, types: Sequence[ForecastEventType], now: int, ahead: int = _LAST) -> int | None:
    """The first of these events within so many seconds."""
    instants = (at or now for at, type_, _, _ in row.events if type_ in types)
    return min((at for at in instants if now <= at <= now + ahead), default=None)


def ends_by_force(row: NodeRow, now: int) -> bool:
    """Whether the node is removed by force within a day. A deadline does nothing to a node that is gone before it."""
    return any(
        now <= (at or now) <= now + DAY
        for at, type_, _, _ in row.events
        if type_ == ForecastEventType.FORCED
        or (type_ == ForecastEventType.DEADLINE and kind_at(row, (at or now) - 1) is not SpanKind.GONE)
    )


# -- filter ------------------------------------------------------------------------------------------------------------

_IS: Final[dict[str, Callable[[NodeRow, int], bool]]] = {
    "free": lambda row, now: free_words(row, now) == NOW,
    "blocked": lambda row, now: kind_at(row, now) is SpanKind.BLOCKED,
    "draining": lambda row, now: kind_at(row, now) is SpanKind.DRAINING or is_leaving(row),
    "stuck": lambda row, _: row.stuck is not None,
    "waiting": lambda row, _: row.waiting is not None,
    "never": lambda row, now: free_words(row, now) == NEVER,
    "notready": lambda row, _: has_badge(row, BadgeKind.NOT_READY),
    "cordoned": lambda row, _: has_badge(row, BadgeKind.CORDONED),
    "starting": lambda row, _: has_badge(row, BadgeKind.STARTING),
    "wanted": lambda row, _: bool(row.wanted),
    "free-soon": becomes_free,
    "expiring": lambda row, now: comes(row, EXPIRING, now, DAY) is not None,
    "forced": ends_by_force,
}
_FIELDS: Final[dict[str, Callable[[NodeRow, str, int], bool]]] = {
    "pool": lambda row, value, _: row.pool.lower() == value,
    "state": lambda row, value, _: row.state.lower() == value,
    "zone": lambda row, value, _: value in row.zone.lower(),
    "type": lambda row, value, _: value in row.type.lower(),
    "reason": lambda row, value, _: value in map(str.lower, row.wanted),
    "rule": lambda row, value, now: any(rule == value for rule, *_ in causes_at(row, now)),
    "ns": lambda row, value, _: any(ref.namespace.lower() == value for _, ref, *_ in row.causes),
    "by": lambda row, value, now: any(workload.lower() == value for _, _, workload, _ in causes_at(row, now)),
    "is": lambda row, value, now: value in _IS and _IS[value](row, now),
}


def matching(rows: Iterable[NodeRow], filter_: str, now: int) -> list[NodeRow]:
    """Rows that match every word of the filter: `is:stuck`, `pool:general`, or a part of any name."""
    words = [word.replace('"', "") for word in _WORD.findall(filter_.lower())]
    return [row for row in rows if all(_holds(row, word, now) for word in words)]


def unknown_state(filter_: str) -> str | None:
    """What to say of a word of the filter such as `is:foo`, which no node can match."""
    for word in map(str.lower, _WORD.findall(filter_)):
        field, _, value = word.replace('"', "").partition(":")
        if field == "is" and value and value not in _IS:
            return f"the filter knows no is:{value}, only {', '.join(f'is:{word}' for word in _IS)}"
    return None


def _holds(row: NodeRow, word: str, now: int) -> bool:
    field, _, value = word.partition(":")
    if field in _FIELDS and value:
        return _FIELDS[field](row, value, now)
    names = (row.name, row.pool, row.claim, row.state, row.type, row.capacity, row.zone, *row.wanted)
    return any(word in text.lower() for text in (*names, *(str(part) for cause in row.causes for part in cause[:3])))


# -- order -------------------------------------------------------------------------------------------------------------


def ordered(rows: Iterable[NodeRow], order: Order, now: int) -> list[NodeRow]:
    """Nodes without a NodePool come last."""
    return sorted(rows, key=lambda row: (not row.managed, _rank(row, order, now), row.name, row.key))


def _rank(row: NodeRow, order: Order, now: int) -> tuple[int, int]:
    match order:
        case Order.PRESSING:
            return _pressing(row, now)
        case Order.FREE:
            return int(is_leaving(row)), free_at(row, now) or _LAST
        case Order.EXPIRY:
            return 0, min(filter(None, (row.expires, row.graceful)), default=_LAST)
        case Order.PODS:
            return 0, -row.pods
        case Order.NAME:
            return 0, 0


def _pressing(row: NodeRow, now: int) -> tuple[int, int]:
    """First drains that end by force, then nodes that are stuck, that expire or are forced out later, that are leaving,
    that wait, that never become free by themselves, that are blocked, and last that are free."""
    ends = comes(row, (*FORCEFUL, *EXPIRING), now)
    if ends is not None and is_leaving(row):
        return 0, ends
    if row.stuck is not None:
        return 1, row.stuck[1] or _LAST
    if ends is not None:
        return 2, ends
    if is_leaving(row):
        return 3, row.deadline or _LAST
    if row.waiting is not None:
        return 4, row.waiting[2] or _LAST
    free = free_at(row, now)
    return (5, 0) if free is None else (6, free) if free > now else (7, 0)


def grouped(rows: Sequence[NodeRow]) -> list[tuple[str, list[NodeRow]]]:
    """By pool, in the order of their first rows; rows without a pool come last."""
    groups: dict[str, list[NodeRow]] = {}
    for row in rows:
        groups.setdefault(row.pool, []).append(row)
    return sorted(groups.items(), key=lambda group: not group[0])


# -- counts ------------------------------------------------------------------------------------------------------------


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Each node once by its standing; when nodes are free; and events of the next 24 hours."""

    standings: Mapping[str, int]
    free: int
    never: int
    become_free: int
    expire: int
    forced: int
    pods_forced: int


def figures(rows: Iterable[NodeRow], now: int) -> Figures:
    """Of nodes that a NodePool owns."""
    rows = [row for row in rows if row.managed]
    return Figures(
        standings=Counter(row.standing for row in rows),
        free=sum(free_words(row, now) == NOW for row in rows),
        never=sum(free_words(row, now) == NEVER for row in rows),
        become_free=sum(becomes_free(row, now) for row in rows),
        expire=sum(comes(row, EXPIRING, now, DAY) is not None for row in rows),
        forced=sum(ends_by_force(row, now) for row in rows),
        pods_forced=sum(
            type_ == ForecastEventType.POD_DELETED and now <= (at or now) <= now + DAY
            for row in rows
            for at, type_, _, _ in row.events
        ),
    )
