"""Batches as they stand in a log: with their base offset, and control batches."""

import struct
from collections.abc import Sequence

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import encode_batch, patch_batch

Headers = Sequence[Sequence[tuple[str, bytes | None]] | None]


def batch(
    base_offset: int,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Headers | None = None,
    timestamps_ms: int | Sequence[int] = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
) -> bytes:
    data = bytearray(
        encode_batch(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            transactional=producer_id >= 0,
        )
    )
    patch_batch(data, base_offset, 0)
    return bytes(data)


def end_marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    """The control batch with which a broker ends a transaction."""
    key = struct.pack(">hh", 0, 1 if committed else 0)
    data = bytearray(batch(offset, [struct.pack(">hi", 0, 0)], keys=[key], producer_id=producer_id))
    # attributes: transactional and control; the sequence of a control batch is -1.
    struct.pack_into(">h", data, 21, 0x30)
    struct.pack_into(">i", data, 53, -1)
    return with_checksum(data)


def with_checksum(data: bytearray) -> bytes:
    from segbroker.protocol.checksums import crc32c

    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)
