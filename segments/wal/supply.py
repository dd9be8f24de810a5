"""The next file of a shard, ready before it is needed.

    prepare_soon -> thread of the maker: a free file, or a new one -> ready -> next_file -> writer
                                         none free, at the bound   -> a checkpoint is asked for

The bound is `files_max` files.  At the bound, with none free, the writer waits for a checkpoint,
and so do the acknowledgements.  A waiting writer is woken by a file that is ready, by the reason
why none could be made, or by a checkpoint that freed nothing: there is no wait that nothing ends.

Without a thread (`threaded` False) nobody waits: whoever asks at the bound is refused.
"""

import errno
import threading
from collections.abc import Callable
from contextlib import suppress

import structlog

from ..background import Housekeeper, error_to_tell
from ..disk.storage import close_all
from ..told_once import ToldOnce
from .files import ShardFiles, WalFile

log = structlog.get_logger()


class WalFull(OSError):
    """There may be no further file.  As for want of space nothing was written, and that passes; but
    the volume may have room."""


class Supply:
    """Files for one writer.  `next_file` is for it alone, everything else for anybody."""

    def __init__(
        self,
        files: ShardFiles,
        *,
        files_max: int,
        threaded: bool,
        maker: Housekeeper,
        checkpoint_soon: Callable[[], None],
    ) -> None:
        """checkpoint_soon: have files freed."""
        self._files = files
        self._files_max = files_max
        self._threaded = threaded
        self._maker = maker
        self._checkpoint_soon = checkpoint_soon
        self._room = threading.Condition()
        # Under _room: what the maker has made, what it could not make, whether it is at work.
        self._ready: WalFile | None = None
        self._make_error: OSError | None = None
        self._cause: OSError | None = None
        """Why the last checkpoint freed nothing."""
        self.why_none: OSError | None = None
        """Why the last try to have a file ready failed; None: it did not.  Anybody may read it."""
        self._told = ToldOnce()
        self._making = False
        self._starves = False

    def prepare_soon(self) -> None:
        """Have the next file made, off this thread; the maker wakes who waits for it."""
        with self._room:
            if self._making or self._ready is not None:
                return
            self._making = True
        try:
            self._maker.submit(self._make)
        except BaseException:  # for want of memory: nobody makes it, and it is asked for again
            self._making = False
            raise

    def next_file(self) -> WalFile:
        """A file that is ready; waits for the maker, and at the bound for a checkpoint.

        Raises OSError.
        """
        with self._room:
            self._starves = True  # before anybody is asked, who could answer before we wait
            self._make_error = None  # of an earlier try, that nobody waited for
        self.prepare_soon()
        try:
            with self._room:
                while self._ready is None:
                    if self._make_error is not None:
                        error, self._make_error = self._make_error, None
                        self.why_none = error
                        raise error
                    if not self._threaded:
                        raise self._is_full()
                    self._room.wait()
                ready, self._ready = self._ready, None
        finally:
            self._starves = False
        with suppress(MemoryError):  # the next call asks again, and this file has nobody else
            self.prepare_soon()
        return ready

    @property
    def is_missed(self) -> bool:
        """Whether the file that is ready is away, which was not told yet.  Blocking."""
        ready = self._ready
        return ready is not None and ready.is_missed

    def give_up(self) -> WalFile | None:
        """The file that is ready, for somebody else to free; None: it was taken.  It is away."""
        with self._room:
            ready, self._ready = self._ready, None
        if ready is not None:
            ready.goes_away()
        return ready

    def nothing_to_free(self) -> None:
        """A checkpoint found no full file: if the writer waits for one, wake it by the maker.

        | writer | maker | checkpoint |
        |---|---|---|
        | rolls into the last file | is to make the next: none is free | begins |
        | rolls again: waits | | frees all full files; the maker is at work, so it is not asked |
        | waits | gives up, asks for a checkpoint | |
        | waits | | the next begins, no file is full: here |

        Nobody else would ask the maker again.  It has room now: of what counts against the bound
        only the active file is left.
        """
        if self._starves:
            self.prepare_soon()

    def nothing_freed(self, cause: OSError | None = None) -> None:
        """A checkpoint could not free the oldest file: who waits for room waits in vain."""
        with self._room:
            self._cause = cause
            if self._ready is None and not self._making:
                self._make_error = self._is_full()
                self._room.notify_all()

    def release(self) -> None:
        """Close the file that is ready."""
        with self._room:
            ready, self._ready = self._ready, None
        if ready is not None:
            close_all([ready.file])

    def _is_full(self) -> OSError:
        """Why there is no room: what a log or the snapshot of the metadata failed with, last."""
        why = "a log in its oldest file cannot be synced" if self._cause is None else self._cause
        return WalFull(
            errno.ENOSPC,
            f"the WAL is full, its oldest file is still needed: {why}",
            self._files.folder,
        )

    def _make(self) -> None:
        """On the maker's thread: make a file ready, if there may be another."""
        made: WalFile | None = None
        failure: Exception | None = None
        is_bound = False
        try:
            is_bound = self._files.free_count == 0 and self._files.count >= self._files_max
            if not is_bound:
                made = self._files.prepare()
        except Exception as exc:  # also a mistake of ours: nobody may wait for the file for ever
            failure = exc
        error = None
        if failure is not None:
            error = error_to_tell(failure, "the maker of the WAL crashed")
        with self._room:
            self._making = False
            if made is not None:
                self._ready = made
                self._make_error = self.why_none = None
            elif error is not None:
                self._make_error = self.why_none = error
            self._room.notify_all()
        if is_bound:
            try:
                self._checkpoint_soon()
            except Exception as exc:  # none comes: who waits for it waits in vain
                self.nothing_freed(error_to_tell(exc, "no checkpoint"))
        else:
            self._tell(failure)

    def _tell(self, failure: Exception | None) -> None:
        """When who waits has heard: there may be no memory for it."""
        if failure is None:
            if self._told.is_over():
                log.info("wal_file_made", folder=self._files.folder)
        elif not isinstance(failure, OSError):
            log.error("wal_maker_crashed", folder=self._files.folder, exc_info=failure)
        elif self._told.is_new(failure):  # every write that is refused has it tried again
            log.warning(
                "wal_file_not_made",
                folder=self._files.folder,
                bytes=self._files.file_bytes,
                error=str(failure),
            )
