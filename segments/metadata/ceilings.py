"""Offset ceilings: what is acknowledged before it is synced is never acknowledged again as another.

    log        ... 40 41 42 43 44 |
                                  ^ log_end_offset = 45
    ceiling                               ^ durable = 1,048,576: reserved in the metadata

Where an acknowledgement does not wait for a sync (every class but `fsync`), a power cut takes the
end of the log away and with it the knowledge of which offsets were given out.  So they are reserved
in blocks, durably, before any of a block is acknowledged; the high watermark never passes
`durable`.  After a loss the log goes on at the ceiling: what lies between was "at most" lost.

| when | the ceiling becomes | who waits |
|---|---|---|
| half of the block is used | end + BLOCK | nobody, unless the block runs out first |
| it could not be reserved, and the log is open again | the same | what was appended |
| end is synced and idle for IDLE_MS | end, SETTLED | the next append, for one event |
| clean close | end, SETTLED | the close |
| a sync failed, and acknowledged bytes are not there any more | as it is, IN_DOUBT | nobody |
| ... and the disk takes no mark of it (files/unsynced.py) | the same | nobody |
| half of the block is used, or was, before that is over | end + BLOCK, IN_DOUBT | as above |
| they are after all, when that is looked at again | as it is | nobody |

As it is: also what is on its way, which may count before this does.

A lowered ceiling counts from the moment it is handed to the log, a raised one from the moment it is
durable.  The lock orders raising and lowering as the log gets them; it is held over nothing, and
appends read `durable` and `renew_at` without it.  Who lowers holds the append lock of the partition
as well, so that no append is between its write and its look at `durable`.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from .metadata import IN_DOUBT, SETTLED, Ceiling

BLOCK: Final = 1 << 20
IDLE_MS: Final = 30_000

Done: TypeAlias = Callable[[OSError | None], None]
Reserve: TypeAlias = Callable[[Ceiling, Done], None]


class PartitionCeiling:
    """The ceiling of one open partition."""

    __slots__ = (
        "_asked",
        "_boot",
        "_is_asked",
        "_is_doubted",
        "_lock",
        "_reserve",
        "durable",
        "is_settled",
        "renew_at",
    )

    def __init__(self, known: Ceiling | None, boot: int, reserve: Reserve) -> None:
        """reserve: hands a ceiling to the metadata; its callback comes when it is durable."""
        self.durable = 0 if known is None else known.offset
        self.is_settled = known is None or known.boot == SETTLED
        self.renew_at = self.durable if self.is_settled else max(0, self.durable - BLOCK // 2)
        self._boot = boot
        self._reserve = reserve
        self._asked = self.durable
        """What the metadata was asked for last, or more: `durable`, or on its way."""
        self._is_asked = False
        self._is_doubted = known is not None and known.boot == IN_DOUBT
        self._lock = threading.RLock()  # the callback may come at once

    def renew(self, end_offset: int, done: Done) -> None:
        """Ask for the next block, unless that is done already; for the loop.

        `done` is called when it is durable and `durable` has moved, or when it could not be.
        """
        target = end_offset + BLOCK

        def reserved(error: OSError | None) -> None:
            with self._lock:
                self._is_asked = False
                if error is None:
                    self.is_settled = False
                    self.durable = max(self.durable, target)
                    self.renew_at = self.durable - BLOCK // 2
                else:
                    # Again when half of what is left is used, and so on; what is beyond it may be
                    # gone by then, with the next record in its place.
                    self.renew_at = min(self.durable, (end_offset + self.durable) // 2)
            done(error)

        with self._lock:
            if not self._is_asked:
                self._is_asked = True
                self._asked = max(self._asked, target)
                self._reserve_as_asked(reserved)

    def settle(self, end_offset: int) -> None:
        """Up to `end_offset`, the end of the log, all is synced: reserve no more than that."""
        with self._lock:
            if self._is_asked or (self.is_settled and self.durable == end_offset):
                return
            self.durable = self.renew_at = self._asked = end_offset
            self.is_settled = True
            self._reserve(Ceiling(end_offset, SETTLED), _whether_or_not)

    def doubt(self) -> None:
        """Something below it is gone, and the machine was up all the time: the next process finds
        the log as after a power cut.  Asked again and again where that cannot be written."""
        with self._lock:
            self._is_doubted = True
            self._reserve_as_asked(_whether_or_not)

    def trust(self) -> None:
        """All that was acknowledged is there, and in new files."""
        with self._lock:
            if self._is_doubted:
                self._is_doubted = False
                self._reserve_as_asked(_whether_or_not)

    def _reserve_as_asked(self, done: Done) -> None:
        """The caller holds the lock."""
        boot = IN_DOUBT if self._is_doubted else self._boot
        self._reserve(Ceiling(self._asked, boot), done)


def _whether_or_not(error: OSError | None) -> None:
    """That was written: acknowledgements keep to it, or nobody goes by it before the next start."""
