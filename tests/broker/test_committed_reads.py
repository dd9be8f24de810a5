"""What a reader of committed records costs: its reply is not looked through batch by batch in
Python, which would hold everybody else up; a megabyte holds fifteen thousand of them."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest

from segbroker.protocol.markers import Outcome
from segbroker.protocol.messages_core import (
    FetchResponsePartition,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch, iter_batches, read_header
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.partition.handler import DiskHandler, ReadPlan

from ..support.steps import calls_of_a_step
from ..support.wire_client import WireClient, connect, produce_request
from ..support.wire_transactions import NOW_MS, V1, Tx, aborted, read, until
from .conftest import serving

BATCHES = 4_000


async def _send_many(client: WireClient, tx: Tx) -> None:
    """A record in a batch each, in one request."""
    assert await tx.add("t", 0) == [0]
    batches = [
        encode_batch(
            [b"v"],
            timestamps_ms=NOW_MS,
            producer_id=tx.producer_id,
            producer_epoch=tx.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for sequence in range(BATCHES)
    ]
    request = produce_request("t", batches[0])
    request.transactional_id = tx.name
    request.topic_data[0].partition_data += [
        ProduceRequestPartition(index=0, records=one) for one in batches[1:]
    ]
    reply = await client.ask(request, ProduceResponse, 8)
    assert {row.error_code for row in reply.responses[0].partition_responses} == {0}


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
async def test_a_reply_of_thousands_of_batches_is_not_walked_through_in_python(
    commit: bool,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", V1)
        assert await tx.init() == 0
        await _send_many(client, tx)
        assert await tx.end(commit=commit) == 0
        # Behind what is read there is a range that was aborted: the reply is looked at for its end.
        later = Tx(client, "later", V1)
        assert await later.init() == 0
        assert await later.send("t", b"w") == 0
        assert await later.end(commit=False) == 0
        row, calls = await counted(lambda: read(client, "t"))
        of_all, calls_of_all = await counted(lambda: client.fetch("t", 0))
        assert row.records == of_all.records
        assert isinstance(row.records, bytes | memoryview)
        assert sum(1 for _ in iter_batches(row.records)) == BATCHES + 3
        own = [(tx.producer_id, 0)] if not commit else []
        assert aborted(row) == [*own, (later.producer_id, BATCHES + 1)]
        assert calls < calls_of_all + BATCHES, "a call for each batch, or more"


async def test_a_reply_of_thousands_of_ranges_is_made_without_a_call_for_each() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        index = broker.core.topics.manager.get_handler("t", 0).transactions
        for producer_id in range(BATCHES):
            index.began(producer_id, 0)
            index.ended(producer_id, Outcome.ABORT, 1 + producer_id)
        rows: list[tuple[int, int]] = []

        async def ask() -> None:
            rows.extend(aborted(await read(client, "t")))

        calls = await calls_of_a_step(ask)
        assert rows == [(producer_id, 0) for producer_id in range(BATCHES)]
        assert calls < BATCHES, "others wait meanwhile"


async def counted(
    ask: Callable[[], Awaitable[FetchResponsePartition]],
) -> tuple[FetchResponsePartition, int]:
    """The answer, and how many functions of Python this thread, which is the broker's as well, has
    called for it."""
    calls = 0

    def look(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(look)
    try:
        answer = await ask()
    finally:
        sys.setprofile(None)
    return answer, calls


def keyed(key: bytes, value: bytes, sequence: int = -1, tx: Tx | None = None) -> bytes:
    """A batch of one record, which is part of a transaction if one is named."""
    return encode_batch(
        [value],
        keys=[key],
        timestamps_ms=NOW_MS,
        base_sequence=sequence,
        producer_id=-1 if tx is None else tx.producer_id,
        producer_epoch=-1 if tx is None else tx.epoch,
        transactional=tx is not None,
    )


async def send_keyed(client: WireClient, tx: Tx, key: bytes, sequence: int) -> None:
    assert await tx.add("t", 0) == [0]
    request = produce_request("t", keyed(key, b"1", sequence, tx))
    request.transactional_id = tx.name
    await put(client, request)


async def put(client: WireClient, request: ProduceRequest) -> None:
    reply = await client.ask(request, ProduceResponse, 8)
    assert reply.responses[0].partition_responses[0].error_code == 0


async def test_a_cleaning_beside_a_fetch_leaves_no_range_without_its_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever is told of the range and finds no end of it drops what comes behind.
    beside: list[Callable[[], None]] = []
    plan_read = DiskHandler.plan_read

    def planned(
        self: DiskHandler, offset: int, max_bytes: int, *, up_to: int | None = None
    ) -> ReadPlan | None:
        if beside:
            beside.pop()()  # as a lane does where the loop has to wait for the processor
        return plan_read(self, offset, max_bytes, up_to=up_to)

    monkeypatch.setattr(DiskHandler, "plan_read", planned)
    now_ms = [NOW_MS]
    async with (
        serving(now_ms=lambda: now_ms[0], cleaner_enable=False) as broker,
        connect(broker.address) as client,
    ):
        await client.create(
            "t", cleanup_policy="compact", segment_bytes="1024", delete_retention_ms="0"
        )
        manager = broker.core.topics.manager
        cleaner = Cleaner(manager, 1 << 30, 1 << 20, 0)

        def clean() -> None:
            now_ms[0] += 1
            cleaner.clean_now(manager.get_handler("t", 0), now_ms[0])

        async def fill() -> None:
            for key in (b"fills a segment", b"begins the next"):
                await put(client, produce_request("t", keyed(key, bytes(800))))
            await until(is_sealed)

        async def is_sealed() -> bool:
            return manager.get_handler("t", 0).sealed_numbers() != []

        tx = Tx(client, "tx", V1)
        assert await tx.init() == 0
        await send_keyed(client, tx, b"a", 0)
        assert await tx.end(commit=False) == 0
        await send_keyed(client, tx, b"b", 1)
        assert await tx.end(commit=True) == 0
        await fill()
        clean()
        assert aborted(await read(client, "t")) == [(tx.producer_id, 0)], "it has its marker"
        beside.append(clean)
        row = await read(client, "t")
        assert not beside
        assert isinstance(row.records, bytes | memoryview)
        markers = [
            header.base_offset
            for batch in iter_batches(row.records)
            if (header := read_header(batch)).is_control and header.producer_id == tx.producer_id
        ]
        assert (aborted(row), 1 in markers) == ([], False)
