"""Topics and records for the tests, made by librdkafka: what is read was not written by us."""

from collections.abc import Iterable, Mapping

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

TIMEOUT_S = 30

Header = tuple[str, str | bytes | None]


class Topics:
    """See the module; one per broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        """Let librdkafka go before the broker does, or it complains aloud."""
        del self._admin

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
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

    def produce(
        self,
        name: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[Header] | None = None,
        timestamps_ms: Mapping[int, int] | None = None,
        **settings: object,
    ) -> None:
        """Every record delivered in order, or the test fails."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error

        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
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
