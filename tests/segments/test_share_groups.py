"""What is kept of share groups: events to a section, against a model of one fate an offset."""

from collections.abc import Mapping
from itertools import pairwise
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import Metadata, decode_metadata
from segbroker.segments.metadata.name_map import plain
from segbroker.segments.metadata.share_groups import (
    FORGOTTEN,
    OFFSETS_SET,
    SECTION,
    STATES,
    Content,
    RecordState,
    ShareRow,
    ShareState,
    Span,
    all_of,
    forgotten,
    grows,
    offsets_set,
    offsets_set_fields,
    overlaid,
    pieces,
    state_of,
    states,
    states_fields,
    without_topics,
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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spans(), spans(), st.integers(0, OFFSET_MAX))
@example([Span(0, 5, 2, 1)], [], 3)  # one that the start cuts
def test_spans_laid_over_others_are_as_offset_by_offset(
    before: list[Span], above: list[Span], start: int
) -> None:
    known = [Span(*row) for row in overlaid([], before, 0)]
    found = [Span(*row) for row in overlaid(known, above, start)]
    expected = {o: f for o, f in (by_offset(before) | by_offset(above)).items() if o >= start}
    assert by_offset(found) == expected
    assert all(one.first <= one.last for one in found)
    for one, after in pairwise(found):
        assert one.last < after.first
        assert one.last + 1 < after.first or one[2:] != after[2:], "neighbours with one fate"


def test_of_two_acknowledgements_that_were_under_way_the_farther_start_stands() -> None:
    first = states(None, states_fields("g", [ShareRow("t", ID, 0, 9)]))
    second = states(first, states_fields("g", [ShareRow("t", ID, 0, 5, [Span(5, 7, 2, 1)])]))
    assert state_of(second, "g", "t", ID, 0) == ShareState(9)


def test_the_start_moves_over_what_was_done_behind_it() -> None:
    first = states(None, states_fields("g", [ShareRow("t", ID, 0, 5, [Span(7, 8, 2, 1)])]))
    rows = [ShareRow("t", ID, 0, 5, [Span(5, 6, 2, 1), Span(9, 9, 4, 3), Span(11, 11, 2, 1)])]
    second = states(first, states_fields("g", rows))
    assert state_of(second, "g", "t", ID, 0) == ShareState(10, (Span(11, 11, 2, 1),))


def test_what_is_laid_over_leaves_what_it_was_laid_over_as_it_was() -> None:
    known = [[n, n, 2, 1] for n in range(0, 40, 2)]
    was = [list(span) for span in known]
    found = overlaid(known, [Span(9, 11, 2, 1)], 5)
    assert found == [[6, 6, 2, 1], [8, 12, 2, 1], *([n, n, 2, 1] for n in range(14, 40, 2))]
    assert known == was
    assert overlaid(known, [], 39) == []


def test_events_to_a_section_and_back() -> None:
    rows = [ShareRow("t", ID, 3, 5, [Span(7, 9, RecordState.ACKNOWLEDGED, 1)])]
    first = states(None, states_fields("g", rows))
    assert state_of(first, "g", "t", ID, 3) == ShareState(5, (Span(7, 9, 2, 1),))
    assert list(all_of(first, "g")) == [("t", ID, 3, ShareState(5, (Span(7, 9, 2, 1),)))]
    assert state_of(first, "g", "t", OTHER, 3) is None, "another topic of that name"

    rows = [ShareRow("t", ID, 3, 6, [Span(10, 10, RecordState.AVAILABLE, 2)])]
    second = states(first, states_fields("g", rows))
    assert state_of(second, "g", "t", ID, 3) == ShareState(
        6, (Span(7, 9, 2, 1), Span(10, 10, 0, 2))
    )
    assert state_of(first, "g", "t", ID, 3) == ShareState(5, (Span(7, 9, 2, 1),)), "it stays"

    back = offsets_set(second, offsets_set_fields("g", [ShareRow("t", ID, 3, 0)]))
    assert state_of(back, "g", "t", ID, 3) == ShareState(0)
    anew = states(back, states_fields("g", [ShareRow("t", OTHER, 0, 4)]))
    assert list(all_of(anew, "g")) == [("t", OTHER, 0, ShareState(4))]

    assert "g" not in forgotten(anew, {"group": "g", "topics": ["t"]})
    assert "g" not in forgotten(anew, {"group": "g", "topics": None})
    assert "g" in forgotten(anew, {"group": "g", "topics": ["u"]})


@st.composite
def share_rows(draw: st.DrawFn) -> list[ShareRow]:
    places = draw(st.lists(st.tuples(st.sampled_from("tuv"), st.integers(0, 3)), unique=True))
    return [
        ShareRow(topic, ID, partition, draw(st.integers(0, OFFSET_MAX)), draw(spans()))
        for topic, partition in places
    ]


@given(share_rows(), share_rows(), st.integers(220, 700))
def test_rows_in_several_events_are_as_in_one_and_each_is_of_limited_size(
    known: list[ShareRow], rows: list[ShareRow], size_max: int
) -> None:
    before = states(None, states_fields("g", known))
    found = before
    for piece in pieces("g", rows, size_max):
        fields = states_fields("g", piece)
        assert len(Event(2**63, STATES, fields).encode()) <= size_max
        found = states(found, fields)
    assert plain(found) == plain(states(before, states_fields("g", rows)))


def test_a_row_of_more_spans_than_an_event_has_room_for_becomes_several() -> None:
    far = [Span(2**62 + 2 * n, 2**62 + 2 * n, 2, 32_767) for n in range(100)]
    found = list(pieces("g", [ShareRow("t", ID, 0, 5, far)], 1_000))
    assert [span for piece in found for row in piece for span in row.spans] == far
    assert {row.start for piece in found for row in piece} == {5}
    for piece in found:
        assert len(Event(2**63, STATES, states_fields("g", piece)).encode()) <= 1_000


def test_an_event_has_at_most_a_thousand_rows() -> None:
    rows = [ShareRow("t", ID, partition, 0) for partition in range(2_001)]
    assert [len(piece) for piece in pieces("g", rows, 1 << 20)] == [1_000, 1_000, 1]


def test_what_grows_is_a_row_that_is_not_there() -> None:
    known = states(None, states_fields("g", [ShareRow("t", ID, 0, 5)]))
    assert not grows(known, "g", ShareRow("t", ID, 0, 7))
    assert grows(known, "g", ShareRow("t", ID, 1, 7))
    assert grows(known, "g", ShareRow("t", OTHER, 0, 7)), "another topic of that name"
    assert grows(known, "h", ShareRow("t", ID, 0, 7))


def test_a_group_without_rows_is_none() -> None:
    assert plain(states(None, states_fields("g", []))) == {}
    one = states(None, states_fields("g", [ShareRow("t", ID, 0, 5), ShareRow("u", ID, 0, 5)]))
    assert list(without_topics(one, ["t"])["g"]) == ["u"]
    assert plain(without_topics(one, ["t", "u", "v"])) == {}


def created(name: str, topic_id: UUID) -> tuple[str, Mapping[str, object]]:
    fields = {"name": name, "id": topic_id.bytes, "partitions": 1, "epoch": 0, "config": {}}
    return "topic_created", fields


def known_after(*events: tuple[str, Mapping[str, object]]) -> Content:
    """What is known of share groups after these, and again from the snapshot of that."""
    state = apply_all(
        Metadata("cluster"), [Event(seq, *event) for seq, event in enumerate(events, 1)]
    )
    found: Content = plain(state.sections.get(SECTION, {}))
    stored = decode_metadata(state.encode(), "snapshot").sections.get(SECTION, {})
    assert stored == {
        group: {topic: list(rows) for topic, rows in topics.items()}
        for group, topics in found.items()
    }
    return found


def test_what_share_groups_did_with_a_topic_goes_with_it() -> None:
    here = [created("t", ID), created("u", OTHER)]
    row, other = ShareRow("t", ID, 0, 5), ShareRow("u", OTHER, 0, 7)
    did = (STATES, states_fields("g", [row, other]))
    deleted = ("topic_deleted", {"name": "t", "id": ID.bytes})
    left = {"g": {"u": [OTHER.bytes, {"0": [7, []]}]}}
    assert known_after(*here, did, deleted) == left
    assert known_after(*here, did, deleted, created("t", UUID(int=3))) == left


def test_what_comes_behind_the_deletion_of_a_topic_is_passed_over() -> None:
    row = ShareRow("t", ID, 0, 5, [Span(6, 6, 2, 1)])
    deleted = ("topic_deleted", {"name": "t", "id": ID.bytes})
    for late in (
        (STATES, states_fields("g", [row])),
        (OFFSETS_SET, offsets_set_fields("g", [row])),
    ):
        assert known_after(created("t", ID), deleted, late) == {}
        assert known_after(created("t", ID), deleted, created("t", OTHER), late) == {}
        assert known_after(created("t", ID), late) != {}


def test_groups_of_which_all_is_forgotten_are_gone() -> None:
    row = ShareRow("t", ID, 0, 5)
    did = (STATES, states_fields("g", [row]))
    assert known_after(created("t", ID), did, (FORGOTTEN, {"group": "g", "topics": None})) == {}
