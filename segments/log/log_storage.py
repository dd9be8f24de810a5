"""The disk as an open log has it: a sync of the log's directory that fails is told to the log.

    sync begins -> succeeds: it is counted, then who asked says which names it has made durable
                -> fails:    the log is told, then who asked gets NamesNotSynced

After a failed sync of a directory the next one succeeds, and says nothing of the names that were
given, changed or taken before.  Whoever asked may do without what it wanted (the copy of a log
start, files that go, a mark); but the name of a segment in use may have been waiting for the same
sync.  So it is not who asks that has to think of it: everything that is done to an open log goes
through its `storage`, which is this.

A sync that ended behind the begin of one that failed proves nothing either: it may have come
between the failure and its news.  Therefore the log compares `synced`.

What is done to the directory before the log is open, or by a log that is opened anew, goes to the
disk beneath: an opening answers for its names itself.
"""

from collections.abc import Callable
from itertools import count
from typing import Final

from ..disk.forwarding import ForwardingStorage
from ..disk.storage import NO_DESCRIPTORS, Storage

_turns: Final = count(1)
"""Greater with each, in all threads: what of two ended behind the begin of the other."""


class NamesNotSynced(OSError):
    """The names in the directory of a log could not be synced, whoever gave them; another sync
    proves nothing of those that there were."""


class LogStorage(ForwardingStorage):
    """The disk of one open log."""

    __slots__ = ("_folder", "_on_failure", "synced")

    def __init__(
        self, beneath: Storage, folder: str, on_failure: Callable[[int, OSError], None]
    ) -> None:
        """on_failure: called with the turn in which the sync that failed was asked for, and the
        error, under whatever lock it was asked for."""
        super().__init__(beneath)
        self._folder = folder
        self._on_failure = on_failure
        self.synced = 0
        """The turn in which the names were last synced; 0: not since the log was opened."""

    def fsync_dir(self, path: str) -> None:
        """Raises OSError; NamesNotSynced: of the log's own directory, and there was a descriptor
        to ask with."""
        if path != self._folder:
            super().fsync_dir(path)
            return
        began = next(_turns)
        try:
            super().fsync_dir(path)
        except OSError as exc:
            if exc.errno in NO_DESCRIPTORS:
                raise  # nothing was asked
            failure = NamesNotSynced(exc.errno, exc.strerror, path)
            self._on_failure(began, failure)
            raise failure from exc
        self.synced = next(_turns)
