"""One of everything that a user may name, made, used and removed: of a thousand, none is left.

A topic, a consumer group of each protocol, a share group, a transactional id, a client id with a
quota, settings of topic and group, a user, a producer of librdkafka and a consumer of it, and
connections that say nothing of sense.  What is written goes to the topic and to one that stays, in
which segments and producers come and go.
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from confluent_kafka import Consumer as RdkafkaConsumer
from confluent_kafka import Producer as RdkafkaProducer

from segbroker.client import Admin, Consumer, Producer, ShareConsumer
from segbroker.client.errors import GroupIdNotFound, NonEmptyGroup

from ..support.waiting import until

STAYS: Final = "stays"
SETTINGS: Final = {
    "transactional_id_expiration_ms": 500,
    "producer_id_expiration_ms": 500,
    "group_kept_empty_ms": 0,
    "group_initial_rebalance_delay_ms": 0,
    "housekeeping_interval_ms": 50,
    "retention_interval_ms": 50,
}
"""Of a broker that forgets soon."""
RECORDS: Final = 20
NONSENSE: Final = (
    b"",
    b"GET / HTTP/1.0\r\n\r\n",
    struct.pack(">i", 0x7FFFFF00),
    struct.pack(">ihhih", 10, 18, 3, 1, -1),
    struct.pack(">ihhih", 20, 1, 999, 1, 4) + b"name" + bytes(6),
)


def prepare(address: str) -> None:
    """Make the topic that stays, with room for a few records of it."""
    small = {"segment.bytes": "4096", "retention.bytes": "4096"}
    with Admin(address) as admin:
        admin.create_topic(STAYS, partitions=1, config=small)


def use_once(address: str, number: int) -> None:
    """Use everything of this number, and remove it."""
    name = f"one-{number}"
    with Admin(address, client_id=name) as admin:
        admin.create_topic(name, partitions=2)
        admin.alter_topic_config(name, {"retention.ms": "100000"})
        admin.alter_quotas({"client-id": name}, {"producer_byte_rate": 1e9})
        admin.set_password(name, "a password of some length", iterations=4096)
        admin.alter_group_config(f"{name}-share", {"share.auto.offset.reset": "earliest"})
        _write(address, name)
        for group in _groups_that_read(address, name):
            until(partial(_is_deleted, admin, group))
        for line in NONSENSE:
            _say(address, line)
        admin.create_partitions(name, 3)
        admin.alter_group_config(f"{name}-share", {"share.auto.offset.reset": None})
        admin.delete_user(name)
        admin.alter_quotas({"client-id": name}, {"producer_byte_rate": None})
        admin.delete_topic(name)


def _write(address: str, name: str) -> None:
    with Producer(address, client_id=name) as producer:
        producer.send_many(name, [bytes(100)] * RECORDS)
        producer.send_many(STAYS, [bytes(100)] * RECORDS)
    with Producer(address, transactional_id=name, client_id=name) as producer:
        with producer.transaction():
            producer.send(name, b"committed")
            producer.send(STAYS, b"committed")
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(STAYS, b"aborted")
            raise ZeroDivisionError
    config = {"bootstrap.servers": address, "client.id": name, "enable.idempotence": True}
    other = RdkafkaProducer(config)
    other.produce(STAYS, b"of librdkafka")
    assert other.flush(60) == 0


def _groups_that_read(address: str, name: str) -> Iterator[str]:
    """Groups, each of which has read a part of the topic and has nobody left."""
    options: dict[str, Any] = {"client_id": name, "start": "start"}
    with Consumer(address, name, group=f"{name}-classic", **options) as consumer:
        _read_half(consumer)
    yield f"{name}-classic"
    protocol: dict[str, Any] = {"group_protocol": "consumer"}
    with Consumer(address, name, group=f"{name}-consumer", **protocol, **options) as consumer:
        _read_half(consumer)
    yield f"{name}-consumer"
    with ShareConsumer(address, name, group=f"{name}-share", client_id=name) as sharer:
        _read_half(sharer)
    yield f"{name}-share"
    config = {"bootstrap.servers": address, "client.id": name, "group.id": f"{name}-rdkafka"}
    other = RdkafkaConsumer({**config, "auto.offset.reset": "earliest"})
    with closing(other):
        other.subscribe([name])
        until(lambda: other.poll(0.2) is not None)
        other.commit(asynchronous=False)
    yield f"{name}-rdkafka"


def _read_half(records: Iterable[object]) -> None:
    assert len(list(islice(records, RECORDS // 2))) == RECORDS // 2


def _is_deleted(admin: Admin, group: str) -> bool:
    try:
        admin.delete_group(group)
    except NonEmptyGroup:
        return False  # its last member is about to be gone
    except GroupIdNotFound:
        return True  # it was forgotten by itself
    return True


def _say(address: str, line: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(line)
