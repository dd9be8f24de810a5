"""Which partition a key belongs to: murmur2, as the Java producer hashes it.

    partition = (murmur2(key) & 0x7fffffff) % partitions

Every client that follows Java's default partitioner sends a key to the same partition; one that
does not (librdkafka's default is CRC-32) must be told to.  Records without a key are spread by the
client, not here.

Source: org.apache.kafka.common.utils.Utils.murmur2 and its test vectors (UtilsTest).
"""

from struct import Struct
from typing import Final

__all__ = ["murmur2", "partition_for_key"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORD: Final = Struct("<I")


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of `data`, signed as in Java."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for (k,) in _WORD.iter_unpack(data[:whole]):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if size & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes, count: int) -> int:
    """The partition of `key` among `count` partitions, in [0, count)."""
    return (murmur2(key) & 0x7FFFFFFF) % count
