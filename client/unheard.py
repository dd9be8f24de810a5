"""Records that were not delivered, and nobody has looked: a line in the log says so.

    a batch fails --LOOKED_AT_MS--> not all of its records' fate was asked for: told, with all that
                                    failed so before; then no more until another batch fails

The caller hears of them at the next flush and at the end, or when they fill half the buffer.  Who
sends for days, and never asks, would hear nothing; and nothing at all if its process is killed.

Limit: a line each LOOKED_AT_MS.  They go where those of brokers that are away go, see absence.
"""

import logging
from collections.abc import Callable

from .absence import Notice
from .batches import Batches
from .producer_batch import ProducerBatch

# Whoever waits for deliveries, one by one, has come to it by then.
LOOKED_AT_MS = 60_000


class Unheard:
    """See the module.  Times are those of the core."""

    def __init__(self, batches: Batches, say: Callable[[Notice], None]) -> None:
        self._batches = batches
        self._say = say
        # The last that had failed when it was looked at: behind it nothing has.
        self._last: ProducerBatch | None = None
        self.due_ms: int | None = None
        """When to look again; None: nothing has failed since."""

    def look(self, now_ms: int) -> None:
        """Say what there is to say."""
        failed = self._batches.failed
        last = failed[-1] if failed else None
        if last is None or last is self._last:
            self._last, self.due_ms = last, None
        elif self.due_ms is None:
            self.due_ms = now_ms + LOOKED_AT_MS
        elif now_ms >= self.due_ms:
            self._last, self.due_ms = last, None
            if why := self._batches.why_undelivered:
                self._say(Notice(logging.WARNING, f"nobody has asked: {why}"))
