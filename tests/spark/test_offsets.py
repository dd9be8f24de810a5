"""Offsets: their JSON, fair shares and the cutting of ranges."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from segbroker.spark.offsets import (
    OffsetRange,
    Offsets,
    fair_share,
    offsets_from_json,
    split_ranges,
)

CLICKS = UUID("8cf32667-669a-4d32-ae32-d6a84d4c1541")


def test_offsets_are_kafkas_json_and_the_topic_ids() -> None:
    offsets = Offsets({("clicks", 10): 7, ("clicks", 2): 4711, ("views", 0): 0}, {"clicks": CLICKS})
    assert offsets.to_json() == {
        "clicks": {"2": 4711, "10": 7},
        "views": {"0": 0},
        "$topic_ids": {"clicks": "jPMmZ2aaTTKuMtaoTUwVQQ"},
    }
    assert offsets_from_json(offsets.to_json()) == offsets


def test_where_a_first_batch_began_is_no_topic() -> None:
    at = {"clicks": {"0": 7}}
    start = {"clicks": {"0": 5}, "$topic_ids": {"clicks": "jPMmZ2aaTTKuMtaoTUwVQQ"}}
    assert offsets_from_json({**at, "$start": start}) == offsets_from_json(at)


def test_the_offsets_of_a_broker_without_topic_ids_are_kafkas_alone() -> None:
    offsets = Offsets({("clicks", 0): 5})
    assert offsets.to_json() == {"clicks": {"0": 5}}
    assert offsets_from_json({"clicks": {"0": 5}}) == offsets


def test_ids_of_topics_without_offsets_are_left_out() -> None:
    assert Offsets({}, {"clicks": CLICKS}).to_json() == {}


def test_a_limit_is_split_in_proportion_to_the_backlog() -> None:
    start = {("t", 0): 0, ("t", 1): 1000, ("t", 2): 50}
    end = {("t", 0): 300, ("t", 1): 1100, ("t", 2): 50}
    # Backlogs 300, 100 and 0 share 40 offsets: 30, 10 and none.
    assert fair_share(start, end, 40) == {("t", 0): 30, ("t", 1): 1010, ("t", 2): 50}


def test_a_small_backlog_gets_at_least_one_offset() -> None:
    start = {("t", 0): 0, ("t", 1): 0}
    end = {("t", 0): 1_000_000, ("t", 1): 3}
    assert fair_share(start, end, 10) == {("t", 0): 10, ("t", 1): 1}


def test_what_fits_the_limit_is_read_to_the_end() -> None:
    start, end = {("t", 0): 5}, {("t", 0): 15}
    assert fair_share(start, end, 10) == end


def test_a_log_that_was_cut_is_followed_back() -> None:
    start = {("t", 0): 100, ("t", 1): 0}
    end = {("t", 0): 40, ("t", 1): 50}
    assert fair_share(start, end, 10) == {("t", 0): 40, ("t", 1): 10}


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20),
    st.integers(1, 10**6),
)
def test_shares_stay_inside_the_backlog_and_about_the_limit(
    backlogs: list[tuple[int, int]], limit: int
) -> None:
    start = {("t", n): begin for n, (begin, _) in enumerate(backlogs)}
    end = {("t", n): begin + size for n, (begin, size) in enumerate(backlogs)}
    share = fair_share(start, end, limit)
    taken = {key: share[key] - start[key] for key in share}
    waiting = [key for key in end if end[key] > start[key]]
    assert all(0 <= taken[key] <= end[key] - start[key] for key in end)
    assert all(taken[key] >= 1 for key in waiting)
    total = sum(end[key] - start[key] for key in end)
    assert min(limit, total) <= sum(taken.values()) <= limit + len(waiting)


def test_ranges_are_cut_until_there_are_enough_the_larger_the_more() -> None:
    ranges = [OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 500, 510)]
    assert split_ranges(ranges, 4) == [
        OffsetRange("t", 0, 0, 22),
        OffsetRange("t", 0, 22, 45),
        OffsetRange("t", 0, 45, 67),
        OffsetRange("t", 0, 67, 90),
        OffsetRange("t", 1, 500, 510),
    ]


def test_ranges_are_left_whole_without_a_wish_and_empty_ones_dropped() -> None:
    ranges = [OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 5, 5)]
    assert split_ranges(ranges, None) == ranges[:1]
    assert split_ranges(ranges, 1) == ranges[:1]
    assert split_ranges([], 4) == []


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=10),
    st.integers(1, 50),
)
def test_cut_ranges_are_the_same_offsets(sizes: list[tuple[int, int]], wish: int) -> None:
    ranges = [OffsetRange("t", n, begin, begin + size) for n, (begin, size) in enumerate(sizes)]
    pieces = split_ranges(ranges, wish)
    for each in ranges:
        mine = [piece for piece in pieces if piece.partition == each.partition]
        assert [o for piece in mine for o in range(piece.start, piece.end)] == list(
            range(each.start, each.end)
        )
    assert len(pieces) >= min(wish, sum(each.size for each in ranges))
