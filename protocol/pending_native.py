"""A producer's pending records by the C kernel: the names of client/pending_pure, same meaning.

Importing this fails where no kernel was built.  Lists given to C are this thread's alone, or
copied first, as in batch_native.
"""

from array import array
from collections.abc import Sequence
from typing import Any, TypeVar

from ._kernel import ffi, lib

_I32 = ffi.typeof("int32_t[]")

_types: list[Any] = [None, None]
if lib.sb_pending_types(id(_types)):
    raise ImportError("the kernel could not make its types")
Ticket, Pending = _types

_Class = TypeVar("_Class", bound=type)
_SIGNATURE = "($self, topic, value, *, key=None, headers=None, partition=None, timestamp_ms=None)"
_kept: list[object] = []


def plain_send(cls: _Class) -> _Class:
    python: Any = vars(cls)["send"]
    doc = ffi.new("char[]", f"send{_SIGNATURE}\n--\n\n{python.__doc__}".encode())
    found: list[Any] = [None]
    if lib.sb_send_method(id(found), id(cls), doc):
        raise MemoryError
    _kept.append(doc)
    for name, method in (("_send_the_long_way", python), ("send", found[0])):
        setattr(cls, name, method)
    return cls


def partitions_for_keys(keys: Sequence[bytes | None], partition_count: int) -> "array[int]":
    private = list(keys)
    found = array("i", bytes(4 * len(private)))
    out = ffi.from_buffer(_I32, found)
    if lib.sb_partitions(id(private), len(private), partition_count, out):
        raise TypeError("a key is not bytes or None")
    return found


def scatter(
    items: Sequence[bytes | None], partitions: "array[int]", partition_count: int
) -> list[list[bytes | None]]:
    lists: list[list[bytes | None]] = [[] for _ in range(partition_count + 1)]
    private = list(items)
    assert len(private) == len(partitions), "a partition for each item"
    if lib.sb_scatter(id(lists), id(private), ffi.from_buffer(_I32, partitions), len(private)):
        raise MemoryError
    return lists
