"""Runs a program on a terminal of its own, as a person would see it."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

TOP: Final = ("-m", "dovetail", "top")
HIDDEN, WHOLE_SCREEN, GIVEN_BACK, CURSOR = "\x1b[?25l", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """The program on a pseudo-terminal of so many lines and columns."""

    def __init__(self, command: Sequence[str], size: tuple[int, int]) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, size)
        self.before = termios.tcgetattr(self._theirs)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=environment | {"TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509  (no thread has been started yet)
        )
        self.seen = ""
        self._looked = 0  # up to here
        self._drawn = threading.Condition()
        # All the time, lest the program waits for its reader while the test waits for the program.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        ended = False
        while not ended:
            ended = self.process.poll() is not None  # what it has drawn before is still to be read
            while select.select([self._ours], [], [], 0 if ended else 0.1)[0]:
                text = os.read(self._ours, 65536).decode(errors="replace")
                with self._drawn:
                    self.seen += text
                    self._drawn.notify_all()

    def until(self, text: str, seconds: float = 60.0) -> None:
        """Wait until this has been drawn after what was waited for before."""
        with self._drawn:
            drawn = self._drawn.wait_for(lambda: text in self.seen[self._looked :], seconds)
            assert drawn, f"{text!r} not drawn, but {self.seen[-3000:]!r}"
            self._looked = len(self.seen)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        termios.tcsetwinsize(self._theirs, (lines, columns))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        """The exit code, when all is read that is drawn till then."""
        code = self.process.wait(60)
        self._reader.join()
        return code

    @property
    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        os.close(self._ours)
        os.close(self._theirs)


def heed_interrupts() -> None:
    """Undo what a shell does to background jobs: they ignore Ctrl-C, and so does all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def terminal(*command: str, size: tuple[int, int] = (24, 80)) -> Iterator[Terminal]:
    made = Terminal(command, size)
    try:
        yield made
    finally:
        made.close()
