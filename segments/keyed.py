"""What a compacted topic asks of a batch: every record has a key.

A compressed batch has to be opened for it, in bounds and in the thread that appends: one that opens
to more than KEYED_SIZE_MAX is refused as too large, which makes the producers split it.  Topics
that are not compacted never come here.
"""

from typing import Final

from segbroker.protocol.record_batch import decode_batch

from .errors import KeylessRecords

KEYED_SIZE_MAX: Final = 16 << 20
"""Bytes of records, opened: some 10 ms of the loop."""


def check_keys(topic: str, partition: int, batch: memoryview) -> None:
    """Raises KeylessRecords, InvalidBatch (it cannot be opened, or is too large then)."""
    keyless = decode_batch(batch, size_max=KEYED_SIZE_MAX).keyless()
    if keyless:
        raise KeylessRecords(topic, partition, keyless)
