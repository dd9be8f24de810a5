"""compression.type: what comes otherwise is compressed anew, and nothing else of it changes."""

import gzip
from collections.abc import Callable
from typing import Any

import pytest
import trio

from segbroker.broker.loop.ingest import SLACK_BYTES
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.producing import produce, remaking
from segbroker.protocol.batch_header import write_crc
from segbroker.protocol.compression import Codec, compress
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from segbroker.protocol.record_batch import (
    HEADER_SIZE,
    BatchFault,
    InvalidBatch,
    check_batch,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
    recompress,
)
from segbroker.protocol.schema import records_view
from segbroker.segments.errors import PartitionReadOnly

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect, produce_request, values
from ..support.wire_settings import alter_all
from ..support.wire_transactions import V2, Tx, read
from .conftest import NOT_BY_ITSELF_MS, serving

TOPIC = 2
TEXT = b"the quick brown fox jumps over the lazy dog; " * 40
VALUES = [TEXT, None, b"", TEXT[::-1]]
HEADERS = [[("h", b"v")], None, [("a", None), ("b", b"")], None]
TARGETS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def made(codec: Codec, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch with everything in it."""
    return encode_batch(
        VALUES,
        timestamps_ms=[5, 7, 3, 9],
        keys=[b"k", None, b"", TEXT],
        headers=HEADERS,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


def damaged(codec: Codec, content: bytes) -> bytes:
    """A batch that says that `content` is compressed by `codec`; its header and CRC are right."""
    whole = encode_batch([b"v"], timestamps_ms=1, codec=codec)
    batch = bytearray(whole[:HEADER_SIZE] + content)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch)
    return bytes(batch)


async def stored(client: WireClient, topic: str = "t", offset: int = 0) -> list[memoryview]:
    """The batches of partition 0 as they lie there."""
    row = await client.fetch(topic, offset)
    assert row.error_code == 0
    return list(iter_batches(records_view(row.records)))


async def send(client: WireClient, records: bytes, *, version: int = 9) -> ProduceResponsePartition:
    reply = await client.ask(produce_request("t", records), ProduceResponse, version)
    return reply.responses[0].partition_responses[0]


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_all_but_the_codec_stays(source: Codec, target: Codec) -> None:
    before = made(source, producer=(7, 3, 11))
    after = recompress(before, target)
    check_batch(after)
    old, new = decode_batch(before), decode_batch(after)
    assert new.header.codec is target
    assert list(new) == list(old)
    assert new.header == old.header._replace(
        batch_length=len(after) - 12,
        crc=new.header.crc,
        attributes=old.header.attributes & ~7 | target,
    )


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_level_is_that_of_the_codec(codec: Codec, level: int) -> None:
    batch = made(Codec.NONE)
    records = memoryview(batch)[HEADER_SIZE:]
    assert recompress(batch, codec, level)[HEADER_SIZE:] == compress(codec, records, level)
    assert compress(codec, records, 1) != compress(codec, records, 9)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_is_not_what_its_codec_says_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidBatch) as caught:
        recompress(damaged(codec, b"no compression at all"), Codec.NONE)
    assert caught.value.fault is BatchFault.INVALID_COMPRESSION


def test_what_is_too_large_when_it_is_opened_is_refused() -> None:
    batch = encode_batch([bytes(1 << 20)], timestamps_ms=0, codec=Codec.ZSTD)
    with pytest.raises(InvalidBatch) as caught:
        recompress(batch, Codec.GZIP, size_max=1 << 20)
    assert caught.value.fault is BatchFault.TOO_LARGE


@pytest.mark.parametrize("target", TARGETS)
async def test_what_comes_otherwise_is_stored_as_the_topic_wants_it(target: str) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type=target)
        for place, codec in enumerate(Codec):
            row = await send(client, made(codec))
            assert (row.error_code, row.base_offset) == (0, 4 * place)
        batches = await stored(client)
        assert [read_header(batch).codec for batch in batches] == [TARGETS[target]] * len(Codec)
        for place, batch in enumerate(batches):
            check_batch(batch)
            records = [
                record._replace(offset=record.offset - 4 * place) for record in decode_batch(batch)
            ]
            assert records == list(decode_batch(made(Codec.NONE)))


async def test_what_the_topic_wants_is_stored_byte_by_byte() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip", compression_gzip_level="9")
        sent = made(Codec.GZIP)
        assert (await send(client, sent)).error_code == 0
        (batch,) = await stored(client)
        assert batch[HEADER_SIZE:] == sent[HEADER_SIZE:]


async def test_the_level_of_the_topic_counts() -> None:
    async with serving() as broker, connect(broker.address) as client:
        sizes = []
        for level in ("1", "9"):
            await client.create(f"t{level}", compression_type="gzip", compression_gzip_level=level)
            request = produce_request(f"t{level}", made(Codec.NONE))
            await client.ask(request, ProduceResponse, 9)
            (batch,) = await stored(client, f"t{level}")
            plain = memoryview(made(Codec.NONE))[HEADER_SIZE:]
            assert batch[HEADER_SIZE:] == compress(Codec.GZIP, plain, int(level))
            assert gzip.decompress(batch[HEADER_SIZE:]) == plain
            sizes.append(len(batch))
        assert sizes[0] > sizes[1]


async def test_every_batch_of_a_request_is_compressed_as_its_topic_wants_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 2, compression_type="zstd")
        await client.create("plain", 1)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceRequestTopic(
                    name=name,
                    partition_data=[
                        ProduceRequestPartition(index=index, records=records)
                        for index, records in enumerate(batches)
                    ],
                )
                for name, batches in (
                    ("t", [made(Codec.LZ4), damaged(Codec.GZIP, b"none")]),
                    ("plain", [made(Codec.LZ4)]),
                )
            ],
        )
        reply = await client.ask(request, ProduceResponse, 9)
        rows = [row for topic in reply.responses for row in topic.partition_responses]
        assert [row.error_code for row in rows] == [0, ErrorCode.INVALID_RECORD, 0]
        assert rows[1].base_offset == -1
        assert [read_header(batch).codec for batch in await stored(client)] == [Codec.ZSTD]
        assert [read_header(batch).codec for batch in await stored(client, "plain")] == [Codec.LZ4]
        assert (await client.fetch("t", 0, partition=1)).high_watermark == 0


async def test_what_cannot_be_opened_is_refused_and_the_connection_goes_on() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="lz4")
        row = await send(client, damaged(Codec.ZSTD, b"none"))
        assert row.error_code == ErrorCode.INVALID_RECORD
        large = encode_batch([bytes(17 << 20)], timestamps_ms=0, codec=Codec.ZSTD)
        assert (await send(client, large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await send(client, made(Codec.NONE))).base_offset == 0


@pytest.mark.parametrize("is_general", [False, True], ids=["one batch", "two topics"])
@pytest.mark.parametrize(
    ("version", "acks", "partition", "code"),
    [
        (2, -1, 0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (9, 2, 0, ErrorCode.INVALID_REQUIRED_ACKS),
        (9, -1, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_may_not_be_appended_anyway_is_not_opened(
    version: int, acks: int, partition: int, code: ErrorCode, is_general: bool
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip")
        records = damaged(Codec.LZ4, b"no compression at all")
        request = produce_request("t", records, acks=acks, partition=partition)
        if is_general:
            request.topic_data += produce_request("u", records).topic_data
        reply = await client.ask(request, ProduceResponse, version)
        assert reply.responses[0].partition_responses[0].error_code == code


async def test_nothing_is_opened_while_the_disk_is_too_far_behind() -> None:
    disk, limit = GatedStorage(), 1 << 16
    async with (
        serving(storage=disk, ingest_bytes_max=limit) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t", compression_type="gzip")
        await client.create("plain", max_message_bytes=str(2 << 20))
        for topic in ("t", "plain"):
            await client.fetch(topic, 0)  # opening syncs too
        disk.syncs.clear()
        large = encode_batch([bytes(2 * limit + SLACK_BYTES)], timestamps_ms=0)
        await other.send(produce_request("plain", large), 9)
        while not broker.core.ingest.throttle_time_ms:
            await trio.lowlevel.checkpoint()
        row = await send(client, damaged(Codec.ZSTD, b"none"))
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        disk.syncs.set()


async def test_a_batch_is_opened_when_those_before_it_in_its_request_are_appended() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, ingest_bytes_max=1 << 16) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", compression_type="uncompressed")
        await client.fetch("t", 0)  # opening syncs too
        disk.syncs.clear()
        large = encode_batch([bytes(1_000_000)], timestamps_ms=0, codec=Codec.ZSTD)
        assert len(large) < 200
        rows = [*[large] * 3, damaged(Codec.ZSTD, b"none")]
        request = produce_request("t", b"", timeout_ms=1)
        request.topic_data[0].partition_data = [
            ProduceRequestPartition(index=0, records=records) for records in rows
        ]
        reply = await client.ask(request, ProduceResponse, 9)
        codes = [row.error_code for row in reply.responses[0].partition_responses]
        appended, not_opened = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS
        assert codes == [appended, appended, not_opened, not_opened]
        disk.syncs.set()


@pytest.mark.parametrize(
    ("seconds", "size_max", "visits"),
    [(600.0, 1 << 30, 1), (-1.0, 1 << 30, 50), (600.0, 0, 50)],
    ids=["many", "each takes long", "each is large"],
)
async def test_batches_of_a_request_share_their_visits_of_a_lane(
    seconds: float, size_max: int, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remaking, "VISIT_S", seconds)
    monkeypatch.setattr(remaking, "MADE_SIZE_MAX", size_max)
    compute, visited = Lanes.compute, 0

    async def counted(self: Lanes, function: Callable[[], object]) -> object:
        nonlocal visited
        visited += 1
        return await compute(self, function)

    monkeypatch.setattr(Lanes, "compute", counted)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip")
        await client.create("plain")
        rows = [
            ProduceRequestPartition(index=0, records=encode_batch([b"%d" % n], timestamps_ms=n))
            for n in range(52)
        ]
        rows[7].records = encode_batch([b"7"], timestamps_ms=7, codec=Codec.GZIP)
        rows[9].records = damaged(Codec.ZSTD, b"none")
        rows[11].records = encode_batch([b"11"], timestamps_ms=11, codec=Codec.GZIP)
        request = produce_request("t", b"")
        request.topic_data[0].partition_data = rows
        request.topic_data += produce_request("plain", made(Codec.NONE)).topic_data
        reply = await client.ask(request, ProduceResponse, 9)
        told, (plain,) = (one.partition_responses for one in reply.responses)
        assert [row.error_code for row in told] == [
            ErrorCode.INVALID_RECORD if n == 9 else 0 for n in range(52)
        ]
        assert [row.base_offset for row in told if not row.error_code] == list(range(51))
        assert plain.error_code == 0
        assert visited == visits
        assert {read_header(one).codec for one in await stored(client)} == {Codec.GZIP}
        assert values(await client.fetch("t", 0)) == [b"%d" % n for n in range(52) if n != 9]


async def test_what_comes_uncompressed_is_checked_as_everywhere() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip")
        nonsense = bytearray(made(Codec.NONE))
        nonsense[HEADER_SIZE] ^= 2  # the length of the first record
        write_crc(nonsense)
        assert (await send(client, bytes(nonsense))).error_code == ErrorCode.INVALID_RECORD
        ahead = bytearray(made(Codec.NONE))
        ahead[35:43] = (1 << 40).to_bytes(8, "big")  # the greatest timestamp, as its producer says
        write_crc(ahead)
        assert (await send(client, bytes(ahead))).base_offset == 0
        (batch,) = await stored(client)
        assert read_header(batch).max_timestamp == 9


async def test_what_is_too_large_without_compression_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="uncompressed", max_message_bytes="2000")
        large = encode_batch([bytes(1_999)], timestamps_ms=0, codec=Codec.GZIP)
        assert (await send(client, large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        small = encode_batch([bytes(1_900)], timestamps_ms=0, codec=Codec.GZIP)
        assert (await send(client, small)).error_code == 0


async def test_zstd_of_a_version_that_does_not_know_it_is_refused_though_it_would_not_stay() -> (
    None
):
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip")
        row = await send(client, made(Codec.ZSTD), version=6)
        assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await send(client, made(Codec.LZ4), version=6)).error_code == 0


async def test_who_does_not_know_zstd_writes_to_a_topic_that_wants_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="zstd")
        assert (await send(client, made(Codec.NONE), version=6)).error_code == 0
        row = await send(client, made(Codec.ZSTD), version=6)
        assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        two = produce_request("t", made(Codec.NONE))
        two.topic_data.append(produce_request("t", made(Codec.GZIP)).topic_data[0])
        reply = await client.ask(two, ProduceResponse, 6)
        assert [topic.partition_responses[0].error_code for topic in reply.responses] == [0, 0]


async def test_batches_of_a_producer_keep_their_order_and_repetitions_are_known() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", compression_type="gzip")
        sent = [made(Codec.NONE, producer=(5, 0, 4 * n)) for n in range(6)]
        for one in sent:
            await client.send(produce_request("t", one), 9)
        for n in range(6):
            _, reply = await client.receive(ProduceResponse, 9)
            row = reply.responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, 4 * n)
        again = await send(client, sent[5])
        assert (again.error_code, again.base_offset) == (0, 20)
        assert [read_header(one).base_sequence for one in await stored(client)] == list(
            range(0, 24, 4)
        )


async def test_a_setting_that_changes_counts_from_the_next_batch_on() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(3):  # it is on its way to the express way by then
            assert (await send(client, made(Codec.NONE))).error_code == 0
        assert await alter_all(client, "t", {"compression.type": "zstd"}, kind=TOPIC) == (0, None)
        await send(client, made(Codec.NONE))
        assert await alter_all(client, "t", {"compression.type": None}, kind=TOPIC) == (0, None)
        assert await alter_all(client, "1", {"compression.type": "lz4"}) == (0, None)
        await send(client, made(Codec.NONE))
        assert await alter_all(client, "1", {"compression.type": None}) == (0, None)
        await send(client, made(Codec.NONE))
        codecs = [read_header(batch).codec for batch in await stored(client)]
        assert codecs == [*[Codec.NONE] * 3, Codec.ZSTD, Codec.LZ4, Codec.NONE]


async def test_a_batch_of_a_transaction_whose_last_one_ends_meanwhile_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partition could not be made part of it yet: that is no reason to abort."""
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", compression_type="gzip")
        await client.create("held")
        await client.produce("t", b"opened")
        tx = Tx(client, "tx", V2)
        assert await tx.init() == 0
        assert await tx.send("held", b"v") == 0
        handler = broker.core.topics.served["held", 0].handler
        handler.read_only = PartitionReadOnly("held", 0, "says the test")
        with monkeypatch.context() as patched:
            patched.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.01)
            assert await tx.end(commit=True) == 0

        async def ends_meanwhile(*args: Any) -> None:  # noqa: ANN401 - as it is called
            handler.read_only = None
            await broker.core.transactions.table.entries["tx"].completed.wait()
            await remaking.remake_rows(*args)

        monkeypatch.setattr(produce, "remake_rows", ends_meanwhile)
        assert await tx.send("t", b"w") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await tx.send("t", b"w") == 0
        assert await tx.end(commit=True) == 0
        assert values(await read(client, "t"))[:2] == [b"opened", b"w"]
