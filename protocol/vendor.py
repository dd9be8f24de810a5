"""segbroker's own apis: api keys from 10000 up, a msgpack map as body.

    frame:    size i32 | request header v1 | msgpack map
    reply:    size i32 | correlation id i32 | msgpack map

The header is Kafka's, so one listener and one dispatcher serve both.  The keys are advertised only
to clients that name themselves segbroker in ApiVersions; a foreign client never sees them.

A reply that failed is `{"error": {"code", "class", "retryable", "detail"}}`: the Kafka code, its
name, whether trying again may help, and a sentence for a person.  A reply may carry
`{"performance": {"storage_us"}}`: the time from its decoding to its answer.

The same encoding is used for maps kept on disk (metadata snapshots): `pack` and `unpack` are the
only door to msgpack.

Invariants: the outermost value is a map with string keys; what comes off the wire is bounded in
size, count and depth before memory is taken, and no message makes unpack raise anything but
RemoteProtocolError.  Why not msgpack's own limits alone: it bounds a count by a constant, not by
the bytes that are there, and its depth limit is 1024: of arrays in arrays, each of which claims as
many items as there are bytes, all take their room before the first item is missed.  So what is
large enough for that is first walked, without making anything.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import chain, islice
from typing import Any, Final, cast

import msgpack

from . import limits
from .errors import ErrorCode, LocalProtocolError, RemoteProtocolError

PIECE_ITEMS: Final = 1_000
"""What `pack_behind` packs in one go: some 0.1 ms."""
_TOGETHER: Final = 128
"""Neighbours that it packs in one go, if they are as few with what is in them."""
_CONTAINERS: Final = frozenset({dict, list, tuple})
_WALKED_SIZE: Final = 1024
"""Larger bodies are walked first.  One of this size claims at most 200 times 1,024 items."""

__all__ = ["PIECE_ITEMS", "VendorKey", "error_reply", "pack", "pack_behind", "unpack"]


class VendorKey(IntEnum):
    """The api keys of segbroker's own requests.  A number is never used twice."""

    SERVER_INFO = 10000
    PARTITION_STATISTICS = 10001
    TRUNCATE = 10002
    FLOORS = 10003
    GAPS = 10004
    DELETE_BY_TAG = 10005
    # 10010 to 10019: work queues
    QUEUE_CLAIM = 10010
    QUEUE_ACK = 10011
    QUEUE_NACK = 10012
    QUEUE_EXTEND = 10013
    QUEUE_STATISTICS = 10014
    # 10020 to 10029: routers
    ROUTER_CREATE = 10020
    ROUTER_DELETE = 10021
    ROUTER_LIST = 10022
    # 10030 to 10039: transactions
    COMMIT_BATCH = 10030
    QUERY_STATE = 10031
    FORGET_TRANSACTIONS = 10032


def error_reply(code: ErrorCode, detail: str = "") -> dict[str, Any]:
    """The reply map of a request that failed; `detail` is a sentence for a person."""
    error = {
        "code": int(code),
        "class": code.name,
        "retryable": code.retryable,
        "detail": detail or code.description,
    }
    return {"error": error}


def pack(body: Mapping[str, Any]) -> bytes:
    """The bytes of a map of None, bool, int, float, str, bytes, list and map.

    Raises LocalProtocolError for any other value, or an int beyond 64 bits.
    """
    try:
        return cast(bytes, msgpack.packb(dict(body), use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as exc:
        raise LocalProtocolError(f"cannot be a msgpack map: {exc}") from exc


def pack_behind(out: bytearray, body: Mapping[str, Any]) -> None:
    """Append what `pack` makes of a map, which may be very large, to `out`.

    msgpack lets no other thread run while it packs: of a million rows that is half a second, in
    which the event loop stands still.  So it is given PIECE_ITEMS items at a time, at most.

    Raises LocalProtocolError as `pack`.
    """
    try:
        _pack_behind(out, dict(body), msgpack.Packer(use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as exc:
        raise LocalProtocolError(f"cannot be a msgpack map: {exc}") from exc


def _pack_behind(out: bytearray, value: Any, packer: msgpack.Packer) -> None:  # noqa: ANN401
    if type(value) not in _CONTAINERS or _is_small(value):
        out += packer.pack(value)
        return
    if type(value) is dict:
        out += packer.pack_map_header(len(value))
        rest = chain.from_iterable(value.items())
    else:
        out += packer.pack_array_header(len(value))
        rest = iter(value)
    while some := list(islice(rest, _TOGETHER)):
        if _is_small(some):
            out += memoryview(packer.pack(some))[len(packer.pack_array_header(len(some))) :]
        else:
            for one in some:
                _pack_behind(out, one, packer)


def _is_small(container: Any) -> bool:  # noqa: ANN401
    """Whether a map or an array has PIECE_ITEMS items at most, with those of what is in it; a row
    that is a NamedTuple counts as one."""
    level, count = [container], 0
    while level:
        count += sum(map(len, level))
        if count > PIECE_ITEMS:
            return False
        level = [
            item
            for one in level
            for item in (one.values() if type(one) is dict else one)
            if type(item) in _CONTAINERS
        ]
    return True


def unpack(
    data: bytes | bytearray | memoryview,
    *,
    size_max: int = limits.VENDOR_BODY_SIZE_MAX,
    count_max: int | None = None,
    containers_max: int | None = None,
) -> dict[str, Any]:
    """The map in `data`, which it must fill exactly.

    Raises RemoteProtocolError for anything else: larger than `size_max` bytes, deeper than
    VENDOR_DEPTH_MAX, more elements than bytes, keys other than strings, not UTF-8, an extension
    type, trailing bytes.  count_max: elements of one array or map; None: VENDOR_ITEMS_COUNT_MAX.
    containers_max: arrays and maps in all, where whoever sends them is not trusted; None: any
    number.
    """
    size = len(data)
    if size > size_max:
        raise RemoteProtocolError(f"msgpack body of {size} bytes, limit {size_max}")
    counted: dict[str, Any] = {}
    if containers_max is not None and size > containers_max:
        count = _counting(containers_max)
        counted = {"list_hook": count, "object_hook": count}
    count_max = min(size, limits.VENDOR_ITEMS_COUNT_MAX if count_max is None else count_max)
    try:
        if size > _WALKED_SIZE:
            walked = msgpack.Unpacker(max_buffer_size=size)
            walked.feed(data)
            walked.skip()
        body = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=count_max,
            max_map_len=count_max,
            max_ext_len=0,
            ext_hook=_no_extension,
            **counted,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as exc:
        raise RemoteProtocolError(f"not a msgpack body: {exc!r}") from exc
    if not isinstance(body, dict):
        raise RemoteProtocolError(f"msgpack body is a {type(body).__name__}, not a map")
    _check_shape(body)
    return body


def _counting(most: int) -> Callable[[Any], Any]:
    """What is called with each array and map, and lets so many of them pass."""
    left = most

    def count(made: Any) -> Any:  # noqa: ANN401
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {most} arrays and maps")
        return made

    return count


def _no_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code}")


def _check_shape(body: dict[str, Any]) -> None:
    """Level by level: no deeper than VENDOR_DEPTH_MAX, every map key a string."""
    level: list[Any] = [body]
    for _ in range(limits.VENDOR_DEPTH_MAX):
        below: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                if not all(type(key) is str for key in container):
                    raise RemoteProtocolError("msgpack map with a key that is not a string")
                container = container.values()
            below += [item for item in container if isinstance(item, (dict, list))]
        if not below:
            return
        level = below
    raise RemoteProtocolError(f"msgpack body is nested deeper than {limits.VENDOR_DEPTH_MAX}")
