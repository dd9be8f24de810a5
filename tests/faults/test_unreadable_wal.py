"""A WAL file that the disk does not give back at a start: refused by name, and nothing is touched.

The reads of the WAL in one start are counted under strace; then, on the same directory, one start
per read meets EIO there.  When the disk reads again, everything acknowledged is served.
"""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from segbroker.client import Admin, Consumer, Producer

from ..support import daemon as daemons
from . import traced

READS = ("read", "pread64", "preadv", "preadv2")
COUNT = 60
STARTS_MAX = 6


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def reads_of_wal(data: Path) -> list[tuple[str, int]]:
    """Each read of a WAL file that a start of `data` makes: the call, and its number."""
    process = daemons.fork(data, held=True)
    log = data.with_name("reads.strace")
    with traced.attached(process, log, calls=READS):
        daemons.ready(process, data).stop()
    seen: Counter[tuple[int, str]] = Counter()
    found = []
    for call in traced.calls_in(log, process.pid):
        seen[call.thread, call.name] += 1
        if "/wal/" in call.path:
            found.append((call.name, seen[call.thread, call.name]))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_wal_file_that_cannot_be_read_is_refused_by_name_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    traced.require_strace()
    data = tmp_path / "data"
    daemon = daemons.start(data)
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1, config={"durability": "fsync"})
    with Producer(daemon.address, linger_ms=0) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d" % number, partition=0)
    daemon.process.kill()
    daemon.stop()
    copied = tmp_path / "counted"
    shutil.copytree(data, copied)
    points = reads_of_wal(copied)
    assert points, "a start reads the WAL"
    before = contents(data / "wal")
    for name, number in points[:: max(1, len(points) // STARTS_MAX)]:
        process = daemons.fork(data, held=True)
        inject = f"{name}:error=EIO:when={number}"
        with traced.attached(process, tmp_path / "one.strace", inject, calls=READS):
            code = process.wait(300)
        assert process.stdout is not None
        process.stdout.close()
        log = daemons.log_of(data).read_text()
        assert code > 0, f"{name} {number}: exit code {code}\n{log}"
        assert os.strerror(5) in log
        assert f"{data}/wal" in log, "it says where"
        assert "Traceback" not in log
        assert contents(data / "wal") == before
    with (
        daemons.running(data) as again,
        Consumer(again.address, "t", stop_at_end=True) as consumer,
    ):
        assert [record.value for record in consumer] == [b"%d" % n for n in range(COUNT)]
