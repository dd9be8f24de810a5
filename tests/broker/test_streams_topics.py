"""What a topology comes to with the topics that there are."""

import tracemalloc
from uuid import uuid4

import pytest

from segbroker.broker.groups.streams_topics import Configured, Status, configured
from segbroker.broker.groups.streams_topology import (
    SIZE_MAX,
    SUBTOPOLOGIES_MAX,
    TOPICS_MAX,
    InternalTopic,
    Subtopology,
    Topology,
)
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import pack

from ..support.steps import lines_of
from .group_topics import Topic


def topics(**counts: int) -> dict[str, Topic]:
    return {name: Topic(uuid4(), count) for name, count in counts.items()}


def internal(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions, 0, (("cleanup.policy", "compact"),))


def sub(
    name: str,
    *sources: str,
    writes: tuple[str, ...] = (),
    reads: tuple[InternalTopic, ...] = (),
    keeps: tuple[str, ...] = (),
    together: tuple[tuple[str, ...], ...] = (),
) -> Subtopology:
    changelogs = tuple(internal(one) for one in keeps)
    return Subtopology(name, sources, writes, reads, changelogs, together)


def of(*subtopologies: Subtopology) -> Topology:
    return Topology(0, subtopologies)


def told(found: Configured) -> tuple[Status, str]:
    assert found.problem is not None
    return found.problem


def invalid(topology: Topology, **counts: int) -> str:
    def checked() -> None:
        topology.check()
        configured(topology, topics(**counts))

    with pytest.raises(Refused) as caught:
        checked()
    assert caught.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    return caught.value.message or ""


COUNTING = of(
    sub("0", "words", writes=("again",)), sub("1", reads=(internal("again"),), keeps=("log",))
)


def test_internal_topics_have_as_many_partitions_as_what_they_come_from() -> None:
    found = configured(COUNTING, topics(words=4))
    assert told(found) == (
        Status.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: again, log",
    )
    assert [(one.name, one.partitions) for one in found.missing] == [("again", 4), ("log", 4)]
    assert found.tasks == {"0": 4, "1": 4}
    assert not found.is_ready


def test_with_all_topics_there_tasks_can_be_given() -> None:
    found = configured(COUNTING, topics(words=4, again=4, log=4))
    assert found.is_ready
    assert (found.tasks, found.missing) == ({"0": 4, "1": 4}, ())


def test_a_subtopology_has_as_many_tasks_as_its_largest_topic_has_partitions() -> None:
    found = configured(of(sub("0", "a", "b", keeps=("log",))), topics(a=2, b=5))
    assert found.tasks == {"0": 5}
    assert [one.partitions for one in found.missing] == [5]


def test_a_repartition_topic_through_another_has_the_number_of_the_first() -> None:
    chain = of(
        sub("0", "a", "b", writes=("x",)),
        sub("1", reads=(internal("x"),), writes=("y",)),
        sub("2", reads=(internal("y"),)),
    )
    found = configured(chain, topics(a=2, b=3))
    assert {name: one.partitions for name, one in found.internal.items()} == {"x": 3, "y": 3}


def test_a_number_that_the_topology_gives_stands() -> None:
    fixed = of(sub("0", "a", writes=("x",)), sub("1", reads=(internal("x", 7),)))
    assert configured(fixed, topics(a=2)).tasks == {"0": 2, "1": 7}


def test_source_topics_that_are_missing_are_named_three_of_them() -> None:
    found = configured(of(sub("0", *"edcba")), topics(a=1))
    assert told(found) == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics b, c, d and 1 additional topics are missing.",
    )
    assert found.tasks is None


def test_what_goes_together_has_one_number_of_partitions() -> None:
    pair = of(sub("0", "a", "b", together=(("a", "b"),)))
    assert configured(pair, topics(a=2, b=2)).is_ready
    assert told(configured(pair, topics(a=2, b=3))) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=3}]",
    )


def test_a_repartition_topic_goes_with_the_source_topic_beside_it() -> None:
    def joined(partitions: int) -> Topology:
        return of(
            sub("0", "a", writes=("x",)),
            sub("1", "b", reads=(internal("x", partitions),), together=(("b", "x"),)),
        )

    assert configured(joined(0), topics(a=2, b=5)).tasks == {"0": 2, "1": 5}
    assert configured(joined(5), topics(a=2, b=5)).tasks == {"0": 2, "1": 5}
    status, detail = told(configured(joined(4), topics(a=2, b=5)))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == (
        "Number of partitions [4] of repartition topic [x] doesn't match number of partitions [5] "
        "of the source topic."
    )


def test_repartition_topics_alone_go_with_the_largest_or_the_fixed_one() -> None:
    def joined(x: int, y: int) -> Topology:
        reads = (internal("x", x), internal("y", y))
        return of(
            sub("0", "a", writes=("x",)),
            sub("1", "b", writes=("y",)),
            sub("2", reads=reads, together=(("x", "y"),)),
        )

    assert configured(joined(0, 0), topics(a=2, b=5)).tasks == {"0": 2, "1": 5, "2": 5}
    assert configured(joined(3, 0), topics(a=2, b=5)).tasks == {"0": 2, "1": 5, "2": 3}
    status, _ = told(configured(joined(3, 4), topics(a=2, b=5)))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS


def test_an_internal_topic_of_another_size_does_not_fit() -> None:
    found = configured(COUNTING, topics(words=4, again=4, log=3))
    assert told(found) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic log has different number of partitions: expected 4, found 3",
    )


def test_a_source_topic_that_is_its_own_changelog_is_not_made() -> None:
    found = configured(of(sub("0", "table", keeps=("table",))), topics(table=3))
    assert found.is_ready
    assert found.internal == {}


def test_topologies_that_no_topics_can_serve_are_refused() -> None:
    loop = of(sub("0", "a"), sub("1", reads=(internal("x"),), writes=("x",)))
    assert "loops" in invalid(loop, a=1)
    assert "never used as a sink" in invalid(of(sub("0", "a", reads=(internal("x"),))), a=1)
    assert "No source topics" in invalid(of(sub("0", writes=("x",))))
    assert "same id" in invalid(of(sub("0", "a"), sub("0", "b")))
    fixed = Subtopology("0", ("a",), (), (), (internal("log", 3),), ())
    assert "undefined partition count" in invalid(of(fixed))


def test_a_topology_has_limits() -> None:
    many = [sub(f"{n}", "a") for n in range(SUBTOPOLOGIES_MAX + 1)]
    assert str(SUBTOPOLOGIES_MAX) in invalid(of(*many))
    assert str(TOPICS_MAX) in invalid(of(sub("0", *(f"t{n}" for n in range(TOPICS_MAX + 1)))))
    assert str(SIZE_MAX) in invalid(of(sub("0", *(f"{n:0200}" for n in range(2_000)))))
    assert "255" in invalid(of(sub("x" * 256, "a")))
    of(*many[:-1]).check()


def test_of_many_topics_that_do_not_go_together_some_are_named() -> None:
    names = tuple(f"t{n:03}" for n in range(200))
    counts = {name: 1 + n % 2 for n, name in enumerate(names)}
    _, detail = told(configured(of(sub("0", *names, together=(names,))), topics(**counts)))
    assert detail.endswith("t019=2, ...}]")


def test_more_tasks_than_the_limit_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segbroker.broker.groups.streams_topics.TASKS_MAX", 5)
    pair = of(sub("0", "a"), sub("1", "b"))
    assert configured(pair, topics(a=3, b=2)).is_ready
    status, detail = told(configured(pair, topics(a=3, b=3)))
    assert (status, detail) == (Status.INCORRECTLY_PARTITIONED_TOPICS, "6 tasks, limit 5")


def test_a_topology_is_read_as_it_was_written_down() -> None:
    whole = of(
        sub("0", "a", writes=("x",), together=(("a", "x"),)),
        sub("1", reads=(internal("x", 3),), keeps=("log",)),
    )
    assert Topology.of_row(whole.row()) == whole


@pytest.mark.parametrize(
    "topology",
    [
        of(sub("0", *["a"] * 20_000, writes=("x",) * 20_000), sub("1", reads=(internal("x"),))),
        of(
            sub(
                "0",
                "a",
                reads=tuple(internal(f"{n}", 1) for n in range(5_000)),
                together=((),) * 9_000,
            )
        ),
        of(
            sub("000", "a", writes=("000",)),
            *(
                sub(f"{n + 1:03}", reads=(internal(f"{n:03}"),), writes=(f"{n + 1:03}",))
                for n in range(900)
            ),
            *(
                sub(f"last-{n}", reads=(internal("900"),), writes=("900",) * 2_000)
                for n in range(20)
            ),
        ),
    ],
    ids=["names told often", "many that go together", "a long chain"],
)
def test_a_topology_of_any_shape_is_looked_through_at_once(topology: Topology) -> None:
    """In steps that its size bounds, in bytes; products of what is in it took minutes."""
    topology.check()
    size = len(pack({"": topology.row()}))
    assert lines_of(lambda: configured(topology, topics(a=3))) < 8 * size


def test_a_topic_that_is_told_twice_is_read_once() -> None:
    assert sub("0", "a", "b", "a", reads=(internal("b"), internal("x"))).read == ("a", "b", "x")


def test_a_topology_that_would_be_written_down_far_larger_than_it_was_told_is_refused() -> None:
    name = "a" * 249
    vast = of(sub("0", name, together=((name,) * 100_000,)))
    tracemalloc.start()
    try:
        assert str(SIZE_MAX) in invalid(vast, **{name: 1})
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
