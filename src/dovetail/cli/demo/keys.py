"""Which keys were pressed meanwhile? The terminal is given back as it was, whatever happens."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """Asks without waiting: the characters typed since it was last asked."""
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)

    def pressed() -> str:
        if not select.select([stream], [], [], 0)[0]:
            return ""
        text = os.read(stream, 64).decode(errors="ignore")
        return "" if text.startswith("\x1b[") else text  # an arrow key is not Escape

    try:
        tty.setcbreak(stream)
        yield pressed
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
