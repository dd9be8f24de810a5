"""The broker's assignors: everything once, evenly, with few moves, by range."""

from collections import Counter
from collections.abc import ValuesView

from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.broker.groups.server_assignors import (
    ASSIGNORS,
    Assignment,
    Partition,
    Subscriber,
    _Loads,
    _move_some,
    ranges,
    readers_of,
    uniform,
)

A, B, C = b"a", b"b", b"c"


def of(**topics: set[bytes]) -> list[Subscriber]:
    return [Subscriber(name, name, frozenset(some)) for name, some in topics.items()]


def sizes(assignment: Assignment) -> dict[str, int]:
    return {member: len(partitions) for member, partitions in assignment.items()}


def test_everybody_has_as_many_as_anybody() -> None:
    found = uniform(of(x={A}, y={A}, z={A}), {A: 7}, {})
    assert sorted(sizes(found).values()) == [2, 2, 3]


def test_who_had_a_partition_keeps_it_where_the_numbers_stay_even() -> None:
    before = uniform(of(x={A}, y={A}), {A: 6}, {})
    after = uniform(of(x={A}, y={A}, z={A}), {A: 6}, before)
    assert sizes(after) == {"x": 2, "y": 2, "z": 2}
    assert set(after["x"]) <= set(before["x"])
    assert set(after["y"]) <= set(before["y"])


def test_when_somebody_goes_only_its_partitions_move() -> None:
    before = uniform(of(x={A}, y={A}, z={A}), {A: 9}, {})
    after = uniform(of(x={A}, z={A}), {A: 9}, before)
    assert set(before["x"]) <= set(after["x"])
    assert set(before["z"]) <= set(after["z"])


def test_different_subscriptions_are_as_even_as_they_allow() -> None:
    found = uniform(of(x={A}, y={A, B}), {A: 4, B: 2}, {})
    assert sizes(found) == {"x": 3, "y": 3}
    assert uniform(of(x={A}, y={B}), {A: 4, B: 2}, found) == {
        "x": ((A, 0), (A, 1), (A, 2), (A, 3)),
        "y": ((B, 0), (B, 1)),
    }


def test_who_is_given_more_and_less_again_keeps_what_it_had_all_the_time() -> None:
    two = uniform(of(x={A}, y={A}), {A: 2, B: 2}, {})
    other = uniform(of(x={A}, y={B}), {A: 2, B: 2}, two)
    assert other["x"] == (two["x"][0], two["y"][0]), "x may still wait until y has let go of it"
    three = uniform(of(x={A}, y={B}, z={A}), {A: 2, B: 2}, other)
    assert (three["x"], three["z"]) == (two["x"], two["y"])


def test_who_gives_many_partitions_has_its_topics_looked_at_once() -> None:
    looks = 0

    class Topic(bytes):
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__hash__()

    topics: list[bytes] = [Topic(b"%d" % n) for n in range(100)]
    counts = dict.fromkeys(topics, 10)
    members = [  # no two of them subscribe to the same
        Subscriber(f"{m:02}", f"{m:02}", frozenset(topics[n] for n in range(100) if (m + n) % 20))
        for m in range(20)
    ]
    before = uniform(members[:10], counts, {})
    looks = 0
    after = uniform(members, counts, before)
    assert set(sizes(after).values()) == {50}
    # Of 1,000 partitions and 20 x 95 subscriptions; not of 500 that move times 95.
    assert looks < 30_000


def test_who_has_fewest_of_all_is_not_looked_for_again_for_each_member() -> None:
    looks = 0

    class Counted(dict[str, list[Partition]]):
        def values(self) -> ValuesView[list[Partition]]:  # type: ignore[override]
            nonlocal looks
            looks += 1
            return super().values()

    members = of(**{f"m{n}": {A, B} if n % 2 else {A} for n in range(100)})
    counts = {A: 300, B: 100}
    has = Counted({name: list(mine) for name, mine in uniform(members, counts, {}).items()})
    assert not _move_some(has, _Loads(has, readers_of(members, counts)))
    assert looks == 1, "nothing was moved meanwhile"


def test_ranges_give_the_same_numbers_of_topics_of_one_size() -> None:
    found = ranges(of(y={A, B}, x={A, B}), {A: 3, B: 3}, {})
    assert found["x"] == ((A, 0), (A, 1), (B, 0), (B, 1))
    assert found["y"] == ((A, 2), (B, 2))


def test_a_topic_without_readers_has_no_owner() -> None:
    for assign in ASSIGNORS.values():
        assert assign(of(x=set()), {A: 2}, {}) == {"x": ()}
        assert assign([], {A: 2}, {}) == {}


subscriptions = st.dictionaries(
    st.sampled_from("uvwxyz"), st.frozensets(st.sampled_from([A, B, C])), min_size=1
)
counts = st.fixed_dictionaries({A: st.integers(0, 7), B: st.integers(0, 7), C: st.integers(0, 7)})


@settings(max_examples=80, deadline=None, database=None)
@given(st.sampled_from(sorted(ASSIGNORS)), st.lists(st.tuples(subscriptions, counts), max_size=4))
def test_each_partition_of_a_subscribed_topic_has_one_owner_who_reads_it(
    name: str, rounds: list[tuple[dict[str, frozenset[bytes]], dict[bytes, int]]]
) -> None:
    previous: Assignment = {}
    for topics, sizes_of in rounds:
        members = [Subscriber(one, one, some) for one, some in topics.items()]
        found = ASSIGNORS[name](members, sizes_of, previous)
        owned = Counter(one for partitions in found.values() for one in partitions)
        read = frozenset().union(*topics.values())
        assert owned == Counter((t, n) for t in read for n in range(sizes_of[t]))
        assert all(t in topics[member] for member, mine in found.items() for t, _ in mine)
        alike = set(topics.values()) == {read}
        if name == "uniform" and alike:
            numbers = sizes(found).values()
            assert max(numbers) - min(numbers) <= 1
        previous = found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=60))
def test_who_has_the_least_is_who_a_look_at_all_would_find(
    steps: list[tuple[int, int, bool]],
) -> None:
    members = ["a", "b", "c", "d"]
    topics = [b"x", b"y", b"z"]
    readers = {b"x": members, b"y": members[1:], b"z": ["d", "a"]}
    has: dict[str, list[tuple[bytes, int]]] = {member: [] for member in members}
    loads = _Loads(has, readers)
    for who, what, gives in steps:
        member, topic = members[who], topics[what]
        if gives and has[member]:
            has[member].pop()
            loads.lowered(member)
        elif not gives:
            has[member].append((topic, 0))
        expected = min(readers[topic], key=lambda one: len(has[one]))
        assert loads.least(topic) == expected
