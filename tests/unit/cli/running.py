"""Runs the program in this process, as its entry point would."""

import io
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dovetail.cli.main import main
from tests.harness.logs import logging_restored


class Outcome(NamedTuple):
    """What the program left behind."""

    code: int
    out: str
    err: str


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


class Program:
    """`dovetail`, called with arguments and standard input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self.folder = folder

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with logging_restored(), self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["dovetail", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                main()
                code = 0
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        return Outcome(code, _text(out), _text(err))

    def file(self, text: str | bytes, name: str = "input.yaml") -> str:
        """Write a file and give its path."""
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)
