"""Below the log start, and at a full topic, as clients of Kafka see it."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from segbroker.client import Admin
from segbroker.client import Producer as OurProducer

from ..support.daemon import Daemon
from .test_kcat import kcat

TIMEOUT_S = 60


def filled(daemon: Daemon, name: str, **settings: str) -> str:
    """Ten records in partition 0, two per segment; the topic's name."""
    config = {"segment.bytes": "512", "index.interval.bytes": "4096", **settings}
    with Admin(daemon.address) as admin:
        admin.create_topic(name, partitions=1, config=config)
    with OurProducer(daemon.address, linger_ms=0) as producer:
        for n in range(10):
            producer.send(name, b"%d" % n + bytes(150), partition=0).result(TIMEOUT_S)
    return name


def first_seen(daemon: Daemon, name: str, offset: int, reset: str) -> Message:
    """What a consumer of librdkafka gets first that begins at `offset`."""
    consumer = Consumer(
        {
            "bootstrap.servers": daemon.address,
            "group.id": "by-assignment",
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(name, 0, offset)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        return message
    finally:
        consumer.close()


def test_deleted_records_are_skipped_or_told_as_auto_offset_reset_says(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = filled(daemon, topic())
    admin = AdminClient({"bootstrap.servers": daemon.address})
    asked = admin.delete_records([TopicPartition(name, 0, 5)])
    (deleted,) = asked.values()
    assert deleted.result(TIMEOUT_S).low_watermark == 5

    earliest = first_seen(daemon, name, 1, "earliest")
    assert (earliest.error(), earliest.offset()) == (None, 5)
    told = first_seen(daemon, name, 1, "error")
    error = told.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str()
    here = first_seen(daemon, name, 7, "error")
    assert (here.error(), here.offset()) == (None, 7)

    (failed,) = admin.delete_records([TopicPartition(name, 0, 99)]).values()
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
        failed.result(TIMEOUT_S)
    (all_of_it,) = admin.delete_records([TopicPartition(name, 0, -1)]).values()
    assert all_of_it.result(TIMEOUT_S).low_watermark == 10


def test_kcat_begins_at_the_log_start(daemon: Daemon, topic: Callable[[], str]) -> None:
    name = filled(daemon, topic())
    with Admin(daemon.address) as admin:
        admin.delete_records({(name, 0): 8})
    read = ("-C", "-t", name, "-p", "0", "-e", "-q", "-f", "%o ")
    assert kcat(daemon, *read, "-o", "beginning") == b"8 9 "
    assert kcat(daemon, *read, "-o", "3", "-X", "auto.offset.reset=earliest") == b"8 9 "


def test_a_full_topic_tells_the_sender_at_once_and_goes_on_when_there_is_room(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = filled(daemon, topic(), **{"retention.records": "10", "retention.full.policy": "reject"})
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": daemon.address, "enable.idempotence": True})

    def send() -> KafkaError | None:
        producer.produce(
            name, b"more", partition=0, on_delivery=lambda error, _: reports.append(error)
        )
        assert producer.flush(TIMEOUT_S) == 0
        return reports[-1]

    refused = send()
    assert refused is not None
    assert refused.code() == KafkaError.POLICY_VIOLATION
    assert not refused.fatal()
    with Admin(daemon.address) as admin:
        admin.delete_records({(name, 0): 2})
    assert send() is None
    last = first_seen(daemon, name, 10, "error")
    assert (last.error(), last.value()) == (None, b"more")
