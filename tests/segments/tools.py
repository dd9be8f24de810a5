"""What the tests of segments/ share: batches, and reading everything back."""

from segbroker.protocol.record_batch import check_batch, encode_batch, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.storage import Storage, read_file, write_all
from segbroker.segments.errors import SegmentReplaced
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.metadata.metadata_log import MetadataLog
from segbroker.segments.partition.handler import AppendResult, DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.markers import marked, remove_markers
from segbroker.segments.wal.replay import replay, shard_folders

SMALL = TopicConfig({"segment.bytes": "512", "index.interval.bytes": "4096"})


def batch_of(
    *values: bytes,
    now_ms: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> memoryview:
    """A writable batch; producer is (id, epoch, first sequence)."""
    producer_id, epoch, sequence = producer
    return memoryview(
        bytearray(
            encode_batch(
                list(values),
                timestamps_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
    )


def manager_on(disk: Storage) -> DiskManager:
    """An opened one that does without threads."""
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    return manager


def append(handler: DiskHandler, batch: memoryview, now_ms: int = 1_000) -> AppendResult:
    return handler.append(batch, check_batch(batch), now_ms)


def read_from(handler: DiskHandler, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """As a client reads: again when a segment was repaired under the read."""
    try:
        return read_once(handler, offset, max_bytes)
    except SegmentReplaced:
        return read_once(handler, offset, max_bytes)


def read_once(handler: DiskHandler, offset: int, max_bytes: int = 1 << 20) -> bytes:
    plan = handler.plan_read(offset, max_bytes)
    if plan is None:
        return b""
    try:
        buffer = memoryview(bytearray(plan.size_max))
        return bytes(buffer[: plan.read(buffer)])
    finally:
        plan.release()


def offsets_in(data: bytes | memoryview) -> list[int]:
    """Base offsets of the batches."""
    return [read_header(batch).base_offset for batch in iter_batches(data)]


def lose_wal(storage: Storage, root: str = "/data") -> None:
    """Unlink the files of the write-ahead log: what they hold cannot mend a segment then.

    Its events are put into a snapshot first, as a checkpoint would.
    """
    metadata = MetadataLog(storage, f"{root}/meta")
    assert metadata.load(), "there is a snapshot"
    metadata.replay(replay(storage, f"{root}/wal").control)
    metadata.absorb()
    remove_markers(storage, f"{root}/wal", marked(storage, f"{root}/wal"))
    for folder in shard_folders(storage, f"{root}/wal").values():
        for name in storage.listdir(folder):
            storage.unlink(f"{folder}/{name}")


def as_after_a_checkpoint(manager: DiskManager) -> None:
    """From now on the files of the write-ahead log have nothing of what a segment has lost, as when
    all of them were used again."""
    vars(manager.wal)["recall"] = lambda source: []


def values_of(log: SegmentedLog) -> list[bytes | None]:
    return [record.value for record in log.stream()]


def flip(storage: Storage, path: str, position: int, mask: int = 1) -> None:
    """Flip a bit of a stored file."""
    content = read_file(storage, path)
    file = storage.open(path)
    write_all(file, bytes([content[position] ^ mask]), position)
    file.fdatasync()
    file.close()
