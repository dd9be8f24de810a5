"""Answers that are lost where what was gathered is too large: `python -m tests.soak.lost_answers`.

    librdkafka <--> proxy <--> broker      a topic takes batches of 256 KiB

A round: five batches of one partition are stored, and their answers lost with the connection.  For
the others records gather while the broker is away, then it is back.  With a `batch.size` that fits
the topic each record is there once.  With librdkafka's own, of 1 MB, what gathered is refused
(MSG_SIZE_TOO_LARGE): librdkafka gives that up, begins an epoch for all partitions, and sends in it
what it had not sent again yet.  No broker can tell those from new records: some are there twice.

`--kafka`: the same against an Apache Kafka.  The exit code says whether a record is there twice
with the `batch.size` that fits, or is not there.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.apache_kafka import ApacheKafka

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import running

BATCH_BYTES_MAX: Final = 262_144
FITS: Final = 65_536
OWN: Final = 1_000_000
PARTITIONS: Final = 5
LOST: Final = 5
"""As many as librdkafka has under way."""
GATHERED: Final = [b"%d " % number + b"." * 1000 for number in range(300)]
PATIENCE_S: Final = 60

_SILENT = logging.getLogger("tests.soak.lost_answers")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Round(NamedTuple):
    """What came of one."""

    twice: int
    missing: int
    refused: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.lost_answers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()
    name = "Apache Kafka" if options.kafka else "segbroker"
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="lost-answers-") as folder,
        CuttingProxy(("127.0.0.1", 0)) as proxy,
        broker(Path(folder), proxy, is_kafka=options.kafka),
    ):
        for batch_bytes in (FITS, OWN):
            rounds = [
                play(proxy, f"t-{batch_bytes}-{number}", batch_bytes)
                for number in range(options.rounds)
            ]
            twice, missing, refused = map(sum, zip(*rounds, strict=True))
            print(
                f"{name}, batch.size={batch_bytes}: {len(rounds)} rounds, "
                f"{LOST * len(rounds)} answers lost, {twice} of their records twice, "
                f"{missing} missing, {refused} of the others refused",
                flush=True,
            )
            failed += missing + (twice if batch_bytes == FITS else 0)
    return 1 if failed else 0


@contextmanager
def broker(folder: Path, proxy: CuttingProxy, *, is_kafka: bool) -> Iterator[None]:
    """A broker that sends its clients to the proxy, and the proxy to it."""
    if is_kafka:
        with ApacheKafka.start(folder, durable=False, advertised=proxy.address) as kafka:
            proxy.target = kafka.host_and_port
            yield
    else:
        with running(folder / "data", "--advertised", proxy.address) as daemon:
            proxy.target = daemon.host_and_port
            yield


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


if __name__ == "__main__":
    sys.exit(main())
