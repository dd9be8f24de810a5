"""One broker of a share group's member: the session with it, and what of it is locked.

Beside it what the lanes need of the reading (Reader), and when a question that failed is asked
again (Trouble).
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from segbroker.protocol.messages_share_groups import ShareFetchResponsePartition

from .acknowledging import Acquired, Kind
from .backoff import Backoff
from .connection import Connection
from .errors import FailedAcknowledgement, SegbrokerError
from .records import TopicPartition
from .share_session import Key, ShareSession

Told: TypeAlias = Sequence[FailedAcknowledgement]


class Reader(Protocol):
    """What the lanes need of the reading."""

    def wait_ms(self, now_ms: int) -> int | None:
        """How long a question for records may wait for them; None: nobody wants any."""

    @property
    def is_hurried(self) -> bool:
        """Whether somebody waits for what was said to be taken."""

    def may_renew(self, now_ms: int) -> bool:
        """Whether the caller has come back recently enough."""

    def take_in(
        self, acquired: Acquired, row: ShareFetchResponsePartition, lock_ms: int, now_ms: int
    ) -> None:
        """Records came."""

    def answered(self) -> None:
        """A broker has said something."""

    def told(self, failed: Told) -> None:
        """What was said does not hold."""

    def fail(self, error: SegbrokerError) -> None:
        """Something that the caller has to hear."""


class Trouble:
    """Questions that fail, of a partition or of a broker: back off, and tell when it lasts."""

    def __init__(self, backoff: Backoff, patience_ms: int) -> None:
        self.count = 0
        self.until_ms = 0
        self._backoff = backoff
        self._patience_ms = patience_ms
        self._since_ms = 0

    def failed(self, now_ms: int) -> bool:
        """Once more; whether the caller should hear of it, as that has gone on for long."""
        if not self.count:
            self._since_ms = now_ms
        self.count += 1
        self.until_ms = now_ms + self._backoff.next_delay_ms()
        is_long = now_ms >= self._since_ms + self._patience_ms
        if is_long:
            self._since_ms = now_ms
        return is_long

    def over(self) -> None:
        self.count = self.until_ms = 0
        self._backoff.reset()


class Lane:
    """One broker: the session with it, and what of it is locked for this member."""

    def __init__(self, node_id: int, session: ShareSession, trouble: Trouble) -> None:
        self.node_id = node_id
        self.session = session
        self.trouble = trouble
        self.connection: Connection | None = None
        self.is_asked = False
        self.is_fetching = False
        # Locks were to be renewed while a question was open: that comes behind its answer.
        self.is_late = False
        self.retry_at_ms = 0
        self.wanted: dict[Key, TopicPartition] = {}
        # The newest leader epoch in which it was known to lead a partition.
        self.led_in: dict[Key, int] = {}
        self.acquired: dict[Key, Acquired] = {}

    def part(self, key: Key, tp: TopicPartition) -> Acquired:
        part = self.acquired.get(key)
        if part is None:
            part = self.acquired[key] = Acquired(tp, key[0])
        return part

    def forget_idle(self) -> None:
        """Of what nothing is known nothing is kept."""
        self.acquired = {key: part for key, part in self.acquired.items() if not part.is_idle}

    def take_marked(self, *, renewals: bool) -> dict[Key, dict[int, Kind]]:
        """What is to be said, which is on its way then."""
        return {
            key: part.take_marked(renewals=renewals)
            for key, part in self.acquired.items()
            if part.has_marked(renewals=renewals)
        }
