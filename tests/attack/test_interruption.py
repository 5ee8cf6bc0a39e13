"""Ctrl-C in the middle of long work ends with one line and exit code 130."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAY = """
import os, signal
from datetime import datetime, UTC
from dovetail.api.documents import read_documents
from dovetail.cli.common.process import ends_at_once
from dovetail.controllers.assembly import DisruptionOptions
from dovetail.sim.scenarios.player import play_through
from dovetail.sim.scenarios.reading import read_scenario

now = datetime(2026, 3, 2, tzinfo=UTC)
scenario = read_scenario(read_documents(open("examples/scenarios/week.yaml", "rb").read(), "week.yaml"), now=now)
with ends_at_once():
    play_through(scenario, None, DisruptionOptions(), lambda _: os.kill(os.getpid(), signal.SIGINT))
"""


def test_a_simulation_that_is_interrupted_ends_with_one_line() -> None:
    ended = subprocess.run([sys.executable, "-c", PLAY], capture_output=True, check=False, text=True, cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "dovetail: interrupted\n")
