"""Columns of records: what may stand in them, and how large they are.  Sizes in bytes."""

from collections.abc import Iterable
from types import NoneType

from .records import HeaderPairs


def as_bytes(what: str, value: object) -> bytes | None:
    """Keys and values are bytes or None; other buffers are copied: they may change."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} is a {type(value).__name__}, not bytes or None; encode it first")


def headers_size(headers: HeaderPairs) -> int:
    return sum(len(name) * 4 + len(value or b"") + 10 for name, value in headers)


def size_of(value: bytes | None) -> int:
    return len(value) if value else 0


def total_size(column: list[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]  # a None is found out
    except TypeError:
        return sum(map(size_of, column))


def column_of(what: str, column: Iterable[bytes | None]) -> list[bytes | None]:
    """The column as bytes or None.  Raises TypeError for anything else."""
    if isinstance(column, str | bytes | bytearray | memoryview):
        raise TypeError(f"{what}s are a {type(column).__name__}: one {what}, not a list of them")
    taken = list(column)
    if not set(map(type, taken)) <= {bytes, NoneType}:
        taken = [as_bytes(what, value) for value in taken]
    return taken
