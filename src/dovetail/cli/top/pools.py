"""Draws the pools: a line for each, with what its budgets allow and when that changes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.text import Text

from dovetail.cli.common.output import Times
from dovetail.cli.top.fitting import fit, instant
from dovetail.values.foreign_text import plain
from dovetail.views.board.rows import BudgetTimeline, PoolRow

_HEADINGS: Final = {"Underutilized": "Underutil."}
Slots: TypeAlias = tuple[int, int, int, int, int]


def pool_lines(
    pools: Sequence[PoolRow], nodes: Mapping[str, int], times: Times, *, width: int, most: int
) -> list[Text]:
    """Slots in use, allowed/limit for each reason, and the next change. `nodes`: how many are shown of each pool."""
    if not pools:
        return []
    reasons = list(dict.fromkeys(lane.reason for pool in pools for lane in pool.lanes))
    used = [pool for pool in pools if nodes.get(pool.name)] or pools
    shown = used if len(used) <= most else used[: max(0, most - 1)]
    rows = [["POOL", "NODES", "USED", *(_HEADINGS.get(reason, reason) for reason in reasons), "NEXT CHANGE"]]
    rows += [_cells(pool, nodes.get(pool.name, 0), reasons, times) for pool in shown]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], max(8, width // 5))
    heading, *lines = [
        Text("  ".join(fit(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()) for row in rows
    ]
    heading.stylize("bold")
    left_out, empty = len(used) - len(shown), len(pools) - len(used)
    more = [f"{left_out} more pools"] if left_out else []
    more += [f"{empty} pools without nodes"] if empty else []
    return [heading, *lines, *([Text(f"… and {', '.join(more)}", style="dim")] if more else [])]


def _cells(pool: PoolRow, nodes: int, reasons: Sequence[str], times: Times) -> list[str]:
    """Nodes that are still starting do not count for budgets: `3+1`."""
    holding = {lane.reason: _slots(lane, times.now) for lane in pool.lanes}
    forceful = {lane.reason for lane in pool.lanes if lane.forceful}
    used = max((slots[2] for slots in holding.values()), default=0)
    left = [
        "forceful" if reason in forceful else _left(holding[reason]) if reason in holding else "-" for reason in reasons
    ]
    starting = f"+{nodes - pool.nodes}" if nodes > pool.nodes else ""
    return [plain(pool.name), f"{pool.nodes}{starting}", str(used), *left, _next_change(pool, times)]


def _slots(lane: BudgetTimeline, now: datetime) -> Slots:
    return next((span for span in reversed(lane.spans) if instant(span[0]) <= now), lane.spans[0])


def _left(slots: Slots) -> str:
    return f"{slots[3]}/{slots[1]}"


def _next_change(pool: PoolRow, times: Times) -> str:
    """`17:00 Drifted, Underutilized 1/2`."""
    coming = [
        (span, lane.reason)
        for lane in pool.lanes
        if not lane.forceful  # budgets do not apply (R19)
        for span in lane.spans
        if instant(span[0]) > times.now and _left(span) != _left(_slots(lane, times.now))
    ]
    if not coming:
        return "-"
    first = min(span[0] for span, _ in coming)
    alike: dict[str, list[str]] = defaultdict(list)
    for span, reason in coming:
        if span[0] == first:
            alike[_left(span)].append(reason)
    changes = "; ".join(f"{', '.join(reasons)} {left}" for left, reasons in alike.items())
    return f"{times.clock(instant(first))} {changes}"
