"""A handle that is held back serves for a socket when there are no others."""

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dovetail.kube.reserve import HandleReserve

LOOPBACK = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))


@contextmanager
def no_handles_left() -> Iterator[None]:
    """The lowest handle that is free is the first one above the limit."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_socket_can_be_had_when_no_handles_are_left_and_gives_its_handle_back() -> None:
    reserve = HandleReserve()
    try:
        with no_handles_left():
            for _ in range(3):
                with reserve.socket(LOOPBACK), pytest.raises(OSError, match="Too many open files") as error:
                    reserve.socket(LOOPBACK)
                assert error.value.errno == errno.EMFILE
                with pytest.raises(OSError, match="Too many open files"):
                    os.open(os.devnull, os.O_RDONLY)  # nobody else gets it
    finally:
        reserve.close()


def test_while_there_are_handles_the_reserve_is_kept() -> None:
    reserve = HandleReserve()
    try:
        sockets = [reserve.socket(LOOPBACK) for _ in range(3)]
        with no_handles_left(), reserve.socket(LOOPBACK):
            pass
        for each in sockets:
            each.close()
    finally:
        reserve.close()


def test_a_closed_reserve_holds_nothing() -> None:
    reserve = HandleReserve()
    last = reserve.socket(LOOPBACK)
    reserve.close()
    last.close()
    with no_handles_left(), pytest.raises(OSError, match="Too many open files"):
        reserve.socket(LOOPBACK)
