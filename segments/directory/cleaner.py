"""The cleaner: which compacted partition is cleaned next, and how fast; in the background.

    look      every `backoff_ms`: the open partitions of compacted topics -> those that want to be
              cleaned; then each of them once, the dirtiest first; at once again if one was
    step      what the rate allows since the last step, then it rests in the middle of a segment

`step` is called in a lane, several times a second; one partition at a time.  Reading costs the disk
and decoding the interpreter, so the rate (bytes read per second) bounds both.  A step makes
READS_MAX reads at most.

| setting | bounds |
|---|---|
| log.cleaner.io.max.bytes.per.second | bytes read per second |
| log.cleaner.dedupe.buffer.size | memory for keys: offset_map.py, 24 bytes a slot |
| log.cleaner.backoff.ms | the pause when nothing is dirty enough |
| log.cleaner.enable | false: nothing is cleaned, what is under way is ended |

At the limit of the buffer a partition is cleaned as far as its keys fit, and again behind the
others that were dirty with it: it still is.

Everyone comes to their turn: a partition that is dirty again, or whose cleaning failed, is behind
those that have waited.  A look costs a few microseconds for each partition, so there is one for all
that it finds, not one for each.
"""

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..compaction.compacting import Compacting
from ..compaction.dirtiness import Dirt
from ..partition.handler import DiskHandler
from .manager import DiskManager

READS_MAX: Final = 32
"""Of a step, whatever they bring: of tiny segments the rate bounds nothing, and each takes files to
be opened and swapped in, some ms."""
ELAPSED_MAX_MS: Final = 1_000
"""Time that a step makes up for: after a pause there is no burst."""


@dataclass(slots=True)
class CleanerStatistics:
    """What the cleaner has done since the start.  Times are ms since 1970, -1 for never."""

    cleanings: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_freed: int = 0
    records_removed: int = 0
    last_ended_ms: int = -1


class _Running(NamedTuple):
    """A cleaning under way."""

    compacting: Compacting
    steps: Generator[int, None, None]
    cleanings_before: int
    failures_before: int


class Cleaner:
    """The cleaner of one data directory.  One thread at a time calls `step`."""

    def __init__(
        self,
        manager: DiskManager,
        bytes_per_second: int,
        buffer_bytes: int,
        backoff_ms: int,
    ) -> None:
        self.statistics = CleanerStatistics()
        self._manager = manager
        self._rate = bytes_per_second
        self._buffer_bytes = buffer_bytes
        self._backoff_ms = backoff_ms
        self._running: _Running | None = None
        self._waiting: deque[DiskHandler] = deque()
        self._got_on = False
        self._now_ms = -1
        self._looked_ms: int | None = None
        self._allowance = 0
        self._stopped = False

    def reconfigure(self, bytes_per_second: int, buffer_bytes: int, backoff_ms: int) -> None:
        """Other limits, from the next step and the next cleaning on.  From any thread."""
        self._rate, self._buffer_bytes = bytes_per_second, buffer_bytes
        self._backoff_ms = backoff_ms

    @property
    def is_running(self) -> bool:
        """Whether a cleaning is under way."""
        return self._running is not None

    def stop(self) -> None:
        """Let the step under way end soon, and do nothing in later ones.  From any thread."""
        self._stopped = True

    def abandon(self) -> None:
        """End the cleaning under way where it is: no file of it stays open.  Not beside `step`."""
        if self._running is not None:
            steps = self._running.steps
            self._running = None
            steps.close()

    def step(self, now_ms: int, monotonic_ms: int | None = None) -> int:
        """Clean what the rate allows; the bytes read.  Blocking; for lanes.

        monotonic_ms: a clock that nobody sets, by which a jump of `now_ms` is noticed before
        housekeeping has looked at it; None: `now_ms` is believed.
        """
        age_ms = self._age_ms(now_ms, monotonic_ms)
        elapsed = min(max(now_ms - self._now_ms, 0), ELAPSED_MAX_MS) if self._now_ms >= 0 else 0
        self._now_ms = now_ms
        if self._running is None and not self._begin(now_ms, age_ms):
            self._allowance = 0
            return 0
        self._allowance += self._rate * elapsed // 1_000
        done = 0
        for _ in range(READS_MAX):
            if self._allowance <= 0 or self._stopped:
                break
            if self._running is None and not self._begin(now_ms, age_ms):
                break
            count = self._next(now_ms)
            self._allowance -= count
            done += count
        else:
            self._allowance = min(self._allowance, 0)  # nor is there a burst behind them
        self.statistics.bytes_read += done
        return done

    def clean_now(self, handler: DiskHandler, now_ms: int) -> None:
        """Clean all of a partition that can be, whatever its dirt: for tools and tests."""
        age_ms = self._age_ms(now_ms, None)
        compacting, is_done = handler.compacting, False
        while not is_done:
            before = compacting.cleanings_count
            self._begin_one(handler, now_ms, age_ms)
            while self._running is not None:
                self._next(now_ms)
            has_failed = compacting.cleanings_count == before
            is_done = has_failed or compacting.last is None or compacting.last.is_whole

    def _age_ms(self, now_ms: int, monotonic_ms: int | None) -> int | None:
        return now_ms if self._manager.believes(now_ms, monotonic_ms) else None

    def _next(self, now_ms: int) -> int:
        assert self._running is not None, "begun by the caller"
        running = self._running
        count = next(running.steps, None)
        if count is not None:
            return count
        self._running = None
        self._account(running, now_ms)
        return 0

    def _begin(self, now_ms: int, age_ms: int | None) -> bool:
        """Choose the next partition; whether there is one."""
        if not self._waiting:
            self._look(now_ms, age_ms)
        while self._waiting:
            handler = self._waiting.popleft()
            if self._wants(handler, now_ms, age_ms) is not None:
                self._begin_one(handler, now_ms, age_ms)
                return True
        return False

    def _look(self, now_ms: int, age_ms: int | None) -> None:
        """Find those that want to be cleaned."""
        looked, got_on = self._looked_ms, self._got_on
        if not got_on and looked is not None and 0 <= now_ms - looked < self._backoff_ms:
            return
        self._looked_ms, self._got_on = now_ms, False
        found = [
            (dirt.ratio, handler)
            for handler in list(self._manager.handlers.values())
            if (dirt := self._wants(handler, now_ms, age_ms)) is not None
        ]
        found.sort(key=lambda one: -one[0])
        self._waiting.extend(handler for _, handler in found)

    def _wants(self, handler: DiskHandler, now_ms: int, age_ms: int | None) -> Dirt | None:
        """What could be cleaned of a partition, if it should be."""
        is_open = self._manager.handlers.get((handler.topic, handler.partition)) is handler
        if not is_open or not handler.config.compacts:
            return None
        return handler.compacting.wants(now_ms, age_ms)

    def _begin_one(self, handler: DiskHandler, now_ms: int, age_ms: int | None) -> None:
        compacting = handler.compacting
        steps = compacting.clean(now_ms, age_ms, self._buffer_bytes)
        self._running = _Running(
            compacting, steps, compacting.cleanings_count, compacting.failures_count
        )

    def _account(self, ended: _Running, now_ms: int) -> None:
        """Count what came of a cleaning."""
        numbers, done = self.statistics, ended.compacting.last
        numbers.failures += ended.compacting.failures_count - ended.failures_before
        if ended.compacting.cleanings_count == ended.cleanings_before or done is None:
            return
        self._got_on = True
        numbers.cleanings += 1
        numbers.bytes_freed += done.counts.bytes_before - done.counts.bytes_after
        numbers.records_removed += done.counts.records_before - done.counts.records_after
        numbers.last_ended_ms = now_ms
