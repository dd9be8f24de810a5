"""How many records `transform` takes into one transaction: fewer where its time was over.

    aborted, and open for longer than the broker lets it --half as many--> ... --one, twice: told
    the member has left: the caller was away for too long  (likewise)
    committed                                            --twice as many, up to the most

The same records come again by the next transaction.  If they took too long once they do so again:
that would go on for ever, and nobody would see more of it than the broker's log.  One record gets a
second try: it may have been the machine that stood still.
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
        self._was_alone = False

    def begins(self) -> None:
        self._began_ms = now_ms()

    def committed(self) -> None:
        self.records_count = min(self._records_max, self.records_count * 2)
        self._was_alone = False

    def is_too_slow(self, error: BaseException, records_count: int, *, has_left: bool) -> bool:
        """Whether one of so many records was void by its time, as was one before, and fewer are not
        to be had.

        has_left: the member has, as its caller was away for longer than max_poll_interval_ms.
        """
        is_late = now_ms() >= self._began_ms + self._timeout_ms
        if not has_left and not (is_late and isinstance(error, TransactionAborted)):
            return False
        self.records_count = max(1, records_count // 2)
        was_alone, self._was_alone = self._was_alone, records_count == 1
        return was_alone and self._was_alone
