"""The express way answers, appends and refuses exactly as the general one does."""

import random
from collections.abc import Callable
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest
import trio
import trio.testing

from segbroker.broker.producing import produce_run, seat
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import Codec, encode_batch
from segbroker.protocol.schema import records_view

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, batch, connect, fetch_request, produce_request
from .conftest import serving

TOPICS = {
    "plain": {},
    "disk": {"durability": "disk"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": "200"},
    "rolling": {"segment_bytes": "600", "max_message_bytes": "600"},
    "compacted": {"cleanup_policy": "compact"},
    "bounded": {"message_timestamp_before_max_ms": "1000"},
    "capped": {"retention_bytes": "400", "retention_full_policy": "reject"},
}
Ask = Callable[[random.Random, WireClient], bytes]


def stand_in(topic: str) -> UUID:
    """For the id that a topic has at one of the brokers: these differ."""
    return uuid5(NAMESPACE_DNS, topic)


def _plain(rng: random.Random, client: WireClient) -> bytes:
    records = encode_batch(
        [rng.randbytes(rng.randrange(40)) for _ in range(rng.choice((1, 1, 5)))],
        timestamps_ms=1_700_000_000_000,
        codec=rng.choice((*[Codec.NONE] * 8, *Codec)),
    )
    request = produce_request(
        rng.choice(["plain", "plain", "plain", *TOPICS]),
        records,
        partition=rng.choice((0, 0, 0, 1)),
        acks=rng.choice((-1, -1, 1)),
        timeout_ms=rng.choice((30_000, 30_000, 20_000)),
    )
    topic = request.topic_data[0]
    topic.topic_id = stand_in(topic.name)
    return client.encode(request, rng.choice((3, 7, 7, 8, 9, 12, 13, 13)))[1]


def _tracked(rng: random.Random, client: WireClient) -> bytes:
    sequence = rng.randrange(6)  # in order now and then: also duplicates and gaps
    records = batch(b"v", producer=(rng.choice((7, 8)), rng.choice((0, 0, 1)), sequence))
    request = produce_request("plain", records)
    request.topic_data[0].topic_id = stand_in("plain")
    return client.encode(request, rng.choice((9, 13)))[1]


def _bad(rng: random.Random, client: WireClient) -> bytes:
    records = bytearray(batch(b"some value"))
    match rng.randrange(4):
        case 0:
            records[rng.randrange(len(records))] ^= 1 << rng.randrange(8)
        case 1:
            del records[rng.randrange(len(records)) :]
        case 2:
            return client.encode(produce_request("unknown", bytes(records)), rng.choice((7, 13)))[1]
        case _:
            return client.encode(produce_request("plain", bytes(records), partition=9), 12)[1]
    return client.encode(produce_request("plain", bytes(records)), rng.choice((3, 8, 9)))[1]


def _other(rng: random.Random, client: WireClient) -> bytes:
    match rng.randrange(6):
        case 0:
            return client.encode(ApiVersionsRequest(), 0)[1]
        case 1:
            return client.encode(produce_request("plain", batch(b"v"), acks=0), 9)[1]
        case 4 | 5 as number:  # of a transaction that nobody has begun, or says so only
            records = encode_batch(
                [b"v"],
                timestamps_ms=1_700_000_000_000,
                producer_id=9,
                producer_epoch=0,
                base_sequence=rng.randrange(3),
                transactional=number == 4,
            )
            request = produce_request("plain", records)
            request.transactional_id = rng.choice(("unknown", None))
            return client.encode(request, rng.choice((8, 9, 12)))[1]
        case 2:
            name, client.client_id = client.client_id, rng.choice(("x", None, "test"))
            frame = _plain(rng, client)
            client.client_id = name
            return frame
        case _:
            parts = [ProduceRequestPartition(index=n, records=batch(b"v")) for n in (0, 1)]
            topic = ProduceRequestTopic(name="plain", partition_data=parts)
            request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
            return client.encode(request, 9)[1]


def _stream(seed: int, client: WireClient) -> list[bytes]:
    """The frames of a producer that does everything, most often the usual."""
    rng = random.Random(seed)
    kinds: list[Ask] = [*[_plain] * 12, *[_tracked] * 3, _bad, _other]
    if seed % 3 == 0:
        kinds = [*[_plain] * 6, *[_bad] * 2, *[_other] * 2]
    return [rng.choice(kinds)(rng, client) for _ in range(150)]


async def _answers(seed: int, *, is_express: bool) -> tuple[bytes, list[bytes], list[int], int]:
    """(every byte of the replies, every byte of the logs, what the broker counted, requests that
    went the express way)."""
    rng = random.Random(-seed)
    async with (
        serving(express=is_express, now_ms=lambda: 1_700_000_000_000) as broker,
        connect(broker.address) as admin,
        connect(broker.address) as producer,
    ):
        for name, config in TOPICS.items():
            await admin.create(name, partitions=2, **config)
            for partition in (0, 1):
                await admin.fetch(name, 0, partition=partition)
        await producer.produce("plain", b"first")
        await trio.testing.wait_all_tasks_blocked()
        begin = producer.encode(produce_request("plain", batch(b"v")), 9)[1]
        frames = _stream(seed, producer)
        last = producer.encode(MetadataRequest(topics=[]), 1)[1]
        data = b"".join(frames)
        ids = {stand_in(name): broker.core.topics.all[name].topic_id for name in TOPICS}
        for stand, own in ids.items():
            data = data.replace(stand.bytes, own.bytes)

        async def send() -> None:
            place = 0
            await producer.send_bytes(begin)
            await trio.testing.wait_all_tasks_blocked()
            while place < len(data):
                size = rng.choice((1, 7, 100, 1_000, 5_000))
                await producer.send_bytes(data[place : place + size])
                place += size
                if rng.random() < 0.3:
                    await trio.sleep(0.001)  # the rest comes in a receive of its own
            await producer.send_bytes(last)

        replies = b""
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                # Metadata names the port: it ends the conversation, and is not compared.
                while len(frame := await producer.receive_frame()):
                    if int.from_bytes(frame[:4], "big") == _correlation(last):
                        break
                    replies += len(frame).to_bytes(4, "big") + frame
        for stand, own in ids.items():
            replies = replies.replace(own.bytes, stand.bytes)
        counters = broker.core.counters
        counted = [counters.requests, counters.produce_requests, counters.produced_bytes]
        logs = []
        for name in TOPICS:
            for partition in (0, 1):
                row = await admin.fetch(name, 0, partition=partition)
                logs.append(bytes(records_view(row.records or b"")))
        way = broker.express
        return replies, logs, counted, 0 if way is None else way.requests


def _correlation(frame: bytes) -> int:
    return int.from_bytes(frame[8:12], "big")


@pytest.mark.parametrize("seed", range(1, 9))
async def test_every_byte_is_the_same_both_ways(seed: int) -> None:
    replies, logs, counted, requests = await _answers(seed, is_express=True)
    expected, expected_logs, expected_counts, none = await _answers(seed, is_express=False)
    assert logs == expected_logs
    assert replies == expected
    assert counted == expected_counts
    assert none == 0
    assert requests > 0, "nothing went the express way"


async def test_connections_share_an_append_and_each_gets_its_own_answers() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as a,
        connect(broker.address, client_id=None) as b,
        connect(broker.address, client_id="c") as c,
    ):
        await a.create("t")
        for client in (a, b, c):
            await client.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        disk.syncs.clear()
        sent = {
            client: [await client.send(produce_request("t", batch(b"v")), 9) for _ in range(count)]
            for client, count in ((a, 3), (b, 1), (c, 5))
        }
        with trio.fail_after(60):
            while broker.core.ingest.unsynced_bytes < 9 * len(batch(b"v")):
                await trio.lowlevel.checkpoint()
            disk.syncs.set()
            offsets = []
            for client, wanted in sent.items():
                got = [await client.receive(ProduceResponse, 9) for _ in wanted]
                assert [correlation_id for correlation_id, _ in got] == wanted
                mine = [reply.responses[0].partition_responses[0].base_offset for _, reply in got]
                assert mine == sorted(mine)
                offsets += mine
        assert sorted(offsets) == list(range(3, 12))
        assert broker.express is not None
        assert broker.express.requests == 9


async def test_a_request_that_comes_in_pieces_is_answered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        _, frame = client.encode(produce_request("t", batch(b"x" * 300)), 9)
        for cut in range(1, len(frame), 37):
            await client.send_bytes(frame[:cut])
            await trio.testing.wait_all_tasks_blocked()
            await client.send_bytes(frame[cut:])
            with trio.fail_after(60):
                await client.receive(ProduceResponse, 9)


async def test_what_is_large_goes_the_general_way_and_comes_back() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for size in (10, 200_000, 10, 40_000, 10):
            row = await client.produce("t", b"x" * size)
            assert not row.error_code
        assert (await client.fetch("t", 0)).high_watermark == 5


async def test_whoever_brings_in_vain_what_is_not_for_here_stops_coming() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        for _ in range(seat.CREDIT_MAX + 5):
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        await client.produce("t", b"last")
        assert broker.express is not None
        assert broker.express.requests == 0


async def test_a_timeout_is_answered_for_every_request_of_a_run() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        disk.syncs.clear()
        request = produce_request("t", batch(b"v"), timeout_ms=30)
        for _ in range(3):
            await client.send(request, 9)
        with trio.fail_after(60):
            for _ in range(3):
                _, reply = await client.receive(ProduceResponse, 9)
                row = reply.responses[0].partition_responses[0]
                assert (row.error_code, row.base_offset) == (7, -1)
            assert len(broker.core.deadlines) == 0
            disk.syncs.set()
            while broker.core.ingest.unsynced_bytes:
                await trio.lowlevel.checkpoint()
        assert len(broker.core.deadlines) == 0, "it is settled a second time"
        assert (await client.fetch("t", 0)).high_watermark == 4


async def test_an_idle_parked_connection_is_drained() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        broker.drain()
        with trio.fail_after(60):
            assert await client.is_closed()


async def test_a_read_of_an_unsent_reply_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(slots_max=4) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        _, frame = client.encode(produce_request("t", batch(b"v")), 9)
        await client.send_bytes(frame * 50)  # more than it may have unanswered
        with trio.fail_after(60):
            for _ in range(50):
                await client.receive(ProduceResponse, 9)
        assert (await client.fetch("t", 0)).high_watermark == 51


async def test_a_bug_on_the_express_way_closes_those_it_met_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await client.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()

        def fails(*_: object) -> None:
            raise ZeroDivisionError

        assert broker.express is not None
        monkeypatch.setattr(produce_run.Run, "append", fails)
        await client.send(produce_request("t", batch(b"v")), 9)
        with trio.fail_after(60):
            assert await client.is_closed()
        monkeypatch.undo()
        assert (await other.fetch("t", 0)).high_watermark == 1
        await other.produce("t", b"goes on")
        assert broker.core.counters.connections_failed == 1


@pytest.mark.parametrize("durability", ["fsync", "disk"])
async def test_fetches_that_wait_are_woken_by_a_run(durability: str) -> None:
    async with (
        serving() as broker,
        connect(broker.address) as producer,
        connect(broker.address) as consumer,
    ):
        await producer.create("t", durability=durability)
        await producer.produce("t", b"first")
        await consumer.send(fetch_request("t", 1, wait_ms=600_000, min_bytes=1), 12)
        await trio.testing.wait_all_tasks_blocked()
        await producer.produce("t", b"second")
        with trio.fail_after(60):
            await consumer.receive_frame()
