"""A disk that is really full: a small tmpfs under the data directory of a real daemon."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Consumer, Producer, SegbrokerError

from ..faults.full_disk import small_disk
from ..support.daemon import Daemon, running
from ..support.scrape import get

# The write-ahead log has files of 16 MiB, the first ones made at the start.
SIZE_MIB = 64
LEFT_MIB = 3


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_when_there_is_space(
    durability: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", SIZE_MIB) as folder:
        fill_and_recover(folder, durability)


def read(daemon: Daemon) -> list[bytes | None]:
    with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
        return [record.value for record in consumer]


def fill_up(folder: Path, ballast: Path, left: int) -> None:
    """Leave `left` bytes free at most; the daemon may take some of them at the same time."""
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        for _ in range(SIZE_MIB * 2):
            disk = os.statvfs(folder)
            excess = disk.f_bavail * disk.f_frsize - left
            if excess <= 0:
                return
            file.write(bytes(min(excess, 1 << 20)))


def fill_and_recover(folder: Path, durability: str) -> None:
    ballast = folder / "ballast"
    acked: list[bytes] = []
    with running(folder / "data", "--metrics-listen", "127.0.0.1:0") as daemon:
        (page,) = daemon.events("metrics_listening")
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1, config={"durability": durability})
        with Producer(daemon.address) as producer:
            producer.send("t", b"first", partition=0).result(60)
            acked.append(b"first")
        fill_up(folder, ballast, LEFT_MIB << 20)

        def fill(producer: Producer) -> None:
            for n in range(100):
                # The daemon may give a spare file of the WAL back on the way.
                fill_up(folder, ballast, LEFT_MIB << 20)
                value = b"%d " % n + bytes(100_000)
                producer.send("t", value, partition=0).result(60)
                acked.append(value)

        with (
            Producer(daemon.address, delivery_timeout_ms=8_000) as producer,
            pytest.raises(SegbrokerError, match="No space left"),  # what the broker answered last
        ):
            fill(producer)
        assert 5 < len(acked) < 80, "the disk filled up on the way"

        assert read(daemon)[: len(acked)] == acked
        for _ in range(50):  # the daemon may just have given a file of the WAL back
            fill_up(folder, ballast, 0)
            status, _, why = get(page["address"], "/health/ready")
            if status == 503:
                break
        assert "the volume is full: " in why

        ballast.unlink()
        with Producer(daemon.address, delivery_timeout_ms=30_000) as producer:
            receipt = producer.send("t", b"after", partition=0).result(60)
        assert get(page["address"], "/health/ready")[0] == 200
        values = read(daemon)
        assert values[: len(acked)] == acked
        assert values[-1] == b"after"
        assert receipt.offset == len(values) - 1
        daemon.stop(signal.SIGKILL)
    fill_up(folder, ballast, 0)

    # A start without a free page gives back what is free, and serves.
    assert os.statvfs(folder).f_bavail == 0
    with running(folder / "data") as daemon:
        assert read(daemon)[: len(values)] == values
    assert "given_up" in daemon.log.read_text()


def test_a_start_on_a_read_only_file_system_ends_with_its_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SIZE_MIB) as folder:
        with running(folder / "data") as daemon, Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        command = [sys.executable, "-m", "segbroker.cli", "serve", "--listen", "127.0.0.1:0"]
        ended = subprocess.run(
            [*command, "--data", str(folder / "data")], capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == ExitCode.SYSTEM
        assert f"{folder}/data/LOCK: Read-only file system" in ended.stderr
        looked = [sys.executable, "-m", "segbroker.cli", "verify", str(folder / "data")]
        assert subprocess.run(looked, capture_output=True, timeout=120).returncode == 0
