"""Where do lines end in a stream that comes in chunks?

A watch sends one JSON object a line. Objects may be megabytes, more than the line readers of HTTP libraries allow.
"""

LONGEST_LINE = 64 * 1024 * 1024


class LineTooLong(Exception):
    """A line exceeds the limit; nothing can be read after it."""


class LineSplitter:
    """Takes chunks, gives the lines that are complete; blank ones are left out."""

    def __init__(self, *, limit: int = LONGEST_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()

    @property
    def partial(self) -> bool:
        """Has a line begun that has not ended?"""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk; raises LineTooLong."""
        pieces = chunk.split(b"\n")
        lines = []
        for piece in pieces[:-1]:
            self._extend(piece)
            if self._rest:
                lines.append(bytes(self._rest))
                self._rest.clear()
        self._extend(pieces[-1])
        return lines

    def _extend(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > self._limit:
            raise LineTooLong(f"a line is longer than {self._limit} bytes")
        self._rest += piece
