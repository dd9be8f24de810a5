"""Which lines were not delivered, and why, in constant memory: runs, not single numbers.

    lines 17-42: topic flights, partition 0: not delivered within 120000 ms
    line 99: record of 2000000 bytes, limit 1048576

A run is consecutive lines with the same reason.  Beyond RUNS_MAX runs only their number is kept,
and the first and the last of them.
"""

from collections.abc import Iterator

RUNS_MAX = 20


class LineRanges:
    """Line numbers in ascending order, each with a reason."""

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[tuple[int, int, str]] = []  # first, last, reason
        self._left_off = 0
        self._left_first = self._left_last = 0

    def add(self, first: int, count: int, reason: str) -> None:
        """Lines [first, first + count); numbers must not decrease."""
        self.count += count
        last = first + count - 1
        if self._runs and not self._left_off:
            begin, end, known = self._runs[-1]
            if known == reason and first == end + 1:
                self._runs[-1] = (begin, last, reason)
                return
        if len(self._runs) == RUNS_MAX:
            self._left_first = self._left_first or first
            self._left_last = last
            self._left_off += count
        else:
            self._runs.append((first, last, reason))

    def __iter__(self) -> Iterator[str]:
        """One sentence per run."""
        for first, last, reason in self._runs:
            yield f"line {first}: {reason}" if first == last else f"lines {first}-{last}: {reason}"
        if self._left_off:
            where = f"lines {self._left_first}-{self._left_last}"
            yield f"and {self._left_off:,} more of {where}"
