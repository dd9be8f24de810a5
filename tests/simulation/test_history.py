"""The checker of a history: what counts as out of order, and what a gap excuses."""

import pytest

from .history import Final, History

KEY = ("t", 0)


@pytest.mark.parametrize(
    ("stored", "gaps", "names"),
    [
        ("0 1 2 3", [], []),
        ("0 2 1 3", [], ["reordered"]),
        # It was in the gap, and was sent again behind what survived.
        ("0 - 2 1 3", [(1, 2, "damaged")], []),
        ("- 1 2 0 3", [(0, 1, "damaged")], []),
        # The gap is behind where it would have been.
        ("0 2 - 1 3", [(2, 3, "damaged")], ["reordered"]),
    ],
)
def test_the_order_of_sending_is_kept_but_for_what_a_gap_took(
    stored: str, gaps: list[tuple[int, int, str]], names: list[str]
) -> None:
    history = History()
    rows = [(at, value.encode()) for at, value in enumerate(stored.split()) if value != "-"]
    for number in range(4):
        history.sent("p", KEY, b"%d" % number)
    for offset, value in rows:
        history.acked(KEY, value, offset)
    history.final(KEY, Final(0, len(stored.split()), rows, gaps))
    assert [one.name for one in history.anomalies()] == names


@pytest.mark.parametrize(("gap", "names"), [(1, []), (2, ["reordered"])])
def test_a_gap_that_was_evicted_since_excuses_too(gap: int, names: list[str]) -> None:
    history = History()
    for number in range(4):
        history.sent("p", KEY, b"%d" % number)
    history.promises["t"].permitted_gaps.add("cap")
    history.saw_gap(KEY, gap)
    history.final(KEY, Final(2, 5, [(2, b"2"), (3, b"1"), (4, b"3")]))
    assert [one.name for one in history.anomalies()] == names
