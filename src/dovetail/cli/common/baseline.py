"""Old findings that are not reported again: `lint --baseline`.

The file is JSON, sorted, with one line for each finding, so that a review shows what was added. Lines and messages are
left out: they change although the finding is the same. Paths are relative to the file's own folder.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail.api.documents import InputError
from dovetail.cli.common.files import label_of, read_file
from dovetail.model.finding import Finding

_VERSION: Final = 1


class BaselineEntry(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A finding, without what changes by itself."""

    file: str
    object: str
    rule: str
    field: str


class _Baseline(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    findings: list[BaselineEntry]


def read_baseline(path: str) -> Counter[BaselineEntry]:
    """The old findings. Raises InputError."""
    try:
        baseline = msgspec.json.decode(read_file(path), type=_Baseline)
    except msgspec.DecodeError as error:
        message = f"is no baseline of dovetail lint ({error}); write one with --write-baseline"
        raise InputError(label_of(path), message) from None
    if baseline.version != _VERSION:
        raise InputError(label_of(path), f"has version {baseline.version}; this program reads version {_VERSION}")
    return Counter(baseline.findings)


def save_baseline(path: str, problems: Sequence[Finding]) -> int:
    """Write the findings about files, and give their number. Raises InputError."""
    entries = sorted(_entry(path, problem) for problem in problems if problem.file)
    lines = ",\n".join(f"  {json.dumps(msgspec.to_builtins(entry))}" for entry in entries)
    text = f'{{"version": {_VERSION}, "findings": [\n{lines}\n]}}\n' if entries else '{"version": 1, "findings": []}\n'
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(label_of(path), error.strerror or str(error)) from None
    return len(entries)


def without_old(problems: Sequence[Finding], path: str, old: Counter[BaselineEntry]) -> list[Finding]:
    """The findings that are not in the baseline. `old` keeps the entries that no finding has."""
    new = []
    for problem in problems:
        entry = _entry(path, problem)
        if old[entry] > 0:
            old[entry] -= 1
        else:
            new.append(problem)
    return new


def _entry(path: str, problem: Finding) -> BaselineEntry:
    file = problem.file
    if file and file != "-":
        file = Path(os.path.relpath(file, Path(path).parent)).as_posix()
    return BaselineEntry(file, str(problem.object), problem.rule, problem.field)
