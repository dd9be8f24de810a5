"""confluent-kafka (librdkafka), unmodified, against a real daemon, both ways round with ours."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from segbroker.client import Consumer as OurConsumer
from segbroker.client import Producer as OurProducer

from ..support.daemon import Daemon, start

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60

Setting = str | int | float | bool


def settings(daemon: Daemon) -> dict[str, Setting]:
    return {"bootstrap.servers": daemon.address}


def produce(
    daemon: Daemon, topic: str, values: list[bytes], more: dict[str, Setting] | None = None
) -> list[Message]:
    """Every record delivered, or the test fails; the delivery reports in order of arrival."""
    reports: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    producer = Producer({**settings(daemon), **(more or {})})
    for n, value in enumerate(values):
        producer.produce(
            topic, value, key=b"key-%d" % n, headers={"n": b"%d" % n}, on_delivery=on_delivery
        )
    assert producer.flush(TIMEOUT_S) == 0
    return reports


def consume(daemon: Daemon, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = ConfluentConsumer(
        {**settings(daemon), "group.id": "by-assignment", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    seen: list[Message] = []
    while len(seen) < count:
        messages = consumer.consume(count - len(seen), timeout=TIMEOUT_S)
        assert messages, f"quiet after {len(seen)} of {count}"
        for message in messages:
            assert message.error() is None, message.error()
        seen += messages
    consumer.close()
    return seen


def create(
    daemon: Daemon, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient(settings(daemon))
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(
        TIMEOUT_S
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_sent_with_every_codec(
    daemon: Daemon, topic: Callable[[], str], codec: str, idempotent: bool
) -> None:
    name = topic()
    create(daemon, name)
    values = [b"value %d " % n * 20 for n in range(500)]
    produce(daemon, name, values, {"compression.type": codec, "enable.idempotence": idempotent})
    seen = consume(daemon, name, 500)
    assert [message.value() for message in seen] == values
    assert [message.key() for message in seen] == [b"key-%d" % n for n in range(500)]
    assert [message.offset() for message in seen] == list(range(500))
    assert seen[7].headers() == [("n", b"7")]


@pytest.mark.parametrize("codec", CODECS)
def test_our_client_reads_what_librdkafka_wrote(
    daemon: Daemon, topic: Callable[[], str], codec: Codec
) -> None:
    name = topic()
    create(daemon, name)
    values = [b"from librdkafka %d" % n for n in range(300)]
    produce(daemon, name, values, {"compression.type": codec})
    with OurConsumer(daemon.address, name, start="start", stop_at_end=True) as consumer:
        records = list(consumer)
    assert [record.value for record in records] == values
    assert records[3].key == b"key-3"
    assert records[3].headers == (("n", b"3"),)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_our_client_wrote(
    daemon: Daemon, topic: Callable[[], str], codec: Codec
) -> None:
    name = topic()
    create(daemon, name)
    values = [b"from segbroker %d" % n for n in range(300)]
    with OurProducer(daemon.address, compression=codec) as producer:
        for n, value in enumerate(values):
            producer.send(name, value, key=b"%d" % n, headers=[("n", b"%d" % n)])
    seen = consume(daemon, name, 300)
    assert [message.value() for message in seen] == values
    assert seen[3].key() == b"3"
    assert seen[3].headers() == [("n", b"3")]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks_delivers(daemon: Daemon, topic: Callable[[], str], acks: str) -> None:
    name = topic()
    create(daemon, name)
    produce(daemon, name, [b"x"] * 100, {"acks": acks})
    assert len(consume(daemon, name, 100)) == 100


def test_a_topic_is_made_on_first_use_and_keys_go_where_java_would_put_them(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    reports = produce(daemon, name, [b"x"] * 50, {"partitioner": "murmur2_random"})
    partitions = len(AdminClient(settings(daemon)).list_topics(name).topics[name].partitions)
    theirs = {message.key(): message.partition() for message in reports}
    with OurProducer(daemon.address) as producer:
        ours = {
            key: producer.send(name, b"x", key=key).result(TIMEOUT_S).partition for key in theirs
        }
    assert ours == theirs
    assert partitions > 1
    assert len(set(theirs.values())) > 1


def test_a_consumer_that_waits_at_the_end_is_woken_by_the_append(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    create(daemon, name)
    consumer = ConfluentConsumer(
        {**settings(daemon), "group.id": "waits", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    end = consumer.poll(TIMEOUT_S)
    assert end is not None
    error = end.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    produce(daemon, name, [b"now"])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"now"
    consumer.close()


def test_an_offset_is_found_by_the_time_of_its_record_to_the_exact_record(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    create(daemon, name)
    producer = Producer({**settings(daemon), "compression.type": "lz4"})
    for n in range(100):
        producer.produce(name, b"x", timestamp=1_700_000_000_000 + n * 1000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = ConfluentConsumer({**settings(daemon), "group.id": "time"})
    for asked, expected in ((0, 0), (41_500, 42), (42_000, 42), (99_000, 99)):
        (found,) = consumer.offsets_for_times(
            [TopicPartition(name, 0, 1_700_000_000_000 + asked)], timeout=TIMEOUT_S
        )
        assert found.offset == expected
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=TIMEOUT_S) == (0, 100)
    consumer.close()


def test_topics_are_created_described_altered_grown_and_deleted(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    admin = AdminClient(settings(daemon))
    create(daemon, name, 2, {"segment.bytes": "65536"})
    assert len(admin.list_topics(name).topics[name].partitions) == 2
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["segment.bytes"].value == "65536"
    assert described["durability"].value == "fsync"
    admin.create_partitions([NewPartitions(name, 5)])[name].result(TIMEOUT_S)
    assert len(admin.list_topics(name).topics[name].partitions) == 5
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    assert name not in admin.list_topics().topics


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("with spaces", {}, KafkaError.TOPIC_EXCEPTION),
        ("..", {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, {}, KafkaError.TOPIC_EXCEPTION),
        ("bad-config", {"segment.bytes": "many"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    daemon: Daemon, name: str, config: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as caught:
        create(daemon, name, 1, config)
    assert caught.value.args[0].code() == code
    assert caught.value.args[0].str()


def test_a_batch_that_cannot_fit_a_segment_is_refused_and_the_rest_is_served(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    create(daemon, name, 1, {"segment.bytes": "16384"})
    errors: list[KafkaError | None] = []
    producer = Producer(settings(daemon))
    for size in (100, 20_000, 100):
        producer.produce(name, bytes(size), on_delivery=lambda error, _: errors.append(error))
        producer.flush(TIMEOUT_S)
    assert errors[0] is None
    assert errors[1] is not None
    assert errors[1].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[2] is None
    assert len(consume(daemon, name, 2)) == 2


@pytest.mark.parametrize("length", [0, 249])
def test_records_survive_a_restart_of_the_daemon_and_a_kill(
    tmp_path: Path, topic: Callable[[], str], length: int
) -> None:
    name = topic().ljust(length, "x")
    expected: list[bytes] = []
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        daemon = start(tmp_path / "data")
        values = [b"%s %d" % (how.name.encode(), n) for n in range(200)]
        with OurProducer(daemon.address) as producer:
            producer.send_many(name, values, partition=0)
        expected += values
        daemon.stop(how)
    daemon = start(tmp_path / "data")
    try:
        seen = consume(daemon, name, len(expected))
        assert [message.value() for message in seen] == expected
        assert [message.offset() for message in seen] == list(range(len(expected)))
    finally:
        daemon.stop()
