"""Backpressure on producers: how much may be appended before the disk has caught up.

    append of n bytes     unsynced += n       (only what the high watermark has not passed)
    watermark passes it   unsynced -= n
    unsynced > budget     connections that produce are not read; TCP then slows the client down

Waiting is chosen over refusing with a throttle time: every client copes with a slow socket, in
order and without retries, and the bound holds for a client that ignores throttle times too.  What
one receive has already brought is still appended, so the bound is budget + connections x receive.
"""

import trio


class Ingest:
    """Bytes appended but not yet durable, over all partitions."""

    __slots__ = ("_budget", "_room", "stalls", "unsynced_bytes")

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._room: trio.Event | None = None
        self.unsynced_bytes = 0
        self.stalls = 0  # how often a producer had to wait

    @property
    def full(self) -> bool:
        """Whether producers must wait."""
        return self.unsynced_bytes > self._budget

    def add(self, size: int) -> None:
        """`size` bytes were appended and wait for their sync."""
        self.unsynced_bytes += size

    def settle(self, size: int) -> None:
        """`size` bytes are durable, or have failed for good."""
        self.unsynced_bytes -= size
        assert self.unsynced_bytes >= 0, "more bytes settled than were appended"
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
