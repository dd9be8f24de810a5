"""End to end: from the call of `send` in one process to the bytes in another, 1,000 records/s.

Both ends read CLOCK_MONOTONIC, which is one clock for all processes of a Linux machine; the
sender writes it into the record.  The rows with our client include all of it (queues, threads,
decoding); the rows beside other brokers use the same raw sockets for all of them (pump.py).
"""

import subprocess
import sys
import time
from struct import Struct

from segbroker.client import Producer

from . import peers
from .pump import ReadingChild, write_paced
from .report import Entry, Note, Row, latency
from .throughput import described

RATE = 1_000
SIZE = 100
WARM_UP_S = 1.0
BEHIND_S = 0.1
_STAMP = Struct(">Q")

_READER = """
import sys, time
from struct import Struct
from segbroker.client import Consumer
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
stamp, now = Struct(">Q"), time.monotonic_ns
seen = []
with Consumer(address, topic, start="end") as consumer:
    consumer.positions()
    print("ready", flush=True)
    for record in consumer:
        seen.append(now() - stamp.unpack_from(record.value)[0])
        if len(seen) == count:
            break
print("\\n".join(map(str, seen)))
"""


def with_our_client(address: str, topic: str, seconds: float) -> list[float]:
    """Latencies in seconds, in order of arrival; the first tenth (warm-up) is left out."""
    count = int(RATE * seconds)
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, address, topic, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    with Producer(address, linger_ms=0) as producer:
        began = time.monotonic()
        for n in range(count):
            due = began + n / RATE
            while (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            producer.send(topic, _STAMP.pack(time.monotonic_ns()) + bytes(SIZE - 8))
    out, _ = reader.communicate(timeout=60)
    latencies = [int(line) / 1e9 for line in out.split()]
    assert len(latencies) == count, f"{len(latencies)} of {count} arrived"
    return latencies[count // 10 :]


def raw(peer: peers.Peer, topic: str, seconds: float) -> list[float]:
    """The same with raw sockets at both ends."""
    count = int(RATE * seconds)
    child = ReadingChild(peer, topic, 1, count, SIZE)
    writer = peer.writer(topic)
    write_paced(writer, RATE, count, SIZE)
    _, latencies = child.result()
    writer.socket.close()
    assert len(latencies) == count, f"{len(latencies)} of {count} arrived"
    return latencies[count // 10 :]


def rows(quick: bool = False) -> list[Entry]:
    seconds = 2.0 if quick else 8.0
    found: list[Entry] = []
    for durable, durability, goal in (
        (False, "disk", "p50 ≤ 0.25 ms, p99 ≤ 1 ms"),
        (True, "fsync", "p50 ≤ 0.6 ms"),
    ):
        with peers.running(durable) as (ours, others, left_out):
            topic = ours.create_topic(durable)
            times = with_our_client(ours.address, topic, seconds)
            work = f"our client, linger 0, {SIZE} B"
            found.append(Row(work, durability, latency(times), goal=goal))
            work = f"raw sockets, {SIZE} B"
            mine = raw(ours, ours.create_topic(durable, partitions=1), seconds)
            for peer in others:
                try:
                    raw(peer, peer.create_topic(durable, partitions=1), WARM_UP_S)
                    theirs = raw(peer, peer.create_topic(durable, partitions=1), seconds)
                except AssertionError as exc:
                    found.append(Note(f"{peer.name} ({durability}) gave no figure: {exc}"))
                    continue
                p50 = sorted(mine)[len(mine) // 2] / sorted(theirs)[len(theirs) // 2]
                found.append(
                    Row(
                        work,
                        durability,
                        latency(mine),
                        f"{peer.name} {latency(theirs)}"
                        + (" (it does not keep up)" if min(theirs[-100:]) > BEHIND_S else ""),
                        f"p50 {p50:.2f}",
                    )
                )
            found += [described(peer, durable) for peer in (ours, *others)]
            found += [Note(reason) for reason in left_out]
    return found
