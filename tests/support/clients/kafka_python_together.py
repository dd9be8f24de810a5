"""kafka-python from 2.0.2 to 3.0: members, transactions, TLS and SCRAM."""

from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from .steps import Steps, numbers
from .together import PARTITIONS, PASSWORD, USER, Client, add_steps, run_as_member, session_ms

STEPS = Steps()
TIMEOUT_S = 60
RELEASE = numbers(kafka.__version__)


class KafkaPython(Client):
    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            admin.close()

    def send(self, bootstrap: str, topic: str, values: list[bytes], **secure: Any) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, **secure)
        sent = [
            producer.send(topic, value, partition=n % PARTITIONS) for n, value in enumerate(values)
        ]
        for one in sent:
            one.get(TIMEOUT_S)
        producer.close()

    def join(
        self, bootstrap: str, group: str, topic: str, place: str | None = None, **more: Any
    ) -> Any:
        if place is not None:
            more["group_instance_id"] = place
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms(),
            heartbeat_interval_ms=500,
            **more,
        )
        # Who leads before it has looked at the topics that it subscribes to joins again when it
        # has.  Release 3.0 takes that for done as soon as it has assigned: if the answer comes
        # between two polls nobody ever looks at it, and no heartbeat is sent any more.
        consumer.subscribe([topic])
        consumer.partitions_for_topic(topic)
        return consumer

    def poll(self, handle: Any) -> list[bytes]:
        return [one.value for lot in handle.poll(timeout_ms=50).values() for one in lot]

    def owned(self, handle: Any) -> set[int]:
        return {one.partition for one in handle.assignment()}

    def commit(self, handle: Any) -> None:
        handle.commit()

    def leave(self, handle: Any) -> None:
        handle.close()

    def secure(self, authority: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": authority,
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    def committed_only(self) -> dict[str, Any]:
        return {"isolation_level": "read_committed"}

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
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        sent = [producer.send(topic, value, partition=0) for value in values]
        if offsets is not None:
            group, of, offset = offsets
            where = {TopicPartition(of, 0): OffsetAndMetadata(offset, "", -1)}
            producer.send_offsets_to_transaction(where, group)
        producer.flush(TIMEOUT_S)
        for one in sent:
            one.get(TIMEOUT_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        producer.close()

    def committed(self, bootstrap: str, group: str, topic: str) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        found: int | None = consumer.committed(TopicPartition(topic, 0))
        consumer.close()
        return found


CLIENT = KafkaPython()
add_steps(
    STEPS,
    CLIENT,
    "tests.support.clients.kafka_python_together",
    static_since=(2, 3),
    transactions_since=(2, 1),
)

if __name__ == "__main__" and not run_as_member(CLIENT):
    STEPS.main(kafka.__version__)
