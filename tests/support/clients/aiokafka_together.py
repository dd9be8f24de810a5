"""aiokafka from 0.10 to 0.14: members, transactions, TLS and SCRAM.

A consumer is driven from one thread: its event loop runs while it is polled, twenty times a second.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from .steps import Steps
from .together import PARTITIONS, PASSWORD, USER, Client, add_steps, run_as_member, session_ms

STEPS = Steps()
TIMEOUT_S = 60


@dataclass
class Handle:
    """A consumer with the loop on which it lives."""

    loop: asyncio.AbstractEventLoop
    consumer: Any


class AioKafka(Client):
    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        async def made() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([NewTopic(topic, partitions, 1)])
            await admin.close()

        asyncio.run(made())

    def send(self, bootstrap: str, topic: str, values: list[bytes], **secure: Any) -> None:
        async def sent() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **secure)
            await producer.start()
            for n, value in enumerate(values):
                await producer.send_and_wait(topic, value, partition=n % PARTITIONS)
            await producer.stop()

        asyncio.run(sent())

    def join(
        self, bootstrap: str, group: str, topic: str, place: str | None = None, **more: Any
    ) -> Handle:
        loop = asyncio.new_event_loop()

        async def joined() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=place,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=session_ms(),
                heartbeat_interval_ms=500,
                **more,
            )
            await consumer.start()
            return consumer

        return Handle(loop, loop.run_until_complete(joined()))

    def poll(self, handle: Handle) -> list[bytes]:
        lots = handle.loop.run_until_complete(handle.consumer.getmany(timeout_ms=50))
        return [one.value for lot in lots.values() for one in lot]

    def owned(self, handle: Handle) -> set[int]:
        return {one.partition for one in handle.consumer.assignment()}

    def commit(self, handle: Handle) -> None:
        handle.loop.run_until_complete(handle.consumer.commit())

    def leave(self, handle: Handle) -> None:
        handle.loop.run_until_complete(handle.consumer.stop())
        handle.loop.close()

    def secure(self, authority: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=authority),
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
        async def done() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)
            if offsets is not None:
                group, of, offset = offsets
                await producer.send_offsets_to_transaction({TopicPartition(of, 0): offset}, group)
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            await producer.stop()

        asyncio.run(asyncio.wait_for(done(), TIMEOUT_S))

    def committed(self, bootstrap: str, group: str, topic: str) -> int | None:
        async def found() -> int | None:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
            await consumer.start()
            offset: int | None = await consumer.committed(TopicPartition(topic, 0))
            await consumer.stop()
            return offset

        return asyncio.run(found())


CLIENT = AioKafka()
add_steps(STEPS, CLIENT, "tests.support.clients.aiokafka_together")

if __name__ == "__main__" and not run_as_member(CLIENT):
    STEPS.main(aiokafka.__version__)
