"""Streams groups as control events: what is known is what was said last."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.segments.metadata.consumer_groups import CONSUMER_GROUP
from segbroker.segments.metadata.consumer_groups import SECTION as CONSUMERS
from segbroker.segments.metadata.control import Event, apply, apply_all, decode_event
from segbroker.segments.metadata.generations import GENERATION
from segbroker.segments.metadata.generations import SECTION as GENERATIONS
from segbroker.segments.metadata.group_rows import epoch_of
from segbroker.segments.metadata.metadata import Metadata, decode_metadata
from segbroker.segments.metadata.streams_groups import (
    SECTION,
    STREAMS_GROUP,
    KeptMember,
    KeptStreams,
    groups_in,
    has_members,
)

TASKS = st.frozensets(st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 5)), max_size=4)
TOPOLOGY = [0, [["0", ["t"], [], [], [["log", 0, 1, [["a", "b"]]]], [["t"]]]]]


@st.composite
def members(draw: st.DrawFn) -> KeptMember:
    says = ["c", "h", None, 10, 0, draw(st.sampled_from("pq")), ["host", 80], [["zone", "a"]]]
    assigned, standby = draw(TASKS), draw(TASKS)
    revoking = draw(TASKS) - assigned
    since = {task: draw(st.integers(1, 9)) for task in assigned | revoking}
    target = (draw(TASKS), draw(TASKS))
    return KeptMember(
        says, 3, 2, "stable", (assigned, standby), (revoking, draw(TASKS)), target, since
    )


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.none()
        | st.tuples(
            st.integers(1, 99),
            st.booleans(),
            st.none() | st.just(TOPOLOGY),
            st.dictionaries(st.sampled_from("mno"), st.none() | members()),
        ),
    ),
    max_size=8,
)


def event(seq: int, group: str, said: Any) -> Event:  # noqa: ANN401  as drawn
    if said is None:
        return Event(seq, STREAMS_GROUP, {"group": group, "epoch": None})
    epoch, whole, topology, rows = said
    fields = {
        "group": group,
        "epoch": epoch,
        "assignment_epoch": epoch,
        "topology": topology,
        "whole": whole,
        "members": {name: None if row is None else row.row() for name, row in rows.items()},
    }
    return Event(seq, STREAMS_GROUP, fields)


def wanted_of(said: list[tuple[str, Any]]) -> dict[str, KeptStreams]:
    found: dict[str, KeptStreams] = {}
    for group, change in said:
        if change is None:
            found.pop(group, None)
            continue
        epoch, whole, topology, rows = change
        before = None if whole else found.get(group)
        kept = {} if before is None else dict(before.members)
        for name, row in rows.items():
            kept.pop(name, None)
            if row is not None:
                kept[name] = row
        if topology is None and before is not None:
            topology = before.topology
        found[group] = KeptStreams(epoch, epoch, topology, kept)
    return found


@settings(max_examples=60)
@given(CHANGES, st.integers(0, 8))
def test_what_is_known_is_what_was_said_last_of_each_member(
    said: list[tuple[str, Any]], absorbed: int
) -> None:
    state = Metadata("cluster")
    for seq, (group, change) in enumerate(said, 1):
        state = apply(state, decode_event(event(seq, group, change).encode()))
        if seq == absorbed:
            state = decode_metadata(state.encode(), "snapshot")
    wanted, content = wanted_of(said), state.sections.get(SECTION)
    assert dict(groups_in(content)) == wanted
    for group in ("a", "b"):
        kept = wanted.get(group)
        assert epoch_of(content, group) == (0 if kept is None else kept.epoch)
        assert has_members(content, group) == (kept is not None and bool(kept.members))


@settings(max_examples=40)
@given(CHANGES)
def test_a_second_time_changes_nothing_and_what_was_given_stays(
    said: list[tuple[str, Any]],
) -> None:
    events = [event(seq, *change) for seq, change in enumerate(said, 1)]
    state = apply_all(Metadata("cluster"), events)
    before = state.encode()
    for begin in range(len(events)):
        assert apply_all(state, events[begin:]) == state
    assert state.encode() == before


def member(active: set[int], copies: set[int] | None = None, process: str = "p") -> KeptMember:
    tasks = frozenset(("0", n) for n in active)
    standby = frozenset(("0", n) for n in copies or ())
    says: list[Any] = ["c", "h", None, 10, 0, process, None, []]
    empty: frozenset[tuple[str, int]] = frozenset()
    since = dict.fromkeys(tasks, 1)
    return KeptMember(
        says, 1, 0, "stable", (tasks, standby), (empty, empty), (tasks, standby), since
    )


def test_a_group_in_which_two_do_one_task_is_not_sound() -> None:
    def of(*some: KeptMember, topology: list[Any] | None = TOPOLOGY) -> bool:
        rows = {str(n): one for n, one in enumerate(some)}
        return KeptStreams(1, 1, topology, rows).is_sound

    assert of()
    assert of(member({0, 1}), member({2}, {0}, "q"))
    assert not of(member({0, 1}), member({1}))
    assert not of(member({0}, {1}), member({2}, {1}))
    assert not of(member({0}), topology=None)
    assert of(topology=None)


def test_a_group_is_of_one_protocol() -> None:
    streams = event(1, "a", (1, True, TOPOLOGY, {}))
    consumer = Event(
        2,
        CONSUMER_GROUP,
        {
            "group": "a",
            "epoch": 2,
            "assignment_epoch": 2,
            "assignor": "uniform",
            "whole": True,
            "says": {},
            "has": {},
        },
    )
    classic = Event(
        3,
        GENERATION,
        {
            "group": "a",
            "generation": 3,
            "protocol_type": "consumer",
            "protocol": "",
            "leader": "",
            "members": [],
        },
    )
    for events, where in (
        ([streams, consumer], CONSUMERS),
        ([streams, classic], GENERATIONS),
        ([consumer, streams], SECTION),
        ([classic, streams], SECTION),
    ):
        state = apply_all(Metadata("cluster"), events)
        found = {name for name in (SECTION, CONSUMERS, GENERATIONS) if state.sections.get(name)}
        assert found == {where}
