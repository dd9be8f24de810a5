"""The standard part of our client: the same tests against a real Apache Kafka and a segbroker.

Kafka is started from its Maven jars, as for the benchmarks: needs java and mvn.  Or name a broker
that runs in SEGBROKER_TEST_KAFKA=host:port.  Not part of the usual run: `pytest -m matrix`.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.programs import Missing, kafka_jars
from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    OffsetOutOfRange,
    Outgoing,
    Producer,
    ProducerFenced,
    Record,
    TopicAlreadyExists,
    TopicPartition,
    TransactionAborted,
    UnknownTopicOrPartition,
    transform,
)
from segbroker.client.errors import MessageTooLarge, SegbrokerError, UnreleasedInstanceId
from segbroker.client.settings import ConsumerOptions, GroupProtocol
from segbroker.protocol.partitioner import partition_for_key

from ..support.daemon import running
from ..support.waiting import until

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["Apache Kafka", "segbroker"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "segbroker":
        with running(tmp_path_factory.mktemp("segbroker")) as daemon:
            yield daemon.address
    else:
        yield from apache_kafka(tmp_path_factory)


def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("SEGBROKER_TEST_KAFKA")
    if given:
        yield given
        return
    try:
        kafka_jars()
    except Missing as exc:
        pytest.skip(f"Apache Kafka cannot be started: {exc}")
    with ApacheKafka.start(tmp_path_factory.mktemp("kafka"), durable=False) as peer:
        yield peer.address


@pytest.fixture
def name(request: pytest.FixtureRequest, kafka: str) -> Iterator[str]:
    """A topic of four partitions of its own."""
    topic = f"ours-{os.getpid()}-{abs(hash(request.node.name))}"
    with Admin(kafka) as admin:
        # Records of years ago are sent: without this a look at ages deletes them.
        keep = {"retention.ms": "-1"}
        admin.create_topic(topic, partitions=4, replication_factor=1, config=keep)
    yield topic
    with Admin(kafka) as admin:
        admin.delete_topic(topic)


CONSUMER: Any = {"group_protocol": "consumer"}
VALUES = [b"%06d" % number for number in range(5_000)]
KEYS = [b"key-%d" % (number % 97) for number in range(5_000)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_we_send_comes_back(kafka: str, name: str, codec: str) -> None:
    with Producer(kafka, compression=codec) as producer:  # type: ignore[arg-type]
        many = producer.send_many(name, VALUES, keys=KEYS)
        one = producer.send(
            name, None, key=b"tombstone", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_000
        )
        places = [*many.result(60), one.result(30)]
    with Consumer(kafka, name, stop_at_end=True) as consumer:
        records = {(record.partition, record.offset): record for record in consumer}
    assert len(records) == 5_001
    for value, key, where in zip([*VALUES, None], [*KEYS, b"tombstone"], places, strict=True):
        record = records[where.partition, where.offset]
        assert (record.value, record.key) == (value, key)
        assert where.partition == partition_for_key(key, 4)
        assert record.timestamp_ms == where.timestamp_ms
    last = records[places[-1].partition, places[-1].offset]
    assert last.headers == (("h", b"1"), ("n", None))
    assert last.timestamp_ms == 1_000


def torn(kafka: str, producer: Producer, name: str) -> None:
    with Admin(kafka) as admin, producer.transaction():
        producer.send(name, b"gone", partition=0).result(30)
        admin.delete_topic(name)
        made_again(admin, name)
        producer.send(name, b"torn", partition=1)


def made_again(admin: Admin, name: str) -> None:
    deadline = time.monotonic() + 60
    while True:  # a topic that is being deleted has its name for a while
        try:
            admin.create_topic(name, partitions=4, replication_factor=1)
        except TopicAlreadyExists:
            assert time.monotonic() < deadline
        else:
            return


def test_a_transaction_is_not_torn_by_a_topic_made_again(kafka: str, name: str) -> None:
    with Producer(kafka, transactional_id=name, linger_ms=0) as producer:
        with pytest.raises(TransactionAborted, match="was deleted and made again"):
            torn(kafka, producer, name)
        with producer.transaction():
            producer.send_many(name, VALUES[:10])
    with Consumer(kafka, name, stop_at_end=True) as consumer:
        assert sorted(record.value or b"" for record in consumer) == VALUES[:10]


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_each_kind_of_acknowledgement_works(kafka: str, name: str, acks: str | int) -> None:
    with Producer(kafka) as producer:
        # The partition has its leader then: with acks=0 nobody hears of a refusal.
        producer.send(name, VALUES[0], partition=1)
    with Producer(kafka, acks=acks, linger_ms=0) as producer:  # type: ignore[arg-type]
        for value in VALUES[1:200]:
            producer.send(name, value, partition=1)
    with Consumer(kafka) as consumer:
        consumer.assign([(name, 1)], start="start")
        seen: list[bytes | None] = []
        while len(seen) < 200 and (records := consumer.poll(timeout_ms=60_000)):
            seen += [record.value for record in records]
    assert seen == VALUES[:200]


def test_positions_and_lookups_are_those_of_kafka(kafka: str, name: str) -> None:
    with Producer(kafka) as producer:
        for n in range(100):
            producer.send(name, b"%d" % n, partition=0, timestamp_ms=1_000_000 + n * 1_000)
    with Consumer(kafka) as consumer:
        consumer.assign([(name, 0)], start=-10)
        assert consumer.position(name, 0) == 90
        assert [record.offset for record in consumer.poll(timeout_ms=10_000)] == list(
            range(90, 100)
        )
        assert consumer.end_offsets() == {(name, 0): 100}
        assert consumer.beginning_offsets() == {(name, 0): 0}
        found = consumer.offsets_for_times({(name, 0): 1_050_500})[name, 0]  # type: ignore[index]
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (51, 1_051_000)
        consumer.seek(name, 0, datetime.fromtimestamp(1_020, UTC))
        assert consumer.position(name, 0) == 20
        consumer.seek(name, 0, 1_000)
        with pytest.raises(OffsetOutOfRange, match=r"offset 1000 is outside \[0, 100\]"):
            consumer.poll(timeout_ms=10_000)


def settles(ask: Callable[[], object], expected: object) -> None:
    """Kafka answers a change before all of its parts have heard of it."""
    deadline = time.monotonic() + 10
    while (got := ask()) != expected:
        assert time.monotonic() < deadline, f"{got} instead of {expected}"


def test_topics_are_administered_as_with_kafkas_own_tools(kafka: str, name: str) -> None:
    with Admin(kafka) as admin:
        with pytest.raises(TopicAlreadyExists):
            admin.create_topic(name, partitions=4)
        assert name in admin.list_topics()
        assert len(admin.describe_topic(name).partitions) == 4
        admin.alter_topic_config(name, {"segment.bytes": "2097152"})
        settles(lambda: admin.describe_topic(name).config["segment.bytes"].value, "2097152")
        admin.create_partitions(name, 6)
        settles(lambda: len(admin.describe_topic(name).partitions), 6)
        with Producer(kafka) as producer:
            producer.send_many(name, VALUES[:50], partition=5).result(60)
        admin.delete_records({(name, 5): 20})
        assert admin.offsets(name, "start")[TopicPartition(name, 5)].offset == 20
        assert admin.offsets(name, "end")[TopicPartition(name, 5)].offset == 50
        with pytest.raises(UnknownTopicOrPartition):
            admin.delete_topic("there-is-no-such-topic")


def test_a_setting_of_a_broker_that_is_not_set_is_no_secret(kafka: str) -> None:
    with Admin(kafka) as admin:
        found = admin.describe_broker(admin.describe_cluster().controller)
    secrets = {key.replace("_", ".") for key, setting in found.items() if setting.value is None}
    assert "ssl.key.password" in secrets
    words = re.compile("password|passphrase|secret|key|certificate|jaas")
    assert not [key for key in secrets if not words.search(key)]


def test_a_topic_that_is_deleted_and_made_anew_has_the_partitions_that_were_asked_for(
    kafka: str, name: str
) -> None:
    """A producer that is open and idle does not bring it back meanwhile."""
    with Producer(kafka) as producer, Admin(kafka) as admin:
        producer.send(name, b"old").result(30)
        admin.delete_topic(name)
        cluster = producer._producing.engine.cluster
        for _ in range(3):
            seen = cluster.replies_count
            with producer._lock:
                cluster.invalidate()
            producer._driver.wake_by(0)
            until(lambda seen=seen: cluster.replies_count > seen)  # type: ignore[misc]
        admin.create_topic(name, partitions=6)
        producer.send(name, b"new").result(60)
        assert len(admin.partitions(name)) == 6


def test_what_is_said_of_a_topic_before_it_is_known_holds(kafka: str, name: str) -> None:
    with Producer(kafka) as producer:
        producer.send_many(name, [b"%d" % n for n in range(20)], partition=0).result(30)
    with Consumer(kafka) as consumer:
        consumer.subscribe([name])
        consumer.seek(name, 0, 15)
        consumer.pause()
        assert consumer.position(name, 0) == 15
        assert consumer.poll(timeout_ms=300) == []
        consumer.resume()
        assert next(iter(consumer)).offset == 15


def test_what_kafka_refuses_is_said(kafka: str, name: str) -> None:
    with Producer(kafka, batch_bytes=4 << 20) as producer:
        delivery = producer.send(name, bytes(3 << 20))
        with pytest.raises(MessageTooLarge) as caught:
            delivery.result(60)
        assert isinstance(caught.value, SegbrokerError)
        assert not caught.value.retryable


def test_nothing_overtakes_the_first_batch_of_a_producer(kafka: str, name: str) -> None:
    """Neither broker knows the producer when what is small enough comes behind what is not."""
    with Admin(kafka) as admin:
        admin.alter_topic_config(name, {"max.message.bytes": "10000"})
        settles(lambda: admin.describe_topic(name).config["max.message.bytes"].value, "10000")
    with Producer(kafka, batch_bytes=40_000) as producer:
        producer.send_many(name, [value * 100 for value in VALUES[:265]], partition=0)
    with Consumer(kafka, name, stop_at_end=True) as consumer:
        assert [(record.value or b"")[:6] for record in consumer] == VALUES[:265]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_trio_and_asyncio_work_too(kafka: str, name: str, backend: str) -> None:
    async def main() -> list[bytes | None]:
        async with AsyncProducer(kafka) as producer:
            await (await producer.send_many(name, VALUES, partition=3))
        async with AsyncConsumer(kafka, name, stop_at_end=True) as consumer:
            return [record.value async for record in consumer]

    assert anyio.run(main, backend=backend) == VALUES


def test_records_of_an_aborted_transaction_are_not_seen(kafka: str, name: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    theirs = confluent_kafka.Producer(
        {"bootstrap.servers": kafka, "transactional.id": f"{name}-tx"}
    )
    theirs.init_transactions(30)
    for value, commit in ((b"kept", True), (b"aborted", False), (b"kept too", True)):
        theirs.begin_transaction()
        theirs.produce(name, value, partition=0)
        theirs.flush(30)
        if commit:
            theirs.commit_transaction(30)
        else:
            theirs.abort_transaction(30)
    # Kafka answers a commit before its marker is written, so the end may lie a little further.
    seen = []
    with Consumer(kafka, name) as consumer:
        for record in consumer:
            seen.append(record.value)
            if record.value == b"kept too":
                break
    assert seen == [b"kept", b"kept too"]
    with Consumer(kafka, name, stop_at_end=True, isolation="read_uncommitted") as consumer:
        assert [record.value for record in consumer] == [b"kept", b"aborted", b"kept too"]


def read(kafka: str, topic: str) -> list[bytes | None]:
    """Until everything of the topic is in: Kafka answers a commit before its marker is written."""
    seen: list[bytes | None] = []
    with Consumer(kafka, topic) as consumer:
        while more := consumer.poll(max_records=100_000, timeout_ms=2_000):
            seen += [record.value for record in more]
    return seen


@pytest.mark.parametrize(
    "options",
    [
        *({"assignors": [one]} for one in ("cooperative-sticky", "range", "roundrobin", "sticky")),
        CONSUMER,
        {**CONSUMER, "group_remote_assignor": "range"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_two_members_share_hand_over_and_go_on_where_the_group_stands(
    kafka: str, name: str, options: ConsumerOptions
) -> None:
    with Producer(kafka) as producer:
        for index, value in enumerate(VALUES):
            producer.send(name, value, partition=index % 4)
    seen: list[bytes | None] = []
    with (
        Consumer(kafka, name, group=name, **options) as one,
        Consumer(kafka, name, group=name, **options) as two,
    ):
        ends = time.monotonic() + 60
        while len(one.assignment) != 2 or len(two.assignment) != 2:
            assert time.monotonic() < ends
            for member in (one, two):
                seen += [r.value for r in member.poll(max_records=50, timeout_ms=100)]
        assert not set(one.assignment) & set(two.assignment)
        one.commit()
        two.commit()
    with Consumer(kafka, name, group=name, stop_at_end=True, **options) as consumer:
        seen += [record.value for record in consumer]
        assert sum(stands.offset for stands in consumer.committed().values()) in range(5_001)
    assert set(seen) == set(VALUES)


def test_a_static_member_of_the_consumer_protocol_comes_back_to_what_it_had(
    kafka: str, name: str
) -> None:
    def instance(which: str) -> Consumer:
        return Consumer(kafka, name, group=name, instance_id=which, **CONSUMER)

    with instance("two") as two:
        with instance("one") as one:
            share(one, two)
            had = set(one.assignment)
        with instance("one") as again:
            until(lambda: not again.poll(timeout_ms=100) and set(again.assignment) == had)
            with pytest.raises(UnreleasedInstanceId), instance("one") as late:
                late.poll(timeout_ms=60_000)
        assert two.poll(timeout_ms=100) == []
        assert len(two.assignment) == 2


def share(one: Consumer, two: Consumer) -> None:
    """Until each has half."""
    ends = time.monotonic() + 60
    while len(one.assignment) != 2 or len(two.assignment) != 2:
        assert time.monotonic() < ends
        for member in (one, two):
            member.poll(timeout_ms=100)
    assert not set(one.assignment) & set(two.assignment)


def test_a_group_goes_over_to_the_consumer_protocol_member_by_member(kafka: str, name: str) -> None:
    def type_of() -> str:
        with Admin(kafka) as admin:
            return admin.describe_group(name).group_type

    with Consumer(kafka, name, group=name) as old:
        with Consumer(kafka, name, group=name) as other:
            share(old, other)
        assert type_of() == "classic"
        with Consumer(kafka, name, group=name, **CONSUMER) as new:
            share(old, new)
            assert type_of() == "consumer"
            old.close()
            with Consumer(kafka, name, group=name, **CONSUMER) as newer:
                share(new, newer)
            assert type_of() == "consumer"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_a_group_with_librdkafka(
    kafka: str, name: str, protocol: GroupProtocol
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    for strategy in ("cooperative-sticky", "range") if protocol == "classic" else ("uniform",):
        of_protocol = (
            "partition.assignment.strategy" if protocol == "classic" else ("group.remote.assignor")
        )
        theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": f"{name}-{strategy}",
                "group.protocol": protocol,
                of_protocol: strategy,
            }
        )
        theirs.subscribe([name])
        group = f"{name}-{strategy}"
        with Consumer(kafka, name, group=group, group_protocol=protocol) as ours:
            ends = time.monotonic() + 60
            while len(ours.assignment) != 2 or len(theirs.assignment()) != 2:
                assert time.monotonic() < ends
                ours.poll(timeout_ms=100)
                theirs.poll(0.1)
            mine = {tp.partition for tp in ours.assignment}
            assert mine | {tp.partition for tp in theirs.assignment()} == {0, 1, 2, 3}
        theirs.close()


def test_transactions_are_seen_whole_or_not_at_all(kafka: str, name: str) -> None:
    def aborted(producer: Producer) -> None:
        with producer.transaction():
            producer.send_many(name, [b"never"] * 10)
            producer.flush()
            raise ZeroDivisionError

    with Producer(kafka, transactional_id=name) as producer:
        for number in range(5):
            with producer.transaction():
                for partition in range(4):
                    producer.send(name, b"%d" % number, partition=partition)
            with pytest.raises(ZeroDivisionError):
                aborted(producer)
        with Producer(kafka, transactional_id=name) as other, other.transaction():
            other.send(name, b"5")
        with pytest.raises(ProducerFenced), producer.transaction():
            producer.send(name, b"of the zombie")
    seen = read(kafka, name)
    assert sorted(value or b"" for value in seen) == sorted(
        [b"%d" % n for n in range(5)] * 4 + [b"5"]
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_record_is_transformed_once(kafka: str, name: str, protocol: GroupProtocol) -> None:
    out = f"{name}-out"
    with Admin(kafka) as admin:
        admin.create_topic(out, partitions=2, replication_factor=1)
    with Producer(kafka) as plain:
        plain.send_many(name, VALUES, keys=KEYS)
    calls = 0

    def work(record: Record) -> list[Outgoing]:
        nonlocal calls
        calls += 1
        if calls == 1_300:
            raise ZeroDivisionError
        return [Outgoing(out, record.value, key=record.key)]

    def run() -> None:
        with (
            Consumer(
                kafka,
                name,
                group=name,
                group_protocol=protocol,
                auto_commit=False,
                stop_at_end=True,
            ) as consumer,
            Producer(kafka, transactional_id=name) as producer,
        ):
            transform(consumer, producer, work)

    with pytest.raises(ZeroDivisionError):
        run()
    run()
    assert sorted(value or b"" for value in read(kafka, out)) == VALUES
    with Admin(kafka) as admin:
        admin.delete_topic(out)


def test_users_have_passwords_and_are_deleted(kafka: str) -> None:
    with Admin(kafka) as admin:
        admin.set_password("alice", "wonderland", iterations=4_096)

        def mechanisms() -> list[str]:
            return sorted(one for user in admin.list_users(["alice"]) for one in user.iterations)

        # Kafka's controller answers before its broker knows.
        until(lambda: mechanisms() == ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        admin.delete_user("alice")
        until(lambda: mechanisms() == [])
