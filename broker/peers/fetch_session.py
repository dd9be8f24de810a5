"""Fetch sessions (KIP-227): a client names its partitions once, and then what changes.

    epoch 0             a full fetch that begins a session; the answer says its id
    epoch 1, 2, ...     an incremental one: partitions to add, to move, to forget
    epoch -1            a full fetch without a session; ends the one that it names

    full          rows of all partitions
    incremental   rows with records or an error, or whose high watermark or log start the client
                  was not told

A session belongs to its connection and ends with it: whoever comes back on another is told
FETCH_SESSION_ID_NOT_FOUND, as by a Kafka that needed the place, and sends a full fetch.  A client
has one per connection; a new one takes the place of the one before.

Limits: a session has PARTITIONS_MIN partitions at its beginning or more, all sessions of a broker
have SESSIONS_PARTITIONS_MAX.  What does not fit gets no session (id 0), or loses it as above, and
fetches in full each time.

Invariant: `Sessions.partitions_count` is the sum of the rows of all open sessions.
"""

from typing import Final
from uuid import UUID

from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)

# Fewer are asked for in full each time, which costs as little.
PARTITIONS_MIN: Final = 50
# Less than 1 KiB each.
SESSIONS_PARTITIONS_MAX: Final = 100_000
NO_SESSION: Final = 0
# Epochs of requests.
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_NUMBER_MAX: Final = (1 << 31) - 1

TopicKey = str | UUID


class SessionRow:
    """One partition of a session.  `asked` is replaced, not changed: replies under way have it."""

    __slots__ = ("asked", "key", "said", "topic")

    def __init__(
        self, key: tuple[TopicKey, int], topic: FetchRequestTopic, asked: FetchRequestPartition
    ) -> None:
        self.key = key
        self.topic = topic
        self.asked = asked
        # The high watermark and the log start that the client was told; None: neither.
        self.said: tuple[int, int] | None = None

    def is_news(self, reply: FetchResponsePartition) -> bool:
        """Whether a reply without records has something that the client was not told."""
        said = reply.high_watermark, reply.log_start_offset
        is_told = reply.error_code or reply.diverging_epoch is not None
        return bool(is_told) or self.said != said


class Sessions:
    """What all sessions of a broker share."""

    __slots__ = ("_last_id", "partitions_count")

    def __init__(self) -> None:
        self.partitions_count = 0
        self._last_id = NO_SESSION

    def begin(self, request: FetchRequest, *, by_id: bool) -> "FetchSession | None":
        """The session of a full fetch; None where there is no room, or little to keep."""
        count = sum(len(topic.partitions) for topic in request.topics)
        if count < PARTITIONS_MIN or self.partitions_count + count > SESSIONS_PARTITIONS_MAX:
            return None
        self._last_id = self._last_id % _NUMBER_MAX + 1
        session = FetchSession(self, self._last_id, by_id=by_id)
        session.merge(request)
        return session


class FetchSession:
    """See the module."""

    __slots__ = ("_sessions", "_topics", "by_id", "epoch", "id", "rows")

    def __init__(self, sessions: Sessions, number: int, *, by_id: bool) -> None:
        """by_id: its requests name topics by id, which those of a session do all or none."""
        self._sessions = sessions
        self.id = number
        self.by_id = by_id
        # That of the next request.
        self.epoch = FIRST_EPOCH + 1
        # In the order in which they are read: who had records goes to the end.
        self.rows: dict[tuple[TopicKey, int], SessionRow] = {}
        self._topics: dict[TopicKey, tuple[FetchRequestTopic, set[int]]] = {}

    def follows(self) -> None:
        """A request of this epoch is served."""
        self.epoch = 1 if self.epoch == _NUMBER_MAX else self.epoch + 1

    def merge(self, request: FetchRequest) -> bool:
        """Add, move and forget partitions; False when there is no room for what is added."""
        before = len(self.rows)
        for topic in request.topics:
            if not topic.partitions:
                continue
            name = self._name(topic.topic, topic.topic_id)
            shared, indexes = self._topics.setdefault(name, (topic, set()))
            for asked in topic.partitions:
                key = name, asked.partition
                row = self.rows.get(key)
                if row is None:
                    indexes.add(asked.partition)
                    self.rows[key] = SessionRow(key, shared, asked)
                else:
                    row.asked = asked
        for gone in request.forgotten_topics_data:
            name = self._name(gone.topic, gone.topic_id)
            for index in gone.partitions:
                if self.rows.pop((name, index), None) is not None:
                    indexes = self._topics[name][1]
                    indexes.discard(index)
                    if not indexes:
                        del self._topics[name]
        self._sessions.partitions_count += len(self.rows) - before
        return self._sessions.partitions_count <= SESSIONS_PARTITIONS_MAX

    def _name(self, topic: str, topic_id: UUID) -> TopicKey:
        return topic_id if self.by_id else topic

    def told(self, row: SessionRow, reply: FetchResponsePartition) -> None:
        """The client is told this of a partition."""
        said = reply.high_watermark, reply.log_start_offset
        row.said = None if reply.error_code else said
        if reply.records and self.rows.get(row.key) is row:
            # Who had records is read last the next time, or the others would starve.
            self.rows[row.key] = self.rows.pop(row.key)

    def close(self) -> None:
        self._sessions.partitions_count -= len(self.rows)
        self.rows.clear()
        self._topics.clear()
