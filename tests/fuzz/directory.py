"""A data directory, damaged as the input says, and what it may still give away.

The directory is made once by the storage engine itself: a topic of two partitions, several
segments each, every record with a value that follows from its offset.  The input is a list of
edits of six bytes; each changes one file:

    file u8 | how u8 | position u16 | byte u8 | length u8
    how % 5: 0 overwrite, 1 cut off from here, 2 append, 3 remove it, 4 swap with the next
"""

from functools import cache

from segbroker.protocol.record_batch import (
    check_batch,
    decode_batch,
    encode_batch,
    iter_batches,
)
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import SegmentReplaced
from segbroker.segments.settings.topic_config import TopicConfig

ROOT = "data"
TOPIC = "fuzzed"
PARTITIONS = 2
RECORDS = 60
NOW_MS = 1_700_000_000_000
EDIT_SIZE = 6
EDITS_MAX = 8


def value(offset: int) -> bytes:
    return b"the value at offset %d, " % offset * 5


@cache
def files() -> dict[str, bytes]:
    """Path -> content of the directory as it was closed."""
    storage = MemoryStorage()
    with manager_of(storage) as manager:
        config = TopicConfig.parse({"segment.bytes": "2048"})
        manager.create_topic(TOPIC, PARTITIONS, config)
        for partition in range(PARTITIONS):
            handler = manager.get_handler(TOPIC, partition)
            for first in range(0, RECORDS, 4):
                values = [value(offset) for offset in range(first, first + 4)]
                batch = bytearray(
                    encode_batch(
                        values,
                        timestamps_ms=NOW_MS + first,
                        producer_id=7,
                        producer_epoch=0,
                        base_sequence=first,
                    )
                )
                handler.append(memoryview(batch), check_batch(batch), NOW_MS + first)
    found = dict(walk(storage, ROOT))
    assert sum(path.endswith(".log") for path in found) > 2 * PARTITIONS, "too few segments"
    return found


def manager_of(storage: MemoryStorage) -> DiskManager:
    return DiskManager(ROOT, storage=storage, flushers=0, now_ms=NOW_MS)


def walk(storage: MemoryStorage, folder: str) -> list[tuple[str, bytes]]:
    """The files below a folder with their contents, in order of their names."""
    found: list[tuple[str, bytes]] = []
    for name in storage.listdir(folder):
        path = f"{folder}/{name}"
        try:
            file = storage.open(path, read_only=True)
        except IsADirectoryError:
            found += walk(storage, path)
            continue
        content = bytearray(file.size())
        file.pread(memoryview(content), 0)
        file.close()
        found.append((path, bytes(content)))
    return found


def damage(edits: bytes) -> MemoryStorage:
    """A fresh copy of the directory after the edits."""
    contents = {path: bytearray(content) for path, content in files().items()}
    for at in range(0, min(len(edits), EDITS_MAX * EDIT_SIZE) - EDIT_SIZE + 1, EDIT_SIZE):
        number, how, high, low, byte, length = edits[at : at + EDIT_SIZE]
        paths = sorted(contents)
        path = paths[number % len(paths)]
        content = contents[path]
        position = (high << 8 | low) % (len(content) + 1)
        match how % 5:
            case 0:
                content[position : position + 1 + length % 4] = bytes([byte]) * (1 + length % 4)
            case 1:
                del content[position:]
            case 2:
                content += bytes([byte]) * length
            case 3:
                del contents[path]
            case 4:
                other = paths[(number + 1) % len(paths)]
                contents[path], contents[other] = contents[other], contents[path]
    storage = MemoryStorage()
    for path, content in contents.items():
        make_folders(storage, path)
        file = storage.open(path, create=True)
        file.pwrite(content, 0)
        file.close()
    return storage


def make_folders(storage: MemoryStorage, path: str) -> None:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if not storage.exists(folder):
            storage.mkdir(folder)


def check(storage: MemoryStorage) -> None:
    """Open, read everything, append: no record but the one that belongs at its offset.

    Raises:
        StorageError, OSError: what the storage engine says about the damage.
        AssertionError: it gave away a record that was never written there.
    """
    with manager_of(storage) as manager:
        for topic in manager.topics:
            assert topic == TOPIC, f"a topic {topic!r} was never created"
        for partition in range(PARTITIONS if TOPIC in manager.topics else 0):
            handler = manager.get_handler(TOPIC, partition)
            offset = handler.log_start_offset
            while offset < handler.high_watermark:
                plan = handler.plan_read(offset, 1000)
                assert plan is not None, f"nothing to read below the high watermark at {offset}"
                buffer = memoryview(bytearray(plan.size_max))
                try:
                    size = plan.read(buffer)
                except SegmentReplaced:
                    continue  # repaired under the read: planned again
                finally:
                    plan.release()
                assert size > 0, f"nothing was read below the high watermark at {offset}"
                for batch in iter_batches(buffer[:size]):
                    for record in decode_batch(batch).records():
                        assert record.value == value(record.offset), f"{record} was not written"
                        assert record.offset < RECORDS, f"{record} was not written"
                    offset = check_batch(batch, stored=True).next_offset
