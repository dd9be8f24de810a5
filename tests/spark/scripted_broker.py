"""A broker that answers what a test says, for what a real one does only when something breaks.

It speaks the wire through segbroker.protocol: frames in, decoded requests to the script, encoded
replies out.  ApiVersions, Metadata and ListOffsets of a healthy one-partition topic are answered
by default; the script gets each Fetch and returns a reply, HANG_UP or SILENCE, and `produce` each
batch with its partition, and returns an error code.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_request, encode_response, parse_request_header
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
    ApiVersionsResponseKey,
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_transactions import InitProducerIdRequest, InitProducerIdResponse
from segbroker.protocol.record_batch import BatchHeader, read_header
from segbroker.protocol.schema import Message, records_view

TOPIC = "clicks"


class Fault(Enum):
    HANG_UP = "close the connection instead of answering"
    SILENCE = "never answer"


Script = Callable[[FetchRequest], FetchResponse | Fault]


def fetched(
    *batches: bytes,
    high_watermark: int = 1 << 40,
    error_code: int = ErrorCode.NONE,
    aborted: list[FetchResponseAbortedTransaction] | None = None,
) -> FetchResponse:
    """The reply to a fetch of the one partition."""
    partition = FetchResponsePartition(
        partition_index=0,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        aborted_transactions=aborted,
        records=b"".join(batches),
    )
    return FetchResponse(responses=[FetchResponseTopic(topic=TOPIC, partitions=[partition])])


@dataclass
class ScriptedBroker:
    """See the module.

    `fetches` are the offsets asked for, in order of arrival; `peers` the connections; `leaders`
    says where each partition is led, left out: the one partition here.
    """

    script: Script
    log_start: int = 0
    log_end: int = 1 << 40
    stable_end: int = 1 << 40
    fetches: list[int] = field(default_factory=list)
    connections_count: int = 0
    produce: Callable[[int, BatchHeader], ErrorCode] = lambda *_: ErrorCode.NONE
    leaders: Callable[[], Sequence[tuple[str, int]]] | None = None
    address: tuple[str, int] = ("", 0)
    peers: list[socket.socket] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator["ScriptedBroker"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                self.connections_count += 1
                self.peers.append(peer)
                threads.append(threading.Thread(target=self._serve, args=(peer,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield self
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            accepting.join()
            for peer in self.peers:
                with_peer_gone(peer)
            for thread in threads:
                thread.join()

    def _serve(self, peer: socket.socket) -> None:
        reader = FrameReader()
        with peer:
            while True:
                try:
                    size = peer.recv_into(reader.get_buffer())
                except OSError:
                    return
                if not size:
                    return
                reader.buffer_updated(size)
                while (frame := reader.next_frame()) is not None:
                    header = parse_request_header(frame)
                    reply = self._answer(decode_request(frame, header))
                    if reply is Fault.SILENCE:
                        continue
                    if isinstance(reply, Fault):
                        return
                    parts = encode_response(
                        reply, header.api_key, header.api_version, header.correlation_id
                    )
                    try:
                        peer.sendall(b"".join(parts))
                    except OSError:  # it has gone, and does not want this reply
                        return

    def _answer(self, request: Message) -> Message | Fault:
        if isinstance(request, FetchRequest):
            self.fetches.append(request.topics[0].partitions[0].fetch_offset)
            return self.script(request)
        if isinstance(request, ListOffsetsRequest):
            time = request.topics[0].partitions[0].timestamp
            end = min(self.log_end, self.stable_end) if request.isolation_level else self.log_end
            offset = self.log_start if time == -2 else end
            found = ListOffsetsResponsePartition(partition_index=0, offset=offset)
            return ListOffsetsResponse(
                topics=[ListOffsetsResponseTopic(name=TOPIC, partitions=[found])]
            )
        if isinstance(request, ProduceRequest):
            return self._produced(request)
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)
        if isinstance(request, FindCoordinatorRequest):
            host, port = self.address
            row = FindCoordinatorResponseCoordinator(
                key=request.coordinator_keys[0], node_id=1, host=host, port=port, error_message=None
            )
            return FindCoordinatorResponse(coordinators=[row])
        if request.message_key == ApiKey.METADATA:
            return self._metadata()
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseKey(
                    api_key=key, min_version=versions.min, max_version=versions.max
                )
                for key, versions in SERVED.items()
            ]
        )

    def _produced(self, request: ProduceRequest) -> ProduceResponse:
        answers = [
            ProduceResponsePartition(
                index=row.index,
                error_code=self.produce(row.index, read_header(records_view(row.records))),
                base_offset=0,
            )
            for row in request.topic_data[0].partition_data
        ]
        topic = ProduceResponseTopic(name=TOPIC, partition_responses=answers)
        return ProduceResponse(responses=[topic])

    def _metadata(self) -> MetadataResponse:
        leaders = [self.address] if self.leaders is None else self.leaders()
        nodes = {address: 1 + n for n, address in enumerate(dict.fromkeys(leaders))}
        partitions = [
            MetadataResponsePartition(
                partition_index=n,
                leader_id=nodes[address],
                replica_nodes=[nodes[address]],
                isr_nodes=[nodes[address]],
            )
            for n, address in enumerate(leaders)
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=host, port=port)
                for (host, port), node in nodes.items()
            ],
            topics=[MetadataResponseTopic(name=TOPIC, partitions=partitions)],
        )


def with_peer_gone(peer: socket.socket) -> None:
    """End a connection whose thread may still wait for it."""
    try:
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
