"""Share groups by the Java client, unmodified: queues of records that any consumer may work on.

With SEGBROKER_TEST_BOOTSTRAP=HOST:PORT they run against that broker instead, those that kill a
broker left out.  An Apache Kafka has to be started with `group.share.min.record.lock.duration.ms`
of a second and `group.share.min.heartbeat.interval.ms` of half of one for it.
"""

import os
import signal
import time
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ..support.clients.lots import CODECS
from ..support.daemon import Daemon, running
from ..support.waiting import within_one_of
from .java_shares import Handed, JavaShares, Refused
from .share_scenes import (
    EXACT,
    EXPLICIT,
    LOCK_MS,
    LOCKS_MS,
    ONE_BY_ONE,
    fill,
    from_start,
    settled,
    taken,
    taken_all,
    topic,
    values,
)

_OTHER = "SEGBROKER_TEST_BOOTSTRAP"


def test_consumers_share_a_partition(java: JavaShares, bootstrap: str, name: str) -> None:
    """Each record is one consumer's, and each of them has some."""
    topic(bootstrap, name)
    from_start(java, name)
    consumers = [
        java.consumer(f"{name}-{n}", name, name, max_poll_records=10, **EXACT) for n in range(3)
    ]
    fill(bootstrap, name, range(300), per_batch=10)
    found: list[list[Handed]] = [[], [], []]
    ends = time.monotonic() + 60
    while sum(map(len, found)) < 300:
        assert time.monotonic() < ends, [len(records) for records in found]
        for consumer, records in zip(consumers, found, strict=True):
            records += consumer.poll()
    assert sorted(values(list(chain.from_iterable(found)))) == list(range(300))
    assert all(record.deliveries == 1 for records in found for record in records)
    assert min(map(len, found)) > 0
    for consumer in consumers:
        consumer.close()


def test_each_poll_accepts_the_one_before(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(30), per_batch=10)
    consumer = java.consumer(f"{name}-a", name, name, max_poll_records=10, **EXACT)
    assert values(consumer.until(10)) == list(range(10))
    assert values(consumer.until(10)) == list(range(10, 20))
    # What was handed out last is given back by closing.
    consumer.close()
    behind = java.consumer(f"{name}-b", name, name)
    assert [(one.offset, one.deliveries) for one in behind.until(20)] == [
        *((n, 2) for n in range(10, 20)),
        *((n, 1) for n in range(20, 30)),
    ]
    behind.close()


def test_accepted_released_and_rejected(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(6), per_batch=6)
    consumer = java.consumer(f"{name}-a", name, name, **EXPLICIT)
    records = consumer.until(6)
    assert [record.deliveries for record in records] == [1] * 6
    for record, how in zip(records, ("ACCEPT", "RELEASE", "REJECT") * 2, strict=True):
        consumer.acknowledge(record, how)
    assert consumer.commit() == {(name, 0): "None"}
    again = consumer.until(2)
    assert [(record.offset, record.deliveries) for record in again] == [(1, 2), (4, 2)]
    taken(consumer, again[0], "ACCEPT")
    taken(consumer, again[1], "ACCEPT")
    consumer.nothing_for()
    consumer.close()
    assert java.lag(name, name) == 0


def test_all_has_to_be_acknowledged_before_the_next_poll(
    java: JavaShares, bootstrap: str, name: str
) -> None:
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(2), per_batch=2)
    consumer = java.consumer(f"{name}-a", name, name, **EXPLICIT)
    records = consumer.until(2)
    consumer.acknowledge(records[0], "ACCEPT")
    with pytest.raises(Refused, match="IllegalStateException"):
        consumer.poll()
    # Closed with one that nobody acknowledged: it is the next one's, and at once.
    consumer.close()
    behind = java.consumer(f"{name}-b", name, name, **EXPLICIT)
    (record,) = behind.until(1)
    assert (record.offset, record.deliveries) == (1, 2)
    taken(behind, record, "ACCEPT")
    behind.close()


def test_the_callback_hears_of_what_was_sent_along(
    java: JavaShares, bootstrap: str, name: str
) -> None:
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(4), per_batch=2)
    consumer = java.consumer(f"{name}-a", name, name, **ONE_BY_ONE)
    told: list[tuple[str, list[int]]] = []
    for n in range(4):
        (record,) = consumer.until(1)
        assert record.offset == n
        consumer.acknowledge(record, "ACCEPT")
    told += consumer.told()
    told += consumer.close()
    assert [error for error, _ in told] == ["None"] * len(told)
    assert sorted(chain.from_iterable(offsets for _, offsets in told)) == [0, 1, 2, 3]


def test_a_record_is_delivered_so_often_and_no_more(
    java: JavaShares, bootstrap: str, name: str
) -> None:
    topic(bootstrap, name)
    from_start(java, name, share_delivery_count_limit=3)
    fill(bootstrap, name, range(2), per_batch=2)
    consumer = java.consumer(f"{name}-a", name, name, **ONE_BY_ONE)
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1][0] == 0:
        (record,) = consumer.until(1)
        seen.append((record.offset, record.deliveries))
        taken(consumer, record, "RELEASE" if record.offset == 0 else "ACCEPT")
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 1)]
    consumer.nothing_for()
    consumer.close()
    assert java.lag(name, name) == 0


def test_a_record_is_ones_own_for_a_time(java: JavaShares, bootstrap: str, name: str) -> None:
    def is_so(lock_ms: int) -> None:
        group = f"{name}-{lock_ms}"
        topic(bootstrap, group)
        from_start(java, group, share_record_lock_duration_ms=lock_ms)
        slow = java.consumer(f"{group}-slow", group, group, **ONE_BY_ONE)
        other = java.consumer(f"{group}-other", group, group, **ONE_BY_ONE)
        settled(java, group, slow, other)
        fill(bootstrap, group, range(2), per_batch=2)
        (record,) = slow.until(1)
        assert slow.lock_ms == lock_ms
        (second,) = other.until(1)
        assert {record.offset, second.offset} == {0, 1}  # both may have been asking
        taken(other, second, "ACCEPT")
        (again,) = other.until(1)
        assert again.offset == record.offset
        assert again.deliveries > 1
        slow.acknowledge(record, "ACCEPT")
        assert slow.commit() == {(group, 0): "InvalidRecordStateException"}
        taken(other, again, "ACCEPT")
        slow.close()
        other.close()
        assert java.lag(group, group) == 0

    within_one_of(LOCKS_MS, is_so)


def test_more_time_for_a_record(java: JavaShares, bootstrap: str, name: str) -> None:
    def is_so(lock_ms: int) -> None:
        group = f"{name}-{lock_ms}"
        topic(bootstrap, group)
        from_start(java, group, share_record_lock_duration_ms=lock_ms)
        fill(bootstrap, group, range(1))
        worker = java.consumer(f"{group}-worker", group, group, **ONE_BY_ONE)
        other = java.consumer(f"{group}-other", group, group, **ONE_BY_ONE)
        (record,) = worker.until(1)
        ends = time.monotonic() + 3 * lock_ms / 1000
        while time.monotonic() < ends:
            taken(worker, record, "RENEW")
            # Handed out once more, so that it can be acknowledged once more.
            assert [one.offset for one in worker.until(1)] == [0]
            assert other.poll() == []
        taken(worker, record, "ACCEPT")
        other.nothing_for()
        worker.close()
        other.close()
        assert java.lag(group, group) == 0

    within_one_of(LOCKS_MS, is_so)


def test_no_more_time_where_a_group_says_so(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    from_start(java, name, share_renew_acknowledge_enable="false")
    fill(bootstrap, name, range(1))
    worker = java.consumer(f"{name}-a", name, name, **ONE_BY_ONE)
    (record,) = worker.until(1)
    worker.acknowledge(record, "RENEW")
    assert worker.commit()[name, 0] != "None"
    worker.close()


def test_a_consumer_is_killed(
    java: JavaShares, bootstrap: str, name: str, release_cache: Path
) -> None:
    """Its records are those of others, and soon: its connection is gone."""
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(10), per_batch=10)
    with JavaShares(bootstrap, release_cache) as another:
        victim = another.consumer(f"{name}-victim", name, name, **EXPLICIT)
        records = victim.until(10)
        taken(victim, records[0], "ACCEPT")
        another.kill()
    heir = java.consumer(f"{name}-heir", name, name)
    again = heir.until(9, within_s=25)
    assert [(one.offset, one.deliveries) for one in again] == [(n, 2) for n in range(1, 10)]
    heir.close()


@pytest.mark.skipif(_OTHER in os.environ, reason="kills the broker")
def test_the_broker_is_killed(tmp_path: Path, name: str, release_cache: Path) -> None:
    """Accepted and rejected stays so; what was released comes again, and what was worked on."""
    with running(tmp_path / "data") as daemon:
        topic(daemon.address, name)
        fill(daemon.address, name, range(10), per_batch=10)
        with JavaShares(daemon.address, release_cache) as java:
            from_start(java, name)
            consumer = java.consumer(f"{name}-a", name, name, **EXPLICIT)
            records = consumer.until(10)
            for record, how in zip(
                records, ("ACCEPT", "ACCEPT", "RELEASE", "REJECT", "ACCEPT"), strict=False
            ):
                consumer.acknowledge(record, how)
            assert consumer.commit() == {(name, 0): "None"}
            killed(daemon)
            java.kill()
        with JavaShares(daemon.address, release_cache) as java:
            consumer = java.consumer(f"{name}-b", name, name, **EXPLICIT)
            again = taken_all(consumer, 6)
            assert [one.offset for one in again] == [2, 5, 6, 7, 8, 9]
            assert again[0].deliveries == 2
            consumer.close()
            assert java.lag(name, name) == 0


@pytest.mark.skipif(_OTHER in os.environ, reason="kills the broker")
def test_consumers_live_through_kills_of_the_broker(
    tmp_path: Path, name: str, release_cache: Path
) -> None:
    """The same consumers go on; no record is missing, and none comes that was accepted."""
    with running(tmp_path / "data") as daemon:
        topic(daemon.address, name)
        fill(daemon.address, name, range(200), per_batch=5)
        with JavaShares(daemon.address, release_cache) as java:
            from_start(java, name, share_record_lock_duration_ms=LOCK_MS)
            consumers = [
                java.consumer(f"{name}-{n}", name, name, max_poll_records=7, **EXPLICIT, **EXACT)
                for n in range(2)
            ]
            accepted: list[int] = []
            deaths = [50, 120]
            ends = time.monotonic() + 180
            while len(set(accepted)) < 200:
                assert time.monotonic() < ends, f"{len(accepted)} were accepted"
                for consumer in consumers:
                    records = consumer.poll()
                    assert not set(values(records)) & set(accepted)
                    if deaths and len(accepted) > deaths[0]:
                        deaths.pop(0)
                        killed(daemon)
                    for record in records:
                        consumer.acknowledge(record, "ACCEPT")
                    if records and consumer.commit() == {(name, 0): "None"}:
                        accepted += values(records)
            assert sorted(accepted) == list(range(200))
            for consumer in consumers:
                consumer.nothing_for()
                consumer.close()
            assert java.lag(name, name) == 0


def killed(daemon: Daemon) -> None:
    daemon.stop(signal.SIGKILL)
    daemon.again()


@pytest.mark.parametrize("reset", ["earliest", "by_duration:PT1H"])
def test_a_group_begins_with_what_is_there(
    java: JavaShares, bootstrap: str, name: str, reset: str
) -> None:
    topic(bootstrap, name)
    fill(bootstrap, name, range(3))
    java.set(name, share_auto_offset_reset=reset)
    consumer = java.consumer(f"{name}-a", name, name)
    assert values(consumer.until(3)) == [0, 1, 2]
    consumer.close()


@pytest.mark.parametrize("reset", ["latest", None])
def test_a_group_begins_with_what_is_new(
    java: JavaShares, bootstrap: str, name: str, reset: str | None
) -> None:
    topic(bootstrap, name)
    fill(bootstrap, name, range(3))
    if reset is not None:
        java.set(name, share_auto_offset_reset=reset)
    consumer = java.consumer(f"{name}-a", name, name)
    found: list[Handed] = []
    written = 3
    # Nobody says when it has found its place: write until something comes.
    ends = time.monotonic() + 60
    while not found:
        assert time.monotonic() < ends
        fill(bootstrap, name, range(written, written + 1))
        written += 1
        found += consumer.poll()
    while len(found) < written - found[0].offset:
        assert time.monotonic() < ends
        found += consumer.poll()
    assert found[0].offset >= 3
    assert [one.offset for one in found] == list(range(found[0].offset, written))
    consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches(java: JavaShares, bootstrap: str, name: str, codec: str) -> None:
    """Of a batch that comes a second time, only some of the records are to be worked on."""
    topic(bootstrap, name)
    from_start(java, name)
    fill(bootstrap, name, range(40), per_batch=20, codec=codec)
    consumer = java.consumer(f"{name}-a", name, name, **EXPLICIT)
    seen: list[Handed] = []
    while len(seen) < 60:
        for record in consumer.until(1):
            seen.append(record)
            is_new_and_odd = record.offset % 2 and record.deliveries == 1
            consumer.acknowledge(record, "RELEASE" if is_new_and_odd else "ACCEPT")
        assert consumer.commit() == {(name, 0): "None"}
    consumer.nothing_for()
    consumer.close()
    assert all(int(record.value) == record.offset for record in seen)
    assert sorted((record.offset, record.deliveries) for record in seen) == [
        (n, times) for n in range(40) for times in range(1, 2 + n % 2)
    ]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(java: JavaShares, bootstrap: str, name: str, level: str) -> None:
    topic(bootstrap, name)
    from_start(java, name, share_isolation_level=level)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for n, is_kept in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for value in range(3 * n, 3 * n + 3):
            producer.produce(topic=name, value=str(value).encode(), partition=0)
        if is_kept:
            producer.commit_transaction(60)
        else:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)
    fill(bootstrap, name, range(12, 13))
    consumer = java.consumer(f"{name}-a", name, name)
    kept = [0, 1, 2, 6, 7, 8, 12]
    wanted = kept if level == "read_committed" else list(range(13))
    assert values(consumer.until(len(wanted))) == wanted
    consumer.nothing_for()
    consumer.close()
    # Markers and what was aborted are done with, too.
    assert java.lag(name, name) == 0


def test_an_open_transaction_is_waited_for(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    from_start(java, name, share_isolation_level="read_committed")
    consumer = java.consumer(f"{name}-a", name, name)
    fill(bootstrap, name, range(1))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic=name, value=b"1", partition=0)
    assert producer.flush(60) == 0
    fill(bootstrap, name, range(2, 3))
    assert values(consumer.until(1)) == [0]
    consumer.nothing_for()
    producer.commit_transaction(60)
    assert values(consumer.until(2)) == [1, 2]
    consumer.close()


def test_groups_know_nothing_of_each_other(java: JavaShares, bootstrap: str, name: str) -> None:
    topic(bootstrap, name)
    fill(bootstrap, name, range(5))
    groups = [from_start(java, f"{name}-{n}") for n in range(2)]
    consumers = [java.consumer(group, group, name) for group in groups]
    for consumer in consumers:
        assert values(consumer.until(5)) == list(range(5))
        consumer.close()


def test_many_partitions_and_topics(java: JavaShares, bootstrap: str, name: str) -> None:
    """More consumers than partitions, more partitions than consumers: each has some."""
    topics = [topic(bootstrap, f"{name}-one"), topic(bootstrap, f"{name}-six", 6)]
    from_start(java, name)
    consumers = [java.consumer(f"{name}-{n}", name, *topics) for n in range(3)]
    settled(java, name, *consumers)
    assert len(set(chain.from_iterable(java.members(name).values()))) == 7
    assert java.state(name) == "Stable"
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(60):
        producer.produce(topics[n % 2], str(n).encode(), partition=n % 6 if n % 2 else 0)
    assert producer.flush(60) == 0
    found: list[Handed] = []
    ends = time.monotonic() + 60
    while len(found) < 60:
        assert time.monotonic() < ends, len(found)
        for consumer in consumers:
            found += consumer.poll()
    assert sorted(values(found)) == list(range(60))
    for consumer in consumers:
        consumer.close()


def test_another_subscription(java: JavaShares, bootstrap: str, name: str) -> None:
    first, second = topic(bootstrap, f"{name}-first"), topic(bootstrap, f"{name}-second")
    from_start(java, name)
    fill(bootstrap, first, range(3))
    fill(bootstrap, second, range(10, 13))
    consumer = java.consumer(f"{name}-a", name, first)
    assert values(consumer.until(3)) == [0, 1, 2]
    consumer.subscribe(second)
    assert values(consumer.until(3)) == [10, 11, 12]
    fill(bootstrap, first, range(3, 4))
    consumer.nothing_for()
    consumer.subscribe(first, second)
    assert values(consumer.until(1)) == [3]
    consumer.close()


def test_a_topic_that_is_made_later_and_deleted(
    java: JavaShares, bootstrap: str, name: str
) -> None:
    from_start(java, name)
    consumer = java.consumer(f"{name}-a", name, name, allow_auto_create_topics="false")
    consumer.nothing_for(2)
    topic(bootstrap, name)
    fill(bootstrap, name, range(2))
    assert values(consumer.until(2)) == [0, 1]
    consumer.poll()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(60)
    consumer.nothing_for()
    topic(bootstrap, name)
    fill(bootstrap, name, range(20, 22))
    # What the group had done with the one before says nothing of this one.
    assert values(consumer.until(2)) == [20, 21]
    consumer.close()
