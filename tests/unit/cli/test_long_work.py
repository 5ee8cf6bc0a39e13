"""Work that takes long says so, and Ctrl-C ends it with one line."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest

from dovetail.cli.common import output
from dovetail.cli.main import program
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


# -- before anything has begun -----------------------------------------------------------------------------------------

INTERRUPTING = """
import os, runpy, signal, sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
module = sys.argv.pop(1)
sys.meta_path.insert(0, CtrlC())
runpy.run_module("dovetail", run_name="__main__", alter_sys=True)
"""


def interrupted_at(module: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code and output of the program, if Ctrl-C comes when it imports this module."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING, module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=heed_interrupts,
    )
    return done.returncode, done.stdout, done.stderr


INTERRUPTED = (130, "", "dovetail: interrupted\n")


@pytest.mark.parametrize("command", program.list_commands(click.Context(program)))
def test_ctrl_c_while_a_command_is_imported_is_one_line(command: str) -> None:
    assert interrupted_at(f"dovetail.cli.commands.{command}", command) == INTERRUPTED


@pytest.mark.parametrize(
    "module", ["dovetail.cli", "click", "msgspec", "dovetail.rules", "dovetail.views.explain.verdicts"]
)
def test_ctrl_c_while_the_program_is_imported_is_one_line(module: str) -> None:
    assert interrupted_at(module, "explain") == INTERRUPTED


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("dovetail.kube", ("explain", "--context", "x")),
        ("aiohttp", ("top",)),
        ("dovetail.sim.scenarios.one_shot", ("explain", "-f", "examples/cluster.yaml")),
    ],
)
def test_ctrl_c_while_a_command_imports_what_it_needs_is_one_line(module: str, arguments: tuple[str, ...]) -> None:
    code, out, error = interrupted_at(module, *arguments)
    lines = [line for line in error.splitlines() if not line.endswith("…")]
    assert (code, out, lines) == (130, "", ["dovetail: interrupted"])


def test_a_shell_that_ignores_it_for_the_background_is_heeded() -> None:
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTING}"
    done = subprocess.run(
        [sys.executable, "-c", ignored, "click", "--version"], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
