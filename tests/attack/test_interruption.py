"""Ctrl-C in the middle of long work ends with one line and exit code 130."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.terminals import heed_interrupts

ROOT = Path(__file__).parents[2]
PLAY = """
import os, signal
from datetime import datetime, UTC
from dovetail.api.documents import read_documents
from dovetail.cli.common.process import ends_at_once
from dovetail.sim.scenarios.player import play_through
from dovetail.sim.scenarios.reading import read_scenario

now = datetime(2026, 3, 2, tzinfo=UTC)
scenario = read_scenario(read_documents(open("examples/scenarios/week.yaml", "rb").read(), "week.yaml"), now=now)
with ends_at_once():
    play_through(scenario, None, lambda _: os.kill(os.getpid(), signal.SIGINT))
"""


def test_a_simulation_that_is_interrupted_ends_with_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PLAY],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        preexec_fn=heed_interrupts,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "dovetail: interrupted\n")


@pytest.mark.parametrize("command", ["explain", "dashboard --port 0", "top"])
def test_a_server_that_does_not_answer_can_be_interrupted(command: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = {
            "current-context": "slow",
            "contexts": [{"name": "slow", "context": {"cluster": "slow"}}],
            "clusters": [{"name": "slow", "cluster": {"server": address}}],
        }
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        program = [str(Path(sys.executable).with_name("dovetail")), *command.split(), "--kubeconfig", str(kubeconfig)]
        with subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509  (no thread has been started yet)
        ) as process:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)  # the request is on its way
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
    progress = [line for line in err.splitlines() if line.endswith("…")]  # after two seconds
    assert (process.returncode, out, err.splitlines()) == (130, "", [*progress, "dovetail: interrupted"])
