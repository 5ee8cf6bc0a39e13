"""Which documents do the files named on the command line hold?"""

import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from dovetail.api.documents import Document, InputError, read_documents
from dovetail.cli.failing import fail

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_GZIP: Final = b"\x1f\x8b"
LARGEST_BYTES: Final = 1 << 32  # of what was compressed: a small file may hold anything


class CutOff(InputError):
    """Compressed data that end too early, and what there is of them."""

    def __init__(self, file: str, data: bytes) -> None:
        super().__init__(file, "the gzip data end too early")
        self.data = data


def documents_of(paths: Sequence[str]) -> Iterator[Document]:
    """The documents of all files in order; a directory stands for its manifests, below it too. Raises InputError."""
    for path in paths:
        for file in files_of(path):
            yield from read_documents(read_file(file), label_of(file))


def files_of(path: str) -> list[str]:
    """The file itself, or the manifests of the directory. Raises InputError."""
    if path == "-" or not Path(path).is_dir() or not path:
        return [path]
    found: list[str] = []
    seen: set[str] = set()  # links may lead round in circles
    for folder, folders, files in os.walk(path, onerror=_unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        found += [str(Path(folder, file)) for file in files if _is_manifest(file)]
    if not found:
        raise InputError(label_of(path), "the directory holds no .yaml, .yml or .json file")
    for file in found:
        if Path(file).exists() and not Path(file).is_file():  # reading a pipe would wait for ever
            raise InputError(label_of(file), "is not a regular file; name it itself if it is to be read")
    return sorted(found)


def _is_manifest(file: str) -> bool:
    return Path(file.lower().removesuffix(".gz")).suffix in _SUFFIXES


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(label_of(str(error.filename)), error.strerror or str(error))


def read_file(file: str) -> bytes:
    """The text in the file, or in standard input; unpacked, if it is gzip. Raises InputError."""
    data = _read(file)
    return _unpacked(data, label_of(file)) if data.startswith(_GZIP) else data


def _unpacked(data: bytes, label: str) -> bytes:
    """Several members follow one another, as `cat a.gz b.gz` makes them."""
    parts: list[bytes] = []
    left = LARGEST_BYTES
    while data.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(data, left))
        except zlib.error as error:
            raise InputError(label, f"the gzip data are damaged: {error}") from None
        left -= len(parts[-1])
        if left <= 0:
            raise InputError(label, f"the gzip data hold more than {LARGEST_BYTES >> 30} GiB")
        if not member.eof:
            raise CutOff(label, b"".join(parts))
        data = member.unused_data
    return b"".join(parts)


def _read(file: str) -> bytes:
    try:
        if file != "-":
            return Path(file).read_bytes() if file else _no_name()
        if sys.stdin is None:
            raise InputError(file, "standard input is closed")
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise InputError(label_of(file), getattr(error, "strerror", None) or str(error)) from None


def _no_name() -> NoReturn:
    raise InputError("''", "is no file name")


def label_of(file: str) -> str:
    """The name as text that can be printed: names of files need not be text."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Unreadable input ends the program with exit code 2 and one line on standard error."""
    try:
        yield
    except InputError as error:
        fail(str(error))
