"""kafka-python from 2.0.2 to 3.0: what its users do, without groups and transactions."""

import threading
import time
from functools import partial
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import (
    InvalidConfigurationError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from .lots import (
    CODECS,
    COUNT,
    KEEP,
    check_becomes,
    check_equal,
    check_lot,
    codec_of,
    headers,
    key,
    timestamp_ms,
    value,
)
from .steps import Scene, Steps, numbers

STEPS = Steps()
TIMEOUT_S = 60
RELEASE = numbers(kafka.__version__)


def admin_of(scene: Scene) -> Any:
    return KafkaAdminClient(bootstrap_servers=scene.bootstrap)


def create(scene: Scene, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic; a key of `configs` is written with _ for its dots."""
    dotted = KEEP | {name.replace("_", "."): text for name, text in configs.items()}
    admin = admin_of(scene)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dotted)])
    finally:
        admin.close()


def produce(scene: Scene, topic: str, count: int = COUNT, **settings: object) -> list[int]:
    """Send `count` records to partition 0 and return the offsets that were answered."""
    producer = KafkaProducer(bootstrap_servers=scene.bootstrap, linger_ms=5, **settings)
    futures = [
        producer.send(
            topic,
            value(n),
            key=key(n),
            headers=headers(n),
            partition=0,
            timestamp_ms=timestamp_ms(n),
        )
        for n in range(count)
    ]
    producer.flush(TIMEOUT_S)
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close()
    return offsets


def consumer_at(scene: Scene, topic: str, offset: int | None = 0) -> Any:
    consumer = KafkaConsumer(bootstrap_servers=scene.bootstrap, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    if offset is not None:
        consumer.seek(partition, offset)
    return consumer


def consume(scene: Scene, topic: str, count: int = COUNT) -> list[Any]:
    consumer = consumer_at(scene, topic)
    records = poll(consumer, count)
    consumer.close()
    return records


def poll(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        for lot in consumer.poll(timeout_ms=1000).values():
            records += lot
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(records)} of {count} records came")
    return records


@STEPS.step()
def every_codec_comes_back_as_sent(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"theirs-{codec}")
        create(scene, topic)
        settings = {"enable_idempotence": False} if RELEASE >= (2, 1) else {}
        offsets = produce(scene, topic, compression_type=codec_of(codec), acks="all", **settings)
        check_equal("answered offsets", offsets, list(range(COUNT)))
        check_lot(consume(scene, topic))


@STEPS.step(since=(2, 1))
def every_codec_comes_back_from_an_idempotent_producer(scene: Scene) -> None:
    for codec in CODECS:
        topic = scene.topic(f"idempotent-{codec}")
        create(scene, topic)
        produce(scene, topic, compression_type=codec_of(codec), enable_idempotence=True)
        check_lot(consume(scene, topic))


@STEPS.step()
def reads_what_our_client_wrote(scene: Scene) -> None:
    for codec in CODECS:
        check_lot(consume(scene, f"{scene.ours}-{codec}"))


@STEPS.step()
def a_leaders_word_is_enough_with_acks_1(scene: Scene) -> None:
    topic = scene.topic("acks-1")
    create(scene, topic)
    settings = {"enable_idempotence": False} if RELEASE >= (2, 1) else {}
    produce(scene, topic, acks=1, **settings)
    check_lot(consume(scene, topic))


# The producer of 2.3.0 never sends a request with acks=0.
@STEPS.step(but_not=((2, 3, 0),))
def nothing_is_answered_with_acks_0_and_all_arrives(scene: Scene) -> None:
    topic = scene.topic("acks-0")
    create(scene, topic)
    settings = {"enable_idempotence": False} if RELEASE >= (2, 1) else {}
    produce(scene, topic, acks=0, **settings)
    check_lot(consume(scene, topic))


@STEPS.step()
def a_topic_is_made_on_first_use(scene: Scene) -> None:
    topic = scene.topic("first-use")
    produce(scene, topic)
    check_lot(consume(scene, topic))


@STEPS.step()
def an_offset_is_found_by_time_to_the_exact_record(scene: Scene) -> None:
    topic = scene.topic("times")
    partition = TopicPartition(topic, 0)
    create(scene, topic)
    produce(scene, topic, compression_type="gzip")
    consumer = consumer_at(scene, topic, None)
    for asked, offset in ((0, 0), (timestamp_ms(41) + 1, 42), (timestamp_ms(99), 99)):
        found = consumer.offsets_for_times({partition: asked})[partition]
        check_equal("offset", found.offset, offset)
        check_equal("time", found.timestamp, timestamp_ms(offset))
    later = consumer.offsets_for_times({partition: timestamp_ms(COUNT)})
    check_equal("after the last", later[partition], None)
    check_equal("beginning", consumer.beginning_offsets([partition]), {partition: 0})
    check_equal("end", consumer.end_offsets([partition]), {partition: COUNT})
    consumer.close()


@STEPS.step()
def seeks_to_an_offset_the_start_and_the_end(scene: Scene) -> None:
    topic = scene.topic("seek")
    partition = TopicPartition(topic, 0)
    create(scene, topic)
    produce(scene, topic)
    consumer = consumer_at(scene, topic, 37)
    check_equal("offset 37", poll(consumer, COUNT - 37)[0].value, value(37))
    check_equal("position behind the last", consumer.position(partition), COUNT)
    consumer.seek_to_beginning(partition)
    check_equal("position at the start", consumer.position(partition), 0)
    consumer.seek_to_end(partition)
    check_equal("position at the end", consumer.position(partition), COUNT)
    consumer.close()


@STEPS.step()
def an_offset_out_of_range_falls_back_to_the_reset_policy(scene: Scene) -> None:
    topic = scene.topic("range")
    create(scene, topic)
    produce(scene, topic)
    consumer = KafkaConsumer(
        bootstrap_servers=scene.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), COUNT + 1000)
    check_equal("first offset", poll(consumer, COUNT)[0].offset, 0)
    consumer.close()


@STEPS.step()
def a_consumer_that_waits_at_the_end_is_woken(scene: Scene) -> None:
    topic = scene.topic("woken")
    create(scene, topic)
    consumer = consumer_at(scene, topic)
    check_equal("an empty topic", consumer.poll(timeout_ms=300), {})
    sender = threading.Thread(target=produce, args=(scene, topic, 1))
    sender.start()
    check_equal("value", poll(consumer, 1)[0].value, value(0))
    sender.join()
    consumer.close()


@STEPS.step()
def null_and_empty_keys_and_values_are_told_apart(scene: Scene) -> None:
    topic = scene.topic("nulls")
    create(scene, topic)
    pairs = [(b"k", None), (None, b"v"), (b"", b""), (b"k", b"v")]
    producer = KafkaProducer(bootstrap_servers=scene.bootstrap)
    for record_key, record_value in pairs:
        producer.send(topic, record_value, key=record_key, partition=0).get(TIMEOUT_S)
    producer.close()
    check_equal("pairs", [(r.key, r.value) for r in consume(scene, topic, 4)], pairs)


@STEPS.step()
def the_broker_stamps_records_when_the_topic_says_so(scene: Scene) -> None:
    topic = scene.topic("stamped")
    create(scene, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 1000
    for codec in (None, "gzip"):
        produce(scene, topic, 10, compression_type=codec)
    records = consume(scene, topic, 20)
    check_equal("types", {r.timestamp_type for r in records}, {1})
    check_equal("stamped by the broker", min(r.timestamp for r in records) >= before_ms, True)


@STEPS.step()
def a_record_larger_than_the_topic_takes_is_refused(scene: Scene) -> None:
    topic = scene.topic("large")
    create(scene, topic, max_message_bytes="10000")
    producer = KafkaProducer(bootstrap_servers=scene.bootstrap)
    producer.send(topic, bytes(1000), partition=0).get(TIMEOUT_S)
    try:
        producer.send(topic, bytes(20_000), partition=0).get(TIMEOUT_S)
    except MessageSizeTooLargeError:
        pass
    else:
        raise AssertionError("a record of 20,000 bytes was taken")
    producer.close()
    check_equal("what is there", [len(r.value) for r in consume(scene, topic, 1)], [1000])


@STEPS.step()
def what_cannot_be_created_is_refused_with_its_own_error(scene: Scene) -> None:
    topic = scene.topic("twice")
    create(scene, topic)
    for name, retention_ms, expected in (
        (topic, "-1", TopicAlreadyExistsError),
        ("with spaces", "-1", InvalidTopicError),
        (scene.topic("config"), "soon", InvalidConfigurationError),
    ):
        try:
            create(scene, name, retention_ms=retention_ms)
        except expected:
            continue
        raise AssertionError(f"{name!r} with retention.ms {retention_ms} was created")


@STEPS.step()
def topics_are_listed_described_grown_and_deleted(scene: Scene) -> None:
    topic = scene.topic("grown")
    create(scene, topic, 2)
    admin = admin_of(scene)
    check_becomes("listed", lambda: topic in admin.list_topics(), True)
    check_becomes("partitions", lambda: partitions_of(admin, topic), [0, 1])
    admin.create_partitions({topic: NewPartitions(5)})
    check_becomes("grown", lambda: partitions_of(admin, topic), [0, 1, 2, 3, 4])
    admin.delete_topics([topic])
    check_becomes("deleted", lambda: topic in admin.list_topics(), False)
    try:
        admin.delete_topics([topic])
    except UnknownTopicOrPartitionError:
        pass
    else:
        raise AssertionError("a deleted topic was deleted again")
    admin.close()


def partitions_of(admin: Any, topic: str) -> list[int]:
    (described,) = admin.describe_topics([topic])
    check_equal("error", described["error_code"], 0)
    leaders = {p.get("leader_id", p.get("leader")) for p in described["partitions"]}
    brokers = set(broker_ids(admin.describe_cluster()))
    check_equal("leaders are brokers", leaders <= brokers, True)
    indexes = [p.get("partition_index", p.get("partition")) for p in described["partitions"]]
    return sorted(indexes)


def broker_ids(cluster: dict[str, Any]) -> list[int]:
    # From Metadata "node_id", from DescribeCluster "broker_id".
    return [broker.get("node_id", broker.get("broker_id")) for broker in cluster["brokers"]]


def config_of(admin: Any, topic: str, name: str) -> str:
    """One config of a topic; the three generations of the client answer in three shapes."""
    resource = ConfigResource("topic", topic)
    if RELEASE >= (3, 0):
        answer = admin.describe_configs([resource], config_filter="all")
        return str(answer["topic"][topic][name]["value"])
    (answer,) = admin.describe_configs([resource])
    ((_, _, _, _, entries),) = answer.resources
    return str(next(entry[1] for entry in entries if entry[0] == name))


@STEPS.step()
def configs_are_described_and_altered(scene: Scene) -> None:
    topic = scene.topic("configs")
    create(scene, topic, segment_ms="3600000")
    admin = admin_of(scene)
    period = partial(config_of, admin, topic, "segment.ms")
    check_becomes("as created", period, "3600000")
    check_equal("default", config_of(admin, topic, "cleanup.policy"), "delete")
    admin.alter_configs([ConfigResource("topic", topic, {"segment.ms": "7200000"})])
    check_becomes("altered", period, "7200000")
    if RELEASE >= (3, 0):
        plain = scene.topic("plain")
        create(scene, plain)
        admin.reset_configs([ConfigResource("topic", topic, ["segment.ms"])])
        check_becomes("reset", period, config_of(admin, plain, "segment.ms"))
    admin.close()


@STEPS.step(since=(2, 1))
def records_before_an_offset_are_deleted(scene: Scene) -> None:
    topic = scene.topic("deleted")
    partition = TopicPartition(topic, 0)
    create(scene, topic)
    produce(scene, topic)
    admin = admin_of(scene)
    answer = admin.delete_records({partition: 60})
    check_equal("new start", answer[partition]["low_watermark"], 60)
    admin.close()
    consumer = KafkaConsumer(
        bootstrap_servers=scene.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer.assign([partition])
    check_equal("beginning", consumer.beginning_offsets([partition]), {partition: 60})
    check_equal("first", poll(consumer, COUNT - 60)[0].offset, 60)
    consumer.close()


@STEPS.step(since=(3, 0))
def the_admin_client_finds_offsets_and_the_cluster(scene: Scene) -> None:
    topic = scene.topic("admin-offsets")
    partition = TopicPartition(topic, 0)
    create(scene, topic)
    produce(scene, topic)
    admin = admin_of(scene)
    # -1 the end, -2 the start, -3 the record with the greatest time.
    for asked, offset in ((-2, 0), (-1, COUNT), (-3, COUNT - 1), (timestamp_ms(7), 7)):
        found = admin.list_partition_offsets({partition: asked})[partition]
        check_equal(f"offset of {asked}", found.offset, offset)
    cluster = admin.describe_cluster()
    ids = broker_ids(cluster)
    check_equal("the controller is a broker", cluster["controller_id"] in ids, True)
    check_equal("the cluster has an id", bool(cluster["cluster_id"]), True)
    admin.close()


if __name__ == "__main__":
    STEPS.main(kafka.__version__)
