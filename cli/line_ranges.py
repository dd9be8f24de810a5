"""Which lines were not delivered, and why, in constant memory: runs, not single numbers.

    lines 17-42: topic flights, partition 0: not delivered within 120000 ms
    line 99: record of 2000000 bytes, limit 1048576

A run is consecutive lines with the same reason.  Beyond RUNS_MAX runs only the last is told with
its reason, which is why reading stopped; of those between only their number is kept, and where
they are.
"""

from collections.abc import Iterator

RUNS_MAX = 20


class LineRanges:
    """Line numbers in ascending order, each with a reason."""

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[tuple[int, int, str]] = []  # first, last, reason: the first ones, the last
        self._left_off = 0  # lines between the first ones and the last
        self._left_first = self._left_last = 0

    def add(self, first: int, count: int, reason: str) -> None:
        """Lines [first, first + count); numbers must not decrease."""
        self.count += count
        last = first + count - 1
        if self._runs:
            begin, end, known = self._runs[-1]
            if known == reason and first == end + 1:
                self._runs[-1] = (begin, last, reason)
                return
        if len(self._runs) > RUNS_MAX:
            begin, end, _ = self._runs.pop()
            self._left_first = self._left_first or begin
            self._left_last = end
            self._left_off += end - begin + 1
        self._runs.append((first, last, reason))

    def __iter__(self) -> Iterator[str]:
        """One sentence per run."""
        for place, (first, last, reason) in enumerate(self._runs):
            if place == RUNS_MAX and self._left_off:
                where = _lines(self._left_first, self._left_last)
                yield f"and {self._left_off:,} more in {where}"
            yield f"{_lines(first, last)}: {reason}"


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"
