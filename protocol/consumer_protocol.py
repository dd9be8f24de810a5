"""What consumers tell each other through JoinGroup: opaque to a broker, but for showing it.

    Subscription   version i16 | topics [string] | user_data bytes? | more in later versions
    Assignment     version i16 | [topic string, [partition i32]] | user_data bytes?

Classic encoding, big-endian; strings are i16 length + UTF-8, arrays i32 count + items.
Source: kafka-clients ConsumerProtocolSubscription, ConsumerProtocolAssignment.
"""

import struct
from typing import Final

_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")


class _Cut(Exception):
    """The bytes end too early, or are of something else."""


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
        topics, position = _begin(assignment)
        found = []
        for _ in range(topics):
            name, position = _string(assignment, position)
            count, position = _count(assignment, position, _PARTITION.size)
            found += [
                (name, partition)
                for (partition,) in _PARTITION.iter_unpack(
                    assignment[position : position + count * _PARTITION.size]
                )
            ]
            position += count * _PARTITION.size
    except _Cut:
        return None
    return found


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
