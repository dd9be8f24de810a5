"""The world of one seed: chance, time, and the trace of what happened."""

import hashlib
import math
from random import Random
from typing import Final

import trio
import trio.testing
from trio._core._run import GLOBAL_RUN_CONTEXT

# What the wall clock says when a world begins.
EPOCH_MS: Final = 1_700_000_000_000


class Stuck(BaseException):
    """Everybody waits, and for no time."""


def make_clock() -> trio.testing.MockClock:
    """A clock that jumps to the next deadline when nobody can run; Stuck where there is none."""
    clock = trio.testing.MockClock(autojump_threshold=0)

    def autojump() -> None:
        # trio's own asks for the statistics of everything, a tenth of a run's time.
        deadline = GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if deadline == math.inf:
            raise Stuck
        clock.jump(max(0.0, deadline - clock.current_time()))

    clock._autojump = autojump  # type: ignore[method-assign]
    return clock


class World:
    """Chance, time and trace; everything else is built on these."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.clock = make_clock()
        self.random = self.stream("world")
        self.wall_offset_ms = 0
        self.violations: list[str] = []
        self.is_excused = False
        """Whether a loss was told after which nothing that was acknowledged need be there."""
        self.lines: list[str] | None = [] if keep_trace else None
        self.events = 0
        self.counts: dict[str, int] = {}
        self._digest = hashlib.blake2b(digest_size=16)
        self._cpu_s = 0.0
        self._cpu_random = self.stream("cpu")

    def stream(self, name: str) -> Random:
        """A stream of chance of its own, so that one part's draws do not shift another's."""
        return Random(f"{self.seed}/{name}")

    # Time

    def now(self) -> float:
        """Seconds of virtual time since the world began."""
        return self.clock.current_time()

    def monotonic_ns(self) -> int:
        return int(self.clock.current_time() * 1e9)

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes; it may jump."""
        return EPOCH_MS + self.wall_offset_ms + int(self.clock.current_time() * 1000)

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def perf_counter(self) -> float:
        """Time that a task measures of itself: seldom a step was slow."""
        self._cpu_s += 0.006 if self._cpu_random.random() < 0.02 else 0.00005
        return self.clock.current_time() + self._cpu_s

    # What happened

    def trace(self, kind: str, *facts: object) -> None:
        """Write down one event; its order and its time are part of the trace."""
        line = f"{self.clock.current_time():.6f} {kind} {' '.join(map(str, facts))}"
        self.events += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._digest.update(line.encode("utf-8", "replace"))
        if self.lines is not None:
            self.lines.append(line)

    def violation(self, text: str) -> None:
        """A promise was broken."""
        self.trace("VIOLATION", text)
        if len(self.violations) < 20:
            self.violations.append(f"at {self.now():.3f} s: {text}")

    def lapse(self, text: str) -> None:
        """Something that was acknowledged is not as it was: a violation, unless a start has told
        of it."""
        if self.is_excused:
            self.trace("lapse", text)
        else:
            self.violation(text)

    def digest(self) -> str:
        """The hash of the trace so far."""
        return self._digest.hexdigest()
