"""aiokafka from 0.10 to 0.14: what its users do, without groups and transactions.

The library answers admin requests with the response as decoded, errors inside: `checked` reads
the error out of each shape.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidTopicError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from .lots import (
    CODECS,
    COUNT,
    KEEP,
    check_becomes_async,
    check_equal,
    check_lot,
    codec_of,
    headers,
    key,
    timestamp_ms,
    value,
)
from .steps import Scene, Steps

STEPS = Steps()
TIMEOUT_S = 60
Play = Callable[[Scene], Coroutine[None, None, None]]


def step(*, since: tuple[int, ...] = (0,)) -> Callable[[Play], Play]:
    """A step that is a coroutine: each runs in a loop of its own."""

    def add(run: Play) -> Play:
        def in_a_loop(scene: Scene) -> None:
            asyncio.run(run(scene))

        in_a_loop.__name__ = run.__name__
        STEPS.step(since=since)(in_a_loop)
        return run

    return add


@asynccontextmanager
async def admin_of(scene: Scene) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def producer_of(scene: Scene, **settings: object) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=scene.bootstrap, linger_ms=5, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_at(
    scene: Scene, topic: str, offset: int | None = 0, reset: str = "latest"
) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=scene.bootstrap, enable_auto_commit=False, auto_offset_reset=reset
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    if offset is not None:
        consumer.seek(TopicPartition(topic, 0), offset)
    try:
        yield consumer
    finally:
        await consumer.stop()


def checked(rows: Any) -> None:
    """Raise the first error among rows of (name, error code, ...)."""
    for name, code, *_ in rows:
        if code:
            raise for_code(code)(name)


async def create(scene: Scene, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic; a key of `configs` is written with _ for its dots."""
    dotted = KEEP | {name.replace("_", "."): text for name, text in configs.items()}
    async with admin_of(scene) as admin:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dotted)])
        checked(answer.topic_errors)


async def produce(scene: Scene, topic: str, count: int = COUNT, **settings: object) -> list[Any]:
    """Send `count` records to partition 0 and return what was answered for each."""
    async with producer_of(scene, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                value(n),
                key=key(n),
                headers=headers(n),
                partition=0,
                timestamp_ms=timestamp_ms(n),
            )
            for n in range(count)
        ]
        return await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)


async def poll(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(count)]


async def consume(scene: Scene, topic: str, count: int = COUNT) -> list[Any]:
    async with consumer_at(scene, topic) as consumer:
        return await poll(consumer, count)


@step()
async def every_codec_comes_back_as_sent(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"theirs-{codec}")
        await create(scene, topic)
        answers = await produce(scene, topic, compression_type=codec_of(codec), acks="all")
        check_equal("answered offsets", [a.offset for a in answers], list(range(COUNT)))
        check_lot(await consume(scene, topic))


@step()
async def every_codec_comes_back_from_an_idempotent_producer(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"idempotent-{codec}")
        await create(scene, topic)
        await produce(scene, topic, compression_type=codec_of(codec), enable_idempotence=True)
        check_lot(await consume(scene, topic))


@step()
async def reads_what_our_client_wrote(scene: Scene) -> None:
    for codec in CODECS:
        check_lot(await consume(scene, f"{scene.ours}-{codec}"))


@step()
async def a_leaders_word_is_enough_with_acks_1(scene: Scene) -> None:
    topic = scene.topic("acks-1")
    await create(scene, topic)
    await produce(scene, topic, acks=1)
    check_lot(await consume(scene, topic))


@step()
async def nothing_is_answered_with_acks_0_and_all_arrives(scene: Scene) -> None:
    topic = scene.topic("acks-0")
    await create(scene, topic)
    check_equal("answers", set(await produce(scene, topic, acks=0)), {None})
    check_lot(await consume(scene, topic))


@step()
async def a_topic_is_made_on_first_use(scene: Scene) -> None:
    topic = scene.topic("first-use")
    await produce(scene, topic)
    check_lot(await consume(scene, topic))


@step()
async def an_offset_is_found_by_time_to_the_exact_record(scene: Scene) -> None:
    topic = scene.topic("times")
    partition = TopicPartition(topic, 0)
    await create(scene, topic)
    await produce(scene, topic, compression_type="gzip")
    async with consumer_at(scene, topic, None) as consumer:
        for asked, offset in ((0, 0), (timestamp_ms(41) + 1, 42), (timestamp_ms(99), 99)):
            found = (await consumer.offsets_for_times({partition: asked}))[partition]
            check_equal("offset", found.offset, offset)
            check_equal("time", found.timestamp, timestamp_ms(offset))
        later = await consumer.offsets_for_times({partition: timestamp_ms(COUNT)})
        check_equal("after the last", later[partition], None)
        check_equal("start", await consumer.beginning_offsets([partition]), {partition: 0})
        check_equal("end", await consumer.end_offsets([partition]), {partition: COUNT})


@step()
async def seeks_to_an_offset_the_start_and_the_end(scene: Scene) -> None:
    topic = scene.topic("seek")
    partition = TopicPartition(topic, 0)
    await create(scene, topic)
    await produce(scene, topic)
    async with consumer_at(scene, topic, 37) as consumer:
        check_equal("offset 37", (await poll(consumer, COUNT - 37))[0].value, value(37))
        check_equal("position behind the last", await consumer.position(partition), COUNT)
        await consumer.seek_to_beginning(partition)
        check_equal("position at the start", await consumer.position(partition), 0)
        await consumer.seek_to_end(partition)
        check_equal("position at the end", await consumer.position(partition), COUNT)


@step()
async def an_offset_out_of_range_falls_back_to_the_reset_policy(scene: Scene) -> None:
    topic = scene.topic("range")
    await create(scene, topic)
    await produce(scene, topic)
    async with consumer_at(scene, topic, COUNT + 1000, reset="earliest") as consumer:
        check_equal("first offset", (await poll(consumer, COUNT))[0].offset, 0)


@step()
async def a_consumer_that_waits_at_the_end_is_woken(scene: Scene) -> None:
    topic = scene.topic("woken")
    await create(scene, topic)
    async with consumer_at(scene, topic) as consumer:
        check_equal("an empty topic", await consumer.getmany(timeout_ms=300), {})
        waiting = asyncio.create_task(poll(consumer, 1))
        await produce(scene, topic, 1)
        check_equal("value", (await waiting)[0].value, value(0))


@step()
async def null_and_empty_keys_and_values_are_told_apart(scene: Scene) -> None:
    topic = scene.topic("nulls")
    await create(scene, topic)
    pairs = [(b"k", None), (None, b"v"), (b"", b""), (b"k", b"v")]
    async with producer_of(scene) as producer:
        for record_key, record_value in pairs:
            await producer.send_and_wait(topic, record_value, key=record_key, partition=0)
    records = await consume(scene, topic, 4)
    check_equal("pairs", [(r.key, r.value) for r in records], pairs)


@step()
async def the_broker_stamps_records_when_the_topic_says_so(scene: Scene) -> None:
    topic = scene.topic("stamped")
    await create(scene, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 1000
    for codec in (None, "gzip"):
        answers = await produce(scene, topic, 10, compression_type=codec)
        check_equal("answered time", min(a.timestamp for a in answers) >= before_ms, True)
        check_equal("answered type", {a.timestamp_type for a in answers}, {1})
    records = await consume(scene, topic, 20)
    check_equal("types", {r.timestamp_type for r in records}, {1})
    check_equal("stamped by the broker", min(r.timestamp for r in records) >= before_ms, True)


@step()
async def a_record_larger_than_the_topic_takes_is_refused(scene: Scene) -> None:
    topic = scene.topic("large")
    await create(scene, topic, max_message_bytes="10000")
    async with producer_of(scene) as producer:
        await producer.send_and_wait(topic, bytes(1000), partition=0)
        try:
            await producer.send_and_wait(topic, bytes(20_000), partition=0)
        except MessageSizeTooLargeError:
            pass
        else:
            raise AssertionError("a record of 20,000 bytes was taken")
    records = await consume(scene, topic, 1)
    check_equal("what is there", [len(r.value) for r in records], [1000])


@step()
async def what_cannot_be_created_is_refused_with_its_own_error(scene: Scene) -> None:
    topic = scene.topic("twice")
    await create(scene, topic)
    for name, retention_ms, expected in (
        (topic, "-1", TopicAlreadyExistsError),
        ("with spaces", "-1", InvalidTopicError),
        (scene.topic("config"), "soon", for_code(40)),
    ):
        try:
            await create(scene, name, retention_ms=retention_ms)
        except expected:
            continue
        raise AssertionError(f"{name!r} with retention.ms {retention_ms} was created")


@step()
async def topics_are_listed_described_grown_and_deleted(scene: Scene) -> None:
    topic = scene.topic("grown")
    await create(scene, topic, 2)
    async with admin_of(scene) as admin:

        async def listed() -> bool:
            return topic in await admin.list_topics()

        partitions = partial(partitions_of, admin, topic)
        await check_becomes_async("listed", listed, True)
        await check_becomes_async("partitions", partitions, [0, 1])
        grown = await admin.create_partitions({topic: NewPartitions(5)})
        checked(grown.topic_errors)
        await check_becomes_async("grown", partitions, [0, 1, 2, 3, 4])
        checked((await admin.delete_topics([topic])).topic_error_codes)
        await check_becomes_async("deleted", listed, False)
        try:
            checked((await admin.delete_topics([topic])).topic_error_codes)
        except UnknownTopicOrPartitionError:
            pass
        else:
            raise AssertionError("a deleted topic was deleted again")


async def partitions_of(admin: Any, topic: str) -> list[int]:
    (described,) = await admin.describe_topics([topic])
    check_equal("error", described["error_code"], 0)
    brokers = {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]}
    leaders = {p["leader"] for p in described["partitions"]}
    check_equal("leaders are brokers", leaders <= brokers, True)
    return sorted(p["partition"] for p in described["partitions"])


@step()
async def configs_are_described_and_altered(scene: Scene) -> None:
    topic = scene.topic("configs")
    await create(scene, topic, retention_ms="3600000")
    async with admin_of(scene) as admin:
        retention = partial(config_of, admin, topic, "retention.ms")
        await check_becomes_async("as created", retention, "3600000")
        check_equal("default", await config_of(admin, topic, "cleanup.policy"), "delete")
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})
        await admin.alter_configs([resource])
        await check_becomes_async("altered", retention, "7200000")


async def config_of(admin: Any, topic: str, name: str) -> object:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    (answer,) = await admin.describe_configs([resource])
    ((code, message, _, _, entries),) = answer.resources
    check_equal("error", (code, message or None), (0, None))
    return next(entry[1] for entry in entries if entry[0] == name)


@step(since=(0, 11))
async def records_before_an_offset_are_deleted(scene: Scene) -> None:
    from aiokafka.admin import RecordsToDelete

    topic = scene.topic("deleted")
    partition = TopicPartition(topic, 0)
    await create(scene, topic)
    await produce(scene, topic)
    async with admin_of(scene) as admin:
        answer = await admin.delete_records({partition: RecordsToDelete(before_offset=60)})
    check_equal("new start", answer, {partition: 60})
    async with consumer_at(scene, topic, 0, reset="earliest") as consumer:
        check_equal("start", await consumer.beginning_offsets([partition]), {partition: 60})
        check_equal("first", (await poll(consumer, COUNT - 60))[0].offset, 60)


if __name__ == "__main__":
    STEPS.main(aiokafka.__version__)
