"""Durable acknowledgements: one-record produce requests to a `fsync` topic, none batched.

The load generator is our wire codec over plain sockets, so that exactly as many requests are
in flight as the row says; each ack means that the record was synced.  Beside it: what the disk
itself gives, one small write and one fdatasync after the other in the same directory.
"""

import os
import selectors
import socket
import statistics
import tempfile
import time
from pathlib import Path

from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.record_batch import encode_batch

from . import librdkafka
from .report import Row
from .servers import Server, segbroker

VALUE_SIZE = 100


def fdatasync_rate(folder: Path, seconds: float = 1.0) -> float:
    """fdatasyncs per second, each after a write of 200 bytes to a preallocated file."""
    fd = os.open(folder / "probe", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, bytes(4 << 20), 0)
        os.fsync(fd)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            os.pwrite(fd, bytes(200), (count * 200) % (4 << 20))
            os.fdatasync(fd)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(fd)
        (folder / "probe").unlink()


def _request(topic: str, partition: int) -> bytes:
    batch = encode_batch([bytes(VALUE_SIZE)], timestamps_ms=int(time.time() * 1000))
    parts = [ProduceRequestPartition(index=partition, records=memoryview(batch))]
    message = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequestTopic(name=topic, partition_data=parts)],
    )
    return b"".join(encode_request(message, 7, 0, "bench"))


class _Connection:
    def __init__(self, address: str, request: bytes, window: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = FrameReader()
        self.request = request
        self.sent: list[float] = []
        self.send(window)

    def send(self, count: int) -> None:
        now = time.perf_counter()
        self.sent.extend([now] * count)
        self.socket.sendall(self.request * count)

    def receive(self) -> list[float]:
        """The latencies of the acks that have arrived, in seconds."""
        size = self.socket.recv_into(self.reader.get_buffer())
        assert size, "the broker closed the connection"
        self.reader.buffer_updated(size)
        acked = 0
        while (frame := self.reader.next_frame()) is not None:
            # correlation id, one topic, name, one partition, index, error code.
            error = bytes(frame)[-30:-28]
            assert error == b"\0\0", f"error {error.hex()}"
            acked += 1
        now = time.perf_counter()
        done, self.sent = self.sent[:acked], self.sent[acked:]
        return [now - began for began in done]


def run(server: Server, topic: str, connections: int, window: int, seconds: float) -> list[float]:
    """Latencies in seconds of all acks within `seconds`, `connections × window` in flight."""
    selector = selectors.DefaultSelector()
    peers = [
        _Connection(server.address, _request(topic, n % librdkafka.PARTITIONS), window)
        for n in range(connections)
    ]
    for peer in peers:
        selector.register(peer.socket, selectors.EVENT_READ, peer)
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(1.0):
            got = key.data.receive()
            latencies += got
            key.data.send(len(got))
    for peer in peers:
        peer.socket.close()
    selector.close()
    return latencies


def rows(quick: bool = False) -> list[Row]:
    """1, 64 and 1,000 requests in flight; the raw sync rate before and after."""
    found: list[Row] = []
    seconds = 1.0 if quick else 5.0
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder, segbroker() as server:
        raw = fdatasync_rate(Path(folder))
        rates = {}
        for connections, window in ((1, 1), (64, 1), (50, 20)):
            topic = librdkafka.create_topic(server, "fsync")
            latencies = run(server, topic, connections, window, seconds)
            rates[connections, window] = rate = len(latencies) / seconds
            cuts = statistics.quantiles(latencies, n=100)
            alone = (connections, window) == (1, 1)
            found.append(
                Row(
                    f"durable produce, {connections * window:,} in flight "
                    f"({connections} connections), {VALUE_SIZE} B",
                    "fsync",
                    f"{rate:,.0f} acks/s, p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms",
                    f"raw fdatasync {raw:,.0f}/s" if alone else f"one in flight {rates[1, 1]:,.0f}",
                    f"{rate / (raw if alone else rates[1, 1]):.2f}",
                    "≥ 0.5" if alone else ("≥ 10" if window == 1 else "–"),
                )
            )
        after = fdatasync_rate(Path(folder))
        found.append(
            Row(
                "raw: write 200 B + fdatasync, one after the other",
                "–",
                f"{raw:,.0f}/s before, {after:,.0f}/s after",
            )
        )
    return found
