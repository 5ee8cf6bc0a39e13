"""What the demo shows, and how its pace answers keys; in a real terminal it begins, pauses, jumps and ends cleanly."""

import os
import pty
import select
import signal
import sys
import termios
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from io import StringIO
from pathlib import Path

from rich.console import Console

from dovetail.api.documents import read_documents
from dovetail.cli.demo_board import snapshot_of
from dovetail.cli.demo_pace import Pace
from dovetail.cli.demo_view import View
from dovetail.sim.scenarios.playing import Play
from dovetail.sim.scenarios.reading import read_scenario

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 2, tzinfo=UTC)
WEEK = files("dovetail.sim.scenarios").joinpath("week.yaml").read_bytes()


def drawn(view: View, pace: Pace) -> str:
    console = Console(file=StringIO(), width=170, height=60, record=True, force_terminal=True)
    console.print(view.drawn(pace))
    return console.export_text()


def test_the_screen_shows_nodes_budgets_and_what_happened() -> None:
    documents = list(read_documents(WEEK, "week.yaml"))
    scenario = read_scenario(documents, now=NOW, span=timedelta(hours=1))
    with Play(scenario, checked=False) as play:
        view, pace = View(play, zone=UTC, address="http://127.0.0.1:1/"), Pace(600)
        play.advance(scenario.start + timedelta(minutes=5))
        text = drawn(view, pace)
        assert len(snapshot_of(play).nodes) > 20
    assert "Monday 02 March 00:05:00" in text
    assert "http://127.0.0.1:1/" in text
    for words in ("S1 steady", "services", "Drifted", "0 of 2", "takes pods", "an hour", "×600"):
        assert words in text


def test_keys() -> None:
    pace = Pace(600)
    pace.press("+")
    assert pace.speed == 1_800
    pace.press("--")
    assert pace.speed == 300
    pace.press(" ")
    assert (pace.paused, pace.speed_now, pace.due()) == (True, 0.0, timedelta())
    pace.press(" n")
    assert (pace.paused, pace.jumping, pace.ended) == (False, True, False)
    pace.landed()
    assert not pace.jumping
    pace.press("q")
    assert pace.ended


def test_the_copy_among_the_examples_is_the_same() -> None:
    assert (ROOT / "examples/scenarios/week.yaml").read_bytes() == WEEK


def test_in_a_terminal() -> None:
    """A pseudo-terminal: what is written to it is what a person would see."""
    child, terminal = pty.fork()
    if child == 0:  # the program, with the terminal as its own
        command = [sys.executable, "-m", "dovetail", "demo", "--no-dashboard", "--speed", "60", "-q"]
        os.execve(sys.executable, command, {**os.environ, "COLUMNS": "160", "LINES": "50", "TERM": "xterm"})
    before = termios.tcgetattr(terminal)[3]
    try:
        shown = _read_until(terminal, b"takes pods")
        os.write(terminal, b" ")
        shown += _read_until(terminal, b"paused")
        os.write(terminal, b"q")
        shown += _read_until(terminal, b"Violations")
        shown += _rest(terminal)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[?1049l" in shown, "the screen is given back"
    assert termios.tcgetattr(terminal)[3] == before, "and so are the keys"
    os.close(terminal)


def _rest(terminal: int) -> bytes:
    found = b""
    try:
        while more := os.read(terminal, 65536):
            found += more
    except OSError:  # nobody has it open any more
        return found
    return found


def _read_until(terminal: int, words: bytes, seconds: float = 120.0) -> bytes:
    found = b""
    while words not in found:
        assert select.select([terminal], [], [], seconds)[0], found[-2000:]
        found += os.read(terminal, 65536)
    return found
