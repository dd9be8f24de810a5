"""A disk that is really full: a small tmpfs under the data directory of a real daemon."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from segbroker.client import Admin, Consumer, Producer, SegbrokerError

from ..support.daemon import running

SIZE_MIB = 6


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB, mounted for the length of a test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "none", str(folder)]
    run = subprocess.run(mount, capture_output=True, text=True)
    if run.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {run.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_when_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3 * 1024 * 1024))
    acked: list[bytes] = []
    with running(small_disk / "data") as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1, config={"durability": "disk"})

        def fill(producer: Producer) -> None:
            for n in range(100):
                value = b"%d " % n + bytes(100_000)
                producer.send("t", value, partition=0).result(30)
                acked.append(value)

        with (
            Producer(daemon.address, delivery_timeout_ms=2_000) as producer,
            pytest.raises(SegbrokerError, match="No space left"),  # what the broker answered last
        ):
            fill(producer)
        assert 5 < len(acked) < 60, "the disk filled up on the way"

        with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
            assert [record.value for record in consumer][: len(acked)] == acked

        ballast.unlink()
        with Producer(daemon.address, delivery_timeout_ms=30_000) as producer:
            receipt = producer.send("t", b"after", partition=0).result(30)
        with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
            values = [record.value for record in consumer]
        assert values[: len(acked)] == acked
        assert values[-1] == b"after"
        assert receipt.offset == len(values) - 1
    assert "No space left" in daemon.log.read_text()
