"""What can go wrong in a log, by whose doing it was.

| group | classes | who can do something |
|---|---|---|
| refused | OffsetOutOfRange, BatchTooLarge, TimestampOutOfBounds, TopicExists, ... | the caller |
| producer | OutOfOrderSequence, InvalidProducerEpoch | the producer |
| the disk | PartitionReadOnly, DiskFull, PartitionDamaged, CorruptSegment, ... | the operator |

Every message carries both values: what was asked and what is.  broker/ translates each class to
a wire code in one module; a test walks the subclasses so that none is forgotten.
"""

import errno
from collections.abc import Sequence
from typing import Final

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The volume is full, or a quota is used up."""
PASSING_ERRNOS: Final = NO_SPACE | {errno.EMFILE, errno.ENFILE}
"""Failures of a write that end by themselves: too little space, too few descriptors."""

_WHAT_TO_DO: Final = (
    "check the disk, then stop the broker and run segbroker verify --repair, or set "
    "on.corruption=gap"
)


def as_os_error(exc: Exception, what: str) -> OSError:
    """What kept something from being written, as the error of a disk: for want of memory, or by a
    bug, it is not there either.  what: has come of it."""
    if isinstance(exc, OSError):
        return exc
    number = errno.ENOMEM if isinstance(exc, MemoryError) else errno.EIO
    error = OSError(number, f"{what}: {exc!r}")
    error.__cause__ = exc
    return error


class StorageError(Exception):
    """Base of all that segments/ raises on purpose."""


class OffsetOutOfRange(StorageError):
    """The offset is not in the log."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} outside [{start}, {end})")
        self.offset, self.start, self.end = offset, start, end


class BatchTooLarge(StorageError):
    """The batch can never fit; no offset was assigned."""

    def __init__(self, size: int, limit: int, setting: str) -> None:
        super().__init__(f"batch of {size} bytes, {setting} is {limit}")
        self.size, self.limit, self.setting = size, limit, setting


class TimestampOutOfBounds(StorageError):
    """A record is older or newer than its topic takes; no offset was assigned.

    indexes: which records of the batch are; none where it could not be opened.
    """

    def __init__(
        self,
        timestamp_ms: int,
        now_ms: int,
        setting: str,
        limit_ms: int,
        indexes: Sequence[int],
    ) -> None:
        super().__init__(
            f"timestamp {timestamp_ms}, at {now_ms} ms since 1970, is beyond {setting}={limit_ms}"
        )
        self.timestamp_ms, self.setting, self.limit_ms = timestamp_ms, setting, limit_ms
        self.indexes = indexes


class InvalidTopicName(StorageError):
    """The name could not be a directory of its own."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"topic name {name!r}: {reason}")
        self.name = name


class InvalidConfig(StorageError, ValueError):
    """A topic setting is unknown, malformed, or contradicts another."""

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(f"{key}={value}: {reason}")
        self.key, self.value, self.reason = key, value, reason


class InvalidPartitions(StorageError):
    """A partition count that cannot be: too few, too many, or fewer than there are."""

    def __init__(self, topic: str, count: int, reason: str) -> None:
        super().__init__(f"{count} partitions for topic {topic!r}: {reason}")
        self.topic, self.count = topic, count


class TopicExists(StorageError):
    """A topic of that name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{name}' already exists.")
        self.name = name


class TopicCollides(StorageError):
    """A topic is there whose name differs from this one in `.` and `_` only; or in nothing that the
    file system looks at."""

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(f"Topic '{name}' collides with existing topic: {existing}")
        self.name, self.existing = name, existing


class UnknownTopic(StorageError):
    """There is no such topic, or it has no such partition."""

    def __init__(self, name: str, partition: int | None = None) -> None:
        where = f"partition {partition} of topic {name!r}" if partition is not None else repr(name)
        super().__init__(f"there is no {where}")
        self.name, self.partition = name, partition


class OutOfOrderSequence(StorageError):
    """An idempotent producer skipped or repeated a sequence number outside the window."""

    def __init__(self, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(f"producer {producer_id} sent sequence {sequence}, expected {expected}")
        self.producer_id, self.sequence, self.expected = producer_id, sequence, expected


class TransactionOpen(StorageError):
    """A batch outside of the transaction that its producer has open here."""

    def __init__(self, producer_id: int, first_offset: int) -> None:
        super().__init__(
            f"producer {producer_id} has a transaction open since offset {first_offset}, "
            "the batch is not part of one"
        )
        self.producer_id, self.first_offset = producer_id, first_offset


class InvalidProducerEpoch(StorageError):
    """A newer instance of this producer has written already."""

    def __init__(self, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(f"producer {producer_id} has epoch {epoch}, the partition knows {current}")
        self.producer_id, self.epoch, self.current = producer_id, epoch, current


class PartitionReadOnly(StorageError):
    """A write or a sync failed; nothing more is written until recovery has run."""

    _standing = "read-only"

    def __init__(self, topic: str, partition: int, cause: BaseException | str) -> None:
        super().__init__(f"partition {partition} of topic {topic!r} is {self._standing}: {cause}")
        self.topic, self.partition, self.cause = topic, partition, cause


class PartitionFull(StorageError):
    """The batch would pass the cap of a topic that rejects; no offset was assigned."""

    def __init__(self, topic: str, partition: int, why: str) -> None:
        super().__init__(
            f"partition {partition} of topic {topic!r} is full and retention.full.policy=reject: "
            f"{why}; nothing was appended"
        )
        self.topic, self.partition = topic, partition


class KeylessRecords(StorageError):
    """A batch for a compacted topic has records without a key."""

    def __init__(self, topic: str, partition: int, indexes: Sequence[int]) -> None:
        super().__init__(
            f"{topic}-{partition} is compacted (cleanup.policy): {len(indexes)} records have no "
            f"key, the first is number {indexes[0]}"
        )
        self.indexes = indexes
        """Their places in the batch, from 0."""


class DiskFull(PartitionReadOnly):
    """The same for want of space (or of descriptors); it ends by itself when there is some."""


class PartitionDamaged(PartitionReadOnly):
    """Stored bytes were damaged, and on.corruption=readonly: an operator decides what follows."""

    def __init__(self, topic: str, partition: int, what: str) -> None:
        super().__init__(topic, partition, f"{what}; {_WHAT_TO_DO}")


class PartitionRefused(PartitionReadOnly):
    """Stored bytes were damaged, and on.corruption=refuse: nothing is served."""

    _standing = "not served"

    def __init__(self, topic: str, partition: int, what: str) -> None:
        super().__init__(topic, partition, f"{what}; {_WHAT_TO_DO}")


class PartitionMissing(StorageError):
    """A partition that exists has no directory; nothing is served before it is back."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the partition's directory is missing")
        self.path = path


class PartitionForeign(StorageError):
    """The directory of a partition has the files of another; nothing of them is served or
    changed."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: the files are those of an earlier topic of this name, which was deleted,"
            " or of another data directory"
        )
        self.path = path


class SegmentReplaced(StorageError):
    """A segment was repaired under a reader, who reads again; nothing was delivered."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was repaired meanwhile; read again")
        self.path = path


class CorruptSegment(StorageError):
    """Stored bytes do not match their checksum; they were not delivered.

    has_no_index: only there is no index, or what a power cut leaves of one.
    """

    def __init__(
        self, path: str, position: int, reason: str, *, has_no_index: bool = False
    ) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason
        self.has_no_index = has_no_index


class CorruptMetadata(CorruptSegment):
    """What exists is not known for certain, so nothing is opened: an older snapshot could bring
    deleted topics back, and without one every topic would count as an orphan."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, 0, f"{reason}; nothing was opened, and no existing file was changed")


class DataDirectoryLocked(StorageError):
    """Another process owns the data directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is in use by another process")
        self.path = path


class DataDirectoryGone(StorageError):
    """The data directory is not at its path any more; what was open of it is left as by a kill."""

    def __init__(self, path: str) -> None:
        super().__init__(why_gone(path))
        self.path = path


def why_gone(path: str) -> str:
    """What is said of a data directory that was opened at `path` and is not there any more."""
    return (
        f"{path} is not the data directory that was opened: "
        "it was removed, moved, replaced or mounted over"
    )


class NotADataDirectory(StorageError):
    """Neither meta/ nor topics/ is in it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not a data directory: it has neither meta/ nor topics/")
        self.path = path


class UnsupportedFormat(StorageError):
    """A file of another format version, or none of ours."""

    def __init__(self, path: str, found: object, expected: object) -> None:
        super().__init__(f"{path} has format {found!r}, this version reads {expected!r}")
        self.path = path


class LogClosed(StorageError):
    """The log was closed by its owner."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is closed")
        self.path = path


class QueueFull(StorageError):
    """A queue in front of a log has no room: the writer is slower than its callers."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the queue holds {size} bytes, limit {limit}")
        self.size, self.limit = size, limit


class NotWritten(StorageError):
    """`count` queued records that are not in the log; `records` are (key, value), in their order,
    of very many the first."""

    def __init__(
        self, records: list[tuple[bytes | None, bytes | None]], cause: BaseException, count: int
    ) -> None:
        super().__init__(f"{count} queued records were not written: {cause}")
        self.records, self.cause, self.count = records, cause, count


class LogInUse(StorageError):
    """The log is open already: two that append over each other would lose records of both."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is open already, here or in another process")
        self.path = path


class LogReserved(StorageError):
    """Two write at once: the log belongs to one writer until that one is done."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(f"{path} is reserved by the writer that began at offset {offset}")
        self.path, self.offset = path, offset


class StreamFailed(StorageError):
    """A stream was not appended whole; the cause says why.

    `[base_offset, end_offset)` is what stays of it, nothing after a rollback.  `is_clean` False:
    the rest could neither be kept nor taken back, because the disk failed; nobody reads it from
    this log, and opening it again finds whole batches of it, as after a kill.
    """

    def __init__(
        self, base_offset: int, end_offset: int, cause: BaseException, *, is_clean: bool
    ) -> None:
        what = f"[{base_offset}, {end_offset}) stays" if end_offset > base_offset else "none stays"
        rest = "" if is_clean else ", the rest could not be rolled back"
        super().__init__(f"stream at offset {base_offset}: {what}{rest}: {cause!r}")
        self.base_offset, self.end_offset, self.is_clean = base_offset, end_offset, is_clean


class StreamTooLarge(StorageError):
    """A stream went on past the bytes that the caller allows it."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"stream of {size} bytes or more, stream_bytes_max is {limit}")
        self.size, self.limit = size, limit


class StreamCutShort(StorageError):
    """A stream of values of a fixed size ended inside one."""

    def __init__(self, size: int, expected: int) -> None:
        super().__init__(f"the last value has {size} bytes, not {expected}")
        self.size, self.expected = size, expected
