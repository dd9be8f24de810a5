"""The disk as an open log has it: a sync of the log's directory that fails is told to the log.

    sync begins -> succeeds: who asked says which names it has made durable
                -> fails:    it is counted, the log is told, then who asked gets NamesNotSynced

After a failed sync of a directory the next one succeeds, and says nothing of the names that were
given, changed or taken before.  Whoever asked may do without what it wanted (the copy of a log
start, files that go, a mark); but the name of a segment in use may have been waiting for the same
sync.  So it is not who asks that has to think of it: everything that is done to an open log goes
through its `storage`, which is this.

One at a time: one that began beside another that fails would prove nothing either, and nobody could
tell.  Who has given a name, and waits for its turn, asks by `sync_names`: it is told as well where
one has failed since.  So is who puts a file in the place of another, by `replace_file`.

What is done to the directory before the log is open, or by a log that is opened anew, goes to the
disk beneath: an opening answers for its names itself.
"""

import errno
import threading
from collections.abc import Callable

from ..disk.forwarding import ForwardingStorage
from ..disk.storage import NO_DESCRIPTORS, Buffer, Storage, put_file


class NamesNotSynced(OSError):
    """The names in the directory of a log could not be synced, whoever gave them; another sync
    proves nothing of those that there were."""


class LogStorage(ForwardingStorage):
    """The disk of one open log."""

    __slots__ = ("_folder", "_on_failure", "_syncing", "failures")

    def __init__(
        self, beneath: Storage, folder: str, on_failure: Callable[[OSError], None]
    ) -> None:
        """on_failure: called with the error, under whatever lock the sync was asked for."""
        super().__init__(beneath)
        self._folder = folder
        self._on_failure = on_failure
        self._syncing = threading.Lock()
        self.failures = 0
        """How many syncs of the names have failed."""

    def fsync_dir(self, path: str) -> None:
        """Raises OSError; NamesNotSynced: of the log's own directory, and there was a descriptor
        to ask with."""
        if path != self._folder:
            super().fsync_dir(path)
            return
        with self._syncing:
            try:
                super().fsync_dir(path)
            except OSError as exc:
                if exc.errno in NO_DESCRIPTORS:
                    raise  # nothing was asked
                failure = NamesNotSynced(exc.errno, exc.strerror, path)
                self.failures += 1
                self._on_failure(failure)
                raise failure from exc

    def replace_file(self, path: str, content: Buffer) -> None:
        """As the one of storage.py, of a file of the log.

        Raises OSError: it may be there, and may not be after a crash; NamesNotSynced: it is there.
        """
        failures = self.failures
        put_file(self, path, content)
        self.sync_names(failures)

    def sync_names(self, failures: int) -> None:
        """Make the names durable that were given since there were so many `failures`.

        Raises OSError; NamesNotSynced also where one has failed since, whoever asked for it.
        """
        self.fsync_dir(self._folder)
        if self.failures != failures:
            text = "a sync of the names has failed in between"
            raise NamesNotSynced(errno.EIO, text, self._folder)
