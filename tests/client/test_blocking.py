"""The blocking shell against a real broker."""

import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from segbroker.client import (
    Admin,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    Consumer,
    Delivery,
    DeliveryFailed,
    OffsetAndTimestamp,
    OffsetOutOfRange,
    Producer,
    Record,
    RecordMetadata,
    TimedOut,
    TopicAlreadyExists,
    TopicPartition,
    UnknownTopicOrPartition,
)
from segbroker.client.clock import now_ms
from segbroker.client.completion import Waitable
from segbroker.client.connection import Connection
from segbroker.client.errors import LeaderNotAvailable
from segbroker.client.spoken import Buffer
from segbroker.client.thread_driver import ThreadDriver
from segbroker.client.transport import Transport
from segbroker.client.waiting import wait_done
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import Daemon, running, start
from ..support.ports import keep_port, port_of
from ..support.waiting import DEADLINE_S, until, within_one_of


def numbers(count: int) -> list[bytes | None]:
    return [b"%06d" % number for number in range(count)]


def read_values(address: str, topic: str) -> list[bytes | None]:
    with Consumer(address, topic, stop_at_end=True) as consumer:
        return [value for batch in consumer.batches() for value in batch.values()]


def test_what_is_sent_comes_back_as_it_was(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        delivery = producer.send(
            topic,
            b"value",
            key=b"key",
            headers=[("h", b"1"), ("h", None)],
            partition=1,
            timestamp_ms=1_234,
        )
        assert delivery.result(60) == RecordMetadata(topic, 1, 0, 1_234)
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        assert list(consumer) == [
            Record(topic, 1, 0, 1_234, b"key", b"value", (("h", b"1"), ("h", None)))
        ]


def test_leaving_the_block_delivers_everything(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address, linger_ms=60_000) as producer:
        for value in numbers(5_000):
            producer.send(topic, value, partition=0)
    assert read_values(daemon.address, topic) == numbers(5_000)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_makes_the_round_trip(daemon: Daemon, topic: str, compression: str) -> None:
    with Producer(daemon.address, compression=compression) as producer:  # type: ignore[arg-type]
        producer.send_many(topic, numbers(1_000), partition=0)
    assert read_values(daemon.address, topic) == numbers(1_000)


def test_plain_records_keep_their_order_and_know_their_offsets(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address, batch_bytes=2_000, buffer_bytes=20_000) as producer:
        deliveries = [producer.send(topic, value) for value in numbers(20_000)]
        # Large ones and keyed ones take another way in, and must not overtake.
        deliveries.append(producer.send(topic, b"large" * 1_000))
        deliveries.append(producer.send(topic, b"keyed", key=b"k"))
        assert [d.result(60).offset for d in deliveries] == list(range(20_002))
        assert all(d.done for d in deliveries)
    assert read_values(daemon.address, topic)[:-2] == numbers(20_000)


def test_small_batches_do_not_overtake_a_first_one_that_is_too_large(
    daemon: Daemon, topic: str
) -> None:
    """The broker refuses those in front, and does not know the producer when the last one comes."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1, config={"max.message.bytes": "10000"})
    with Producer(daemon.address, batch_bytes=40_000) as producer:
        # Four batches that are too large, and one that is not: all on their way at once.
        producer.send_many(topic, [b"%06d" % number * 100 for number in range(265)])
    values = read_values(daemon.address, topic)
    assert [int((value or b"")[:6]) for value in values] == list(range(265))


def test_many_threads_may_send_with_one_producer(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address, batch_bytes=1_000) as producer:
        results: dict[int, list[tuple[bytes, RecordMetadata]]] = {}

        def send(number: int) -> None:
            values = [b"%d:%d" % (number, i) for i in range(2_000)]
            deliveries = [producer.send(topic, value) for value in values]
            results[number] = [
                (value, d.result(60)) for value, d in zip(values, deliveries, strict=True)
            ]

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        stored = {(r.partition, r.offset): r.value for r in consumer}
    assert len(stored) == 8_000
    for rows in results.values():
        for value, where in rows:
            assert stored[where.partition, where.offset] == value


def test_a_record_that_nobody_waits_for_is_sent_by_itself(daemon: Daemon, topic: str) -> None:
    """The I/O thread sleeps, for a minute, and is woken."""
    with Producer(daemon.address, linger_ms=20, request_timeout_ms=600_000) as producer:
        for _ in range(3):  # by then it is known how large they are
            producer.send(topic, b"waited for").result(60)
        until(lambda: producer._driver._asleep_until_ms > now_ms() + 30_000)
        delivery = producer.send(topic, b"by itself")
        until(lambda: delivery.done, deadline_s=25)


def test_send_many_answers_where_each_record_went(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        deliveries = producer.send_many(topic, numbers(3_000), partition=2)
        keyed = producer.send_many(topic, [b"a", b"b"], keys=[b"1", b"2"])
        assert [m.offset for m in deliveries.result(60)] == list(range(3_000))
        assert len(deliveries) == 3_000
        assert deliveries[-1].result().offset == 2_999
        assert len(keyed.result(60)) == 2


def test_a_full_buffer_makes_send_wait_and_send_nowait_say_busy(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address, buffer_bytes=50_000, batch_bytes=10_000) as producer:
        producer.send(topic, b"first").result(60)
        with pytest.raises(BusyError, match="bytes are under way"):  # noqa: PT012
            for _ in range(1_000_000):
                producer.send_nowait(topic, b"x" * 5_000)
        for _ in range(500):
            producer.send(topic, b"x" * 5_000)


def test_records_that_failed_are_handed_back_at_the_end(daemon: Daemon, topic: str) -> None:
    with pytest.raises(DeliveryFailed) as caught, Producer(daemon.address) as producer:  # noqa: PT012
        producer.send(topic, b"fits").result(60)
        producer.send(topic, b"x" * 2_000_000, key=b"k")
    (record,) = caught.value.undelivered
    assert (record.topic, record.key, len(record.value or b"")) == (topic, b"k", 2_000_000)
    assert not record.error.retryable


def test_an_exception_in_the_block_is_what_is_raised(daemon: Daemon, topic: str) -> None:
    with pytest.raises(ZeroDivisionError), Producer(daemon.address, linger_ms=60_000) as producer:  # noqa: PT012
        producer.send(topic, b"still delivered", partition=0)
        _ = 1 / 0
    assert read_values(daemon.address, topic) == [b"still delivered"]


def test_what_an_exception_left_undelivered_is_said_in_a_note(tmp_path: Path, topic: str) -> None:
    daemon = start(tmp_path / "data")
    with pytest.raises(ZeroDivisionError) as caught, Producer(daemon.address) as producer:  # noqa: PT012
        producer.send(topic, b"delivered").result(60)
        daemon.stop(signal.SIGKILL)
        producer.send(topic, b"lost")
        _ = 1 / 0
    assert "1 record was not delivered" in caught.value.__notes__[0]


def test_of_many_that_ctrl_c_left_undelivered_the_note_counts_them_all(
    tmp_path: Path, topic: str
) -> None:
    daemon = start(tmp_path / "data")
    producer = Producer(daemon.address, linger_ms=60_000)
    with pytest.raises(KeyboardInterrupt) as caught, producer:  # noqa: PT012
        producer.send(topic, b"delivered")
        producer.flush(60)
        daemon.stop(signal.SIGKILL)
        for n in range(1000):
            producer.send(topic, b"%04d" % n, partition=0)
        raise KeyboardInterrupt
    (note,) = caught.value.__notes__
    assert note.startswith(f"1000 records were not delivered: {topic}-0 value of 4 bytes: ")
    assert note.endswith("; and 997 more")


def test_a_block_that_was_left_is_closed(daemon: Daemon, topic: str) -> None:
    producer = Producer(daemon.address)
    with pytest.raises(ClosedError):
        producer.send(topic, b"too early")
    with producer:
        producer.send(topic, b"in time")
    with pytest.raises(ClosedError):
        producer.send(topic, b"too late")
    consumer = Consumer(daemon.address, topic)
    with pytest.raises(ClosedError):
        consumer.poll()


def test_a_broker_that_is_not_there_is_said_within_the_connect_timeout() -> None:
    port = keep_port()

    def is_said(within_ms: int) -> None:
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable, match=rf"127\.0\.0\.1:{port}.*[Rr]efused"):
            Producer(f"127.0.0.1:{port}", connect_timeout_ms=within_ms).__enter__()
        assert time.monotonic() - began < 9  # the default would be 10 s

    within_one_of((300, 5_000), is_said)


def test_a_host_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(BrokerUnreachable, match=r"nowhere\.invalid"):
        Consumer("nowhere.invalid:9092", connect_timeout_ms=500).__enter__()


def test_localhost_is_tried_at_each_of_its_addresses(daemon: Daemon) -> None:
    _, port = daemon.host_and_port
    with Admin(f"localhost:{port}") as admin:
        assert admin.describe_cluster().brokers


@pytest.mark.usefixtures("made")
def test_no_thread_is_left_behind(daemon: Daemon, topic: str) -> None:
    before = set(threading.enumerate())  # a lookup of the test above may still end
    with Producer(daemon.address) as producer, Consumer(daemon.address, topic) as consumer:
        producer.send(topic, b"x").result(60)
        consumer.poll(timeout_ms=10)
        ours = set(threading.enumerate()) - before
        assert len(ours) == 2
    assert not ours & set(threading.enumerate())


# Far less than any of our deadlines; how soon is measured by `python -m bench interrupts`.
SOON_S = 8


def interrupted_after(wait: Callable[[], object]) -> float:
    """Seconds from Ctrl-C to the end of a wait."""
    at: list[float] = []

    def interrupt() -> None:
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.05, interrupt)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come before the wait
        timer.start()
        wait()
    took = time.monotonic() - at[0]
    timer.join()
    return took


@pytest.mark.usefixtures("made")
def test_a_signal_that_interrupts_no_wait_is_seen_soon_all_the_same(
    daemon: Daemon, topic: str
) -> None:
    """As one that comes between the interpreter's last look and the wait: here another thread's."""
    with Producer(daemon.address) as producer, Consumer(daemon.address, topic) as consumer:
        producer.send(topic, b"x").result(60)
        assert consumer.poll(timeout_ms=60_000)
        at: list[float] = []

        def interrupt() -> None:
            at.append(time.monotonic())
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        timer = threading.Timer(0.1, interrupt)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come before the wait
            timer.start()
            consumer.poll(timeout_ms=60_000)
        assert time.monotonic() - at[0] < SOON_S
        timer.join()


def test_ctrl_c_ends_every_kind_of_wait(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Consumer(daemon.address, topic) as consumer:
        assert consumer.position(topic, 0) == 0
        assert interrupted_after(lambda: next(iter(consumer))) < SOON_S
        assert interrupted_after(lambda: next(consumer.batches())) < SOON_S
        assert interrupted_after(lambda: consumer.poll(timeout_ms=60_000)) < SOON_S


def test_ctrl_c_in_a_block_leaves_it(daemon: Daemon, topic: str) -> None:
    def produce() -> None:
        with Producer(daemon.address, linger_ms=60_000) as producer:
            producer.send(topic, b"never sent")
            threading.Event().wait()

    def consume() -> None:
        with Consumer(daemon.address, topic) as consumer:
            for _ in consumer:
                pass

    with Producer(daemon.address) as producer:
        producer.partitions_for(topic)
    assert interrupted_after(produce) < SOON_S
    assert interrupted_after(consume) < SOON_S


# Reading.


def test_polling_gives_what_there_is_and_continues(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, numbers(10), partition=0)
    with Consumer(daemon.address) as consumer:
        consumer.assign([(topic, 0)])
        assert [r.offset for r in consumer.poll(4, 60_000)] == [0, 1, 2, 3]
        assert consumer.position(topic, 0) == 4
        assert [r.offset for r in consumer.poll(100, 60_000)] == [4, 5, 6, 7, 8, 9]
        assert consumer.poll(100, 20) == []
        assert consumer.positions() == {TopicPartition(topic, 0): 10}


def test_a_loop_that_was_left_goes_on_where_it_stopped(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, numbers(10), partition=0)
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        for record in consumer:
            if record.offset == 3:
                break
        assert consumer.position(topic, 0) == 4
        assert [r.offset for r in consumer] == [4, 5, 6, 7, 8, 9]


def test_seeking_in_a_loop_is_obeyed_by_the_next_record(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, numbers(10), partition=0)
    seen: list[int] = []
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                consumer.seek(topic, 0, 7)
    assert seen == [0, 1, 2, 7, 8, 9]


def test_offsets_are_those_of_the_partitions_that_there_are_now(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as asker, Admin(daemon.address) as other:
        asker.create_topic(topic, partitions=1)
        assert len(asker.offsets(topic)) == 1
        asker.create_partitions(topic, 2)
        assert len(asker.offsets(topic)) == 2
        other.create_partitions(topic, 3)
        assert asker.delete_records({(topic, 2): -1}) == {TopicPartition(topic, 2): 0}
        assert len(asker.offsets(topic)) == 3
        other.delete_topic(topic)
        for ask in (lambda: asker.offsets(topic), lambda: asker.delete_records({(topic, 0): -1})):
            with pytest.raises(UnknownTopicOrPartition):
                ask()
        other.create_topic(topic, partitions=2)
        assert len(asker.offsets([topic])) == 2


def test_offsets_by_start_end_and_time(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        for second in range(10):
            producer.send(topic, b"x", partition=0, timestamp_ms=1_000 * second)
    tp = TopicPartition(topic, 0)
    with Consumer(daemon.address) as consumer:
        consumer.assign([tp])
        assert consumer.beginning_offsets() == {tp: 0}
        assert consumer.end_offsets(tp) == {tp: 10}
        assert consumer.offsets_for_times({tp: 4_500}) == {tp: OffsetAndTimestamp(5, 5_000)}
        assert consumer.offsets_for_times({tp: 99_000}) == {tp: None}
        assert consumer.partitions_for(topic) == 4
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=7)
        consumer.seek(topic, 0, moment)
        assert consumer.poll(1, 60_000)[0].offset == 7


def test_an_offset_outside_the_log_is_an_error(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, numbers(10), partition=0)
    with Consumer(daemon.address) as consumer:
        consumer.assign([(topic, 0)], start=500)
        with pytest.raises(OffsetOutOfRange, match=r"offset 500 is outside \[0, 10\]"):
            consumer.poll(1, 60_000)
        consumer.seek(topic, 0, "start")
        assert consumer.poll(1, 60_000)[0].offset == 0


def test_a_topic_that_does_not_exist_is_an_error(daemon: Daemon) -> None:
    missing = pytest.raises(UnknownTopicOrPartition, match="not-there")
    with Consumer(daemon.address, "not-there") as consumer, missing:
        consumer.poll(1, 60_000)


def test_all_that_was_subscribed_to_is_meant_at_once(daemon: Daemon, topic: str) -> None:
    """Where no partitions are named, also before those of the topics are known: an empty answer
    would have a program take an unread topic for one that is read to its end."""
    with Producer(daemon.address) as producer:
        producer.send_many(topic, [b"x"] * 100, partition=0)
        count = producer.partitions_for(topic)
    ends = {TopicPartition(topic, number): 0 if number else 100 for number in range(count)}
    for ask, answer in (
        (Consumer.end_offsets, ends),
        (Consumer.beginning_offsets, dict.fromkeys(ends, 0)),
        (Consumer.positions, dict.fromkeys(ends, 0)),
    ):
        with Consumer(daemon.address) as consumer:
            consumer.subscribe([topic])
            assert ask(consumer) == answer
            assert consumer.assignment == list(ends)
    with Consumer(daemon.address) as consumer:
        consumer.subscribe([topic])
        consumer.pause()
        consumer.seek(topic, 0, 40)
        assert consumer.position(topic, 0) == 40
        assert consumer.poll(timeout_ms=50) == []
        consumer.resume()
        assert next(iter(consumer)).offset == 40
    with Consumer(daemon.address) as consumer:
        consumer.subscribe(["not-there"])
        with pytest.raises(UnknownTopicOrPartition, match="not-there"):
            consumer.end_offsets()


def test_a_topic_that_is_written_later_is_read_as_it_comes(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer, Consumer(daemon.address) as consumer:
        count = producer.partitions_for(topic)
        consumer.assign([(topic, number) for number in range(count)], start="end")
        assert set(consumer.positions().values()) == {0}
        producer.send(topic, b"new")
        assert [r.value for r in consumer.poll(1, 60_000)] == [b"new"]


def test_two_threads_reading_at_once_is_busy(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.partitions_for(topic)
    with Consumer(daemon.address, topic) as consumer:
        errors: list[BaseException] = []

        def read() -> None:
            try:
                while not errors:
                    consumer.poll(1, 100)
            except BusyError as exc:
                errors.append(exc)

        thread = threading.Thread(target=read)
        thread.start()
        read()
        thread.join()
    assert len(errors) == 1


def test_columns_for_arrow(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send(topic, b"1", key=b"k", partition=0, timestamp_ms=1_000, headers=[("a", b"b")])
        producer.send(topic, None, partition=0, timestamp_ms=2_000)
        producer.send(topic, b"3", partition=0, timestamp_ms=3_000)
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)], start=1)
        (batch,) = consumer.batches()
        table = batch.to_arrow()
    assert table.column("offset").to_pylist() == [1, 2]
    assert table.column("value").to_pylist() == [None, b"3"]
    assert table.column("key").to_pylist() == [None, None]
    assert table.column("timestamp").to_pylist()[1] == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert table.schema.metadata == {b"topic": topic.encode(), b"partition": b"0"}


# Administration.


def test_a_question_that_is_not_answered_in_time_says_what_the_last_answer_was(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "data") as daemon, Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1)
        (tmp_path / "data/topics/t/partition_0").rename(tmp_path / "gone")

        def says_the_last_answer(within_ms: int) -> None:
            with (
                Consumer(daemon.address, api_timeout_ms=within_ms) as hurried,
                pytest.raises(TimedOut, match=r"; last: offsets of t-0: "),
            ):
                hurried.end_offsets(("t", 0))

        within_one_of((2_000, 20_000), says_the_last_answer)
        with pytest.raises(LeaderNotAvailable, match=r"^offsets of t-0: "):
            admin.offsets("t", "end")
        (tmp_path / "gone").rename(tmp_path / "data/topics/t/partition_0")
        while not (found := admin.offsets("t", "end", only_served=True)):
            pass  # the broker tries again about every second
        assert found[TopicPartition("t", 0)].offset == 0


def test_a_position_that_is_not_found_in_time_says_why(tmp_path: Path) -> None:
    """Not that no broker could be reached, where one says that it does not serve the partition."""
    with running(tmp_path / "data") as daemon, Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=2)
        (tmp_path / "data/topics/t/partition_0").rename(tmp_path / "gone")
        with pytest.raises(LeaderNotAvailable):
            admin.offsets("t", "end")

        def says_why(within_ms: int) -> None:
            with (
                Consumer(daemon.address, "t", api_timeout_ms=within_ms) as hurried,
                pytest.raises(LeaderNotAvailable, match="t-0: no broker serves the partition"),
            ):
                hurried.position("t", 0)

        within_one_of((5_000, 20_000), says_why)


def test_clients_can_be_opened_without_a_block(daemon: Daemon, topic: str) -> None:
    producer = Producer(daemon.address, linger_ms=60_000).open()
    producer.send(topic, b"value")
    producer.close()  # delivers
    consumer = Consumer(daemon.address, topic, start="start", stop_at_end=True).open()
    assert [record.value for record in consumer] == [b"value"]
    consumer.close()
    admin = Admin(daemon.address).open()
    assert topic in admin.list_topics()
    admin.close()
    admin.close()
    with pytest.raises(ClosedError, match=r"or open\(\) it"):
        Admin(daemon.address).list_topics()


def test_a_producer_that_nobody_closed_delivers_at_the_end_of_the_process(
    daemon: Daemon, topic: str
) -> None:
    program = (
        "from segbroker.client import Producer\n"
        f"producer = Producer({daemon.address!r}, linger_ms=60_000).open()\n"
        f"producer.send({topic!r}, b'value')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with Consumer(daemon.address, topic, start="start", stop_at_end=True) as consumer:
        assert [record.value for record in consumer] == [b"value"]


def test_at_the_end_of_the_process_an_address_is_found_without_a_thread(
    tmp_path: Path, topic: str
) -> None:
    """Python 3.12 starts none any more then."""
    program = """
import sys, threading
from segbroker.client import Producer

start = threading.Thread.start

def none_at_the_end(thread):
    if not threading.main_thread().is_alive():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

threading.Thread.start = none_at_the_end
producer = Producer(sys.argv[1], linger_ms=60_000, delivery_timeout_ms=90_000).open()
producer.send(sys.argv[2], b"value")
"""
    # By a name other than that by which the first connection was made.
    with running(tmp_path / "data", "--advertised", "localhost:0") as daemon:
        command = [sys.executable, "-c", program, daemon.address, topic]
        done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        assert done.stderr == ""
        with Consumer(daemon.address, topic, start="start", stop_at_end=True) as consumer:
            assert [record.value for record in consumer] == [b"value"]


def test_a_partition_that_was_added_a_moment_ago_can_be_sent_to(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"known").result(60)
        admin.create_partitions(topic, 3)
        assert producer.send(topic, b"new", partition=2).result(60).partition == 2
        admin.create_partitions(topic, 4)
        deliveries = producer.send_many(topic, [b"a", b"b"], partition=3)
        assert [one.offset for one in deliveries.result(60)] == [0, 1]


def test_several_threads_can_be_the_first_to_send_to_a_new_partition(
    daemon: Daemon, topic: str
) -> None:
    sent: list[RecordMetadata | Exception] = []
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"known").result(60)
        admin.create_partitions(topic, 4)
        together = threading.Barrier(4)

        def send() -> None:
            together.wait(60)
            try:
                sent.append(producer.send(topic, b"new", partition=3).result(60))
            except ValueError as exc:
                sent.append(exc)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(ValueError, match="outside"):
            producer.send(topic, b"never", partition=9)
    assert sorted(one.offset if isinstance(one, RecordMetadata) else -1 for one in sent) == [
        *range(4)
    ]


def test_topics_are_made_described_changed_and_deleted(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2, config={"segment.bytes": "65536"})
        assert topic in admin.list_topics()
        with pytest.raises(TopicAlreadyExists, match=topic):
            admin.create_topic(topic)
        admin.create_partitions(topic, 5)
        admin.alter_topic_config(topic, {"segment.ms": "60000", "segment.bytes": None})
        described = admin.describe_topic(topic)
        assert len(described.partitions) == 5
        assert described.config["segment.ms"].value == "60000"
        assert not described.config["segment.ms"].is_default
        assert described.config["segment.bytes"].is_default
        with Producer(daemon.address) as producer:
            producer.send_many(topic, numbers(10), partition=0)
        assert admin.offsets(topic)[TopicPartition(topic, 0)].offset == 10
        assert admin.offsets(topic, "start")[TopicPartition(topic, 0)].offset == 0
        assert admin.delete_records({(topic, 0): 4}) == {TopicPartition(topic, 0): 4}
        assert admin.describe_topics([topic]) == {topic: admin.describe_topic(topic)}
        (one,) = admin.describe_topics([topic], keys=["segment.ms"]).values()
        assert {key: (entry.value, entry.documentation) for key, entry in one.config.items()} == {
            "segment.ms": ("60000", None)
        }
        with pytest.raises(UnknownTopicOrPartition, match="never-made"):
            admin.describe_topics([topic, "never-made"])
        assert admin.offsets(topic, "start")[TopicPartition(topic, 0)].offset == 4
        admin.delete_topic(topic)
        assert topic not in admin.list_topics()
        with pytest.raises(UnknownTopicOrPartition):
            admin.describe_topic(topic)


# A network that fails.


def test_cuts_between_append_and_answer_neither_lose_nor_repeat(tmp_path: Path, topic: str) -> None:
    data = tmp_path / "data"
    with CuttingProxy(("127.0.0.1", port_of(data))) as proxy:
        daemon = start(data, "--durability", "disk", "--advertised", proxy.address)
        try:
            with Producer(proxy.address, batch_bytes=1_000, linger_ms=0) as producer:
                producer.send(topic, b"first", partition=0).result(60)
                proxy.cut_replies(*range(2, 12))
                proxy.cut_all()
                deliveries = [producer.send(topic, value, partition=0) for value in numbers(20_000)]
                producer.flush(60)
                offsets = [delivery.result().offset for delivery in deliveries]
            assert proxy.cuts >= 5
            assert offsets == list(range(1, 20_001))
            assert read_values(daemon.address, topic) == [b"first", *numbers(20_000)]
        finally:
            daemon.stop()


def test_a_change_that_could_not_be_sent_is_made_when_the_broker_is_back(
    tmp_path: Path, topic: str
) -> None:
    """Nothing was done, so nothing is done twice; what was sent may have been, and is said."""
    daemon = start(tmp_path / "data", "--durability", "disk")
    try:
        with Admin(daemon.address) as admin:
            nodes = admin._engine.network.nodes
            daemon.stop(signal.SIGKILL)
            until(lambda: not any(node.connection for node in nodes.values()))
            creating = threading.Thread(target=admin.create_topic, args=(topic,))
            creating.start()
            until(lambda: any("refused" in str(node.last_error) for node in nodes.values()))
            daemon.again()
            creating.join(60)
            assert topic in admin.list_topics()
            with pytest.raises(TopicAlreadyExists):
                admin.create_topic(topic)
    finally:
        daemon.stop()


def test_the_first_record_of_a_topic_waits_as_long_as_any_record(
    tmp_path: Path, topic: str
) -> None:
    daemon = start(tmp_path / "data")
    try:
        with Producer(daemon.address, delivery_timeout_ms=500) as producer:
            daemon.stop(signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(BrokerUnreachable, match="could be reached"):
                producer.send(topic, b"first")
            assert time.monotonic() - began < 30
    finally:
        daemon.stop()


def test_a_broker_that_is_killed_and_comes_back_gets_everything_once(
    tmp_path: Path, topic: str
) -> None:
    daemon = start(tmp_path / "data", "--durability", "disk")
    try:
        with Producer(daemon.address, batch_bytes=1_000, linger_ms=0) as producer:
            deliveries = []
            for index, value in enumerate(numbers(6_000)):
                deliveries.append(producer.send(topic, value, partition=0))
                if index in (2_000, 4_000):
                    deliveries[index // 2].result(60)
                    daemon.stop(signal.SIGKILL)
                    daemon.again()
            producer.flush(60)
            assert [d.result().offset for d in deliveries] == list(range(6_000))
        assert read_values(daemon.address, topic) == numbers(6_000)
    finally:
        daemon.stop()


def test_a_consumer_reads_on_after_the_broker_came_back(tmp_path: Path, topic: str) -> None:
    daemon = start(tmp_path / "data", "--durability", "disk")
    try:
        with Producer(daemon.address) as producer:
            producer.send_many(topic, numbers(100), partition=0)
        with Consumer(daemon.address, topic) as consumer:
            first = consumer.poll(50, 60_000)
            daemon.stop(signal.SIGKILL)
            daemon.again()
            with Producer(daemon.address) as producer:
                producer.send(topic, b"after", partition=0)
            records = [*first]
            while len(records) < 101:
                records += consumer.poll(100, 60_000)
        assert [r.offset for r in records] == list(range(101))
    finally:
        daemon.stop()


# A process of its own: what it spends is the clients' and nobody else's.
AWAY = """
import os, signal, sys, time
from segbroker.client import Consumer, DeliveryFailed, Producer, TimedOut
address, topic, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = Producer(address, delivery_timeout_ms=2_000)
try:
    with Consumer(address, topic) as consumer, producer:
        producer.send(topic, b"x").result(60)
        os.kill(pid, signal.SIGKILL)
        delivery = producer.send(topic, b"y")
        producer.send(topic, b"z")
        began = time.process_time()
        try:
            delivery.result()
        except TimedOut:
            pass
        consumer.poll(10, 10)
        print(time.process_time() - began)
except DeliveryFailed:
    print("undelivered")
"""


def test_waiting_for_a_broker_that_is_away_costs_next_to_nothing(
    tmp_path: Path, topic: str
) -> None:
    daemon = start(tmp_path / "data", "--durability", "disk")
    try:
        command = [sys.executable, "-c", AWAY, daemon.address, topic, str(daemon.process.pid)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        daemon.stop(signal.SIGKILL)
    spent, undelivered = run.stdout.split()
    assert undelivered == "undelivered"
    # 1 % of a core would be 0.02 s; an empty loop would take 2 s.
    assert float(spent) < 0.5, f"{spent} s of CPU in 2 s"


def test_a_handler_of_the_log_cannot_have_the_client_wait_for_itself(topic: str) -> None:
    """What is logged is written by the thread that would do the work."""
    raised: SimpleQueue[BaseException | None] = SimpleQueue()

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                producer.send("a topic that is not known yet", b"away")
            except BaseException as exc:
                raised.put(exc)
            else:
                raised.put(None)

    handler, log = Sending(), logging.getLogger("segbroker.client")
    port = keep_port()
    with CuttingProxy(("127.0.0.1", port)) as proxy:
        broker = EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address)
        with broker, Producer(proxy.address) as producer:
            producer.send(topic, b"value").result(60)
            log.addHandler(handler)
            try:
                proxy.go_away()
                producer.send(topic, b"value")
                assert isinstance(raised.get(timeout=60), BusyError)
            finally:
                log.removeHandler(handler)
                proxy.come_back()


def test_a_call_that_begins_while_another_request_is_sent_does_not_wait_for_its_answer(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The I/O thread has seen to the other connections by then, and sleeps until something comes:
    of an idle topic that is a fetch that waits for a minute."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    fetches, has_called = threading.Event(), threading.Event()
    send_some = Transport.send_some

    def fetching() -> Connection:
        _, connection = consumer._reading.engine.network.connections()
        return connection

    def send(transport: Transport, buffers: Sequence[Buffer]) -> int:
        if transport.connection is fetching():
            fetches.set()
            assert has_called.wait(DEADLINE_S)
        return send_some(transport, buffers)

    def wait(what: Waitable, timeout_ms: float | None) -> bool:
        if fetches.is_set():
            has_called.set()
        return wait_done(what, timeout_ms)

    with (
        Producer(daemon.address) as producer,
        Consumer(
            daemon.address, fetch_wait_ms=60_000, request_timeout_ms=120_000, api_timeout_ms=15_000
        ) as consumer,
    ):
        consumer.assign([(topic, 0)])
        for _ in range(2):  # behind what follows the first look at the cluster
            producer.send(topic, b"").result(DEADLINE_S)
            assert len(consumer.poll(timeout_ms=60_000)) == 1
        until(lambda: bool(fetching().in_flight) and not fetching().outgoing)
        monkeypatch.setattr(Transport, "send_some", send)
        monkeypatch.setattr("segbroker.client.thread_driver.wait_done", wait)
        producer.send(topic, b"").result(DEADLINE_S)
        assert fetches.wait(DEADLINE_S)
        assert consumer.end_offsets() == {(topic, 0): 3}


def test_what_another_thread_has_sent_meanwhile_is_not_waited_to_be_sent(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without linger a caller sends beside the I/O thread.  The kernel did not take all, the I/O
    thread has sent the rest, and then the caller had it wait for room: it turned without end."""
    caller = threading.current_thread()
    send_some, send_all = Transport.send_some, ThreadDriver._send_all
    cut: list[Transport] = []

    def send(transport: Transport, buffers: Sequence[Buffer]) -> int:
        if threading.current_thread() is caller and not cut:
            cut.append(transport)
            return send_some(transport, [bytes(buffers[0])[:1]])
        return send_some(transport, buffers)

    def then_send(driver: ThreadDriver, transport: Transport) -> object:
        what = send_all(driver, transport)
        if threading.current_thread() is caller and transport in cut:
            driver._wake()
            until(lambda: not transport.connection.outgoing)
        return what

    with Producer(daemon.address, linger_ms=0) as producer:
        producer.send(topic, b"").result(DEADLINE_S)
        monkeypatch.setattr(Transport, "send_some", send)
        monkeypatch.setattr(ThreadDriver, "_send_all", then_send)
        sent_beside(producer, topic, cut).result(DEADLINE_S)
        waits = producer._driver._selector.get_map().values()
        assert {key.events for key in waits} == {selectors.EVENT_READ}


def in_caller(what: Callable[[], object]) -> None:
    """Do it, in the thread of the test."""
    if threading.current_thread() is threading.main_thread():
        what()


def waits_in_vain_for(condition: Callable[[], bool]) -> None:
    """What another thread must not do now, and has some time to."""
    until_ms = now_ms() + 1_000
    while not condition() and now_ms() < until_ms:
        time.sleep(0.001)


def sent_beside(producer: Producer, topic: str, has_come: Sequence[object]) -> Delivery:
    """The first record that the caller has sent itself: the I/O thread may have been faster."""
    for _ in range(1_000):
        delivery = producer.send(topic, b"")
        if has_come:
            return delivery
        delivery.result(DEADLINE_S)
    raise AssertionError("the I/O thread is always faster")


class Waits:
    """An epoll object; `then` is done behind a change that the caller's thread makes."""

    def __init__(self, epoll: Any, then: Callable[[], object]) -> None:  # noqa: ANN401
        self._epoll = epoll
        self._then = then

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._epoll, name)

    def modify(self, number: int, events: int) -> None:
        self._epoll.modify(number, events)
        in_caller(self._then)


def test_a_connection_that_ends_while_a_caller_has_it_wait_for_room_leaves_nothing_behind(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its socket is that of the next one, which could not be waited for any more."""
    send_some = Transport.send_some
    cut: list[Transport] = []
    ended: list[bool] = []

    def send(transport: Transport, buffers: Sequence[Buffer]) -> int:
        if threading.current_thread() is threading.main_thread() and not cut:
            cut.append(transport)
            return send_some(transport, [bytes(buffers[0])[:1]])
        return send_some(transport, buffers)

    with running(tmp_path / "data") as daemon, Producer(daemon.address, linger_ms=0) as producer:
        driver = producer._driver

        def end() -> None:
            if not ended:
                daemon.stop(signal.SIGKILL)
                ended.append(True)
                waits_in_vain_for(lambda: cut[0] not in driver._transports.values())

        producer.send(topic, b"").result(DEADLINE_S)
        selector: Any = driver._selector
        selector._selector = Waits(selector._selector, end)
        monkeypatch.setattr(Transport, "send_some", send)
        delivery = sent_beside(producer, topic, ended)
        daemon.again()
        delivery.result(DEADLINE_S)
        assert all(key.fileobj.fileno() == key.fd for key in selector.get_map().values())


def test_a_connection_that_ends_while_a_caller_sends_to_it_is_closed_behind_that(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed in its hands it would be none any more, or that of the next connection."""
    sent: list[Transport] = []
    send_some = Transport.send_some

    def send(transport: Transport, buffers: Sequence[Buffer]) -> int:
        def end() -> None:
            sent.append(transport)
            daemon.stop(signal.SIGKILL)
            until(lambda: transport not in driver._transports.values())
            assert transport.socket is not None

        if not sent:
            in_caller(end)
        return send_some(transport, buffers)

    with running(tmp_path / "data") as daemon, Producer(daemon.address, linger_ms=0) as producer:
        driver = producer._driver
        producer.send(topic, b"").result(DEADLINE_S)
        monkeypatch.setattr(Transport, "send_some", send)
        delivery = sent_beside(producer, topic, sent)
        assert [transport.socket for transport in sent] == [None]
        daemon.again()
        delivery.result(DEADLINE_S)


def test_a_connection_may_begin_while_a_caller_looks_which_has_something_to_send(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, begun = threading.Event(), threading.Event()
    open_one = ThreadDriver._open

    class Slow(dict[Connection, Transport]):
        def values(self) -> Any:  # noqa: ANN401
            for transport in super().values():
                if threading.current_thread() is threading.main_thread() and not looks.is_set():
                    looks.set()
                    begun.wait(1)
                yield transport

    def begin(driver: ThreadDriver, connection: Connection) -> None:
        looks.wait(DEADLINE_S)
        open_one(driver, connection)
        begun.set()

    with Producer(daemon.address, linger_ms=0) as producer:
        producer.send(topic, b"").result(DEADLINE_S)
        driver = producer._driver
        driver._transports = Slow(driver._transports)
        monkeypatch.setattr(ThreadDriver, "_open", begin)
        with driver.lock:  # one more to the same broker, as a reader has it
            engine = driver.engine
            (number,) = engine.cluster.brokers
            node = engine.cluster.node(number, "another")
            assert node is not None
            engine.network.want(node, now_ms())
        driver._wake()
        until(lambda: not engine.network.is_opening)
        driver.push()
        assert begun.wait(DEADLINE_S)
        producer.send(topic, b"").result(DEADLINE_S)
