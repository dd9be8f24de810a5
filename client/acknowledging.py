"""What a member of a share group has of one partition, and what it has said of it.

    acquired --> held --mark--> marked --take--> sent --answered--> done, or failed
                  |  ^                            |
                  |  +------- renewed ------------+
                  +--> lapsed: its lock has ended, or the session with the broker

held      offset -> until when it is locked for this member, handed out or waiting for that
marked    offset -> what the caller has said of it; not held any more, unless it is to be renewed
sent      what is on its way to the broker

A lock begins at the broker before its answer is here: what has lapsed by this account has lapsed.
The broker takes or refuses all that one request says of a partition.  So renewals, of which one
may be late, travel alone.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from segbroker.protocol.messages_share_groups import AcknowledgementBatch

from .errors import (
    AcknowledgeFailed,
    FailedAcknowledgement,
    InvalidRecordState,
    SegbrokerError,
)
from .records import RecordHeaders, TopicPartition, grouped

LAPSED = "it is not locked for this member: the lock has ended, or it was acknowledged already"


class ShareRecord(NamedTuple):
    """One record as a share group's member has it.  `value` None is a tombstone.  Time in ms since
    1970.  `delivery_count`: how often it was handed out to anybody, this time included.
    `topic_id`: of the topic that it is in; another one may get its name."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    delivery_count: int
    topic_id: UUID


class Kind(IntEnum):
    """What can be said of an offset, by Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4

    @property
    def word(self) -> str:
        return self.name.lower()


def batches_of(said: dict[int, Kind]) -> list[AcknowledgementBatch]:
    """As few rows as say it, ascending: offsets in a row, of one kind or with one for each."""
    batches: list[AcknowledgementBatch] = []
    offsets = sorted(said)
    start = 0
    for index in range(1, len(offsets) + 1):
        if index < len(offsets) and offsets[index] == offsets[index - 1] + 1:
            continue
        row = offsets[start:index]
        kinds = [int(said[offset]) for offset in row]
        batches.append(
            AcknowledgementBatch(
                first_offset=row[0],
                last_offset=row[-1],
                acknowledge_types=kinds[:1] if len(set(kinds)) == 1 else kinds,
            )
        )
        start = index
    return batches


class Acquired:
    """See the module: one partition, as one broker's session has it."""

    def __init__(self, tp: TopicPartition, topic_id: UUID) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.held: dict[int, int] = {}
        self.marked: dict[int, Kind] = {}
        self.sent: dict[int, Kind] = {}
        # Since when something is marked; when a lock is to be looked at next.
        self.marked_since_ms: int | None = None
        self.look_ms: int | None = None
        # When a lock of what is marked has half of its time left.
        self._say_by_ms: int | None = None
        self.lock_ms = 0
        # Renewed without the caller's asking: nobody wants to hear of it.
        self._unasked: set[int] = set()
        # Since when the broker could not take what was said.
        self.refused_since_ms: int | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is known or said of it."""
        return not (self.held or self.marked or self.sent)

    @property
    def is_settled(self) -> bool:
        """All that was said was answered; what was renewed without the caller's asking is not
        waited for."""
        return not self.marked and self._unasked.issuperset(self.sent)

    # What the broker has given.

    def take_in(self, offsets: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """These are locked for this member from now on."""
        self.lock_ms = lock_ms
        until_ms = now_ms + lock_ms
        self.held.update(dict.fromkeys(offsets, until_ms))
        self.look_from(now_ms)

    def lapse(self, now_ms: int) -> list[FailedAcknowledgement]:
        """Forget what is not locked any more; what was to be renewed of it."""
        gone = [offset for offset, until_ms in self.held.items() if until_ms <= now_ms]
        too_late: dict[int, Kind] = {}
        for offset in gone:
            del self.held[offset]
            if offset in self.marked:
                too_late[offset] = self.marked.pop(offset)
        return failed(self.tp, too_late, InvalidRecordState(LAPSED))

    # What the caller says.

    def mark(self, offset: int, kind: Kind, now_ms: int) -> bool:
        """Say what became of a record; False where it is not this member's to say (any more)."""
        if offset in self.held:
            if kind is not Kind.RENEW:
                half_ms = self.held[offset] - self.lock_ms // 2
                self._say_by_ms = min(half_ms, self._say_by_ms or half_ms)
                # Ctrl-C comes at a call; there is none from here on: it is held, or said.
                self.marked[offset] = kind
                del self.held[offset]
        elif kind is Kind.RENEW or offset not in self.marked:
            return False
        self.marked[offset] = kind
        if self.marked_since_ms is None:
            self.marked_since_ms = now_ms
        return True

    def mark_all(self, said: dict[int, Kind], now_ms: int) -> None:
        for offset, kind in said.items():
            self.mark(offset, kind, now_ms)

    # What is sent.

    def has_marked(self, *, renewals: bool) -> bool:
        """Whether there are renewals to send, or anything else."""
        return any((kind is Kind.RENEW) is renewals for kind in self.marked.values())

    def take_marked(self, *, renewals: bool) -> dict[int, Kind]:
        """What to send: renewals, or all the rest; it is on its way then."""
        taken = {
            offset: kind for offset, kind in self.marked.items() if (kind is Kind.RENEW) is renewals
        }
        for offset in taken:
            del self.marked[offset]
        if not self.marked:
            self.marked_since_ms = self._say_by_ms = None
        self.sent.update(taken)
        return taken

    def due_ms(self, interval_ms: int) -> int | None:
        """When what is marked is to be sent: after `interval_ms`, or before its locks end."""
        if self.marked_since_ms is None:
            return None
        due_ms = self.marked_since_ms + interval_ms
        return due_ms if self._say_by_ms is None else min(due_ms, self._say_by_ms)

    def open_ms_max(self, now_ms: int) -> int | None:
        """How long the broker may hold a question: nothing is renewed, and nothing said, meanwhile.

        Until the first lock has half of its time left; behind that, an eighth of a lock.
        """
        if not self.held:
            return None
        left_ms = min(self.held.values()) - self.lock_ms // 2 - now_ms
        return left_ms if left_ms > 0 else self.lock_ms // 8

    def due_renewals(self, now_ms: int) -> dict[int, Kind]:
        """What has less than half of its time left; it is on its way then."""
        soon_ms = now_ms + self.lock_ms // 2
        due = {
            offset: Kind.RENEW
            for offset, until_ms in self.held.items()
            if until_ms <= soon_ms and offset not in self.sent
        }
        self.sent.update(due)
        self._unasked.update(due)
        return due

    def look_from(self, at_ms: int) -> None:
        """The locks are looked at next when the first has half of its time left; not before
        `at_ms`, and when it ends at the latest."""
        self.look_ms = None
        if self.held:
            first_ms = min(self.held.values())
            self.look_ms = min(first_ms, max(at_ms, first_ms - self.lock_ms // 2))

    def looked(self, now_ms: int) -> None:
        """They were, or something was said of them: again an eighth of a lock later."""
        self.look_from(now_ms + max(1, self.lock_ms // 8))

    # What became of it.

    def settled(self, said: dict[int, Kind], now_ms: int) -> None:
        """The broker has taken it."""
        self.refused_since_ms = None
        for offset, kind in said.items():
            self.sent.pop(offset, None)
            self._unasked.discard(offset)
            if kind is Kind.RENEW and offset in self.held:
                self.held[offset] = now_ms + self.lock_ms
        # Of another record half of the time may be over since this was asked.
        self.look_from(now_ms)

    def refused(
        self, said: dict[int, Kind], error: SegbrokerError, now_ms: int
    ) -> list[FailedAcknowledgement]:
        """The broker has not, or nobody knows: what the caller has to hear of."""
        self.refused_since_ms = None
        asked = {offset: kind for offset, kind in said.items() if offset not in self._unasked}
        self._unasked.difference_update(said)
        for offset in said:
            self.sent.pop(offset, None)
        self.looked(now_ms)
        return failed(self.tp, asked, error)

    def again(self, said: dict[int, Kind], now_ms: int) -> bool:
        """To be said once more: the broker could not take it for now.  False: for too long."""
        if self.refused_since_ms is None:
            self.refused_since_ms = now_ms
        elif now_ms >= self.refused_since_ms + self.lock_ms:
            return False
        for offset, kind in said.items():
            self.sent.pop(offset, None)
            if offset not in self._unasked:
                self.marked.setdefault(offset, kind)
        self._unasked.difference_update(said)
        self.look_from(now_ms)
        if self.marked:
            self._say_by_ms = now_ms
            if self.marked_since_ms is None:
                self.marked_since_ms = now_ms
        return True

    def lost(self, error: SegbrokerError) -> list[FailedAcknowledgement]:
        """The session is over: nothing is this member's any more.  What was said and not sent."""
        said, self.marked = self.marked, {}
        self.held.clear()
        self.marked_since_ms = self.look_ms = self._say_by_ms = None
        return failed(self.tp, said, error)


class Failures:
    """What does not hold and the caller has not heard of: a row for each partition, kind and error.

    It holds each offset of a row once, and those were locked for this member: as many as it may
    have, as no more are asked for before the caller comes back, and hears of these.

    Ctrl-C may come at any call: what is to be told stays in `telling` until whoever tells it
    empties that, with no call before it is told.
    """

    def __init__(self) -> None:
        self.telling: list[FailedAcknowledgement] = []
        self._rows: dict[
            tuple[TopicPartition, str, type[SegbrokerError]],
            tuple[dict[int, None], SegbrokerError],
        ] = {}

    def __bool__(self) -> bool:
        return bool(self._rows or self.telling)

    def add(self, failed: Iterable[FailedAcknowledgement]) -> None:
        for topic, partition, offsets, kind, error in failed:
            key = TopicPartition(topic, partition), kind, type(error)
            mine, _ = self._rows.setdefault(key, ({}, error))
            mine.update(dict.fromkeys(offsets))

    def to_tell(self) -> list[FailedAcknowledgement]:
        """What there is."""
        rows = [
            FailedAcknowledgement(*tp, tuple(sorted(offsets)), kind, error)
            for (tp, kind, _), (offsets, error) in self._rows.items()
        ]
        telling = [*self.telling, *rows]
        self.telling, self._rows = telling, {}
        return telling

    def raise_all(self) -> None:
        """Raise AcknowledgeFailed with all, if there is any."""
        if self:
            error = AcknowledgeFailed(self.to_tell())
            self.telling = []
            raise error


def told(failed: list[FailedAcknowledgement], exc: BaseException | None) -> None:
    """At the end: raised, or said in a note on what ends it."""
    error = AcknowledgeFailed(failed)
    if exc is None:
        raise error
    exc.add_note(str(error))


def failed(
    tp: TopicPartition, said: dict[int, Kind], error: SegbrokerError
) -> list[FailedAcknowledgement]:
    """Of what was said, one row for each kind; of gaps nobody wants to hear."""
    by_kind = grouped((said[offset], offset) for offset in sorted(said))
    by_kind.pop(Kind.GAP, None)
    return [
        FailedAcknowledgement(*tp, tuple(offsets), kind.word, error)
        for kind, offsets in by_kind.items()
    ]
