"""Where the values of a byte stream begin and end, however it is cut."""

import pytest

from segbroker.segments.errors import BatchTooLarge, StreamCutShort
from segbroker.segments.library.framing import FixedSize, Framing, Lines, WholeStream


def values_of(framing: Framing, pieces: list[bytes], size_max: int = 100) -> list[bytes]:
    splitter = framing.splitter(size_max)
    found = [value for piece in pieces for value in splitter.feed(piece)]
    return found + list(splitter.finish())


def cuts(data: bytes) -> list[list[bytes]]:
    """Every way to cut `data` into three pieces, and byte by byte."""
    ways = [
        [data[:a], data[a:b], data[b:]]
        for a in range(len(data) + 1)
        for b in range(a, len(data) + 1)
    ]
    return [*ways, [data[i : i + 1] for i in range(len(data))]]


def test_lines_are_the_same_however_the_stream_is_cut() -> None:
    for pieces in cuts(b"one\n\nthree\nno end"):
        assert values_of(Lines(), pieces) == [b"one", b"", b"three", b"no end"]


def test_a_separator_at_the_end_begins_no_further_line() -> None:
    assert values_of(Lines(), [b"a\nb\n"]) == [b"a", b"b"]
    assert values_of(Lines(), []) == []


def test_a_separator_of_several_bytes_is_found_across_pieces() -> None:
    for pieces in cuts(b"a\rb\r\n\r\r\nc--\r\n\r\n"):
        assert values_of(Lines(b"\r\n"), pieces) == [b"a\rb", b"\r", b"c--", b""]
    for pieces in cuts(b"xaaayaabz"):
        assert values_of(Lines(b"aab"), pieces) == [b"xaaay", b"z"]


def test_values_of_a_fixed_size_are_the_same_however_the_stream_is_cut() -> None:
    for pieces in cuts(b"abcdefghijkl"):
        assert values_of(FixedSize(4), pieces) == [b"abcd", b"efgh", b"ijkl"]


def test_a_stream_that_ends_inside_a_value_of_fixed_size_is_an_error() -> None:
    with pytest.raises(StreamCutShort, match="the last value has 2 bytes, not 4"):
        values_of(FixedSize(4), [b"abcd", b"ef"])


def test_the_whole_stream_is_one_value_even_when_it_is_empty() -> None:
    assert values_of(WholeStream(), [b"ab", b"", b"cd"]) == [b"abcd"]
    assert values_of(WholeStream(), []) == [b""]


@pytest.mark.parametrize("framing", [Lines(), WholeStream()])
def test_a_value_is_refused_before_more_than_the_limit_is_held(framing: Framing) -> None:
    splitter = framing.splitter(10)
    assert list(splitter.feed(b"x" * 10)) == []
    with pytest.raises(BatchTooLarge, match=r"batch of 11 bytes, max.message.bytes is 10"):
        list(splitter.feed(b"y"))
    with pytest.raises(BatchTooLarge):
        values_of(framing, [b"x" * 11 + b"\n"], 10)


def test_a_fixed_size_above_the_limit_is_refused_before_the_first_piece() -> None:
    with pytest.raises(BatchTooLarge):
        FixedSize(11).splitter(10)


def test_framings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="size=0"):
        FixedSize(0)
    with pytest.raises(ValueError, match="separator"):
        Lines(b"")
