"""A broker that says what none should: an error with a sentence, within the deadlines, and the
memory and the connections of a client stay what they are.
"""

import struct
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from segbroker.client import (
    Acl,
    Admin,
    BrokenError,
    BrokerUnreachable,
    Consumer,
    CorruptBatch,
    Producer,
    SegbrokerError,
    TimedOut,
    TransactionAborted,
)
from segbroker.client.errors import (
    LeaderNotAvailable,
    NotLeaderOrFollower,
    PeerError,
    RebalanceInProgress,
    UnknownMemberId,
)
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
    FetchResponse,
    MetadataResponse,
    MetadataResponseTopic,
)
from segbroker.protocol.messages_groups import DeleteGroupsResponse, JoinGroupResponse
from segbroker.protocol.messages_security import CreateAclsResponse
from segbroker.protocol.messages_transactions import EndTxnResponse, InitProducerIdResponse
from segbroker.protocol.record_batch import encode_batch
from segbroker.protocol.schema import Message

from ..support.waiting import until, within_one_of
from .replaying import (
    TOPIC,
    Answer,
    Replaying,
    Request,
    coordinator,
    fetched,
    metadata,
    offsets,
    produced,
)

# A deadline that comes soon: every case runs into one.
SOON_MS = 800
# Of who does not wait for one.
LATE_MS = 20 * SOON_MS

# Of an address, and within a time.
Use = Callable[[str, int], object]
Case = tuple[Mapping[int, Answer], Use, type[SegbrokerError], str]


def limits(within_ms: int) -> dict[str, Any]:
    return {"request_timeout_ms": within_ms // 2, "connect_timeout_ms": within_ms}


def read(address: str, within_ms: int, **options: Any) -> object:  # noqa: ANN401
    settings = {"api_timeout_ms": within_ms, **limits(within_ms), **options}
    with Consumer(address, TOPIC, **settings) as consumer:
        return next(iter(consumer))


def read_for_longer(address: str, within_ms: int) -> object:
    """Longer than the longest back-off: until then nobody has been silent."""
    return read(address, within_ms, api_timeout_ms=within_ms + 2_200)


def read_as_member(address: str, within_ms: int) -> object:
    return read(address, within_ms, group="g", rebalance_timeout_ms=100)


def send(address: str, within_ms: int) -> object:
    with Producer(address, delivery_timeout_ms=within_ms, **limits(within_ms)) as producer:
        return producer.send(TOPIC, b"value").result(60)


def send_in_transaction(address: str, within_ms: int) -> None:
    settings = {"delivery_timeout_ms": within_ms, **limits(within_ms)}
    with Producer(address, transactional_id="x", **settings) as producer, producer.transaction():
        producer.send(TOPIC, b"value")


def asking(ask: Callable[[Admin], object]) -> Use:
    def use(address: str, within_ms: int) -> object:
        with Admin(address, api_timeout_ms=within_ms, **limits(within_ms)) as admin:
            return ask(admin)

    return use


def always(message: Message) -> Answer:
    return lambda request: request.answer(message)


def described(**otherwise: Any) -> Answer:  # noqa: ANN401
    return lambda request: request.answer(metadata(request, **otherwise))


def without_topic(request: Request) -> bytes:
    whole = metadata(request)
    return request.answer(MetadataResponse(brokers=whole.brokers, topics=[]))


def unavailable(request: Request) -> bytes:
    whole = metadata(request)
    row = MetadataResponseTopic(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=TOPIC, partitions=[]
    )
    return request.answer(MetadataResponse(brokers=whole.brokers, topics=[row]))


def at(base_offset: int) -> bytes:
    """A batch of three records that says that it begins there."""
    batch = bytes(encode_batch([b"a", b"b", b"c"], timestamps_ms=1))
    return struct.pack(">q", base_offset) + batch[8:]


def joined(error_code: int = 0, protocol_name: str = "range") -> Answer:
    return always(
        JoinGroupResponse(
            error_code=error_code,
            generation_id=1,
            protocol_type="consumer",
            protocol_name=protocol_name,
            leader="somebody else",
            member_id="m",
            members=[],
        )
    )


def other_records_deleted(request: Request) -> bytes:
    row = DeleteRecordsResponsePartition(partition_index=4, low_watermark=1)
    topic = DeleteRecordsResponseTopic(name="another", partitions=[row])
    return request.answer(DeleteRecordsResponse(topics=[topic]))


def half(request: Request) -> bytes:
    return request.answer(metadata(request))[:20]


NO_ID = always(InitProducerIdResponse(producer_id=-1, producer_epoch=-1))

CASES: dict[str, Case] = {
    # Frames.
    "no versions": (
        {ApiKey.API_VERSIONS: always(ApiVersionsResponse(error_code=0, api_keys=[]))},
        read,
        BrokerUnreachable,
        "has no version of METADATA",
    ),
    "a shorter answer": (
        {ApiKey.METADATA: lambda r: r.framed(r.answer(metadata(r))[8:-7])},
        read,
        BrokerUnreachable,
        "MetadataResponse version 12 is malformed",
    ),
    "an empty answer": (
        {ApiKey.METADATA: lambda r: r.framed(b"")},
        read,
        BrokerUnreachable,
        "frame ends inside its header",
    ),
    "a frame of -1 bytes": (
        {ApiKey.METADATA: lambda r: struct.pack(">i", -1)},
        read,
        BrokerUnreachable,
        "frame of -1 bytes",
    ),
    "a frame of 2 GiB": (
        {ApiKey.METADATA: lambda r: struct.pack(">ii", (1 << 31) - 1, r.correlation_id)},
        read,
        BrokerUnreachable,
        "frame of 2147483647 bytes",
    ),
    "half a frame": ({ApiKey.METADATA: half}, read, BrokerUnreachable, "did not reply in time"),
    "another request's answer": (
        {ApiKey.METADATA: lambda r: struct.pack(">ii", 40, 99_999) + bytes(36)},
        read,
        BrokerUnreachable,
        "a reply to request 99999, expected",
    ),
    "four thousand million brokers": (
        {ApiKey.METADATA: lambda r: r.framed(bytes(5) + b"\xff\xff\xff\xff\x0f")},
        read,
        BrokerUnreachable,
        "4294967294 items",
    ),
    # The cluster.
    "a broker at port 0": ({ApiKey.METADATA: described(port=0)}, read, BrokenError, ":0: "),
    "a broker at port -5": ({ApiKey.METADATA: described(port=-5)}, read, TimedOut, "127.0.0.1"),
    "a broker at no name": ({ApiKey.METADATA: described(host="a\0b")}, read, TimedOut, "last: "),
    "a broker -1": (
        {ApiKey.METADATA: described(node_id=-1)},
        read,
        BrokerUnreachable,
        "names a broker -1",
    ),
    "a leader that is no broker": (
        {ApiKey.METADATA: described(leader_id=77)},
        send,
        TimedOut,
        "not acknowledged",
    ),
    "no word of the topic": (
        {ApiKey.METADATA: without_topic},
        read,
        PeerError,
        "no broker says which partitions topic 'clicks' has",
    ),
    "a topic without partitions": (
        {ApiKey.METADATA: described(partitions=())},
        read,
        PeerError,
        "no broker says which partitions topic 'clicks' has",
    ),
    "a topic that never becomes available": (
        {ApiKey.METADATA: unavailable},
        read,
        LeaderNotAvailable,
        "topic 'clicks'",
    ),
    "partition -3": (
        {ApiKey.METADATA: described(partitions=(-3,))},
        read,
        BrokerUnreachable,
        "names partition -3",
    ),
    "partition 1,000,000": (
        {ApiKey.METADATA: described(partitions=(1_000_000,))},
        read,
        BrokerUnreachable,
        "names partition 1000000",
    ),
    # Offsets.
    "an end below 0": (
        {ApiKey.LIST_OFFSETS: always(offsets(-9))},
        lambda *of: read(*of, start="end"),
        PeerError,
        "clicks-0 is at offset -9",
    ),
    "a bounded reading's end below 0": (
        {ApiKey.LIST_OFFSETS: always(offsets(-9))},
        lambda *of: read(*of, stop_at_end=True),
        PeerError,
        "clicks-0 is at offset -9",
    ),
    "another partition's offset": (
        {ApiKey.LIST_OFFSETS: always(offsets(3, partition=5))},
        read,
        TimedOut,
        "says nothing of clicks-0",
    ),
    "another partition's offset, to an admin": (
        {ApiKey.LIST_OFFSETS: always(offsets(3, partition=5))},
        asking(lambda admin: admin.offsets(TOPIC)),
        TimedOut,
        "says nothing of clicks-0",
    ),
    # Fetches.
    "a fetch of nothing that was asked for": (
        {ApiKey.FETCH: always(FetchResponse(responses=[]))},
        read_for_longer,
        PeerError,
        "leaves it out",
    ),
    "records that are none": (
        {ApiKey.FETCH: always(fetched(b"\xff" * 300, high_watermark=9))},
        read,
        CorruptBatch,
        "clicks-0 at 0",
    ),
    "a batch below 0": (
        {ApiKey.FETCH: always(fetched(at(-9), high_watermark=9))},
        read,
        CorruptBatch,
        "clicks-0 at 0",
    ),
    "an offset that is out of its own range": (
        {ApiKey.FETCH: always(fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))},
        read,
        PeerError,
        r"has nothing at offset 0, and says its log is \[0, 0\]",
    ),
    "a leader that never is one": (
        {ApiKey.FETCH: always(fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))},
        read_for_longer,
        NotLeaderOrFollower,
        "fetch of clicks-0",
    ),
    # Producers.
    "another partition's acknowledgement": (
        {ApiKey.PRODUCE: always(produced(partition=3))},
        send,
        SegbrokerError,
        "no answer for topic 'clicks', partition 0",
    ),
    "a sequence that is always wrong": (
        {ApiKey.PRODUCE: always(produced(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))},
        send,
        TimedOut,
        "sequence number is not the next",
    ),
    "a producer id that is none": (
        {ApiKey.INIT_PRODUCER_ID: NO_ID},
        send,
        PeerError,
        "gives the producer id -1",
    ),
    "a transaction's id that is none": (
        {ApiKey.INIT_PRODUCER_ID: NO_ID},
        send_in_transaction,
        PeerError,
        "gives the producer id -1",
    ),
    # Groups.
    "a coordinator that is no broker": (
        {ApiKey.FIND_COORDINATOR: lambda r: r.answer(coordinator(r, node_id=77))},
        read_as_member,
        TimedOut,
        "not done within ",
    ),
    "a coordinator that never is there": (
        {
            ApiKey.FIND_COORDINATOR: lambda r: r.answer(
                coordinator(r, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
        },
        read_as_member,
        TimedOut,
        "coordinator of 'g'",
    ),
    "a strategy that nobody offered": (
        {ApiKey.JOIN_GROUP: joined(protocol_name="nonsense")},
        read_as_member,
        PeerError,
        "the strategy 'nonsense', which this member did not offer",
    ),
    "a group that always rebalances": (
        {ApiKey.JOIN_GROUP: joined(ErrorCode.REBALANCE_IN_PROGRESS)},
        read_as_member,
        RebalanceInProgress,
        "group 'g'",
    ),
    "a group that forgets its members": (
        {ApiKey.JOIN_GROUP: joined(ErrorCode.UNKNOWN_MEMBER_ID)},
        read_as_member,
        UnknownMemberId,
        "group 'g'",
    ),
    "a group that always gives another name": (
        {ApiKey.JOIN_GROUP: joined(ErrorCode.MEMBER_ID_REQUIRED)},
        read_as_member,
        TimedOut,
        "not done within ",
    ),
    # Admins.
    "no word of the topic, to an admin": (
        {ApiKey.METADATA: without_topic},
        asking(lambda admin: admin.describe_topic(TOPIC)),
        PeerError,
        "MetadataResponse makes no sense",
    ),
    "other records deleted": (
        {ApiKey.DELETE_RECORDS: other_records_deleted},
        asking(lambda admin: admin.delete_records({(TOPIC, 0): 1})),
        PeerError,
        "DeleteRecordsResponse makes no sense",
    ),
    "no group deleted": (
        {ApiKey.DELETE_GROUPS: always(DeleteGroupsResponse(results=[]))},
        asking(lambda admin: admin.delete_group("g")),
        PeerError,
        "DeleteGroupsResponse makes no sense",
    ),
    "no rule made": (
        {ApiKey.CREATE_ACLS: always(CreateAclsResponse(results=[]))},
        asking(lambda admin: admin.create_acls([Acl("User:a", "read", "topic", "t")])),
        PeerError,
        "CreateAclsResponse makes no sense",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_answer_that_makes_no_sense_is_an_error_with_a_sentence(case: str) -> None:
    answers, use, error, sentence = CASES[case]

    def is_one(within_ms: int) -> None:
        with Replaying(answers) as server:
            with pytest.raises(error, match=sentence) as caught:
                use(server.address, within_ms)
            assert "bug in the client" not in str(caught.value)
            # What is asked again is asked with a back-off.
            assert server.requests_count < 100

    within_one_of((SOON_MS, LATE_MS), is_one)


def test_a_broker_that_goes_silent_before_the_partitions_are_known_is_an_error() -> None:
    def is_one(within_ms: int) -> None:
        answers = count()

        def only_once(request: Request) -> bytes | None:
            return without_topic(request) if next(answers) == 0 else None

        with (
            Replaying({ApiKey.METADATA: only_once}) as server,
            pytest.raises(BrokerUnreachable, match="did not reply in time"),
        ):
            read(server.address, within_ms)

    within_one_of((SOON_MS, LATE_MS), is_one)


@pytest.mark.parametrize("times", [0, 3, (1 << 31) - 1])
def test_a_throttle_time_holds_nobody_up(times: int) -> None:
    rows = fetched(at(0), high_watermark=3).responses
    answers = iter([FetchResponse(throttle_time_ms=times, responses=rows)])

    def once(request: Request) -> bytes:
        # What comes behind it must not be it again: that is a log that steps back.
        return request.answer(next(answers, fetched(high_watermark=3)))

    with Replaying({ApiKey.FETCH: once}) as server:
        assert read(server.address, LATE_MS)


def test_a_topic_whose_leaders_are_not_known_for_now_is_listed() -> None:
    with Replaying({ApiKey.METADATA: unavailable}) as server:
        assert asking(Admin.list_topics)(server.address, LATE_MS) == [TOPIC]


def test_an_answer_that_comes_twice_costs_its_connection_and_nothing_else() -> None:
    def twice(request: Request) -> bytes:
        return request.answer(produced()) * 2

    with Replaying({ApiKey.PRODUCE: twice}) as server:
        assert send(server.address, LATE_MS)


def test_a_fetch_that_steps_back_hands_out_each_record_once() -> None:
    answers = iter([fetched(at(100) + at(0) + at(103), high_watermark=106)])

    def answer(request: Request) -> bytes:
        return request.answer(next(answers, fetched()))

    with (
        Replaying({ApiKey.FETCH: answer}) as server,
        Consumer(server.address, TOPIC) as consumer,  # an answer that is late would be lost
    ):
        records = consumer.poll(6, timeout_ms=60_000)
        assert [record.offset for record in records] == [100, 101, 102, 103, 104, 105]


def test_who_comes_back_to_an_id_that_was_forgotten_hears_that_it_was() -> None:
    """Not that the transaction was open for too long."""
    forgotten = EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    with (
        Replaying({ApiKey.END_TXN: always(forgotten)}) as server,
        Producer(server.address, transactional_id="x") as producer,
    ):
        with pytest.raises(TransactionAborted, match="knew 'x' no more"), producer.transaction():
            producer.send(TOPIC, b"")
        with producer.transaction():
            pass  # it has the id of now


def test_a_cluster_whose_brokers_change_leaves_no_connection_behind() -> None:
    ids = count(1)

    def another(request: Request) -> bytes:
        return request.answer(metadata(request, node_id=next(ids)))

    moved = fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with (
        Replaying({ApiKey.METADATA: another, ApiKey.FETCH: always(moved)}) as server,
        Consumer(server.address, TOPIC, api_timeout_ms=60_000, **limits(SOON_MS)) as consumer,
    ):
        ends = time.monotonic() + 60
        while server.connections_count < 20 and time.monotonic() < ends:
            consumer.poll(timeout_ms=100)
        assert server.connections_count >= 20
        # What the client has closed, a thread of the server's notices when it has its turn.
        until(lambda: server.open_count <= 6)
