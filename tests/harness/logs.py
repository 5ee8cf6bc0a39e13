"""Logging as it was before a command ran in this process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_restored() -> Iterator[None]:
    """Some commands silence the log of the package, which would outlive them in the process of the tests."""
    log = logging.getLogger("dovetail")
    propagate, handlers = log.propagate, log.handlers[:]
    try:
        yield
    finally:
        log.propagate, log.handlers[:] = propagate, handlers
