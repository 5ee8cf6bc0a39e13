"""When does an answer change within a span of time? Stepped from `until` to `until`, so that the rules answer alone."""

from collections.abc import Iterator
from datetime import datetime

from dovetail.values.schedule.instants import Instants

# A window that opens every other minute would give thousands a week, for every pod.
MAX_TURNS = 100


def turns(when: Instants, at: datetime, end: datetime) -> Iterator[datetime]:
    """The instants later than `at`, and not later than `end`, at which the set begins or ends; the first hundred."""
    for _ in range(MAX_TURNS):
        turn = when.until(at)
        if turn is None or turn > end:
            return
        yield turn
        at = turn
