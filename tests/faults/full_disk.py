"""A disk that is full after c bytes of a frame, for every c: a real tmpfs, filled to the last page.

    page | ... acked | pad to here | c bytes |      the rest of the disk: ballast
                                   ^ a frame of FRAME_BYTES: a write of c bytes, then "no space"

A tmpfs gives memory in pages of 4 KiB, so a write into the last page of a full disk is short by
exactly what does not fit there: the pad decides c.

Of each: the append is refused as DiskFull, everything acknowledged is read while there is no space,
the log goes on by itself once there is, at the same offset, and what was torn is never seen.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from segbroker.protocol.record_batch import check_batch, encode_batch, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import DiskFull, SegmentReplaced
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

PAGE: Final = 4_096
FRAME_BYTES: Final = 1_500
SIZE_MIB: Final = 8
_BATCH_OVERHEAD: Final = len(encode_batch([bytes(1_000)], timestamps_ms=0)) - 1_000


@contextmanager
def small_disk(folder: Path, size_mib: int = SIZE_MIB) -> Iterator[Path]:
    """A file system of a few MiB; skips, aloud, where none can be mounted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(folder)]
    run = subprocess.run(mount, capture_output=True, text=True)
    if run.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {run.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def batch_of(size: int, fill: int) -> memoryview:
    """A batch of one record, `size` bytes altogether (above 200, where lengths take two bytes)."""
    data = encode_batch([bytes([fill % 256]) * (size - _BATCH_OVERHEAD)], timestamps_ms=0)
    assert len(data) == size, "the lengths in it have other sizes"
    return memoryview(bytearray(data))


class FullDisk:
    """A partition on a small disk, and what it acknowledged."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.root = folder / "data"
        self.ballast = folder / "ballast"
        self.config = TopicConfig({"durability": durability})
        self.acked: list[bytes] = []
        self.now_ms = 1_000_000
        self.manager = DiskManager(str(self.root), flushers=0, now_ms=self.now_ms)
        self.manager.open()
        if "t" not in self.manager.topics:
            self.manager.create_topic("t", 1, self.config)

    @property
    def handler(self) -> DiskHandler:
        return self.manager.get_handler("t", 0)

    def append(self, batch: memoryview) -> None:
        """Append, and remember it as it is stored."""
        result = self.handler.append(batch, check_batch(batch), self.now_ms)
        assert result.base_offset == len(self.acked), "offsets without a hole"
        assert self.handler.high_watermark == result.base_offset + 1, "acknowledged"
        self.acked.append(bytes(batch))

    def read(self, offset: int) -> list[bytes]:
        """Everything from `offset` on."""
        found: list[bytes] = []
        handler = self.handler
        while (position := offset + len(found)) < handler.high_watermark:
            plan = handler.plan_read(position, 1 << 20)
            assert plan is not None, "there is something to read"
            try:
                buffer = memoryview(bytearray(plan.size_max))
                data = buffer[: plan.read(buffer)]
            except SegmentReplaced:
                continue
            finally:
                plan.release()
            found += [bytes(batch) for batch in iter_batches(data)]
        return found

    def fill(self) -> None:
        """Take every free page."""
        with self.ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        statistics = os.statvfs(self.root)
        assert statistics.f_bfree == 0, "the disk is full"

    def tear_at(self, count: int) -> None:
        """One frame of which `count` bytes fit."""
        handler = self.handler
        position = handler._log.active.size % PAGE
        pad = (PAGE - count - position) % PAGE
        if pad < 300:
            pad += PAGE
        self.append(batch_of(pad, 1))
        segment = handler._log.active
        assert segment.size % PAGE == PAGE - count, "the pad is right, and nothing rolled"
        offset = len(self.acked)
        frame = batch_of(FRAME_BYTES, count)
        self.fill()
        with pytest.raises(DiskFull):
            handler.append(frame, check_batch(frame), self.now_ms)
        assert Path(segment.path).stat().st_size % PAGE == 0, "a short write came first"
        assert handler.high_watermark == offset
        begin = max(0, offset - 2)
        assert self.read(begin) == self.acked[begin:]
        self.ballast.unlink()
        self.now_ms += 5_000
        self.manager.housekeeping(self.now_ms)
        assert handler.read_only is None, "it goes on by itself"
        self.append(batch_of(FRAME_BYTES, count + 1))
        assert self.read(begin) == self.acked[begin:]

    def roll_if_near_the_end(self) -> None:
        """Go on in the next segment when the next frames could pass this one."""
        room = self.config.segment_bytes - self.handler._log.active.size
        if room < 4 * PAGE:
            for _ in range(2):  # of sizes at which lengths take two bytes
                self.append(batch_of(2 * PAGE, 2))

    def check_all(self) -> None:
        """Everything, here and after opening again."""
        assert self.read(0) == self.acked
        self.manager.close()
        self.manager = DiskManager(str(self.root), flushers=0, now_ms=self.now_ms)
        self.manager.open()
        assert self.read(0) == self.acked
        assert [read_header(b).base_offset for b in self.acked] == list(range(len(self.acked)))

    def trim(self) -> None:
        """A small disk holds a few segments only: begin anew, in a topic of the same name."""
        self.manager.delete_topic("t")
        self.manager.create_topic("t", 1, self.config)
        self.acked.clear()


def tear_at_each(folder: Path, durability: str, counts: list[int]) -> int:
    """A frame torn at each of these bytes; how many were."""
    disk = FullDisk(folder, durability)
    try:
        for done, count in enumerate(counts):
            disk.roll_if_near_the_end()
            disk.tear_at(count)
            if done % 500 == 499:
                disk.check_all()
                disk.trim()
        disk.check_all()
    finally:
        disk.manager.close()
    return len(counts)
