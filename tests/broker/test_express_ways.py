"""Who goes the express way; what changes under those who do holds from their next request on.

A producer alone (lone.py) and two at once (produce_run.py) are told what the general way tells.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
import trio
import trio.testing

from segbroker.broker.producing import seat
from segbroker.broker.producing.express import Express
from segbroker.broker.server import Broker
from segbroker.client import Acl, AclFilter, AsyncAdmin
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    ProduceResponsePartition,
)

from ..support.certificates import Authority
from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, batch, connect, produce_request
from .conftest import serving
from .logins import guarded, log_in
from .test_express_bounds import parked, send_at_once
from .test_tls import connect_tls, protected, trusting

Row = ProduceResponsePartition

one_or_two = pytest.mark.parametrize("count", [1, 2], ids=["alone", "together"])


@asynccontextmanager
async def administering(broker: Broker) -> AsyncIterator[AsyncAdmin]:
    host, port = broker.address
    async with AsyncAdmin(f"{host}:{port}") as admin:
        yield admin


def taken(broker: Broker) -> int:
    """Requests that went the express way."""
    return 0 if broker.express is None else broker.express.requests


class Producers:
    """So many connections that send the same at once; what they are told, by offset."""

    def __init__(self, clients: list[WireClient]) -> None:
        self.clients = clients
        self.rows: list[tuple[int, Row]] = []

    async def say(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int = 0,
        version: int = 9,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        await trio.testing.wait_all_tasks_blocked()
        request = produce_request(topic, batch(value), partition=partition)
        request.topic_data[0].topic_id = topic_id
        for client in self.clients:  # without a turn of the loop in between
            send_at_once(client, client.encode(request, version)[1])
        rows = []
        with trio.fail_after(60):
            for client in self.clients:
                _, reply = await client.receive(ProduceResponse, version)
                rows.append((reply.throttle_time_ms, reply.responses[0].partition_responses[0]))
        self.rows += sorted(rows, key=lambda row: row[1].base_offset)


async def _told(count: int, *, is_express: bool) -> tuple[list[tuple[int, Row]], int]:
    async with (
        serving(express=is_express, clock=lambda: 0.0, now_ms=lambda: 1_700_000_000_000) as broker,
        administering(broker) as admin,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        await clients[0].create("t", partitions=2)
        await clients[0].create("u")
        producers = Producers(clients)
        say = producers.say
        for n in range(12):
            for version in (3, 5, 8, 9, 12, 13):
                name = "tu"[n % 3 == 0]
                topic_id = broker.core.topics.all[name].topic_id
                place = {"partition": n % 3 // 2, "version": version}
                await say(name, b"%d" % n, topic_id=topic_id, **place)
        await admin.delete_records({("t", 0): 7})
        await say("t", b"behind the new start")
        await say("u", b"another start")
        for changes in (
            {"max.message.bytes": 300},
            {"message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": None, "durability": "disk"},
            {"cleanup.policy": "compact"},
            {"cleanup.policy": None, "max.message.bytes": None, "durability": "fsync"},
        ):
            await admin.alter_topic_config("t", changes)
            await say("t", b"small")
            await say("t", bytes(400))
            await say("u", b"beside")
        old = broker.core.topics.all["t"].topic_id
        await admin.delete_topic("t")
        await say("t", b"to nobody")
        await say("t", b"to nobody", version=13, topic_id=old)
        await admin.create_topic("t", partitions=1)
        new = broker.core.topics.all["t"].topic_id
        for n in range(4):
            await say("t", b"%d" % n)
            await say("t", b"%d" % n, version=13, topic_id=new)
            await say("t", b"%d" % n, version=13, topic_id=old)
        for _, row in producers.rows:  # ids are drawn, also by threads that nobody waits for
            row.error_message = row.error_message and row.error_message.replace(str(old), "old")
        return producers.rows, taken(broker)


@one_or_two
async def test_what_becomes_of_a_topic_holds_from_the_next_request_on(count: int) -> None:
    rows, requests = await _told(count, is_express=True)
    expected, none = await _told(count, is_express=False)
    assert rows == expected
    codes = {row.error_code for _, row in rows}
    assert codes == {
        0,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert none == 0
    assert requests > 60 * count, "they went another way"


@one_or_two
async def test_what_cannot_be_written_is_said_and_what_comes_later_is_taken(count: int) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, clock=lambda: 0.0, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        producers = Producers([client, *await parked(broker, client, stack, count - 1, "fsync")])
        for _ in range(10):
            await producers.say("t", b"good")
        before = taken(broker)
        disk.refused = b"cannot be written"
        await producers.say("t", b"this cannot be written")
        assert taken(broker) == before + count
        assert [row.error_code for _, row in producers.rows[-count:]] == [
            ErrorCode.KAFKA_STORAGE_ERROR
        ] * count
        assert broker.core.ingest.unsynced_bytes == 0
        with trio.fail_after(60):
            while producers.rows[-1][1].error_code:
                await producers.say("t", b"later")
        last = producers.rows[-1][1].base_offset
        assert (await client.fetch("t", 0)).high_watermark == last + 1
        assert broker.core.counters.connections_failed == 0


@one_or_two
async def test_a_rule_holds_from_the_next_request_on(count: int) -> None:
    async with (
        serving(authorizer="acl", allow_everyone_if_no_acl_found=True) as broker,
        administering(broker) as admin,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        producers = Producers([client, *await parked(broker, client, stack, count - 1)])
        await producers.say("t", b"allowed")
        everybody = "User:ANONYMOUS"
        await admin.create_acls([Acl(everybody, "all", "cluster", "kafka-cluster")])
        before = taken(broker)
        await admin.create_acls([Acl(everybody, "write", "topic", "t", permission="deny")])
        await producers.say("t", b"denied")
        await admin.delete_acls(AclFilter(everybody, "write", "topic", "t"))
        await producers.say("t", b"allowed again")
        codes = [row.error_code for _, row in producers.rows]
        refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * count
        assert codes == [0] * count + refused + [0] * count
        assert taken(broker) == before + 2 * count


@one_or_two
async def test_a_quota_holds_from_the_next_request_on(count: int) -> None:
    async with (
        serving() as broker,
        administering(broker) as admin,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        producers = Producers([client, *await parked(broker, client, stack, count - 1)])
        before = taken(broker)
        await producers.say("t", b"free")
        assert taken(broker) == before + count
        await admin.alter_quotas({"client-id": "test"}, {"producer_byte_rate": 20_000.0})
        await producers.say("t", bytes(25_000))
        assert taken(broker) == before + count
        assert all(throttle_ms > 0 for throttle_ms, _ in producers.rows[-count:])
        await admin.alter_quotas({"client-id": "test"}, {"producer_byte_rate": None})
        for _ in range(3):  # the first of them is what they come back with
            await producers.say("t", b"free again")
        assert producers.rows[-1][0] == 0
        assert taken(broker) >= before + 2 * count


async def test_a_broker_that_ends_answers_what_waits_for_the_disk() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        clients = [client, *await parked(broker, client, stack, 2, "fsync")]
        disk.syncs.clear()
        for one in clients:
            send_at_once(one, one.encode(produce_request("t", batch(b"v")), 9)[1])
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked()
        assert taken(broker) == len(clients)
        broker.drain()
        await trio.testing.wait_all_tasks_blocked()
        for one in clients:  # nobody reads these
            send_at_once(one, one.encode(produce_request("t", batch(b"late")), 9)[1])
        await trio.testing.wait_all_tasks_blocked()
        disk.syncs.set()
        offsets = []
        with trio.fail_after(60):
            for one in clients:
                _, reply = await one.receive(ProduceResponse, 9)
                row = reply.responses[0].partition_responses[0]
                assert not row.error_code
                offsets.append(row.base_offset)
                assert await one.is_closed()
        assert sorted(offsets) == [3, 4, 5]
        assert taken(broker) == len(clients)


async def test_two_at_once_are_synced_by_the_thread() -> None:
    async with (
        serving(clock=lambda: 0.0) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 1, "fsync")
        alone, both = Producers([client]), Producers([client, *others])
        for _ in range(20):
            await alone.say("t", b"alone")
        wal = broker.core.topics.manager.wal
        before = wal.statistics().syncs_here
        assert before
        for _ in range(20):
            await both.say("t", b"at once")
        assert wal.statistics().syncs_here == before


async def test_who_is_encrypted_goes_the_general_way(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        protected(authority) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        await _stays_away(broker, client)


async def test_who_has_to_log_in_goes_the_general_way() -> None:
    async with guarded() as broker, connect(broker.address) as client:
        assert not (await log_in(client)).error_code
        await _stays_away(broker, client)


async def _stays_away(broker: Broker, client: WireClient) -> None:
    await client.create("t")
    with trio.fail_after(60):
        for n in range(3):
            assert (await client.produce("t", b"v")).base_offset == n
            await trio.testing.wait_all_tasks_blocked()
    assert isinstance(broker.express, Express)
    assert broker.express.passes == 0


async def test_who_is_alone_and_waits_for_the_disk_is_answered_in_order() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("slow")
        await client.create("quick", durability="disk")
        for name in ("slow", "quick"):
            await client.produce(name, b"first")
        producer = Producers([client])
        for _ in range(2):  # now it counts as alone
            await producer.say("quick", b"alone")
        disk.syncs.clear()
        sent = []
        for name in ("slow", "quick", "quick"):
            correlation_id, frame = client.encode(produce_request(name, batch(b"v")), 9)
            send_at_once(client, frame)
            sent.append(correlation_id)
            await trio.testing.wait_all_tasks_blocked()
        disk.syncs.set()
        with trio.fail_after(60):
            assert [(await client.receive(ProduceResponse, 9))[0] for _ in sent] == sent
        assert taken(broker) == 5


async def test_who_is_served_together_with_others_is_welcome_as_before() -> None:
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        others = await parked(broker, client, stack, 1)
        both = Producers([client, *others])
        for _ in range(seat.CREDIT_MAX + 1):
            await others[0].ask(MetadataRequest(topics=[]), MetadataResponse, 1)  # in vain
            await both.say("t", b"v")
        assert taken(broker) == 2 * (seat.CREDIT_MAX + 1)
        assert broker.core.counters.produce_requests == 2 + taken(broker)


async def test_each_of_a_run_is_answered_in_its_own_version() -> None:
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        clients = [client, *await parked(broker, client, stack, 3)]
        versions = (7, 9, 7, 13)
        request = produce_request("t", batch(b"v"))
        request.topic_data[0].topic_id = broker.core.topics.all["t"].topic_id
        for one, version in zip(clients, versions, strict=True):  # one pass receives all
            send_at_once(one, one.encode(request, version)[1])
        rows = []
        with trio.fail_after(60):
            for one, version in zip(clients, versions, strict=True):
                _, reply = await one.receive(ProduceResponse, version)
                rows.append(reply.responses[0].partition_responses[0])
        assert [row.error_code for row in rows] == [0] * 4
        assert sorted(row.base_offset for row in rows) == [4, 5, 6, 7]
        assert taken(broker) == 4
