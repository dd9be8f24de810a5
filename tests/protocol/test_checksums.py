"""CRC-32C and XXH3-64: published vectors, and every implementation against the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segbroker.protocol import checksums, kernel
from segbroker.protocol.checksums import crc32c, crc32c_portable, xxh3_64

needs_kernel = pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="built without a kernel")

# RFC 3720, B.4, and the usual check value.
VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_crc32c_gives_the_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c_portable(data) == expected


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_crc_continues_where_another_ended(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@needs_kernel
@pytest.mark.parametrize(
    "size",
    # Around the word, the table step, and the three stretches of 256 and of 4096 bytes.
    [0, 1, 7, 8, 9, 255, 256, 767, 768, 769, 1536, 12287, 12288, 12289, 24576, 25344, 100_003],
)
def test_hardware_table_and_portable_crc_agree_at_every_size_and_alignment(size: int) -> None:
    noise = bytes(i * i * 31 >> 3 & 0xFF for i in range(size + 8))
    for start in range(8):
        data = noise[start : start + size]
        expected = crc32c_portable(data)
        assert checksums.crc32c_native(data) == expected
        assert checksums.crc32c_native(memoryview(noise)[start : start + size]) == expected
        assert checksums.lib.sb_crc32c_table(0, data, size) == expected


@needs_kernel
@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1))
def test_native_and_portable_crc_agree_on_random_bytes(data: bytes, value: int) -> None:
    expected = crc32c_portable(data, value)
    assert checksums.crc32c_native(data, value) == expected
    assert checksums.lib.sb_crc32c_table(value, data, len(data)) == expected


def test_any_kind_of_buffer_has_the_same_checksum() -> None:
    for data in (b"123456789", bytearray(b"123456789"), memoryview(b"123456789")):
        assert crc32c(data) == crc32c_portable(data) == 0xE3069283
        assert xxh3_64(data) == xxh3_64(b"123456789")


def test_xxh3_gives_the_published_value() -> None:
    # XXH3_64bits("", seed 0) of the reference implementation.
    assert xxh3_64(b"") == 0x2D06800538D394C2
