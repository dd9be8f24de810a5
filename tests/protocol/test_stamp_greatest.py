"""The greatest timestamp of a compressed batch, written into its header."""

import gzip
import struct

import pytest

from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.batch_header import set_max_timestamp, write_crc
from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    HEADER_SIZE,
    BatchFault,
    InvalidBatch,
    check_batch,
    decode_batch,
    encode_batch,
    stamp_greatest,
)


@pytest.fixture(params=["kernel", "pure"], autouse=True)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(kernel, "backend", batch_pure)


def unstamped(codec: Codec) -> bytearray:
    whole = encode_batch([b"a", None, b"c"], timestamps_ms=[5, 9, 7], codec=codec, keys=[b"k"] * 3)
    batch = bytearray(whole)
    set_max_timestamp(batch, -1)
    return batch


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_nothing_else_changes(codec: Codec) -> None:
    batch = unstamped(codec)
    before = decode_batch(batch)
    assert before.header.lacks_max_timestamp
    stamp_greatest(batch)
    after = decode_batch(batch)
    check_batch(batch)
    assert list(after) == list(before)
    assert not after.header.lacks_max_timestamp
    assert after.header == before.header._replace(max_timestamp=9, crc=after.header.crc)


@pytest.mark.parametrize("says", [2, 4, 1 << 20])
def test_a_count_that_is_not_that_of_the_records_changes_nothing(says: int) -> None:
    batch = unstamped(Codec.GZIP)
    struct.pack_into(">i", batch, 23, says - 1)
    struct.pack_into(">i", batch, 57, says)
    write_crc(batch)
    before = bytes(batch)
    with pytest.raises(InvalidBatch) as caught:
        stamp_greatest(batch)
    assert caught.value.fault is BatchFault.INVALID_RECORD
    assert batch == before


def test_a_timestamp_past_64_bits_is_none() -> None:
    batch = unstamped(Codec.GZIP)
    struct.pack_into(">q", batch, 27, (1 << 63) - 2)
    write_crc(batch)
    with pytest.raises(InvalidBatch):
        stamp_greatest(batch)


def test_what_is_too_large_when_it_is_open_is_refused() -> None:
    batch = unstamped(Codec.GZIP)
    size = len(gzip.decompress(batch[HEADER_SIZE:]))
    stamp_greatest(batch, size_max=size)
    with pytest.raises(InvalidBatch) as caught:
        stamp_greatest(batch, size_max=size - 1)
    assert caught.value.fault is BatchFault.TOO_LARGE
