"""The codecs of record batches: gzip, snappy, lz4, zstd, with a bound on what comes out.

    code  name     bytes on the wire
    0     none     the records
    1     gzip     RFC 1952, any number of members
    2     snappy   one raw block (librdkafka, and what we write), or xerial framing (Java)
    3     lz4      LZ4 frames
    4     zstd     Zstandard frames

    xerial:  82 'SNAPPY' 00 | version i32 | compatible i32 | n x (length i32 | raw snappy block)

A declared size is never believed: the output buffer starts at a small multiple of the input and
grows fourfold while the data really fills it, up to the caller's limit.  So a bomb costs at most
that limit, and a lie about the size costs nothing.
"""

from collections.abc import Callable
from enum import IntEnum

import cramjam

from .checksums import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_FIRST_GUESS = 16 * 1024
_GUESS_RATIO = 8
# No snappy element of n bytes yields more than 64 bytes per 3.
_SNAPPY_RATIO_MAX = 22
# What cramjam says when the output buffer is full; a test notices when the words change.
_BUFFER_FULL = "failed to write whole buffer"


class Codec(IntEnum):
    """Compression of a record batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(Exception):
    """The bytes are not what their codec says."""


class DecompressedTooLarge(DecompressionError):
    """More comes out than the caller allows."""


def _compress_lz4(data: Buffer, level: int | None = None) -> cramjam.Buffer:
    # Java's reader refuses frames whose blocks depend on each other, which is what
    # cramjam.lz4.compress makes, and loses the whole batch.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return compressor.finish()


_COMPRESS: dict[Codec, Callable[..., cramjam.Buffer]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: cramjam.zstd.compress,
}
_DECOMPRESS_INTO: dict[Codec, Callable[..., int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed.

    level: gzip 1 to 9, lz4 1 to 12, zstd -131072 to 22; None: the codec's usual one, which is all
    that snappy has.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if level is None or codec == Codec.SNAPPY:
        return bytes(_COMPRESS[codec](data))
    return bytes(_COMPRESS[codec](data, level=level))


def decompress(codec: Codec, data: Buffer, size_max: int) -> bytes | memoryview:
    """What `data` holds, at most `size_max` bytes.

    Raises DecompressedTooLarge past the limit, DecompressionError for anything malformed.
    """
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise DecompressedTooLarge(f"{len(data)} bytes, limit {size_max}")
        return bytes(data)
    if codec == Codec.SNAPPY:
        if bytes(data[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            return _decompress_xerial(data, size_max)
        return _decompress_snappy(data, size_max)
    return _decompress_growing(codec, data, size_max)


def _decompress_growing(codec: Codec, data: Buffer, size_max: int) -> memoryview:
    size = min(size_max, max(_FIRST_GUESS, _GUESS_RATIO * len(data)))
    while True:
        out = bytearray(size)
        try:
            written = _DECOMPRESS_INTO[codec](data, out)
        except cramjam.DecompressionError as exc:
            if str(exc) != _BUFFER_FULL:
                raise DecompressionError(f"{codec.name.lower()}: {exc}") from exc
            if size == size_max:
                raise DecompressedTooLarge(
                    f"{codec.name.lower()}: {len(data)} bytes hold more than {size_max}"
                ) from exc
            size = min(size_max, 4 * size)
        else:
            return memoryview(out)[:written]


def _decompress_snappy(data: Buffer, size_max: int) -> memoryview:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
    except cramjam.DecompressionError as exc:
        raise DecompressionError(f"snappy: {exc}") from exc
    if size > size_max:
        raise DecompressedTooLarge(f"snappy: {len(data)} bytes say {size}, limit {size_max}")
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise DecompressionError(f"snappy: {len(data)} bytes cannot hold {size}")
    out = bytearray(size)
    try:
        written = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as exc:
        raise DecompressionError(f"snappy: {exc}") from exc
    return memoryview(out)[:written]


def _decompress_xerial(data: Buffer, size_max: int) -> memoryview:
    view = memoryview(data)
    out = bytearray()  # a block may be of one byte and hold nothing: none is kept as an object
    position = _XERIAL_HEADER_SIZE
    while position < len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < length <= len(view) - position:
            raise DecompressionError(
                f"snappy: xerial block of {length} bytes, {len(view) - position} are left"
            )
        out += _decompress_snappy(view[position : position + length], size_max - len(out))
        position += length
    return memoryview(out)
