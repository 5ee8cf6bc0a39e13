"""Is nothing left behind by runs that are over, and nothing taken from those that are not?"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import folders, lease
from tests.cluster.fixtures import ROOT
from tests.cluster.folders import KILLED_SECONDS, LOGS_SECONDS, PREFIX, keep_logs, sweep

NOW: Final = 2_000_000_000.0

RUN: Final = """
import signal, sys, tempfile
from tests.cluster import folders, lease
tempfile.tempdir = sys.argv[1]
folder = folders.new()
held = lease.hold(lease.make(folder))
(folder / "etcd").mkdir()
print(folder, flush=True)
signal.pause()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The folder of a run that is alive, and the run."""
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield Path(process.stdout.readline().strip()), process
        process.kill()


def quiet_for(folder: Path, seconds: float) -> None:
    os.utime(folder, (NOW - seconds, NOW - seconds))


def test_the_folder_of_a_killed_run_is_swept_and_that_of_a_living_one_is_not(
    run: tuple[Path, subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder, process = run
    quiet_for(folder, 10 * LOGS_SECONDS)
    sweep(tmp_path, now=NOW)
    assert folder.exists()
    process.kill()
    process.wait()
    quiet_for(folder, KILLED_SECONDS - 1)  # as one that is just being made
    sweep(tmp_path, now=NOW)
    assert folder.exists()
    quiet_for(folder, KILLED_SECONDS + 1)
    sweep(tmp_path, now=NOW)
    assert not folder.exists()


def test_logs_are_kept_for_a_day(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}x"
    (folder / "etcd").mkdir(parents=True)
    (folder / "kwok.log").touch()
    lease.make(folder)
    keep_logs(folder)
    assert [file.name for file in folder.iterdir()] == ["kwok.log"]
    quiet_for(folder, LOGS_SECONDS - 1)
    sweep(tmp_path, now=NOW)
    assert folder.exists()
    quiet_for(folder, LOGS_SECONDS + 1)
    sweep(tmp_path, now=NOW)
    assert not folder.exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    quiet_for(other, 10 * LOGS_SECONDS)
    sweep(tmp_path, now=NOW)
    assert other.exists()


def test_a_folder_is_removed_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}x"
    (folder / "etcd").mkdir(parents=True)
    lease.make(folder)
    folders.remove(folder)
    assert not folder.exists()
