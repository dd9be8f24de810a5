"""A reader that is ahead of an older backup, which is put back at the broker and written on: it is
told what is not in the log any more, and reads what is there now.

The leader epoch of what was read has to be one that the backup has not come to: here that of a gap,
for which the files of a partition were exchanged before.
"""

import shutil
from pathlib import Path

from segbroker.client import Admin, Consumer, Gap, Producer, Record

from ..support.daemon import Daemon, running

WAIT_S = 60


def write(daemon: Daemon, *values: bytes) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many("t", values, partition=0)


def read(consumer: Consumer[Gap], up_to: bytes) -> list[int | Gap]:
    """Offsets and gaps up to this record."""
    found: list[int | Gap] = []
    for item in consumer:
        found.append(item.offset if isinstance(item, Record) else item)
        if isinstance(item, Record) and item.value == up_to:
            return found
    raise AssertionError("a reading without an end has ended")


def test_a_backup_that_is_older_than_what_was_read_is_told(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with running(tmp_path / "data", "--durability", "disk") as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1)
        write(daemon, *[b"kept"] * 10)
        daemon.stop()
        shutil.copytree(daemon.data, backup)
        # A partition's files of then beside all else of now: what is missing is a gap, and begins
        # a leader epoch.
        daemon.again()
        write(daemon, *[b"lost"] * 10)
        daemon.stop()
        log = daemon.data / "topics" / "t" / "partition_0"
        shutil.rmtree(log)
        shutil.copytree(backup / log.relative_to(daemon.data), log)
        daemon.again()
        write(daemon, b"x", b"x", b"last of then")
        with Consumer(daemon.address, "t", on_gap="yield", api_timeout_ms=WAIT_S * 1000) as reader:
            then = read(reader, b"last of then")
            daemon.stop()
            shutil.rmtree(daemon.data)
            shutil.copytree(backup, daemon.data)
            daemon.again()
            write(daemon, *[b"other"] * 29, b"last of now")
            now = read(reader, b"last of now")
    assert then == [*range(10), Gap("t", 0, 10, 20, "corruption"), 20, 21, 22]
    assert now == [Gap("t", 0, 10, 23, "lost_tail"), *range(10, 40)]
