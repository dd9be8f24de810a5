"""Bytes of records on their way to readers of share groups: at the limit a fetch brings nothing.

They have been acquired, so they cannot be read again for a reader that does not take them, as those
of other fetches can.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

REPLIES_BYTES_MAX: Final = 64 << 20
"""Of all of them, and half of it to one address."""


class ReplyBudget:
    """Bytes of records on their way to readers."""

    def __init__(self) -> None:
        self._all = 0
        self._by_host: Counter[str] = Counter()
        self._waiting: dict[object, Callable[[], None]] = {}

    def has_room(self, host: str) -> bool:
        """Whether another reply may be read for an address."""
        return self._all < REPLIES_BYTES_MAX and self._by_host[host] < REPLIES_BYTES_MAX // 2

    def add(self, host: str, size: int) -> None:
        self._all += size
        self._by_host[host] += size

    def left(self, host: str, size: int) -> None:
        """They are sent, or will not be."""
        self._all -= size
        self._by_host[host] -= size
        if not self._by_host[host]:
            del self._by_host[host]
        waiting, self._waiting = self._waiting, {}
        for look in waiting.values():
            look()

    def wait(self, who: object, look: Callable[[], None]) -> None:
        """Call `look`, once, when some have left: there may be room then."""
        self._waiting[who] = look

    def wait_no_longer(self, who: object) -> None:
        self._waiting.pop(who, None)
