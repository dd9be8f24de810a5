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
    assert len(said) == RUNS_MAX + 1
    assert said[-1] == "and 5 more of lines 41-49"
