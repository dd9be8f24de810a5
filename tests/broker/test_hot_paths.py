"""The hand-made ways of the usual requests answer, byte for byte, what the general ways do."""

from collections.abc import Callable
from uuid import UUID

import pytest
import trio

from segbroker.broker import requests
from segbroker.broker.fetching.fetch_reply import FetchReply
from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.messages_core import FetchRequest, ProduceRequest
from segbroker.protocol.schema import Message

from ..support.gated_storage import GatedStorage
from ..support.wire_client import batch, connect, fetch_request, produce_request
from .conftest import serving

PRODUCES = range(3, SERVED[ApiKey.PRODUCE].max + 1)
FETCHES = range(SERVED[ApiKey.FETCH].min, SERVED[ApiKey.FETCH].max + 1)

BROKEN = bytearray(batch(b"v"))
BROKEN[-1] ^= 1

PRODUCED: dict[str, Callable[[], Message]] = {
    "appended": lambda: produce_request("t", batch(b"v")),
    "acks 1": lambda: produce_request("t", batch(b"v"), acks=1),
    "stamped": lambda: produce_request("stamped", batch(b"v")),
    "no such topic": lambda: produce_request("unknown", batch(b"v")),
    "no such partition": lambda: produce_request("t", batch(b"v"), partition=7),
    "wrong CRC": lambda: produce_request("t", bytes(BROKEN)),
    "absurd acks": lambda: produce_request("t", batch(b"v"), acks=5),
    "nothing": lambda: produce_request("t", b""),
}
FETCHED: dict[str, Callable[[], Message]] = {
    "records": lambda: fetch_request("t", 0),
    "the second": lambda: fetch_request("t", 1),
    "one batch": lambda: fetch_request("t", 0, max_bytes=1),
    "the end": lambda: fetch_request("t", 2),
    "past the end": lambda: fetch_request("t", 9),
    "no such topic": lambda: fetch_request("unknown", 0),
    "committed": lambda: fetch_request("t", 0, isolation_level=1),
}


async def replies(asked: list[tuple[Message, int]]) -> list[bytes]:
    """The reply frames of a fresh broker whose topic `t` holds two records."""
    async with (
        serving(storage=GatedStorage(), now_ms=lambda: 1_700_000_000_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await client.create("stamped", message_timestamp_type="LogAppendTime")
        for value in (b"a", b"b"):
            await client.produce("t", value)
        await client.produce("stamped", b"a")
        ids = {name: meta.topic_id for name, meta in broker.core.topics.all.items()}
        found = []
        for request, version in asked:
            _put_ids(request, ids)
            await client.send(request, version)
            with trio.fail_after(60):
                frame = bytes(await client.receive_frame())
            for topic_id in ids.values():  # which differ from broker to broker
                frame = frame.replace(topic_id.bytes, bytes(16))
            found.append(frame)
        return found


def _put_ids(request: Message, ids: dict[str, UUID]) -> None:
    if isinstance(request, ProduceRequest):
        for produced in request.topic_data:
            produced.topic_id = ids.get(produced.name, UUID(int=7))
    if isinstance(request, FetchRequest):
        for fetched in request.topics:
            fetched.topic_id = ids.get(fetched.topic, UUID(int=7))


async def test_a_produce_is_answered_the_same_on_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [(make(), version) for make in PRODUCED.values() for version in PRODUCES]
    hot = await replies(asked)
    monkeypatch.setattr(requests, "decode_single_produce", lambda frame, header: None)
    assert hot == await replies(asked)


async def test_a_fetch_is_answered_the_same_on_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(make(), version) for make in FETCHED.values() for version in FETCHES]
    hot = await replies(asked)
    monkeypatch.setattr(FetchReply, "_render_single", lambda reply: None)
    assert hot == await replies(asked)
