"""A daemon whose log has lost a batch in the middle: one byte of it was flipped on disk."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segbroker.client import Admin, Producer
from segbroker.protocol.record_batch import iter_batches

from .daemon import Daemon, start

TOPIC = "damaged"


@contextmanager
def with_a_lost_batch(data: Path) -> Iterator[Daemon]:
    """Records 0 to 9, ten lost ones, records 20 to 29, all in one partition of TOPIC."""
    daemon = start(data, "--durability", "disk")
    with Admin(daemon.address) as admin:
        admin.create_topic(TOPIC, partitions=1)
    with Producer(daemon.address) as producer:
        for first in (0, 10, 20):
            producer.send_many(TOPIC, [b"%d" % (first + i) for i in range(10)]).result(30)
    daemon.stop()
    (path,) = data.rglob(f"{TOPIC}_partition_0_segment_0.log")
    log = bytearray(path.read_bytes())
    first_size = len(next(iter_batches(log)))
    log[first_size + 80] ^= 1
    path.write_bytes(log)
    daemon = start(data, "--durability", "disk")
    try:
        yield daemon
    finally:
        daemon.stop(signal.SIGKILL)
