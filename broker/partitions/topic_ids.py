"""Requests that name topics by id: the present name is filled in.

Produce 13, Fetch 13, OffsetCommit 10, OffsetFetch 10 and later versions identify a topic by its id,
so a topic that was deleted and made again under the same name is a different one.  The rest of the
broker goes by name, so the name is filled in before a request is handled.

An id that no topic has gets no name, and its rows are answered UNKNOWN_TOPIC_ID.  That is
retriable: the client asks Metadata again, which knows the topic's present id.
"""

from collections.abc import Iterable
from typing import Final, Protocol
from uuid import UUID

from segbroker.protocol.errors import ErrorCode

from ..loop.pace import Pace
from .topics import Topics

PRODUCE_SINCE: Final = 13
FETCH_SINCE: Final = 13
OFFSETS_SINCE: Final = 10
UNKNOWN: Final = ""
"""The name of an id that no topic has; no topic can be called so."""


class _Named(Protocol):
    name: str
    topic_id: UUID


def name_of(topics: Topics, topic_id: UUID) -> str:
    """The name of the topic with this id, or UNKNOWN."""
    meta = topics.by_id(topic_id)
    return UNKNOWN if meta is None else meta.name


def name_topics(topics: Topics, asked: Iterable[_Named]) -> None:
    """Fill in the names of what was asked by id."""
    for one in asked:
        one.name = name_of(topics, one.topic_id)


async def name_topics_paced(topics: Topics, asked: Iterable[_Named]) -> None:
    """As `name_topics`, with others getting their turn between."""
    pace = Pace()
    for one in asked:
        one.name = name_of(topics, one.topic_id)
        await pace.step()


def unknown_code(version: int, since: int) -> ErrorCode:
    """What a request of this version is told of a topic that there is none of."""
    if version >= since:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
