"""Generations of groups as control events: whatever is absorbed when, the last one holds."""

from hypothesis import given
from hypothesis import strategies as st

from segbroker.protocol.vendor import unpack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.control import Event, apply, decode_event
from segbroker.segments.metadata.generations import (
    GENERATION,
    SECTION,
    Generation,
    KeptMember,
    changed,
    generations_in,
    has_members,
    number_of,
)
from segbroker.segments.metadata.group_rows import Content
from segbroker.segments.metadata.metadata import Metadata, decode_metadata

text = st.text(st.characters(codec="utf-8"), max_size=5)
members = st.builds(
    KeptMember,
    text,
    st.none() | text,
    text,
    text,
    st.integers(1, 1 << 31),
    st.integers(0, 1 << 31),
    st.dictionaries(text, st.binary(max_size=5), max_size=3),
    st.binary(max_size=5),
)
generations = st.builds(
    Generation,
    st.integers(1, 1 << 31),
    text,
    text,
    text,
    st.lists(members, max_size=3).map(tuple),
    st.dictionaries(text, st.integers(0, 1 << 31), max_size=3),
)
changes = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | generations), max_size=8)

ALONE = Generation(
    3, "consumer", "range", "m", (KeptMember("m", None, "c", "h", 1, 2, {"range": b"t"}, b"all"),)
)


def event(seq: int, group: str, kept: Generation | None) -> Event:
    fields = {"members": None} if kept is None else kept.fields()
    return Event(seq, GENERATION, {"group": group, **fields})


@given(changes, st.integers(0, 8))
def test_what_is_known_is_the_last_that_was_said_of_each_group(
    said: list[tuple[str, Generation | None]], absorbed: int
) -> None:
    state = Metadata("cluster")
    for seq, (group, kept) in enumerate(said, 1):
        state = apply(state, decode_event(event(seq, group, kept).encode()))
        if seq == absorbed:
            state = decode_metadata(state.encode(), "snapshot")
    wanted = {group: kept for group, kept in dict(said).items() if kept is not None}
    content: Content | None = state.sections.get(SECTION)
    assert dict(generations_in(content)) == wanted
    for group in ("a", "b"):
        kept = wanted.get(group)
        assert number_of(content, group) == (0 if kept is None else kept.number)
        assert has_members(content, group) == (kept is not None and bool(kept.members))


@given(changes)
def test_a_second_time_changes_nothing_and_what_was_given_stays(
    said: list[tuple[str, Generation | None]],
) -> None:
    content: Content | None = None
    for group, kept in said:
        fields = event(1, group, kept).fields
        before = dict(content or {})
        once = changed(content, [fields])
        assert changed(once, [fields]) == once
        assert dict(content or {}) == before
        content = once
    events = [event(1, group, kept).fields for group, kept in said]
    assert changed(None, events) == (content or {}), "several at once are the same"


def test_a_generation_is_in_the_event_by_name() -> None:
    assert unpack(event(7, "g", ALONE).encode()) == {
        "seq": 7,
        "kind": "generation",
        "group": "g",
        "generation": 3,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader": "m",
        "members": [["m", None, "c", "h", 1, 2, {"range": b"t"}, b"all"]],
    }
    behind = ALONE._replace(earlier={"m": 2})
    assert behind.fields() == ALONE.fields() | {"earlier": {"m": 2}}


def test_a_generation_is_there_after_a_kill_a_power_cut_and_a_clean_close() -> None:
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.record_now(GENERATION, group="g", **ALONE.fields())
    images = [disk.after_kill(), disk.after_power_cut()]
    manager.close()
    for image in (*images, disk):
        with DiskManager("/data", storage=image, flushers=0) as again:
            assert dict(generations_in(again.section(SECTION))) == {"g": ALONE}
