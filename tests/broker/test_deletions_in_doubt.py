"""A deletion that failed, and may come true at a kill: its event may be on the disk."""

import errno

import pytest
from trio.testing import MockClock

from segbroker.broker.server import Broker
from segbroker.protocol import messages_security as security
from segbroker.protocol import messages_share_groups as shares
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_groups import DeleteGroupsRequest, DeleteGroupsResponse
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect, values
from ..support.wire_shares import ACCEPT, Sharing, set_on_group, topic_id
from ..support.wire_transactions import until
from .conftest import serving
from .guarded import guarded


async def delete(client: WireClient) -> ErrorCode:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    answer = await client.ask(request, DeleteTopicsResponse, 4)
    return ErrorCode(answer.responses[0].error_code)


async def check_behind(image: MemoryStorage, records: list[bytes]) -> None:
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert "t" in broker.core.topics.all, "deleted, with what was acknowledged"
        assert values(await client.fetch("t", 0)) == records


def is_settled(broker: Broker) -> bool:
    return broker.core.topics.manager.is_settled


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_is_acknowledged_behind_a_deletion_that_failed_outlives_a_kill(
    durability: str,
) -> None:
    """Neither it nor a snapshot without it could be written; what these classes acknowledge needs
    no disk."""
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        assert (await client.produce("t", b"before")).error_code == ErrorCode.NONE
        disk.sync_error = OSError(errno.EIO, "planted")
        assert await delete(client) == ErrorCode.KAFKA_STORAGE_ERROR
        assert not is_settled(broker)
        answer = await client.produce("t", b"acknowledged")
        if answer.error_code == ErrorCode.NONE:
            await check_behind(disk.after_kill(), [b"before", b"acknowledged"])
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None

        async def is_written() -> bool:
            return (await client.produce("t", b"later")).error_code == ErrorCode.NONE

        await until(is_written)
        assert is_settled(broker)
        await check_behind(disk.after_kill(), [b"before", b"later"])
        assert await delete(client) == ErrorCode.NONE


async def test_a_topic_that_could_not_be_made_is_gone_for_good_once_told_to_be_unknown() -> None:
    """Its event may be on the disk: who takes it away to be sure finds it behind a kill."""
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        disk.sync_error = OSError(errno.EIO, "planted")
        code, _ = await client.try_create("t")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await delete(client) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None
        assert await delete(client) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        image = disk.after_kill()
    async with serving(storage=image) as broker:
        assert "t" not in broker.core.topics.all


async def test_where_a_share_group_was_refused_to_stand_is_gone_for_good_once_told_to_be() -> None:
    disk = GatedStorage()

    async def stand(client: WireClient, topic: str) -> int:
        row = shares.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        wanted = shares.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[row])
        request = shares.AlterShareGroupOffsetsRequest(group_id="s", topics=[wanted])
        reply = await client.ask(request, shares.AlterShareGroupOffsetsResponse, 0)
        return reply.responses[0].partitions[0].error_code

    async def forgotten(client: WireClient, group: str) -> int:
        topics = [shares.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        request = shares.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)
        reply = await client.ask(request, shares.DeleteShareGroupOffsetsResponse, 0)
        return reply.error_code or reply.responses[0].error_code

    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.create("u")
        assert await stand(client, "u") == ErrorCode.NONE
        disk.sync_error = OSError(errno.EIO, "planted")
        assert await stand(client, "t") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await forgotten(client, "s") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await forgotten(client, "another") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None
        assert await forgotten(client, "s") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await forgotten(client, "another") == ErrorCode.GROUP_ID_NOT_FOUND
        image = disk.after_kill()
    async with serving(storage=image) as broker:
        assert [topic for topic, _, _ in broker.core.shares.places("s")] == ["u"]


async def test_a_disk_that_fails_is_asked_once_for_all_that_is_not_there(
    mock_clock: MockClock,
) -> None:
    """It may take half a minute to fail, and whoever waits for a thread, or changes something,
    would wait for so many of them.  The clock stands: nobody else asks it."""

    class Counting(GatedStorage):
        asked = 0

        def wait(self, path: str) -> None:
            self.asked += "/snapshot-" in path
            super().wait(path)

    disk, names = Counting(), [f"none-{n}" for n in range(20)]
    topics = DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
    filters = [
        security.DeleteAclsRequestFilter(
            resource_type_filter=2,
            resource_name_filter=name,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for name in names
    ]
    deletions = [
        security.AlterUserScramCredentialsRequestDeletion(name=name, mechanism=1) for name in names
    ]
    users = security.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])
    async with (
        guarded(storage=disk, super_users="User:ANONYMOUS") as broker,
        connect(broker.address) as client,
    ):
        disk.sync_error = OSError(errno.EIO, "planted")
        code, _ = await client.try_create("t")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        before = disk.asked
        of_topics = await client.ask(topics, DeleteTopicsResponse, 4)
        of_groups = await client.ask(
            DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse, 2
        )
        of_rules = await client.ask(
            security.DeleteAclsRequest(filters=filters), security.DeleteAclsResponse, 3
        )
        of_users = await client.ask(users, security.AlterUserScramCredentialsResponse, 0)
        assert disk.asked == before + 4
        storage, coordinator = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [row.error_code for row in of_topics.responses] == [storage] * 20
        assert [row.error_code for row in of_groups.results] == [coordinator] * 20
        assert [row.error_code for row in of_rules.filter_results] == [storage] * 20
        assert [row.error_code for row in of_users.results] == [storage] * 20
        disk.sync_error = None


async def test_a_share_group_goes_on_in_a_topic_whose_deletion_failed() -> None:
    """The partition is served anew: the group hears of the records of that one."""
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await client.produce("t", b"before")
        await set_on_group(client, "g", share_auto_offset_reset="earliest")
        member = Sharing(client, "g", await topic_id(client, "t"))
        assert [given.value for given in await member.fetch(0, wait_ms=30_000)] == [b"before"]
        disk.sync_error = OSError(errno.EIO, "planted")
        assert await delete(other) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None

        async def is_written() -> bool:
            return (await other.produce("t", b"again")).error_code == ErrorCode.NONE

        await until(is_written)
        said = await member.say({0: [(0, 0, [ACCEPT])]})
        assert said == (ErrorCode.NONE, {0: ErrorCode.NONE}), "it has not lost what it had"
        assert {given.value for given in await member.fetch(wait_ms=30_000)} == {b"again"}
        await member.begin(wait_ms=30_000)
        await becomes(lambda: broker.core.topics.served["t", 0].fetches_waiting == 1)
        await other.produce("t", b"behind")
        assert [given.value for given in await member.end()] == [b"behind"]
