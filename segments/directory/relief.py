"""Descriptors given back: what is done when the process has none left, or few.

    an opening fails (disk/relieving.py)    unused logs park, unread sealed files close: some
    as many logs are open as may be         unused logs park, before one more is opened
    there is none: all have bytes that      these are synced, by the house keeper, and each parks
    are not synced                          behind its sync; who asked is refused, and comes again

Only synced logs are parked: if a file is closed with unsynced bytes, it may never be known that
they did not reach the disk.

`relieve` and `park` may be called in any thread, under the locks of a log; they wait for no sync.
`make_room` is for lanes that hold no lock.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from ..background import AskedOnce, Housekeeper
from ..log.caches import FileCache, OpenLogs
from ..parallel import Each
from ..partition.handler import DiskHandler

SYNCED_AT_ONCE: Final = 256
"""Logs that are synced before anybody looks whether there is room."""
LOOKS_EVERY: Final = 64
"""While logs are synced to make room, and others were looked for in vain, one of so many refusals
looks again: a producer may ask for thousands of partitions at once, and what is synced parks
without it.  Fewer where some have: they left room for others, that nobody may use now."""


class Relief:
    """What the open logs of a data directory can do without."""

    def __init__(
        self,
        files: FileCache,
        open_logs: OpenLogs,
        each: Each,
        handlers: Callable[[], Sequence[DiskHandler]],
    ) -> None:
        """each: how several are synced.  handlers: the open partitions."""
        self._files = files
        self._open_logs = open_logs
        self._each = each
        self._handlers = handlers
        self._housekeeper: Housekeeper | None = None
        self._asked = AskedOnce()
        self.refused_count = 0
        """How often there was nothing to close."""
        self._skips = 0
        """Refusals until one looks again."""
        self._syncing = threading.Lock()

    def begin(self, housekeeper: Housekeeper) -> None:
        """From now on somebody can sync."""
        self._housekeeper = housekeeper if housekeeper.is_threaded else None
        self._asked.begun()

    def end(self) -> None:
        """From now on nobody syncs; before the house keeper ends.  Who asks it then does the work
        himself, and may hold the lock of a log that is to be synced."""
        self._housekeeper = None

    def relieve(self) -> bool:
        """Close some of what nobody uses now; whether there was any."""
        given = self._open_logs.park_some() + self._files.close_some()
        return given > 0 or self._refuse()

    def park(self) -> bool:
        """As `relieve`, where there are too many logs: the file of a sealed segment is none."""
        is_at_work = self._asked.is_asked or self._syncing.locked()
        if is_at_work and self._skips > 0:
            self._skips -= 1
            return self._refuse()
        parked = self._open_logs.park_some()
        self._skips = 0 if parked else LOOKS_EVERY - 1
        return parked > 0 or self._refuse()

    def _refuse(self) -> bool:
        """There was nothing: have what is not synced synced soon."""
        self.refused_count += 1
        housekeeper = self._housekeeper
        if housekeeper is not None:
            self._asked.ask(housekeeper, self._sync_soon)
        return False

    def make_room(self) -> None:
        """Before a log is opened: where as many are open as may be, some are synced and park.
        Blocking."""
        if self._open_logs.is_full and not self._open_logs.park_some():
            with self._syncing:
                if self._open_logs.is_full:  # who was before this one may have made enough
                    self._sync()

    def _sync_soon(self) -> None:
        self._asked.begun()
        if self._housekeeper is not None:
            with self._syncing:
                self._sync()

    def _sync(self) -> None:
        """Sync what is open, so that it can park.  What fails is that partition's state."""
        if self._open_logs.park_surplus():
            return
        was_full = self._open_logs.is_full
        unsynced = [one for one in self._handlers() if one.has_unsynced]
        for first in range(0, len(unsynced), SYNCED_AT_ONCE):
            places = range(first, min(first + SYNCED_AT_ONCE, len(unsynced)))
            self._each(lambda place: self._sync_and_park(unsynced[place]), places)
            if was_full and not self._open_logs.is_full:
                return  # somebody may wait for it

    def _sync_and_park(self, handler: DiskHandler) -> None:
        """At once: who waits for a descriptor need not look for it."""
        handler.flush()
        self._skips //= 2
        handler.park()
