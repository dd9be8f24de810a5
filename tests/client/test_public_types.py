"""Every public name as a program outside uses it: `make types` checks what each gives back.

The functions are never called; what they say to the type checker is the test.  At run time only
this is looked at: no public name was left out.
"""

from collections.abc import Iterable
from inspect import signature
from pathlib import Path
from typing import Any, assert_type

from segbroker import client
from segbroker.client import (
    AcknowledgeFailed,
    Acl,
    AclFilter,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncDeliveries,
    AsyncDelivery,
    AsyncProducer,
    AsyncShareConsumer,
    AuthenticationFailed,
    BearerToken,
    BrokenError,
    BrokerError,
    BrokerSetting,
    BrokerUnreachable,
    BusyError,
    ClientCredentials,
    ClosedError,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConnectionLost,
    ConsumedBatch,
    Consumer,
    CorruptBatch,
    Deliveries,
    Delivery,
    DeliveryFailed,
    FailedAcknowledgement,
    FencedInstanceId,
    Gap,
    GapError,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupMetadata,
    GroupSetting,
    IllegalGeneration,
    InvalidRecordState,
    MessageTooLarge,
    NonEmptyGroup,
    NoTransaction,
    OffsetAndTimestamp,
    OffsetOutOfRange,
    Outgoing,
    PeerError,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    Quota,
    Record,
    RecordMetadata,
    Security,
    SegbrokerError,
    ShareConsumer,
    ShareOffset,
    ShareRecord,
    TimedOut,
    TlsFailed,
    TokenFile,
    TokenUnavailable,
    TopicAlreadyExists,
    TopicDescription,
    TopicPartition,
    TopicRecreated,
    TransactionAborted,
    Undelivered,
    UnknownMemberId,
    UnknownTopicOrPartition,
    User,
    async_transform,
    transform,
)

ERRORS: tuple[type[SegbrokerError], ...] = (
    AcknowledgeFailed,
    AuthenticationFailed,
    BrokenError,
    BrokerError,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    ConnectionLost,
    CorruptBatch,
    DeliveryFailed,
    FencedInstanceId,
    GapError,
    IllegalGeneration,
    InvalidRecordState,
    MessageTooLarge,
    NonEmptyGroup,
    NoTransaction,
    OffsetOutOfRange,
    PeerError,
    ProducerFenced,
    TimedOut,
    TlsFailed,
    TokenUnavailable,
    TopicAlreadyExists,
    TopicRecreated,
    TransactionAborted,
    UnknownMemberId,
    UnknownTopicOrPartition,
)


def logs_in_by_a_token() -> None:
    asked = ClientCredentials("https://a/token", "id", "secret", scope="s")
    assert_type(asked(), BearerToken)
    Security(tls=True, mechanism="OAUTHBEARER", token_provider=asked)
    Security(mechanism="OAUTHBEARER", token_provider=TokenFile("/a"), sasl_extensions={"a": "b"})
    Security(mechanism="OAUTHBEARER", token_provider=lambda: BearerToken("t", 1.5))


def sends(security: Security) -> None:
    with Producer("a:1", security=security, compression="lz4", transactional_id="t") as producer:
        assert_type(producer, Producer)
        delivery = producer.send("t", b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=1)
        assert_type(delivery, Delivery)
        assert_type(delivery.result(timeout=1), RecordMetadata)
        assert_type(producer.send_many("t", [b"1", None]), Deliveries)
        with producer.transaction():
            producer.send_offsets({TopicPartition("t", 0): 7}, GroupMetadata("g", 1, "m", None))
            assert_type(producer.prepare(), PreparedTransaction)
    try:
        producer.close()
    except DeliveryFailed as error:
        assert_type(error.undelivered, list[Undelivered])


def reads() -> None:
    with Consumer("a:1", "t", group="g", session_timeout_ms=10_000) as consumer:
        for record in consumer:
            assert_type(record, Record)
            assert_type(record.value, bytes | None)
        for batch in consumer.batches():
            assert_type(batch, ConsumedBatch)
        assert_type(consumer.poll(), list[Record])
        assert_type(consumer.lag(), dict[TopicPartition, int])
        assert_type(consumer.committed(), dict[TopicPartition, CommittedOffset])
        times = consumer.offsets_for_times({("t", 0): 1})
        assert_type(times, dict[TopicPartition, OffsetAndTimestamp | None])
        assert_type(consumer.group_metadata, GroupMetadata)
    with Consumer("a:1", "t", on_gap="yield") as telling:
        for item in telling:
            assert_type(item, Record | Gap)
        assert_type(telling.poll(), list[Record | Gap])


def works(told: list[FailedAcknowledgement]) -> None:
    with ShareConsumer("a:1", "t", group="g", acquire="records", on_failed=told.extend) as consumer:
        for record in consumer:
            assert_type(record, ShareRecord)
            assert_type(record.delivery_count, int)
        consumer.release(*consumer.poll())
    with ShareConsumer("a:1", "t", group="g", explicit=True, on_gap="yield") as telling:
        for item in telling:
            assert_type(item, ShareRecord | Gap)
        assert_type(telling.poll(), list[ShareRecord | Gap])
        try:
            telling.commit()
        except AcknowledgeFailed as error:
            assert_type(error.failed, list[FailedAcknowledgement])


async def works_asynchronously() -> None:
    async with AsyncShareConsumer("a:1", "t", group="g", max_hold_ms=0) as consumer:
        async for record in consumer:
            assert_type(record, ShareRecord)
            consumer.accept(record)
        assert_type(await consumer.poll(), list[ShareRecord])
        await consumer.commit()


def administers(admin: Admin) -> None:
    assert_type(admin.describe_topic("t"), TopicDescription)
    assert_type(admin.describe_topic("t").config["k"], ConfigEntry)
    assert_type(admin.describe_topics(["t"], keys=["k"]), dict[str, TopicDescription])
    assert_type(admin.describe_cluster(), ClusterDescription)
    assert_type(admin.describe_broker(0), dict[str, BrokerSetting])
    assert_type(admin.broker_status(), dict[str, Any])
    assert_type(admin.list_groups(), list[GroupListing])
    group = admin.describe_group("g")
    assert_type(group, GroupDescription)
    assert_type(group.members, tuple[GroupMember, ...])
    assert_type(admin.share_offsets("g"), dict[TopicPartition, ShareOffset])
    assert_type(admin.describe_group_config("g"), dict[str, GroupSetting])
    assert_type(admin.list_acls(AclFilter()), list[Acl])
    assert_type(admin.list_users(), list[User])
    assert_type(admin.list_quotas(), list[Quota])


def doubled(record: Record) -> Iterable[Outgoing]:
    return [Outgoing("out", record.value)]


def transforms(consumer: Consumer, producer: Producer) -> None:
    transform(consumer, producer, doubled)


async def does_it_all_asynchronously(admin: AsyncAdmin) -> None:
    assert_type(await admin.describe_topic("t"), TopicDescription)
    async with AsyncProducer("a:1") as producer:
        delivery = await producer.send("t", b"v")
        assert_type(delivery, AsyncDelivery)
        assert_type(await delivery, RecordMetadata)
        assert_type(await producer.send_many("t", [b"v"]), AsyncDeliveries)
    async with AsyncConsumer("a:1", "t", group="g") as consumer:
        async for record in consumer:
            assert_type(record, Record)
        async for batch in consumer.batches():
            assert_type(batch, ConsumedBatch)
        assert_type(await consumer.poll(), list[Record])
        await async_transform(consumer, producer, doubled)
    async with AsyncConsumer("a:1", "t", on_gap="yield") as telling:
        async for item in telling:
            assert_type(item, Record | Gap)


def what_one_call_gives_the_other_takes(consumer: Consumer, producer: Producer) -> None:
    positions = consumer.positions()
    consumer.commit(positions)
    consumer.commit(consumer.committed())
    consumer.offsets_for_times(dict.fromkeys(consumer.assignment, 0))
    assert isinstance(consumer.is_at_end, bool)
    producer.send_offsets(positions, consumer.group_metadata)
    producer.send("t", b"", headers={"name": b"value"})
    with Admin() as admin:
        admin.commit("g", positions)
        admin.commit("g", {("t", 0): 1})
        admin.delete_records(positions)
        admin.create_topic("t", config={"retention.ms": 60_000})


def test_every_public_name_is_used_by_a_typed_program() -> None:
    source = Path(__file__).read_text().partition("\n)\n")[2]
    missing = [name for name in client.__all__ if name not in source]
    assert missing == [], "public names that no function above uses: add them"


def test_both_admin_clients_ask_the_same_and_say_the_same_of_it() -> None:
    """Their methods are written out twice."""
    blocking, asynchronous = (
        {
            name: (signature(method), method.__doc__)
            for name, method in vars(cls).items()
            if not name.startswith("_")
        }
        for cls in (Admin, AsyncAdmin)
    )
    assert blocking == asynchronous


def test_every_error_is_one_of_ours() -> None:
    named = {getattr(client, name) for name in client.__all__}
    errors = {one for one in named if isinstance(one, type) and issubclass(one, BaseException)}
    assert errors == {SegbrokerError, *ERRORS}
