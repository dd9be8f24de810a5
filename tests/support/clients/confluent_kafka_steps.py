"""confluent-kafka from 2.6: what its users do, without groups and transactions."""

import threading
import time
from importlib.metadata import version
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its __init__ all the same
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from .lots import CODECS, COUNT, KEEP, check_becomes, check_equal, headers, key, timestamp_ms, value
from .steps import Scene, Steps

STEPS = Steps()
TIMEOUT_S = 60


def create(scene: Scene, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic; a key of `configs` is written with _ for its dots."""
    dotted = KEEP | {name.replace("_", "."): text for name, text in configs.items()}
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dotted)])[topic].result(TIMEOUT_S)


def produce(scene: Scene, topic: str, count: int = COUNT, **settings: object) -> list[int]:
    """Send `count` records to partition 0 and return the offsets that were reported."""
    offsets: list[int] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            raise KafkaException(error)
        offsets.append(message.offset())

    dotted = {name.replace("_", "."): setting for name, setting in settings.items()}
    producer = Producer({"bootstrap.servers": scene.bootstrap, "linger.ms": 20, **dotted})
    for n in range(count):
        producer.produce(
            topic,
            value(n),
            key=key(n),
            headers=dict(headers(n)),
            partition=0,
            timestamp=timestamp_ms(n),
            on_delivery=on_delivery,
        )
    check_equal("undelivered", producer.flush(TIMEOUT_S), 0)
    return offsets


def consumer_at(scene: Scene, topic: str, offset: int = 0, reset: str = "error") -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": scene.prefix,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def poll(consumer: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{len(messages)} of {count} records came")
        for message in consumer.consume(count - len(messages), timeout=1):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def consume(scene: Scene, topic: str, count: int = COUNT) -> list[Any]:
    consumer = consumer_at(scene, topic)
    messages = poll(consumer, count)
    consumer.close()
    return messages


def check_lot(messages: list[Any]) -> None:
    numbered = range(len(messages))
    check_equal("offsets", [m.offset() for m in messages], list(numbered))
    check_equal("values", [m.value() for m in messages], [value(n) for n in numbered])
    check_equal("keys", [m.key() for m in messages], [key(n) for n in numbered])
    check_equal("headers", [m.headers() for m in messages], [headers(n) for n in numbered])
    check_equal("times", [m.timestamp()[1] for m in messages], [timestamp_ms(n) for n in numbered])


@STEPS.step()
def every_codec_comes_back_as_sent(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"theirs-{codec}")
        create(scene, topic)
        offsets = produce(scene, topic, compression_type=codec, acks="all")
        check_equal("reported offsets", offsets, list(range(COUNT)))
        check_lot(consume(scene, topic))


@STEPS.step()
def every_codec_comes_back_from_an_idempotent_producer(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"idempotent-{codec}")
        create(scene, topic)
        produce(scene, topic, compression_type=codec, enable_idempotence=True)
        check_lot(consume(scene, topic))


@STEPS.step()
def reads_what_our_client_wrote(scene: Scene) -> None:
    for codec in CODECS:
        check_lot(consume(scene, f"{scene.ours}-{codec}"))


@STEPS.step()
def every_kind_of_acks_delivers(scene: Scene) -> None:
    for acks in ("0", "1", "all"):
        topic = scene.topic(f"acks-{acks}")
        create(scene, topic)
        produce(scene, topic, acks=acks)
        check_lot(consume(scene, topic))


@STEPS.step()
def a_topic_is_made_on_first_use(scene: Scene) -> None:
    topic = scene.topic("first-use")
    produce(scene, topic)
    check_lot(consume(scene, topic))


@STEPS.step()
def an_offset_is_found_by_time_to_the_exact_record(scene: Scene) -> None:
    topic = scene.topic("times")
    create(scene, topic)
    produce(scene, topic, compression_type="gzip")
    consumer = consumer_at(scene, topic)
    for asked, offset in ((0, 0), (timestamp_ms(41) + 1, 42), (timestamp_ms(99), 99)):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, asked)], TIMEOUT_S)
        check_equal("offset", found.offset, offset)
    ends = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    check_equal("start and end", ends, (0, COUNT))
    consumer.close()


@STEPS.step()
def an_offset_out_of_range_falls_back_to_the_reset_policy(scene: Scene) -> None:
    topic = scene.topic("range")
    create(scene, topic)
    produce(scene, topic)
    consumer = consumer_at(scene, topic, COUNT + 1000, "earliest")
    check_equal("first offset", poll(consumer, COUNT)[0].offset(), 0)
    consumer.close()


@STEPS.step()
def a_consumer_that_waits_at_the_end_is_woken(scene: Scene) -> None:
    topic = scene.topic("woken")
    create(scene, topic)
    consumer = consumer_at(scene, topic)
    check_equal("an empty topic", consumer.poll(0.3), None)
    sender = threading.Thread(target=produce, args=(scene, topic, 1))
    sender.start()
    check_equal("value", poll(consumer, 1)[0].value(), value(0))
    sender.join()
    consumer.close()


@STEPS.step()
def topics_are_listed_grown_described_altered_and_deleted(scene: Scene) -> None:
    topic = scene.topic("admin")
    create(scene, topic, 2, retention_ms="3600000")
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})

    def partitions() -> int:
        return len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)

    check_becomes("partitions", partitions, 2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    check_becomes("grown", partitions, 5)

    def retention() -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return str(configs["retention.ms"].value)

    check_becomes("as created", retention, "3600000")
    altered = ConfigResource(ConfigResource.Type.TOPIC, topic, {"retention.ms": "7200000"})
    admin.alter_configs([altered])[altered].result(TIMEOUT_S)
    check_becomes("altered", retention, "7200000")
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    check_becomes("deleted", lambda: topic in admin.list_topics(timeout=TIMEOUT_S).topics, False)


@STEPS.step(since=(2, 16))
def records_of_a_share_group_are_accepted_released_and_rejected(scene: Scene) -> None:
    from confluent_kafka import AcknowledgeType, ShareConsumer

    topic = scene.topic("shared")
    create(scene, topic)
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    consumer = ShareConsumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": topic,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + TIMEOUT_S
    seen: list[tuple[bytes, int]] = []

    def work(until: tuple[bytes, int], again: bytes | None = None) -> None:
        """Accept what comes, if its value does not say otherwise; `again` is sent meanwhile."""
        while until not in seen:
            assert time.monotonic() < deadline_s, seen
            if again is not None:
                producer.produce(topic, again)
                check_equal("undelivered", producer.flush(TIMEOUT_S), 0)
            for message in consumer.poll(0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                seen.append((message.value() or b"", message.delivery_count() or 0))
                kind = AcknowledgeType.ACCEPT
                if message.value() == b"rejected":
                    kind = AcknowledgeType.REJECT
                elif message.value() == b"released" and message.delivery_count() == 1:
                    kind = AcknowledgeType.RELEASE
                consumer.acknowledge(message, kind)
            errors = [error for error in consumer.commit_sync(TIMEOUT_S).values() if error]
            check_equal("not acknowledged", errors, [])

    work((b"begin", 1), again=b"begin")  # a group begins with what comes after it
    values = [b"released", b"rejected", b"accepted", b"last"]
    for text in values:
        producer.produce(topic, text)
    check_equal("undelivered", producer.flush(TIMEOUT_S), 0)
    work((b"last", 1))
    work((b"released", 2))
    consumer.close()
    told = sorted(row for row in seen if row[0] != b"begin")
    check_equal("records", told, sorted([(b"released", 2), *((text, 1) for text in values)]))


if __name__ == "__main__":
    STEPS.main(version("confluent-kafka"))
