"""What consumers tell each other through JoinGroup: opaque to a broker, but for showing it.

    Subscription   version i16 | topics [string] | user_data bytes?
                   from 1: owned partitions | from 2: generation i32 | from 3: rack string?
    Assignment     version i16 | [topic string, [partition i32]] | user_data bytes?
    user data of `sticky`              [topic string, [partition i32]] | generation i32
    user data of `cooperative-sticky`  generation i32, of those who write version 1

Classic encoding, big-endian; strings are i16 length + UTF-8, arrays i32 count + items.  A later
version only adds at the end, so it can be read as the last one known here.
Source: kafka-clients ConsumerProtocolSubscription, ConsumerProtocolAssignment, StickyAssignor,
CooperativeStickyAssignor.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

Pairs = list[tuple[str, int]]
"""(topic, partition), ..."""

_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_COUNT: Final = _PARTITION


class _Cut(Exception):
    """The bytes end too early, or are of something else."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants, and has; generation -1: it does not say of which."""

    topics: tuple[str, ...]
    owned: tuple[tuple[str, int], ...] = ()
    generation: int = -1
    user_data: bytes | None = None
    version: int = field(default=3, compare=False)
    """As it was read; below 2 there is no generation in it."""


def encode_subscription(subscription: Subscription) -> bytes:
    """As version 3, without a rack."""
    return b"".join(
        (
            _VERSION.pack(3),
            _COUNT.pack(len(subscription.topics)),
            *map(_packed, subscription.topics),
            _packed_bytes(subscription.user_data),
            _packed_pairs(subscription.owned),
            _COUNT.pack(subscription.generation),
            _VERSION.pack(-1),
        )
    )


def decode_subscription(metadata: bytes | memoryview) -> Subscription | None:
    """What a member says; None when these are not the bytes of a Subscription."""
    try:
        (version,) = _VERSION.unpack_from(metadata) if len(metadata) >= 2 else (-1,)
        count, position = _begin(metadata)
        topics = []
        for _ in range(count):
            name, position = _string(metadata, position)
            topics.append(name)
        user_data, position = _bytes(metadata, position)
        owned: Pairs = []
        generation = -1
        if version >= 1:
            owned, position = _pairs(metadata, position)
        if version >= 2:
            generation, position = _int32(metadata, position)
    except _Cut:
        return None
    return Subscription(tuple(topics), tuple(owned), generation, user_data, version)


def encode_assignment(partitions: Iterable[tuple[str, int]], version: int = 0) -> bytes:
    """Without user data.  Every version is written alike."""
    return _VERSION.pack(version) + _packed_pairs(partitions) + _packed_bytes(None)


def encode_sticky(owned: Iterable[tuple[str, int]], generation: int) -> bytes:
    """The user data of a `sticky` member: what it had, and in which generation."""
    return _packed_pairs(owned) + _COUNT.pack(generation)


def decode_sticky(user_data: bytes | None) -> tuple[Pairs, int]:
    """What a `sticky` member had; nothing for bytes of something else.

    The first version of these ends before the generation: that is -1 then.
    """
    try:
        owned, position = _pairs(user_data or b"", 0)
    except _Cut:
        return [], -1
    try:
        return owned, _int32(user_data or b"", position)[0]
    except _Cut:
        return owned, -1


def decode_generation(user_data: bytes | None) -> int:
    """The generation in the user data of a `cooperative-sticky` member; -1 without one."""
    return _COUNT.unpack(user_data)[0] if user_data and len(user_data) == _COUNT.size else -1


def subscribed_topics(metadata: bytes | memoryview) -> frozenset[str] | None:
    """The topics of a Subscription; None when these are not the bytes of one."""
    try:
        count, position = _begin(metadata)
        topics = set()
        for _ in range(count):
            name, position = _string(metadata, position)
            topics.add(name)
    except _Cut:
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes | memoryview) -> list[tuple[str, int]] | None:
    """(topic, partition) of an Assignment; None when these are not the bytes of one."""
    try:
        if len(assignment) < _VERSION.size or _VERSION.unpack_from(assignment)[0] < 0:
            raise _Cut
        return _pairs(assignment, _VERSION.size)[0]
    except _Cut:
        return None


def assignment_user_data(assignment: bytes | memoryview) -> bytes:
    """What an assignor has put into an Assignment for itself; none for bytes of something else."""
    try:
        if len(assignment) < _VERSION.size:
            raise _Cut
        _, position = _pairs(assignment, _VERSION.size)
        return _bytes(assignment, position)[0] or b""
    except _Cut:
        return b""


def _begin(data: bytes | memoryview) -> tuple[int, int]:
    """(items of the first array, where they begin)."""
    if len(data) < _VERSION.size or _VERSION.unpack_from(data)[0] < 0:
        raise _Cut
    return _count(data, _VERSION.size, _VERSION.size)


def _count(data: bytes | memoryview, position: int, item_size: int) -> tuple[int, int]:
    """(items of an array, where they begin); as many as there are bytes for, at most."""
    if len(data) - position < _PARTITION.size:
        raise _Cut
    (count,) = _PARTITION.unpack_from(data, position)
    position += _PARTITION.size
    if not 0 <= count <= (len(data) - position) // item_size:
        raise _Cut
    return count, position


def _string(data: bytes | memoryview, position: int) -> tuple[str, int]:
    if len(data) - position < _VERSION.size:
        raise _Cut
    (length,) = _VERSION.unpack_from(data, position)
    position += _VERSION.size
    if not 0 <= length <= len(data) - position:
        raise _Cut
    try:
        return bytes(data[position : position + length]).decode(), position + length
    except UnicodeDecodeError:
        raise _Cut from None


def _pairs(data: bytes | memoryview, position: int) -> tuple[Pairs, int]:
    """([topic string, [partition i32]] as pairs, where it ends)."""
    topics, position = _count(data, position, _VERSION.size + _COUNT.size)
    found: Pairs = []
    for _ in range(topics):
        name, position = _string(data, position)
        count, position = _count(data, position, _PARTITION.size)
        end = position + count * _PARTITION.size
        found += [(name, number) for (number,) in _PARTITION.iter_unpack(data[position:end])]
        position = end
    return found, position


def _bytes(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    if len(data) - position < _COUNT.size:
        # Who wrote the very first versions left the user data out.
        return None, len(data)
    (length,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if length < 0:
        return None, position
    if length > len(data) - position:
        raise _Cut
    return bytes(data[position : position + length]), position + length


def _int32(data: bytes | memoryview, position: int) -> tuple[int, int]:
    if len(data) - position < _COUNT.size:
        raise _Cut
    return _COUNT.unpack_from(data, position)[0], position + _COUNT.size


def _packed(text: str) -> bytes:
    data = text.encode()
    return _VERSION.pack(len(data)) + data


def _packed_bytes(data: bytes | None) -> bytes:
    return _COUNT.pack(-1) if data is None else _COUNT.pack(len(data)) + data


def _packed_pairs(pairs: Iterable[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(pairs):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_COUNT.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_packed(topic), _COUNT.pack(len(numbers)), *map(_PARTITION.pack, numbers)]
    return b"".join(parts)
