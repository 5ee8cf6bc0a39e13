"""Shows the details of one node: every verdict, its pods, its future and history, and commands to type."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

import click

from dovetail.cli.common.output import Times, count, sections
from dovetail.cli.text.explain import answer_lines, badge_lines, explanation_lines
from dovetail.cli.top.rows import free_words
from dovetail.model.decider import DOVETAIL
from dovetail.model.refs import Ref
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.values.foreign_text import plain
from dovetail.views.board.details import NodeDetails
from dovetail.views.board.rows import NodeRow, RowEvent
from dovetail.views.explain.standings import NEVER
from dovetail.views.explain.verdicts import Explanation
from dovetail.views.forecast.data import ForecastEventType

_EVENTS: Final = {
    ForecastEventType.EXPIRES: "expires",
    ForecastEventType.GRACEFULLY_EXPIRES: "expires gracefully",
    ForecastEventType.DISRUPTS: "may be disrupted",
    ForecastEventType.POD_EVICTED: "evicted",
    ForecastEventType.POD_DELETED: "deleted by force",
    ForecastEventType.DEADLINE: "the deadline of its drain",
    ForecastEventType.FORCED: "removed by force",
}


_FREE: Final = {
    NEVER: "not before somebody acts",
    "no date": "when others have changed; nobody knows when",
}


def details_lines(details: NodeDetails, row: NodeRow, times: Times) -> list[str]:
    """All details, the most important first."""
    bodies = {
        "Ahead": [_happens(list(alike), times) for _, alike in groupby(row.events, key=_alike)],
        "Rules": _verdicts(details, times),
        "History": [
            f"{times.full(step.at)}  {plain(str(step.what))}  {times.localised(plain(step.message))}".rstrip()
            for step in details.history
        ],
        "Commands": [plain(command) for command in details.commands],
    }
    return [*_facts(details, row, times), *sections(bodies)]


def _facts(details: NodeDetails, row: NodeRow, times: Times) -> Iterator[str]:
    node = details.node
    machine = " ".join(plain(text) for text in (row.type, row.capacity, row.zone) if text)
    claim = f"NodeClaim {plain(row.claim)}" if row.claim else "no NodeClaim"
    pool = f"NodePool {plain(row.pool)}" if row.pool else "no NodePool"
    yield click.style(plain(row.name), bold=True) + f"  {claim}, {pool}" + (f", {machine}" if machine else "")
    yield f"{node.state} {MEANING[NodeState(node.state)]}, {count(node.pods, 'pod')}"
    yield from badge_lines(node, times)
    if node.state not in IN_DISRUPTION:
        word = free_words(row, int(times.now.timestamp()))
        meaning = _FREE.get(word, "")
        yield f"free:     {word or times.full(node.free_at)}{meaning and f': {meaning}'}"
    instants = {
        "expires:  ": node.expires_at,
        "gracefully: ": node.gracefully_expires_at,
        "forced by: ": node.deadline,
    }
    for word, at in instants.items():
        if at is not None:
            yield f"{word}{times.full(at)}"
    if row.stuck is not None or row.waiting is not None:
        yield from answer_lines(node, times)
    elif details.left_alone:
        yield f"stays:    {times.localised(plain(str(details.left_alone)))}"


def _alike(event: RowEvent) -> tuple[int, str, bool, Ref | None]:
    """Evictions at one instant are one line: every drain begins with them."""
    at, type_, ref, certain = event
    return at, type_, certain, None if type_ == ForecastEventType.POD_EVICTED else ref


def _happens(events: list[RowEvent], times: Times) -> str:
    at, type_, ref, certain = events[0]
    when = "now" if at == 0 else times.full(datetime.fromtimestamp(at, UTC))
    whose = f"{plain(str(ref))}: " if ref.kind == "Pod" and ref.name else ""
    more = f", and {len(events) - 1} more" if len(events) > 1 else ""
    return f"{' ' if certain else '~'} {when}  {whose}{_EVENTS[ForecastEventType(type_)]}{more}"


def _verdicts(details: NodeDetails, times: Times) -> list[str]:
    """As `explain -v` shows them, without the table of nodes."""
    explanation = Explanation(
        decider=DOVETAIL,
        at=details.at,
        pods=details.pods,
        nodes=(details.node,),
        nodepools=(),
        problems=details.problems,
    )
    lines = explanation_lines(explanation, times, verbose=True, quiet=False)
    return lines[lines.index(click.style(plain(details.node.name), bold=True)) + 1 :]
