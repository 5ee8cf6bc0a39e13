"""The view of a user, and how keys change it."""

from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.cli.top.rows import DAY, Order

_ALIKE: Final = {"k": "up", "j": "down", " ": "page-down", "b": "page-up", "G": "end"}
_STEPS: Final = {"up": -1, "down": 1, "home": -(2**31), "end": 2**31}
_LONGEST_FILTER: Final = 200


class ViewState(msgspec.Struct, frozen=True, kw_only=True):
    """What a user looks at."""

    ahead: int = DAY
    """The length of the bars, in seconds."""
    order: Order = Order.PRESSING
    grouped: bool = True
    filter: str = ""
    typed: str | None = None
    """The filter while it is typed, else None."""
    selected: str = ""
    """The key of a row; if that is not shown, the first row is selected."""
    details: bool = False
    scrolled: int = 0
    """Lines, in the details."""
    ended: bool = False

    @property
    def filter_now(self) -> str:
        return self.filter if self.typed is None else self.typed


class KeyTargets(msgspec.Struct, frozen=True):
    """How far keys can move on the screen as it was drawn."""

    rows: Sequence[str] = ()
    """Keys of the rows, in order."""
    page: int = 1
    """Lines of a page."""
    deepest: int = 0
    """The most lines that the details can be scrolled."""


def press(view: ViewState, key: str, reach: KeyTargets) -> ViewState:
    """The view after this key."""
    change = msgspec.structs.replace
    if view.typed is not None:
        return _typed(view, view.typed, key)
    key = _ALIKE.get(key, key)
    match key:
        case "q":
            return change(view, ended=True)
        case "page-up" | "page-down" if view.details:
            lines = reach.page if key == "page-down" else -reach.page
            return change(view, scrolled=max(0, min(reach.deepest, view.scrolled + lines)))
        case "page-up" | "page-down":
            return _moved(view, reach.page if key == "page-down" else -reach.page, reach.rows)
        case "up" | "down" | "home" | "end":
            return _moved(view, _STEPS[key], reach.rows)
        case "enter":
            return change(view, details=not view.details and bool(reach.rows), scrolled=0)
        case "escape":
            return change(view, details=False, scrolled=0) if view.details else change(view, filter="")
        case "/":
            return change(view, typed=view.filter)
        case "s":
            orders = list(Order)
            return change(view, order=orders[(orders.index(view.order) + 1) % len(orders)])
        case "g":
            return change(view, grouped=not view.grouped)
        case "1" | "7":
            return change(view, ahead=int(key) * DAY)
    return view


def _moved(view: ViewState, by: int, rows: Sequence[str]) -> ViewState:
    if not rows:
        return view
    index = rows.index(view.selected) if view.selected in rows else 0
    selected = rows[max(0, min(len(rows) - 1, index + by))]
    return msgspec.structs.replace(view, selected=selected, scrolled=0 if selected != view.selected else view.scrolled)


def _typed(view: ViewState, typed: str, key: str) -> ViewState:
    change = msgspec.structs.replace
    match key:
        case "enter":
            return change(view, filter=typed.strip(), typed=None)
        case "escape":
            return change(view, typed=None)
        case "backspace":
            return change(view, typed=typed[:-1])
        case "clear":
            return change(view, typed="")
    return change(view, typed=(typed + key)[:_LONGEST_FILTER]) if len(key) == 1 else view
