"""What a reader of committed records costs: its reply is not looked through batch by batch in
Python, which would hold everybody else up; a megabyte holds fifteen thousand of them."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest

from segbroker.protocol.messages_core import (
    FetchResponsePartition,
    ProduceRequestPartition,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch, iter_batches

from ..support.wire_client import WireClient, connect, produce_request
from ..support.wire_transactions import NOW_MS, V1, Tx, aborted, read
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
