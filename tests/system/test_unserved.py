"""A partition that the broker does not serve, as clients meet it: its directory was not there when
the broker started (a disk that is not mounted).  They go on with the others, and read it when it is
back."""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import running

SERVED = {0, 2}
READS_MAX = 600


def _read_until(poll: Callable[[], set[int]], wanted: set[int]) -> None:
    """Poll, 100 ms at a time, until there were records of these partitions."""
    seen: set[int] = set()
    for _ in range(READS_MAX):
        if seen >= wanted:
            return
        seen |= poll()
    raise AssertionError(f"records of partitions {seen} only")


def test_clients_go_on_with_the_others_and_read_it_when_it_is_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as daemon, Producer(daemon.address) as producer:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=3)
        for partition in range(3):
            producer.send("t", b"v", partition=partition)
    (data / "topics/t/partition_1").rename(tmp_path / "away")
    with running(data) as daemon:
        theirs = LibrdkafkaConsumer({"bootstrap.servers": daemon.address, "group.id": "theirs"})
        theirs.assign([TopicPartition("t", n, 0) for n in range(3)])
        python = KafkaConsumer(bootstrap_servers=daemon.address, auto_offset_reset="earliest")
        python.assign([KafkaTopicPartition("t", n) for n in range(3)])
        with Consumer(daemon.address, "t", start="start") as consumer:

            def of_ours() -> set[int]:
                return {record.partition for record in consumer.poll(timeout_ms=100)}

            def of_librdkafka() -> set[int]:
                found = theirs.poll(0.1)
                partition = None if found is None or found.error() else found.partition()
                return set() if partition is None else {partition}

            def of_python() -> set[int]:
                return {tp.partition for tp in python.poll(100)}

            for poll in (of_ours, of_librdkafka, of_python):
                _read_until(poll, SERVED)
            with Producer(daemon.address, linger_ms=0) as producer:
                for _ in range(20):
                    assert producer.send("t", b"no key").result().partition in SERVED
            sender = KafkaProducer(bootstrap_servers=daemon.address)
            sent = [sender.send("t", b"no key") for _ in range(20)]
            assert {one.get(60).partition for one in sent} <= SERVED
            (tmp_path / "away").rename(data / "topics/t/partition_1")
            for poll in (of_ours, of_librdkafka, of_python):
                _read_until(poll, {1})
            assert sender.send("t", b"v", partition=1).get(60).offset == 1
            sender.close()
            python.close()
            theirs.close()
