"""Requests about groups and transactions that name a great many: others are served, and an answer
is no larger than what there is."""

import pytest
import trio

from segbroker.broker.apis.group_apis import PROTOCOLS_MAX
from segbroker.broker.apis.offset_store import ROWS_AT_ONCE
from segbroker.broker.groups.classic_members import METADATA_MAX
from segbroker.broker.loop import pace
from segbroker.broker.transactions import transactions
from segbroker.protocol import limits
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_placement import (
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
    ElectLeadersResponse,
)
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from segbroker.protocol.schema import Message

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.steps import calls_of_a_step
from ..support.waiting import becomes
from ..support.wire_client import Closed, WireClient, connect
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import described as described_consumers
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_groups import GROUP, WireMember, commit_of, described
from ..support.wire_shares import beat as share_beat
from ..support.wire_shares import sharing
from ..support.wire_transactions import V2, Tx, until
from .conftest import serving
from .test_hostile import ITEMS, turns_of_others

NAMES = [f"group-{n}" for n in range(ITEMS)]
TIMES = 2_000
"""How often a thing is asked for."""


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler has had its time after every item, however fast the machine."""
    monkeypatch.setattr(pace, "STEP_S", -1.0)


LARGE_REQUESTS: list[tuple[Message, int]] = [
    (DescribeGroupsRequest(groups=NAMES), 5),
    (
        ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
        0,
    ),
    (DeleteGroupsRequest(groups_names=NAMES), 2),
    (
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in NAMES]
        ),
        8,
    ),
    (
        OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(2 * ITEMS)))],
        ),
        7,
    ),
    (commit_of(*range(ITEMS)), 8),
    (
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name="t",
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=n) for n in range(2 * ITEMS)
                    ],
                )
            ],
        ),
        0,
    ),
    (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP,
            producer_id=1,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=n, committed_offset=1, committed_metadata=""
                        )
                        for n in range(ITEMS)
                    ],
                )
            ],
        ),
        3,
    ),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestTopic(name="t", partitions=list(range(2 * ITEMS)))
            ],
        ),
        3,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    LARGE_REQUESTS,
    ids=[f"{type(message).__name__}-{version}" for message, version in LARGE_REQUESTS],
)
@pytest.mark.usefixtures("no_patience")
async def test_a_request_that_names_thousands_gives_way_after_each(
    request_: Message, version: int
) -> None:
    assert await turns_of_others(request_, version, topic="t") >= ITEMS


@pytest.mark.usefixtures("no_patience")
async def test_more_offsets_than_a_transaction_may_have_are_refused_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=ITEMS)
        tx = Tx(client, "x", V2)
        assert await tx.init() == 0
        monkeypatch.setattr(transactions, "PARTITIONS_MAX", ITEMS - 1)
        rows = [
            TxnOffsetCommitRequestPartition(
                partition_index=n, committed_offset=1, committed_metadata=""
            )
            for n in range(ITEMS)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP,
            producer_id=tx.producer_id,
            producer_epoch=tx.epoch,
            generation_id=-1,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
        )
        replies: list[TxnOffsetCommitResponse] = []

        async def ask() -> None:
            replies.append(await client.ask(request, TxnOffsetCommitResponse, 5))

        calls = await calls_of_a_step(ask)
        (topic,) = replies[0].topics
        assert [row.error_code for row in topic.partitions] == [ErrorCode.INVALID_REQUEST] * ITEMS
        assert calls < ITEMS / 2


async def test_members_that_leave_by_the_thousand_leave_some_at_a_time() -> None:
    rows = [LeaveGroupRequestMember(member_id=name) for name in NAMES]
    async with serving() as broker, connect(broker.address) as client:
        one = WireMember(client)
        await one.join()
        await one.deal()
        last = LeaveGroupRequestMember(member_id=one.member_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[*rows, last])
        reply = await client.ask(request, LeaveGroupResponse, 4)
        codes = [row.error_code for row in reply.members]
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * len(rows) + [ErrorCode.NONE]
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_commit_of_thousands_of_partitions_is_taken_of_who_may_commit() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=ITEMS)
        reply = await client.ask(commit_of(*range(ITEMS)), OffsetCommitResponse, 8)
        assert {row.error_code for row in reply.topics[0].partitions} == {0}
        assert len(await where_it_stands(client, list(range(ITEMS)))) == ITEMS
        one = WireMember(client)
        await one.join()
        refused = await client.ask(commit_of(*range(ITEMS)), OffsetCommitResponse, 8)
        codes = {row.error_code for row in refused.topics[0].partitions}
        assert codes == {ErrorCode.UNKNOWN_MEMBER_ID}


async def test_who_commits_thousands_of_partitions_is_looked_at_again_for_each_thousand() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        count = 2 * ROWS_AT_ONCE + 1
        await client.create("t", partitions=count)
        one = WireMember(client)
        await one.join()
        await one.deal()
        request = commit_of(*range(count))
        request.member_id, request.generation_id_or_member_epoch = one.member_id, one.generation
        disk.syncs.clear()
        await client.send(request, 8)
        with trio.fail_after(60):
            while not broker.core.groups.committing(GROUP):
                await trio.lowlevel.checkpoint()
        # The loop is not held until all of them are stored, so the member may go meanwhile.
        assert await WireMember(other, member_id=one.member_id).leave() == 0
        disk.syncs.set()
        _, reply = await client.receive(OffsetCommitResponse, 8)
        codes = [row.error_code for row in reply.topics[0].partitions]
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert codes == [0] * ROWS_AT_ONCE + [unknown] * (count - ROWS_AT_ONCE)
        stood = await where_it_stands(other, list(range(count)))
        assert sum(offset == 1 for _, offset in stood) == ROWS_AT_ONCE


async def where_it_stands(client: WireClient, partitions: list[int]) -> list[tuple[int, int]]:
    """Partition and offset of each row of the answer."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=partitions)]
    request = OffsetFetchRequest(group_id=GROUP, topics=topics)
    reply = await client.ask(request, OffsetFetchResponse, 7)
    return [
        (row.partition_index, row.committed_offset)
        for topic in reply.topics
        for row in topic.partitions
    ]


async def test_offsets_that_are_asked_for_again_and_again_are_answered_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.ask(commit_of(0, 1, metadata="m" * 4096), OffsetCommitResponse, 8)
        assert await where_it_stands(client, [0, 1] * TIMES) == [(0, 1), (1, 1)]
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])] * TIMES
        single = OffsetFetchRequest(group_id=GROUP, topics=topics)
        reply = await client.ask(single, OffsetFetchResponse, 7)
        assert [(topic.name, len(topic.partitions)) for topic in reply.topics] == [("t", 1)]


async def test_a_group_is_asked_about_once_in_a_request() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.ask(commit_of(0, metadata="m" * 4096), OffsetCommitResponse, 8)
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)] * TIMES
        reply = await client.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 8)
        first, *others = reply.groups
        assert (first.error_code, len(first.topics)) == (ErrorCode.NONE, 1)
        assert {(one.error_code, len(one.topics)) for one in others} == {
            (ErrorCode.INVALID_REQUEST, 0)
        }


async def test_what_is_described_again_and_again_is_described_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=20)
        one = WireMember(client)
        await one.join()
        groups = await client.ask(
            DescribeGroupsRequest(groups=[GROUP] * TIMES), DescribeGroupsResponse, 5
        )
        assert [row.group_id for row in groups.groups] == [GROUP]
        consumers = await client.ask(
            ConsumerGroupDescribeRequest(
                group_ids=[GROUP] * TIMES, include_authorized_operations=False
            ),
            ConsumerGroupDescribeResponse,
            0,
        )
        assert [row.group_id for row in consumers.groups] == [GROUP]
        ids = DescribeTransactionsRequest(transactional_ids=["x"] * TIMES)
        transactions = await client.ask(ids, DescribeTransactionsResponse, 0)
        assert len(transactions.transaction_states) == 1
        topics = [DescribeProducersRequestTopic(name="t", partition_indexes=[0, 0])] * TIMES
        producers = await client.ask(
            DescribeProducersRequest(topics=topics), DescribeProducersResponse, 0
        )
        assert sum(len(topic.partitions) for topic in producers.topics) == 1


async def test_partitions_that_are_named_again_and_again_are_answered_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        numbers = [0, 1] * TIMES
        sizes = await client.ask(
            DescribeLogDirsRequest(
                topics=[DescribeLogDirsRequestTopic(topic="t", partitions=numbers)] * 2
            ),
            DescribeLogDirsResponse,
            4,
        )
        elections = await client.ask(
            ElectLeadersRequest(
                topic_partitions=[ElectLeadersRequestTopic(topic="t", partitions=numbers)] * 2,
                timeout_ms=60_000,
            ),
            ElectLeadersResponse,
            2,
        )
        added = await client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=7,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name="t", partitions=numbers)]
                * 2,
            ),
            AddPartitionsToTxnResponse,
            3,
        )
        assert [
            (topic.name, [row.partition_index for row in topic.partitions])
            for directory in sizes.results
            for topic in directory.topics
        ] == [("t", [0, 1])]
        assert [
            (topic.topic, [row.partition_id for row in topic.partition_result])
            for topic in elections.replica_election_results
        ] == [("t", [0, 1])]
        assert [
            (topic.name, [row.partition_index for row in topic.results_by_partition])
            for topic in added.results_by_topic_v3_and_below
        ] == [("t", [0, 1])]


async def test_a_topic_that_is_asked_for_by_one_id_and_many_names_is_described_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=20)
        meta = broker.core.topics.get("t")
        assert meta is not None
        asked = [MetadataRequestTopic(topic_id=meta.topic_id, name=name) for name in NAMES]
        reply = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 12)
        assert [topic.name for topic in reply.topics] == ["t"]


async def test_what_a_member_says_of_itself_is_limited() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for count, metadata, code in (
            (PROTOCOLS_MAX, b"", ErrorCode.NONE),
            (PROTOCOLS_MAX + 1, b"", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (1, bytes(METADATA_MAX), ErrorCode.NONE),
            (2, bytes(METADATA_MAX // 2 + 1), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ):
            request = JoinGroupRequest(
                group_id=f"of-{count}",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=f"p{n}", metadata=metadata) for n in range(count)
                ],
            )
            reply = await client.ask(request, JoinGroupResponse, 3)
            assert reply.error_code == code


async def test_the_names_that_a_heartbeat_subscribes_to_are_limited() -> None:
    most = METADATA_MAX // 1_024
    async with serving() as broker, connect(broker.address) as client:
        for count, code in ((most - 1, ErrorCode.NONE), (most + 1, ErrorCode.INVALID_REQUEST)):
            names = [f"{n:01024}" for n in range(count)]
            consumer = consumer_joining(f"m{count}", subscribed_topic_names=names)
            assert (await consumer_beat(client, consumer)).error_code == code
            share = sharing(f"m{count}", group_id="s", subscribed_topic_names=names)
            assert (await share_beat(client, share)).error_code == code
        assert len((await described_consumers(client)).members) == 1


async def test_a_leader_who_would_be_told_more_than_a_frame_holds_does_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FRAME_SIZE_MAX", 3_000)
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
    ):
        leader, other = (WireMember(client, metadata=bytes(2_000)) for client in (first, second))
        await leader.join()

        async def has_begun_anew() -> bool:
            return (await described(first)).group_state == "PreparingRebalance"

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.join)
                await until(has_begun_anew)
                with pytest.raises(Closed):
                    await leader.join()
        assert other.generation > leader.generation > 0


@pytest.mark.parametrize("instance", [None, "i" * 32_767])
async def test_a_member_of_a_long_name_does_not_keep_the_others_from_joining(
    instance: str | None,
) -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=10_000) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
    ):
        second.client_id = "ä" * 16_383
        members = WireMember(first), WireMember(second, instance)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for member in members:
                    nursery.start_soon(member.join)
                await becomes(lambda: broker.core.groups.members_count(GROUP) == len(members))
                await passes(20)
        assert [one.generation for one in members] == [1, 1]
        group = await described(first)
        assert {one.member_id for one in group.members} == {one.member_id for one in members}


async def test_who_joins_while_thousands_of_offsets_are_forgotten_keeps_the_rest() -> None:
    disk = GatedStorage()
    count = 2 * ROWS_AT_ONCE + 1
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t", partitions=count)
        await client.ask(commit_of(*range(count)), OffsetCommitResponse, 8)
        rows = [OffsetDeleteRequestPartition(partition_index=n) for n in range(count + 1)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)]
        disk.held = b"offsets_forgotten"
        await client.send(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
        with trio.fail_after(60):
            while disk.syncs.is_set():
                await trio.lowlevel.checkpoint()
        await WireMember(other).join()
        disk.held = None
        disk.syncs.set()
        _, reply = await client.receive(OffsetDeleteResponse, 0)
        codes = [row.error_code for row in reply.topics[0].partitions]
        kept = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * (count - ROWS_AT_ONCE)
        assert codes == [0] * ROWS_AT_ONCE + kept + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        stood = await where_it_stands(other, list(range(count)))
        assert [offset for _, offset in stood] == [-1] * ROWS_AT_ONCE + [1] * len(kept)
