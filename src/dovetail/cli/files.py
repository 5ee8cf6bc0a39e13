"""Which documents do the files named on the command line hold?"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dovetail.api.documents import Document, InputError, read_documents
from dovetail.cli.failing import fail

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def documents_of(paths: Sequence[str]) -> Iterator[Document]:
    """The documents of all files in order; a directory stands for its manifests, below it too. Raises InputError."""
    for path in paths:
        for file in _files(path):
            yield from read_documents(_read(file), file)


def _files(path: str) -> list[str]:
    if path == "-" or not Path(path).is_dir():
        return [path]
    found = sorted(str(file) for file in Path(path).rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise InputError(path, "the directory holds no .yaml, .yml or .json file")
    return found


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise InputError(file, getattr(error, "strerror", None) or str(error)) from None


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Unreadable input ends the program with exit code 2 and one line on standard error."""
    try:
        yield
    except InputError as error:
        fail(str(error))
