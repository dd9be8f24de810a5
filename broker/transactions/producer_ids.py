"""Producer ids: each given once, whatever happens to the process.

    manager.allocate_producer_ids(n)   a durable block, in a lane
    take()                             the next of the block; one sync per BLOCK_SIZE producers

What is left of a block when the process ends is never given: ids are plentiful, reuse is not.
"""

from collections.abc import Iterator
from typing import Final

import trio

from segbroker.segments.directory.manager import DiskManager

from ..loop.lanes import Lanes

BLOCK_SIZE: Final = 1_000


class ProducerIds:
    """Gives producer ids out of durable blocks."""

    __slots__ = ("_block", "_lanes", "_lock", "_manager")

    def __init__(self, manager: DiskManager, lanes: Lanes) -> None:
        self._manager = manager
        self._lanes = lanes
        self._lock = trio.Lock()
        self._block: Iterator[int] = iter(())

    async def take(self) -> int:
        """An id that nobody else got or will get. Raises StorageError."""
        async with self._lock:
            if (producer_id := next(self._block, None)) is not None:
                return producer_id
            block = await self._lanes.run(self._manager.allocate_producer_ids, BLOCK_SIZE)
            self._block = iter(block)
            return next(self._block)
