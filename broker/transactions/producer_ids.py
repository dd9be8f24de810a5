"""Producer ids: each given once, whatever happens to the process.

    manager.allocate_producer_ids(n)   a durable block, in a lane; the first one of a process
                                       begins at random behind all that is known to be given
    take()                             the next of the block; one sync per BLOCK_SIZE producers

What is left of a block when the process ends is never given: ids are plentiful, reuse is not.

The data may be an older copy that was put back: then ids are in use that it knows nothing of, and
whoever got one of these again would have its records taken for repetitions of another's (decision
0448).
"""

from collections.abc import Iterator
from typing import Final

import trio

from segbroker.segments.directory.manager import DiskManager

from ..loop.lanes import Lanes

BLOCK_SIZE: Final = 1_000
# 4 * 10**9: a start that gave ids which these data know nothing of is met once in a million.
APART_BYTES: Final = 4


class ProducerIds:
    """Gives producer ids out of durable blocks."""

    __slots__ = ("_apart_bytes", "_block", "_lanes", "_lock", "_manager")

    def __init__(self, manager: DiskManager, lanes: Lanes) -> None:
        self._manager = manager
        self._lanes = lanes
        self._lock = trio.Lock()
        self._block: Iterator[int] = iter(())
        self._apart_bytes = APART_BYTES

    async def take(self) -> int:
        """An id that nobody else got or will get. Raises StorageError."""
        async with self._lock:
            if (producer_id := next(self._block, None)) is not None:
                return producer_id
            block = await self._lanes.run(
                self._manager.allocate_producer_ids, BLOCK_SIZE, self._apart_bytes
            )
            self._block, self._apart_bytes = iter(block), 0
            return next(self._block)
