"""Many idle connections, partitions, slow readers: memory, and what an honest client sees.

The honest client sends 1,000 records/s to a topic of its own and reads them back over raw sockets
(pump.py); its latency is measured before, then under each load, on one daemon per load.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
)

from . import latency, librdkafka, peers
from .machine import cpu_seconds, resident_mib
from .report import Entry, Row
from .report import latency as said_latency
from .servers import segbroker

SECONDS = 4.0
BACKLOG_BYTES = 64 << 20

_IDLE = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
request = bytes.fromhex(sys.argv[4])
held = []
for _ in range(count):
    held.append(socket.create_connection((host, port), 30))
    held[-1].sendall(request)
for one in held:
    assert one.recv(65536), "refused"
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def idle_connections(server: peers.Segbroker, count: int) -> Iterator[str]:
    """`count` connections of a child process, each of which has shaken hands and then waits."""
    hello = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "idle")).hex()
    host, port = server.host_and_port
    child = subprocess.Popen(
        [sys.executable, "-c", _IDLE, host, str(port), str(count), hello],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n", "the connections were refused"
        yield f"{count:,} idle connections"
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


@contextmanager
def many_partitions(server: peers.Segbroker, count: int) -> Iterator[str]:
    """A topic of `count` partitions, each with a record."""
    began = time.perf_counter()
    topic = server.create_topic(partitions=count)
    created = time.perf_counter() - began
    filled = _fill(server, [(topic, partition) for partition in range(count)])
    yield f"{count:,} partitions (created in {created:.1f} s, one record to each in {filled})"


@contextmanager
def many_topics(server: peers.Segbroker, count: int) -> Iterator[str]:
    """`count` topics made by one request, each with a record; as many others, made and deleted."""
    kept, deleted = ([f"{word}-{n}" for n in range(count)] for word in ("kept", "deleted"))
    admin = AdminClient({"bootstrap.servers": server.address})
    began = time.perf_counter()
    for names in (kept, deleted):
        wanted = [NewTopic(name, 1, 1, config={"durability": "disk"}) for name in names]
        made = admin.create_topics(wanted, request_timeout=librdkafka.DEADLINE_S)
        for each in made.values():
            each.result(librdkafka.DEADLINE_S)
    created = (time.perf_counter() - began) / 2
    filled = _fill(server, [(name, 0) for name in kept])
    began = time.perf_counter()
    gone = admin.delete_topics(deleted, request_timeout=librdkafka.DEADLINE_S)
    for each in gone.values():
        each.result(librdkafka.DEADLINE_S)
    took = time.perf_counter() - began
    yield (
        f"{count:,} topics (created in {created:.1f} s by one request, one record to each in "
        f"{filled}, as many others deleted in {took:.1f} s)"
    )


def _fill(server: peers.Segbroker, partitions: Sequence[tuple[str, int]]) -> str:
    """One record to each, the first of all; how long that took, and the processor of the daemon."""
    began, before = time.perf_counter(), cpu_seconds(server.pid)
    producer = librdkafka.producer(server.address)
    for topic, partition in partitions:
        producer.produce(topic, bytes(100), partition=partition)
    left = producer.flush(librdkafka.DEADLINE_S)
    assert left == 0, f"{left} of {len(partitions)} partitions got no record"
    spent = (cpu_seconds(server.pid) - before) / len(partitions)
    return f"{time.perf_counter() - began:.1f} s, {spent * 1000:.2f} ms of its processor for each"


@contextmanager
def slow_readers(server: peers.Segbroker, count: int) -> Iterator[str]:
    """`count` connections that ask for 1 MiB and take nothing of it."""
    topic = server.create_topic(partitions=1)
    server.produce(topic, BACKLOG_BYTES // 4 // 1024, 1024)
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchRequestTopic(topic=topic, partitions=[partition])
    message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
    fetch = b"".join(encode_request(message, 4, 1, "slow")) * 4
    with ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(server.host_and_port, 30))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(fetch)
        yield f"{count:,} slow readers, four fetches of 1 MiB each unread"


Load: TypeAlias = Callable[[peers.Segbroker, int], AbstractContextManager[str]]
LOADS: tuple[tuple[Load, int], ...] = (
    (idle_connections, 10_000),
    (many_partitions, 10_000),
    (many_topics, 2_000),
    (slow_readers, 1_000),
)


def rows(quick: bool = False) -> list[Entry]:
    """One daemon per load: the honest client alone, then beside it."""
    found: list[Entry] = []
    seconds = 1.0 if quick else SECONDS
    for load, full in LOADS:
        count = full // 20 if quick else full
        with TemporaryDirectory(prefix="segbroker-bench-") as folder:
            flags = ("--connections-max", str(2 * full))
            with segbroker(*flags, data=Path(folder, "data")) as server:
                ours = peers.Segbroker(server.address, server.pid)
                alone = latency.raw(ours, ours.create_topic(partitions=1), seconds)
                before = resident_mib(server.pid)
                with load(ours, count) as what:
                    topic = ours.create_topic(partitions=1)
                    beside = latency.raw(ours, topic, seconds)
                    after = resident_mib(server.pid)
                found.append(
                    Row(
                        f"an honest client at 1,000/s beside {what}",
                        "disk",
                        said_latency(beside),
                        f"alone {said_latency(alone)}",
                        server=f"{before:.0f} MiB before, {after:.0f} MiB under it",
                    )
                )
    return found
