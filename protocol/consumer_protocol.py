"""What consumers tell each other through JoinGroup: opaque to a broker, but for showing it.

    Subscription   version i16 | topics [string] | user_data bytes? | more in later versions

Classic encoding, big-endian; strings are i16 length + UTF-8, arrays i32 count + items.
Source: kafka-clients ConsumerProtocolSubscription.
"""

import struct
from typing import Final

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes | memoryview) -> frozenset[str] | None:
    """The topics of a Subscription; None when these are not the bytes of one."""
    if len(metadata) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
        return None
    topics = set()
    position = _HEAD.size
    for _ in range(count):
        if len(metadata) - position < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if not 0 <= length <= len(metadata) - position:
            return None
        try:
            topics.add(bytes(metadata[position : position + length]).decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
