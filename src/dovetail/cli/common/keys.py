"""Which keys are pressed in the terminal, by name?"""

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
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
def key_by_key() -> Iterator[Callable[[], str]]:
    """The terminal hands out each key at once, and is given back as it was. Yields a function that does not wait: the
    text typed since it was last asked."""
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)

    def typed() -> str:
        return os.read(stream, 64).decode(errors="ignore") if select.select([stream], [], [], 0)[0] else ""

    try:
        tty.setcbreak(stream)
        yield typed
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


def keys_in(text: str) -> Iterator[str]:
    """The keys that were pressed, by name; those without a name here are left out."""
    for found in _ESCAPED.finditer(text):
        arguments, letter, character = found.groups()
        if character is None:
            name = _NAMES.get(f"{arguments}~" if letter == "~" else letter)
        else:
            name = _NAMES.get(character, character if character.isprintable() else None)
        if name is not None:
            yield name
