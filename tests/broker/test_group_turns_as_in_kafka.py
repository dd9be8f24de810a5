"""Answers to members of a group that turns, as Kafka's ConsumerProtocolMigrationTest wants them."""

import pytest

from segbroker.protocol.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from ..support.wire_client import connect
from ..support.wire_consumers import beat, joining
from .classic_member import ClassicMember
from .conftest import serving
from .test_group_migration import ALL


@pytest.mark.parametrize("instance", [None, "i"])
async def test_a_group_that_turns_is_one_epoch_on_from_its_generation(
    instance: str | None,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        one = ClassicMember(client, instance_id=instance)
        await one.join()
        assert await one.sync({one.member_id: ALL}) == 0
        # Nobody comes where the instance is the same: the target is made anew all the same.
        reply = await beat(client, joining(instance_id=instance))
        assert (reply.error_code, reply.member_epoch) == (0, one.generation + 1)


async def test_a_static_classic_member_may_join_again_without_its_instance() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client, instance_id="i")
        await one.join()
        assert await one.sync() == 0
        one.instance_id = None
        assert (await one.join(*one.has)).error_code == 0
        two = ClassicMember(client, instance_id="i")
        assert (await two.join()).error_code == 0, "the instance is known still: it is taken over"
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_classic_member_that_is_refused_is_not_named() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        one.protocol_type = "connect"
        refused = await one.join_once()
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert refused.member_id == ""


@pytest.mark.parametrize(("said", "told"), [(0, 0), (1, 1), (3, 3), (9, 3)])
async def test_partitions_are_told_in_the_version_in_which_a_member_subscribes(
    said: int, told: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        metadata = said.to_bytes(2, "big") + encode_subscription(Subscription(("t",)))[2:]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = await client.ask(request, JoinGroupResponse, 3)
        assert joined.error_code == 0
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[],
        )
        synced = await client.ask(sync, SyncGroupResponse, 3)
        assert (synced.error_code, synced.assignment) == (0, encode_assignment([], told))


async def test_a_group_whose_assignor_keeps_words_of_its_own_is_told_about_as_by_kafka() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        one = ClassicMember(client, protocol="own")
        await one.join()
        share = encode_assignment(ALL)[:-4] + b"\x00\x00\x00\x01w"
        assert await one.sync_with({one.member_id: share}) == 0
        reply = await beat(client, joining())
        assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert reply.error_message == (
            "Cannot upgrade classic group g to consumer group because an unsupported custom "
            "assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade."
        )
