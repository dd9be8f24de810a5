"""aiokafka at a broker that asks who it is."""

import asyncio
from typing import Any

import aiokafka


async def by_aiokafka(settings: dict[str, Any], topic: str, value: bytes) -> bytes:
    """What is read of a topic to which `value` was sent, each on connections that log in."""
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(**settings, auto_offset_reset="earliest")
    consumer.assign([aiokafka.TopicPartition(topic, 0)])
    async with consumer:
        record = await asyncio.wait_for(consumer.getone(), 60)
        read: bytes = record.value
        return read
