"""Quotas: who is charged for what, and what it costs in time."""

import errno
import itertools
import math
import socket
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.access import address_limits
from segbroker.broker.access import quotas as quotas_module
from segbroker.broker.access.address_limits import AddressLimits
from segbroker.broker.access.authorizer import Authorizer
from segbroker.broker.access.closing_lines import ClosingLines
from segbroker.broker.access.quota_rules import (
    CONNECTIONS,
    CONSUME,
    PRODUCE,
    REQUESTS,
    TIME,
    Owner,
    find,
)
from segbroker.broker.access.quotas import BUCKETS_MAX, DEBT_S, Bucket, Quotas
from segbroker.broker.apis import quota_apis
from segbroker.broker.configuration.config import InvalidConfig, merge
from segbroker.broker.connections import connection, watchdog
from segbroker.broker.connections.login import STRANGERS_REQUESTS_MAX
from segbroker.broker.peers.peer import Peer
from segbroker.broker.principal import USER, Principal
from segbroker.broker.server import Broker
from segbroker.protocol import messages_quotas as messages
from segbroker.protocol.acls import ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata import quotas as metadata_quotas
from segbroker.segments.metadata.quotas import Entity, entity_of

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import (
    Closed,
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
)
from .conftest import Events, manager, serving
from .guarded import connect_from, filled, guarded
from .logins import log_in
from .test_memory_of_waiting import held_opening

Parts = dict[str, str | None]
USER_A: Parts = {"user": "a"}


def alteration(parts: Parts, **values: float | None) -> messages.AlterClientQuotasRequest:
    """Set quotas; None takes one away."""
    return messages.AlterClientQuotasRequest(
        entries=[
            messages.AlterClientQuotasRequestEntry(
                entity=[
                    messages.ClientQuotaEntity(entity_type=kind, entity_name=name)
                    for kind, name in parts.items()
                ],
                ops=[
                    messages.AlterClientQuotasRequestOp(
                        key=key, value=value or 0.0, remove=value is None
                    )
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )


async def alter(client: WireClient, parts: Parts, **values: float | None) -> int:
    """As `alteration`; the code of the answer."""
    request = alteration(parts, **values)
    reply = await client.ask(request, messages.AlterClientQuotasResponse, 1)
    return reply.entries[0].error_code


async def asked(
    client: WireClient, *components: tuple[str, int, str | None], strict: bool = False
) -> messages.DescribeClientQuotasResponse:
    rows = [
        messages.DescribeClientQuotasRequestComponent(
            entity_type=kind, match_type=match_type, match=match
        )
        for kind, match_type, match in components
    ]
    request = messages.DescribeClientQuotasRequest(components=rows, strict=strict)
    return await client.ask(request, messages.DescribeClientQuotasResponse, 0)


async def describe(client: WireClient, *components: Any, strict: bool = False) -> dict[Any, Any]:  # noqa: ANN401
    reply = await asked(client, *components, strict=strict)
    assert reply.error_code == 0
    assert reply.entries is not None
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in reply.entries
    }


def rows(*some: tuple[Parts, float]) -> dict[Entity, dict[str, float]]:
    return {entity_of(parts): {PRODUCE: rate} for parts, rate in some}


LEVELS: list[Parts] = [
    {"user": "a", "client-id": "c"},
    {"user": "a", "client-id": None},
    {"user": "a"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]


def test_the_most_particular_quota_holds() -> None:
    some = [(parts, float(n + 1)) for n, parts in enumerate(LEVELS)]
    for kept in itertools.chain.from_iterable(
        itertools.combinations(some, count) for count in range(1, len(some) + 1)
    ):
        found = find(rows(*kept), PRODUCE, "a", "c")
        assert found is not None
        assert found.rate == kept[0][1]
    assert find(rows(*some), CONSUME, "a", "c") is None


def test_an_allowance_belongs_to_the_pair_the_user_or_the_client() -> None:
    def owner(parts: Parts, user: str = "a", client: str = "c") -> Owner:
        found = find(rows((parts, 1.0)), PRODUCE, user, client)
        assert found is not None
        return found.owner[1:]

    assert owner(LEVELS[1]) == ("user", "a", "client-id", "c")
    assert owner(LEVELS[5]) == ("user", "a")
    assert owner(LEVELS[5], client="d") == ("user", "a")
    assert owner(LEVELS[5], user="b") == ("user", "b")
    assert owner(LEVELS[7]) == owner(LEVELS[7], user="b") == ("client-id", "c")


def test_a_bucket_gives_its_rate_over_time_and_forgives_what_is_too_much() -> None:
    bucket = Bucket(100, now=0)
    assert bucket.charge(100, now=0) == 0
    assert bucket.charge(50, now=0) == 0.5
    assert bucket.charge(0, now=0.5) == 0
    assert bucket.charge(100, now=100) == 0, "at most a second's worth is saved up"
    assert bucket.charge(1e9, now=100) == DEBT_S
    assert bucket.charge(0, now=100 + DEBT_S / 2) == DEBT_S / 2


async def test_a_producer_over_its_rate_is_told_and_not_read_for_so_long() -> None:
    async with serving() as broker, connect(broker.address, "fast") as client:
        await client.create("t", durability="disk")
        assert broker.core.quotas is None
        assert await alter(client, {"client-id": "fast"}, producer_byte_rate=20_000) == 0
        request = produce_request("t", batch(b"x" * 30_000))
        began = trio.current_time()
        first = await client.ask(request, ProduceResponse, 9)
        # A second's worth is free; the 10,000 bytes over it take half a second.
        assert 400 <= first.throttle_time_ms <= 520
        assert trio.current_time() - began < 0.3, "the reply itself does not wait"
        await client.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert trio.current_time() - began >= 0.4, "what comes next does"
        async with connect(broker.address, "other") as other:
            reply = await other.ask(request, ProduceResponse, 9)
            assert reply.throttle_time_ms == 0


async def test_a_consumer_over_its_rate_gets_nothing_until_it_is_paid() -> None:
    async with serving() as broker, connect(broker.address, "slow") as client:
        await client.create("t", durability="disk")
        for _ in range(4):
            await client.produce("t", b"x" * 10_000)
        assert await alter(client, {"client-id": "slow"}, consumer_byte_rate=5_000) == 0
        first = await client.ask(fetch_request("t", 0), FetchResponse, 12)
        assert len(first.responses[0].partitions[0].records or b"") > 10_000, "one batch fits"
        assert 800 <= first.throttle_time_ms <= 1_100
        async with connect(broker.address, "slow") as same:
            reply = await same.ask(fetch_request("t", 0, wait_ms=5_000), FetchResponse, 12)
            assert not reply.responses[0].partitions[0].records
            assert reply.throttle_time_ms > 0
        async with connect(broker.address, "other") as other:
            reply = await other.ask(fetch_request("t", 0), FetchResponse, 12)
            assert len(reply.responses[0].partitions[0].records or b"") > 40_000


async def test_requests_are_counted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, {"user": None}, request_rate=0.5) == 0
        began = trio.current_time()
        # A full bucket is half a request: the first one owes a second.
        first = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert 0 < first.throttle_time_ms <= 1_000
        assert await alter(client, {"user": None}, request_rate=None) == 0
        assert trio.current_time() - began >= 0.9
        assert broker.core.quotas is None


async def test_the_time_that_requests_take_is_counted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await alter(client, {"client-id": "test"}, request_percentage=0.02)
        longest = 0.0
        with trio.fail_after(60):
            while longest < 0.1:
                began = trio.current_time()
                await client.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
                longest = max(longest, trio.current_time() - began)
        assert await alter(client, {"client-id": "test"}, request_percentage=None) == 0
        assert broker.core.quotas is None


async def test_who_has_used_up_its_time_is_told_so_by_the_same_reply() -> None:
    """Clients that know wait by themselves; others would take a muted connection for a dead one."""
    asked: list[tuple[Message, type[Message], int]] = [
        (MetadataRequest(topics=[]), MetadataResponse, 9),
        (FindCoordinatorRequest(key="g", coordinator_keys=[]), FindCoordinatorResponse, 3),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse, 4),
        (
            SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
            SyncGroupResponse,
            4,
        ),
    ]
    async with serving() as broker, connect(broker.address) as admin:
        assert await alter(admin, {"client-id": None}, request_percentage=0.0001) == 0
        for request, expected, version in asked:
            async with connect(broker.address, expected.__name__) as client:
                reply: Any = await client.ask(request, expected, version)
                assert reply.throttle_time_ms > 0, expected.__name__


async def test_who_lists_the_topics_for_others_pays_for_no_look_at_their_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is the same for all is done once, by one of them; what they may see is not the same."""
    seconds = 0.0
    would_allow = Authorizer.would_allow

    def looked(self: Authorizer, peer: Peer, operation: int, kind: int, name: str) -> bool:
        nonlocal seconds
        seconds += kind == ResourceType.TOPIC
        return would_allow(self, peer, operation, kind, name)

    throttled: list[int] = []

    async def ask(client: WireClient) -> None:
        reply = await client.ask(MetadataRequest(topics=None), MetadataResponse, 9)
        assert [topic.name for topic in reply.topics] == ["t"]
        throttled.append(reply.throttle_time_ms)

    async with (
        guarded(super_users="User:ANONYMOUS") as broker,
        connect(broker.address, None) as admin,
        AsyncExitStack() as stack,
    ):
        await filled(broker)
        hosts = [f"127.0.0.{number}" for number in range(2, 6)]
        clients = [
            await stack.enter_async_context(connect(broker.address, host, source=host))
            for host in hosts
        ]
        assert await alter(admin, {"client-id": None}, request_percentage=100) == 0
        monkeypatch.setattr(Authorizer, "would_allow", looked)
        monkeypatch.setattr(connection, "time", SimpleNamespace(perf_counter=lambda: seconds))
        async with trio.open_nursery() as nursery, broker.core.listing._lock:
            for client in clients:
                nursery.start_soon(ask, client)
            await becomes(lambda: len(broker.core.listing._waiting) == len(clients))
    assert throttled == [0] * len(clients)


async def test_api_versions_is_told_how_long_its_connection_is_not_read() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, {"client-id": "test"}, request_rate=0.5) == 0
        reply = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 2)
        assert 0 < reply.throttle_time_ms <= 1_000
        assert await alter(client, {"client-id": "test"}, request_rate=None) == 0
        assert broker.core.quotas is None


async def test_strangers_do_not_use_up_what_others_need_to_log_in() -> None:
    async with serving(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        initial_user="a",
        initial_password="b",
        quota_requests_per_second=1,
    ) as broker:
        async with connect(broker.address) as stranger:
            for _ in range(STRANGERS_REQUESTS_MAX):
                reply = await stranger.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
                assert reply.error_code == 0
            with pytest.raises(Closed):
                await stranger.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert broker.core.all_quotas.buckets_count == 0
        async with connect(broker.address) as client:
            with trio.fail_after(60):
                assert (await log_in(client, "PLAIN", "a", "b")).error_code == 0
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
        assert broker.core.all_quotas.buckets_count == 1


async def test_a_long_client_id_counts_by_its_beginning() -> None:
    async with (
        serving(quota_requests_per_second=1_000) as broker,
        connect(broker.address) as client,
    ):
        assert await alter(client, {"client-id": None}, request_rate=1_000) == 0
        for end in ("a", "b"):
            client.client_id = "x" * 20_000 + end
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
        owners = broker.core.all_quotas._buckets
        assert sum("x" * 1_000 in owner for owner in owners) == 1


async def test_changes_of_one_entity_at_once_all_stand() -> None:
    async with serving() as broker:
        async with trio.open_nursery() as nursery:
            for key in (PRODUCE, CONSUME, TIME, REQUESTS):
                nursery.start_soon(_alter_alone, broker, key)
        assert broker.core.all_quotas.rows == {
            entity_of(USER_A): dict.fromkeys((PRODUCE, CONSUME, TIME, REQUESTS), 1e9)
        }


async def _alter_alone(broker: Broker, key: str) -> None:
    async with connect(broker.address) as client:
        assert await alter(client, USER_A, **{key: 1e9}) == 0


async def test_one_quota_more_is_not_a_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await alter(client, {"user": "a"}, **{PRODUCE: 1.0})
        await alter(client, {"user": "b"}, **{PRODUCE: 2.0})
        monkeypatch.setattr(quotas_module, "quotas_of", None)  # what reads them all
        monkeypatch.setattr(metadata_quotas, "quotas_of", None)
        assert await alter(client, {"user": "c"}, **{PRODUCE: 3.0}) == 0
        assert await alter(client, {"user": "a"}, **{PRODUCE: None, CONSUME: 4.0}) == 0
        assert await alter(client, {"user": "b"}, **{PRODUCE: None}) == 0
        monkeypatch.undo()
        quotas = broker.core.all_quotas
        assert list(quotas.rows.items()) == [
            ((("user", "a"),), {CONSUME: 4.0}),
            ((("user", "c"),), {PRODUCE: 3.0}),
        ]
        stored = metadata_quotas.quotas_of(broker.core.topics.manager.section("quotas"))
        assert list(stored.items()) == list(quotas.rows.items())


async def test_quotas_are_described_by_component_and_survive_a_restart() -> None:
    storage = MemoryStorage()
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        assert await alter(client, USER_A, producer_byte_rate=15, consumer_byte_rate=2) == 0
        assert await alter(client, USER_A, consumer_byte_rate=None, request_rate=7) == 0
        assert await alter(client, {"user": "a", "client-id": None}, request_rate=8) == 0
        assert await alter(client, {"user": None}, request_rate=9) == 0
        assert await alter(client, {"ip": "10.0.0.1"}, connection_creation_rate=3) == 0
    of_a = {(("user", "a"),): {PRODUCE: 15.0, REQUESTS: 7.0}}
    of_pair = {(("client-id", None), ("user", "a")): {REQUESTS: 8.0}}
    of_all = {(("user", None),): {REQUESTS: 9.0}}
    of_ip = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0}}
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        assert await describe(client) == of_a | of_pair | of_all | of_ip
        assert await describe(client, ("user", 0, "a")) == of_a | of_pair
        assert await describe(client, ("user", 0, "a"), strict=True) == of_a
        assert await describe(client, ("user", 1, None)) == of_all
        assert await describe(client, ("user", 2, None)) == of_a | of_pair | of_all
        assert await describe(client, ("client-id", 1, None), ("user", 0, "a")) == of_pair


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        ({}, {PRODUCE: 1}),
        ({"planet": "x"}, {PRODUCE: 1}),
        ({"ip": "10.0.0.1", "user": "a"}, {PRODUCE: 1}),
        ({"ip": "10.0.0.1"}, {PRODUCE: 1}),
        ({"ip": "10.0.0.777"}, {"connection_creation_rate": 1}),
        ({"ip": "localhost"}, {"connection_creation_rate": 1}),
        ({"user": "a"}, {"connection_creation_rate": 1}),
        ({"ip": "10.0.0.1"}, {"controller_mutation_rate": 1}),
        ({"user": ""}, {PRODUCE: 1}),
        ({"user": "n" * 1_001}, {PRODUCE: 1}),
        ({"user": "a"}, {PRODUCE: 0}),
        ({"user": "a"}, {PRODUCE: -1}),
        ({"user": "a"}, {PRODUCE: math.inf}),
        ({"user": "a"}, {PRODUCE: math.nan}),
        ({"user": "a"}, {PRODUCE: 1.5}),
        ({"client-id": "c"}, {CONSUME: 0.999999}),
        ({"user": "a"}, {PRODUCE: 1e19}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 0.5}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2**31}),
    ],
    ids=str,
)
async def test_what_is_no_quota_is_refused(parts: Parts, values: dict[str, float]) -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, parts, **values) == ErrorCode.INVALID_REQUEST
        assert broker.core.all_quotas.rows == {}


async def test_what_nobody_has_can_be_removed() -> None:
    """As in Kafka, also what cannot be set."""
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, USER_A, producer_byte_rate=7.0) == 0
        assert await alter(client, USER_A, no_such_rate=None, connection_creation_rate=None) == 0
        assert await alter(client, {"ip": "10.0.0.7"}, producer_byte_rate=None) == 0
        assert await describe(client) == {(("user", "a"),): {"producer_byte_rate": 7.0}}
        assert await alter(client, USER_A, producer_byte_rate=None, no_such_rate=1.0) == 42
        assert await describe(client) == {(("user", "a"),): {"producer_byte_rate": 7.0}}


async def test_what_is_no_number_of_bytes_may_be_a_fraction() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, USER_A, **{TIME: 0.5, REQUESTS: 0.1, PRODUCE: 1.0000005}) == 0


async def test_a_change_that_is_only_tried_changes_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await alter(client, USER_A, producer_byte_rate=7.0) == 0
        for values, code in (({PRODUCE: 8.0}, 0), ({PRODUCE: None}, 0), ({PRODUCE: -1.0}, 42)):
            request = alteration(USER_A, **values)
            request.validate_only = True
            reply = await client.ask(request, messages.AlterClientQuotasResponse, 1)
            assert [row.error_code for row in reply.entries] == [code]
        assert await describe(client) == {(("user", "a"),): {PRODUCE: 7.0}}


async def test_a_quota_is_changed_once_in_a_request() -> None:
    entity = [messages.ClientQuotaEntity(entity_type="user", entity_name="a")]
    ops = [
        messages.AlterClientQuotasRequestOp(key=PRODUCE, value=rate, remove=False)
        for rate in (5.0, 6.0)
    ]
    entry = messages.AlterClientQuotasRequestEntry
    in_one = [entry(entity=entity, ops=ops)]
    in_two = [entry(entity=entity, ops=[op]) for op in ops]
    async with serving() as broker, connect(broker.address) as client:
        for entries in (in_one, in_two):
            request = messages.AlterClientQuotasRequest(entries=entries, validate_only=False)
            reply = await client.ask(request, messages.AlterClientQuotasResponse, 1)
            assert [row.error_code for row in reply.entries] == [ErrorCode.INVALID_REQUEST]
        assert broker.core.all_quotas.rows == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("planet", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
async def test_what_cannot_be_asked_of_quotas_is_refused_as_kafka_does(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await asked(client, *components)
        assert (reply.error_code, reply.entries) == (code, None)


async def test_a_quota_of_the_settings_holds_for_who_has_none() -> None:
    async with (
        serving(quota_produce_bytes_per_second="20 KiB") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability="disk")
        request = produce_request("t", batch(b"x" * 30_000))
        reply = await client.ask(request, ProduceResponse, 9)
        assert reply.throttle_time_ms > 300
        async with connect_from("127.0.0.2", broker) as other:
            small = produce_request("t", batch(b"x" * 10_000))
            assert (await other.ask(small, ProduceResponse, 9)).throttle_time_ms == 0


async def test_a_muted_connection_ends_with_the_broker() -> None:
    with trio.fail_after(60):
        async with serving() as broker, connect(broker.address) as client:
            await client.create("t", durability="disk")
            await alter(client, {"client-id": "test"}, producer_byte_rate=100)
            await client.produce("t", b"x" * 30_000)
            assert broker.core.quotas is not None
            broker.drain()
            assert await client.is_closed()


async def test_who_is_not_read_for_its_quota_is_not_one_who_sends_nothing(events: Events) -> None:
    """It holds the beginning of a large request that somebody waits for: it could not go on."""
    half_of_one = (8 << 20).to_bytes(4, "big") + bytes(100_000)
    async with (
        serving(request_bytes_max=1 << 17, request_wait_ms=20_000) as broker,
        AsyncExitStack() as stack,
    ):
        broker.listeners[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        async with connect(broker.address, "slow") as slow, connect(broker.address) as other:
            await other.create("t")
            await other.create("closed")
            assert (await other.produce("t", b"v")).error_code == 0
            assert await alter(other, {"client-id": "slow"}, producer_byte_rate=2_000) == 0
            may_open = held_opening(broker)
            stack.callback(may_open.set)
            await slow.send(produce_request("closed", batch(b"v")), 9)
            await becomes(lambda: bool(broker.core.topics._opening))
            (muted,) = (one for one in broker._connections if one.peer.client_id == "slow")
            _, first = slow.encode(produce_request("t", batch(bytes(64_000))), 9)
            await slow.send_bytes(first + half_of_one)
            sock, size = muted._sock, len(first) + len(half_of_one)
            assert isinstance(sock, socket.socket)
            await becomes(lambda: len(sock.recv(size, socket.MSG_PEEK)) == size)
            # Behind it, the next to receive has a buffer that takes all of that.
            assert (await other.produce("t", bytes(300_000))).error_code == 0
            may_open.set()
            await becomes(lambda: broker.half_request_bytes > 1 << 17)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.produce, "t", bytes(300_000))
                await becomes(lambda: muted.is_in_the_way)
                for later_s in (0, 11):
                    watchdog.look(broker.core.config, muted, trio.current_time() + later_s)
                nursery.cancel_scope.cancel()
            assert not events.named("request_timed_out")


async def test_invented_client_ids_share_what_is_left(mock_clock: MockClock) -> None:
    """In no time at all: what a bucket gains in the meantime would be less debt."""
    opened = manager()
    opened.open()
    quotas = Quotas(opened, {})
    quotas.rows = {entity_of({"client-id": None}): {PRODUCE: 1.0}}
    for n in range(2 * BUCKETS_MAX):
        peer = _Peer(f"invented-{n}")
        quotas.arrived(peer, 10, is_produce=True)  # type: ignore[arg-type]
    assert quotas.buckets_count <= BUCKETS_MAX + 1
    last = _Peer("the last")
    quotas.arrived(last, 10, is_produce=True)  # type: ignore[arg-type]
    assert last.muted_s == DEBT_S
    opened.close()


async def _crowd(nursery: trio.Nursery, broker: Broker, count: int) -> None:
    """So many clients that owe something, each by a name of its own."""
    for number in range(count):
        client = await nursery.start(_connected, broker, f"invented-{number}")
        reply = await client.ask(produce_request("t", batch(b"x" * 9_000)), ProduceResponse, 9)
        assert reply.throttle_time_ms > 10_000


async def _connected(
    broker: Broker,
    client_id: str,
    task_status: trio.TaskStatus[WireClient] = trio.TASK_STATUS_IGNORED,
) -> None:
    async with connect(broker.address, client_id) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def _throttled_ms(broker: Broker, client_id: str, size: int) -> int:
    """What a client is told that produces on a connection of its own."""
    async with connect(broker.address, client_id) as client:
        reply = await client.ask(produce_request("t", batch(b"x" * size)), ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        return reply.throttle_time_ms


async def test_a_crowd_of_invented_clients_leaves_others_the_quotas_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who finds no place shares with those of the same quota: not its rate, nor what they owe, with
    who has another one."""
    monkeypatch.setattr(quotas_module, "BUCKETS_MAX", 8)
    async with (
        serving(quota_produce_bytes_per_second=1 << 30) as broker,
        connect(broker.address) as admin,
        trio.open_nursery() as nursery,
    ):
        await admin.create("t", durability="disk")
        assert await alter(admin, {"client-id": None}, producer_byte_rate=100) == 0
        own: list[Parts] = [{"client-id": "alice"}, {"user": "ANONYMOUS", "client-id": "bob"}]
        for parts in own:
            assert await alter(admin, parts, producer_byte_rate=1e9) == 0
        await _crowd(nursery, broker, 12)
        assert await _throttled_ms(broker, "alice", 1_000) == 0
        assert await _throttled_ms(broker, "bob", 1_000) == 0
        assert await _throttled_ms(broker, "invented-12", 1) > 10_000, "they share what is left"
        nursery.cancel_scope.cancel()


async def test_two_connections_of_a_client_share_its_allowance_also_where_others_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An allowance that one has just looked up is not dropped for the next one that it looks up."""
    monkeypatch.setattr(quotas_module, "BUCKETS_MAX", 4)
    async with serving() as broker, connect(broker.address) as admin:
        await admin.create("t", durability="disk")
        rates = {"producer_byte_rate": 1.0, "request_rate": 0.1, "request_percentage": 1e-6}
        assert await alter(admin, {"client-id": "busy"}, **rates) == 0
        assert await alter(admin, {"client-id": "a"}, producer_byte_rate=200, request_rate=9.0) == 0
        async with connect(broker.address, "busy") as busy:
            await busy.ask(produce_request("t", batch(b"x")), ProduceResponse, 9)
            assert await _throttled_ms(broker, "a", 9_000) > 10_000
            assert await _throttled_ms(broker, "a", 1) > 10_000


async def test_full_allowances_give_way_and_no_connection_keeps_one_that_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas_module, "BUCKETS_MAX", 8)
    monkeypatch.setattr(quotas_module, "SWEEP_S", 0.0)
    async with (
        serving() as broker,
        connect(broker.address) as admin,
        connect(broker.address, "kept") as kept,
    ):
        await admin.create("t", durability="disk")
        assert await alter(admin, {"client-id": None}, producer_byte_rate=10_000) == 0
        small = produce_request("t", batch(b"x"))
        assert (await kept.ask(small, ProduceResponse, 9)).throttle_time_ms == 0
        for number in range(12):
            assert await _throttled_ms(broker, f"quick-{number}", 1) == 0
            await trio.sleep(0.05)  # it has all of its allowance again
        assert await _throttled_ms(broker, "greedy", 200_000) > 10_000
        assert await _throttled_ms(broker, "modest", 1) == 0, "it has one of its own"
        assert await _throttled_ms(broker, "kept", 200_000) > 10_000
        assert (await kept.ask(small, ProduceResponse, 9)).throttle_time_ms > 10_000


async def test_a_connection_that_is_open_goes_by_the_quota_that_there_is_now() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as admin,
        connect(broker.address, "c") as client,
    ):
        await admin.create("t", durability="disk")
        request = produce_request("t", batch(b"x" * 9_000))
        for rate, least_ms in ((1e9, 0), (2e9, 0), (100.0, 10_000)):
            assert await alter(admin, {"client-id": "c"}, producer_byte_rate=rate) == 0
            reply = await client.ask(request, ProduceResponse, 9)
            assert reply.throttle_time_ms >= least_ms
            assert bool(reply.throttle_time_ms) == bool(least_ms)


async def test_a_quota_of_the_settings_is_of_each_user_at_each_address() -> None:
    opened = manager()
    opened.open()
    quotas = Quotas(opened, {PRODUCE: 1.0})
    for user, host, is_new in (
        ("a", "10.0.0.1", True),
        ("a", "10.0.0.1", False),
        ("b", "10.0.0.1", True),
        ("a", "10.0.0.2", True),
    ):
        peer = _Peer("c", user, host)
        quotas.arrived(peer, 1, is_produce=True)  # type: ignore[arg-type]
        assert (peer.muted_s == 0) == is_new, (user, host)
    opened.close()


class _Peer:
    is_admitted = True

    def __init__(self, client_id: str, user: str = "ANONYMOUS", host: str = "127.0.0.1") -> None:
        self.principal = Principal(USER, user)
        self.client_id = client_id
        self.address = (host, 1)
        self.meter: object = None
        self.muted_s = 0.0

    def mute(self, seconds: float) -> None:
        self.muted_s = seconds


async def _is_refused(broker: Broker, host: str) -> bool:
    async with connect_from(host, broker) as client:
        try:
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        except (Closed, trio.BrokenResourceError):
            return True
        return False


async def test_connections_of_one_address_are_limited_and_another_is_served(
    events: Events,
) -> None:
    async with serving(
        connections_per_ip_max=3, connections_per_ip_overrides="127.0.0.3:1"
    ) as broker:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(_hold, broker, "127.0.0.1")
            await becomes(lambda: broker.connections == 3)
            for _ in range(5):
                assert await _is_refused(broker, "127.0.0.1")
            assert len(events.named("connection_refused")) == 1, "one line per address and window"
            async with connect_from("127.0.0.2", broker) as other:
                await other.create("t")
            async with connect_from("127.0.0.3", broker) as third:
                await third.create("u")
                assert await _is_refused(broker, "127.0.0.3")
            nursery.cancel_scope.cancel()
        await becomes(lambda: broker.connections == 0)
        async with connect_from("127.0.0.1", broker) as again:
            await again.create("v")


@pytest.mark.parametrize("text", ["localhost:5", "10.0.0.1/8:5", "10.0.0.1:-1", "10.0.0.1"])
def test_a_limit_for_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="connections_per_ip_overrides"):
        merge({"connections_per_ip_overrides": text})


async def test_new_connections_of_one_address_are_limited_per_second() -> None:
    async with serving(connections_per_ip_per_second=5) as broker:
        assert not await _is_refused(broker, "127.0.0.1")
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(_hold, broker, "127.0.0.1")
            await becomes(lambda: broker.core.counters.connections_refused >= 20)
            nursery.cancel_scope.cancel()
        assert not await _is_refused(broker, "127.0.0.2")


async def test_the_pace_of_an_address_is_that_of_its_quota_and_is_not_charged_for_who_is_refused(
    mock_clock: MockClock,
) -> None:
    """The broker's time goes on only where the test says so."""
    opened = manager()
    opened.open()
    quotas = Quotas(opened, {})
    limits = AddressLimits(most=100, overrides={}, rate=1, quotas=quotas)

    def admitted(host: str, tries: int) -> int:
        now = trio.current_time()
        return sum(limits.why_refused(host, now) is None for _ in range(tries))

    assert admitted("10.0.0.1", 10) == 2, "one of the settings, and one that is owed"
    mock_clock.jump(1.5)
    assert admitted("10.0.0.1", 10) == 1, "who was refused owes nothing"
    quotas.rows = {
        entity_of({"ip": None}): {CONNECTIONS: 3.0},
        entity_of({"ip": "10.0.0.1"}): {CONNECTIONS: 5.0},
    }
    assert admitted("10.0.0.1", 10) == 6, "another rate begins anew"
    assert admitted("10.0.0.2", 10) == admitted("10.0.0.3", 10) == 4, "each its own"
    assert admitted("10.0.0.2", 10) == 0
    opened.close()


async def test_addresses_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "HOSTS_MAX", 3)
    opened = manager()
    opened.open()
    limits = AddressLimits(most=1, overrides={}, rate=1, quotas=Quotas(opened, {}))
    lines = ClosingLines()
    for number in range(10):
        limits.why_refused(f"10.0.0.{number}", 0.0)
        limits.refused(f"10.0.0.{number}", 0.0, {}, lines)
    assert len(limits._buckets) == len(limits._refused) == 3
    opened.close()


async def test_quotas_have_a_limit_and_names_have_one_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota_apis, "ENTITIES_MAX", 2)
    long = "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * (metadata_quotas.NAME_SIZE_MAX // 2)
    async with serving() as broker, connect(broker.address) as client:
        invalid = ErrorCode.INVALID_REQUEST
        assert await alter(client, {"user": long + "x"}, producer_byte_rate=1e6) == invalid
        assert await alter(client, {"user": long}, producer_byte_rate=1e6) == 0
        assert await alter(client, USER_A, producer_byte_rate=1e6) == 0
        full = await alter(client, {"user": None}, producer_byte_rate=1e6)
        assert full == ErrorCode.POLICY_VIOLATION
        assert await alter(client, USER_A, consumer_byte_rate=1e6) == 0, "it is there"
        assert await alter(client, {"user": long}, producer_byte_rate=None) == 0
        assert await alter(client, {"user": None}, producer_byte_rate=1e6) == 0


async def test_a_quota_that_could_not_be_stored_is_not_in_force() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        disk.sync_error = OSError(errno.EIO, "the disk is broken")
        code = await alter(client, USER_A, producer_byte_rate=1e6)
        disk.sync_error = None
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await describe(client) == {}
        assert broker.core.quotas is None


async def test_a_quota_that_could_not_be_stored_forgives_nobody_what_it_owes() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")
        assert await alter(client, {"client-id": None}, producer_byte_rate=100) == 0
        assert await _throttled_ms(broker, "greedy", 9_000) > 10_000
        disk.sync_error = OSError(errno.EIO, "the disk is broken")
        code = await alter(client, USER_A, producer_byte_rate=1e6)
        disk.sync_error = None
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await _throttled_ms(broker, "greedy", 1) > 10_000


async def test_half_requests_of_one_address_do_not_take_the_room_of_another() -> None:
    # An address may hold its share, a growth of a buffer (1 MiB) and the request of who was first.
    async with serving(
        request_bytes_max=8 << 20,
        request_bytes_per_ip_max=1 << 20,
        drain_timeout_ms=200,
    ) as broker:
        big = produce_request("t", batch(b"x" * 300_000))
        huge = produce_request("t", batch(b"x" * 3_000_000))
        async with connect_from("127.0.0.1", broker) as setup:
            await setup.create("t", durability="disk")
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(_send_half, broker, huge)
            await becomes(lambda: broker.half_request_bytes > 1 << 20)
            with trio.fail_after(60):
                async with connect_from("127.0.0.2", broker) as other:
                    reply = await other.ask(big, ProduceResponse, 9)
                    assert reply.responses[0].partition_responses[0].error_code == 0
            nursery.cancel_scope.cancel()


async def _send_half(broker: Broker, request: Any) -> None:  # noqa: ANN401
    async with connect_from("127.0.0.1", broker) as client:
        _, frame = client.encode(request, 9)
        await client.send_bytes(frame[: len(frame) // 2])
        await trio.sleep_forever()


async def _hold(broker: Broker, host: str) -> None:
    async with connect_from(host, broker):
        await trio.sleep_forever()


def test_the_keys_of_time_and_requests_are_those_of_the_page() -> None:
    assert (TIME, REQUESTS) == ("request_percentage", "request_rate")


async def test_a_flood_of_requests_from_one_address_does_not_slow_another(
    mock_clock: MockClock,
) -> None:
    """The quota's time stands still: what the flood was allowed is spent, and no more comes."""
    async with (
        serving(quota_requests_per_second=200) as broker,
        trio.open_nursery() as nursery,
    ):
        for _ in range(20):
            nursery.start_soon(_flood, broker)
        counters = broker.core.counters
        while broker.connections < 20 or counters.requests < 200:
            await trio.lowlevel.checkpoint()
        between = []
        async with connect_from("127.0.0.2", broker) as other:
            for _ in range(100):
                before = counters.requests
                await other.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
                between.append(counters.requests - before - 1)
        # Those of the flood that had not heard yet that they owe something were answered once each.
        assert between[50:] == [0] * 50
        nursery.cancel_scope.cancel()
        mock_clock.rate = 1


async def _flood(broker: Broker) -> None:
    async with connect_from("127.0.0.1", broker) as client:
        _, frame = client.encode(MetadataRequest(topics=[]), 9)
        while True:
            await client.send_bytes(frame * 100)


async def test_an_address_has_one_spelling_whatever_it_is_called() -> None:
    async with serving() as broker, connect(broker.address) as client:
        mapped, plain = "::ffff:10.0.0.1", "10.0.0.1"
        assert await alter(client, {"ip": mapped}, connection_creation_rate=3) == 0
        found = {(("ip", plain),): {"connection_creation_rate": 3.0}}
        for name in (plain, mapped):
            assert await describe(client, ("ip", 0, name)) == found
        assert await alter(client, {"ip": "2001:DB8::0:1"}, connection_creation_rate=1) == 0
        assert await describe(client, ("ip", 0, "2001:db8::1"))
        assert await alter(client, {"ip": "fe80::1%eth0"}, connection_creation_rate=1) == 0
        assert await describe(client, ("ip", 0, "fe80::1"))
        for name in (plain, mapped):
            assert await alter(client, {"ip": plain}, connection_creation_rate=3) == 0
            assert await alter(client, {"ip": name}, connection_creation_rate=None) == 0
            assert await describe(client, ("ip", 0, mapped)) == {}


async def test_what_an_older_version_took_for_an_address_can_be_removed() -> None:
    disk = MemoryStorage()
    older = manager(disk)
    older.open()
    older.record_now(
        "quotas_set", entity=[["ip", "10.0.0.777"]], values={"connection_creation_rate": 1.0}
    )
    older.close()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert await alter(client, {"ip": "10.0.0.777"}, connection_creation_rate=2) != 0
        assert await alter(client, {"ip": "10.0.0.777"}, connection_creation_rate=None) == 0
        assert await describe(client) == {}
