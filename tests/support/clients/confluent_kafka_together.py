"""confluent-kafka from 2.6: members, transactions, TLS and SCRAM."""

import time
from importlib.metadata import version
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from .steps import Steps
from .together import PARTITIONS, PASSWORD, USER, Client, add_steps, run_as_member, session_ms

STEPS = Steps()
TIMEOUT_S = 60


class ConfluentKafka(Client):
    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)

    def send(self, bootstrap: str, topic: str, values: list[bytes], **secure: Any) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, **secure})
        for n, value in enumerate(values):
            producer.produce(topic, value, partition=n % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def join(
        self, bootstrap: str, group: str, topic: str, place: str | None = None, **more: Any
    ) -> Any:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": session_ms(),
            "heartbeat.interval.ms": 500,
        }
        if place is not None:
            settings["group.instance.id"] = place
        consumer = Consumer(settings | more)
        consumer.subscribe([topic])
        return consumer

    def poll(self, handle: Any) -> list[bytes]:
        return [m.value() for m in handle.consume(100, timeout=0.05) if m.error() is None]

    def owned(self, handle: Any) -> set[int]:
        return {one.partition for one in handle.assignment()}

    def commit(self, handle: Any) -> None:
        handle.commit(asynchronous=False)

    def leave(self, handle: Any) -> None:
        handle.close()

    def secure(self, authority: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority,
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def committed_only(self) -> dict[str, Any]:
        return {"isolation.level": "read_committed"}

    def transact(
        self,
        bootstrap: str,
        transactional_id: str,
        topic: str,
        values: list[bytes],
        *,
        commit: bool,
        offsets: tuple[str, str, int] | None = None,
    ) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        if offsets is not None:
            group, of, offset = offsets
            consumer = self.join(bootstrap, group, of)
            ends_s = time.monotonic() + TIMEOUT_S
            while not consumer.assignment():  # before that it is of no generation
                consumer.poll(0.05)
                assert time.monotonic() < ends_s, "nothing was assigned"
            where = [TopicPartition(of, 0, offset)]
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(where, metadata, TIMEOUT_S)
            consumer.close()
        producer.flush(TIMEOUT_S)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

    def committed(self, bootstrap: str, group: str, topic: str) -> int | None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        consumer.close()
        return int(found.offset)


CLIENT = ConfluentKafka()
add_steps(STEPS, CLIENT, "tests.support.clients.confluent_kafka_together")

if __name__ == "__main__" and not run_as_member(CLIENT):
    STEPS.main(version("confluent-kafka"))
