"""The codecs: what others write is read, what lies is refused, what explodes stays small."""

import contextlib
import gzip
import subprocess
import sys
import tracemalloc

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.protocol.compression import (
    XERIAL_MAGIC,
    Codec,
    DecompressedTooLarge,
    DecompressionError,
    compress,
    decompress,
)

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog; " * 50


def xerial(*blocks: bytes) -> bytes:
    """Snappy as the Java client frames it: magic, version 1, compatible 1, sized blocks."""
    head = XERIAL_MAGIC + bytes.fromhex("00000001 00000001")
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


@given(st.binary(max_size=5000), st.sampled_from(Codec))
def test_what_was_compressed_comes_back(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_inclusive(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert bytes(decompress(codec, packed, len(TEXT))) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_far_larger_than_the_first_buffer_arrives_whole(codec: Codec) -> None:
    data = bytes(5_000_000) + TEXT
    assert bytes(decompress(codec, compress(codec, data), 1 << 24)) == data


def test_snappy_is_read_in_both_framings() -> None:
    raw = compress(Codec.SNAPPY, TEXT)
    assert not raw.startswith(XERIAL_MAGIC)
    assert bytes(decompress(Codec.SNAPPY, raw, 10_000)) == TEXT
    halves = (compress(Codec.SNAPPY, TEXT[:1000]), compress(Codec.SNAPPY, TEXT[1000:]))
    assert bytes(decompress(Codec.SNAPPY, xerial(*halves), 10_000)) == TEXT
    assert bytes(decompress(Codec.SNAPPY, xerial(), 0)) == b""


@pytest.mark.parametrize(
    "framed",
    [
        XERIAL_MAGIC + bytes(8) + bytes.fromhex("00000000"),  # a block of nothing
        XERIAL_MAGIC + bytes(8) + bytes.fromhex("ffffffff"),
        XERIAL_MAGIC + bytes(8) + bytes.fromhex("00000009") + b"short",
        XERIAL_MAGIC + bytes(8) + b"\0\0",
    ],
)
def test_a_xerial_block_stays_inside_its_frame(framed: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(Codec.SNAPPY, framed, 1000)


def test_many_xerial_blocks_cost_no_more_than_their_bytes() -> None:
    for block in (b"\0", compress(Codec.SNAPPY, b"a")):  # of nothing, of one byte
        framed = xerial() + (len(block).to_bytes(4, "big") + block) * 20_000
        tracemalloc.start()
        try:
            decompress(Codec.SNAPPY, framed, 1 << 20)
            assert tracemalloc.get_traced_memory()[1] < len(framed) + 100_000
        finally:
            tracemalloc.stop()


def test_a_snappy_size_that_its_bytes_cannot_hold_takes_no_memory() -> None:
    # The preamble says 2 GiB - 1; four bytes follow.
    with pytest.raises(DecompressionError, match="cannot hold 2147483647"):
        decompress(Codec.SNAPPY, bytes.fromhex("ffffffff07 00000000"), 1 << 40)


def test_several_gzip_members_and_frames_are_one_block() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, TEXT) + compress(codec, b"end")
        assert bytes(decompress(codec, packed, 10_000)) == TEXT + b"end"


def test_frames_of_other_encoders_are_read() -> None:
    # Block-linked and with checksums, as encoders may choose; without a size, as streams are.
    for linked in (True, False):
        packed = lz4.frame.compress(
            TEXT, block_linked=linked, content_checksum=True, block_checksum=True, store_size=False
        )
        assert bytes(decompress(Codec.LZ4, packed, 10_000)) == TEXT
    stream = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert bytes(decompress(Codec.ZSTD, stream, 10_000)) == TEXT
    assert bytes(decompress(Codec.GZIP, gzip.compress(TEXT), 10_000)) == TEXT


def test_other_decoders_read_what_we_write() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    assert (
        zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, TEXT)) == TEXT
    )


@pytest.mark.parametrize("codec", COMPRESSING)
def test_input_that_ends_early_is_refused_wherever_it_ends(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for end in range(len(packed)):
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:end], 10_000)


@settings(max_examples=300)
@given(st.sampled_from(COMPRESSING), st.data())
def test_damaged_input_gives_bytes_within_the_limit_or_an_error(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, data.draw(st.binary(max_size=300)) * 3))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecompressionError):
        assert len(decompress(codec, packed, 4096)) <= 4096


@settings(max_examples=300)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=60))
def test_noise_gives_bytes_within_the_limit_or_an_error(codec: Codec, noise: bytes) -> None:
    for data in (
        noise,
        XERIAL_MAGIC + noise,
        b"\x28\xb5\x2f\xfd" + noise,
        b"\x04\x22\x4d\x18" + noise,
    ):
        with contextlib.suppress(DecompressionError):
            assert len(decompress(codec, data, 4096)) <= 4096


# A gigabyte from at most a few MB, and the memory that refusing it took, in a process of its own.
BOMB = """
import resource
from segbroker.protocol.compression import *
codec, limit = Codec[{codec!r}], 8 << 20
block = compress(codec, bytes(4 << 20))
if codec == Codec.SNAPPY:
    block = len(block).to_bytes(4, "big") + block
    bomb = XERIAL_MAGIC + bytes(8) + 256 * block
else:
    bomb = 256 * block
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    try:
        decompress(codec, bomb, limit)
    except DecompressedTooLarge:
        pass
    else:
        raise SystemExit("the bomb went off")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_of_a_gigabyte_is_refused_within_the_limit(codec: Codec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB.format(codec=codec.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24 * 1024, f"{done.stdout} KiB for a limit of 8 MiB"


def test_lz4_blocks_do_not_depend_on_each_other_for_java_refuses_them() -> None:
    frame = compress(Codec.LZ4, bytes(range(256)) * 4096)
    # Byte 4 of an LZ4 frame is FLG; bit 5 says that its blocks are independent.
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
