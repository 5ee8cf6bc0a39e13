"""Keeps a file handle in reserve, so that leader election can connect when the process has none left."""

import errno
import os
import socket
from typing import Any, Final

NO_HANDLES: Final = (errno.EMFILE, errno.ENFILE)


class HandleReserve:
    """Holds a file handle and gives it up for a socket when there is no other.

    Closing that socket refills the reserve, before anybody else can take the handle.
    """

    def __init__(self) -> None:
        self._handle: int | None = None
        self._closed = False
        self.fill()

    def fill(self) -> None:
        """Take a handle if the reserve is empty and one is free."""
        if self._handle is None and not self._closed:
            try:
                self._handle = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in NO_HANDLES:
                    raise

    def close(self) -> None:
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def socket(self, address: tuple[int, int, int, str, Any]) -> socket.socket:
        """A socket for a result of getaddrinfo. Raises OSError."""
        try:
            return _ReservedSocket(self, *address[:3])
        except OSError as error:
            if error.errno not in NO_HANDLES or self._handle is None:
                raise
        self._release()
        return _ReservedSocket(self, *address[:3])


class _ReservedSocket(socket.socket):
    def __init__(self, reserve: HandleReserve, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._reserve = reserve

    def close(self) -> None:
        super().close()
        self._reserve.fill()
