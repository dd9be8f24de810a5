"""Answers that are lost, and what gathers meanwhile: one round of it, with librdkafka.

    librdkafka <--> proxy <--> broker      a topic takes batches of 256 KiB

Five batches of one partition are stored, and their answers lost with the connection.  For the
others records gather while the broker is away, then it is back.  With a `batch.size` that fits the
topic each record is there once.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ..support.cutting_proxy import CuttingProxy

BATCH_BYTES_MAX: Final = 262_144
FITS: Final = 65_536
OWN: Final = 1_000_000
PARTITIONS: Final = 5
LOST: Final = 5
"""As many as librdkafka has under way."""
GATHERED: Final = [b"%d " % number + b"." * 1000 for number in range(300)]
PATIENCE_S: Final = 60

_SILENT = logging.getLogger("tests.faults.lost_answers")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Round(NamedTuple):
    """What came of one."""

    twice: int
    missing: int
    refused: int


def play(proxy: CuttingProxy, topic: str, batch_bytes: int) -> Round:
    """One round, on a topic of its own."""
    admin = AdminClient({"bootstrap.servers": proxy.address, "log_level": 0})
    config = {"max.message.bytes": str(BATCH_BYTES_MAX)}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(PATIENCE_S)
    producer = Producer(
        {
            "bootstrap.servers": proxy.address,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.size": batch_bytes,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "logger": _SILENT,
        }
    )
    refused = 0

    def on_delivery(error: KafkaError | None, message: Any) -> None:  # noqa: ANN401
        nonlocal refused
        if error is not None:
            assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
            refused += 1

    def send(partition: int, *values: bytes) -> None:
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)

    *others, mine = range(PARTITIONS)
    for partition in range(PARTITIONS):
        send(partition, b"first")
    assert producer.flush(PATIENCE_S) == 0
    proxy.swallow()
    sent = [b"answer lost %d" % number for number in range(LOST)]
    for number, value in enumerate(sent, 1):
        send(mine, value)
        until_swallowed(proxy, producer, number)
    proxy.go_away()
    for partition in others:
        send(partition, *GATHERED)
    proxy.come_back()
    assert producer.flush(PATIENCE_S) == 0
    found = Counter(values_of(proxy.address, topic, mine))
    return Round(
        sum(found[value] > 1 for value in sent), sum(value not in found for value in sent), refused
    )


def until_swallowed(proxy: CuttingProxy, producer: Producer, count: int) -> None:
    """Until the broker has answered so often: what was sent is stored."""
    deadline_s = time.monotonic() + PATIENCE_S
    while proxy.swallowed < count:
        assert time.monotonic() < deadline_s, f"{proxy.swallowed} answers of {count}"
        producer.poll(0.005)


def values_of(bootstrap: str, topic: str, partition: int) -> Iterator[bytes | None]:
    """All of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never joined",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "logger": _SILENT,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                return
        raise AssertionError(f"{topic}-{partition} is not at its end after {PATIENCE_S} s")
    finally:
        consumer.close()
