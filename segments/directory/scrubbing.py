"""The scrub: sealed segments read again and again, slowly, so that damage is found before a reader.

    pass       topic by topic, partition by partition, segment by segment; then a rest
    segment    its index from the disk, then its log block by block against the XXH3-64 there
    damage     the partition is opened if it is not, and mending.py does the rest

`step` reads as much as the rate allows since the last step, and may stop in the middle of a
segment; it is called in a lane, about once a second.  It holds no lock while it reads, uses no
descriptor and no index of the caches, and opens a partition only if it finds damage.

Pages that were not in memory before do not stay there: if no page of a segment was cached when the
scrub came, its pages are dropped again (DONT_NEED).  So the scrub takes no memory from readers.

What the scrub does not find: damage in segments that are not sealed (opening scans those), and a
log that was replaced together with its index by another whole pair with the same offsets and size.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import structlog
import xxhash

from ..disk.storage import Advice, Storage, StorageFile, read_file
from ..errors import CorruptSegment, StorageError
from ..files.index import Block, WrongIndex, decode_index, is_torn
from ..files.manifest import Row
from ..names import LogPaths, partition_paths
from ..recovery.known import Known, read_known
from ..settings.topic_config import Durability
from .manager import DiskManager, TopicMeta

log = structlog.get_logger()

CHUNK_SIZE: Final = 256 << 10
"""Bytes per read; more than a kernel reads ahead, so a probe does not see its own traces."""
LOOK_SIZE: Final = 4096
"""What a look at a partition, for its manifest, or a segment, for its index, counts against the
rate: a log of small segments costs the processor and not the disk."""
ELAPSED_MAX_MS: Final = 2_000
"""Time that a step makes up for: after a pause there is no burst."""


@dataclass(slots=True)
class ScrubStatistics:
    """What the scrub has done since the start.  Times are ms since 1970, -1 for never."""

    passes: int = 0
    segments: int = 0
    bytes: int = 0
    errors: int = 0
    last_pass_began_ms: int = -1
    last_pass_ended_ms: int = -1


class Scrubber:
    """The scrub of one data directory.  One thread at a time calls `step`."""

    def __init__(self, manager: DiskManager, bytes_per_second: int, interval_ms: int) -> None:
        """interval_ms: least time from the beginning of one pass to that of the next."""
        self.statistics = ScrubStatistics()
        self._manager = manager
        self._rate = bytes_per_second
        self._interval_ms = interval_ms
        self._running: Iterator[int] | None = None
        self._now_ms = -1
        self._allowance = 0
        self._buffer = memoryview(bytearray(CHUNK_SIZE))
        self._stopped = False

    def reconfigure(self, bytes_per_second: int, interval_ms: int) -> None:
        """Another pace from the next step on; 0 bytes: none.  From any thread."""
        self._rate = bytes_per_second
        self._interval_ms = interval_ms

    @property
    def is_running(self) -> bool:
        """Whether a pass is under way."""
        return self._running is not None

    def stop(self) -> None:
        """Let the step under way end soon, and do nothing in later ones.  From any thread."""
        self._stopped = True

    def step(self, now_ms: int) -> int:
        """Read what the rate allows; the bytes read.  Blocking; for lanes."""
        elapsed = min(max(now_ms - self._now_ms, 0), ELAPSED_MAX_MS) if self._now_ms >= 0 else 1_000
        self._now_ms = now_ms
        if self._running is None and not self._begin(now_ms):
            return 0
        self._allowance += self._rate * elapsed // 1_000
        done = 0
        while self._allowance > 0 and not self._stopped:
            assert self._running is not None, "begun above"
            count = next(self._running, None)
            if count is None:
                self._end(now_ms)
                break
            self._allowance -= count or LOOK_SIZE
            done += count
            self.statistics.bytes += count
        return done

    def _begin(self, now_ms: int) -> bool:
        began = self.statistics.last_pass_began_ms
        if 0 <= began <= now_ms < began + self._interval_ms:
            return False
        self.statistics.last_pass_began_ms = now_ms
        self._running = self._pass()
        return True

    def _end(self, now_ms: int) -> None:
        self._running = None
        self._allowance = 0
        self.statistics.passes += 1
        self.statistics.last_pass_ended_ms = now_ms
        log.info(
            "scrub_pass_ended",
            segments=self.statistics.segments,
            bytes=self.statistics.bytes,
            errors=self.statistics.errors,
        )

    def _pass(self) -> Iterator[int]:
        """All of it; yields the bytes of each read, and 0 for a look (LOOK_SIZE)."""
        for name in sorted(self._manager.topics):
            meta = self._manager.topics.get(name)
            if meta is None or meta.config.durability is Durability.EPHEMERAL:
                continue
            for partition in range(meta.partitions):
                try:
                    yield from self._partition(meta, partition)
                except (StorageError, OSError) as exc:
                    # Deleted meanwhile, or not readable: the next pass comes by again.
                    log.warning(
                        "partition_not_scrubbed", topic=name, partition=partition, error=str(exc)
                    )

    def _partition(self, meta: TopicMeta, partition: int) -> Iterator[int]:
        manager = self._manager
        paths = partition_paths(manager.root, meta.name, partition)
        handler = manager.handler_if_open(meta.name, partition)
        known: Known | None = None
        if handler is None:
            known = read_known(manager.storage, paths)
            numbers = known.sealed.numbers.tolist() if known is not None else []
        else:
            numbers = handler.sealed_numbers()
        yield 0
        errors = self.statistics.errors
        for number in numbers:
            handler = manager.handler_if_open(meta.name, partition)
            row: Row | None = None
            if handler is not None:
                row = handler.sealed_row(number)
            elif known is not None:
                row = known.sealed.row(number)
            if row is None:
                continue  # deleted meanwhile
            self.statistics.segments += 1
            yield 0
            try:
                problem = yield from check_segment(manager.storage, paths, row, self._buffer)
            except OSError as exc:  # nobody can repair what cannot be read; the others may be whole
                self.statistics.errors += 1
                log.error("segment_not_readable", path=paths.log(number), error=str(exc))
                continue
            if problem is not None:
                try:
                    handler = manager.get_handler(meta.name, partition)
                except StorageError:
                    manager.note_failed(meta.name, partition)
                    raise
                self.statistics.errors += handler.check_segment(problem)
        if handler is not None and errors == self.statistics.errors:
            handler.scrubbed_ms = self._now_ms


def check_segment(
    storage: Storage, paths: LogPaths, row: Row, buffer: memoryview
) -> Generator[int, None, CorruptSegment | None]:
    """Compare a sealed segment with its index; yields the bytes of each read.

    Returns what is wrong, None for nothing: index or log, that is for who repairs to find out.
    """
    path = paths.log(row.number)
    try:
        content = read_file(storage, paths.index(row.number))
    except FileNotFoundError as exc:
        return CorruptSegment(path, 0, str(exc), has_no_index=True)
    try:
        index = decode_index(content, row.base_offset, row.size, row.tag)
        file = storage.open(path, read_only=True)
    except (WrongIndex, FileNotFoundError) as exc:
        return CorruptSegment(path, 0, str(exc), has_no_index=is_torn(content, row.size))
    with closing(file):
        if file.size() != row.size:
            return CorruptSegment(path, 0, f"{file.size()} bytes, the manifest says {row.size}")
        was_cached = _is_cached(file, row.size, buffer)
        for block, summed in zip(index.blocks, index.summed, strict=True):
            if not (yield from _check_block(file, block, summed, buffer)):
                return CorruptSegment(path, block.position, "XXH3-64 of a block does not match")
        if not was_cached:
            file.advise(Advice.DONT_NEED)
    return None


def _is_cached(file: StorageFile, size: int, buffer: memoryview) -> bool:
    """Whether any of some bytes, one per chunk, are in memory."""
    return any(
        file.pread_nowait(buffer[:1], position) is not None
        for position in range(0, size, CHUNK_SIZE)
    )


def _check_block(
    file: StorageFile, block: Block, summed: bytes, buffer: memoryview
) -> Generator[int, None, bool]:
    hasher = xxhash.xxh3_64()
    done = 0
    while done < block.length:
        part = buffer[: min(len(buffer), block.length - done)]
        count = file.pread(part, block.position + done)
        if count != len(part):
            return False
        hasher.update(part)
        done += count
        yield count
    hasher.update(summed)
    return hasher.intdigest() == block.checksum
