"""A daemon whose files may not become as large as its segments may (ulimit -f)."""

import resource
import signal
from pathlib import Path

import pytest

from segbroker.client import Admin, Consumer, MessageTooLarge, Producer

from ..support.daemon import fork, ready
from ..support.forks import Forked

LIMIT = 1 << 20
FLAGS = ("--wal-file-bytes", "1048576", "--wal-bytes-max", "8388608")


def test_segments_are_as_large_as_files_may_be(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = fork(data, *FLAGS, held=True)
    assert isinstance(process, Forked)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    process.release()
    daemon = ready(process, data)
    wanted = [b"%d" % n * 20_000 for n in range(100, 160)]
    with Admin(daemon.address) as admin, Producer(daemon.address, delivery_timeout_ms=10_000) as p:
        admin.create_topic("t", partitions=1, config={"segment.bytes": str(1 << 30)})
        p.send_many("t", wanted)
        p.flush()
        with pytest.raises(MessageTooLarge, match=r"ulimit -f\) is 1048576"):
            p.send("t", bytes(2 * LIMIT)).result(60)
    with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
        assert [record.value for record in consumer] == wanted
    assert not daemon.events("partition_failed")
    assert daemon.stop(signal.SIGTERM) == 0
