"""The clock that ages are measured by: the wall clock, as long as it can be believed.

    expected = the wall clock when it was last believed + the time that has passed since

| the wall clock is | then |
|---|---|
| not more than JUMP_MS ahead of what is expected | believed |
| further ahead | nothing is deleted by age for HOLD_MS; then it is believed |
| behind | believed: what is kept too long can still be deleted |

A clock that was set ahead, by a mistake, a dead battery or a virtual machine that was restored,
would make every record look old at once.  It is noticed against a clock that nobody sets (the
monotonic one), and after a restart against `saved_ms`, which is written down while the broker runs.
A broker that was off for longer than JUMP_MS waits as well: the two cases look alike, and waiting
an hour longer costs disk space, not records.

The beginning and the end of a hold are each logged once.  All times are parameters.
"""

import struct
from contextlib import closing
from typing import Final, NamedTuple

import structlog

from segbroker.protocol.checksums import xxh3_64

from ..disk.storage import Storage, read_file, write_all

log = structlog.get_logger()

CLOCK: Final = struct.Struct(">qQ")
JUMP_MS: Final = 600_000
HOLD_MS: Final = 3_600_000
SAVE_MS: Final = 60_000


class Hold(NamedTuple):
    """The clock is not believed."""

    ahead_ms: int
    """How far it is ahead of what is expected."""
    left_ms: int
    """How long until it is believed all the same."""


class AgeClock:
    """The time to measure ages by."""

    __slots__ = ("_believed_at", "_believed_ms", "_held_since", "hold")

    def __init__(self, saved_ms: int | None = None) -> None:
        """saved_ms: what was believed last, before a restart; None: nothing is known."""
        self._believed_ms = saved_ms
        self._believed_at: int | None = None
        self._held_since: int | None = None
        self.hold: Hold | None = None
        """As of the last look; None: it is believed."""

    @property
    def is_held(self) -> bool:
        """Whether nothing is to be deleted by age for now."""
        return self.hold is not None

    def now(self, wall_ms: int, monotonic_ms: int | None = None) -> int | None:
        """The time; None: delete nothing by age.

        monotonic_ms: a clock that nobody sets.  None: there is none, `wall_ms` is believed; for
        clocks of tests and for whoever chooses the time on purpose.
        """
        if monotonic_ms is None:
            return wall_ms
        if self._believed_ms is None:
            self._believed_ms = wall_ms
        if self._believed_at is None:
            self._believed_at = monotonic_ms
        ahead = self._ahead(wall_ms, monotonic_ms)
        if ahead > JUMP_MS and (left_ms := self._left_ms(monotonic_ms, ahead)) > 0:
            self.hold = Hold(ahead, left_ms)
            return None
        if self._held_since is not None:
            log.warning("retention_by_age_resumed", ahead_ms=ahead)
            self._held_since = self.hold = None
        self._believed_ms, self._believed_at = wall_ms, monotonic_ms
        return wall_ms

    def believes(self, wall_ms: int, monotonic_ms: int | None = None) -> bool:
        """Whether `now` would give these as the time; nothing is noted.  From any thread.

        For who looks at the clock between two calls of `now`, or before the first: it may have
        jumped since.
        """
        if self.is_held:
            return False
        return monotonic_ms is None or self._ahead(wall_ms, monotonic_ms) <= JUMP_MS

    def _ahead(self, wall_ms: int, monotonic_ms: int) -> int:
        """How far the wall clock is ahead of what is expected (ms)."""
        believed_ms = wall_ms if self._believed_ms is None else self._believed_ms
        believed_at = monotonic_ms if self._believed_at is None else self._believed_at
        return wall_ms - (believed_ms + monotonic_ms - believed_at)

    def _left_ms(self, monotonic_ms: int, ahead: int) -> int:
        if self._held_since is None:
            self._held_since = monotonic_ms
            log.warning(
                "retention_by_age_held",
                clock_ahead_ms=ahead,
                held_for_ms=HOLD_MS,
                advice="was the clock set ahead? set it right now and nothing is deleted; if it "
                "is right, or the broker was off for so long, nothing has to be done",
            )
        return self._held_since + HOLD_MS - monotonic_ms


class ClockFile:
    """<root>/clock: what was believed last, about once a minute.

        byte 0          8               16
             +----------+---------------+
             | time ms  | xxh3-64 of    |
             | i64      | the 8, u64    |
             +----------+---------------+

    A hint, written in place and not synced: without it the first clock that is seen is believed.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._saved_ms = -SAVE_MS

    def load(self) -> int | None:
        """The time that was saved last; None when there is none that is whole.  Raises OSError."""
        try:
            content = bytes(read_file(self._storage, self._path))
        except FileNotFoundError:
            return None
        if len(content) != CLOCK.size:
            return None
        saved_ms, checksum = CLOCK.unpack(content)
        return int(saved_ms) if checksum == xxh3_64(content[:8]) else None

    def save(self, now_ms: int) -> None:
        """Write the time down if SAVE_MS have passed.  Raises nothing: it is a hint."""
        if abs(now_ms - self._saved_ms) < SAVE_MS:
            return
        self._saved_ms = now_ms
        stamp = now_ms.to_bytes(8, "big", signed=True)
        try:
            with closing(self._storage.open(self._path, create=True)) as file:
                write_all(file, stamp + xxh3_64(stamp).to_bytes(8, "big"), 0)
        except OSError as exc:
            log.debug("clock_not_saved", error=str(exc))
