"""Backpressure on producers: how much may be appended before the disk has caught up.

    append of n bytes     unsynced += n       (only what the high watermark has not passed)
    watermark passes it   unsynced -= n
    unsynced > budget     connections that produce are not read; TCP then slows the client down
    unsynced > bound      batches are refused, with a code that clients retry and a throttle time

Waiting comes first: every client copes with a slow socket, in order and without retries.  But bytes
that were already received are still appended, and a thousand connections could bring a thousand
receives.  So past the bound (twice the budget and one MiB) the answer is NOT_ENOUGH_REPLICAS, "not
appended, try again", and `throttle_time_ms` says when.
"""

from typing import Final

import trio

RETRY_AFTER_MS: Final = 100
"""When a refused producer is to try again: a sync that is behind takes about so long."""
SLACK_BYTES: Final = 1 << 20


class Ingest:
    """Bytes appended but not yet durable, over all partitions."""

    __slots__ = ("_budget", "_room", "stalls", "unsynced_bytes")

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._room: trio.Event | None = None
        self.unsynced_bytes = 0
        self.stalls = 0  # how often a producer had to wait

    def reconfigure(self, budget: int) -> None:
        """Another budget from now on; who waits looks again."""
        self._budget = budget
        self._look_again()

    @property
    def full(self) -> bool:
        """Whether producers must wait."""
        return self.unsynced_bytes > self._budget

    @property
    def bound(self) -> int:
        """Bytes beyond which a batch is refused."""
        return 2 * self._budget + SLACK_BYTES

    @property
    def throttle_time_ms(self) -> int:
        """What a produce reply says about when to come again; 0: at any time."""
        return RETRY_AFTER_MS if self.unsynced_bytes > self.bound else 0

    def add(self, size: int) -> None:
        """`size` bytes were appended and wait for their sync."""
        self.unsynced_bytes += size

    def settle(self, size: int) -> None:
        """`size` bytes are durable, or have failed for good."""
        self.unsynced_bytes -= size
        assert self.unsynced_bytes >= 0, "more bytes settled than were appended"
        self._look_again()

    def _look_again(self) -> None:
        if self._room is not None and not self.full:
            self._room.set()
            self._room = None

    async def wait_room(self) -> None:
        """Wait until the disk has caught up."""
        self.stalls += 1
        while self.full:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()
