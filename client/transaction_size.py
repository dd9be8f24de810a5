"""How many records `transform` takes into one transaction: fewer where its time was over.

    aborted, and open for longer than the broker lets it --half as many--> ... --one: that is told
    committed                                            --twice as many, up to the most

The same records come again by the next transaction.  If they took too long once they do so again:
that would go on for ever, and nobody would see more of it than the broker's log.
"""

from .clock import now_ms
from .errors import TransactionAborted


class TransactionSize:
    """See the module."""

    def __init__(self, records_max: int, timeout_ms: int) -> None:
        """timeout_ms: how long the broker lets a transaction be open."""
        self.records_count = records_max
        self._records_max = records_max
        self._timeout_ms = timeout_ms
        self._began_ms = 0

    def begins(self) -> None:
        self._began_ms = now_ms()

    def committed(self) -> None:
        self.records_count = min(self._records_max, self.records_count * 2)

    def is_too_slow(self, error: BaseException, records_count: int) -> bool:
        """Whether one of so many records was void by its time, and fewer are not to be had."""
        is_late = now_ms() >= self._began_ms + self._timeout_ms
        if not is_late or not isinstance(error, TransactionAborted):
            return False
        self.records_count = max(1, records_count // 2)
        return records_count == 1
