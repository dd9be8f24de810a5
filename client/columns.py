"""Columns of records: what may stand in them, and how large they are.  Sizes in bytes."""

from collections.abc import Sequence
from types import NoneType

from .records import Headers


def as_bytes(what: str, value: object) -> bytes | None:
    """Keys and values are bytes or None; other buffers are copied: they may change."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} is a {type(value).__name__}, not bytes or None; encode it first")


def headers_size(headers: Headers) -> int:
    return sum(len(name) * 4 + len(value or b"") + 10 for name, value in headers)


def size_of(value: bytes | None) -> int:
    return len(value) if value else 0


def total_size(column: list[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]  # a None is found out
    except TypeError:
        return sum(map(size_of, column))


def column_of(
    what: str, column: Sequence[bytes | None], start: int, stop: int
) -> list[bytes | None]:
    """column[start:stop] as bytes or None."""
    taken = list(column[start:stop])
    if not set(map(type, taken)) <= {bytes, NoneType}:
        taken = [as_bytes(what, value) for value in taken]
    return taken
