"""Bad input: one connection is closed with one line, everybody else is served."""

import random

import pytest
import trio

from segbroker.broker import requests
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DescribeClusterRequest
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

from ..support.wire_client import (
    WireClient,
    batch,
    connect,
    produce_request,
    software,
    values,
)
from .conftest import Events, serving

PRODUCE_9 = bytes.fromhex("0000 0009 00000001 0004 74657374 00")


async def assert_others_are_served(broker: Broker) -> None:
    async with connect(broker.address) as other:
        reply = await other.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
        assert len(reply.brokers) == 1


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a negative size", bytes.fromhex("ffffffff")),
        ("a size below that of a header", bytes.fromhex("00000007 00000000000000")),
        ("a size above the limit", bytes.fromhex("7fffffff")),
        (
            "a client id longer than the frame",
            bytes.fromhex("0000000c 0003 0001 00000001 7fff 0000"),
        ),
        ("a negative size of the client id", bytes.fromhex("0000000a 0003 0001 00000001 fffe")),
        ("an array of two billion", bytes.fromhex("0000000e 0003 0001 00000001 ffff 7fffffff")),
        ("a body that ends early", bytes.fromhex("0000000a 0002 0001 00000001 ffff")),
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
        ("a TLS handshake", bytes.fromhex("16030100 fa010000f60303") + bytes(250)),
    ],
)
async def test_what_is_not_the_protocol_ends_its_connection_alone(
    name: str, data: bytes, events: Events
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.send_bytes(data)
        with trio.fail_after(60):
            assert await client.is_closed(), name
        assert len(events.named("malformed_request")) == 1
        await assert_others_are_served(broker)


PROXY = "the PROXY protocol, which a load balancer in front has to leave out"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"POST /topics/t HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 request"),
        (bytes.fromhex("16030100 fa010000f60303") + bytes(250), "a TLS handshake"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH greeting"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n", PROXY),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", PROXY),
    ],
)
@pytest.mark.parametrize("listeners", ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"])
async def test_another_protocol_is_named_in_the_log(
    data: bytes, what: str, listeners: str, events: Events
) -> None:
    async with serving(listeners=listeners) as broker, connect(broker.address) as client:
        await client.send_bytes(data)
        with trio.fail_after(60):
            assert await client.is_closed()
    (line,) = events.named("malformed_request")
    assert line["error"] == f"this is not Kafka's protocol: it begins like {what}"


async def test_a_peer_that_leaves_in_the_middle_of_a_frame_is_one_line(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.send_bytes(PRODUCE_9[:9])
        await client.stream.send_eof()
        with trio.fail_after(60):
            assert await client.is_closed()
        (line,) = events.named("malformed_request")
        assert line["error"] == "closed by the peer 9 bytes into a frame"
        await assert_others_are_served(broker)


@pytest.mark.parametrize(
    ("key", "version"), [(3, 99), (0, 99), (1, 3), (58, 0), (999, 0), (-5, 0), (10099, 0)]
)
async def test_an_api_that_is_not_served_closes_with_a_line_that_names_the_client(
    key: int, version: int, events: Events
) -> None:
    async with serving() as broker, connect(broker.address, "app-7") as client:
        await client.ask(software("acme", "1.2"), ApiVersionsResponse, 3)
        header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + bytes(4)
        body = header + b"\x00\x05app-7\x00" + bytes(32)
        await client.send_bytes(len(body).to_bytes(4, "big") + body)
        with trio.fail_after(60):
            assert await client.is_closed()
        (line,) = events.named("unserved_request")
        assert (line["client_id"], line["software"]) == ("app-7", "acme 1.2")
        assert f"api key {key} version {version}" in line["error"]
        if key == 3:
            assert line["request"] == f"Metadata {version}"
            assert "Metadata is, in versions 0 to 13" in line["error"]
        await assert_others_are_served(broker)


async def test_bytes_behind_a_request_are_tolerated() -> None:
    async with serving() as broker, connect(broker.address) as client:
        sent, frame = client.encode(MetadataRequest(topics=[]), 9)
        longer = (len(frame) - 4 + 3).to_bytes(4, "big") + frame[4:] + b"\x00\x00\x00"
        await client.send_bytes(longer)
        assert (await client.receive(MetadataResponse, 9))[0] == sent
        await assert_others_are_served(broker)


async def test_who_calls_himself_in_latin_1_is_served() -> None:
    async with serving() as broker, connect(broker.address, "caf?") as client:
        await client.create("t")
        for offset in range(3):  # from the second on by the express way
            sent, frame = client.encode(produce_request("t", batch(b"value")), 7)
            await client.send_bytes(frame.replace(b"caf?", "café".encode("latin-1")))
            received, reply = await client.receive(ProduceResponse, 7)
            (row,) = reply.responses[0].partition_responses
            assert (received, row.error_code, row.base_offset) == (sent, 0, offset)


def corrupted(records: bytes, position: int, value: int) -> bytes:
    return records[:position] + bytes([value]) + records[position + 1 :]


GOOD = batch(b"value")


@pytest.mark.parametrize(
    ("name", "records", "code"),
    [
        ("a wrong CRC", corrupted(GOOD, 20, GOOD[20] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        ("a flipped bit in a value", corrupted(GOOD, len(GOOD) - 2, 0), ErrorCode.CORRUPT_MESSAGE),
        ("magic 1", corrupted(GOOD, 16, 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("half a batch", GOOD[:40], ErrorCode.INVALID_RECORD),
        ("a cut batch", GOOD[:-1], ErrorCode.INVALID_RECORD),
        ("two batches", GOOD + GOOD, ErrorCode.INVALID_RECORD),
        ("no batch", b"", ErrorCode.INVALID_RECORD),
        ("a length of two billion", corrupted(GOOD, 8, 0x7F), ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_bad_batch_is_refused_by_a_code_and_nothing_is_appended(
    name: str, records: bytes, code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(produce_request("t", records), ProduceResponse, 9)
        row = reply.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (code, -1), name
        assert row.error_message
        assert (await client.produce("t", b"good")).base_offset == 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_producer_of_before_2017_is_told_that_its_format_is_too_old(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(produce_request("t", b"a message set"), ProduceResponse, version)
        row = reply.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


async def test_a_null_batch_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequestTopic(
                    name="t", partition_data=[ProduceRequestPartition(index=0, records=None)]
                )
            ],
        )
        reply = await client.ask(request, ProduceResponse, 8)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


async def test_errors_are_per_partition() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceRequestTopic(
                    name="t",
                    partition_data=[
                        ProduceRequestPartition(index=0, records=GOOD),
                        ProduceRequestPartition(index=1, records=corrupted(GOOD, 16, 0)),
                        ProduceRequestPartition(index=2, records=GOOD),
                    ],
                ),
                ProduceRequestTopic(
                    name="missing",
                    partition_data=[ProduceRequestPartition(index=0, records=GOOD)],
                ),
            ],
        )
        reply = await client.ask(request, ProduceResponse, 9)
        rows = [
            (topic.name, row.index, row.error_code)
            for topic in reply.responses
            for row in topic.partition_responses
        ]
        assert rows == [
            ("t", 0, ErrorCode.NONE),
            ("t", 1, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
            ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


async def test_a_batch_from_a_transaction_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = produce_request("t", GOOD)
        request.transactional_id = "tx"
        reply = await client.ask(request, ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


async def test_a_refused_produce_without_reply_closes_the_connection(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.send(produce_request("missing", GOOD, acks=0), 9)
        with trio.fail_after(60):
            assert await client.is_closed()
        (line,) = events.named("produce_without_reply_refused")
        assert "missing-0" in line["error"]
        await assert_others_are_served(broker)


async def test_a_produce_without_reply_stores_what_is_not_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        request = produce_request("t", GOOD, acks=0)
        (topic,) = request.topic_data
        wrong = ProduceRequestPartition(index=7, records=GOOD)
        more = ProduceRequestPartition(index=1, records=GOOD)
        topic.partition_data = [*topic.partition_data, wrong, more]
        await client.send(request, 9)
        with trio.fail_after(60):
            assert await client.is_closed()
        async with connect(broker.address) as other:
            # Stored is not yet synced, and only what is synced is shown: the fetch waits for it.
            rows = [await other.fetch("t", 0, partition=index, wait_ms=30_000) for index in (0, 1)]
            assert [len(values(row)) for row in rows] == [1, 1]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "../../etc"])
async def test_an_illegal_topic_name_is_refused_and_creates_nothing(name: str) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        reply = await client.ask(request, MetadataResponse, 5)
        assert reply.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert dict(broker.core.topics.all) == {}


@pytest.mark.parametrize("planted", [ZeroDivisionError, ConnectionError, OSError])
async def test_a_bug_in_a_handler_costs_its_connection_only(
    events: Events, monkeypatch: pytest.MonkeyPatch, planted: type[Exception]
) -> None:
    def broken(*_: object) -> object:
        raise planted("planted")

    monkeypatch.setitem(requests.ANSWERS, 60, broken)
    async with serving() as broker, connect(broker.address) as client:
        await client.send(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        with trio.fail_after(60):
            assert await client.is_closed()
        (line,) = events.named("request_failed")
        assert line["level"] == "error"
        assert line["client_id"] == "test"
        assert line["request"] == "DescribeCluster 0"
        assert isinstance(line["exc_info"], planted)
        await assert_others_are_served(broker)


async def test_a_connection_that_breaks_in_the_middle_of_a_frame_leaves_nothing() -> None:
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            _, frame = client.encode(produce_request("t", batch(b"x" * 300_000)), 9)
            await client.send_bytes(frame[:200_000])
        while broker.connections:
            await trio.lowlevel.checkpoint()
        assert broker.half_request_bytes == 0
        async with connect(broker.address) as client:
            assert (await client.produce("t", b"next")).base_offset == 0
            assert values(await client.fetch("t", 0)) == [b"next"]


async def test_random_bytes_never_stop_the_broker() -> None:
    seed = 20_26
    chance = random.Random(seed)
    async with serving() as broker:
        for _ in range(150):
            async with connect(broker.address) as client:
                await hostile(client, chance)
        await assert_others_are_served(broker)


async def hostile(client: WireClient, chance: random.Random) -> None:
    """A whole frame of noise behind a plausible header; then the end of the stream."""
    key = chance.choice([0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 37, 44, 60])
    version = chance.randrange(0, 13)
    body = (
        key.to_bytes(2, "big")
        + version.to_bytes(2, "big")
        + chance.randbytes(4)
        + b"\xff\xff\x00"
        + chance.randbytes(chance.randrange(0, 200))
    )
    try:
        await client.send_bytes(len(body).to_bytes(4, "big") + body)
        await client.stream.send_eof()
        while await client.stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass  # closed under our hands


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with serving() as broker, connect(broker.address) as client:
        sent, frame = client.encode(ApiVersionsRequest(), 4)
        newer = frame[:6] + (99).to_bytes(2, "big") + frame[8:]
        await client.send_bytes(newer)
        received, reply = await client.receive(ApiVersionsResponse, 0)
        assert received == sent
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        ranges = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
        assert ranges[0][0] == 0, "librdkafka before 2.11.1 wants Produce from 0"
        assert ranges[18] == (0, 4)
        again = await client.ask(software("x"), ApiVersionsResponse, 3)
        assert again.error_code == 0
