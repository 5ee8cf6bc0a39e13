"""Reads the documents in files, and writes files."""

import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from dovetail.api.documents import InputError
from dovetail.cli.common.process import fail

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_GZIP: Final = b"\x1f\x8b"
LARGEST_BYTES: Final = 1 << 31  # of one file, unpacked
# Above this size the ratio of gzip data is limited. Dumps have a ratio of 10 to 50; data made to fill the memory have a
# ratio of a thousand.
UNSUSPECTED_BYTES: Final = 64 << 20
LARGEST_RATIO: Final = 200
BLOCK_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 12  # data after the end of a member are copied, and a block may have thousands of members
_TOO_LARGE: Final = "is larger than {}, the limit for one file; make a smaller dump with dovetail record, or split it"
_TOO_DENSE: Final = "the gzip data expand to more than {}, over {} times their size; if this is a dump, unpack it first"


class TruncatedInput(InputError):
    """Compressed data that end too early, and the part that could be read."""

    def __init__(self, file: str) -> None:
        super().__init__(file, "the gzip data end too early")
        self.data = b""


def files_of(path: str) -> list[str]:
    """The file itself, or the manifests of the directory. Raises InputError."""
    if path == "-" or not Path(path).is_dir() or not path:
        return [path]
    paths: list[str] = []
    seen: set[str] = set()  # links may form a cycle
    for folder, folders, files in os.walk(path, onerror=_unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        paths += [str(Path(folder, file)) for file in files if is_manifest(file)]
    if not paths:
        raise InputError(label_of(path), "the directory has no .yaml, .yml or .json file")
    for file in paths:
        if Path(file).exists() and not Path(file).is_file():  # reading a pipe could block
            raise InputError(label_of(file), "is not a regular file; name it on the command line to read it")
    return sorted(paths)


def is_manifest(file: str) -> bool:
    """Whether the name is that of a YAML or JSON file, packed or not."""
    return Path(file.lower().removesuffix(".gz")).suffix in _SUFFIXES


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(label_of(str(error.filename)), error.strerror or str(error))


def read_file(file: str) -> bytes:
    """The content of the file or of standard input, unpacked if it is gzip. Raises InputError."""
    label, whole = label_of(file), BytesIO()
    try:
        with _opened(file) as stream:
            first = stream.read(BLOCK_BYTES)
            packed = first.startswith(_GZIP)
            if not packed and len(first) == BLOCK_BYTES and file != "-" and stream.seekable():
                # One read of a file with a known size saves copies. Data appended meanwhile come in blocks.
                stream.seek(0)
                first = stream.read(min(os.fstat(stream.fileno()).st_size, LARGEST_BYTES + 1))
            blocks = chain((first,), iter(lambda: stream.read(BLOCK_BYTES), b""))
            for part in _unpacked(blocks, label) if packed else blocks:
                if whole.tell() + len(part) > LARGEST_BYTES:
                    raise InputError(label, _TOO_LARGE.format(_mib(LARGEST_BYTES)))
                if whole.tell():
                    whole.write(part)
                else:
                    whole = BytesIO(part)  # shares the bytes
                    whole.seek(0, os.SEEK_END)
    except TruncatedInput as error:
        error.data = whole.getvalue()
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise InputError(label, getattr(error, "strerror", None) or str(error)) from None
    return whole.getvalue()


def _unpacked(blocks: Iterable[bytes], label: str) -> Iterator[bytes]:
    """The unpacked data, in parts. There can be several members, as in `cat a.gz b.gz`."""
    member = None
    packed_bytes = unpacked_bytes = 0
    left = b""
    for piece in (block[at : at + _PIECE_BYTES] for block in blocks for at in range(0, len(block), _PIECE_BYTES)):
        packed_bytes += len(piece)
        left += piece
        while left:
            if member is None:
                if len(left) < len(_GZIP):
                    break
                if not left.startswith(_GZIP):
                    return  # padding
                member = zlib.decompressobj(wbits=31)
            try:
                part = member.decompress(left)
            except zlib.error as error:
                raise InputError(label, f"the gzip data are damaged: {error}") from None
            unpacked_bytes += len(part)
            if unpacked_bytes > max(UNSUSPECTED_BYTES, LARGEST_RATIO * packed_bytes):
                raise InputError(label, _TOO_DENSE.format(_mib(UNSUSPECTED_BYTES), LARGEST_RATIO))
            yield part
            left = member.unused_data
            if member.eof:
                member = None
    if member is not None:
        raise TruncatedInput(label)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            raise InputError(file, "standard input is closed")
        yield sys.stdin.buffer
        return
    if not file:
        raise InputError("''", "is not a file name")
    with Path(file).open("rb") as stream:
        yield stream


def _mib(bytes_: int) -> str:
    return f"{bytes_ >> 20} MiB"


def label_of(file: str) -> str:
    """The file name as printable text."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


@contextmanager
def private_file(path: str) -> Iterator[BinaryIO]:
    """Write a file that only its owner can read, because it contains data of a cluster. Raises OSError.

    It gets its name when it is complete, so that nobody takes half a dump for a dump.
    """
    target, part = Path(path), Path(f"{path}.part")
    if not target.parent.is_dir():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(target.parent))
    if target.exists() and not target.is_file():  # a pipe or a device is not replaced
        with target.open("wb") as file:
            yield file
        return
    part.unlink(missing_ok=True)  # left by a killed process, or a planted link
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Unreadable input ends the program with exit code 2 and one line on standard error."""
    try:
        yield
    except InputError as error:
        fail(str(error))
