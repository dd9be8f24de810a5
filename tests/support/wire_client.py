"""A client as thin as the protocol: one request out, one reply in, and raw bytes where wanted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import trio

from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import (
    decode_response,
    encode_request,
    encode_vendor_request,
    parse_correlation_id,
)
from segbroker.protocol.messages_admin import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from segbroker.protocol.record_batch import decode_batch, encode_batch, iter_batches
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import unpack

M = TypeVar("M", bound=Message)


class Closed(Exception):
    """The broker closed the connection."""


class WireClient:
    """One connection to a broker, without any cleverness."""

    def __init__(self, stream: trio.SocketStream, client_id: str | None = "test") -> None:
        self.stream = stream
        self.client_id = client_id
        self._reader = FrameReader(size_min=0)
        self._correlation_id = 0

    async def send_bytes(self, data: bytes) -> None:
        """Raw bytes."""
        await self.stream.send_all(data)

    def encode(self, request: Message, version: int) -> tuple[int, bytes]:
        """(correlation id, whole frame) of a request."""
        self._correlation_id += 1
        parts = encode_request(request, version, self._correlation_id, self.client_id)
        return self._correlation_id, b"".join(parts)

    async def send(self, request: Message, version: int) -> int:
        """Send a request, answer its correlation id."""
        correlation_id, frame = self.encode(request, version)
        await self.send_bytes(frame)
        return correlation_id

    async def receive_frame(self) -> bytes:
        """The next whole reply frame. Raises Closed."""
        while (frame := self._reader.next_frame()) is None:
            try:
                data = await self.stream.receive_some(1 << 20)
            except trio.BrokenResourceError as exc:
                raise Closed from exc
            if not data:
                raise Closed
            self._reader.receive_data(data)
        return bytes(frame)

    async def receive(self, expected: type[M], version: int) -> tuple[int, M]:
        """(correlation id, message) of the next reply."""
        frame = await self.receive_frame()
        correlation_id, message = decode_response(frame, expected.message_key, version)
        assert isinstance(message, expected)
        return correlation_id, message

    async def ask(self, request: Message, expected: type[M], version: int) -> M:
        """One request, its reply."""
        sent = await self.send(request, version)
        received, message = await self.receive(expected, version)
        assert received == sent, "a reply to something else"
        return message

    async def ask_vendor(self, key: int, body: dict[str, object]) -> dict[str, object]:
        """One vendor request, its reply map."""
        self._correlation_id += 1
        parts = encode_vendor_request(key, 0, self._correlation_id, self.client_id, body)
        await self.send_bytes(b"".join(parts))
        frame = await self.receive_frame()
        assert parse_correlation_id(frame) == self._correlation_id
        return unpack(frame[4:])

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection, without a further reply."""
        try:
            await self.receive_frame()
        except Closed:
            return True
        return False

    # Shortcuts for what most tests do

    async def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; keys of its configuration with _ for the dot."""
        code, message = await self.try_create(topic, partitions, **config)
        assert code == 0, message

    async def try_create(
        self, topic: str, partitions: int = 1, **config: str
    ) -> tuple[int, str | None]:
        """The same; the code and the sentence of the answer."""
        reply = await self.ask(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequestTopic(
                        name=topic,
                        num_partitions=partitions,
                        replication_factor=1,
                        assignments=[],
                        configs=[
                            CreateTopicsRequestConfig(name=key.replace("_", "."), value=value)
                            for key, value in config.items()
                        ],
                    )
                ]
            ),
            CreateTopicsResponse,
            5,
        )
        return reply.topics[0].error_code, reply.topics[0].error_message

    async def produce(
        self, topic: str, *values: bytes, partition: int = 0, acks: int = -1
    ) -> ProduceResponsePartition:
        """Produce one batch and answer its row."""
        request = produce_request(topic, batch(*values), partition=partition, acks=acks)
        reply = await self.ask(request, ProduceResponse, 9)
        return reply.responses[0].partition_responses[0]

    async def fetch(
        self, topic: str, offset: int, *, partition: int = 0, wait_ms: int = 0, min_bytes: int = 1
    ) -> FetchResponsePartition:
        """Fetch one partition and answer its row."""
        request = fetch_request(
            topic, offset, partition=partition, wait_ms=wait_ms, min_bytes=min_bytes
        )
        reply = await self.ask(request, FetchResponse, 12)
        return reply.responses[0].partitions[0]


@asynccontextmanager
async def connect(
    address: tuple[str, int], client_id: str | None = "test", *, source: str | None = None
) -> AsyncIterator[WireClient]:
    """A connected client; source: its own address, one of 127.0.0.0/8."""
    stream = await trio.open_tcp_stream(*address, local_address=source)
    async with stream:
        yield WireClient(stream, client_id)


def batch(
    *values: bytes,
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A record batch with these values; producer is (id, epoch, first sequence)."""
    producer_id, epoch, sequence = producer
    return encode_batch(
        list(values),
        timestamps_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def produce_request(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    """A produce of one batch."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[ProduceRequestPartition(index=partition, records=records)],
            )
        ],
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
) -> FetchRequest:
    """A fetch of one partition."""
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            FetchRequestTopic(
                topic=topic,
                partitions=[
                    FetchRequestPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
    )


def values(row: FetchResponsePartition) -> list[bytes | None]:
    """The values of the records in a fetched row."""
    records = cast(bytes, row.records)
    found: list[bytes | None] = []
    for one in iter_batches(records):
        found += decode_batch(one).values()
    return found


def software(name: str, version: str = "1") -> ApiVersionsRequest:
    """An ApiVersions request that names its software."""
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)
