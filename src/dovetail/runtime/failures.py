"""Handles unexpected errors of the parts of the program.

An unexpected error is a bug, but it must not stop other parts: drains go on while a disruption pass fails. The error is
logged and counted, and the part starts again after a back-off. Tests and simulations raise the error instead.
"""

import logging
from collections import Counter
from random import Random
from typing import Final

from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import root_cause

log = logging.getLogger(__name__)

RESTARTS: Final = Backoff(first_seconds=1.0, cap_seconds=60.0, jitter=0.2)
# A part that has run for this long without an error starts with a short back-off again.
SOUND_SECONDS: Final = 600.0
TOLD_AT_MOST: Final = 1_000


class Failures:
    """Logs and counts unexpected errors by part if they are `tolerated`, and raises them otherwise."""

    def __init__(self, *, tolerated: bool = False, seed: int = 0) -> None:
        self.tolerated = tolerated
        self.counts: Counter[str] = Counter()
        self._chance = Random(seed)
        self._told: set[tuple[str, str]] = set()

    def take(self, part: str, error: Exception, *, doing: str = "") -> None:
        """Log and count an error of this part. Raises it if errors are not tolerated.

        The traceback is logged once for each part and place in the code.
        """
        if not self.tolerated:
            raise error
        self.counts[part] += 1
        cause = root_cause(error)
        where = _raised_at(cause)
        seen_before = (part, where) in self._told
        if len(self._told) < TOLD_AT_MOST:
            self._told.add((part, where))
        about = f"{part} {doing}".rstrip()
        log.error(
            "%s has failed at %s and is tried again: %r", about, where, cause, exc_info=None if seen_before else error
        )

    def restart_seconds(self, failures: int) -> float:
        """The delay before a part starts again after this many failures in a row."""
        return RESTARTS.seconds(failures, self._chance)


def _raised_at(error: BaseException) -> str:
    """The module and line that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
