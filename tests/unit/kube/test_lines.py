"""Does any chunking of a stream give the same lines?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.watching import LineSplitter, LineTooLong


@given(st.lists(st.binary(max_size=30)), st.data())
def test_any_chunking_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    splitter = LineSplitter()
    got = [line for chunk in chunks for line in splitter.feed(chunk)]
    *ended, rest = stream.split(b"\n")
    assert got == [line for line in ended if line]
    assert splitter.partial == bool(rest)


def test_a_line_of_many_megabytes_is_whole() -> None:
    splitter = LineSplitter()
    chunk = b"x" * 65_536
    for _ in range(100):
        assert splitter.feed(chunk) == []
    assert splitter.feed(b"\n") == [chunk * 100]


@pytest.mark.parametrize("chunks", [[b"12345"], [b"12\n1234", b"5"], [b"123", b"45\n"]])
def test_a_line_over_the_limit_is_refused(chunks: list[bytes]) -> None:
    splitter = LineSplitter(limit=4)
    *first, last = chunks
    for chunk in first:
        splitter.feed(chunk)
    with pytest.raises(LineTooLong, match="longer than 4 bytes"):
        splitter.feed(last)
