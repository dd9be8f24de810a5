"""A daemon that may have few file descriptors (ulimit -n), and many partitions."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, fork, ready
from ..support.forks import Forked

LIMIT = 120
PARTITIONS = 240
# A write-ahead log that is made at once.
FLAGS = ("--wal-file-bytes", "1048576", "--wal-bytes-max", "8388608")


@contextmanager
def limited(data: Path, how: signal.Signals) -> Iterator[Daemon]:
    """A daemon with so few, ended by the signal."""
    process = fork(data, *FLAGS, held=True)
    assert isinstance(process, Forked)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    process.release()
    daemon = ready(process, data)
    yield daemon
    assert daemon.stop(how) == (0 if how is signal.SIGTERM else -how)


def read(daemon: Daemon) -> list[int]:
    with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
        return sorted(int(record.value or b"") for record in consumer)


def test_twice_as_many_partitions_as_descriptors_are_all_written_and_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    everything = list(range(PARTITIONS))
    with limited(data, signal.SIGTERM) as daemon:
        with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
            admin.create_topic("t", partitions=PARTITIONS)
            sent = [producer.send("t", b"%d" % n, partition=n) for n in everything]
            with Admin(daemon.address) as operator:  # who looks meanwhile
                assert operator.broker_status()["topics"] == 1
            for delivery in sent:
                delivery.result(60)
        assert read(daemon) == everything
        assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < LIMIT * 3 // 4
    with limited(data, signal.SIGKILL) as daemon, Producer(daemon.address) as producer:
        for n in everything:
            producer.send("t", b"%d" % n, partition=n)
        producer.flush()
    with limited(data, signal.SIGTERM) as daemon:
        assert read(daemon) == sorted(2 * everything)
        for failure in ("not_opened", "read_only", "failed"):
            assert not daemon.events(f"partition_{failure}")
        assert not daemon.events("read_failed") + daemon.events("accept_failed")
        few = daemon.events("descriptors_few")
        assert [line["limit"] for line in few] == [LIMIT] * 3
