"""Long polls: woken by the append, ended by their deadline, never early, never forgotten."""

from functools import partial

import pytest
import trio

from segbroker.broker.fetching.fetch import FetchSlot
from segbroker.broker.peers import unanswered
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from segbroker.segments.disk.memory import MemoryStorage

from ..support.waiting import becomes
from ..support.wire_client import Closed, batch, connect, fetch_request, values
from .conftest import Events, serving


async def test_a_waiting_fetch_is_woken_by_the_append() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t")
        await a.send(fetch_request("t", 0, wait_ms=600_000), 12)
        await b.produce("t", b"v")
        with trio.fail_after(60):
            _, reply = await a.receive(FetchResponse, 12)
        assert values(reply.responses[0].partitions[0]) == [b"v"]


async def test_every_waiting_fetch_of_a_partition_is_woken() -> None:
    async with (
        serving() as broker,
        trio.open_nursery() as nursery,
        connect(broker.address) as client,
    ):
        await client.create("t")

        async def reader() -> None:
            async with connect(broker.address) as reading:
                assert values(await reading.fetch("t", 0, wait_ms=600_000)) == [b"v"]

        for _ in range(40):
            nursery.start_soon(reader)
        while len(broker.core.deadlines) < 40:
            await trio.lowlevel.checkpoint()
        await client.produce("t", b"v")


def _are_waiting(broker: Broker, count: int) -> bool:
    return len(broker.core.deadlines) == count


async def test_who_waits_in_a_topic_that_goes_hears_of_it_whatever_becomes_of_another(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    ended: list[FetchSlot] = []
    complete = FetchSlot.complete

    def fails_first(slot: FetchSlot) -> None:
        ended.append(slot)
        if len(ended) == 1:
            raise MemoryError
        complete(slot)

    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await client.create("t")
        for waiting, reader in enumerate((a, b), 1):
            await reader.send(fetch_request("t", 0, wait_ms=600_000), 12)
            await becomes(partial(_are_waiting, broker, waiting))
        monkeypatch.setattr(FetchSlot, "complete", fails_first)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        reply = await client.ask(request, DeleteTopicsResponse, 4)
        assert reply.responses[0].error_code == 0
        with trio.fail_after(60):
            await b.receive(FetchResponse, 12)
    assert len(events.named("fetch_not_ended")) == 1


async def test_without_records_the_wait_ends_with_an_empty_reply() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        began = trio.current_time()
        row = await client.fetch("t", 0, wait_ms=150)
        assert trio.current_time() - began >= 0.149
        assert (row.error_code, values(row), row.high_watermark) == (0, [], 0)
        assert len(broker.core.deadlines) == 0


async def test_who_wants_no_bytes_does_not_wait() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        with trio.fail_after(60):
            row = await client.fetch("t", 0, wait_ms=600_000, min_bytes=0)
        assert (row.error_code, values(row)) == (0, [])


async def test_fewer_than_min_bytes_wait_on() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t")
        await b.produce("t", b"one")
        await a.send(fetch_request("t", 0, wait_ms=600_000, min_bytes=len(batch(b"one")) + 1), 12)
        while len(broker.core.deadlines) < 1:
            await trio.lowlevel.checkpoint()
        await b.produce("t", b"two")
        with trio.fail_after(60):
            _, reply = await a.receive(FetchResponse, 12)
        assert values(reply.responses[0].partitions[0]) == [b"one", b"two"]


async def test_min_bytes_may_come_from_several_partitions() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t", partitions=3)
        request = fetch_request("t", 0, wait_ms=600_000, min_bytes=3 * len(batch(b"v")))
        first = request.topics[0].partitions[0]
        request.topics[0].partitions = [
            FetchRequestPartition(
                partition=index, fetch_offset=0, partition_max_bytes=first.partition_max_bytes
            )
            for index in range(3)
        ]
        await a.send(request, 12)
        while len(broker.core.deadlines) < 1:
            await trio.lowlevel.checkpoint()
        for index in (2, 0, 2):  # two of one, and one of another
            assert len(broker.core.deadlines) == 1
            await b.produce("t", b"v", partition=index)
        with trio.fail_after(60):
            _, reply = await a.receive(FetchResponse, 12)
        rows = {row.partition_index: values(row) for row in reply.responses[0].partitions}
        assert rows == {0: [b"v"], 1: [], 2: [b"v", b"v"]}


@pytest.mark.parametrize("of", ["the partition", "the reply"])
async def test_what_whole_batches_leave_of_a_limit_is_not_waited_for(of: str) -> None:
    size, limit = len(batch(bytes(300))), 1_000
    assert limit % size
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(1 + limit // size):
            await client.produce("t", bytes(300))
        limits = {"partition_max_bytes" if of == "the partition" else "max_bytes": limit}
        request = fetch_request("t", 0, wait_ms=600_000, min_bytes=limit, **limits)
        with trio.fail_after(60):
            reply = await client.ask(request, FetchResponse, 12)
        assert values(reply.responses[0].partitions[0]) == [bytes(300)] * (limit // size)


async def test_what_lies_in_further_segments_is_not_waited_for() -> None:
    """The index of a sealed segment is not loaded before it is read for the first time."""
    storage, value = MemoryStorage(), bytes(1_500)
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes=str(1 << 14), max_message_bytes=str(1 << 13))
        for _ in range(30):
            await client.produce("t", value)
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        request = fetch_request("t", 0, wait_ms=600_000, min_bytes=20 * len(value))
        with trio.fail_after(60):
            reply = await client.ask(request, FetchResponse, 12)
        assert values(reply.responses[0].partitions[0])[0] == value


@pytest.mark.parametrize(
    ("offset", "code"),
    [(1, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)],
)
async def test_an_offset_outside_the_log_is_answered_at_once(offset: int, code: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        with trio.fail_after(60):
            assert (await client.fetch("t", offset, wait_ms=600_000)).error_code == code


async def test_one_bad_partition_answers_for_all() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        request = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            topics=[
                FetchRequestTopic(
                    topic="t",
                    partitions=[
                        FetchRequestPartition(
                            partition=index, fetch_offset=0, partition_max_bytes=1000
                        )
                        for index in (0, 7, 1)
                    ],
                )
            ],
        )
        with trio.fail_after(60):
            reply = await client.ask(request, FetchResponse, 12)
        rows = reply.responses[0].partitions
        assert [(row.partition_index, row.error_code) for row in rows] == [(0, 0), (7, 3), (1, 0)]


async def test_the_first_batch_comes_even_above_every_limit_and_batches_are_whole() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"x" * 10_000)
        await client.produce("t", b"y" * 10_000)
        request = fetch_request("t", 0, max_bytes=1, partition_max_bytes=1)
        reply = await client.ask(request, FetchResponse, 12)
        assert values(reply.responses[0].partitions[0]) == [b"x" * 10_000]


async def test_the_batch_around_an_offset_is_sent_whole() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b", b"c")
        assert values(await client.fetch("t", 1)) == [b"a", b"b", b"c"]


async def test_a_reader_that_went_away_leaves_nothing_behind() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        async with connect(broker.address) as reader:
            await reader.send(fetch_request("t", 0, wait_ms=600_000), 12)
            while len(broker.core.deadlines) < 1:
                await trio.lowlevel.checkpoint()
        while broker.connections > 1:
            await trio.lowlevel.checkpoint()
        assert len(broker.core.deadlines) == 0
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        assert partition.fetches == {}
        await client.produce("t", b"v")


@pytest.mark.parametrize(("isolation", "aborted"), [(0, None), (1, [])])
async def test_aborted_transactions_are_null_unless_read_committed(
    isolation: int, aborted: list[object] | None
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = fetch_request("t", 0, isolation_level=isolation)
        reply = await client.ask(request, FetchResponse, 12)
        assert reply.responses[0].partitions[0].aborted_transactions == aborted


def fetch_of(topic: str, count: int) -> FetchRequest:
    """One that waits for records in so many partitions."""
    request = fetch_request(topic, 0, wait_ms=600_000)
    request.topics[0].partitions = [
        FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(count)
    ]
    return request


async def test_of_all_that_waits_for_too_many_partitions_the_heaviest_gives_way(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the address that has most of them, the connection that has most."""
    monkeypatch.setattr(unanswered, "PARTITIONS_ALL_MAX", 100)
    async with (
        serving() as broker,
        connect(broker.address) as writer,
        connect(broker.address) as honest,
        connect(broker.address, source="127.0.0.2") as first,
        connect(broker.address, source="127.0.0.2") as heavy,
        connect(broker.address, source="127.0.0.2") as last,
    ):
        await writer.create("t", 50)
        held = broker.core.unanswered
        for client, count, all_of_them in (
            (honest, 45, 45),
            (first, 15, 60),
            (heavy, 20, 80),
            (heavy, 5, 85),
            (last, 15, 100),
            (last, 1, 45 + 15 + 16),
        ):
            await client.send(fetch_of("t", count), 12)
            await becomes(partial(lambda wanted: held.count == wanted, all_of_them))
        (line,) = events.named("unserved_request")
        host, port = heavy.stream.socket.getsockname()
        assert line["peer"] == f"{host}:{port}"
        with pytest.raises(Closed):
            await heavy.receive(FetchResponse, 12)
        await writer.produce("t", b"v")
        for client in (honest, first, last):
            _, reply = await client.receive(FetchResponse, 12)
            assert values(reply.responses[0].partitions[0]) == [b"v"]
        await becomes(lambda: not held.count)


async def test_who_alone_has_too_many_unanswered_partitions_waits_for_none_of_them(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unanswered, "PARTITIONS_ALL_MAX", 100)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 60)
        for _ in range(2):
            await client.send(fetch_of("t", 60), 12)
        await becomes(lambda: bool(events.named("unserved_request")))
        await becomes(lambda: not broker._connections)
        assert not broker.core.unanswered.count
        assert not len(broker.core.deadlines)
