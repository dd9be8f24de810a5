"""Batches to test with: random columns, and bytes that went wrong on the way."""

from typing import TypedDict

from hypothesis import strategies as st

from segbroker.protocol.batch_layout import ATTRIBUTES_POSITION, CRC_POSITION
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import encode_batch

NOW = 1_700_000_000_000

Headers = list[tuple[str, bytes | None]]


class Columns(TypedDict):
    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]
    timestamps_ms: list[int]


maybe_bytes = st.none() | st.binary(max_size=80)
record = st.tuples(
    maybe_bytes,
    maybe_bytes,
    st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3),
    st.integers(NOW - 100_000, NOW + 100_000),
)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    """1 to 12 records with nulls, headers, and timestamps that go back and forth."""
    rows = draw(st.lists(record, min_size=1, max_size=12))
    return Columns(
        values=[row[0] for row in rows],
        keys=[row[1] for row in rows],
        headers=[row[2] for row in rows],
        timestamps_ms=[row[3] for row in rows],
    )


def with_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC that its bytes deserve: past the first gate, on to the others."""
    out = bytearray(batch)
    if len(out) > ATTRIBUTES_POSITION:
        crc = crc32c(bytes(out[ATTRIBUTES_POSITION:]))
        out[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(out)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A batch after up to 4 overwritten, lost or added bytes; mostly with a right CRC."""
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4]))
    batch = bytearray(encode_batch(**draw(columns()), codec=codec))
    for _ in range(draw(st.integers(0, 4))):
        position = draw(st.integers(0, len(batch) - 1))
        match draw(st.sampled_from(["byte", "byte", "byte", "cut", "insert"])):
            case "byte":
                batch[position] = draw(
                    st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
                )
            case "cut":
                del batch[position : position + draw(st.integers(1, 4))]
            case "insert":
                batch[position:position] = draw(st.binary(min_size=1, max_size=4))
        if not batch:
            return b""
    if draw(st.booleans()) and len(batch) >= 12:
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return with_crc(batch) if draw(st.integers(0, 9)) else bytes(batch)
