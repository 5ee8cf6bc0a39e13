"""Draws the screen of `dovetail top` from the board, the view and the size of the terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from dovetail.cli.common.output import Times, count, missing_lines
from dovetail.cli.text.forecast_bars import LEGEND
from dovetail.cli.top.details import details_lines
from dovetail.cli.top.fitting import cut
from dovetail.cli.top.keys import KeyTargets, ViewState
from dovetail.cli.top.nodes import ENDLESS, NodeTable
from dovetail.cli.top.pools import pool_lines
from dovetail.cli.top.rows import Figures, figures, grouped, matching, ordered, unknown_state
from dovetail.model.finding import Severity
from dovetail.values.foreign_text import plain
from dovetail.views.board.details import NodeDetails
from dovetail.views.board.rows import PROBLEMS_SHOWN, Board, NodeRow
from dovetail.views.explain.standings import LEAVING, NodeStanding, counted
from dovetail.views.leading import NO_CONTROLLER

TALL: Final = 36  # lines: room for pools and details together
_LEAST: Final = 4  # lines of nodes, below which none is spent on how many are left out
ROOMY: Final = 90  # columns: room for how many pods are forced
_NOTHING: Final = Board(at=0, end=0, assumption="", rows=(), pools=(), herds=(), problems=())
_STYLES: Final[dict[str, str]] = {NodeStanding.STUCK: "red", NodeStanding.FREE: "green", LEAVING: "yellow"}
_FOLDING: Final = Console(width=80, color_system=None)


class ScreenContent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that the screen shows."""

    title: str
    now: datetime
    zone: tzinfo = UTC
    stands_still: bool = False
    board: Board | None = None
    """None: not made yet."""
    details: NodeDetails | None = None
    """Of the selected node; None: not there yet."""
    status: Sequence[Text] = ()
    """Lines below the title."""
    happened: Sequence[Text] = ()
    """Lines at the bottom, the latest first."""


class DrawnScreen(msgspec.Struct, frozen=True, eq=False):
    """A screen with exactly the lines and columns of the terminal, and how far keys can move on it."""

    lines: list[Text]
    reach: KeyTargets
    selected: str
    """The key of the selected row; empty: there are no rows."""


def draw(scene: ScreenContent, view: ViewState, width: int, height: int) -> DrawnScreen:
    """The screen."""
    picture = _ScreenLayout(scene, view, width)
    below = [Text(), *scene.happened[: height // 4]] if scene.happened else []
    room = height - 1 - len(below)
    body, reach = picture.body(room)
    lines = [*body[:room], *(Text() for _ in range(room - len(body))), *below, picture.keys_line()]
    for line in lines:
        line.truncate(max(0, width), overflow="crop")
    selected = picture.selected
    return DrawnScreen(lines, reach, "" if selected is None else selected.key)


def printed(
    scene: ScreenContent, view: ViewState, width: int | None, details: Mapping[str, NodeDetails] | None = None
) -> list[Text]:
    """The same for a pipe or file: all rows, with these details by the keys of rows. `width` None: nothing is cut."""
    picture = _ScreenLayout(scene, view, width)
    pools = picture.pools(most=len(picture.board.pools))
    lines = [*picture.head(), Text(), *pools, *([Text()] if pools else []), *picture.table(picture.entries())]
    lines += [Text(LEGEND)] if picture.rows else []
    if width is not None:
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    for row in picture.rows:
        if details and row.key in details:
            lines += [Text(), *map(Text.from_ansi, details_lines(details[row.key], row, picture.times))]
    return lines


class _ScreenLayout:
    def __init__(self, scene: ScreenContent, view: ViewState, width: int | None) -> None:
        self.scene = scene
        self.view = view
        self.whole = width is None
        self.width = ENDLESS if width is None else width
        self.now = int(scene.now.timestamp())
        self.times = Times(scene.now, scene.zone)
        self.board = scene.board or _NOTHING
        matching_rows = ordered(matching(self.board.rows, view.filter_now, self.now), view.order, self.now)
        self.groups = grouped(matching_rows) if view.grouped else [("", matching_rows)]
        self.rows = [row for _, members in self.groups for row in members]
        first = self.rows[0] if self.rows else None
        self.selected = next((row for row in self.rows if row.key == view.selected), first)

    def body(self, height: int) -> tuple[list[Text], KeyTargets]:
        """All lines but the last, and how far keys can move."""
        lines = self.head()
        if not self.view.details or height >= TALL:
            pools = self.pools(most=max(2, (height - len(lines)) // 4))
            lines += [*pools, *([Text()] if pools else [])]
        room = max(2, height - len(lines))
        keys = [row.key for row in self.rows]
        if self.selected is None or not self.view.details:
            return [*lines, *self._window(room)], KeyTargets(keys, max(1, room - 2))
        window = self._window(max(4, room // 3))
        details = self._details(self.selected)
        page = max(1, room - len(window) - 1)
        deepest = max(0, len(details) - page)
        scrolled = min(self.view.scrolled, deepest)
        lines += [*window, self._divider(deepest - scrolled), *details[scrolled : scrolled + page]]
        return lines, KeyTargets(keys, max(1, page - 1), deepest)

    # -- above ---------------------------------------------------------------------------------------------------------

    def head(self) -> list[Text]:
        scene = self.scene
        clock = f"{scene.now.astimezone(scene.zone):%a %Y-%m-%d %H:%M:%S %Z}"
        if scene.stands_still and not scene.status:
            clock += ", time stands still"
        title = cut(scene.title, max(8, self.width - len(clock) - 16))
        name = "" if scene.status else "dovetail top  "
        lines = [Text.assemble((name, "bold cyan"), f"{title}  ", (clock, "bold"))]
        lines += scene.status
        if scene.board is None:
            return [*lines, Text("looking ahead …", style="dim")]
        lines.append(Text(cut(plain(self.board.decider.sentence), self.width), style="dim"))
        for line in missing_lines(self.board.problems, self.times):
            lines += Text.from_ansi(line).wrap(_FOLDING, max(1, self.width))
        numbers = figures(self.board.rows, self.now)
        pending = [Text(str(self.board.pending))] if self.board.pending else []
        return [*lines, self._standings(numbers), self._figures(numbers), *pending, *self._herds(), *self._problems()]

    def _standings(self, numbers: Figures) -> Text:
        """Each node once, as in the first line of `explain`."""
        total = sum(numbers.standings.values())
        others = len(self.board.rows) - total
        line = Text(f"{count(total, 'node')}{f' + {others} of no NodePool' if others else ''}")
        if self.view.filter_now:
            line.append(f", {len(self.rows)} match {plain(self.view.filter_now)}", style="cyan")
        for place, (standing, text) in enumerate(counted(numbers.standings).items()):
            line.append(", " if place else ": ").append(text, style=_STYLES.get(standing, ""))
        return line

    def _figures(self, numbers: Figures) -> Text:
        pods = f" ({count(numbers.pods_forced, 'pod')})" if numbers.pods_forced and self.width >= ROOMY else ""
        return Text.assemble(
            f"free: {numbers.free} now, {numbers.become_free} within 24h, {numbers.never} never.  Next 24h: ",
            (f"{numbers.forced} end{_s(numbers.forced)} by force{pods}", "red" if numbers.forced else ""),
            f", {numbers.expire} expire{_s(numbers.expire)}",
        )

    def _herds(self) -> list[Text]:
        """The next herd within the span."""
        end = self.now + self.view.ahead
        herds = [herd for herd in self.board.herds if herd.end >= self.now and herd.start <= end]
        return [Text(self.times.localised(plain(herd.message)), style="yellow") for herd in herds[:1]]

    def _problems(self) -> list[Text]:
        """The number of problems, and the worst of them. To know of is no problem."""
        problems = [
            problem
            for problem in self.board.problems
            if problem.rule != NO_CONTROLLER and problem.severity is not Severity.INFO
        ]
        if not problems:
            return []
        first = min(problems, key=lambda problem: list(Severity).index(problem.severity))
        number = f"{len(problems)}+ problems" if len(problems) >= PROBLEMS_SHOWN else count(len(problems), "problem")
        message = self.times.localised(plain(str(first.message)))
        style = "red" if first.severity is Severity.ERROR else "yellow"
        return [Text.assemble((number, style), f", such as {plain(str(first.object))}: {message}")]

    def pools(self, *, most: int) -> list[Text]:
        nodes = Counter(row.pool for row in self.board.rows)
        return pool_lines(self.board.pools, nodes, self.times, width=self.width, most=most)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[NodeRow | Text]:
        """Rows, and a heading before each group."""
        sizes = Counter(row.pool for row in self.board.rows)
        for pool, members in self.groups:
            if self.view.grouped:
                of = "" if len(members) == sizes[pool] else f" of {sizes[pool]}"
                size = f"  {len(members)}{of} node{'' if sizes[pool] == 1 else 's'}"
                yield Text.assemble((plain(pool) if pool else "no NodePool", "bold"), (size, "dim"))
            yield from members

    def table(self, entries: Iterable[NodeRow | Text], selected: NodeRow | None = None) -> Iterator[Text]:
        if not self.rows:
            if self.scene.board is not None:
                unknown = unknown_state(self.view.filter_now)
                none = f"No node matches: {unknown}." if unknown else "No node matches the filter."
                yield Text(none if self.board.rows else "There are no nodes.", style="dim")
            return
        table = NodeTable(self.rows, self.view, self.times, None if self.whole else self.width)
        yield table.heading()
        for entry in entries:
            yield entry if isinstance(entry, Text) else table.line(entry, selected=entry is selected)

    def _window(self, room: int) -> list[Text]:
        """The lines of the table around the selected row that fit."""
        entries = list(self.entries())
        place = next((number for number, entry in enumerate(entries) if entry is self.selected), 0)
        space = room - 1
        if len(entries) <= space or space < _LEAST:
            first = max(0, min(place - room // 2, len(entries) - space))
            return list(self.table(entries[first : first + space], self.selected))
        first = max(0, min(place - room // 2, len(entries) - space + 1))
        shown = entries[first : first + space - 1]
        more = len(self.rows) - sum(isinstance(entry, NodeRow) for entry in shown)
        return [*self.table(shown, self.selected), Text(f"… and {count(more, 'more node')}: ↑↓", style="dim")]

    # -- below ---------------------------------------------------------------------------------------------------------

    def _details(self, row: NodeRow) -> list[Text]:
        details = self.scene.details
        if details is None or details.key != row.key:
            return [Text("checking every rule …", style="dim")]
        lines: list[Text] = []
        for text in details_lines(details, row, self.times):
            lines += Text.from_ansi(text).wrap(_FOLDING, max(1, self.width)) if text else [Text()]
        return lines

    def _divider(self, more: int) -> Text:
        hint = f" {count(more, 'more line')}: PgDn " if more else ""
        return Text("─" * max(0, self.width - len(hint) - 2) + hint + "──", style="dim")

    def keys_line(self) -> Text:
        view = self.view
        if view.typed is not None:
            return Text.assemble(("/", "bold"), plain(view.typed), ("▏", "blink"), ("  ⏎ keep  esc drop", "dim"))
        sort = f"/ filter  s sort: {view.order}"
        if view.details:
            return Text(f"↑↓ move  ⏎ close  PgUp/PgDn scroll  {sort}  q quit", style="dim")
        group = "g ungroup" if view.grouped else "g group"
        return Text(f"↑↓ move  ⏎ details  {sort}  {group}  1/7 days  q quit", style="dim")


def _s(number: int) -> str:
    """The ending of a verb."""
    return "s" if number == 1 else ""
