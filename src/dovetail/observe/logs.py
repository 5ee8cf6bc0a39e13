"""Logging: one JSON object per line, with the same keys everywhere (04 §4).

`extra=` adds keys to a line; `about` adds them to all lines of a piece of work, such as a reconcile. Frequent messages
are sampled: a hundred per second, then every hundredth.
"""

import logging
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from dovetail.values.duration import MICROSECOND, format_duration
from dovetail.values.foreign_text import json_escaped, plain, redacted

FIRST, THEREAFTER = 100, 100
MESSAGES_AT_MOST: Final = 10_000  # distinct messages per second
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "": logging.INFO,
}

# The attributes of every record; others come from `extra`.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NAMES: Final = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}

_context: ContextVar[Mapping[str, Any]] = ContextVar("about", default={})  # noqa: B039  never changed in place


class LogFormat(StrEnum):
    """For machines, or for people."""

    JSON = "json"
    TEXT = "text"


@contextmanager
def about(**keys: Any) -> Iterator[None]:
    """Adds the keys to every line that this task logs within the block."""
    token = _context.set({**_context.get(), **keys})
    try:
        yield
    finally:
        _context.reset(token)


def said_about(key: str) -> Any:
    """The value of the key in `about`; empty if it has none."""
    return _context.get().get(key, "")


# -- lines -------------------------------------------------------------------------------------------------------------


def keys_of(record: logging.LogRecord) -> dict[str, Any]:
    """The keys of the line, in their order."""
    keys: dict[str, Any] = {
        "level": _NAMES.get(record.levelno, record.levelname),
        "time": _time(record),
        "logger": record.name.removeprefix("dovetail."),
        "message": redacted(record.getMessage()),
    }
    if record.levelno <= logging.DEBUG:
        keys["caller"] = f"{record.module}.py:{record.lineno}"
    added = {key: value for key, value in vars(record).items() if key not in _OWN}
    for key, value in {**_context.get(), **added}.items():
        keys.setdefault(key, _plain(value))
    if record.exc_info and record.exc_info[1] is not None:
        keys.setdefault("error", redacted(str(record.exc_info[1])) or type(record.exc_info[1]).__name__)
        keys["stacktrace"] = redacted("".join(traceback.format_exception(record.exc_info[1])))
    return keys


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Formats durations like Go, and redacts credentials."""
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(microseconds=1) * MICROSECOND)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return redacted(value) if isinstance(value, str) else value


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        keys = keys_of(record)
        try:
            return _encode(keys)
        except (ValueError, OverflowError, RecursionError):  # a value that is not valid JSON must not lose the line
            return _encode({key: str(value) for key, value in keys.items()})


def _encode(keys: Mapping[str, Any]) -> str:
    return json_escaped(msgspec.json.encode(keys, enc_hook=str).decode())


class TextLines(logging.Formatter):
    """Lines for people: time, level, message, then the other keys."""

    def format(self, record: logging.LogRecord) -> str:
        keys = keys_of(record)
        trace = keys.pop("stacktrace", "")
        time, level, message = (keys.pop(key) for key in ("time", "level", "message"))
        others = {key: _for_people(value) for key, value in _flat(keys) if key != "name"}
        name = keys.get("name", "")
        name = "/".join(map(str, name)) if isinstance(name, list) else str(name)
        if name and name not in others.values():  # the key of a reconcile is most often named as its object, too
            others["name"] = name
        behind = " ".join(f"{key}={_quoted(text)}" for key, text in others.items() if text)
        lines = [f"{time} {level:<5} {message}  {behind}", *trace.rstrip().splitlines()]
        return "\n".join(map(plain, lines))


def _for_people(value: Any) -> str:
    """Without brackets and empty values."""
    if isinstance(value, Mapping):
        texts = {key: _for_people(entry) for key, entry in _flat(value)}
        return " ".join(f"{key}={_quoted(text)}" for key, text in texts.items() if text)
    if isinstance(value, list):
        return ", ".join(map(_for_people, value))
    return "" if value is None else str(value)


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of a tree, such as `spec.replicas`. UIDs tell people nothing."""
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            yield from _flat(entry, f"{path}{key}.")
        elif key != "uid":
            yield f"{path}{key}", entry


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text and '"' not in text else text


# -- sampling ---------------------------------------------------------------------------------------------------------


class Sampling(logging.Filter):
    """For each message and second, passes the first hundred lines and then every hundredth."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._counts: dict[tuple[int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(record.created)
        if second != self._second or len(self._counts) > MESSAGES_AT_MOST:
            self._second = second
            self._counts.clear()
        key = (record.levelno, str(record.msg))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count <= FIRST or (count - FIRST) % THEREAFTER == 0


# -- outputs ----------------------------------------------------------------------------------------------------------


class _Output(logging.StreamHandler[TextIO]):
    """Writes lines. Errors of writing go to the error outputs."""

    def __init__(self, path: str, troubles: Sequence[TextIO], form: LogFormat) -> None:
        super().__init__(_open(path))
        self._troubles = troubles
        self.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
        self.addFilter(Sampling())

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        for stream in self._troubles:
            try:
                stream.write(f"a line of {record.name} could not be logged: {plain(str(error))}\n")
            except (OSError, ValueError):  # no output is left
                continue

    def close(self) -> None:
        super().close()
        for stream in (self.stream, *self._troubles):
            if stream not in (sys.stdout, sys.stderr):
                stream.close()


def _open(path: str) -> TextIO:
    if path in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, path)
        return stream
    return Path(path).open("a", encoding="utf-8", buffering=1)


def start_logging(
    level: str,
    *,
    outputs: Sequence[str] = ("stdout",),
    error_outputs: Sequence[str] = ("stderr",),
    form: LogFormat = LogFormat.JSON,
) -> None:
    """Logs to these outputs from now on: `stdout`, `stderr` or files to append to. Raises OSError."""
    troubles = [_open(path) for path in error_outputs]
    handlers = [_Output(path, troubles, form) for path in outputs]
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        if isinstance(handler, _Output):
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(LEVELS[level])
