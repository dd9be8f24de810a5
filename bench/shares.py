"""Share groups (KIP-932): records as work, beside the same records read by partition.

    read      one consumer of ours takes every record of a topic of 4 partitions: as a member of a
              share group, which acknowledges each poll durably with the next; as a plain consumer
    pass on   a record is sent, taken by a member that waits, accepted, and that is durable

What a share group costs more: the acknowledgements, each of them a control event that is synced,
and reads that are looked through for what is to be handed out.
"""

import time
from uuid import uuid4

from segbroker.client import Admin, Consumer, Producer, ShareConsumer

from .librdkafka import PARTITIONS, create_topic, fill
from .machine import cpu_seconds
from .report import Entry, Row, Runs, latency, rate
from .servers import Server, segbroker

RECORDS = 400_000
SIZE = 100
ROUNDS = 3
PASSED_ON = 500
POLL_RECORDS = 500
WAIT_MS = 30_000


def _group(address: str) -> str:
    """A new share group that begins at the beginning."""
    name = f"bench-{uuid4().hex[:12]}"
    with Admin(address) as admin:
        admin.alter_group_config(name, {"share.auto.offset.reset": "earliest"})
    return name


def _shared(address: str, topic: str, count: int) -> None:
    seen = 0
    with ShareConsumer(address, topic, group=_group(address)) as consumer:
        while seen < count:
            seen += len(consumer.poll(max_records=POLL_RECORDS, timeout_ms=WAIT_MS))
        consumer.commit()
    assert seen == count, f"{seen} of {count}"


def _plain(address: str, topic: str, count: int) -> None:
    seen = 0
    with Consumer(address, topic, start="start") as consumer:
        while seen < count:
            seen += len(consumer.poll(max_records=POLL_RECORDS, timeout_ms=WAIT_MS))
    assert seen == count, f"{seen} of {count}"


def _passed_on(server: Server, count: int) -> list[float]:
    topic = create_topic(server, "fsync")
    found = []
    with (
        ShareConsumer(server.address, topic, group=_group(server.address)) as consumer,
        Producer(server.address, linger_ms=0) as producer,
    ):
        for n in range(count + 1):
            began = time.perf_counter()
            producer.send(topic, bytes(SIZE), partition=n % PARTITIONS)
            producer.flush()
            while not consumer.poll(timeout_ms=WAIT_MS):
                pass
            consumer.commit()
            found.append(time.perf_counter() - began)
    return found[1:]  # the first one joined


def rows(quick: bool = False) -> list[Entry]:
    """One daemon; the two ways by turns, the median of each."""
    count = RECORDS // 20 if quick else RECORDS
    runs, spent = Runs(), Runs()
    with segbroker() as server:
        topic = create_topic(server, "disk")
        fill(server.address, topic, count, SIZE)
        for _ in range(1 if quick else ROUNDS):
            for name, read in (("shared", _shared), ("plain", _plain)):
                began, before = time.perf_counter(), cpu_seconds(server.pid)
                read(server.address, topic, count)
                runs.note(name, count / (time.perf_counter() - began))
                spent.note(name, (cpu_seconds(server.pid) - before) * 1e6 / count)
        passed = _passed_on(server, PASSED_ON // 20 if quick else PASSED_ON)
    shared, plain = runs.median("shared"), runs.median("plain")
    return [
        Row(
            f"{count:,} × {SIZE} B taken by one member of a share group",
            "acknowledged: fsync",
            rate(shared, SIZE),
            f"a plain consumer {rate(plain, SIZE)}",
            f"{shared / plain:.2f}",
            server=f"{spent.median('shared'):.1f} µs of its processor a record, "
            f"{spent.median('plain'):.1f} for the plain one",
        ),
        Row(
            "one record sent, taken and accepted, one after the other",
            "fsync, and once more for the acknowledgement",
            latency(passed),
        ),
    ]
