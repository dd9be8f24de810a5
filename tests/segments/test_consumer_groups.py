"""KIP-848 groups as control events: what was said last of each holds, whatever is absorbed when."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.protocol.vendor import unpack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.consumer_groups import (
    CONSUMER_GROUP,
    SECTION,
    Classic,
    Has,
    KeptGroup,
    Says,
    changed,
    groups_in,
    has_members,
)
from segbroker.segments.metadata.control import Event, apply, apply_all, decode_event
from segbroker.segments.metadata.generations import GENERATION, Generation, KeptMember
from segbroker.segments.metadata.generations import SECTION as GENERATIONS
from segbroker.segments.metadata.group_rows import Content, epoch_of
from segbroker.segments.metadata.metadata import Metadata, decode_metadata

text = st.text(st.characters(codec="utf-8"), max_size=5)
partitions = st.sets(
    st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 3)), max_size=3
).map(lambda some: tuple(sorted(some)))
says = st.builds(
    Says,
    st.none() | text,
    st.none() | text,
    text,
    text,
    st.integers(0, 1 << 31),
    st.frozensets(text, max_size=3),
    text,
    text,
    st.none() | text,
    st.none()
    | st.builds(
        Classic,
        st.integers(0, 1 << 31),
        st.dictionaries(text, st.binary(max_size=5), max_size=2),
    ),
)


def _since_epochs(one: Has) -> st.SearchStrategy[Has]:
    size = len(one.assigned + one.revoking)
    epochs = st.integers(1, 3)
    drawn = st.lists(epochs, min_size=size, max_size=size) | epochs.map(lambda same: [same] * size)
    # All since its own epoch is what is known where nothing is said of it.
    return drawn.map(lambda some: one._replace(since=() if {*some} <= {one.epoch} else (*some,)))


has = st.builds(
    Has, st.integers(-2, 9), st.integers(-1, 99), text, partitions, partitions, partitions
).flatmap(_since_epochs)
rows = st.dictionaries(st.sampled_from(["m", "n", "o"]), st.none() | st.tuples(says, has))
changes = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.none() | st.tuples(st.integers(1, 99), st.booleans(), rows)
    ),
    max_size=8,
)

ONE = Says(None, "r", "c", "h", 60_000, frozenset(["t"]), "", "", "uniform")
READS = Has(3, 2, "stable", ((b"i" * 16, 0), (b"i" * 16, 1)), (), ((b"i" * 16, 0),))


def event(seq: int, group: str, said: tuple[int, bool, Any] | None) -> Event:
    """said: epoch, whole, rows by member id; None: nothing is known of it."""
    if said is None:
        return Event(seq, CONSUMER_GROUP, {"group": group, "epoch": None})
    epoch, whole, some = said
    fields = {
        "group": group,
        "epoch": epoch,
        "assignment_epoch": epoch,
        "assignor": "uniform",
        "whole": whole,
        "says": {name: None if row is None else row[0].row() for name, row in some.items()},
        "has": {name: row[1].row() for name, row in some.items() if row is not None},
    }
    classic = {name: row[0].classic.row() for name, row in some.items() if row and row[0].classic}
    if classic:
        fields["classic"] = classic
    since = {name: row[1].since_row() for name, row in some.items() if row and row[1].since}
    if since:
        fields["since"] = since
    return Event(seq, CONSUMER_GROUP, fields)


def wanted_of(said: list[tuple[str, tuple[int, bool, Any] | None]]) -> dict[str, KeptGroup]:
    found: dict[str, KeptGroup] = {}
    for group, change in said:
        if change is None:
            found.pop(group, None)
            continue
        epoch, whole, some = change
        before = found.get(group)
        members = {} if whole or before is None else dict(before.members)
        for name, row in some.items():
            members.pop(name, None)
            if row is not None:
                members[name] = row
        found[group] = KeptGroup(epoch, epoch, "uniform", members)
    return found


@settings(max_examples=40)
@given(changes, st.integers(0, 8))
def test_what_is_known_is_what_was_said_last_of_each_member(
    said: list[tuple[str, tuple[int, bool, Any] | None]], absorbed: int
) -> None:
    state = Metadata("cluster")
    for seq, (group, change) in enumerate(said, 1):
        state = apply(state, decode_event(event(seq, group, change).encode()))
        if seq == absorbed:
            state = decode_metadata(state.encode(), "snapshot")
    wanted = wanted_of(said)
    content: Content | None = state.sections.get(SECTION)
    assert dict(groups_in(content)) == wanted
    for group in ("a", "b"):
        kept = wanted.get(group)
        assert epoch_of(content, group) == (0 if kept is None else kept.epoch)
        assert has_members(content, group) == (kept is not None and bool(kept.members))


@settings(max_examples=40)
@given(changes)
def test_a_second_time_changes_nothing_and_what_was_given_stays(
    said: list[tuple[str, tuple[int, bool, Any] | None]],
) -> None:
    events = [event(seq, *change) for seq, change in enumerate(said, 1)]
    state = apply_all(Metadata("cluster"), events)
    before = state.encode()
    for begin in range(len(events)):
        assert apply_all(state, events[begin:]) == state
    assert state.encode() == before
    content: Content | None = None
    for one in events:
        content = changed(content, [one.fields])
    assert content == (state.sections.get(SECTION) or content), "several at once are the same"


def test_a_group_is_in_the_event_by_name() -> None:
    assert unpack(event(7, "g", (3, False, {"m": (ONE, READS), "n": None})).encode()) == {
        "seq": 7,
        "kind": "consumer_group",
        "group": "g",
        "epoch": 3,
        "assignment_epoch": 3,
        "assignor": "uniform",
        "whole": False,
        "says": {"m": [None, "r", "c", "h", 60_000, ["t"], "", "", "uniform"], "n": None},
        "has": {"m": [3, 2, "stable", [[b"i" * 16, [0, 1]]], [], [[b"i" * 16, [0]]]]},
    }


def test_since_when_is_in_the_event_where_it_is_not_the_members_epoch() -> None:
    fields = event(7, "g", (3, False, {"m": (ONE, READS._replace(since=(2, 2)))})).fields
    assert fields["since"] == {"m": 2}
    fields = event(7, "g", (3, False, {"m": (ONE, READS._replace(since=(3, 2)))})).fields
    assert fields["since"] == {"m": [3, 2]}
    assert READS._replace(since=(3, 3)).since_row() is None
    (one, other) = READS.assigned
    assert READS.since_each == {one: 3, other: 3}
    assert READS._replace(since=(3, 2)).since_each == {one: 3, other: 2}


def test_what_an_older_version_says_of_a_member_leaves_nothing_of_since_when() -> None:
    content = changed(
        None, [event(1, "g", (3, True, {"m": (ONE, READS._replace(since=(1, 1)))})).fields]
    )
    assert content["g"]["since"] == {"m": 1}
    content = changed(content, [event(2, "g", (4, False, {"m": (ONE, READS)})).fields])
    assert "since" not in content["g"]
    content = changed(
        content, [event(3, "g", (4, False, {"m": (ONE, READS._replace(since=(1, 2)))})).fields]
    )
    assert "since" not in changed(content, [event(4, "g", (5, False, {"m": None})).fields])["g"]


def test_a_group_is_of_the_protocol_that_was_written_down_last() -> None:
    member = KeptMember("m", None, "c", "h", 1, 2, {"range": b""}, b"")
    classic = Generation(5, "consumer", "range", "m", (member,))
    state = Metadata("cluster")
    for seq in (1, 3):
        fields = {"group": "g", **classic.fields()}
        state = apply(state, Event(seq, GENERATION, fields))
        assert (list(state.sections[GENERATIONS]), dict(state.sections.get(SECTION) or {})) == (
            ["g"],
            {},
        )
        state = apply(state, event(seq + 1, "g", (6, True, {"m": (ONE, READS)})))
        assert (dict(state.sections[GENERATIONS]), list(state.sections[SECTION])) == ({}, ["g"])


def test_a_partition_that_two_have_is_a_sign_of_a_lost_event() -> None:
    twice = {"m": (ONE, READS), "n": (ONE, READS)}
    assert not KeptGroup(3, 3, "uniform", twice).is_sound
    assert KeptGroup(3, 3, "uniform", {"m": (ONE, READS)}).is_sound


def test_a_group_is_there_after_a_kill_a_power_cut_and_a_clean_close() -> None:
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.record_now(CONSUMER_GROUP, **event(1, "g", (3, True, {"m": (ONE, READS)})).fields)
    images = [disk.after_kill(), disk.after_power_cut()]
    manager.close()
    for image in (*images, disk):
        with DiskManager("/data", storage=image, flushers=0) as again:
            kept = dict(groups_in(again.section(SECTION)))
            assert kept == {"g": KeptGroup(3, 3, "uniform", {"m": (ONE, READS)})}
