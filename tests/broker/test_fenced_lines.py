"""A producer that another one takes the transactional id from is told in the log, once."""

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.errors import PartitionReadOnly

from ..support.wire_client import connect
from ..support.wire_transactions import Tx, until
from .conftest import NOT_BY_ITSELF_MS, Events, serving


async def test_who_asks_again_until_the_markers_are_written_fences_once(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """A client asks as long as it hears that what was open is still being aborted."""
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        old, new, next_one = Tx(client, "tx"), Tx(client, "tx"), Tx(client, "tx")
        await old.init()
        assert await old.send("t", b"v") == 0
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        assert await new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        handler.read_only = None

        async def is_given() -> bool:
            return await new.init() == 0

        await until(is_given)
        (line,) = events.named("producer_fenced")
        assert (line["producer_id"], line["epoch"]) == (old.producer_id, old.epoch)
        assert line["aborts"] is True
        assert await next_one.init() == 0
        assert [one["aborts"] for one in events.named("producer_fenced")] == [True, False]
