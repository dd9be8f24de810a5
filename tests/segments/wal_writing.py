"""What the tests of the write-ahead log share: a partition that writes, a disk that fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import structlog

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer, Storage
from segbroker.segments.wal.frames import Frame
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.pending import Pending
from segbroker.segments.wal.replay import Replay

from ..support import waiting

ROOT = "/data/wal"
SMALL = WalConfig(file_bytes=8192, shard_bytes=4 * 8192)
TOPIC = bytes(range(16))


class Writer:
    """A partition that appends bytes; `durable` and `failures` are what it was told."""

    def __init__(self, wal: Wal, partition: int = 0) -> None:
        self.wal_key = (TOPIC, partition)
        self.wal_queued = False
        self.partition = partition
        self.wal = wal
        self.shard = wal.shard_of(TOPIC, partition)
        self.pending = Pending(TOPIC, partition, SMALL.batch_bytes_max)
        self.end = 0
        self.durable = 0
        self.failures: list[OSError] = []
        self.checkpoints = 0
        self.can_checkpoint = True

    def append(self, data: bytes) -> None:
        end = self.end + len(data)
        self.pending.add(data, 0, self.end, self.end, end, 1)
        self.end = end
        self.shard.submit(self)

    def take_frames(self) -> tuple[list[Frame], int]:
        return self.pending.take()

    def wal_synced(self, mark: int) -> None:
        self.durable = mark

    def wal_gave_up(self) -> None:
        pass

    def wal_failed(self, cause: OSError) -> None:
        self.failures.append(cause)

    def wal_checkpoint(self) -> bool:
        self.checkpoints += 1
        return self.can_checkpoint


def at_once(task: Callable[[], None]) -> None:
    task()


def until(true: Callable[[], bool]) -> None:
    """Look at threads, again and again, up to a deadline."""
    waiting.until(true, pause_s=0.001)


@contextmanager
def no_memory_for_lines() -> Iterator[None]:
    """Whoever tells of something meets it."""

    def runs_out(*_: object) -> NoReturn:
        raise MemoryError

    before = structlog.get_config()
    structlog.configure(
        processors=[runs_out], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def begun(storage: Storage, config: WalConfig = SMALL, *, root: str = ROOT) -> tuple[Wal, Replay]:
    wal = Wal(storage, root, config, threaded=False, call_soon=at_once)
    found = wal.open()
    wal.absorbed()
    return wal, found


def replayed(storage: Storage, config: WalConfig = SMALL) -> Replay:
    return Wal(storage, ROOT, config, threaded=False, call_soon=at_once).open()


def content(found: Replay, partition: int = 0) -> bytes:
    return b"".join(bytes(f.payload) for f in found.partitions.get((TOPIC, partition), []))


class FailingStorage(MemoryStorage):
    """Fails the writes or syncs of WAL files while told to; counts them.  `durable` is what was on
    the disk before the last sync."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_write: int = 0
        self.fail_sync: int = 0
        self.calls: list[tuple[str, str]] = []
        self.writes_before_failure = 0
        self.durable: MemoryStorage | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = FailingFile(path, plain._inode, self)
        file.owner = self
        return file


class FailingFile(MemoryFile):
    owner: FailingStorage

    def pwrite(self, data: Buffer, position: int) -> int:
        self.owner.calls.append(("pwrite", self.path))
        if self.owner.fail_write and self.owner.writes_before_failure:
            self.owner.writes_before_failure -= 1
        elif self.owner.fail_write:
            raise OSError(self.owner.fail_write, "planted", self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        self.owner.calls.append(("fdatasync", self.path))
        if self.owner.fail_sync:
            raise OSError(self.owner.fail_sync, "planted", self.path)
        self.owner.durable = self.owner.after_power_cut()
        super().fdatasync()
