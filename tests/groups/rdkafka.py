"""Members that librdkafka makes: one thread each, of either protocol, with the same ledger."""

import threading
import time
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from . import raw
from .ledger import Ledger

SESSION_MS: Final = 6_000
COMMIT_TIMEOUT_S: Final = 10


class RdkafkaMember:
    """Subscribes, reads, commits what it read; closes and comes back as another."""

    def __init__(
        self, address: str, ledger: Ledger, name: str, topic: str, protocol: str, random: Random
    ) -> None:
        self.failure: BaseException | None = None
        self._address = address
        self._ledger = ledger
        self._name = name
        self._topic = topic
        self._protocol = protocol
        self._random = random
        # The broker sets that of the consumer protocol.  Half of it binds: when the broker last
        # heard of the member is not known here.
        session_ms = SESSION_MS if protocol == "classic" else raw.SESSION_MS
        self._session_s = session_ms / 2000
        self._strategy = "cooperative-sticky"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let it leave; wait for it."""
        self._end.set()
        self._thread.join(60)

    def _run(self) -> None:
        lives = 0
        try:
            while not self._end.is_set():
                lives += 1
                self._live(f"{self._name}-{lives}")
        except BaseException as exc:  # told by the test, which looks at it
            self.failure = exc

    def _live(self, name: str) -> None:
        conf: dict[str, object] = {
            "bootstrap.servers": self._address,
            "group.id": self._ledger.group,
            "group.protocol": self._protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if self._protocol == "classic":
            conf |= {
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": self._strategy,
            }
        consumer = Consumer(conf)

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            mine = {one.partition for one in consumer.assignment()}
            mine |= {one.partition for one in partitions}
            self._ledger.answered(name, self._session_s)
            self._ledger.told(name, mine)

        def gone(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._ledger.let_go(name, {one.partition for one in partitions})

        consumer.subscribe([self._topic], on_assign=assigned, on_revoke=gone, on_lost=gone)
        ends_s = time.monotonic() + self._random.uniform(1, 4)
        while time.monotonic() < ends_s and not self._end.is_set():
            for message in consumer.consume(20, 0.1):
                if message.error() is None:
                    self._commit(consumer, name, message.partition() or 0, message.offset() or 0)
                    break
        self._ledger.let_go(name)
        consumer.close()

    def _commit(self, consumer: Consumer, name: str, partition: int, offset: int) -> None:
        sent = self._ledger.sending(name, partition, offset + 1)
        try:
            rows = consumer.commit(
                offsets=[TopicPartition(self._topic, partition, offset + 1)], asynchronous=False
            )
        except KafkaException:
            self._ledger.refused()
            return
        if rows and rows[0].error is None:
            self._ledger.accepted(name, sent)
        else:
            self._ledger.refused()
