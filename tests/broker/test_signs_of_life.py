"""What a member said before the broker stood still, on a connection that it has given up since."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import CreateTopicsRequest, CreateTopicsRequestTopic
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from segbroker.protocol.messages_transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from segbroker.protocol.schema import Message

from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import beat, joining
from ..support.wire_groups import WireMember
from ..support.wire_shares import beat as share_beat
from ..support.wire_shares import sharing
from ..support.wire_streams import StreamsMember, beating, rows_of
from ..support.wire_streams import beat as streams_beat
from ..support.wire_streams import settled as settled_streams
from ..support.wire_transactions import Tx
from .conftest import serving
from .obedient_members import Member, joined, settled
from .restarts import broker_on

Sign = Callable[[WireMember, Tx], tuple[Message, int]]
SESSION_MS = 10_000
# What is sent behind it is read when the client has ended the connection.
SLOW = CreateTopicsRequest(
    topics=[
        CreateTopicsRequestTopic(
            name="u", num_partitions=50, replication_factor=1, assignments=[], configs=[]
        )
    ],
    timeout_ms=10_000,
    validate_only=False,
)


def heartbeat(one: WireMember, _: Tx) -> tuple[Message, int]:
    request = HeartbeatRequest(
        group_id=one.group, generation_id=one.generation, member_id=one.member_id
    )
    return request, 3


def commit(one: WireMember, _: Tx) -> tuple[Message, int]:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=one.group,
        generation_id_or_member_epoch=one.generation,
        member_id=one.member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    return request, 7


def commit_in_a_transaction(one: WireMember, tx: Tx) -> tuple[Message, int]:
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=tx.name,
        group_id=one.group,
        producer_id=tx.producer_id,
        producer_epoch=tx.epoch,
        generation_id=one.generation,
        member_id=one.member_id,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    return request, 5


@pytest.mark.parametrize("sign", [heartbeat, commit, commit_in_a_transaction])
async def test_it_counts_as_said_when_the_broker_began_to_stand_still(
    sign: Sign, mock_clock: MockClock
) -> None:
    async with serving(group_initial_rebalance_delay_ms=0) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            one = WireMember(client, session_timeout_ms=SESSION_MS)
            assert (await one.join()).error_code == 0
            assert (await one.deal()).error_code == 0
            tx = Tx(client, "x")
            assert await tx.init() == 0
            mock_clock.jump(SESSION_MS / 2000)
            await client.send(SLOW, 5)
            await client.send(*sign(one, tx))
        while broker.connections:
            await trio.lowlevel.checkpoint()
        group = broker.core.groups.get(one.group)
        assert group is not None
        ends = group.members[one.member_id].session_ends_ms
        assert ends == int(broker.core.deadlines.stood_still_since * 1000) + SESSION_MS


async def hung_up(broker: Broker, client: WireClient) -> None:
    left = broker.connections - 1
    await client.stream.aclose()
    with trio.fail_after(10):
        while broker.connections > left:  # noqa: ASYNC110 - the broker's own doing
            await trio.sleep(0.01)


async def test_who_has_hung_up_since_has_let_go_of_nothing() -> None:
    """What it said before it read what it reads now came late."""
    async with broker_on(None, 3) as (broker, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        await one.beat()
        assert list(one.reads.values()) == [[0, 1, 2, 3]]
        await two.join()
        late = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=one.epoch, topic_partitions=[]
        )
        await clients[2].send(SLOW, 5)
        await clients[2].send(late, 1)
        await hung_up(broker, clients[2])
        await two.beat()
        assert two.reads == {}, "the other one reads all of it"
        for _ in range(3):
            await one.beat()
            await two.beat()
        assert sorted(map(len, (*one.reads.values(), *two.reads.values()))) == [2, 2]


async def test_who_has_hung_up_since_does_its_tasks() -> None:
    async with broker_on(None, 3, group_streams_initial_rebalance_delay_ms=0) as (broker, clients):
        await clients[0].create("t", partitions=4)
        one, two = StreamsMember(clients[0], "one"), StreamsMember(clients[1], "two")
        await one.join()
        await one.beat()
        assert one.active == {"0": [0, 1, 2, 3]}
        await two.join()
        late = beating("one", one.epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        await clients[2].send(SLOW, 5)
        await clients[2].send(late, 0)
        await hung_up(broker, clients[2])
        await two.beat()
        assert two.active == {}, "the other one does all of them"
        await settled_streams(one, two)
        assert sorted([*one.active["0"], *two.active["0"]]) == [0, 1, 2, 3]


async def test_who_has_said_a_later_epoch_is_at_no_earlier_one() -> None:
    """What it said before came late, by a connection of which nobody knows yet that it was ended:
    it has heard of what it was given since."""
    async with broker_on(None, 3) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await joined(one, two)
        before = one.epoch
        assert await two.leave() == 0
        await settled(one)
        assert list(one.reads.values()) == [[0, 1, 2, 3]]
        assert one.epoch > before
        await two.join()
        late = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=before, topic_partitions=None
        )
        assert (await beat(clients[2], late)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        await two.beat()
        assert two.reads == {}, "the other one reads all of it"
        await settled(one, two)
        assert sorted(map(len, (*one.reads.values(), *two.reads.values()))) == [2, 2]


async def test_who_has_said_a_later_epoch_has_no_fewer_tasks() -> None:
    async with broker_on(None, 3, group_streams_initial_rebalance_delay_ms=0) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = StreamsMember(clients[0], "one"), StreamsMember(clients[1], "two")
        await one.join()
        await two.join()
        await settled_streams(one, two)
        late = beating(
            "one", one.epoch, active_tasks=rows_of(one.active), standby_tasks=[], warmup_tasks=[]
        )
        await two.leave()
        await settled_streams(one)
        await one.beat()
        assert one.active == {"0": [0, 1, 2, 3]}
        await two.join()
        refused = await streams_beat(clients[2], late)
        assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        await two.beat()
        assert two.active == {}, "the other one does all of them"
        await settled_streams(one, two)
        assert sorted([*one.active["0"], *two.active["0"]]) == [0, 1, 2, 3]


ASK_AGAIN = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_what_an_older_connection_says_late_lets_go_of_nothing() -> None:
    """At the epoch that the member is at: nothing else tells it from what it says now."""
    async with broker_on(None, 3) as (_, clients):
        old, *clients = clients
        await clients[0].create("t", partitions=4)
        one, two = Member(old, "one"), Member(clients[1], "two")
        await one.join()
        late = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=one.epoch, topic_partitions=[]
        )
        one.client = clients[0]
        await one.beat()
        assert list(one.reads.values()) == [[0, 1, 2, 3]]
        await two.join()
        assert (await beat(old, late)).error_code == ASK_AGAIN
        await two.beat()
        assert two.reads == {}, "the other one reads all of it"
        await settled(one, two)
        assert sorted(map(len, (*one.reads.values(), *two.reads.values()))) == [2, 2]


@pytest.mark.parametrize("joins", [False, True])
async def test_what_an_older_connection_says_late_subscribes_to_nothing(joins: bool) -> None:
    async with broker_on(None, 2) as (broker, clients):
        old, new = clients
        for name in "tu":
            await new.create(name)
        await (first := Member(old, "one")).join()
        late = joining("one", subscribed_topic_names=["t"])
        one = Member(new, "one", subscribed_topic_names=["t", "u"])
        one.epoch, one.reads = first.epoch, first.reads
        await one.beat(full=True)
        assert len(one.reads) == 2
        late.member_epoch = 0 if joins else first.epoch
        assert (await beat(old, late)).error_code == ASK_AGAIN
        await one.beat()
        assert len(one.reads) == 2
        group = broker.core.groups.get_consumer("g")
        assert group is not None
        assert group.members["one"].names == {"t", "u"}


async def test_what_an_older_connection_says_late_gives_up_no_task() -> None:
    async with broker_on(None, 3, group_streams_initial_rebalance_delay_ms=0) as (_, clients):
        old, *clients = clients
        await clients[0].create("t", partitions=4)
        one, two = StreamsMember(old, "one"), StreamsMember(clients[1], "two")
        await one.join()
        late = beating("one", one.epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        one.client = clients[0]
        await one.beat()
        assert one.active == {"0": [0, 1, 2, 3]}
        await two.join()
        assert (await streams_beat(old, late)).error_code == ASK_AGAIN
        await two.beat()
        assert two.active == {}, "the other one does all of them"
        await settled_streams(one, two)
        assert sorted([*one.active["0"], *two.active["0"]]) == [0, 1, 2, 3]


async def test_what_an_older_connection_says_late_shares_nothing() -> None:
    async with broker_on(None, 2) as (broker, clients):
        old, new = clients
        for name in "tu":
            await new.create(name)
        late = sharing("one", subscribed_topic_names=["t"])
        assert (await share_beat(old, late)).error_code == 0
        said = sharing("one", subscribed_topic_names=["t", "u"])
        assert (await share_beat(new, said)).error_code == 0
        assert (await share_beat(old, late)).error_code == ASK_AGAIN
        group = broker.core.groups.share_groups.get(late.group_id)
        assert group is not None
        assert group.members["one"].names == {"t", "u"}


async def test_who_uses_an_older_connection_again_is_asked_once() -> None:
    async with broker_on(None, 3) as (_, clients):
        await clients[0].create("t")
        one = Member(clients[0], "one")
        await one.join()
        for newest in (1, 2):
            codes = []
            there = clients[: newest + 1]
            for client in (clients[newest], *there, *there, *there):
                one.client = client
                codes.append((await one.beat()).error_code)
            assert codes == [0, ASK_AGAIN] + [0] * (len(codes) - 2)
