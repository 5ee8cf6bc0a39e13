"""Reads keys from the terminal, by name."""

import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ESCAPED: Final = re.compile(r"\x1b[\[O]([0-9;]*)([A-Za-z~])|(.)", re.DOTALL)
_NAMES: Final = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page-up",
    "6~": "page-down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
}


@contextmanager
def key_by_key() -> Iterator[None]:
    """The terminal delivers each key at once meanwhile; its settings are restored at the end."""
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)
    try:
        tty.setcbreak(stream)
        yield
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


def keys_in(text: str) -> Iterator[str]:
    """The names of the keys in the text; keys without a name are left out."""
    for match in _ESCAPED.finditer(text):
        arguments, letter, character = match.groups()
        if character is None:
            name = _NAMES.get(f"{arguments}~" if letter == "~" else letter)
        else:
            name = _NAMES.get(character, character if character.isprintable() else None)
        if name is not None:
            yield name
