"""Says on standard error how far long work has come."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SILENT_SECONDS: Final = 2.0
_ON_TERMINAL, _IN_LOG = 0.2, 10.0  # seconds between two lines


@contextmanager
def counting(what: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that takes how much is done, and of how much. It is silent for two seconds.

    A terminal shows one line that changes; a log gets a line every ten seconds.
    """
    terminal = sys.stderr.isatty()
    next_at = clock() + SILENT_SECONDS
    shown = False

    def tick(done: int, total: int) -> None:
        nonlocal next_at, shown
        now = clock()
        if now < next_at or done >= total:
            return
        next_at = now + (_ON_TERMINAL if terminal else _IN_LOG)
        shown = True
        text = f"{what}: {done:,} of {total:,} files"
        sys.stderr.write(f"\r{text} …" if terminal else f"{text}\n")
        sys.stderr.flush()

    try:
        yield tick
    finally:
        if shown and terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
