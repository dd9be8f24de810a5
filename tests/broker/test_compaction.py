"""A compacted topic over the wire: what is refused, what the cleaner does, how it is told."""

from typing import Any, cast

import pytest
import trio

from segbroker.cli.broker_status import concerns
from segbroker.client import AsyncAdmin, UnknownTopicOrPartition
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from segbroker.protocol.record_batch import decode_batch, encode_batch, iter_batches
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.directory.cleaner import Cleaner

from ..support.wire_client import WireClient, connect, produce_request
from .conftest import serving

DEADLINE_SECONDS = 120
COMPACT: Any = {
    "cleanup_policy": "compact",
    "segment_bytes": "512",
    "min_cleanable_dirty_ratio": "0.01",
}


def keyed(*pairs: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(
        [value for _, value in pairs],
        keys=[key for key, _ in pairs],
        timestamps_ms=1_700_000_000_000,
        codec=codec,
    )


async def put(client: WireClient, records: bytes, version: int = 9) -> ProduceResponsePartition:
    reply = await client.ask(produce_request("t", records), ProduceResponse, version)
    return reply.responses[0].partition_responses[0]


async def read_all(client: WireClient) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record, read as a client reads."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset = 0
    while True:
        row = await client.fetch("t", offset)
        assert row.error_code == 0
        batches = [decode_batch(batch) for batch in iter_batches(cast(bytes, row.records or b""))]
        if not batches:
            return found
        for batch in batches:
            found += [(one.offset, one.key, one.value) for one in batch.records()]
            offset = batch.header.next_offset


async def cleaned(client: WireClient, most: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """What is there when no more than so many records are left."""
    with trio.fail_after(DEADLINE_SECONDS):
        while len(found := await read_all(client)) > most:  # noqa: ASYNC110 - the broker's own time
            await trio.sleep(0.05)
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("shape", ["one partition", "several"])
async def test_a_record_without_a_key_is_refused_with_its_place(codec: Codec, shape: str) -> None:
    records = keyed((b"a", b"1"), (None, b"2"), (b"b", b"3"), (None, None), codec=codec)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", **COMPACT)
        request = produce_request("t", records)
        if shape == "several":
            rows = [ProduceRequestPartition(index=0, records=records)]
            topic = ProduceRequestTopic(name="t", partition_data=rows)
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic, topic])
        reply = await client.ask(request, ProduceResponse, 9)
        for response in reply.responses:
            (row,) = response.partition_responses
            assert row.error_code == ErrorCode.INVALID_RECORD
            assert [one.batch_index for one in row.record_errors] == [1, 3]
            assert "key" in (row.error_message or "")
        assert await read_all(client) == []


async def test_an_old_client_is_told_the_code_alone() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", **COMPACT)
        row = await put(client, keyed((None, b"1")), version=7)
        assert (row.error_code, row.record_errors) == (ErrorCode.INVALID_RECORD, [])


async def test_what_cannot_be_opened_is_no_record_of_a_compacted_topic() -> None:
    records = bytearray(keyed((b"a", bytes(1_000)), codec=Codec.ZSTD))
    records[70:80] = bytes(10)
    records[17:21] = crc_of(records)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", **COMPACT)
        assert (await put(client, bytes(records))).error_code == ErrorCode.INVALID_RECORD
        await client.create("u")
        reply = await client.ask(produce_request("u", bytes(records)), ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0


def crc_of(batch: bytearray) -> bytes:
    return crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


async def test_a_broker_cleans_by_itself_and_says_so() -> None:
    async with (
        serving(cleaner_backoff_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", **COMPACT)
        for n in range(60):
            assert (await put(client, keyed((b"k%d" % (n % 5), b"%d" % n)))).error_code == 0
        found = await cleaned(client, most=20)
        last = {key: value for _, key, value in found}
        assert last == {b"k%d" % n: b"%d" % (55 + n) for n in range(5)}
        assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)
        with trio.fail_after(DEADLINE_SECONDS):
            while True:  # it is counted after it can be read
                info: Any = await client.ask_vendor(VendorKey.SERVER_INFO, {})
                if info["cleaner"]["records_removed"] >= 40:
                    break
        assert info["cleaner"]["cleanings"] >= 1
        reply: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["t"]})
        (row,) = reply["topics"]["t"]["partitions"]
        assert row["clean_offset"] > 0
        assert row["cleaned_ms"] > 0
        assert row["log_start_offset"] == 0
        assert row["log_end_offset"] == 60


async def test_how_far_a_thousand_partitions_are_cleaned_is_told_in_pages() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=1_001, **COMPACT)
        host, port = broker.address
        async with AsyncAdmin(f"{host}:{port}") as admin:
            assert sorted(await admin.cleanings("t")) == [("t", index) for index in range(1_001)]
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'nope'"):
                await admin.cleanings("nope")


async def test_offsets_of_times_are_those_of_records_that_are_there() -> None:
    async with (
        serving(cleaner_backoff_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", **COMPACT)
        for n in range(60):
            await put(client, keyed((b"k%d" % (n % 5), b"%d" % n)))
        found = await cleaned(client, most=20)
        asked = ListOffsetsRequestPartition(
            partition_index=0, current_leader_epoch=-1, timestamp=1_700_000_000_000
        )
        topic = ListOffsetsRequestTopic(name="t", partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        reply = await client.ask(request, ListOffsetsResponse, 5)
        later = await read_all(client)  # it may have been cleaned once more
        assert found[0][0] <= reply.topics[0].partitions[0].offset <= later[0][0]


async def test_a_topic_that_becomes_compacted_is_cleaned_from_then_on() -> None:
    async with (
        serving(cleaner_backoff_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", segment_bytes="512")
        for n in range(40):
            await put(client, keyed((None, b"%d" % n)))
        manager = broker.core.topics.manager
        overrides = {"segment.bytes": "512", **{k.replace("_", "."): v for k, v in COMPACT.items()}}
        await trio.to_thread.run_sync(manager.alter_topic, "t", overrides)
        for n in range(10):
            await put(client, keyed((b"k", b"%d" % n)))
        await cleaned(client, most=12)


async def test_the_cleaner_can_be_told_to_wait() -> None:
    async with (
        serving(cleaner_backoff_ms=10, cleaner_enable=False) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", **COMPACT)
        for n in range(40):
            await put(client, keyed((b"k", b"%d" % n)))
        await trio.to_thread.run_sync(broker.core.topics.manager.keep_house_now, 1_700_000_000_000)
        assert len(await read_all(client)) == 40
        assert broker.core.cleaner.statistics.cleanings == 0


async def test_a_cleaning_that_a_deletion_ends_is_no_problem_of_the_broker() -> None:
    async with serving(cleaner_enable=False) as broker, connect(broker.address) as client:
        await client.create("t", **COMPACT)
        for n in range(40):
            await put(client, keyed((b"k", b"%d" % n)))
        now_ms, manager = broker.core.now_ms(), broker.core.topics.manager
        await trio.to_thread.run_sync(manager.keep_house_now, now_ms)
        cleaner = Cleaner(manager, 1_024, 1 << 20, 0)
        broker.core.cleaner = cleaner  # told of each millisecond here
        while not cleaner.statistics.bytes_read:
            now_ms += 1
            cleaner.step(now_ms)
        assert cleaner.is_running
        host, port = broker.address
        async with AsyncAdmin(f"{host}:{port}") as admin:
            await admin.delete_topic("t")
            while cleaner.is_running:
                now_ms += 1_000
                cleaner.step(now_ms)
            assert list(concerns(await admin.broker_status())) == []
