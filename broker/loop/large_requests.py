"""Large requests in work: how much memory their decoded forms may take.

    whole frame -> line, in which addresses take turns -> decoded, handled, its answer encoded

An item of two bytes becomes an object of hundreds of bytes, and a row of the answer likewise.  So a
request is reckoned at the most that its bytes can become, and the sum of those in work is limited.
Other requests wait as frames, whose bytes are limited elsewhere (half_requests.py).

Work may take minutes, where a request names very many partitions that have to be opened.  So one
address has two thirds of the room: who is slow, or sends what takes long, keeps its own address
waiting.

At the limit a request waits for its turn, however long that takes; when it is alone it is handled,
whatever its size, and so is the only one of its address, if there is room.  Its connection is not
read meanwhile, so the line is no longer than the number of connections.
"""

from contextlib import AbstractAsyncContextManager
from typing import Final

from segbroker.protocol.limits import REQUEST_ITEMS_COUNT_MAX

from .address_turns import AddressTurns

BYTES_MAX: Final = 256 << 20
"""Bytes that all requests in work may be reckoned at; one address has two thirds of
them: two of the largest requests, and others have room for a third."""
_ITEM_SIZE_LEAST: Final = 2
_ITEM_BYTES: Final = 300
"""What an item costs, and what is made of it on the way to its answer."""


class LargeRequests:
    """What is in work, and who waits."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns = AddressTurns(BYTES_MAX, BYTES_MAX * 2 // 3)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._turns)

    @property
    def held_bytes(self) -> int:
        """What those in work are reckoned at."""
        return self._turns.in_work

    @property
    def bytes_max(self) -> int:
        """Most of it, but for one that is alone."""
        return self._turns.most

    def room(self, host: str, frame_size: int) -> AbstractAsyncContextManager[None]:
        """Work on a frame of so many bytes from an address, when it is its turn."""
        items = min(frame_size // _ITEM_SIZE_LEAST, REQUEST_ITEMS_COUNT_MAX)
        return self._turns.turn(host, frame_size + items * _ITEM_BYTES)
