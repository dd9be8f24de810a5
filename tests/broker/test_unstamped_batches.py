"""A compressed batch whose header does not say its greatest timestamp: the broker looks it up.

Sarama before 1.45.1 writes -1 there, whatever the records say.  Look-ups by time and retention go
by the header.
"""

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.producing import remaking
from segbroker.protocol.batch_header import write_crc
from segbroker.protocol.compression import Codec
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    decode_batch,
    encode_batch,
    read_header,
)
from segbroker.protocol.schema import records_view

from ..support.wire_client import WireClient, connect, produce_request, values
from .conftest import serving

COMPRESSED = [codec for codec in Codec if codec]
VALUES = [b"a", b"b", b"c"]
TIMES_MS = [5, 9, 7]


def unstamped(codec: Codec, *, says_ms: int = -1, junk: bytes = b"", sequence: int = -1) -> bytes:
    """A batch whose greatest timestamp is 9; its header says another one.  junk: what it has in
    the place of its records.  sequence: that of an idempotent producer."""
    known = sequence >= 0
    whole = encode_batch(
        VALUES,
        timestamps_ms=TIMES_MS,
        codec=codec,
        producer_id=3 if known else -1,
        producer_epoch=0 if known else -1,
        base_sequence=sequence,
    )
    batch = bytearray(whole[:HEADER_SIZE] + (junk or whole[HEADER_SIZE:]))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">q", batch, 35, says_ms)
    write_crc(batch)
    return bytes(batch)


@asynccontextmanager
async def topic(*, express: bool = True, **config: str) -> AsyncIterator[WireClient]:
    """A broker with topic t, and a client of it."""
    async with serving(express=express) as broker, connect(broker.address) as client:
        await client.create("t", 2, retention_ms="-1", **config)
        yield client


async def stored(client: WireClient, offset: int = 0) -> tuple[BatchHeader, list[bytes | None]]:
    """The first batch of partition 0 from an offset on, as it lies there."""
    row = await client.fetch("t", offset)
    assert row.error_code == 0
    return read_header(records_view(row.records)), values(row)


async def found(client: WireClient, timestamp_ms: int) -> tuple[int, int]:
    """The first record that is not older: its offset and timestamp."""
    row = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp_ms)
    asked = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestTopic(name="t", partitions=[row])]
    )
    reply = await client.ask(asked, ListOffsetsResponse, 7)
    told = reply.topics[0].partitions[0]
    assert told.error_code == 0
    return told.offset, told.timestamp


@pytest.mark.parametrize("express", [True, False])
@pytest.mark.parametrize("codec", COMPRESSED)
async def test_it_is_found_by_time(codec: Codec, express: bool) -> None:
    async with topic(express=express) as client:
        for _ in range(3):  # on the express way a connection is seated after its first request
            reply = await client.ask(produce_request("t", unstamped(codec)), ProduceResponse, 9)
            assert reply.responses[0].partition_responses[0].error_code == 0
        for offset in (0, 3, 6):
            header, _ = await stored(client, offset)
            assert (header.base_offset, header.max_timestamp) == (offset, 9)
        assert (await stored(client))[1] == VALUES * 3
        assert await found(client, 8) == (1, 9)
        assert await found(client, 10) == (-1, -1)
        assert await found(client, -3) == (1, 9)


@pytest.mark.parametrize("sequence", [-1, 0])
async def test_it_is_so_in_a_request_of_several_partitions(sequence: int) -> None:
    async with topic() as client:
        rows = [
            ProduceRequestPartition(index=n, records=unstamped(Codec.GZIP, sequence=sequence))
            for n in range(2)
        ]
        asked = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequestTopic(name="t", partition_data=rows)],
        )
        for _ in range(2):
            reply = await client.ask(asked, ProduceResponse, 9)
            told = reply.responses[0].partition_responses
            assert [row.error_code for row in told] == [0, 0]
        again = 0 if sequence == 0 else 3  # of an idempotent producer it is a repetition
        assert [row.base_offset for row in told] == [again, again]
        assert (await stored(client))[0].max_timestamp == 9


@pytest.mark.parametrize(("seconds", "visits"), [(600.0, 1), (-1.0, 50)], ids=["long", "short"])
async def test_those_of_a_request_share_their_visits_of_a_lane(
    seconds: float, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each visit costs more than to open a small batch."""
    monkeypatch.setattr(remaking, "VISIT_S", seconds)
    made = []
    compute = Lanes.compute

    async def counted(self: Lanes, function: Callable[[], object]) -> object:
        made.append(function)
        return await compute(self, function)

    monkeypatch.setattr(Lanes, "compute", counted)
    async with topic() as client:
        sent = [unstamped(Codec.GZIP)] * 50
        sent[7] = unstamped(Codec.GZIP, junk=b"no compression")
        sent[9] = unstamped(Codec.GZIP, says_ms=7)  # says enough, and is not opened
        sent.append(unstamped(Codec.GZIP))
        rows = [ProduceRequestPartition(index=0, records=one) for one in sent]
        asked = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequestTopic(name="t", partition_data=rows)],
        )
        reply = await client.ask(asked, ProduceResponse, 9)
        told = reply.responses[0].partition_responses
        assert [(row.error_code, row.base_offset) for row in told] == [
            (0, 3 * n) for n in range(51)
        ]
        assert len(made) == visits
        said = []
        for n in range(51):
            row = await client.fetch("t", 3 * n)
            said.append(read_header(records_view(row.records)).max_timestamp)
        assert said == [9] * 7 + [-1, 9, 7] + [9] * 41


async def test_a_topic_that_wants_another_codec_has_it_too() -> None:
    async with topic(compression_type="zstd") as client:
        for codec in (Codec.GZIP, Codec.ZSTD):
            await client.ask(produce_request("t", unstamped(codec)), ProduceResponse, 9)
        for offset in (0, 3):
            header, _ = await stored(client, offset)
            assert (header.codec, header.max_timestamp) == (Codec.ZSTD, 9)


async def test_one_that_cannot_be_opened_is_stored_as_it_came() -> None:
    async with topic() as client:
        sent = unstamped(Codec.GZIP, junk=b"no compression")
        reply = await client.ask(produce_request("t", sent), ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        row = await client.fetch("t", 0)
        assert bytes(records_view(row.records))[HEADER_SIZE:] == sent[HEADER_SIZE:]
        assert read_header(records_view(row.records)).max_timestamp == -1


async def test_where_the_broker_stamps_it_is_not_opened() -> None:
    async with topic(message_timestamp_type="LogAppendTime") as client:
        sent = unstamped(Codec.GZIP)
        await client.ask(produce_request("t", sent), ProduceResponse, 9)
        row = await client.fetch("t", 0)
        batch = decode_batch(records_view(row.records))
        assert batch.header.is_log_append_time
        assert batch.header.max_timestamp > 9


async def test_one_that_says_at_least_its_first_timestamp_is_stored_as_it_came() -> None:
    async with topic() as client:
        sent = unstamped(Codec.GZIP, says_ms=5)
        await client.ask(produce_request("t", sent), ProduceResponse, 9)
        assert (await stored(client))[0].max_timestamp == 5


async def test_it_goes_when_it_is_too_old() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", retention_ms="1000")
        await client.ask(produce_request("t", unstamped(Codec.GZIP)), ProduceResponse, 9)
        manager = broker.core.topics.manager
        # The time at which this clock is first believed (conftest.manager).
        await broker.core.lanes.run(manager.keep_house_now, 1_700_000_000_000)
        assert (await client.fetch("t", 0)).log_start_offset == 3
