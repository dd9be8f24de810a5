"""What a member of a group has read of a topic that was deleted and made again, under its hands.

An offset of the old topic says nothing of the new one: whoever went on there, in this process or
the next, would pass over what lies before.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Never

import pytest

from segbroker.client import (
    Admin,
    Consumer,
    Gap,
    GroupMetadata,
    Outgoing,
    Producer,
    Record,
    TopicPartition,
    TopicRecreated,
    TransactionAborted,
    UnknownTopicOrPartition,
    transform,
)
from segbroker.client.prefetched import Prefetched
from segbroker.client.reading import Reading
from segbroker.client.settings import GroupProtocol
from segbroker.client.transactions import Transactions

from ..support.daemon import Daemon
from ..support.waiting import until
from .test_interrupted import Interrupting

# Commits when it is closed or asked to, and sees soon that a topic is another.
SLOW: Any = {"metadata_max_age_ms": 100, "commit_interval_ms": 600_000}


def fill(address: str, topic: str, count: int) -> None:
    """A topic of one partition with the values 0, 1, ..."""
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
    more(address, topic, range(count))


def more(address: str, topic: str, numbers: Iterable[int]) -> None:
    with Producer(address) as producer:
        producer.send_many(topic, [b"%d" % n for n in numbers])


def made_again(address: str, topic: str, count: int) -> None:
    with Admin(address) as admin:
        admin.delete_topic(topic)
    fill(address, topic, count)


def numbers(records: Iterable[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def notices(consumer: Consumer[Any], end: int) -> None:
    """Until what the new topic has, up to `end`, was fetched ahead of what is in hand."""
    (state,) = consumer._reading.fetching.states.values()
    until(lambda: state.topics_ahead_count == 1 and state.fetch_offset == end)


def read_on(daemon: Daemon, topic: str) -> list[int]:
    """What the next member of the group reads."""
    with Consumer(daemon.address, topic, group=topic, start="start", stop_at_end=True) as consumer:
        return numbers(consumer)


def test_a_poll_ends_in_front_of_a_topic_that_was_made_again(daemon: Daemon, topic: str) -> None:
    """What it has in hand is of one topic: of that it is committed by the offset."""
    fill(daemon.address, topic, 30)
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        assert numbers(consumer.poll(500, 60_000)) == list(range(20, 30))
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
        assert numbers(consumer.poll(10, 60_000)) == list(range(10, 20))
    assert read_on(daemon, topic) == list(range(10, 40))


def test_a_commit_of_all_in_hand_says_nothing_of_the_next_topic(daemon: Daemon, topic: str) -> None:
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        consumer.commit()
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
    assert read_on(daemon, topic) == list(range(40))


def test_an_offset_by_hand_says_nothing_of_the_next_topic(daemon: Daemon, topic: str) -> None:
    """Nobody has seen any of that topic."""
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        consumer.commit({(topic, 0): 20})
        assert consumer.committed() == {}
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
    assert read_on(daemon, topic) == list(range(40))


def test_where_the_old_topic_was_committed_is_committed_in_the_new_one_as_well(
    daemon: Daemon, topic: str
) -> None:
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        consumer.commit()
        made_again(daemon.address, topic, 20)
        notices(consumer, 20)
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        consumer.commit()
    assert read_on(daemon, topic) == []


def test_a_transform_that_is_aborted_goes_back_into_no_other_topic(
    daemon: Daemon, topic: str
) -> None:
    """What it had in hand is lost with its topic, and that is said."""
    out = f"{topic}-out"
    fill(daemon.address, out, 0)
    fill(daemon.address, topic, 20)
    left = [15]

    def function(record: Record) -> Iterable[Outgoing]:
        if record.offset in left:
            left.clear()
            made_again(daemon.address, topic, 40)
            notices(consumer, 40)
            raise TransactionAborted("for this test")
        if record.value == b"39":
            raise ValueError("the end of the new topic")
        return [Outgoing(out, record.value)]

    with (
        Consumer(
            daemon.address, topic, group=topic, start="start", auto_commit=False, **SLOW
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
    ):
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
        with pytest.raises(TopicRecreated) as caught:
            transform(consumer, producer, function, max_records=5)
        assert caught.value.gap == (topic, 0, 15, 20, "recreated")
        with pytest.raises(ValueError, match="the end of the new topic"):
            transform(consumer, producer, function, max_records=5)
    with Consumer(daemon.address, out, start="start", stop_at_end=True) as consumer:
        assert numbers(consumer) == [*range(10, 15), *range(35)]


def test_what_was_on_its_way_is_sought_in_no_other_topic(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C has taken it away, and by the next poll it is lost."""
    fill(daemon.address, topic, 20)
    with Consumer(daemon.address, topic, start="start", metadata_max_age_ms=100) as consumer:
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
        Interrupting(monkeypatch, Reading, "take_records", 0, True)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(5, 60_000)
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        with pytest.raises(TopicRecreated) as caught:
            consumer.poll(500, 60_000)
        assert caught.value.gap == (topic, 0, 10, 20, "recreated")
        assert numbers(consumer.poll(500, 60_000)) == list(range(40))


def test_what_comes_behind_a_gap_that_ctrl_c_hit_is_of_the_new_topic(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed there, and comes again where it is on its way to a caller."""
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        Interrupting(monkeypatch, Prefetched, "_release", 0, False)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(10, 60_000)
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))
        consumer.commit()
        assert consumer.committed((topic, 0))[TopicPartition(topic, 0)].offset == 10
        Interrupting(monkeypatch, Reading, "take_records", 0, True)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(10, 60_000)
        assert numbers(consumer.poll(10, 10_000)) == list(range(10, 20))
    assert read_on(daemon, topic) == list(range(10, 40))


def test_a_poll_ends_in_front_of_a_tail_that_was_lost(daemon: Daemon, topic: str) -> None:
    """As in front of another topic: the log goes on below what is in hand."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    more(daemon.address, topic, range(50))
    with Consumer(
        daemon.address, topic, group=topic, start="start", on_gap="skip", **SLOW
    ) as consumer:
        assert numbers(consumer.poll(45, 60_000)) == list(range(45))
        fetching = consumer._reading.fetching
        (state,) = fetching.states.values()
        with consumer._driver.lock:
            fetching._changes.truncated(state, 20)
        consumer._driver.wake_by(0)
        until(lambda: state.fetch_offset == 50)
        assert numbers(consumer.poll(10, 60_000)) == list(range(45, 50))
        assert numbers(consumer.poll(10, 60_000)) == list(range(20, 30))
    assert read_on(daemon, topic) == list(range(20, 50))


def fill_second(address: str, topic: str, count: int) -> None:
    """A topic of two partitions with the values 0, 1, ... in the second."""
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=2)
    with Producer(address) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(count)], partition=1)


def both_gaps(poll: Callable[[], object]) -> list[Gap]:
    """What is raised of both partitions of a topic that has one by now."""
    gaps: list[Gap] = []
    while len(gaps) < 2:
        try:
            poll()
        except TopicRecreated as exc:
            gaps.append(exc.gap)
        except UnknownTopicOrPartition:
            pass
    return sorted(gaps)


@pytest.mark.parametrize("how", ["assign", "subscribe", "seek"])
def test_who_goes_elsewhere_is_handed_nothing_of_a_partition_that_is_gone(
    daemon: Daemon, topic: str, how: str
) -> None:
    """It was fetched ahead, and the topic was made again without it."""
    other = topic if how == "seek" else f"{topic}.other"
    with (
        Admin(daemon.address) as admin,
        Producer(daemon.address) as producer,
        Consumer(daemon.address, on_gap="skip", metadata_max_age_ms=100) as consumer,
    ):
        admin.create_topic(topic, partitions=2)
        producer.send(topic, b"old", partition=1).result()
        if how == "subscribe":
            consumer.subscribe([topic])
        else:
            consumer.assign([(topic, 0), (topic, 1)])
        until(lambda: bool(consumer._reading.fetching.prefetched.ready))
        admin.delete_topic(topic)
        admin.create_topic(topic, partitions=1)
        until(lambda: (topic, 1) not in consumer.assignment)
        if how == "seek":
            admin.create_partitions(topic, 2)
        else:
            admin.create_topic(other, partitions=2)
        producer.send(other, b"new", partition=1).result()
        if how == "subscribe":
            consumer.subscribe([other])
        else:
            consumer.assign([(other, 1)])
        if how == "seek":
            consumer.seek(other, 1, 0)
        seen: list[bytes | None] = []

        def has_new() -> bool:
            with suppress(UnknownTopicOrPartition):  # of the one that is gone
                seen.extend(record.value for record in consumer.poll(timeout_ms=100))
            return b"new" in seen

        until(has_new)
        assert seen == [b"new"]


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param(Reading, "take_records", id="in hand"),
        pytest.param(Prefetched, "take", id="not opened"),
    ],
)
def test_what_was_on_its_way_is_lost_with_a_partition_that_the_next_topic_does_not_have(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    fill_second(daemon.address, topic, 20)
    with Consumer(daemon.address, topic, start="start", metadata_max_age_ms=100) as consumer:
        assert numbers(consumer.poll(20, 60_000)) == list(range(20))
        with Producer(daemon.address) as producer:
            producer.send_many(topic, [b"x"] * 10, partition=1)
        Interrupting(monkeypatch, of, name, 0, True)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(5, 60_000)
        made_again(daemon.address, topic, 40)
        until(lambda: len(consumer.assignment) == 1)
        got: list[Record] = []
        _, gap = both_gaps(lambda: got.extend(consumer.poll(500, 60_000)))
        assert gap == (topic, 1, 20, 30, "recreated")
        assert all(record.partition == 0 for record in got)


def test_what_a_transform_goes_back_over_is_lost_with_a_partition_that_is_gone(
    daemon: Daemon, topic: str
) -> None:
    out = f"{topic}-out"
    fill(daemon.address, out, 0)
    fill_second(daemon.address, topic, 20)
    left = [15]

    def function(record: Record) -> Iterable[Outgoing]:
        if record.offset in left:
            left.clear()
            made_again(daemon.address, topic, 0)
            until(lambda: len(consumer.assignment) == 1)
        return [Outgoing(out, record.value)]

    with (
        Consumer(
            daemon.address, topic, group=topic, start="start", auto_commit=False, **SLOW
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
    ):
        _, gap = both_gaps(lambda: transform(consumer, producer, function, max_records=5))
    assert gap == (topic, 1, 15, 20, "recreated")
    with Consumer(daemon.address, out, start="start", stop_at_end=True) as consumer:
        assert numbers(consumer) == list(range(15))


def test_a_transform_in_doubt_goes_on_in_no_other_topic(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset may have been committed behind the change, and is of the old topic."""
    out = f"{topic}-out"
    fill(daemon.address, out, 0)
    fill(daemon.address, topic, 20)

    def function(record: Record) -> Iterable[Outgoing]:
        return [Outgoing(out, record.value)]

    with (
        Consumer(
            daemon.address, topic, group=topic, start="start", auto_commit=False, **SLOW
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
        Producer(daemon.address, transactional_id=f"{topic}-late") as late,
    ):
        Interrupting(monkeypatch, Transactions, "commit", 0, True)
        with pytest.raises(KeyboardInterrupt):
            transform(consumer, producer, function, max_records=10)
        made_again(daemon.address, topic, 40)
        notices(consumer, 40)
        with late.transaction():
            late.send_offsets({(topic, 0): 10}, GroupMetadata(topic))
        with pytest.raises(TopicRecreated) as caught:
            transform(consumer, producer, function)
        assert caught.value.gap.to_offset == 20
        assert numbers(consumer.poll(10, 60_000)) == list(range(10))


@contextmanager
def at_the_end(
    daemon: Daemon, topic: str, group_protocol: GroupProtocol
) -> Iterator[Consumer[Never]]:
    """A member that has begun at the end of 30 records, in which nothing is committed."""
    fill(daemon.address, topic, 30)
    with Consumer(
        daemon.address,
        topic,
        group=topic,
        group_protocol=group_protocol,
        start="end",
        on_gap="skip",
        metadata_max_age_ms=100,
    ) as consumer:
        until(lambda: consumer.positions() == {(topic, 0): 30})
        yield consumer


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_member_that_begins_at_the_end_reads_all_of_a_topic_that_was_made_again(
    daemon: Daemon, topic: str, group_protocol: GroupProtocol
) -> None:
    """What was committed went with the topic, and by KIP-848 the partition is given anew."""
    with at_the_end(daemon, topic, group_protocol) as consumer:
        more(daemon.address, topic, range(30, 35))
        assert numbers(consumer.poll(5, 60_000)) == list(range(30, 35))
        made_again(daemon.address, topic, 40)
        found: list[int] = []
        while len(found) < 40:
            found += numbers(consumer.poll(40, 60_000))
    assert found == list(range(40))


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_member_that_begins_at_the_end_reads_all_of_a_partition_that_came_later(
    daemon: Daemon, topic: str, group_protocol: GroupProtocol
) -> None:
    with at_the_end(daemon, topic, group_protocol) as consumer:
        with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
            admin.create_partitions(topic, 2)
            producer.send(topic, b"40", partition=1).result()
        assert numbers(consumer.poll(1, 60_000)) == [40]


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_what_came_while_a_topic_was_not_subscribed_to_is_begun_at_the_end(
    daemon: Daemon, topic: str, group_protocol: GroupProtocol
) -> None:
    with at_the_end(daemon, topic, group_protocol) as consumer:
        consumer.subscribe([f"{topic}-that-is-not-there"])
        until(lambda: not consumer.assignment)
        with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
            admin.create_partitions(topic, 2)
            producer.send(topic, b"40", partition=1).result()
        until(lambda: consumer.partitions_for(topic) == 2)
        consumer.subscribe([topic])
        until(lambda: len(consumer.positions()) == 2)
        assert consumer.positions() == {(topic, 0): 30, (topic, 1): 1}
