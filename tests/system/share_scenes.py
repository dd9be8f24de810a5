"""What tests of share groups do before and beside what they are about."""

import time
from contextlib import suppress
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its __init__ all the same
    AdminClient,
    NewTopic,
)

from .java_shares import Handed, JavaConsumer, JavaShares, Refused

LOCK_MS: Final = 2_000
# Of who stands still for as long as a lock lasts it ends; then a longer one is tried.
LOCKS_MS: Final = LOCK_MS, 15_000
EXPLICIT: Final = {"share_acknowledgement_mode": "explicit"}
# Not more records than were asked for, whatever their batches are.
EXACT: Final = {"share_acquire_mode": "record_limit"}
ONE_BY_ONE: Final = EXPLICIT | EXACT | {"max_poll_records": 1}


def topic(address: str, name: str, partitions: int = 1) -> str:
    """Make a topic; its name."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def fill(address: str, topic: str, values: range, per_batch: int = 1, codec: str = "none") -> None:
    """Write numbers to partition 0, in batches of so many."""
    conf = {"linger.ms": 50, "compression.type": codec, "batch.num.messages": per_batch}
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, **conf})
    for n in values:
        producer.produce(topic, str(n).encode(), partition=0)
    assert producer.flush(60) == 0


def values(records: list[Handed]) -> list[int]:
    return [int(record.value) for record in records]


def from_start(java: JavaShares, group: str, **conf: object) -> str:
    """A group that begins at the first record, and whose members hear soon; its name."""
    java.set(group, share_auto_offset_reset="earliest", share_heartbeat_interval_ms=500, **conf)
    return group


def settled(java: JavaShares, group: str, *consumers: JavaConsumer) -> None:
    """Poll until all of them have partitions; there is nothing to be read yet."""
    ends = time.monotonic() + 60
    held: dict[str, list[str]] = {}
    while sum(map(bool, held.values())) < len(consumers):
        assert time.monotonic() < ends, held
        for consumer in consumers:
            assert consumer.poll(100) == []
        with suppress(Refused):  # as long as there is no such group
            held = java.members(group)


def taken(consumer: JavaConsumer, record: Handed, how: str) -> None:
    """Say what became of a record, and see that it holds."""
    consumer.acknowledge(record, how)
    assert consumer.commit() == {(record.topic, record.partition): "None"}


def taken_all(consumer: JavaConsumer, number: int) -> list[Handed]:
    """So many records, accepted."""
    found: list[Handed] = []
    while len(found) < number:
        records = consumer.until(1)
        for record in records:
            consumer.acknowledge(record, "ACCEPT")
        assert set(consumer.commit().values()) == {"None"}
        found += records
    return found
