"""Which documents do the files named on the command line hold?"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from dovetail.api.documents import Document, InputError, read_documents
from dovetail.cli.failing import fail

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def documents_of(paths: Sequence[str]) -> Iterator[Document]:
    """The documents of all files in order; a directory stands for its manifests, below it too. Raises InputError."""
    for path in paths:
        for file in _files(path):
            yield from read_documents(_read(file), _label(file))


def _files(path: str) -> list[str]:
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
        found += [str(Path(folder, file)) for file in files if Path(file).suffix.lower() in _SUFFIXES]
    if not found:
        raise InputError(_label(path), "the directory holds no .yaml, .yml or .json file")
    for file in found:
        if Path(file).exists() and not Path(file).is_file():  # reading a pipe would wait for ever
            raise InputError(_label(file), "is not a regular file; name it itself if it is to be read")
    return sorted(found)


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(_label(str(error.filename)), error.strerror or str(error))


def _read(file: str) -> bytes:
    try:
        if file != "-":
            return Path(file).read_bytes() if file else _no_name()
        if sys.stdin is None:
            raise InputError(file, "standard input is closed")
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise InputError(_label(file), getattr(error, "strerror", None) or str(error)) from None


def _no_name() -> NoReturn:
    raise InputError("''", "is no file name")


def _label(file: str) -> str:
    """The name as text that can be printed: names of files need not be text."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Unreadable input ends the program with exit code 2 and one line on standard error."""
    try:
        yield
    except InputError as error:
        fail(str(error))
