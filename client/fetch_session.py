"""The fetch session of one broker (KIP-227): what was said of which partition, and so what is new.

    full (epoch 0)   all partitions; the answer says the session's id
    incremental      those that are new or have moved on, and those that are left out now; the
                     answer has the ones with something to say
    neither (-1)     few partitions, or a broker that keeps no sessions

Where it is not sure that both sides know the same, the session begins anew: on another connection,
after any error, and when the broker told what is not known here any more.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)

from .assigned import PartitionState
from .connection import Connection
from .records import TopicPartition, grouped
from .settings import ConsumerSettings
from .spoken import Reply

# Fewer are sent each time: it costs less than to know what is new.
PARTITIONS_MIN: Final = 50
# The version of Fetch that brought sessions.
SINCE: Final = 7
_GONE: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_NO_SESSION: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1


class Said(NamedTuple):
    """What a request says of a partition."""

    leader_epoch: int
    offset: int
    last_epoch: int


class FetchSession:
    """See the module."""

    __slots__ = ("_connection", "_id", "_said", "epoch")

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._id = 0
        self._said: dict[TopicPartition, Said] = {}
        # That of the request on its way, then of the next one.
        self.epoch = _NO_SESSION

    def request(
        self,
        asked: Collection[PartitionState],
        in_order: Iterable[PartitionState],
        touched: Collection[PartitionState],
        settings: ConsumerSettings,
        leader_epoch: Callable[[str, int], int],
        connection: Connection,
        *,
        turn: int,
        size_max: int,
        wait_ms: int,
    ) -> FetchRequest:
        """The fetch of these partitions.

        Args:
            asked: all of them.
            in_order: those, and perhaps others, always in the same order.
            touched: those that may be others than in the fetch before, or are asked for no more.
            turn: another one each time.  Without a session a broker fills its reply from the front:
                so it begins with another partition.
            leader_epoch: what the cluster view says of a topic and partition.
            connection: what it will be sent over.
            size_max: bytes of the whole reply.
            wait_ms: how long the broker may wait for `fetch_min_bytes`.
        """
        gone: list[TopicPartition] = []
        if self._id and self._is_known(touched, connection):
            said = self._said
            says = _say(filter(asked.__contains__, touched), leader_epoch)
            news = {tp: what for tp, what in says.items() if said.get(tp) != what}
            others = {state.tp for state in touched if state not in asked} - says.keys()
            gone = [tp for tp in others if said.pop(tp, None) is not None]
            said.update(news)
        else:
            states = list(filter(asked.__contains__, in_order))
            first = turn % max(1, len(states))
            news = _say(states[first:] + states[:first], leader_epoch)
            may = len(news) >= PARTITIONS_MIN and _has_sessions(connection)
            self.epoch = 0 if may else _NO_SESSION
            if connection is not self._connection:
                self._id = 0
            self._connection, self._said = connection, dict(news)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=size_max,
            isolation_level=settings.isolation_level,
            session_id=self._id,
            session_epoch=self.epoch,
            topics=_topics(news, settings.fetch_partition_bytes),
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=name, partitions=partitions)
                for name, partitions in grouped(gone).items()
            ],
        )

    def _is_known(self, states: Collection[PartitionState], connection: Connection) -> bool:
        """Whether what the broker has told is known here still."""
        if connection is not self._connection:
            return False
        said = self._said
        return not any(state.high_watermark < 0 and state.tp in said for state in states)

    def answered(self, reply: Reply) -> bool:
        """Take note of an answer; False where it only says that the session is over."""
        if not isinstance(reply, FetchResponse) or reply.error_code:
            was_incremental = self.epoch > 0
            self._id, self._said = 0, {}
            self.epoch = _NO_SESSION
            return not (
                was_incremental
                and isinstance(reply, FetchResponse)
                and ErrorCode.of(reply.error_code) in _GONE
            )
        self._id = reply.session_id
        if self._id:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        return True


def _say(
    states: Iterable[PartitionState], leader_epoch: Callable[[str, int], int]
) -> dict[TopicPartition, Said]:
    return {
        state.tp: Said(leader_epoch(*state.tp), state.fetch_offset, state.epoch) for state in states
    }


def _has_sessions(connection: Connection) -> bool:
    version = connection.version_for(ApiKey.FETCH)
    return version is not None and version >= SINCE


def _topics(says: dict[TopicPartition, Said], size_max: int) -> list[FetchRequestTopic]:
    topics: dict[str, list[FetchRequestPartition]] = {}
    for tp, said in says.items():
        topics.setdefault(tp.topic, []).append(
            FetchRequestPartition(
                partition=tp.partition,
                current_leader_epoch=said.leader_epoch,
                fetch_offset=said.offset,
                last_fetched_epoch=said.last_epoch,
                partition_max_bytes=size_max,
            )
        )
    return [FetchRequestTopic(topic=name, partitions=rows) for name, rows in topics.items()]
