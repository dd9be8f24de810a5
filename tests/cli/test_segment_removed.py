"""The file of the segment that is written is removed under a running broker: what was acknowledged
is put back from the write-ahead log, or its loss is told at once, not at the next start."""

from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Consumer, Producer
from segbroker.client.errors import GapError

from ..support.daemon import Daemon, running, start
from .conftest import in_process


def send(daemon: Daemon, value: bytes) -> None:
    with Producer(daemon.address) as producer:
        producer.send("t", value, partition=0)


def stored(daemon: Daemon) -> list[bytes | None]:
    with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
        return [record.value for record in consumer]


def begin(data: Path, durability: str) -> Daemon:
    """A broker with a topic of one record, whose segments, also those made ahead, were removed."""
    daemon = start(data)
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1, config={"durability": durability})
    send(daemon, b"before")
    for path in data.glob("topics/t/partition_0/*.log"):
        path.unlink()
    return daemon


def test_an_orderly_stop_keeps_what_the_write_ahead_log_has(data: Path) -> None:
    daemon = begin(data, "fsync")
    send(daemon, b"behind")
    assert daemon.stop() == ExitCode.SYSTEM
    assert any("removed" in event["error"] for event in daemon.events("partition_failed"))
    with running(data) as again:
        assert stored(again) == [b"before", b"behind"]
    assert in_process("verify", str(data)).returncode == ExitCode.OK


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_without_a_copy_the_stop_tells_it(data: Path, durability: str) -> None:
    daemon = begin(data, durability)
    assert daemon.stop() == ExitCode.SYSTEM
    assert any("removed" in event["error"] for event in daemon.events("partition_failed"))
    with running(data) as again:
        with pytest.raises(GapError):
            stored(again)
        assert again.events("recovery_gap")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
