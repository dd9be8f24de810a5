"""MetadataLog: the state kept, changed by one durable event at a time, absorbed by snapshots.

    open      snapshot-<n>, then the events behind it         -> state
    record    event -> log, durable                           -> state; the caller waits
    record_soon     the same, and a callback instead of a wait
    save      state -> snapshot-<n+1>; the events up to its seq may go

| | durable | in the snapshot | seen by `state` |
|---|---|---|---|
| event handed to the log | not yet | yes | no |
| ... and reported durable | yes | yes | yes |
| ... and reported failed | nobody knows | no more: it asks for a new one | no |

A snapshot holds what is on its way, too: the file with its event may be recycled the moment after.
An event that is larger than can be read back is not written, and fails at once; without a log there
is none to be read.
An event whose write failed may be on the disk all the same, and a deletion that nobody was told
about would come true at the next start: so a failure asks for a snapshot without it (`is_settled`),
at once and then on every tick until one is written.  Until then nobody writes into that topic.

snapshot-<n>.msgpack: the new one is written, synced and renamed into place, the directory synced,
then the old one unlinked.  The highest n is the truth.  If it is damaged, nothing is opened: an
older one could bring deleted topics back, and none at all would make every topic an orphan.  So it
is when the highest is not the one that `witness/` has seen (witness.py).  One that somebody removes
under the running broker is written anew (`look`).

Events are handed to the log in the order of their numbers, whoever records them: were a higher one
durable and a lower one still waiting, a crash in between would look like a loss.  Who waits for one
may hear of it before the loop hears of an earlier one; the state, and a snapshot, have them in the
order of their numbers all the same, as a start will.

| lock | protects | held over |
|---|---|---|
| _order | the order of events in the log | handing them over, and what that does without threads |
| _lock | state, what is on its way, seq | nothing |
| _saving | the files of meta/ | a snapshot's sync: never taken on the loop |
"""

import errno
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

import structlog

from ..disk.storage import TEMPORARY, Storage, is_cut_off, make_dirs, read_file, replace_file
from ..errors import CorruptMetadata, CorruptSegment, as_os_error
from ..told_once import ToldOnce
from ..witness import SNAPSHOT, least, say_least, witness_folder
from . import metadata
from .control import EVENT_SIZE_MAX, Event, apply_all, decode_event
from .metadata import Metadata, decode_metadata
from .sections import check_sections

log = structlog.get_logger()

Done: TypeAlias = Callable[[OSError | None], None]

_NAME: Final = re.compile(r"snapshot-(\d{1,18})\.msgpack")


def check_newest(storage: Storage, folder: str, newest: int) -> None:
    """Whether the newest snapshot in `folder`, 0 without any, is the newest that there was.

    Raises CorruptMetadata: an older one was put in its place.
    """
    witness = witness_folder(folder)
    number = least(storage, witness, SNAPSHOT)
    if newest < number:
        found = f"snapshot-{newest}.msgpack" if newest else "none"
        raise CorruptMetadata(
            folder,
            f"the newest snapshot is {found}, but snapshot-{number}.msgpack was written after it:"
            " topics, groups and ids would be those of an earlier time. Put that file back, or the"
            " whole data directory from one backup; or, to go on with the earlier state, remove"
            f" {witness}/{SNAPSHOT}-{number}",
        )


class EventLog(Protocol):
    """Where events go.  Errors are OSError."""

    @property
    def event_size_max(self) -> int:
        """Bytes of one event, at most."""
        ...

    def control(self, *payloads: bytes) -> Callable[[], None]:
        """At once; what it returns waits: durable when that returns, none of them, for all that
        anybody knows, when it raises."""
        ...

    def control_soon(self, payload: bytes, done: Done) -> None:
        """At once; `done` is called when it is durable, or has failed."""
        ...


class MetadataLog:
    """The directory meta/ and the events behind it."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._witness = witness_folder(folder)
        self._number = 0
        self._state: Metadata | None = None
        self._pending: dict[int, Event] = {}
        # What happened while an earlier event was on its way, and the state in front of all of it.
        self._ahead: dict[int, Event] = {}
        self._settled_state: Metadata | None = None
        self._seq = 0
        self._log: EventLog | None = None
        self._order = threading.RLock()  # what is told at once may record the next event
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._saved_seq = -1
        self._saved_size = 0
        self._doubts = 0
        self._doubts_settled = 0
        self._why = ""
        self._told = ToldOnce()
        self._not_saved = ""

    @property
    def is_settled(self) -> bool:
        """Whether no event is in doubt."""
        return self.has_settled(self._doubts)

    @property
    def doubts(self) -> int:
        """How many failures have left events in doubt, of all times."""
        return self._doubts

    def has_settled(self, doubts: int) -> bool:
        """Whether what so many failures have left is in doubt no more."""
        return self._doubts_settled >= doubts

    @property
    def why_unsettled(self) -> str | None:
        """What failed last while an event is in doubt; None: none is."""
        return None if self.is_settled else self._why

    @property
    def why_not_saved(self) -> str | None:
        """What the last snapshot failed by; None: it did not."""
        return self._not_saved or None

    @property
    def last_seq(self) -> int:
        """The number of the last event that was handed to the log, durable or not yet."""
        return self._seq

    @property
    def is_full(self) -> bool:
        """Whether the newest snapshot is so large that clients are to add no more names to it."""
        return self._saved_size >= metadata.SNAPSHOT_SIZE_FULL

    @property
    def state(self) -> Metadata:
        """What is known, durably."""
        assert self._state is not None, "loaded or begun"
        return self._state

    # Opening

    def load(self) -> bool:
        """Read the newest snapshot; False in a new data directory.

        Raises CorruptMetadata, UnsupportedFormat.
        """
        names = self._storage.listdir(self._folder)
        numbers = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
        if not numbers:
            return False
        self._number = numbers[-1]
        check_newest(self._storage, self._folder, self._number)
        path = self._path(self._number)
        data = bytes(read_file(self._storage, path))
        try:
            self._state = decode_metadata(data, path)
        except CorruptSegment as exc:
            raise CorruptMetadata(path, exc.reason) from exc
        if len(numbers) > 1:
            # Who was killed before the one in front of it went may not have made its name durable,
            # or that has failed, and then another sync proves nothing of it; and the files with the
            # events that it absorbed are about to go.  Another name takes no room.
            self._number += 1
            found, path = path, self._path(self._number)
            self._storage.rename(found, path)
            self._storage.fsync_dir(self._folder)
        elif self._number == 1:
            replace_file(self._storage, path, data)  # nothing is in front of it; it is small
        self._seq = self._saved_seq = self._state.seq
        self._saved_size = len(data)
        for name in self._storage.listdir(self._folder):
            # Older ones, and what is left of an interrupted `save`.
            if _NAME.fullmatch(name.removesuffix(TEMPORARY)) and f"{self._folder}/{name}" != path:
                self._storage.unlink(f"{self._folder}/{name}")
        return True

    def begin(self, state: Metadata) -> None:
        """Start with this state in a new data directory.  Raises OSError."""
        self._state = state
        self.save()

    def replay(self, payloads: Iterable[bytes | memoryview]) -> int:
        """Apply the events behind the snapshot, in the order of their writing; how many of their
        `seq` are not there: lost to damage, or counted when the process died and never written.

        Raises CorruptSegment, UnsupportedFormat.
        """
        state = self.state
        events = [event for event in map(decode_event, payloads) if event.seq > state.seq]
        highest = max((event.seq for event in events), default=state.seq)
        absent = highest - state.seq - len({event.seq for event in events})
        state = apply_all(state, events)
        if events:
            check_sections(state.sections, "control events")
        self._state = state
        self._seq = max(self._seq, state.seq)
        return absent

    def attach(self, events: EventLog | None) -> None:
        """Write events there from now on; None: every change is a snapshot."""
        self._log = events

    # Changing

    @property
    def event_size_max(self) -> int:
        """Bytes of one event, at most."""
        return (
            EVENT_SIZE_MAX if self._log is None else min(EVENT_SIZE_MAX, self._log.event_size_max)
        )

    def record(self, kind: str, **fields: object) -> Metadata:
        """Write one event; the state after it, durable when this returns.  Blocking.

        Raises OSError: it did not happen, as far as anybody here will see.
        """
        return self.record_all(kind, [fields])

    def record_all(self, kind: str, several: Iterable[Mapping[str, object]]) -> Metadata:
        """As `record`, an event for each of several, with one sync.  Raises OSError: none of them
        happened, as far as anybody here will see."""
        events: list[Event] = []
        try:
            wait = self.save
            with self._order:
                events, payloads = self._next(kind, several)
                if self._log is not None:
                    wait = self._log.control(*payloads)
            wait()
            return self._happened(events)
        except Exception as exc:
            error = self._failed(events, exc, kind)
            if events:
                self.settle()
            raise error from error.__cause__

    def record_soon(self, done: Done, kind: str, **fields: object) -> None:
        """Have one event written; `done` hears of it.  For the loop."""
        events: list[Event] = []
        is_told = False

        def written(error: OSError | None) -> None:
            nonlocal is_told
            if is_told:  # a writer that crashes tells everybody, also whom it has told before
                return
            is_told = True
            try:
                if error is None:
                    self._happened(events)
                else:
                    error = self._failed(events, error, kind)
            except Exception as exc:
                error = self._failed(events, exc, kind)
            done(error)

        try:
            with self._order:
                events, payloads = self._next(kind, [fields])
                if self._log is not None:
                    self._log.control_soon(payloads[0], written)
                    return
            self.save()
        except Exception as exc:
            written(as_os_error(exc, f"the event {kind} was not written"))
        else:
            written(None)

    def _next(
        self, kind: str, several: Iterable[Mapping[str, object]]
    ) -> tuple[list[Event], list[bytes]]:
        """The events, and as they are written, if they are.  Raises OSError: one is too large to be
        read back."""
        with self._lock:
            events = [Event(seq, kind, fields) for seq, fields in enumerate(several, self._seq + 1)]
            payloads = [event.encode() for event in events]
            size, size_max = max(map(len, payloads), default=0), self.event_size_max
            if size > size_max and self._log is not None:
                # No number is used up: one that is missing in the log is taken for a loss.
                text = f"the event {kind} of {size} bytes is above {size_max}"
                raise OSError(errno.EMSGSIZE, text)
            self._pending.update({event.seq: event for event in events})
            self._seq += len(events)
        return events, payloads

    def _happened(self, events: Sequence[Event]) -> Metadata:
        with self._lock:
            for event in events:
                self._pending.pop(event.seq, None)
            if self._settled_state is None:
                self._settled_state = self.state
            is_next = events[0].seq > max(self._ahead, default=-1) if events else True
            self._ahead.update({event.seq: event for event in events})
            if is_next:
                state = apply_all(self.state, events)
            else:
                state = apply_all(self._settled_state, _in_order(self._ahead))
            self._move_settled()
            self._state = state  # last: an event that fails on its way is not in it
            return state

    def _move_settled(self) -> None:
        """Nothing comes in front of an event any more when no earlier one is on its way.  Where
        there is no memory for that, it is done with the next event."""
        with suppress(MemoryError):
            self._moved_settled()

    def _moved_settled(self) -> None:
        earliest = next(iter(self._pending), None)
        if earliest is None or earliest > max(self._ahead, default=-1):
            self._ahead, self._settled_state = {}, None
            return
        assert self._settled_state is not None, "kept with what is ahead"
        ready = [event for event in _in_order(self._ahead) if event.seq < earliest]
        self._settled_state = apply_all(self._settled_state, ready)
        for event in ready:
            del self._ahead[event.seq]

    def _failed(self, events: Sequence[Event], cause: Exception, kind: str) -> OSError:
        """These have not happened; what is told of it."""
        with self._lock:
            for event in events:  # first: it may be that there is no memory for the error
                self._pending.pop(event.seq, None)
                self._ahead.pop(event.seq, None)
            error = as_os_error(cause, f"the event {kind} has not happened")
            if events:
                self._doubts += 1
                self._why = str(error)
                self._move_settled()
        return error

    # Absorbing

    def save(self) -> None:
        """Replace the snapshot; durable when this returns.  Raises OSError."""
        try:
            self._save()
        except (OSError, MemoryError) as exc:
            error = as_os_error(exc, "no snapshot was written")
            self._not_saved = str(error)
            raise error from error.__cause__
        self._not_saved = ""

    def _save(self) -> None:
        with self._saving:
            with self._lock:
                state, doubts = self.state, self._doubts
                if self._settled_state is not None:
                    state = self._settled_state
                events = _in_order({**self._ahead, **self._pending})
                state = replace(apply_all(state, events), seq=self._seq)
            old, new = self._number, self._number + 1
            data = state.encode()
            # One whose name could not be synced stays: the next takes its place, or a start that
            # finds both gives it its name anew.
            make_dirs(self._storage, self._folder)  # where somebody has removed it
            replace_file(self._storage, self._path(new), data)
            self._number = new
            self._tell_witness()
            self._doubts_settled, self._saved_seq = doubts, state.seq
            self._saved_size = len(data)
            if old:
                # Not synced: were it to come back, it would lose against the higher number.
                with suppress(FileNotFoundError):
                    self._storage.unlink(self._path(old))

    def _tell_witness(self) -> None:
        """No older snapshot will do from now on.  Where that cannot be said, what was said before
        is true as well."""
        try:
            say_least(self._storage, self._witness, SNAPSHOT, self._number)
        except OSError as exc:
            log.warning("snapshot_without_witness", folder=self._folder, error=str(exc))

    def absorb(self) -> None:
        """Save, unless the newest snapshot says it all already.  Raises OSError."""
        if self._seq != self._saved_seq or not self.is_settled:
            self.save()

    def look(self) -> None:
        """Have the next `settle` or `absorb` save a snapshot, if somebody has removed the newest or
        cut it off: no start would do without it.  Blocking, but it waits for no other thread."""
        if not self._saving.acquire(blocking=False):
            return  # another takes its place
        try:
            path = self._path(self._number)
            is_gone = is_cut_off(self._storage, path, self._saved_size)
        finally:
            self._saving.release()
        if is_gone and self.is_settled:
            log.error("snapshot_removed", path=path)
            with self._lock:
                self._doubts += 1
                self._why = f"{path} was removed or cut off under the broker"

    def settle(self) -> bool:
        """Save a snapshot if an event is in doubt; whether none is any more."""
        if not self.is_settled:
            try:
                self.save()
            except OSError as exc:
                self._why = str(exc)
                if self._told.is_new(exc):  # it is tried once a second
                    log.warning("metadata_unsettled", folder=self._folder, error=str(exc))
        if self.is_settled and self._told.is_over():
            log.info("metadata_settled", folder=self._folder)
        return self.is_settled

    def _path(self, number: int) -> str:
        return f"{self._folder}/snapshot-{number}.msgpack"


def _in_order(events: Mapping[int, Event]) -> list[Event]:
    return [events[seq] for seq in sorted(events)]
