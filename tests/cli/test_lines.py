"""Standard input as lines."""

from collections.abc import Callable, Iterable

import pytest

from segbroker.cli import lines
from segbroker.cli.lines import LineTooLong, LineUnfinished, read_lines


def reads(pieces: Iterable[bytes]) -> Callable[[int], bytes]:
    left = iter(pieces)
    return lambda size: next(left, b"")


INPUT = b"one\n\nthr\x00\xffee\r\nlast"


def test_lines_are_the_same_however_the_reads_cut_them() -> None:
    for cut in range(len(INPUT) + 1):
        pieces = [piece for piece in (INPUT[:cut], INPUT[cut:]) if piece]
        found = [line for batch in read_lines(reads(pieces)) for line in batch]
        assert found == [b"one", b"", b"thr\x00\xffee\r", b"last"]


def test_half_a_line_is_none_where_the_reading_was_stopped() -> None:
    pieces = iter([b"one\nha", b"lf", None])
    found = read_lines(lambda size: next(pieces))
    assert next(found) == [b"one"]
    with pytest.raises(LineUnfinished, match="the first 4 bytes of a line"):
        next(found)


def test_a_reading_that_was_stopped_between_two_lines_ends() -> None:
    pieces = iter([b"one\n", None])
    assert list(read_lines(lambda size: next(pieces))) == [[b"one"]]


def test_a_line_is_handed_on_before_the_next_is_read() -> None:
    asked = 0

    def read(size: int) -> bytes:
        nonlocal asked
        asked += 1
        return b"typed\n"

    assert next(read_lines(read)) == [b"typed"]
    assert asked == 1


def test_no_input_is_no_line_and_one_newline_is_one_empty_line() -> None:
    assert list(read_lines(reads([]))) == []
    assert list(read_lines(reads([b"\n"]))) == [[b""]]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LINE_SIZE_MAX", 10)
    found = read_lines(reads([b"good\nfour", b"four", b"four", b"more"]))
    assert next(found) == [b"good"]
    with pytest.raises(LineTooLong, match="longer than 10 bytes"):
        next(found)
