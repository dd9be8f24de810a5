"""A data directory checked offline: everything in it is looked at, nothing is changed.

    LOCK             held by a broker: refused.  Not there: never used, not made
    meta/            the newest snapshot, which alone counts
    wal/             what is missing among its frames
    topics/          every partition (log_check.py); directories of no topic
    anything else    said

What cannot be read is damage as well, and the rest is checked all the same.

`repair_directory` does what a start of the broker does, for all partitions at once, and what its
readers and its scrub would do later.  It opens logs as with on.corruption=gap: an operator who
repairs has looked.
"""

import re
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Final

import structlog

from segbroker.protocol.record_batch import GapReason, iter_batches, read_header

from ..directory.manager import DiskManager
from ..directory.orphans import Missing, Orphan, find_orphans
from ..directory.start_room import room_given_back, room_to_start
from ..directory.starting import OWN
from ..disk.storage import TEMPORARY, Storage, StorageLock, read_file
from ..errors import (
    CorruptMetadata,
    CorruptSegment,
    DataDirectoryLocked,
    NotADataDirectory,
    StorageError,
    UnsupportedFormat,
)
from ..metadata.control import apply, decode_event
from ..metadata.metadata import SETTLED, Metadata, decode_metadata
from ..metadata.metadata_log import check_newest
from ..names import LogPaths, owner_of, partition_paths, wal_owner_of
from ..recovery.corruption import remove_mark
from ..recovery.ownership import is_of_another
from ..recovery.survey import Circumstances
from ..settings.topic_config import Durability
from ..wal.files import is_shard_file
from ..wal.frames import Frame, FrameType
from ..wal.markers import is_marker
from ..wal.replay import Replay, replay, shard_folders
from ..witness import WITNESS, is_least, names_in
from .findings import Finding, Progress, damage, no_files, note, unreadable
from .log_check import NOT_OPENED, Covered, LogChecker

log = structlog.get_logger()

_SNAPSHOT: Final = re.compile(r"snapshot-(\d{1,18})\.msgpack")
_PARTITION: Final = re.compile(r"partition_(0|[1-9][0-9]*)")
_NOT_OURS: Final = ("not a file of the broker", "it is left as it is")
_REMOVE_IT: Final = "it does not start until somebody removes the directory"


def lock_directory(storage: Storage, root: str) -> StorageLock | None:
    """The lock, so that no broker starts meanwhile; None where no broker ever ran.

    Raises DataDirectoryLocked, NotADataDirectory, OSError.
    """
    if not storage.exists(f"{root}/meta") and not storage.exists(f"{root}/topics"):
        raise NotADataDirectory(root)
    if not storage.exists(f"{root}/LOCK"):
        return None
    try:
        return storage.lock(f"{root}/LOCK", only_looks=True)
    except BlockingIOError as exc:
        raise DataDirectoryLocked(root) from exc


class DirectoryChecker:
    """The check of one data directory."""

    def __init__(
        self,
        storage: Storage,
        root: str,
        now_ms: int,
        progress: Progress = lambda count: None,
    ) -> None:
        self.files_count = 0
        self.bytes_count = 0
        self._storage = storage
        self._root = root
        self._now_ms = now_ms
        self._tell = progress

    def _progress(self, count: int) -> None:
        self.files_count += 1
        self.bytes_count += count
        self._tell(count)

    def check(self) -> Iterator[Finding]:
        """Everything that is to be said, as it is found.  Raises OSError: a file may not be opened,
        or what is in the directory itself cannot be told."""
        storage, root = self._storage, self._root
        for name in storage.listdir(root):
            if name not in OWN:
                yield note(f"{root}/{name}", *_NOT_OURS)
        yield from no_files(storage, [f"{root}/clock"], _REMOVE_IT)
        for name in names_in(storage, f"{root}/{WITNESS}"):
            path = f"{root}/{WITNESS}/{name}"
            if not (is_least(name) or is_marker(name.partition(".reached-")[0])):
                yield note(path, *_NOT_OURS)
                continue
            yield from no_files(storage, [path], _REMOVE_IT)
        wal, is_read = Replay(), True
        if storage.exists(f"{root}/wal"):
            try:
                wal = replay(storage, f"{root}/wal")
            except OSError as exc:
                yield unreadable(
                    exc,
                    f"{root}/wal",
                    "it does not start: nothing that was acknowledged is passed over; what is said"
                    " of the partitions takes no account of the write-ahead log",
                )
                wal.shards, is_read = 1, False  # it is there
            else:
                yield from self._wal(wal)
        try:
            metadata = yield from self._metadata(wal)
        except OSError as exc:
            yield unreadable(exc, f"{root}/meta", "it does not start")
            return
        if metadata is None:
            return
        if not wal.shards and (metadata.topics or wal.is_missing):
            yield damage(
                f"{root}/wal",
                "the write-ahead log is missing: it may be on a disk that is not mounted",
                "it begins anew; what it alone had is lost, and every partition begins a leader"
                " epoch",
            )
        try:
            yield from self._room(metadata, wal)
        except OSError as exc:  # of a partition, which is told below
            yield note(root, f"the room that a start needs is not known: {exc}", "it starts")
        yield from self._topics(metadata, wal, knows_all=is_read)

    def _wal(self, found: Replay) -> Iterator[Finding]:
        for missing in found.missing:
            frames = missing.what
            if missing.durable:
                gone = "are damaged" if missing.lsn < 0 else "are damaged or missing in front of it"
                if missing.is_gone:
                    gone = "are lost"
                yield damage(
                    missing.path,
                    f"{frames} {gone}",
                    "the others are put back; what is missing in a log is a gap",
                )
            elif missing.is_torn:
                text = f"{frames} of a group that was being written are not whole"
                yield note(missing.path, text, "the others are put back")
            else:
                yield note(
                    missing.path,
                    f"{frames} of the last group are not whole: torn by a power cut, and then told"
                    " to nobody, or damaged",
                    "the others are put back; partitions that may have lost some of them begin a"
                    " leader epoch",
                )
        root = f"{self._root}/wal"
        folders = shard_folders(self._storage, root).values()
        names = {folder.rpartition("/")[2] for folder in folders}
        for name in self._storage.listdir(root):
            if is_marker(name):
                yield from no_files(self._storage, [f"{root}/{name}"], _REMOVE_IT)
            elif name not in names:
                yield note(f"{root}/{name}", *_NOT_OURS)
        for folder in folders:
            for name in self._storage.listdir(folder):
                path = f"{folder}/{name}"
                if not is_shard_file(name):
                    yield note(path, *_NOT_OURS)
                    continue
                try:
                    self._progress(len(read_file(self._storage, path)))
                except OSError as exc:  # one of those in which nothing counts
                    yield unreadable(exc, path, "nothing is read from it")

    def _metadata(self, wal: Replay) -> Generator[Finding, None, Metadata | None]:
        folder = f"{self._root}/meta"
        names = self._storage.listdir(folder) if self._storage.exists(folder) else []
        numbers = sorted(int(match[1]) for name in names if (match := _SNAPSHOT.fullmatch(name)))
        newest = f"snapshot-{numbers[-1]}.msgpack" if numbers else ""
        for name in names:
            path, own = f"{folder}/{name}", name.removesuffix(TEMPORARY)
            if not _SNAPSHOT.fullmatch(own):
                yield note(path, "not a snapshot of the metadata", "it is left as it is")
            elif name != newest:
                what = "an older snapshot of the metadata"
                if own != name:
                    what = "left over from a snapshot that was interrupted"
                gone = note(path, what, "it is removed")
                yield from [*no_files(self._storage, [path], _REMOVE_IT)] or [gone]
        if (
            not numbers
            and self._storage.exists(f"{self._root}/topics")
            and self._storage.listdir(f"{self._root}/topics")
        ):
            yield damage(
                folder,
                "there are topics and no snapshot of the metadata",
                "it does not start; put the snapshot back from a backup",
            )
            return None
        try:
            check_newest(self._storage, folder, numbers[-1] if numbers else 0)
        except CorruptMetadata as exc:
            yield damage(folder, exc.reason, "it does not start")
        if not numbers:
            return None
        path = f"{folder}/snapshot-{numbers[-1]}.msgpack"
        content = bytes(read_file(self._storage, path))
        self._progress(len(content))
        try:
            state = decode_metadata(content, path)
        except UnsupportedFormat as exc:
            yield damage(path, str(exc), "it does not start: a later version wrote it")
            return None
        except CorruptSegment as exc:
            yield damage(
                path,
                f"the metadata is damaged at byte {exc.position}: {exc.reason}",
                "it does not start: an older snapshot could bring deleted topics back; put this "
                "file back from a backup",
            )
            return None
        absorbed = state.seq
        try:
            wal.check_owner(f"{self._root}/wal", wal_owner_of(state.cluster_id))
        except CorruptMetadata as exc:
            yield damage(exc.path, exc.reason, "it does not start")
            return None
        try:
            for payload in wal.control:
                event = decode_event(payload)
                if event.seq > absorbed:
                    state = apply(state, event)
        except StorageError as exc:
            path = f"{self._root}/wal"
            yield damage(path, f"an event of the metadata is damaged: {exc}", "it does not start")
            return None
        return state

    def _room(self, metadata: Metadata, wal: Replay) -> Iterator[Finding]:
        """What a start lacks on this volume."""
        try:
            space = self._storage.space(self._root)
        except OSError as exc:
            yield note(self._root, f"the free room of its volume is not known: {exc}", "it starts")
            return
        if space is None:
            return
        room = room_to_start(self._storage, self._root, wal, metadata)
        given = room_given_back(self._storage, self._root, wal)
        if room > space.usable + given:
            yield note(
                self._root,
                f"a start needs about {room} bytes of room, the volume has {space.usable},"
                f" and the start gives {given} back",
                "it may fail until the volume has more; nothing is lost by trying",
            )

    def _topics(self, metadata: Metadata, wal: Replay, *, knows_all: bool) -> Iterator[Finding]:
        """knows_all: whether the events behind the snapshot are in `metadata`."""
        folder = f"{self._root}/topics"
        present = self._storage.exists(folder)
        missing: Missing = {}
        if present:
            orphans = find_orphans(self._storage, self._root, metadata, missing)
            yield from (_orphaned(one) for one in orphans if knows_all)
            yield from self._strangers(folder, metadata)
        for name, meta in sorted(metadata.topics.items()):
            if meta.config.durability is Durability.EPHEMERAL:
                continue
            for partition in range(meta.partitions):
                checker = self.log_checker(metadata, name, partition, wal)
                paths = checker.paths
                cause = missing.get((name, partition))
                if cause is not None:
                    yield unreadable(cause, paths.folder, NOT_OPENED)._replace(
                        topic=name, partition=partition
                    )
                    continue
                if not self._storage.exists(paths.folder):
                    yield _missing(
                        paths, wal.partitions.get((meta.topic_id.bytes, partition), ())
                    )._replace(topic=name, partition=partition)
                    continue
                if self._is_of_another(paths, meta.epoch):
                    yield damage(
                        paths.folder,
                        "the files are those of an earlier topic of this name, which was deleted,"
                        " or of another data directory",
                        "the partition is not opened; put its own back from a backup, or delete "
                        "the topic",
                    )._replace(topic=name, partition=partition)
                    continue
                yield from checker.check()

    def _strangers(self, folder: str, metadata: Metadata) -> Iterator[Finding]:
        """What is no directory of a topic, nor of a partition of one."""
        for name in self._storage.listdir(folder):
            known = metadata.topics.get(name)
            has_files = known is not None and known.config.durability is not Durability.EPHEMERAL
            try:
                names = self._storage.listdir(f"{folder}/{name}")
            except NotADirectoryError:
                yield note(f"{folder}/{name}", *_NOT_OURS)
                continue
            except OSError as exc:
                if not has_files:  # else told as what its partitions are
                    yield unreadable(exc, f"{folder}/{name}", _NOT_OURS[1])
                continue
            if not has_files:
                continue  # an orphan, and told as that
            for one in names:
                if not (one.startswith("~") or _PARTITION.fullmatch(one)):
                    yield note(f"{folder}/{name}/{one}", *_NOT_OURS)

    def _is_of_another(self, paths: LogPaths, first_epoch: int) -> bool:
        try:
            return is_of_another(self._storage, paths, first_epoch)
        except OSError:
            return False  # told by the check of the partition

    def log_checker(self, metadata: Metadata, name: str, partition: int, wal: Replay) -> LogChecker:
        """The check of one partition."""
        meta = metadata.topics[name]
        frames = wal.partitions.get((meta.topic_id.bytes, partition), [])
        covered = []
        by_segment: dict[int, list[Frame]] = {}
        durable_end = -1
        for frame in frames:
            if frame.type is FrameType.END:
                durable_end = max(durable_end, frame.base_offset)
            else:
                last = [read_header(batch) for batch in iter_batches(frame.payload)][-1]
                covered.append(Covered(frame.base_offset, last.next_offset))
                durable_end = max(durable_end, last.next_offset)  # put back: vouched for as well
                by_segment.setdefault(frame.segment, []).append(frame)
        ceiling = metadata.ceiling((meta.topic_id, partition))
        if ceiling is not None and ceiling.boot == SETTLED:
            durable_end = max(durable_end, ceiling.offset)  # it was synced up to there
        above = (
            GapReason.CORRUPTION
            if meta.config.durability is Durability.FSYNC
            else GapReason.LOST_TAIL
        )
        return LogChecker(
            self._storage,
            partition_paths(self._root, name, partition, owner_of(meta.topic_id, partition)),
            Circumstances(self._now_ms, metadata.leader_epoch(meta, partition), durable_end, above),
            name=(name, partition),
            covered=covered,
            frames=by_segment,
            progress=self._progress,
        )


def _missing(paths: LogPaths, frames: Sequence[Frame]) -> Finding:
    """What a start does about a partition without a directory.  frames: of the write-ahead log."""
    what = "the directory of the partition is missing"
    begin = min(
        (frame.base_offset for frame in frames if frame.type is FrameType.BATCHES), default=-1
    )
    if begin < 0:
        action = "the partition is not opened; put it back from a backup, or delete the topic"
        return damage(paths.folder, what, action)
    found = damage(
        paths.folder,
        f"{what}, and the write-ahead log has records of it from offset {begin} on",
        "it is made again with these, behind a gap: put it back from a backup before that",
    )
    return found._replace(from_offset=0, to_offset=begin) if begin else found


def _orphaned(found: Orphan) -> Finding:
    """What a start does with a directory that belongs to nobody."""
    what = "a topic that does not exist"
    if found.path.rpartition("/")[2].startswith("~"):
        what = "a deleted topic"
    elif found.partition >= 0:
        what = "a partition that the topic does not have"
    if not found.has_records:
        return note(found.path, f"the directory of {what}", "it is removed")
    text = f"the directory of {what}, with records or files in it that nobody deleted"
    return damage(found.path, text, "it is moved to quarantine/")


def repair_directory(storage: Storage, root: str, now_ms: int) -> DiskManager:
    """Do what a start, its readers and its scrub would do; the manager, closed, with its report.

    Raises StorageError, OSError when it cannot be opened at all.
    """
    manager = DiskManager(root, storage=storage, flushers=0, now_ms=now_ms, repairing=True)
    with manager:
        for name, meta in sorted(manager.topics.items()):
            if meta.config.durability is Durability.EPHEMERAL:
                continue
            for partition in range(meta.partitions):
                try:
                    _repair_partition(manager, name, partition)
                except (StorageError, OSError) as exc:
                    log.error(
                        "partition_not_repaired", topic=name, partition=partition, error=str(exc)
                    )
    return manager


def _repair_partition(manager: DiskManager, name: str, partition: int) -> None:
    storage, paths = manager.storage, partition_paths(manager.root, name, partition)
    if not storage.exists(paths.folder):
        return
    remove_mark(storage, paths)
    handler = manager.get_handler(name, partition)
    for number in handler.sealed_numbers():
        # Reads all of it: a read of its blocks alone would not find a batch that is not due.
        handler.check_segment(CorruptSegment(paths.log(number), 0, "to be looked at"))
    _remove_leftovers(storage, paths, handler.sealed_numbers())
    handler.save_state()


def _remove_leftovers(storage: Storage, paths: LogPaths, sealed: Collection[int]) -> None:
    """Files that nobody reads: of replacements that were interrupted, of logs that are gone."""
    for name in storage.listdir(paths.folder):
        number = paths.index_number(name)
        is_stray = number is not None and number not in sealed
        if is_stray or paths.is_temporary(name) or paths.cleaned_number(name) is not None:
            storage.unlink(f"{paths.folder}/{name}")
    storage.fsync_dir(paths.folder)
