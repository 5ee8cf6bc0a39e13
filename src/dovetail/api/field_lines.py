"""Finds the line of a field in a YAML text of block style, for annotations in a review."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s"'#{\[-][^:#]*?)\s*:(?:\s|$)""")
_DASHES = re.compile(r"(?:-(?: +|$))+")


class _Node(NamedTuple):
    """A value in the text."""

    line: int
    above: int
    """Everything inside it is indented more."""
    level: int | None
    """The column of its keys, if the first one is in its own line."""
    is_item: bool


def field_line(lines: Sequence[str], start: int, field: str) -> int:
    """The line of the field, from 1, in the object that begins at line `start`; else that of its nearest parent."""
    at = start - 1
    while at < len(lines) - 1 and (not _is_content(lines[at]) or lines[at].startswith("---")):
        at += 1  # separators and comments
    at = min(at, len(lines) - 1)
    indent = _indent(lines[at])
    node = _item(lines[at], at) if _is_item(lines[at]) else _Node(at, indent - 1, indent, is_item=True)
    for match in _STEP.finditer(field):
        key = match[1] if match[1] is not None else match[2]
        is_index = match[1] is None and key.isascii() and key.isdigit()
        child = _child(lines, node, int(key) if is_index else key)
        if child is None:
            break
        node = child
    return node.line + 1


def _child(lines: Sequence[str], node: _Node, wanted: str | int) -> _Node | None:
    """The key or the item of this node."""
    level, count = node.level, -1
    if level is not None and _key(lines[node.line], level) == wanted:
        return _Node(node.line, level, None, is_item=False)
    for at in range(node.line + 1, len(lines)):
        line = lines[at]
        if not _is_content(line):
            continue
        indent, is_item = _indent(line), _is_item(line)
        # The items of a key may stand right below it.
        inside = indent > node.above or (indent == node.above and is_item and not node.is_item)
        if not inside or line.startswith("---"):
            return None
        level = indent if level is None else level
        if indent != level:
            continue
        if isinstance(wanted, int):
            count += is_item
            if is_item and count == wanted:
                return _item(line, at)
        elif _key(line, level) == wanted:
            return _Node(at, level, None, is_item=False)
    return None


def _item(line: str, at: int) -> _Node:
    indent = _indent(line)
    dashes = _DASHES.match(line, indent)
    column = dashes.end() if dashes else indent
    return _Node(at, indent, column if column < len(line) else None, is_item=True)


def _key(line: str, column: int) -> str | None:
    key = _KEY.match(line, column)
    return None if key is None else key[1].strip("\"'")


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _is_item(line: str) -> bool:
    return _DASHES.match(line, _indent(line)) is not None and not line.startswith("---")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
