"""How does text from objects fit into columns of a terminal, in which some characters take two cells, some none?"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from rich.cells import cell_len, set_cell_size

from dovetail.values.foreign_text import plain


def cut(text: str, width: int) -> str:
    """Harmless, and no wider than this."""
    text = plain(text)
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(0, width - 1))}…"


def fit(text: str, width: int) -> str:
    """Harmless, and just as wide as this."""
    return set_cell_size(cut(text, width), width)


def longest(heading: str, texts: Iterable[str]) -> int:
    return max([len(heading), *(cell_len(plain(text)) for text in texts)])


def count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def instant(seconds: int) -> datetime:
    """The board's instants are whole seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def clock(at: datetime, now: datetime, zone: tzinfo) -> str:
    """The hour within a day, else the date too."""
    return f"{at.astimezone(zone):{'%H:%M' if at - now < timedelta(hours=24) else '%m-%d %H:%M'}}"
