"""Members that librdkafka makes: one thread each, of either protocol, with the same ledger; those
of a mixed group choose one for each life."""

import threading
import time
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from .ledger import Ledger

SESSION_MS: Final = {"classic": 6_000, "consumer": 45_000}
"""By protocol.  What a member was told is known here when its thread comes to it; on a machine that
is busy a short session may be over by then."""


def lengthen_session(address: str, group: str) -> None:
    """Give a group of the consumer protocol, whose session the broker sets, the one from above."""
    session = ConfigEntry(
        "consumer.session.timeout.ms",
        str(SESSION_MS["consumer"]),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[session])
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(60)


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
        protocol = self._protocol
        if protocol == "mixed":
            protocol = self._random.choice(["classic", "consumer"])
        # Half of it binds: when the broker last heard of the member is not known here.
        session_s = SESSION_MS[protocol] / 2000
        conf: dict[str, object] = {
            "bootstrap.servers": self._address,
            "group.id": self._ledger.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if protocol == "classic":
            conf |= {
                "session.timeout.ms": SESSION_MS["classic"],
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": self._strategy,
            }
        consumer = Consumer(conf)

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            mine = {one.partition for one in consumer.assignment()}
            mine |= {one.partition for one in partitions}
            # Binds nobody until a commit is taken: it may be what was told a while ago.
            self._ledger.answered(name, session_s, asked_s=0.0)
            self._ledger.told(name, mine)

        def gone(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._ledger.let_go(name, {one.partition for one in partitions})

        # Closed in any case: one that is left to the collector may hold it up for ever.
        try:
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=gone, on_lost=gone)
            ends_s = time.monotonic() + self._random.uniform(1, 4)
            while time.monotonic() < ends_s and not self._end.is_set():
                taken_s = time.monotonic()
                for message in consumer.consume(20, 0.1):
                    if message.error() is None:
                        place = (message.partition() or 0, message.offset() or 0)
                        self._commit(consumer, name, *place, session_s, taken_s)
                        break
            self._ledger.let_go(name)
        finally:
            consumer.close()

    def _commit(
        self,
        consumer: Consumer,
        name: str,
        partition: int,
        offset: int,
        session_s: float,
        taken_s: float,
    ) -> None:
        """Commit behind a record that a call returned which began at `taken_s`: it may have had the
        partition taken away and given again since it took the record out of its queue."""
        sent = self._ledger.sending(name, partition, offset + 1, taken_s=taken_s)
        asked_s = time.monotonic()
        try:
            rows = consumer.commit(
                offsets=[TopicPartition(self._topic, partition, offset + 1)], asynchronous=False
            )
        except KafkaException:
            self._ledger.refused()
            return
        if rows and rows[0].error is None:
            self._ledger.accepted(name, sent)
            self._ledger.answered(name, session_s, asked_s)
        else:
            self._ledger.refused()
