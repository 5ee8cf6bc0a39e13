"""`dovetail dashboard`: what it refuses, and that it serves files and ends when asked to."""

import json
import resource
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.commands.dashboard import command

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "cluster.yaml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--address", "0.0.0.0", "-f", EXAMPLE], "0.0.0.0 can be reached by others: give --in-cluster-auth"),
        (["-f", EXAMPLE, "--context", "x"], "give either -f for files, or options for a live cluster"),
        (["-f", EXAMPLE, "--in-cluster-auth"], "give either -f for files, or options for a live cluster"),
        (["--at", "2026-03-06T16:20:00Z"], "--at is for files"),
        (["-f", "no-such-file.yaml"], "no-such-file.yaml"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_files_are_served_until_the_program_is_asked_to_end() -> None:
    program = str(Path(sys.executable).with_name("dovetail"))
    arguments = ["dashboard", "-f", EXAMPLE, "--at", "2026-03-06T16:20:00Z", "--port", "0"]
    limited = ["sh", "-c", 'ulimit -S -n 128 && ulimit -H -n 256 && exec "$@"', "sh", program, *arguments]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (256, 256)
        url = line.split(": ", 1)[1].split()[0]
        with urllib.request.urlopen(f"{url}api/board", timeout=30) as answer:
            board = json.loads(answer.read())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert len(board["rows"]) == 13
    assert board["rows"][0]["type"] == "m-16x-amd64-linux"
    assert (process.returncode, errors) == (0, "")
