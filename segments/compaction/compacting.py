"""The cleanings of one open partition: when one is due, what came of the last, what failed.

    wants -> clean: a generator of steps -> log_cleaned, or why not

| a cleaning ends by | then |
|---|---|
| the end | the clean point moves, what was replaced is unlinked, one event says what went |
| Interrupted: closed, deleted from, repaired meanwhile | tried again when it is due |
| damage | the segment is repaired as a read would have it; tried again after RETRY_MS |
| a full disk, or another error before a decision | nothing was changed; the same |
| an error behind one | the partition is read-only until recovery has opened it again |
| an exception that nobody thought of | told with its traceback; before or behind one: as an error |
| keys that do not fit the buffer, not even those of one batch | told; the same |

One thread at a time.  What is shown (`last`, `cleaned_ms`, ...) is replaced as a whole.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol

import structlog

from ..errors import CorruptSegment, PartitionReadOnly, StorageError
from ..log.first_stamps import FirstStamps
from ..log.partition_log import PartitionLog
from .cleaning import Cleaned, Interrupted, Limits, clean, dirt
from .dirtiness import Dirt, wants_cleaning
from .swapping import remove_strays

log = structlog.get_logger()

RETRY_MS: Final = 60_000
"""After a cleaning that failed."""


class Cleanable(Protocol):
    """The partition, as its cleanings see it."""

    topic: str
    partition: int
    read_only: PartitionReadOnly | None

    @property
    def last_stable_offset(self) -> int: ...

    def mend(self, error: CorruptSegment) -> bool: ...

    def fail(self, cause: OSError) -> None: ...

    def unlink_soon(self) -> None: ...


class Compacting:
    """The cleanings of one partition.  `log` gives the log that is open now."""

    __slots__ = (
        "_first_stamps",
        "_log",
        "_owner",
        "_retry_ms",
        "_swept",
        "cleanings_count",
        "failures_count",
        "last",
    )

    def __init__(self, owner: Cleanable, log: Callable[[], PartitionLog]) -> None:
        self._owner = owner
        self._log = log
        self._first_stamps = FirstStamps()
        self._retry_ms = 0
        self._swept: PartitionLog | None = None
        self.cleanings_count = 0
        self.failures_count = 0
        self.last: Cleaned | None = None
        """What came of the last cleaning since the start; None before the first."""

    @property
    def clean_offset(self) -> int:
        """Below it the log has been cleaned."""
        return self._log().cleaned.end_offset

    @property
    def cleaned_ms(self) -> int:
        """When a cleaning got further, the last time, also before this start; -1: never."""
        return self._log().cleaned.cleaned_ms

    def dirt(self, now_ms: int, age_ms: int | None) -> Dirt:
        """What could be cleaned now."""
        return dirt(self._log(), self._limits(now_ms, age_ms, 0))

    def wants(self, now_ms: int, age_ms: int | None) -> Dirt | None:
        """What could be cleaned, if it is so much that it should be; None otherwise.  Blocking."""
        opened = self._log()
        if not opened.config.compacts or self._owner.read_only is not None:
            return None
        if now_ms < self._retry_ms <= now_ms + RETRY_MS:
            return None
        found = self.dirt(now_ms, age_ms)

        def first_stamps(numbers: Sequence[int]) -> list[int]:
            return self._first_stamps.of(opened.storage, opened.paths, numbers)

        return found if wants_cleaning(found, opened.config, age_ms, first_stamps) else None

    def _limits(self, now_ms: int, age_ms: int | None, buffer_bytes: int) -> Limits:
        return Limits(self._owner.last_stable_offset, buffer_bytes, now_ms, age_ms)

    def clean(
        self, now_ms: int, age_ms: int | None, buffer_bytes: int
    ) -> Generator[int, None, None]:
        """One cleaning; yields the bytes of each read.  Raises nothing that is to be expected."""
        opened = self._log()
        where = {"topic": self._owner.topic, "partition": self._owner.partition}
        limits = self._limits(now_ms, age_ms, buffer_bytes)
        before = opened.cleaned.end_offset
        try:
            if self._swept is not opened and not opened.manifest.is_doubtful:
                remove_strays(opened)
                self._swept = opened
            done = yield from self._steps(opened, limits)
        except Interrupted:
            log.info("cleaning_interrupted", **where)
            return
        except CorruptSegment as exc:
            self._failed(now_ms)
            log.error("cleaning_met_damage", **where, error=str(exc))
            self._owner.mend(exc)
            return
        except (OSError, StorageError) as exc:
            if opened.is_closed:  # its topic was deleted, and the directory with it
                log.info("cleaning_interrupted", **where)
                return
            self._failed(now_ms)
            log.warning("cleaning_failed", **where, error=str(exc))
            self._pass_on(opened)
            return
        except Exception:  # whatever a batch holds: it ends this cleaning, not the broker
            self._failed(now_ms)
            log.exception("cleaning_ended_by_exception", **where)
            self._pass_on(opened)
            return
        finally:
            if opened.doomed:
                self._owner.unlink_soon()
        if not done.is_whole and done.end_offset <= before:
            self._failed(now_ms)
            log.error(
                "cleaning_without_room",
                **where,
                buffer_bytes=buffer_bytes,
                advice="raise log.cleaner.dedupe.buffer.size: the keys of one batch do not fit",
            )
            return
        self.cleanings_count += 1
        self.last = done
        self._tell(done, where)

    def _steps(self, opened: PartitionLog, limits: Limits) -> Generator[int, None, Cleaned]:
        steps = clean(opened, limits)
        while True:
            try:
                count = next(steps)
            except StopIteration as end:
                done: Cleaned = end.value
                return done
            if opened.doomed:
                self._owner.unlink_soon()
            yield count

    def _pass_on(self, opened: PartitionLog) -> None:
        if opened.failed is not None and opened is self._log():  # else it was recovered meanwhile
            self._owner.fail(opened.failed)

    def _failed(self, now_ms: int) -> None:
        self.failures_count += 1
        self._swept = None  # .cleaned may be left, of a decision that is taken back
        self._retry_ms = now_ms + RETRY_MS

    def _tell(self, done: Cleaned, where: dict[str, object]) -> None:
        counts = done.counts
        log.info(
            "log_cleaned",
            **where,
            end_offset=done.end_offset,
            records_before=counts.records_before,
            records_after=counts.records_after,
            bytes_before=counts.bytes_before,
            bytes_after=counts.bytes_after,
            segments_before=done.segments_before,
            segments_after=done.segments_after,
            segments_written=done.segments_written,
            keys=done.keys,
            tombstones=counts.tombstones,
            keyless=counts.keyless,
            aborted=counts.aborted,
            unopened_batches=counts.unopened,
            is_whole=done.is_whole,
        )
