"""What is written of a cluster is for its owner alone, from the first byte on."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.running import Program

CLUSTER = str(Path(__file__).parents[2] / "examples" / "cluster.yaml")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml", "dump.json.gz"])
def test_a_dump_is_for_its_owner_alone(dovetail: Program, name: str) -> None:
    file = dovetail.folder / name
    assert dovetail("record", "-f", CLUSTER, "-o", str(file)).code == 0
    assert mode(file) == 0o600


def test_a_file_that_was_there_is_for_its_owner_alone_too(dovetail: Program) -> None:
    file = dovetail.folder / "dump.json"
    file.write_text("before")
    file.chmod(0o644)
    assert dovetail("record", "-f", CLUSTER, "-o", str(file)).code == 0
    assert mode(file) == 0o600


def test_a_report_is_for_its_owner_alone(dovetail: Program) -> None:
    file = dovetail.folder / "report.html"
    assert dovetail("simulate", CLUSTER, "--for", "1h", "--at", "2026-03-06T16:20:00Z", "--report", str(file)).code == 0
    assert mode(file) == 0o600
    assert file.read_text().startswith("<!doctype html>")


def test_nobody_can_read_a_dump_while_it_is_written(dovetail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    replace = Path.replace

    def looked_at(part: Path, target: str | Path) -> Path:
        seen.append(mode(part))
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", looked_at)
    monkeypatch.setattr(Path, "chmod", lambda *_: pytest.fail("made with other rights first"))
    monkeypatch.setattr(os, "chmod", lambda *_: pytest.fail("made with other rights first"))
    dovetail("record", "-f", CLUSTER, "-o", str(dovetail.folder / "dump.json"))
    assert seen == [0o600]


def test_a_link_in_the_way_of_a_dump_leads_nowhere(dovetail: Program) -> None:
    victim, file = dovetail.folder / "victim", dovetail.folder / "dump.json"
    victim.write_text("precious")
    Path(f"{file}.part").symlink_to(victim)
    assert dovetail("record", "-f", CLUSTER, "-o", str(file)).code == 0
    assert victim.read_text() == "precious"
    assert file.read_text().startswith("{")


def test_a_dump_to_a_device_or_a_pipe_does_not_replace_it(dovetail: Program) -> None:
    pipe = dovetail.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        small = dovetail.file("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
        assert dovetail("record", "-f", small, "-o", str(pipe)).code == 0
        assert os.read(reader, 4096).startswith(b'{"apiVersion"')
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
