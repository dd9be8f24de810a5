"""Exponential back-off with jitter: how long to wait before trying again.

    attempt    1     2     3     4   ...
    at most   50   100   200   400   ...   up to delay_max_ms

Each delay is drawn evenly from the upper half of its range ("equal jitter"), so that many clients
of one broker that went away do not come back in step, and none comes back at once.
"""

from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class Backoff:
    random: Random
    delay_first_ms: int
    delay_max_ms: int
    attempts: int = 0

    def next_delay_ms(self) -> int:
        """The delay before the next attempt; each call counts one failure."""
        # 2**20 first delays are longer than any delay_max_ms: the shift is bounded.
        ceiling = min(self.delay_max_ms, self.delay_first_ms << min(self.attempts, 20))
        self.attempts += 1
        return self.random.randint((ceiling + 1) // 2, max(1, ceiling))

    def reset(self) -> None:
        """Something succeeded: the next failure starts from the first delay again."""
        self.attempts = 0
