"""Ctrl-C as one line and the exit code 130. Imports next to nothing, so that it counts from the first moment."""

import os
import signal
import sys

INTERRUPTED = 130  # the exit code after Ctrl-C
_SHOW_CURSOR = "\x1b[?25h"


def end_at_once() -> None:
    """From now on, Ctrl-C ends the process with one line, whatever runs.

    An exception in the middle of imports leaves half-made modules, and in the middle of a simulation hundreds of
    coroutines, each of which complains.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # shells ignore it for what runs in the background
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt, as in other programs."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""  # a progress bar hides it
    os.write(2, f"{cursor}dovetail: interrupted\n".encode())
    os._exit(INTERRUPTED)
