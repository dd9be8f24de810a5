"""Durable acknowledgements: each record is acked after its sync.

The load generator is the same for every broker: raw sockets and ready-made requests, so that
exactly as many are in flight as the row says.  A request is one record, except in the last two
rows, where it is what a client's buffer makes of several: one batch for us and Kafka, as many
pipelined commands for Redis.  The last is one producer with 1,000 records on their way, in the five
requests that Kafka's clients have in flight.  Beside it: what the disk itself gives, one small
write and one fdatasync after the other.

A disk that others use is quick in one second and slow in the next, so the brokers take turns.
"""

import os
import selectors
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

from . import peers
from .peers.sockets import RECEIVE_SIZE, Writer
from .report import Entry, Note, Row, latency
from .throughput import described

VALUE_SIZE = 100
PARTITIONS = 4
ACKS_MIN = 100
DEADLINE_S = 60
ROUNDS = 5
# Connections, requests in flight on each, records in each request.
LOADS = ((1, 1, 1), (32, 1, 1), (64, 1, 1), (50, 20, 1), (50, 1, 20), (1, 5, 200))


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


def described_load(connections: int, window: int, records: int) -> str:
    """What a row of one load is called."""
    return (
        f"durable produce of {VALUE_SIZE} B, {connections * window * records:,} in flight, "
        f"{connections} × {window} requests of {records}"
    )


class _Source:
    """One connection with `window` requests in flight."""

    def __init__(self, writer: Writer, window: int, records: int) -> None:
        self.writer = writer
        self._request = writer.request([bytes(VALUE_SIZE)] * records)
        self._records = records
        self._spare = 0
        self._sent: deque[float] = deque()
        self.send(window * records)

    def send(self, acked: int) -> None:
        """As many requests as the records that were acknowledged make whole."""
        count, self._spare = divmod(self._spare + acked, self._records)
        if count:
            self._sent.extend([time.perf_counter()] * (count * self._records))
            self.writer.socket.sendall(self._request * count)

    def receive(self) -> list[float]:
        """The latencies of the acks that have arrived, in seconds."""
        data = self.writer.socket.recv(RECEIVE_SIZE)
        assert data, "the broker closed the connection"
        # First: to take an answer apart costs more in one protocol than in another.
        now = time.perf_counter()
        acked = self.writer.acked(data)
        return [now - self._sent.popleft() for _ in range(acked)]


def run(
    peer: peers.Peer,
    topic: str,
    connections: int,
    window: int,
    records: int,
    seconds: float,
    *,
    partitions: int = PARTITIONS,
    acks_min: int = ACKS_MIN,
) -> tuple[float, list[float]]:
    """Acks per second and the latency of each; `connections × window × records` in flight."""
    sources = [
        _Source(peer.writer(topic, n % partitions), window, records) for n in range(connections)
    ]
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source.writer.socket, selectors.EVENT_READ, source)
        began = time.perf_counter()
        # A slow disk gets more time, so that there is something to divide.
        while (now := time.perf_counter()) < began + seconds or len(latencies) < acks_min:
            assert now < began + DEADLINE_S, f"{peer.name}: {len(latencies)} acks in {DEADLINE_S} s"
            for key, _ in selector.select(1.0):
                got = key.data.receive()
                latencies += got
                key.data.send(len(got))
    for source in sources:
        source.writer.socket.close()
    return len(latencies) / (now - began), latencies


def _together(rounds: list[tuple[float, list[float]]]) -> tuple[float, list[float]]:
    """The rate over all rounds, and every latency."""
    latencies = [latency_s for _, some in rounds for latency_s in some]
    seconds = sum(len(some) / rate for rate, some in rounds)
    return len(latencies) / seconds, latencies


def rows(quick: bool = False) -> list[Entry]:
    """1, 32, 64 and 1,000 records in flight; the raw sync rate before and after."""
    found: list[Entry] = []
    seconds = 1.0 if quick else 4.0
    with (
        tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder,
        peers.running(durable=True) as (ours, others, left_out),
    ):
        raw = fdatasync_rate(Path(folder))
        during: list[float] = []
        alone = 0.0
        for connections, window, records in LOADS:
            in_flight = connections * window * records
            work = described_load(connections, window, records)
            topics = {peer.name: peer.create_topic(durable=True) for peer in (ours, *others)}
            rounds: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in topics}
            for _ in range(ROUNDS):
                for peer in (ours, *others):
                    load = connections, window, records, seconds / ROUNDS
                    rounds[peer.name].append(run(peer, topics[peer.name], *load))
                if in_flight == 1:
                    during.append(fdatasync_rate(Path(folder), seconds / ROUNDS))
            got = {name: _together(some) for name, some in rounds.items()}
            mine, times = got[ours.name]
            said = f"{mine:,.0f} acks/s, {latency(times)}"
            if in_flight == 1:
                alone = mine
                beside = statistics.median(during)
                base, ratio, goal = f"raw fdatasync {beside:,.0f}/s", mine / beside, "≥ 0.5"
            else:
                base, ratio = f"one in flight {alone:,.0f} acks/s", mine / alone
                goal = "≥ 10" if in_flight == 64 else "–"
            found.append(Row(work, "fsync", said, base, f"{ratio:.2f}", goal))
            for peer in others:
                theirs, their_times = got[peer.name]
                redis = type(peer) is peers.Redis
                goal = "≥ 2" if redis and records > 1 else "–"
                ratio_said = f"{mine / theirs:.2f}"
                if redis and in_flight == 1:
                    goal = "p50 ≤ 1"
                    p50 = statistics.median(times) / statistics.median(their_times)
                    ratio_said += f", p50 {p50:.2f}"
                base = f"{peer.name} {theirs:,.0f} acks/s, {latency(their_times)}"
                found.append(Row(work, "fsync", f"{mine:,.0f} acks/s", base, ratio_said, goal))
        after = fdatasync_rate(Path(folder))
        found.append(
            Row(
                "raw: write 200 B + fdatasync, one after the other",
                "–",
                f"{raw:,.0f}/s before, {after:,.0f}/s after",
            )
        )
        found += [described(peer, durable=True) for peer in (ours, *others)]
        found += [Note(reason) for reason in left_out]
    return found
