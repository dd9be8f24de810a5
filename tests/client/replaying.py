"""A TCP server that answers each request with the bytes that a test says: a broker gone wrong.

    with Replaying({ApiKey.METADATA: lambda request: b"..."}) as server:
        Consumer(server.address, ...)

It cuts requests out of the stream by their size and reads their headers (api key, version,
correlation id); a body is only read for a healthy answer.  Every api that the test says nothing of
is answered healthily: a cluster of one broker, a topic TOPIC with one partition that is empty, a
coordinator, a producer id.

What a test says of an api is a function of the request that gives the bytes to send, frames and
all, or None for silence.
"""

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from segbroker.protocol.api_keys import ApiKey, api_versions_response
from segbroker.protocol.headers import decode_request, encode_response, parse_request_header
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_transactions import InitProducerIdResponse
from segbroker.protocol.schema import Message

TOPIC = "clicks"


@dataclass(frozen=True)
class Request:
    """One request, as it came; `server` is whom it came to."""

    server: "Replaying"
    api_key: int
    api_version: int
    correlation_id: int
    frame: bytes

    def answer(self, message: Message) -> bytes:
        """The bytes of a healthy answer."""
        parts = encode_response(message, self.api_key, self.api_version, self.correlation_id)
        return b"".join(map(bytes, parts))

    def framed(self, body: bytes) -> bytes:
        """Bytes as an answer to this request: behind a size and its correlation id."""
        return struct.pack(">ii", 4 + len(body), self.correlation_id) + body


Answer = Callable[[Request], bytes | None]


class Replaying:
    """See the module."""

    def __init__(self, answers: Mapping[int, Answer]) -> None:
        self._answers = answers
        self.requests_count = 0
        self.connections_count = 0
        self.open_count = 0
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer.connections_count += 1
                outer.open_count += 1
                outer._peers.append(self.request)
                outer._serve(self.request)
                outer.open_count -= 1

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._peers: list[socket.socket] = []
        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for peer in self._peers:
            peer.close()

    def _serve(self, peer: socket.socket) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", _exactly(peer, 4))
                frame = _exactly(peer, size)
                api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
                request = Request(self, api_key, api_version, correlation_id, frame)
                self.requests_count += 1
                answer = self._answers.get(api_key, healthy)
                if (data := answer(request)) is not None:
                    peer.sendall(data)
        except OSError:
            return


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def healthy(request: Request) -> bytes | None:
    """What a broker in order says; nothing to what it does not know."""
    make = _HEALTHY.get(request.api_key)
    return None if make is None else request.answer(make(request))


def metadata(
    request: Request,
    *,
    node_id: int = 1,
    port: int | None = None,
    host: str = "127.0.0.1",
    leader_id: int | None = None,
    partitions: tuple[int, ...] = (0,),
    more: tuple[MetadataResponseBroker, ...] = (),
) -> MetadataResponse:
    """One broker, one topic; each may be told otherwise."""
    leader = node_id if leader_id is None else leader_id
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node_id, host=host, port=request.server.port if port is None else port
            ),
            *more,
        ],
        controller_id=node_id,
        topics=[
            MetadataResponseTopic(
                name=TOPIC,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=leader,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                    )
                    for index in partitions
                ],
            )
        ],
    )


def fetched(records: bytes = b"", *, error_code: int = 0, high_watermark: int = 0) -> FetchResponse:
    partition = FetchResponsePartition(
        partition_index=0,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        aborted_transactions=None,
        records=records,
    )
    return FetchResponse(responses=[FetchResponseTopic(topic=TOPIC, partitions=[partition])])


def offsets(offset: int, *, partition: int = 0, error_code: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsResponsePartition(
        partition_index=partition, error_code=error_code, offset=offset
    )
    return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name=TOPIC, partitions=[row])])


def produced(*, error_code: int = 0, partition: int = 0, base_offset: int = 0) -> ProduceResponse:
    row = ProduceResponsePartition(index=partition, error_code=error_code, base_offset=base_offset)
    return ProduceResponse(responses=[ProduceResponseTopic(name=TOPIC, partition_responses=[row])])


def coordinator(request: Request, *, node_id: int = 1, error_code: int = 0) -> Message:
    decoded = decode_request(request.frame, parse_request_header(request.frame))
    assert isinstance(decoded, FindCoordinatorRequest)
    port = request.server.port
    row = FindCoordinatorResponseCoordinator(
        key=decoded.coordinator_keys[0] if request.api_version >= 4 else decoded.key,
        node_id=node_id,
        host="127.0.0.1",
        port=port,
        error_code=error_code,
        error_message=None,
    )
    return FindCoordinatorResponse(coordinators=[row])


def _later(request: Request) -> Message:
    """An empty log's, after the time that the fetch may wait."""
    decoded = decode_request(request.frame, parse_request_header(request.frame))
    assert isinstance(decoded, FetchRequest)
    threading.Event().wait(decoded.max_wait_ms / 1000)
    return fetched()


def versions(request: Request) -> Message:
    return api_versions_response(request.api_version, vendor=False)[0]


_HEALTHY: dict[int, Callable[[Request], Message]] = {
    ApiKey.API_VERSIONS: versions,
    ApiKey.METADATA: metadata,
    ApiKey.LIST_OFFSETS: lambda request: offsets(0),
    ApiKey.FETCH: _later,
    ApiKey.PRODUCE: lambda request: produced(),
    ApiKey.INIT_PRODUCER_ID: lambda request: InitProducerIdResponse(
        producer_id=7, producer_epoch=0
    ),
    ApiKey.FIND_COORDINATOR: coordinator,
}
