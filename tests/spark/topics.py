"""Topics and records for the tests, made by librdkafka: what is read was not written by us."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

TIMEOUT_S = 60

Header = tuple[str, str | bytes | None]


@dataclass(frozen=True)
class Row:
    """A record as librdkafka reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Topics:
    """See the module; one per broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        """Let librdkafka go before the broker does, or it complains aloud."""
        del self._admin

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        # Records of years ago are sent: without this the first look at ages deletes them.
        config.setdefault("retention.ms", "-1")
        topic = NewTopic(name, partitions, 1, config=config)
        self._admin.create_topics([topic])[name].result(TIMEOUT_S)

    def grow(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)

    def delete_records_before(self, name: str, partition: int, offset: int) -> None:
        position = TopicPartition(name, partition, offset)
        self._admin.delete_records([position])[position].result(TIMEOUT_S)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = ConsumerGroupTopicPartitions(group)
        reply = self._admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
        return {(each.topic, each.partition): each.offset for each in reply.topic_partitions}

    def read(self, name: str, count: int, timeout_s: float = TIMEOUT_S) -> list[Row]:
        """At least `count` committed records from the beginning on; fewer when the time is over.

        In the order of each partition.  What is there beyond `count` shows in the same read.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"read-{name}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        partitions = self._admin.list_topics(name, TIMEOUT_S).topics[name].partitions
        consumer.assign([TopicPartition(name, n, 0) for n in partitions])
        deadline = monotonic() + timeout_s
        found: list[Row] = []
        try:
            while len(found) < count and monotonic() < deadline:
                found += map(_row, consumer.consume(100_000, 0.1))
            found += map(_row, consumer.consume(100_000, 0.2))
        finally:
            consumer.close()
        return found

    def produce(
        self,
        name: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[Header] | None = None,
        timestamps_ms: Mapping[int, int] | None = None,
        commit: bool | None = None,
        **settings: object,
    ) -> None:
        """Every record delivered in order, or the test fails.

        `commit`: in one transaction, which is then committed or aborted; needs transactional.id.
        """

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error

        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        if commit is not None:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
        for n, value in enumerate(values):
            timestamp_ms = (timestamps_ms or {}).get(n, 0)
            producer.produce(
                name,
                value,
                key,
                partition,
                on_delivery=on_delivery,
                timestamp=timestamp_ms,
                headers=headers,
            )
        assert producer.flush(TIMEOUT_S) == 0
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


def _row(message: Message) -> Row:
    assert message.error() is None, message.error()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    # librdkafka gives pairs; the stubs know of what it takes, too.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Row(partition, offset, message.key(), message.value(), headers)
