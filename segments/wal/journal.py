"""Wal: the write-ahead log of one data directory, all shards of it.

    open -> Replay -> (its caller puts it back) -> absorbed -> submit, control ... -> close

| life | what may be called |
|---|---|
| opened | nothing is written yet: the caller puts back what `open` returned |
| absorbed | everything |
| closed | nothing; `empty` True: all logs are synced, there is nothing to replay |

A partition is in the shard `xxh3_64(topic id, partition) % shards`, control events are in shard 0.
The count may change between two starts: what the old shards hold is put back first.

Checkpoint: sync the logs that have frames in full files, have a snapshot taken if there are control
events in them, then free the files, oldest first.  It runs on a thread of its own when half of a
shard's files are full.  Frames of logs that cannot be synced are first copied into a small file of
their own (kept.py): they must not hold up the others.

Invariant: a file is freed only after everything in it is durable elsewhere, and so is what vouches
for the ends of the logs that it spoke of (vouching.py).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

import structlog

from ..background import AskedOnce, Housekeeper, error_to_tell
from ..disk.storage import Storage, make_dirs
from ..witness import WAL_FROM, say_least, witness_folder
from .files import (
    SMALL_FILE_BYTES,
    SPARE_FILES,
    ShardFiles,
    discard_used,
    in_use,
    is_short,
    list_files,
    unlink_free,
)
from .frames import FILE_SIZE_MIN, FRAMES_BEGIN, OVERHEAD, Frame, FrameType, frames_end
from .group import CallSoon, Done, Source
from .inline_sync import ROW, Clock, InlineSyncBudget
from .kept import SHARD_OF_STARTS, KeptFile, write_kept
from .markers import KEPT, Marked, marked, remove_markers
from .reached import Reached, forget_reached, say_reached
from .recall import frames_in
from .replay import Replay, replay, shard_folder, shard_folders, shard_number
from .shard import Shard
from .sync_times import NO_SYNCS, Histogram
from .vouching import end_frame

log = structlog.get_logger()

NO_ENDS: Final[Mapping[tuple[bytes, int], int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WalConfig:
    """How large the WAL may be."""

    shards: int = 1
    file_bytes: int = 16 << 20
    shard_bytes: int = 128 << 20
    """Bound of the files of one shard; half of it starts a checkpoint."""
    quick_after: int = ROW
    """So many syncs that were not slow come before a lone source's own thread does one."""

    def __post_init__(self) -> None:
        assert self.shards >= 1, "a WAL has a shard"
        assert self.file_bytes >= FILE_SIZE_MIN, f"a WAL file has {FILE_SIZE_MIN} bytes or more"
        assert self.shard_bytes >= 2 * self.file_bytes, "a shard has two files or more"

    @property
    def files_max(self) -> int:
        """Files of one shard."""
        return self.shard_bytes // self.file_bytes

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that fits a frame that fits a file."""
        return frames_end(self.file_bytes) - FRAMES_BEGIN - OVERHEAD


@dataclass(frozen=True, slots=True)
class WalStatistics:
    """Numbers at a moment."""

    shards: int
    shards_failed: int
    """That cannot be written: they have failed, or need a file and there is no room for one."""
    why_failed: str | None
    """Of the first of them."""
    syncs: int
    syncs_here: int
    """Of them, those that were done by the thread of who waited."""
    frames_written: int
    """Many to a sync: group commit does its work."""
    bytes_written: int
    files: int
    files_full: int
    """That wait for a checkpoint."""
    files_max: int
    """Of `files_full`: all but the one of each shard that is written.  When that is full, too,
    acknowledgements wait for a checkpoint."""
    file_waits_s: float
    """Seconds that they have waited for the next file, for a checkpoint or until it was made; one
    that goes on is not in it."""
    syncs_slow: int
    """Of those within a minute, which ended less than a minute ago: longer than SLOW_S."""
    stuck_s: float
    """For how long a shard has been writing one group, if that is too long (STUCK_S); else 0."""
    checkpoints: int


class Wal:
    """All shards.  Thread-safe after `absorbed`."""

    def __init__(
        self,
        storage: Storage,
        root: str,
        config: WalConfig,
        *,
        threaded: bool,
        call_soon: CallSoon,
        clock: Clock | None = None,
        snapshot: Callable[[], None] = lambda: None,
    ) -> None:
        """clock: how long syncs take; None: nobody knows, and none is done by who waits for it.

        snapshot: make the metadata durable as of every control event given to this WAL so far.
        Runs in the checkpoint and must not wait for anybody who waits for the WAL.  Raises OSError.
        """
        self.config = config
        self.owner = 0
        """What its files say of whose they are, from `keep` and `absorbed` on; 0: nothing."""
        self.snapshot = snapshot
        self.checkpoints = 0
        self._storage = storage
        self._root = root
        self._witness = witness_folder(root)
        self._reached: dict[int, tuple[int, int]] = {}
        self._threaded = threaded
        self._call_soon = call_soon
        self._clock = clock
        self._shards: list[Shard] = []
        self._replayed = Replay()
        self._number_kept = -1
        self._kept_by_start: KeptFile | None = None
        """What the last start kept, where others can say it, too."""
        self._said = self._unsaid = NO_ENDS
        self._checkpointing = threading.Lock()
        self._checkpoint_asked = AskedOnce()
        self._slow = self._slow_before = 0
        self._maker: Housekeeper | None = None
        self._checkpointer: Housekeeper | None = None

    def open(self) -> Replay:
        """Read what there is.  Raises OSError."""
        make_dirs(self._storage, self._root)
        self._replayed = replay(self._storage, self._root)
        self._number_kept = -1
        self._kept_by_start = None
        for missing in self._replayed.missing:
            log.error("wal_frames_missing", **missing._asdict())
        return self._replayed

    def keep(
        self,
        frames: Mapping[tuple[bytes, int], Sequence[Frame]],
        ends: Mapping[tuple[bytes, int], int],
    ) -> None:
        """Before `absorbed`: have these frames kept for the next start, and have these end offsets
        vouched for, durably, so that there is no moment in which nothing does.

        Raises OSError; `ends` are said later then, when there are files again.
        """
        self._unsaid = ends
        kept = list(chain.from_iterable(frames.values()))
        kept += [end_frame(key, 0, 0, end_offset) for key, end_offset in ends.items()]
        if not kept:
            return
        number = self._replayed.next_sequence
        folder = shard_folder(self._root, SHARD_OF_STARTS)
        written = write_kept(self._storage, folder, number, kept, owner=self.owner)
        self._kept_by_start = None if any(frames.values()) else written
        self._replayed.next_sequence += 1
        self._number_kept, self._said, self._unsaid = number, ends, NO_ENDS

    def absorbed(self) -> None:
        """Everything replayed is durable elsewhere, but for what was given to `keep`: begin anew.
        Raises OSError."""
        config = self.config
        # A number is never used twice: an older copy of a file must not pass for the present one.
        self._say_next(self._replayed.next_sequence)
        short = is_short(self._storage, self._root, config.file_bytes)
        keep = SPARE_FILES if short else config.files_max
        self._discard(keep=keep, kept=self._number_kept)
        for number, folder in shard_folders(self._storage, self._root).items():
            if number >= config.shards:
                self._remove(folder)
        self._maker = Housekeeper(threaded=self._threaded, name="wal-maker")
        self._checkpointer = Housekeeper(threaded=self._threaded, name="wal-checkpoint")
        for number in range(config.shards):
            folder = shard_folder(self._root, number)
            files = ShardFiles(
                self._storage,
                folder,
                number,
                config.file_bytes,
                self.owner,
                self._replayed.next_sequence,
            )
            files.open()
            shard = Shard(
                files,
                files_max=config.files_max,
                threaded=self._threaded,
                call_soon=self._call_soon,
                maker=self._maker,
                checkpoint_soon=self._checkpoint_soon,
                inline_budget=InlineSyncBudget(self._clock, config.quick_after),
                next_lsn=self._replayed.next_lsn,
                name=f"wal-{number}",
                absorb_events=self._save_metadata if number == 0 else lambda: None,
                said={
                    key: end_offset
                    for key, end_offset in self._said.items()
                    if shard_number(*key, config.shards) == number
                },
            )
            self._shards.append(shard)
            if self._threaded:
                shard.supply.prepare_soon()  # so that the first write finds it
        for key, end_offset in self._unsaid.items():
            self.end_soon(*key, 0, 0, end_offset)
        self.say_ends()
        self._replayed = Replay()
        self._said = self._unsaid = NO_ENDS

    def _say_next(self, number: int) -> None:
        """No file has this number yet.  What fails is logged: on a full disk a broker starts."""
        try:
            say_least(self._storage, self._witness, WAL_FROM, number)
        except OSError as exc:
            log.warning("wal_number_not_said", error=str(exc))

    def give_space_back(self) -> bool:
        """Before `absorbed`, on a full disk: remove the files that are not in use, and those that
        were made ready and say nothing; whether there were any.  Raises OSError."""
        given = False
        for shard, folder in shard_folders(self._storage, self._root).items():
            unused = self._replayed.unused.get(shard, ())
            given = unlink_free(self._storage, folder, shard, unused) or given
        return given

    def lacks_room(self) -> bool:
        """Before `absorbed`: whether a shard has no file, and there is hardly room to make one."""
        folders = shard_folders(self._storage, self._root)
        there = [list_files(self._storage, folder) for folder in folders.values()]
        has_files = len([files for files in there if files["wal"] or files["free"]])
        size = min(self.config.file_bytes, SMALL_FILE_BYTES)
        return has_files < self.config.shards and is_short(self._storage, self._root, size)

    def _discard(self, *, keep: int, kept: int = -1) -> None:
        folders = shard_folders(self._storage, self._root)
        going = set(marked(self._storage, self._root))
        for number, folder in folders.items():
            going.update(in_use(self._storage, folder, number))
        going.discard(Marked(SHARD_OF_STARTS, KEPT, kept))
        remove_markers(self._storage, self._root, going)
        forget_reached(self._storage, self._witness)
        for number, folder in folders.items():
            discard_used(
                self._storage, folder, keep=keep, kept=kept if number == SHARD_OF_STARTS else -1
            )

    def _remove(self, folder: str) -> None:
        """A shard that there is no more; its files are all free."""
        for name in self._storage.listdir(folder):
            self._storage.unlink(f"{folder}/{name}")
        self._storage.rmdir(folder)

    # Writing

    def shard_of(self, topic_id: bytes, partition: int) -> Shard:
        """Where the frames of this partition go."""
        return self._shards[shard_number(topic_id, partition, len(self._shards))]

    @property
    def event_size_max(self) -> int:
        """Bytes of a control event, at most: what fits a file."""
        return self.config.batch_bytes_max

    @property
    def takes_events(self) -> bool:
        """Whether control events are written; False: after a failure, until `revive`."""
        return self._shards[0].failure is None

    def control(self, *payloads: bytes) -> Callable[[], None]:
        """Have control events made durable; what is returned waits for it, and raises OSError."""
        return self._shards[0].begin([Frame(FrameType.CONTROL, payload=one) for one in payloads])

    def control_soon(self, payload: bytes, done: Done) -> None:
        """Make a control event durable; `done` is told through call_soon."""
        self._shards[0].put([Frame(FrameType.CONTROL, payload=payload)], done)

    def barrier(self, topic_id: bytes, partition: int, end: Frame | None = None) -> None:
        """Earlier frames of this partition are void.  Durable at return.  Raises OSError.

        end: what is said of it from here on, in the same write.
        """
        frame = Frame(FrameType.BARRIER, topic_id, partition)
        shard = self.shard_of(topic_id, partition)
        shard.vouching.bar(frame.key)
        shard.write([frame] if end is None else [frame, end])

    def end_soon(
        self, topic_id: bytes, partition: int, segment: int, position: int, end_offset: int
    ) -> None:
        """This log is synced up to there; said with the next group, nobody waits for it."""
        frame = end_frame((topic_id, partition), segment, position, end_offset)
        self.shard_of(topic_id, partition).vouching.ride(frame)

    def say_ends(self) -> None:
        """Write what `end_soon` was told, without another group to ride with.  Does not wait."""
        for shard in self._shards:
            shard.write_riders()

    def say_reached(self) -> None:
        """Say outside of the log how far it was written, where it went on since it was said.  What
        fails is logged.  Blocking."""
        for number, shard in enumerate(self._shards):
            at = shard.reached
            if at is None or self._reached.get(number) == at:
                continue
            try:
                say_reached(self._storage, self._witness, Reached(number, *at))
                self._reached[number] = at
            except OSError as exc:
                log.warning("wal_reached_not_said", error=str(exc))

    def recall(self, source: Source) -> list[Frame]:
        """The batches of this source that files in use still have.  Blocking.  Raises OSError,
        UnsupportedFormat."""
        return frames_in(
            self._storage, self.shard_of(*source.wal_key).files_since(source), source.wal_key
        )

    def forget(self, topic_id: bytes, partitions: int) -> None:
        """A topic is gone: nothing is said of its partitions any more."""
        for partition in range(partitions):
            self.shard_of(topic_id, partition).forget((topic_id, partition))

    # Keeping house

    def _checkpoint_soon(self) -> None:
        assert self._checkpointer is not None
        self._checkpoint_asked.ask(self._checkpointer, self.checkpoint)

    def checkpoint(self) -> None:
        """Free every full file.  Blocking; in any thread.  What fails is logged and tried again."""
        with self._checkpointing:
            self._checkpoint_asked.begun()
            self.checkpoints += 1
            for shard in self._shards:
                if shard.full:
                    try:
                        self._free_files(shard)
                        shard.checkpoints_told.is_over()
                    except OSError as exc:
                        shard.supply.nothing_freed(exc)
                        # A write that finds no room asks for another.
                        if shard.checkpoints_told.is_new(exc):
                            with suppress(MemoryError):  # the other shards are looked at as well
                                log.error("wal_checkpoint_failed", error=str(exc))
                    except Exception as exc:  # a mistake of ours: a writer may wait for room
                        shard.supply.nothing_freed(error_to_tell(exc, "a checkpoint crashed"))
                        with suppress(MemoryError):
                            log.exception("wal_checkpoint_crashed")
                else:
                    shard.supply.nothing_to_free()

    def relieve(self) -> None:
        """Where the volume is short of room: unlink spare files, and have full ones freed before
        there are as many as it takes.  What fails is logged.  Does not wait for a sync."""
        for shard in self._shards:
            try:
                if is_short(self._storage, self._root, self.config.file_bytes):
                    shard.shrink()
                    if shard.full:
                        self._checkpoint_soon()
            except OSError as exc:
                log.warning("wal_not_relieved", error=str(exc))

    def _free_files(self, shard: Shard) -> None:
        full = list(shard.full)
        sources = {one: None for file in full for one in list(file.sources.values())}
        failed = {source for source in sources if not source.wal_checkpoint()}
        if any(file.has_control for file in full):
            self.snapshot()
        shard.keep_ends()
        for _ in full:
            shard.free_oldest(failed)
        log.debug("wal_checkpoint", files=len(full), logs=len(sources), failed=len(failed))

    def _save_metadata(self) -> None:
        self.snapshot()

    def look(self) -> None:
        """Leave files that somebody has removed, replaced or cut off, and ask for checkpoints until
        they are freed.  What fails is logged; another file is tried again by `revive`.
        Blocking."""
        for shard in self._shards:
            shard.look()
        if not self._checkpointing.acquire(blocking=False):
            return  # each is looked at when it is freed
        try:
            kept = self._kept_by_start
            if kept and kept.is_away() and all(one.vouching.keep_anew() for one in self._shards):
                self._shards[SHARD_OF_STARTS].vouching.remove(kept.number)
                self._kept_by_start = None
            away = [shard.look_at_full() for shard in self._shards]
        finally:
            self._checkpointing.release()
        if any(away):
            self._checkpoint_soon()

    def fail(self, cause: OSError) -> None:
        """Let no shard write any more, until `revive`.  Blocking."""
        for shard in self._shards:
            shard.fail(cause)

    def revive(self) -> None:
        """Let shards that failed go on in another file, each if one can be had, and have one made
        for those that lack it.  Raises OSError, the first, when all were tried."""
        first: OSError | None = None
        for shard in self._shards:
            try:
                shard.revive()
            except OSError as exc:
                first = first or exc
            if shard.failure is None and shard.why_unwritable is not None:
                shard.supply.prepare_soon()
        if first is not None:
            raise first

    def statistics(self) -> WalStatistics:
        """Numbers at this moment."""
        shards = self._shards
        why = [error for shard in shards if (error := shard.why_unwritable) is not None]
        return WalStatistics(
            shards=len(shards),
            shards_failed=len(why),
            why_failed=str(why[0]) if why else None,
            syncs=sum(shard.syncs for shard in shards),
            syncs_here=sum(shard.syncs_here for shard in shards),
            frames_written=sum(shard.frames_written for shard in shards),
            bytes_written=sum(shard.bytes_written for shard in shards),
            files=sum(shard.files_count for shard in shards),
            files_full=sum(shard.full_count for shard in shards),
            files_max=(self.config.files_max - 1) * len(shards),
            file_waits_s=round(sum(shard.file_waits_s for shard in shards), 3),
            syncs_slow=self._slow,
            stuck_s=max((shard.stuck_s for shard in shards), default=0.0),
            checkpoints=self.checkpoints,
        )

    def count_slow(self) -> int:
        """How many syncs took longer than SLOW_S since the last call; once a minute."""
        before, self._slow_before = self._slow_before, self.sync_times().slow
        self._slow = self._slow_before - before
        return self._slow

    def sync_times(self) -> Histogram:
        """How long the syncs of all shards took so far; empty without a clock."""
        return sum((shard.sync_times.histogram() for shard in self._shards), start=NO_SYNCS)

    def stop(self) -> None:
        """Write what is queued and end the threads.  Events are written yet, in the thread of who
        brings them, as long as no other file is needed."""
        for shard in self._shards:
            shard.close()
        for keeper in (self._maker, self._checkpointer):
            if keeper is not None:
                keeper.close()

    def close(self, *, empty: bool) -> None:
        """Close everything, after `stop`.  `empty`: all logs and the metadata are durable, so there
        is nothing to replay.  Raises OSError."""
        for shard in self._shards:
            shard.release()
        following = max((shard.next_sequence for shard in self._shards), default=0)
        self._shards = []
        if empty:
            self._say_next(following)
            self._discard(keep=SPARE_FILES)
