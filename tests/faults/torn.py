"""One life of a real daemon that is killed at a system call while a producer commits and aborts.

    transaction n   a record into each of three partitions (fsync twice, disk), and the group's
                    offset n + 1; every third is aborted
    a reader        of committed records, all the time, over every kill
    afterwards      a reader of committed records from the start, and where the group stands

The verdict: of each transaction every record is there, or none; all of those that were reported as
committed; none of those reported as aborted, then or at any moment before; in order, once; and the
group stands behind the last that is there.
"""

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from segbroker.client import Admin

from ..support import daemon as daemons
from .injection import PATIENCE_S, READY_TIMEOUT_S, Life
from .persist import persist

GROUP: Final = "torn"
PLACES: Final = (("synced", 0), ("synced", 1), ("written", 0))
TRANSACTIONS_COUNT: Final = 15
ABORTED, COMMITTED, UNKNOWN = "aborted", "committed", "unknown"


@dataclass
class TornVerdict:
    """What came of one kill."""

    fault: str
    was_killed: bool = False
    outcomes: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        told = ", ".join(
            f"{list(self.outcomes.values()).count(one)} {one}"
            for one in (COMMITTED, ABORTED, UNKNOWN)
        )
        hit = "" if self.was_killed else " (not so many calls)"
        return f"{self.fault}{hit}: {told}, {self.seconds:.1f} s"


class Reader:
    """Reads committed records in a thread, until told to stop."""

    def __init__(self, address: str) -> None:
        self.seen: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._address = address
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "onlooker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.assign([TopicPartition(*place, 0) for place in PLACES])
        while not self._end.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                place = message.topic() or "", message.partition() or 0
                self.seen[place].append(int(message.value() or b""))
        consumer.close()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


def torn_at(data: Path, call: str, number: int) -> TornVerdict:
    """SIGKILL on entering the `number`-th `call` of a thread, and the verdict."""
    begun_s = time.monotonic()
    verdict = TornVerdict(f"SIGKILL at {call} {number}")
    life = Life(data, f"{call}:signal=KILL:when={number}")
    reader: Reader | None = None
    try:
        with Admin(life.listen, connect_timeout_ms=1000 * READY_TIMEOUT_S) as admin:
            for topic, durability in (("synced", "fsync"), ("written", "disk")):
                settings = {"durability": durability, "segment.bytes": "4096"}
                _create(admin, topic, settings)
        reader = Reader(life.listen)
        _write(life.listen, verdict)
    finally:
        if reader is not None:
            reader.stop()
        life.end()
    verdict.was_killed = life.was_killed
    with daemons.running(data) as daemon:
        _examine(daemon.address, reader, verdict)
    verdict.seconds = time.monotonic() - begun_s
    return verdict


def _create(admin: Admin, topic: str, settings: dict[str, str]) -> None:
    def create() -> None:
        if topic not in admin.list_topics():
            admin.create_topic(topic, partitions=2, config=settings)

    persist(create, timeout_s=PATIENCE_S)


def _producer(address: str) -> KafkaProducer:
    """Of kafka-python: librdkafka 2.16 waits for ever for a group's coordinator that was started
    anew between AddOffsetsToTxn and TxnOffsetCommit."""
    producer = KafkaProducer(
        bootstrap_servers=address,
        transactional_id="torn",
        reconnect_backoff_max_ms=200,
        max_block_ms=1000 * PATIENCE_S,
    )
    producer.init_transactions()
    return producer


def _write(address: str, verdict: TornVerdict) -> None:
    producer = _producer(address)
    for number in range(TRANSACTIONS_COUNT):
        try:
            producer.begin_transaction()
            for topic, partition in PLACES:
                producer.send(topic, b"%d" % number, partition=partition)
            offsets = {KafkaPartition("synced", 0): OffsetAndMetadata(number + 1, "", -1)}
            _send_offsets(producer, offsets)
            producer.flush(PATIENCE_S)
            if number % 3 != 2:
                producer.commit_transaction()
                verdict.outcomes[number] = COMMITTED
            else:
                producer.abort_transaction()
                verdict.outcomes[number] = ABORTED
        except KafkaError:
            # Either way: the next instance finds it decided, or aborts it.
            verdict.outcomes[number] = UNKNOWN
            with suppress(KafkaError):  # what it could not send within 0 s; the next one fences it
                producer.close(0)
            producer = _producer(address)
    producer.close()


def _send_offsets(
    producer: KafkaProducer, offsets: dict[KafkaPartition, OffsetAndMetadata]
) -> None:
    """With a limit: of its own it waits for ever, and now and then kafka-python does after a kill,
    with no request on its way."""
    failed: list[KafkaError] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, GROUP)
        except KafkaError as exc:
            failed.append(exc)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if thread.is_alive():
        raise KafkaTimeoutError(f"no answer to the offsets for {PATIENCE_S} s")
    if failed:
        raise failed[0]


def _examine(address: str, reader: Reader, verdict: TornVerdict) -> None:
    final = _read(address)
    problems = verdict.problems
    for number in range(TRANSACTIONS_COUNT):
        outcome = verdict.outcomes.get(number, UNKNOWN)
        found = [place for place in PLACES if number in final[place]]
        if found and len(found) < len(PLACES):
            problems.append(f"transaction {number} is torn: only {found} ({outcome})")
        if outcome == COMMITTED and not found:
            problems.append(f"transaction {number} was committed and is gone")
        if outcome == ABORTED and found:
            problems.append(f"transaction {number} was aborted and is there")
    for place in PLACES:
        for who, numbers in (("the reader", reader.seen[place]), ("the end", final[place])):
            if numbers != sorted(set(numbers)):
                problems.append(f"{place}, {who}: out of order or twice: {numbers}")
            if extra := set(numbers) - set(final[place]):
                problems.append(f"{place}, {who}: saw {sorted(extra)}, which is not committed")
    last = max(final[PLACES[0]], default=-1)
    stands = _stands(address)
    if stands != last + 1:
        problems.append(f"the group stands at {stands}, the last committed transaction is {last}")


def _read(address: str) -> dict[tuple[str, int], list[int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "final",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(*place, 0) for place in PLACES])
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    ended: set[tuple[str, int]] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    # A transaction that was open at the kill ends by its successor or its timeout, not here: what
    # is behind it is not stable yet, and is not looked for.
    while len(ended) < len(PLACES) and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is None:
            continue
        place = message.topic() or "", message.partition() or 0
        if message.error() is not None:
            ended.add(place)
        else:
            found[place].append(int(message.value() or b""))
    consumer.close()
    assert len(ended) == len(PLACES), f"no end of {set(PLACES) - ended}"
    return found


def _stands(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    (row,) = consumer.committed([TopicPartition("synced", 0)], PATIENCE_S)
    consumer.close()
    return max(row.offset, 0)
