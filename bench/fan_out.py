"""Fan-out: one producer, eight consumers on connections of their own that read along.

The consumers are raw sockets in one process, the same for every broker (pump.py).
"""

import time

from . import peers
from .machine import cpu_seconds
from .peers.sockets import write
from .pump import ReadingChild
from .report import Entry, Note, Row, Runs, rate
from .throughput import described

READERS = 8
SIZE = 1024
COUNT = 100_000
ROUNDS = 3


def rows(quick: bool = False) -> list[Entry]:
    count = COUNT // 20 if quick else COUNT
    runs = Runs()
    cpu: dict[str, float] = {}
    with peers.running() as (ours, others, left_out):
        for _ in range(1 if quick else ROUNDS):
            for peer in (ours, *others):
                topic = peer.create_topic(partitions=1)
                child = ReadingChild(peer, topic, READERS, count, SIZE)
                began, before = time.monotonic(), cpu_seconds(peer.pid)
                write(peer.writer(topic), count, SIZE)
                ended, _ = child.result()
                runs.note(peer.name, READERS * count / (ended - began))
                cpu[peer.name] = (cpu_seconds(peer.pid) - before) * 1e6 / (READERS * count)
        mine = runs.median(ours.name)
        found: list[Entry] = [
            Row(
                f"{count:,} × {SIZE} B to each of {READERS} consumers while they are produced",
                "disk",
                f"{rate(mine, SIZE)} delivered",
                f"{peer.name} {rate(runs.median(peer.name), SIZE)}",
                f"{mine / runs.median(peer.name):.2f}",
                "≥ 2" if type(peer) is peers.Redis else "–",
                f"{cpu[ours.name]:.2f} µs CPU/record, {peer.name} {cpu[peer.name]:.2f}",
            )
            for peer in others
        ]
        found += [described(peer) for peer in (ours, *others)]
    return found + [Note(reason) for reason in left_out]
