"""Which documents do the files named on the command line hold, and how are files written?"""

import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from dovetail.api.documents import Document, InputError, read_documents
from dovetail.cli.common.process import fail

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_GZIP: Final = b"\x1f\x8b"
LARGEST_BYTES: Final = 1 << 31  # of one file, unpacked
# Of packed data this much is taken whatever they are. Beyond, they must not be that many times smaller than what they
# hold: dumps were measured to be 10 to 50 times smaller, and data made to fill the memory are a thousand times smaller.
UNSUSPECTED_BYTES: Final = 64 << 20
LARGEST_RATIO: Final = 200
BLOCK_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 12  # what follows the end of a member is copied; thousands of members may be in a block
_TOO_LARGE: Final = (
    "holds more than {}, the most that is read of one file; make a smaller dump with dovetail record, or split it"
)
_TOO_DENSE: Final = (
    "the gzip data hold more than {}, over {} times their own size, as no dump does; if this is one, unpack it first"
)


class TruncatedInput(InputError):
    """Compressed data that end too early, and what there is of them."""

    def __init__(self, file: str) -> None:
        super().__init__(file, "the gzip data end too early")
        self.data = b""


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
    label, whole = label_of(file), BytesIO()
    try:
        with _opened(file) as stream:
            first = stream.read(BLOCK_BYTES)
            packed = first.startswith(_GZIP)
            if not packed and len(first) == BLOCK_BYTES and file != "-" and stream.seekable():
                # One read of a file whose size is known saves copies of it. What is appended meanwhile comes in blocks.
                stream.seek(0)
                first = stream.read(min(os.fstat(stream.fileno()).st_size, LARGEST_BYTES + 1))
            blocks = chain((first,), iter(lambda: stream.read(BLOCK_BYTES), b""))
            for part in _unpacked(blocks, label) if packed else blocks:
                if whole.tell() + len(part) > LARGEST_BYTES:
                    raise InputError(label, _TOO_LARGE.format(_mib(LARGEST_BYTES)))
                if whole.tell():
                    whole.write(part)
                else:
                    whole = BytesIO(part)  # which shares the bytes
                    whole.seek(0, os.SEEK_END)
    except TruncatedInput as error:
        error.data = whole.getvalue()
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise InputError(label, getattr(error, "strerror", None) or str(error)) from None
    return whole.getvalue()


def _unpacked(blocks: Iterable[bytes], label: str) -> Iterator[bytes]:
    """What was packed, in parts. Several members follow one another, as `cat a.gz b.gz` makes them."""
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
                    return  # zeros, say, that fill a block of a tape
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
    with Path(file or _no_name()).open("rb") as stream:
        yield stream


def _mib(bytes_: int) -> str:
    return f"{bytes_ >> 20} MiB"


def _no_name() -> NoReturn:
    raise InputError("''", "is no file name")


def label_of(file: str) -> str:
    """The name as text that can be printed: names of files need not be text."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


@contextmanager
def private_file(path: str) -> Iterator[BinaryIO]:
    """The file, to be written anew, for its owner alone: it holds what a cluster says. Raises OSError.

    It gets its name when it is whole: half a dump under it would be taken for a dump.
    """
    target, part = Path(path), Path(f"{path}.part")
    if target.exists() and not target.is_file():  # a pipe or a device is written to, and not replaced
        with target.open("wb") as file:
            yield file
        return
    part.unlink(missing_ok=True)  # left by a process that was killed, or a link that somebody has put there
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
