"""Undelivered lines in few words."""

from segbroker.cli.line_ranges import RUNS_MAX, LineRanges


def test_neighbours_with_one_reason_are_one_run() -> None:
    ranges = LineRanges()
    for first, count in ((17, 1), (18, 2), (21, 2)):
        ranges.add(first, count, "no time left")
    ranges.add(23, 1, "too large")
    assert list(ranges) == [
        "lines 17-19: no time left",
        "lines 21-22: no time left",
        "line 23: too large",
    ]
    assert ranges.count == 6


def test_beyond_the_limit_the_number_of_lines_is_kept_and_where_they_are() -> None:
    ranges = LineRanges()
    for line in range(1, 2 * RUNS_MAX + 11, 2):
        ranges.add(line, 1, "refused")
    said = list(ranges)
    assert len(said) == RUNS_MAX + 2
    assert said[-2:] == ["and 4 more in lines 41-47", "line 49: refused"]
    assert ranges.count == RUNS_MAX + 5


def test_the_last_run_has_its_reason_however_many_come_before() -> None:
    ranges = LineRanges()
    for line in range(1, 2 * RUNS_MAX + 3, 2):
        ranges.add(line, 1, "too large")
    assert list(ranges)[-1] == "line 41: too large", "one more than the limit is told, too"
    ranges.add(43, 1, "not authorized")
    ranges.add(44, 6, "not authorized")
    assert list(ranges)[-2:] == ["and 1 more in line 41", "lines 43-49: not authorized"]
