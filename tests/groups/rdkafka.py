"""Members that librdkafka makes: one thread each, of either protocol; those of a mixed group choose
one for each life.  What they are told, and what becomes of what they commit, is `watched`."""

import threading
import time
from contextlib import suppress
from random import Random

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from .watched import SESSION_S


def lengthen_session(address: str, group: str) -> None:
    """Give a group of the consumer protocol, whose session the broker sets, the one from above."""
    session = ConfigEntry(
        "consumer.session.timeout.ms",
        str(int(SESSION_S["consumer"] * 1000)),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[session])
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(60)


class RdkafkaMember:
    """Subscribes, reads, commits what it read; closes and comes back as another."""

    def __init__(
        self, address: str, group: str, name: str, topic: str, protocol: str, random: Random
    ) -> None:
        self.failure: BaseException | None = None
        self._address = address
        self._group = group
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

    def _protocol_of_life(self) -> str:
        if self._protocol == "mixed":
            return self._random.choice(["classic", "consumer"])
        return self._protocol

    def _live(self, name: str) -> None:
        protocol = self._protocol_of_life()
        conf: dict[str, object] = {
            "bootstrap.servers": self._address,
            "client.id": name,
            "group.id": self._group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if protocol == "classic":
            conf |= {
                "session.timeout.ms": int(SESSION_S["classic"] * 1000),
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": self._strategy,
            }
        consumer = Consumer(conf)

        moves = 0

        def moved(_: Consumer, partitions: list[TopicPartition]) -> None:
            nonlocal moves
            moves += 1

        # Closed in any case: one that is left to the collector may hold it up for ever.
        try:
            consumer.subscribe([self._topic], on_assign=moved, on_revoke=moved, on_lost=moved)
            ends_s = time.monotonic() + self._random.uniform(1, 4)
            while time.monotonic() < ends_s and not self._end.is_set():
                before = moves
                taken = [message for message in consumer.consume(20, 0.1) if not message.error()]
                # What the call took before it heard of a move may be of a partition that went.
                if taken and moves == before:
                    partition, offset = taken[0].partition() or 0, taken[0].offset() or 0
                    row = TopicPartition(self._topic, partition, offset + 1)
                    with suppress(KafkaException):
                        consumer.commit(offsets=[row], asynchronous=False)
        finally:
            consumer.close()
