"""The instants at which a set of instants begins or ends within a span of time."""

from collections.abc import Iterator
from datetime import datetime

from dovetail.values.schedule.instants import Instants

# A window that opens every other minute has thousands a week, for every pod.
MAX_TURNS = 100


def turns(when: Instants, at: datetime, end: datetime) -> Iterator[datetime]:
    """The instants later than `at`, and not later than `end`, at which the set begins or ends; the first hundred."""
    for _ in range(MAX_TURNS):
        turn = when.until(at)
        if turn is None or turn > end:
            return
        yield turn
        at = turn
