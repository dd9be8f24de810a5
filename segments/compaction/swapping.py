"""A segment written anew, and its way into the log in the place of others: one durable decision.

    1  <log>_segment_<m>.cleaned   written, synced, its name synced          nobody knows of it
    2  SEGMENT row, synced         m stands for k ... m from here on         THE DECISION
    3  the index of m unlinked: it is of what it was                         made again
       .cleaned -> segment_<m>.log renamed; columns, caches                  readers see it
    4  directory synced, .index                                              it is durable
    5  k ... m-1 unlinked          when there is time, as what was deleted

It has the number of the last of those it stands for, so that the next number is still the next.
Who pinned an old file reads on in it: a name is replaced, never bytes.  unfinished.py and survey.py
say what an opening makes of a crash after each step.

| fails | then |
|---|---|
| 1 | nothing was changed; .cleaned goes |
| 2 | the row may be durable or not: the manifest is written anew without it before anything else |
| 3, .cleaned has its name | the same: an opening makes up for the rename, or does without |
| 4, the sync of the name | the log is failed, and opened again: recovery makes up for it |
| the index | it is made again from the log by the first reader |
| by a mistake of ours, from 3 on | as 4 |

Between a rename whose sync failed and the recovery readers go by what stands under the name, and
the row of the decision stays the last that the manifest says of it: recovery gives the name anew
because of it.  So nobody writes the manifest anew, or repairs anything, in a log that has failed:
also not behind a row that could not be written, nor to open it again (`swap_failed`).

Invariants: the offsets are the same before and after; what the columns say stands under the names;
nothing is unlinked before the rename is durable; under seal_lock from the decision to the sync: not
while segments are sealed, deleted or repaired.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from segbroker.protocol.record_batch import read_header

from ..decisions import stamp_of
from ..disk.storage import StorageFile, close_all, write_all
from ..errors import as_os_error
from ..files.index import ENTRY_SIZE, OFFSET_SPAN_MAX, BlockBuilder, BlockIndex, segment_tag
from ..files.manifest import Row, RowKind
from ..log.partition_log import PartitionLog
from ..log.producer_snapshot import covers, save_producers

logger = structlog.get_logger()

WRITE_SIZE: Final = 1 << 20
"""Bytes that are collected before they are written."""


class NewSegment:
    """A segment on its way to a .cleaned file; the file is made when there is enough for it."""

    def __init__(self, log: PartitionLog) -> None:
        self.rows: list[Row] = []
        """Of the segments that it is to stand for."""
        self._log = log
        self._path = ""
        self._file: StorageFile | None = None
        self._builder = BlockBuilder(0, log.files.interval)
        self._sums: list[int] = []
        self._waiting: list[bytes | memoryview] = []
        self._waiting_size = 0
        self._written = 0
        self._records = 0
        self._max_timestamp = -1
        self._next_offset = 0

    def has_room(self, row: Row) -> bool:
        """Whether it may stand for this segment, too, with all that is in it."""
        if not self.rows:
            return True
        config = self._log.config
        blocks = row.size // self._log.files.interval + 1
        return (
            row.leader_epoch == self.rows[0].leader_epoch
            and self.size + row.size <= self._log.segment_bytes
            and self._records + row.records <= config.segment_records
            and self._builder.index_size + ENTRY_SIZE * blocks <= config.segment_index_bytes
            and row.end_offset - self.rows[0].base_offset <= OFFSET_SPAN_MAX
        )

    def begin(self, row: Row) -> None:
        """What comes now is left of this segment, the next of the log."""
        if not self.rows:
            self._builder = BlockBuilder(row.base_offset, self._log.files.interval)
            self._next_offset = row.base_offset
        self.rows.append(row)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._written + self._waiting_size

    def add(self, batch: bytes | memoryview) -> None:
        """The next batch.  Raises OSError."""
        header = read_header(batch)
        assert header.base_offset == self._next_offset, "offsets have no hole"
        self._next_offset = header.next_offset
        stamp = stamp_of(header)
        count = header.records_count
        self._sums.append(self._builder.add(batch, header.base_offset, count, stamp))
        self._records += count
        self._max_timestamp = max(self._max_timestamp, stamp)
        self._waiting.append(bytes(batch))
        self._waiting_size += len(batch)
        if self._waiting_size >= WRITE_SIZE:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._path = self._log.paths.cleaned(self.rows[-1].number)
            self._file = self._log.storage.open(self._path, create=True)
            self._file.truncate(0)  # left over from a crash
        write_all(self._file, b"".join(self._waiting), self._written)
        self._written += self._waiting_size
        self._waiting, self._waiting_size = [], 0

    def finish(self) -> tuple[Row, BlockIndex]:
        """Make it durable under its first name; the row that it will have.  Raises OSError."""
        self._write()
        assert self._file is not None, "written above"
        self._file.fdatasync()
        self._close()
        path = self._log.paths.cleaned(self.rows[-1].number)
        if self._path != path:  # begun before it was known which is the last
            self._log.storage.rename(self._path, path)
            self._path = path
        self._log.storage.fsync_dir(self._log.paths.folder)
        assert self._next_offset == self.rows[-1].end_offset, "a cleaning moves no offset"
        tag = segment_tag(self._sums)
        index = self._builder.finish(max(self._max_timestamp, 0), tag)
        row = Row(
            RowKind.SEGMENT,
            self.rows[-1].number,
            self.rows[0].base_offset,
            self.rows[-1].end_offset,
            self._written,
            self._records,
            self._max_timestamp,
            max((block.length for block in index.blocks), default=0),
            self.rows[-1].leader_epoch,
            tag=tag,
        )
        return row, index

    def abandon(self) -> None:
        """It is not wanted, or could not be written."""
        written = self._file is not None
        self._close()
        if written:
            with suppress(OSError):  # the next cleaning, or the next opening, removes it
                self._log.storage.unlink(self._path)

    def _close(self) -> None:
        if self._file is not None:
            close_all([self._file])


def swap_in(log: PartitionLog, new: NewSegment) -> bool:
    """Put a segment in the place of those it stands for; False: they are others by now.

    Raises OSError.  After whatever came behind the rename the log is failed.
    """
    try:
        row, index = new.finish()
    except Exception:
        new.abandon()
        raise
    with log.seal_lock:
        if not _is_current(log, new.rows):
            new.abandon()
            return False
        try:
            if not covers(log, row.end_offset):
                save_producers(log)  # what is left of their batches says less
            log.note([row], sync=True)
        except Exception:
            if not log.manifest.is_doubtful:
                new.abandon()
            raise
        log.checkpointed = -1  # the row stands behind it
        try:
            _put(log, new, row, index)
        except Exception as exc:  # a mistake of ours, too: what is decided is not what is read
            if isinstance(exc, OSError) and log.storage.exists(log.paths.cleaned(row.number)):
                log.manifest.is_doubtful = True  # it has no name: the decision is taken back
                raise
            log.failed = log.failed or as_os_error(exc, "a swap crashed")
            log.swap_failed = True
            raise
    return True


def _put(log: PartitionLog, new: NewSegment, row: Row, index: BlockIndex) -> None:
    """What is decided: the name, what readers look at, the index.  Raises OSError."""
    storage, paths = log.storage, log.paths
    failures = storage.failures
    with suppress(FileNotFoundError):  # nobody has to find it beside what it is not of
        storage.unlink(paths.index(row.number))
    storage.rename(paths.cleaned(row.number), paths.log(row.number))
    with log.state_lock:  # before the sync, which may fail: this is what readers find from now on
        gone = log.sealed.splice(row)
        closing = log.files.take_out(range(new.rows[0].number, row.number + 1))
        log.files.indexes.put((paths.folder, row.number), index)
    close_all(closing)  # not under the lock: their space is given back
    storage.sync_names(failures)
    log.doomed += gone
    try:
        log.files.write_index(row.number, index)
    except OSError as exc:
        logger.warning("index_not_written", path=paths.index(row.number), error=str(exc))


def remove_strays(log: PartitionLog) -> None:
    """Remove what cleanings before have left behind.  Not where the manifest is doubtful: its last
    row may be the decision that speaks of one.  Raises OSError."""
    for name in log.storage.listdir(log.paths.folder):
        if log.paths.cleaned_number(name) is not None:
            log.storage.unlink(f"{log.paths.folder}/{name}")


def _is_current(log: PartitionLog, rows: Sequence[Row]) -> bool:
    """Whether the log still has these segments, as they were read."""
    if log.is_over or log.failed is not None:
        return False
    if not log.config.compacts:
        return False  # its policy was changed meanwhile
    return all(log.sealed.row(row.number) == row for row in rows)
