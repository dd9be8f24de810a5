"""What our client writes confluent-kafka reads, and the reverse, with every codec."""

from collections.abc import Iterator

import confluent_kafka
import pytest

from segbroker.client import Consumer, Producer

from ..support.daemon import Daemon

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"%d" % number * (number % 50) for number in range(500)]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_we_write(daemon: Daemon, topic: str, codec: str) -> None:
    with Producer(daemon.address, compression=codec) as producer:  # type: ignore[arg-type]
        for value in VALUES:
            producer.send(
                topic, value, key=b"k", headers=[("h", b"1")], partition=0, timestamp_ms=77
            )
    messages = list(read_with_confluent(daemon.address, topic, len(VALUES)))
    assert [message.value() for message in messages] == VALUES
    assert [message.offset() for message in messages] == list(range(len(VALUES)))
    assert {message.key() for message in messages} == {b"k"}
    assert messages[0].headers() == [("h", b"1")]
    assert messages[0].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 77)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_we_read_what_confluent_kafka_writes(
    daemon: Daemon, topic: str, codec: str, idempotent: bool
) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": daemon.address,
            "compression.type": codec,
            "enable.idempotence": idempotent,
        }
    )
    for value in VALUES:
        producer.produce(topic, value, key=b"k", headers=[("h", b"1")], partition=0, timestamp=77)
    assert producer.flush(30) == 0
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        records = list(consumer)
    assert [record.value for record in records] == VALUES
    assert {(r.key, r.headers, r.timestamp_ms) for r in records} == {(b"k", (("h", b"1"),), 77)}


def test_a_key_goes_to_the_partition_that_librdkafkas_murmur2_says(
    daemon: Daemon, topic: str
) -> None:
    keys = [b"key-%d" % number for number in range(50)]
    theirs = confluent_kafka.Producer(
        {"bootstrap.servers": daemon.address, "partitioner": "murmur2_random"}
    )
    for key in keys:
        theirs.produce(topic, b"theirs", key=key)
    assert theirs.flush(30) == 0
    with Producer(daemon.address) as ours:
        ours.send_many(topic, [b"ours"] * len(keys), keys=keys)
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        places = {(record.key, record.value): record.partition for record in consumer}
    assert [places[key, b"ours"] for key in keys] == [places[key, b"theirs"] for key in keys]


def read_with_confluent(address: str, topic: str, count: int) -> Iterator[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        for _ in range(count):
            message = consumer.poll(30)
            assert message is not None, "nothing came within 30 s"
            assert message.error() is None, message.error()
            yield message
    finally:
        consumer.close()
