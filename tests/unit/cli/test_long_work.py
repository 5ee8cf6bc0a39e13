"""Work that takes long says so, and Ctrl-C ends it with one line."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dovetail.cli.common import output
from tests.unit.cli.running import Program
from tests.unit.cli.terminals import heed_interrupts


class Log:
    """A stream that is no terminal and tells when something was written."""

    def __init__(self) -> None:
        self.text = ""
        self.flushed = threading.Event()

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        self.flushed.set()


def test_long_work_says_so_once_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(output, "SILENT_SECONDS", 0.0)
    with output.working("reading …"):
        assert log.flushed.wait(60)
    assert log.text == "dovetail: reading …\n"


def test_short_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(output, "SILENT_SECONDS", 3600.0)
    with output.working("reading …"):
        pass
    assert log.text == ""


@pytest.mark.parametrize("command", ["explain", "forecast", "plan", "record"])
def test_ctrl_c_while_a_file_is_read_is_one_line(dovetail: Program, command: str) -> None:
    pipe = dovetail.folder / "pipe.yaml"
    os.mkfifo(pipe)
    arguments = [sys.executable, "-m", "dovetail", command, "-f", str(pipe)]
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509  (no thread has been started yet)
    )
    with process, Path(pipe).open("wb"):  # which waits until the program reads
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines() if line and not line.endswith("…")]
    assert (process.returncode, out, lines) == (130, "", ["dovetail: interrupted"])
