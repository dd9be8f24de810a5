"""A data directory that is damaged, opened again and read: what came of each record.

    world     a data directory in memory, filled and closed in order; what was acknowledged
    damage    any change to its files (bit_flips.py, file_damage.py)
    verdict   opened by DiskManager, every partition read from end to end and written to

| outcome | of a partition, or of the whole directory |
|---|---|
| whole | every acknowledged batch is there, byte for byte |
| gap | a batch is missing, and a gap stands for it |
| refused | it is not opened, or a read of it fails, with a StorageError that says why |

Anything else is a violation: a batch that is not the one that was acknowledged at that offset (I2,
I4, I9), an offset that is neither a record nor in a gap nor refused (I7), an offset given again, a
repeated batch of an idempotent producer taken for a new one, an exception that is no StorageError.
"""

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import (
    check_batch,
    encode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage, _Directory, _Inode
from segbroker.segments.errors import SegmentReplaced, StorageError
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from ..segments.tools import read_once
from .history import Partition

ROOT: Final = "/data"
NOW_MS: Final = 1_000_000
LIVES: Final = 4
REPAIRS_MAX: Final = 8

Files = Mapping[str, bytes]
"""What a disk holds, path -> content; a path that ends with / is an empty directory."""


class Ending(Enum):
    """How the last life of a directory ended."""

    CLOSED = "closed in order"
    KILLED = "killed: all that was written is there"
    POWER_CUT = "power cut: all that was synced is there, and nothing else"


class Batch(NamedTuple):
    """A batch as it was acknowledged."""

    data: bytes
    next_offset: int
    producer_id: int


@dataclass
class World:
    """A data directory, and what was acknowledged in it."""

    files: dict[str, bytes]
    batches: dict[Partition, dict[int, Batch]]
    """By base offset."""
    earlier: dict[str, list[bytes]]
    """Contents that a file had at earlier times, oldest first."""


def files_of(disk: MemoryStorage) -> dict[str, bytes]:
    """Every file of a disk."""
    found: dict[str, bytes] = {}

    def walk(directory: _Directory, path: str) -> None:
        if not directory.names:
            found[path + "/"] = b""
        for name, node in directory.names.items():
            if isinstance(node, _Directory):
                walk(node, f"{path}/{name}")
            else:
                found[f"{path}/{name}"] = bytes(node.content)

    walk(disk._root, "")
    return found


def disk_with(files: Files) -> MemoryStorage:
    """A disk that holds these files."""
    disk = MemoryStorage(keeps_promises=False)
    for path, content in files.items():
        *folders, name = path.strip("/").split("/")
        if path.endswith("/"):
            folders.append(name)
        directory = disk._root
        for part in folders:
            node = directory.names.setdefault(part, _Directory())
            if not isinstance(node, _Directory):
                raise OSError(errno.ENOTDIR, "a file is in the way", path)
            directory = node
        if not path.endswith("/"):
            directory.names[name] = _Inode(content)
    return disk


def manager_on(disk: MemoryStorage, now_ms: int = NOW_MS) -> DiskManager:
    return DiskManager(ROOT, storage=disk, flushers=0, now_ms=now_ms)


def batch_of(random: Random, size: int, sequence: int, producer: int) -> memoryview:
    """A batch of one to three records, of about `size` bytes together."""
    count = random.randint(1, 3)
    values = [random.randbytes(max(1, random.randint(1, 2 * size) // count)) for _ in range(count)]
    return memoryview(
        bytearray(
            encode_batch(
                values,
                timestamps_ms=NOW_MS + sequence,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
            )
        )
    )


def build(
    seed: int = 1,
    *,
    segment_bytes: int = 2_048,
    segments: int = 3,
    size: int = 120,
    topics: tuple[tuple[str, int, str], ...] = (("t", 2, "fsync"), ("u", 1, "disk")),
    ending: Ending = Ending.CLOSED,
) -> World:
    """A directory with so many full segments and half a segment more in every partition.

    Written in four lives, so that every file has earlier versions.  A producer of each partition is
    idempotent.  One topic was deleted.  `ending`: how the last life ended.
    """
    random = Random(seed)
    disk = MemoryStorage(keeps_promises=ending is Ending.POWER_CUT)
    config = {"segment.bytes": str(segment_bytes), "index.interval.bytes": "4096"}
    if segment_bytes > 8_192:
        del config["index.interval.bytes"]
    earlier: dict[str, list[bytes]] = {}
    appended: dict[Partition, int] = {}
    sequences: dict[Partition, int] = {}
    batches: dict[Partition, dict[int, Batch]] = {}
    for life in range(LIVES):
        manager = manager_on(disk, NOW_MS + life)
        with manager:
            if life == 0:
                manager.create_topic("gone", 1, TopicConfig({}))
            if life == 1:
                manager.delete_topic("gone")
            for name, partitions, durability in topics:
                if name not in manager.topics:
                    manager.create_topic(
                        name, partitions, TopicConfig({**config, "durability": durability})
                    )
                for number in range(partitions):
                    handler = manager.get_handler(name, number)
                    goal = (life + 1) * (segments * segment_bytes + segment_bytes // 2) // LIVES
                    while appended.get((name, number), 0) < goal:
                        _append(handler, random, size, (name, number), appended, sequences)
                    if life == LIVES - 1:
                        batches[name, number] = _batches_of(handler)
            if life == LIVES - 1 and ending is Ending.KILLED:
                left = files_of(disk.after_kill())
            elif life == LIVES - 1 and ending is Ending.POWER_CUT:
                left = files_of(disk.after_power_cut())
        for path, content in files_of(disk).items():
            versions = earlier.setdefault(path, [])
            if not versions or versions[-1] != content:
                versions.append(content)
    files = files_of(disk) if ending is Ending.CLOSED else left
    for path, versions in earlier.items():
        if versions and versions[-1] == files.get(path):
            versions.pop()
    return World(files, batches, earlier)


def _batches_of(handler: DiskHandler) -> dict[int, Batch]:
    rows: dict[int, Batch] = {}
    for data in read_out(handler, handler.high_watermark).batches.values():
        header = read_header(data)
        rows[header.base_offset] = Batch(data, header.next_offset, header.producer_id)
    return rows


def _append(
    handler: DiskHandler,
    random: Random,
    size: int,
    partition: Partition,
    appended: dict[Partition, int],
    sequences: dict[Partition, int],
) -> None:
    producer = 7 if random.random() < 0.5 else -1
    sequence = sequences.get(partition, 0)
    batch = batch_of(random, size, sequence, producer)
    header = check_batch(batch)
    handler.append(batch, header, NOW_MS)
    if producer >= 0:
        sequences[partition] = sequence + header.records_count
    appended[partition] = appended.get(partition, 0) + len(batch)


@dataclass
class ReadOut:
    """A partition as a reader sees it."""

    batches: dict[int, bytes] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int, str]] = field(default_factory=list)

    def accounts_for(self, start: int, end: int) -> bool:
        """Whether [start, end) lies in gaps and refusals."""
        lost = sorted([*self.gaps, *((a, b) for a, b, _ in self.refused)])
        for begin, until in lost:
            if begin <= start < until:
                start = until
        return start >= end


def read_out(handler: DiskHandler, end: int, starts: Iterable[int] = ()) -> ReadOut:
    """Everything from the log start on; over a refusal to the next of `starts`."""
    found = ReadOut()
    offset = handler.log_start_offset
    repairs = 0
    while offset < end:
        try:
            data = read_once(handler, offset)
        except SegmentReplaced:
            repairs += 1
            if repairs > REPAIRS_MAX:
                raise AssertionError(f"repaired again and again at {offset}") from None
            continue
        except StorageError as exc:
            following = min([start for start in starts if start > offset], default=end)
            found.refused.append((offset, following, str(exc)))
            offset = following
            continue
        if not data:
            break
        for batch in iter_batches(data):
            header = read_header(batch)
            if header.is_control:
                assert gap_reason(header) is not None, "a control batch that is no gap"
                found.gaps.append((header.base_offset, header.next_offset))
            else:
                found.batches[header.base_offset] = bytes(batch)
            offset = header.next_offset
    return found


@dataclass
class Verdict:
    """What a damage came to."""

    lost: int = 0
    """Batches that are in gaps or refused, over all partitions that were opened."""
    gaps: int = 0
    refused: str = ""
    """Why a partition, or the whole directory, was not opened."""
    violations: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        if self.refused:
            return "refused"
        return "gap" if self.lost else "whole"


def examine(
    world: World, disk: MemoryStorage, only: Collection[Partition] | None = None
) -> Verdict:
    """Open the damaged directory, read all of it (or `only` some), write to it, and close it."""
    verdict = Verdict()
    before = set(disk._root.names)
    try:
        manager = manager_on(disk)
        manager.open()
    except (StorageError, OSError) as exc:
        verdict.refused = str(exc)
        return verdict
    except Exception as exc:
        verdict.violations.append(f"opening raised {exc!r}")
        return verdict
    try:
        for partition in world.batches if only is None else only:
            try:
                _examine_partition(manager, partition, world.batches[partition], verdict)
            except Exception as exc:
                verdict.violations.append(f"{partition} raised {exc!r}")
    finally:
        with suppress(ExceptionGroup):
            manager.close()
    if set(disk._root.names) != before:
        verdict.violations.append("something outside of the data directory was touched")
    return verdict


def _examine_partition(
    manager: DiskManager, partition: Partition, batches: dict[int, Batch], verdict: Verdict
) -> None:
    try:
        handler = manager.get_handler(*partition)
    except StorageError as exc:
        verdict.refused = verdict.refused or str(exc)
        verdict.lost += len(batches)
        if partition[0] not in manager.topics:
            verdict.violations.append(f"{partition}: the topic is gone: {exc}")
        return
    found = read_out(handler, handler.high_watermark, batches)
    verdict.gaps += len(found.gaps)
    for offset, data in found.batches.items():
        if offset not in batches or batches[offset].data != data:
            verdict.violations.append(f"{partition}: another batch at offset {offset}")
    for offset in batches.keys() - found.batches.keys():
        verdict.lost += 1
        if not found.accounts_for(offset, batches[offset].next_offset):
            verdict.violations.append(f"{partition}: offset {offset} is lost without a word")
    whole = not found.gaps and not found.refused
    _examine_writing(handler, partition, batches, verdict, is_whole=whole)


def _examine_writing(
    handler: DiskHandler,
    partition: Partition,
    batches: dict[int, Batch],
    verdict: Verdict,
    *,
    is_whole: bool,
) -> None:
    """The last idempotent batch again, and a new one behind everything."""
    end = max(batch.next_offset for batch in batches.values())
    repeated = [offset for offset, batch in batches.items() if batch.producer_id >= 0]
    try:
        if repeated and is_whole:
            data = memoryview(bytearray(batches[repeated[-1]].data))
            result = handler.append(data, read_header(data), NOW_MS)
            if not result.duplicate or result.base_offset != repeated[-1]:
                verdict.violations.append(f"{partition}: a repeated batch was taken for a new one")
        batch = batch_of(Random(0), 50, 0, -1)
        result = handler.append(batch, check_batch(batch), NOW_MS)
        if result.base_offset < end:
            verdict.violations.append(f"{partition}: offset {result.base_offset} is given again")
        if read_once(handler, result.base_offset) != bytes(batch):
            verdict.violations.append(f"{partition}: what was appended then is not there")
    except StorageError as exc:
        verdict.refused = verdict.refused or str(exc)


def kinds_of(files: Files) -> dict[str, str]:
    """path -> what kind of file it is: active, sealed, index, manifest, producers, snapshot, ..."""
    last: dict[str, int] = {}
    for path in files:
        if path.endswith(".log") and "_segment_" in path:
            folder, number = _segment(path)
            last[folder] = max(last.get(folder, -1), number)
    found: dict[str, str] = {}
    for path in files:
        name = path.rpartition("/")[2]
        if path.endswith("/") or name == "LOCK":
            continue
        if name.endswith(".log") and "_segment_" in name:
            folder, number = _segment(path)
            found[path] = "active" if number == last[folder] else "sealed"
        elif "/wal/" in path:
            found[path] = "wal"
        elif name.startswith("snapshot-"):
            found[path] = "snapshot"
        else:
            found[path] = name.rpartition(".")[2]
    return found


def partition_of(path: str) -> Partition | None:
    """The partition that a file belongs to; None for one of the whole directory."""
    match path.split("/"):
        case [_, _, "topics", topic, folder, _]:
            return topic, int(folder.removeprefix("partition_"))
    return None


def _segment(path: str) -> tuple[str, int]:
    folder, _, name = path.rpartition("/")
    return folder, int(name.rpartition("_segment_")[2].removesuffix(".log"))


def sample(random: Random, count: int, size: int) -> Iterator[int]:
    """`count` positions of [0, size), spread evenly with a random phase; all when count >= size."""
    if count >= size:
        yield from range(size)
        return
    for step in range(count):
        low, high = step * size // count, (step + 1) * size // count
        yield random.randrange(low, high)
