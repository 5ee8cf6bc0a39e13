"""Fits text into columns of a terminal, in which a character takes no, one or two cells."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

from dovetail.values.foreign_text import plain


def cut(text: str, width: int) -> str:
    """Without control characters, and no wider than this."""
    text = plain(text)
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(0, width - 1))}…"


def fit(text: str, width: int) -> str:
    """Without control characters, and exactly as wide as this."""
    return set_cell_size(cut(text, width), width)


def longest(heading: str, texts: Iterable[str]) -> int:
    return max([len(heading), *(cell_len(plain(text)) for text in texts)])


def instant(seconds: int) -> datetime:
    """The board's instants are whole seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)
