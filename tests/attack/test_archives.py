"""Small files that hold much, and files without an end, cost neither memory nor time: they are refused in one line."""

import gzip
import io
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from dovetail.api.documents import InputError
from dovetail.cli.common import files
from dovetail.cli.common.files import read_file
from tests.unit.cli.running import Outcome, Program

MIB = 1 << 20
POD = b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}\n'
TOO_DENSE = "the gzip data expand to more than 64 MiB, over 200 times their size"


def bomb(unpacked_mib: int) -> bytes:
    """So many MiB of blanks, a thousandth of that in size; made of one piece that is repeated."""
    piece = zlib.compressobj(9, wbits=-15)
    packed = piece.compress(b" " * MIB) + piece.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, wbits=-15).flush(zlib.Z_FINISH)
    header = gzip.compress(b"", mtime=0)[:10]
    checksum = 0
    for _ in range(unpacked_mib):
        checksum = zlib.crc32(b" " * MIB, checksum)
    size = unpacked_mib * MIB
    return header + packed * unpacked_mib + end + checksum.to_bytes(4, "little") + size.to_bytes(4, "little")


def refused(outcome: Outcome) -> str:
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    return outcome.err


@pytest.mark.parametrize("command", ["explain", "lint", "record", "simulate"])
def test_a_bomb_is_refused_in_one_line(dovetail: Program, command: str) -> None:
    words = refused(dovetail(command, "-f", dovetail.file(bomb(256), "bomb.json.gz")))
    assert f"bomb.json.gz: {TOO_DENSE}" in words
    assert "unpack" in words


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "bomb.gz"
    file.write_bytes(bomb(300))
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_file(str(file))
        assert tracemalloc.get_traced_memory()[1] < 150 * MIB
    finally:
        tracemalloc.stop()


def test_a_bomb_in_a_later_member(dovetail: Program) -> None:
    assert TOO_DENSE in refused(dovetail("explain", "-f", dovetail.file(gzip.compress(POD) + bomb(100), "bomb.gz")))


def test_members_are_read_in_time_proportional_to_their_number(tmp_path: Path) -> None:
    file, empty = tmp_path / "members.gz", gzip.compress(b"", mtime=0)

    def seconds(members: int) -> float:
        file.write_bytes(empty * members + gzip.compress(POD))
        began = time.process_time()
        assert read_file(str(file)) == POD
        return time.process_time() - began

    seconds(1000)
    assert min(seconds(160_000), seconds(160_000)) < 12 * max(seconds(20_000), seconds(20_000))  # quadratic: 64


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", MIB)


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("from_stdin", [False, True])
def test_what_is_larger_than_the_limit_is_refused(dovetail: Program, *, packed: bool, from_stdin: bool) -> None:
    data = POD * (MIB // len(POD) + 1)
    data = gzip.compress(data) if packed else data
    source = ("-", data) if from_stdin else (dovetail.file(data), b"")
    words = refused(dovetail("explain", "-f", source[0], stdin=source[1]))
    assert "is larger than 1 MiB, the limit for one file" in words
    assert "dovetail record" in words


@pytest.mark.usefixtures("_small_limit")
def test_a_file_of_just_the_limit_is_read(tmp_path: Path) -> None:
    data = bytes(MIB)
    for file, content in ((tmp_path / "plain", data), (tmp_path / "packed", gzip.compress(data))):
        file.write_bytes(content)
        assert read_file(str(file)) == data


@pytest.mark.usefixtures("_small_limit")
def test_a_file_without_an_end_is_refused(dovetail: Program) -> None:
    refused(dovetail("explain", "-f", "/dev/zero"))
    refused(dovetail("run", "--instance-types-file-path", "/dev/zero"))


def test_what_compresses_well_is_read_as_long_as_it_is_small(tmp_path: Path) -> None:
    file = tmp_path / "alike.gz"
    file.write_bytes(bomb(20))
    assert read_file(str(file)) == b" " * (20 * MIB)


@pytest.mark.parametrize("cut", [2, 5, 12, 4096, 5000, 70_000])
def test_members_are_joined_wherever_a_block_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: int) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", cut)
    parts = [bytes([number]) * (1000 * number) for number in range(40)]
    packed = b"".join(gzip.compress(part, mtime=0) for part in parts)
    assert gzip.GzipFile(fileobj=io.BytesIO(packed)).read() == b"".join(parts)
    file = tmp_path / "members.gz"
    file.write_bytes(packed)
    assert read_file(str(file)) == b"".join(parts)
    file.write_bytes(packed + b"\0" * 100)  # as tape drives fill their blocks
    assert read_file(str(file)) == b"".join(parts)
