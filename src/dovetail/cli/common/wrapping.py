"""Fits lines and tables to a terminal: they break between words, and tables lose columns that matter less."""

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Final

import click

_GAP: Final = 3  # columns between cells
_STYLED: Final = re.compile(r"((?:\x1b\[[0-9;]*m)+)(.*)(\x1b\[0m)", re.DOTALL)


def terminal_width() -> int | None:
    """The columns of the terminal; None: the output is a file or a pipe, where lines stay whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def broken_line(line: str, width: int) -> list[str]:
    """The line, broken between words. One with a command or value to copy stays whole."""
    text = click.unstyle(line)
    if len(text) <= width or "→" in text:
        return [line]
    indent = min(len(text) - len(text.lstrip()) + 2, width // 2)
    lines, used = [""], 0
    for word in re.split(r"(?<=\S)(?= )", line):  # each but the first begins with its spaces
        if used and used + len(click.unstyle(word)) > width:
            lines.append(" " * indent + word.lstrip())
            used = indent + len(click.unstyle(word.lstrip()))
        else:
            lines[-1] += word
            used += len(click.unstyle(word))
    return lines


def fitted_cells(rows: Sequence[Sequence[str]], width: int, spare: Collection[str]) -> list[list[list[str]]]:
    """The lines of each cell. `spare`: headings of columns that go if there is no room, the last one first."""
    remaining = [list(row) for row in rows]
    for heading in reversed([*spare]):
        if _total(_least(remaining)) > width and heading in remaining[0]:
            place = remaining[0].index(heading)
            remaining = [row[:place] + row[place + 1 :] for row in remaining]
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in zip(*remaining, strict=True)]
    least = _least(remaining)
    while _total(widths) > width and widths != least:
        place = max((place for place in range(len(widths)) if widths[place] > least[place]), key=widths.__getitem__)
        widths[place] -= 1
    if _total(widths) > width:  # broken cells would not help
        return [[[cell] for cell in row] for row in remaining]
    return [[_broken_cell(cell, room) for cell, room in zip(row, widths, strict=True)] for row in remaining]


def _least(rows: Sequence[Sequence[str]]) -> list[int]:
    """The longest word of each column."""
    return [
        max(len(word) for cell in column for word in click.unstyle(cell).split() or [""])
        for column in zip(*rows, strict=True)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _broken_cell(cell: str, width: int) -> list[str]:
    if len(click.unstyle(cell)) <= width:
        return [cell]
    styled = _STYLED.fullmatch(cell)
    before, text, after = styled.groups() if styled else ("", click.unstyle(cell), "")
    lines = textwrap.wrap(click.unstyle(text), max(1, width), break_long_words=False, break_on_hyphens=False)
    return [f"{before}{line}{after}" for line in lines]


def joined_rows(cells: Sequence[Sequence[Sequence[str]]], indent: str) -> list[list[str]]:
    """The lines of each row, with columns padded to their widest line."""
    columns = zip(*cells, strict=True)
    widths = [max(len(click.unstyle(line)) for cell in column for line in cell) for column in columns]
    return [
        [(indent + (" " * _GAP).join(map(_padded, line, widths))).rstrip() for line in zip_longest(*row, fillvalue="")]
        for row in cells
    ]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - len(click.unstyle(text)))
