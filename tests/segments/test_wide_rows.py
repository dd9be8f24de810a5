"""What a group knows of a topic of many partitions: a change of one copies a few of its rows."""

import gc
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segbroker.segments.errors import UnsupportedFormat
from segbroker.segments.metadata import committed, share_groups
from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import Metadata, TopicMeta, decode_metadata
from segbroker.segments.metadata.name_map import NameMap
from segbroker.segments.metadata.wide_rows import (
    WIDE_MIN,
    Topics,
    WideRows,
    changed_rows,
    plain_rows,
    taken_up,
)
from segbroker.segments.settings.topic_config import TopicConfig

TOPIC_ID = UUID(int=7)
PARTITIONS = 20_000
PARTITION = st.sampled_from([0, 1, 255, 256, 1_000, 99_999]).map(str)
CHANGES = st.lists(st.tuples(st.dictionaries(PARTITION, st.integers()), st.sets(PARTITION)))


@given(CHANGES)
def test_it_is_as_a_dict_after_any_changes_and_what_was_there_stays(
    changes: list[tuple[dict[str, int], set[str]]],
) -> None:
    expected: dict[str, int] = {}
    rows: WideRows[str, int] = WideRows.of({})
    for put, gone in changes:
        before, was = rows, dict(expected)
        expected = {name: row for name, row in {**expected, **put}.items() if name not in gone}
        rows = rows.changed(put, gone)
        assert rows == expected == changed_rows(was, put, gone)
        assert (len(rows), bool(rows)) == (len(expected), bool(expected))
        assert sorted(rows.items()) == sorted(expected.items())
        assert sorted(rows.values()) == sorted(expected.values())
        assert before == was


def test_few_rows_are_a_dict_and_many_are_stored_as_one() -> None:
    few = changed_rows({}, {str(n): n for n in range(WIDE_MIN - 1)})
    many = changed_rows(few, {"100000": 1})
    assert type(few) is dict
    assert isinstance(many, WideRows)
    kept: NameMap[Topics] = NameMap.of(
        {"g": {"few": [b"", few], "many": [b"", many]}, "h": {"few": [b"", few]}}
    )
    stored = plain_rows(kept)
    assert type(stored["g"]["many"][1]) is dict
    assert stored["h"] is kept["h"]
    assert taken_up(stored) == kept == stored
    assert isinstance(taken_up(stored)["g"]["many"][1], WideRows)


@pytest.mark.parametrize("start_again", [False, True])
@pytest.mark.parametrize("section", [committed.SECTION, share_groups.SECTION])
def test_a_change_of_one_row_leaves_almost_all_others_where_they_are(
    section: str, start_again: bool
) -> None:
    """A commit of one offset copied a hundred thousand; so did each event that a start applies."""
    topic = TopicMeta("t", TOPIC_ID, PARTITIONS, TopicConfig.parse({}), 0)
    state = Metadata("cluster").with_topics([topic])
    state = apply_all(state, [_event(section, range(PARTITIONS))])
    if start_again:
        state = decode_metadata(state.encode(), "snapshot")
    before = state.sections[section]["g"]["t"][1]
    changes = [_event(section, [7]), _event(section, [PARTITIONS])]
    after = apply_all(state, changes).sections[section]["g"]["t"][1]
    assert (len(before), len(after)) == (PARTITIONS, PARTITIONS + 1)
    ours = {id(one) for one in _tables(before)}
    copied = [table for table in _tables(after) if id(table) not in ours]
    assert sum(map(len, copied)) < PARTITIONS / 20


@pytest.mark.parametrize("kind", ["ceilings", "epochs"])
def test_a_reservation_leaves_almost_all_others_of_a_wide_topic_where_they_are(kind: str) -> None:
    """Each partition asks for its own at its first record, and again when it is idle."""
    topic = TopicMeta("t", TOPIC_ID, PARTITIONS, TopicConfig.parse({}), 0)

    def event(partitions: "range | list[int]") -> Event:
        last = [5] if kind == "epochs" else [5, 1]
        return Event(1, kind, {"rows": [[TOPIC_ID.bytes, one, *last] for one in partitions]})

    state = apply_all(Metadata("cluster").with_topics([topic]), [event(range(PARTITIONS))])
    state = decode_metadata(state.encode(), "snapshot")
    before = getattr(state, kind)[TOPIC_ID]
    after = getattr(apply_all(state, [event([7]), event([PARTITIONS])]), kind)[TOPIC_ID]
    assert (len(before), len(after), after[7]) == (PARTITIONS, PARTITIONS + 1, after[PARTITIONS])
    ours = {id(one) for one in _tables(before)}
    copied = [table for table in _tables(after) if id(table) not in ours]
    assert sum(map(len, copied)) < PARTITIONS / 20


def _event(section: str, partitions: "range | list[int]") -> Event:
    if section == committed.SECTION:
        rows = [committed.CommitRow("t", TOPIC_ID, n, 1, 0, "").pack() for n in partitions]
        return Event(1, committed.COMMITTED, {"group": "g", "at": 5, "rows": rows})
    spans = [["t", TOPIC_ID.bytes, n, 0, [[1, 1, 2, 1]]] for n in partitions]
    return Event(1, share_groups.STATES, {"group": "g", "rows": spans})


def test_offsets_that_are_forgotten_leave_the_others_where_they_are() -> None:
    """A group whose offsets have had their time forgets a thousand with each event."""
    state = apply_all(Metadata("cluster"), [_event(committed.SECTION, range(PARTITIONS))])
    before = state.sections[committed.SECTION]["g"]["t"][1]
    event = Event(2, committed.FORGOTTEN, {"group": "g", "rows": [["t", n] for n in range(1_000)]})
    after = apply_all(state, [event]).sections[committed.SECTION]["g"]["t"][1]
    assert list(after) == list(before)[1_000:]
    ours = {id(one) for one in _tables(before)}
    copied = [table for table in _tables(after) if id(table) not in ours]
    assert sum(map(len, copied)) < PARTITIONS / 20


def _tables(rows: object) -> list[dict[object, object]]:
    """Every dict that is a part of this one."""
    if isinstance(rows, dict) and not any(isinstance(one, dict) for one in rows.values()):
        return [rows]
    inner = [one for one in gc.get_referents(rows) if isinstance(one, (dict, WideRows))]
    return [table for one in inner for table in _tables(one)] + (
        [rows] if isinstance(rows, dict) else []
    )


@pytest.mark.parametrize("section", [committed.SECTION, share_groups.SECTION])
def test_rows_by_something_else_than_partitions_are_none_of_this_version(section: str) -> None:
    row = [5, []] if section == share_groups.SECTION else [5, -1, "", 1]
    rows = {f"p{number}": row for number in range(WIDE_MIN)}
    content = {"g": {"t": [TOPIC_ID.bytes, rows]}}
    snapshot = Metadata("c", sections={section: content}).encode()
    with pytest.raises(UnsupportedFormat, match="by partition"):
        decode_metadata(snapshot, "snapshot")
