"""Bytes cut as TLS wants them: pieces of at most one record, none smaller than need be.

    pieces    [ header 60 ][ batch 40,000 ][ tail 3 ]
    records   [ 60 + 16,324 ][ 16,384 ][ 7,295 ]

A write of at most one record goes into the socket wholly or not at all, so what a writer counts is
what is gone.  Large pieces are cut without a copy; only what is joined is copied.
"""

from collections.abc import Sequence
from typing import Final

from .primitives import Buffer

RECORD_SIZE: Final = 16 << 10
"""The largest TLS record (RFC 8446, 5.1)."""


def cut_records(pieces: Sequence[Buffer], skip: int) -> list[Buffer]:
    """The bytes behind the first `skip`, as records."""
    records: list[Buffer] = []
    parts: list[memoryview] = []
    size = 0
    for piece in pieces:
        view = memoryview(piece).cast("B")
        if skip:
            view, skip = view[skip:], max(0, skip - len(view))
        while len(view):
            part = view[: RECORD_SIZE - size]
            view = view[len(part) :]
            parts.append(part)
            size += len(part)
            if size == RECORD_SIZE:
                records.append(b"".join(parts) if len(parts) > 1 else part)
                parts, size = [], 0
    if parts:
        records.append(b"".join(parts))
    return records
