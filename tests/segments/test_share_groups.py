"""What is kept of share groups: events to a section, against a model of one fate an offset."""

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from segbroker.segments.share_groups import (
    RecordState,
    ShareRow,
    ShareState,
    Span,
    all_of,
    forgotten,
    offsets_set,
    offsets_set_fields,
    overlaid,
    state_of,
    states,
    states_fields,
)

ID, OTHER = UUID(int=1), UUID(int=2)
OFFSET_MAX = 30


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Ascending, apart from each other."""
    edges = sorted(draw(st.sets(st.integers(0, OFFSET_MAX), max_size=12)))
    found = []
    for first, after in pairwise(edges):
        if draw(st.booleans()):
            state = draw(st.sampled_from([s for s in RecordState if s is not RecordState.ACQUIRED]))
            found.append(Span(first, after - 1, int(state), draw(st.integers(0, 2))))
    return found


def by_offset(rows: list[Span]) -> dict[int, tuple[int, int]]:
    return {
        offset: (row.state, row.deliveries)
        for row in rows
        for offset in range(row.first, row.last + 1)
    }


@given(spans(), spans(), st.integers(0, OFFSET_MAX))
def test_spans_laid_over_others_are_as_offset_by_offset(
    known: list[Span], above: list[Span], start: int
) -> None:
    found = [Span(*row) for row in overlaid(known, above, start)]
    expected = {o: f for o, f in (by_offset(known) | by_offset(above)).items() if o >= start}
    assert by_offset(found) == expected
    for one, after in pairwise(found):
        assert one.last < after.first
        assert one.last + 1 < after.first or one[2:] != after[2:], "neighbours with one fate"


def test_events_to_a_section_and_back() -> None:
    rows = [ShareRow("t", ID, 3, 5, [Span(7, 9, RecordState.ACKNOWLEDGED, 1)])]
    first = states(None, states_fields("g", rows))
    assert state_of(first, "g", "t", ID, 3) == ShareState(5, (Span(7, 9, 2, 1),))
    assert list(all_of(first, "g")) == [("t", ID, 3, ShareState(5, (Span(7, 9, 2, 1),)))]
    assert state_of(first, "g", "t", OTHER, 3) is None, "another topic of that name"

    rows = [ShareRow("t", ID, 3, 8, [Span(10, 10, RecordState.AVAILABLE, 2)])]
    second = states(first, states_fields("g", rows))
    assert state_of(second, "g", "t", ID, 3) == ShareState(
        8, (Span(8, 9, 2, 1), Span(10, 10, 0, 2))
    )
    assert state_of(first, "g", "t", ID, 3) == ShareState(5, (Span(7, 9, 2, 1),)), "it stays"

    back = offsets_set(second, offsets_set_fields("g", [ShareRow("t", ID, 3, 0)]))
    assert state_of(back, "g", "t", ID, 3) == ShareState(0)
    anew = states(back, states_fields("g", [ShareRow("t", OTHER, 0, 4)]))
    assert list(all_of(anew, "g")) == [("t", OTHER, 0, ShareState(4))]

    assert "g" not in forgotten(anew, {"group": "g", "topics": ["t"]})
    assert "g" not in forgotten(anew, {"group": "g", "topics": None})
    assert "g" in forgotten(anew, {"group": "g", "topics": ["u"]})
