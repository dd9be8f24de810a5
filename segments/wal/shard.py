"""One shard of the WAL: one writer, its files, its failure.

    submit, put -> queue -> writer: take what is there -> one write -> one fdatasync -> call_soon

Group commit without a timer: the writer takes everything that is waiting, and whatever arrives
during its sync is the next group.  A lone write waits only for its own sync.

| file | state | next |
|---|---|---|
| ready | made ahead, header durable (supply.py) | active |
| active | the writer appends | full |
| full | has frames whose segments may not be synced | free, when a checkpoint has synced them |

MARK: a power cut may tear a group of control events that spans several pages, so that later events
are there and earlier ones are not.  That would look like damage to acknowledged events.  So after
such a group a MARK is written and synced, before anybody is told of the group: if the MARK is
missing, nobody was told.

Lone writes: if there is only one source and its shard is quick (inline_sync.py), the thread of the
source may write (`commit_here`): the same group, by the same code, under the writer's lock.  It is
refused, with nothing done, while anything else is queued or being written, after a failure, and if
another file would be needed: only the writer's thread waits for room, a checkpoint or a slow disk.

Failure: after a failed write or sync everybody in the group and in the queue is told, nothing more
is written, and that descriptor is never synced again.  `revive` continues in another file, whose
sync can be trusted.  It first writes there which frames were given up (GIVEN_UP), so that remains
of them are not applied, and the lack of them is not taken for damage.  That is synced before
anything else is written, so a torn group never stands there without it; and before the shard counts
as writable, for the file itself may have been made before the disk failed.  Every partition that
failed writes a BARRIER before it continues, so earlier frames cannot replace newer ones.

A file that somebody has removed, or put another in the place of, is left in the same way (`look`),
but nobody is told of a failure: what it has was synced, and a checkpoint has it elsewhere soon.

A start counts missing event numbers as damage.  So when control events were given up, in a failure
or for want of a file, a snapshot that includes them is written before the next event.

With `threaded` False the caller of `submit` and `put` is the writer.

Invariants: `call_soon` is told of a frame only after its sync has returned; frames are written in
the order of the calls; files are freed oldest first.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import structlog

from ..background import Housekeeper, pause
from ..disk.storage import Buffer, close_all, write_all
from ..told_once import ToldOnce
from .files import ShardFiles, WalFile
from .frames import (
    AWAITS_MARK,
    FRAMES_BEGIN,
    ORDINAL_MAX,
    OVERHEAD,
    SEQUENCE_MASK,
    Frame,
    FrameType,
    encode_frame,
)
from .group import (
    Acknowledge,
    BlockingRequest,
    CallSoon,
    Done,
    Group,
    Item,
    Request,
    Source,
    crosses_a_page,
)
from .inline_sync import InlineSyncBudget
from .supply import Supply
from .sync_times import SyncTimes
from .vouching import Key, Vouching, say_later

log = structlog.get_logger()

T = TypeVar("T")

GROUP_BYTES_MAX: Final = 4 << 20
"""A group grows no further than the source that passes this: bounds memory and the wait."""
HERE_BYTES_MAX: Final = 64 << 10
"""What a source may have appended that is written by its own thread."""
STUCK_S: Final = 10.0
"""A group that takes longer is stuck: on a disk that does not answer, or for want of a file."""

_PLACE: Final = Request([], None)
"""Where an item of the queue comes to stand; asks for nothing."""


class Full(NamedTuple):
    """A file that is not written any more, and who has frames in it."""

    file: WalFile
    sources: dict[Key, Source]
    ends: dict[Key, Frame]
    """The END frames that rode with its groups."""
    has_control: bool
    trusted: bool


class GivenUp(NamedTuple):
    """Frames from `lsn` on never were; those before end at this byte of this file."""

    lsn: int
    sequence: int
    end: int


def given_up(lsn: int, sequence: int, end: int) -> Frame:
    """Says so (GivenUp)."""
    return Frame(
        FrameType.GIVEN_UP,
        segment=sequence & SEQUENCE_MASK,
        position=end,
        base_offset=lsn,
        end_offset=lsn,
    )


class ShardFailed(OSError):
    """The shard failed before; the first cause is in the message."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.errno, f"the WAL shard failed: {cause.strerror or cause}")


class Shard:
    """One writer and its files."""

    def __init__(
        self,
        files: ShardFiles,
        *,
        files_max: int,
        threaded: bool,
        call_soon: CallSoon,
        maker: Housekeeper,
        checkpoint_soon: Callable[[], None],
        inline_budget: InlineSyncBudget,
        next_lsn: int,
        name: str,
        absorb_events: Callable[[], None] = lambda: None,
        said: Mapping[Key, int] = MappingProxyType({}),
    ) -> None:
        """checkpoint_soon: have files freed; called when half of `files_max` are full.

        absorb_events: called when control events were given up, before the next ones are written.
        said: end offsets that are vouched for by what the start has kept.
        Raises OSError.
        """
        assert files_max >= 2, "one to write and one to free"
        self.full: deque[Full] = deque()
        self.checkpoints_told = ToldOnce()
        """Of those that could not free its files."""
        self.supply = Supply(
            files,
            files_max=files_max,
            threaded=threaded,
            maker=maker,
            checkpoint_soon=checkpoint_soon,
        )
        self.failure: OSError | None = None
        self._lacks_file = False  # the active one is full, and no other was to be had
        self.syncs = 0
        self.frames_written = 0
        self.bytes_written = 0
        self.syncs_here = 0
        """Of `syncs`, those of `commit_here`."""
        self.sync_times = SyncTimes()
        self.file_waits_s = 0.0
        """Seconds that groups waited for the next file."""
        self._group_began: float | None = None
        """When the writing of the group began that is under way."""
        self._files = files
        self._files_max = files_max
        self._call_soon = call_soon
        self._checkpoint_soon = checkpoint_soon
        self._inline_budget = inline_budget
        self._next_lsn = next_lsn
        self.vouching = Vouching(files, said)
        self._ends: dict[Key, Frame] = {}
        self._kept: dict[Key, tuple[str, ...]] = {}
        """The files with what was copied of partitions that could not be made durable."""
        self._absorb_events = absorb_events
        self._events_given_up = False
        """Control events may have been, and their numbers are not absorbed yet."""
        self._given_up: GivenUp | None = None
        """What groups that failed may have left; said, synced, before the next one is written."""
        self._active: WalFile | None = None
        self._sources: dict[Key, Source] = {}
        self._has_control = False
        self._writing = threading.Lock()
        # Items put into the queue, counted under this lock, and items of it that are settled.
        self._counting = threading.Lock()
        self._asked = self._settled = 0
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._taken: list[Item | None] = []
        """Out of the queue and not settled yet; the writer's."""
        self._has_ended = False
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    # From anywhere

    def submit(self, source: Source) -> None:
        """Have what `source` appended made durable.  Does not wait, unless there is no thread."""
        if source.wal_queued:
            return  # whoever takes it has not begun to: what was appended is taken, too
        source.wal_queued = True
        try:
            self._put(source)
        except BaseException:  # for want of memory: nobody takes it, and it is asked for again
            source.wal_queued = False
            raise

    def commit_here(
        self,
        source: Source,
        size: int,
        call_soon: CallSoon | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> bool:
        """Make what `source` appended, `size` bytes as frames, durable in this thread.

        False: it has to be submitted, nothing was done.  Else it is settled, also if it failed:
        `source` has been told when this returns, or with `call_soon` by way of that.  If it is
        durable `acknowledge` was called before, as the first thing behind the sync.
        """
        if (
            size > HERE_BYTES_MAX
            or self._asked != self._settled
            or not self._inline_budget.is_quick
            or not self._writing.acquire(blocking=False)
        ):
            return False
        reports: list[Callable[[], None]] = []
        try:
            active = self._active
            if (
                self.vouching.has_riders  # as many as there are partitions: the thread's
                or self.failure is not None
                or self._asked != self._settled
                or active is None
                or self._given_up is not None
                or active.end + size > active.frames_end
            ):
                return False
            self.syncs_here += 1
            self._commit_one(source, call_soon or reports.append, acknowledge)
        finally:
            self._writing.release()
        for report in reports:
            report()
        return True

    def put(self, frames: list[Frame], done: Done | None) -> None:
        """Have these frames made durable; `done` is told through call_soon.  Does not wait."""
        self._put(Request(frames, done))

    def write_riders(self) -> None:
        """Have what rides written, if there is any, though nobody asks for a group."""
        if self.vouching.has_riders:
            self.put([], None)

    def forget(self, key: Key) -> None:
        """The partition is gone: nothing vouches for it any more, and no checkpoint asks it."""
        self.vouching.forget(key)
        self._kept.pop(key, None)
        with self._counting:  # what is active first, which may be retired meanwhile
            active = (self._ends, self._sources)
            for ends, sources in (active, *((full.ends, full.sources) for full in list(self.full))):
                ends.pop(key, None)
                sources.pop(key, None)

    def write(self, frames: list[Frame]) -> None:
        """Make these frames durable.  Blocking.  Raises OSError."""
        self.begin(frames)()

    def begin(self, frames: list[Frame]) -> Callable[[], None]:
        """Have these frames made durable; what is returned waits for it, and raises OSError."""
        outcome: list[OSError | None] = []
        finished = threading.Event()

        def done(error: OSError | None) -> None:
            outcome.append(error)
            finished.set()

        def wait() -> None:
            finished.wait()
            if outcome[0] is not None:
                raise outcome[0]

        self._put(BlockingRequest(frames, done))
        return wait

    def between_groups(self, work: Callable[[], T]) -> T:
        """Do this while no group is being made or written: of what was taken from a source before,
        it has been told when it was given up.  Blocking."""
        with self._writing:
            return work()

    def fail(self, cause: OSError) -> None:
        """Write nothing more until `revive`, though no write has failed.  Blocking."""
        with self._writing:
            if self.failure is None:
                self.failure = cause
                log.error("wal_failed", path=self._files.folder, error=str(cause))

    def revive(self) -> None:
        """Go on after a failure, in another file.  Blocking.  Raises OSError.

        What the file of the failure has of earlier groups was synced by them and is trusted; who
        was told of the failure brings its own state to safety, and a BARRIER, before it goes on.
        Nobody else may be using the shard's failed state: one caller at a time.
        """
        with self._writing:
            if self.failure is None:
                return
            self._go_on()
        log.info("wal_writable_again", folder=self._files.folder)

    def _go_on(self) -> None:
        """Raises OSError: the shard has failed as before."""
        self._retire(trusted=False)
        self._active = self.supply.next_file()
        self._say_given_up()
        self.failure = None

    def look(self) -> None:
        """Go on in another file where the one that is written is away: a checkpoint has to make
        durable elsewhere what it has.  What fails is logged.

        The one that is ready to be the next has nothing, and is freed by it as well.

        Blocking, but it waits for the writer only then: a disk that does not answer holds it up.
        """
        active = self._active
        if not self.supply.is_missed and (active is None or not active.is_missed):
            return
        with self._writing:
            if self.supply.is_missed and (ready := self.supply.give_up()) is not None:
                self.full.append(Full(ready, {}, {}, has_control=False, trusted=True))
            while self.failure is None and self._active is not None and self._active.goes_away():
                self.failure = OSError(errno.ENOENT, "its file is away", self._active.path)
                try:
                    self._go_on()
                except OSError as exc:
                    self.failure = exc
                    log.error("wal_failed", path=self._files.folder, error=str(exc))

    def look_at_full(self) -> bool:
        """Whether a full file is away: as of `look`.  Nobody may free one meanwhile, and so rename
        it.  What vouches for logs is kept anew if its file is away.  Blocking."""
        self.vouching.look()
        for full in list(self.full):
            full.file.goes_away()
        return any(full.file.is_away for full in list(self.full))

    @property
    def why_unwritable(self) -> OSError | None:
        """The failure after which it does not go on yet, or why there is no file where one is
        needed; None: it can be written.  Without a lock."""
        if self.failure is not None:
            return self.failure
        return self.supply.why_none if self._active is None or self._lacks_file else None

    @property
    def full_count(self) -> int:
        return len(self.full)

    @property
    def next_sequence(self) -> int:
        """The least number that no file of it has had."""
        return self._files.next_sequence

    @property
    def stuck_s(self) -> float:
        """For how many seconds one group has been written, from STUCK_S on; else 0, and without a
        clock.  Without a lock: the writer holds its own meanwhile."""
        began = self._group_began
        seconds = 0.0 if began is None else self._inline_budget.now() - began
        return seconds if seconds >= STUCK_S else 0.0

    @property
    def files_count(self) -> int:
        """Files that exist, used or free."""
        return self._files.count

    def shrink(self) -> None:
        """Unlink the free files, but for one.  Raises OSError."""
        self._files.shrink()

    def files_since(self, source: Source) -> list[str]:
        """What was copied of `source`, and the files in use from the oldest on that has frames of
        it, oldest first; none where no file has any.  Whatever is read of them may be used again
        meanwhile.

        Without a lock: the writer holds its own while it waits for room, which waits for those who
        ask here.
        """
        key = source.wal_key
        active, is_active = self._active, key in self._sources
        files = [(full.file.path, key in full.sources) for full in list(self.full)]
        if active is not None and active.path not in [path for path, _ in files]:
            files.append((active.path, is_active))
        first = next((place for place, (_, has) in enumerate(files) if has), len(files))
        return [*self._kept.get(key, ()), *(path for path, _ in files[first:])]

    def void_kept(self, source: Source) -> None:
        """A BARRIER of it is written: nothing that was copied before counts."""
        self._kept.pop(source.wal_key, None)

    def keep_ends(self) -> None:
        """The full files are about to go: what vouches for logs in them goes on doing so.
        Blocking, and waits for no writer."""
        with self._counting:
            going = [dict(full.ends) for full in list(self.full)]
        self.vouching.keep(going)

    @property
    def reached(self) -> tuple[int, int] | None:
        """(number of the file that is written, where its durable frames end); None: there are
        none.  Without a lock."""
        active = self._active
        end = 0 if active is None else active.end
        return None if active is None or end == FRAMES_BEGIN else (active.sequence, end)

    def free_oldest(self, failed: Collection[Source] = ()) -> None:
        """The oldest full file is not needed any more, but for what it has of the `failed`: that is
        copied.  After `keep_ends`.  Blocking.  Raises OSError."""
        oldest = self.full[0]
        keys = {key for key, source in list(oldest.sources.items()) if source in failed}
        if keys:
            path = self._files.keep(oldest.file, keys)
            for key in keys:  # before it goes: whoever looks meanwhile finds one of them
                self._kept[key] = (*(one for one in self._kept.get(key, ()) if one != path), path)
        self._files.recycle(oldest.file, trusted=oldest.trusted)
        self.full.popleft()
        self.supply.prepare_soon()  # there is room for another

    def close(self) -> None:
        """Write what is queued and end the thread.  Who puts something in from then on is the
        writer, as long as the file has room: another would ask for a checkpoint of logs that are
        being closed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._has_ended = True

    def release(self) -> None:
        """Close every descriptor."""
        self.supply.release()
        files = (self._active, *(full.file for full in self.full))
        close_all(file.file for file in files if file is not None)
        self._active = None

    # The writer

    def _put(self, item: Item) -> None:
        if self._thread is None:
            with self._writing:
                self._commit([item], self._call_soon)
        else:
            with self._counting:
                self._queue.put(item)  # first: where there is no memory for it, it was not asked
                self._asked += 1

    def _run(self) -> None:
        while True:
            try:
                if not self._write_next():
                    return
            except MemoryError:  # what was taken is there yet
                pause()

    def _write_next(self) -> bool:
        """Wait until something is queued, and write all that is; False: nothing comes any more."""
        queue, taken = self._queue, self._taken
        while not taken or not queue.empty():
            taken.append(_PLACE)  # first: what was taken and has no place would be lost
            taken[-1] = queue.get()
        items = [item for item in taken if item is not None and item is not _PLACE]
        with self._writing:
            self._commit_all(items, self._call_soon)
            self._settled += len(items)
        closing = None in taken
        taken.clear()
        return not closing

    def _commit_one(
        self, source: Source, call_soon: CallSoon, acknowledge: Acknowledge | None
    ) -> None:
        """A group of this source alone, which is not queued; nothing rides with it."""
        group = Group()
        group.acknowledge = acknowledge
        try:
            group.frames, mark = source.take_frames()
            group.acks.append((source, mark))
            self._write_group(group, call_soon)
        except Exception as exc:  # as in `_commit_all`
            self._crashed([source], exc, call_soon)

    def _commit_all(self, items: Sequence[Item], call_soon: CallSoon) -> None:
        try:
            self._commit(items, call_soon)
        except Exception as exc:  # a mistake of ours: nobody may wait for it for ever
            self._crashed(items, exc, call_soon)

    def _crashed(self, items: Sequence[Item], cause: Exception, call_soon: CallSoon) -> None:
        """Fail, and tell everybody who was about to be written.  Some hear of it a second time.
        Waits for the memory that this takes: who is not told waits for ever, or goes on behind
        frames that were given up."""
        with suppress(MemoryError):
            log.error("wal_crashed", exc_info=cause)
        while True:
            try:
                self._tell_crash(items, cause, call_soon)
                return
            except MemoryError:
                pause()

    def _tell_crash(self, items: Sequence[Item], cause: Exception, call_soon: CallSoon) -> None:
        error = OSError(errno.EIO, f"the writer of the WAL crashed: {cause!r}")
        if self.failure is None:
            self.failure = error
        self._events_given_up = True
        group = Group()
        for item in items:
            if isinstance(item, Request):
                group.requests.append(item)
            else:
                item.wal_queued = False
                group.acks.append((item, 0))
        self._ridden(error)
        group.settle(error, call_soon)

    def _commit(self, items: Sequence[Item], call_soon: CallSoon) -> None:
        """Write and sync what the items bring, in groups of a bounded size."""
        group = Group()
        if self.vouching.has_riders:
            riding = self.vouching.take()
            with self._counting:
                for frame in riding.values():
                    say_later(self._ends, frame)
            group.add_request(BlockingRequest(list(riding.values()), self._ridden))
        for item in items:
            if isinstance(item, Request):
                group.add_request(item)
            else:
                item.wal_queued = False  # first: what is appended from here on asks again
                frames, mark = item.take_frames()
                group.acks.append((item, mark))
                for frame in frames:
                    group.frames.append(frame)
                    group.size += OVERHEAD + len(frame.payload)
            if group.size >= GROUP_BYTES_MAX:
                self._write_group(group, call_soon)
                group = Group()
        self._write_group(group, call_soon)

    def _ridden(self, error: OSError | None) -> None:
        """What rode is durable, or it rides again: also where the file it was to be in goes on."""
        self.vouching.rode(durable=error is None)

    def _write_group(self, group: Group, call_soon: CallSoon) -> None:
        error: OSError | None = None
        try:
            if self.failure is not None:
                raise ShardFailed(self.failure)
            if group.has_control and self._events_given_up:
                self._absorb(group, call_soon)
            if group.frames:
                self._append(group)
        except OSError as exc:
            error = exc
            self._events_given_up |= group.has_control
        finally:
            self._group_began = None
        group.settle(error, call_soon)

    def _absorb(self, group: Group, call_soon: CallSoon) -> None:
        """Have no number of an event missed, or refuse those of this group; the rest goes on."""
        try:
            self._absorb_events()
        except OSError as exc:
            group.refuse_events(exc, call_soon)
        else:
            self._events_given_up = False

    def _append(self, group: Group) -> None:
        """Write the frames and sync; over several files where they do not fit one."""
        self._group_began = self._inline_budget.now()
        self._say_given_up()
        active = self._active
        at = (0, FRAMES_BEGIN) if active is None else (active.sequence, active.end)
        begin = GivenUp(self._next_lsn, *at)  # here: behind a failure there may be no memory
        try:
            if self._append_all(group.frames, group):
                self._append_all([Frame(FrameType.MARK)], group)
        except Exception:  # of any kind: what it left is given up, and who asked is told
            if self._next_lsn > begin.lsn:
                self._given_up = begin
            raise
        if group.acknowledge is not None:
            group.acknowledge()

    def _say_given_up(self) -> None:
        """Write and sync which frames were given up, if any were.  Raises OSError."""
        if self._given_up is not None:
            self._append_all([given_up(*self._given_up)], Group())
            self._given_up = None

    def _append_all(self, frames: Sequence[Frame], group: Group) -> bool:
        """Write these frames of the group and sync; whether a MARK has to follow."""
        flags = place = 0
        while place < len(frames):
            active = self._active
            if active is None or active.end + frames[place].size > active.frames_end:
                active = self._roll(frames[place])
            flags, limit = 0, active.frames_end
            if group.has_control and crosses_a_page(frames[place:], active.end, limit):
                flags |= AWAITS_MARK
            # Before the write: what fails half way may be in the file all the same.
            for source, _ in group.acks:
                self._sources[source.wal_key] = source
            if group.has_control:
                self._has_control = True
            parts: list[Buffer] = []
            end, first = active.end, place
            lsn = self._next_lsn
            while place < len(frames) and place - first <= ORDINAL_MAX:
                frame = frames[place]
                following = end + OVERHEAD + len(frame.payload)
                if following > limit:
                    break
                parts += encode_frame(frame, lsn, place - first, active.header.salt, flags)
                lsn += 1
                place += 1
                end = following
            self._next_lsn = lsn
            began = self._inline_budget.now()
            try:
                write_all(active.file, b"".join(parts), active.end)
                active.file.fdatasync()
                if (seconds := self._inline_budget.took(began)) is not None:
                    self.sync_times.add(seconds)
            except OSError as exc:
                self.failure = exc
                log.error("wal_failed", path=active.path, error=str(exc))
                raise
            self.syncs += 1
            self.frames_written += place - first
            self.bytes_written += end - active.end
            active.end = end
        return bool(flags)

    def _roll(self, frame: Frame) -> WalFile:
        """The next file; the active one is full.  Raises OSError."""
        if self._has_ended:
            raise OSError(errno.ENOSPC, "a WAL that has ended goes on in no other file")
        began = self._inline_budget.now()
        try:
            following = self.supply.next_file()
        except OSError:
            self._lacks_file = True
            raise
        self.file_waits_s += self._inline_budget.now() - began
        self._retire(trusted=True)
        self._active = following
        if self.full_count * 2 >= self._files_max:
            self._checkpoint_soon()
        if FRAMES_BEGIN + frame.size > following.frames_end:
            assert following.size < self._files.file_bytes, "whoever brings it has a limit"
            why = "the volume has no room for a file of the WAL that this fits into"
            raise OSError(errno.ENOSPC, why, following.path)
        return following

    def _retire(self, *, trusted: bool) -> None:
        if self._active is not None:
            full = Full(self._active, self._sources, self._ends, self._has_control, trusted)
            self.full.append(full)
            self._sources = {}
            self._ends = {}
            self._has_control = False
            self._active = None
            self._lacks_file = False
