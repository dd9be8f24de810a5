"""End to end: from `send` in one process to the record in a consumer of another, 1,000/s.

Both ends read CLOCK_MONOTONIC, which is one clock for all processes of a Linux machine; the
sender writes it into the record.
"""

import statistics
import subprocess
import sys
import time
from struct import Struct

from segbroker.client import Producer

from . import librdkafka
from .report import Row
from .servers import Server, segbroker

RATE = 1_000
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


def run(server: Server, topic: str, seconds: float) -> list[float]:
    """Latencies in seconds, in order of arrival; the first tenth (warm-up) is left out."""
    count = int(RATE * seconds)
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, server.address, topic, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    with Producer(server.address, linger_ms=0) as producer:
        began = time.monotonic()
        for n in range(count):
            due = began + n / RATE
            while (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            producer.send(topic, _STAMP.pack(time.monotonic_ns()) + bytes(92))
    out, _ = reader.communicate(timeout=60)
    latencies = [int(line) / 1e9 for line in out.split()]
    assert len(latencies) == count
    return latencies[count // 10 :]


def rows(quick: bool = False) -> list[Row]:
    found = []
    with segbroker() as server:
        for durability, goal in (
            ("disk", "p50 ≤ 0.25 ms, p99 ≤ 1 ms"),
            ("fsync", "p50 ≤ 0.6 ms"),
        ):
            topic = librdkafka.create_topic(server, durability)
            cuts = statistics.quantiles(run(server, topic, 2.0 if quick else 10.0), n=1000)
            found.append(
                Row(
                    "end to end, our client, linger 0, 1,000 records/s of 100 B",
                    durability,
                    f"p50 {cuts[499] * 1e3:.2f} ms, p99 {cuts[989] * 1e3:.2f} ms, "
                    f"p99.9 {cuts[998] * 1e3:.2f} ms",
                    goal=goal,
                )
            )
    return found
