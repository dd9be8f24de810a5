r"""A record as bytes for standard output: -f FORMAT with kcat's escapes, or -J, JSON lines.

    %t topic   %p partition   %o offset      %T timestamp, ms since the epoch
    %k key     %K its length  %s value       %S its length (-1 when null)
    %h headers, a=1,b=2       %% a percent sign
    \n \t \r \0 \\ \xXX

A null key or value prints as nothing, or as --null TEXT.  As in kcat nothing is added: a line
ends where the format says \n.

JSON, one object per line.  Text when the bytes are UTF-8, otherwise base64 under another name, so
that a reader can tell which it was:

    {"topic":"t","partition":0,"offset":7,"timestamp_ms":1700000000000,
     "key":"k","value_base64":"/wA=","headers":[{"name":"a","value":"1"}]}

One of a share group says its "delivery_count", too.
"""

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .escapes import unescape

if TYPE_CHECKING:
    from segbroker.client.acknowledging import ShareRecord
    from segbroker.client.records import Record


Formatter: TypeAlias = "Callable[[Record | ShareRecord], bytes]"
_Piece: TypeAlias = "Callable[[Record | ShareRecord, bytes], bytes]"

DEFAULT_FORMAT = r"%s\n"


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: "Record | ShareRecord", null: bytes) -> bytes:
    return b",".join(
        b"%b=%b" % (name.encode(), null if value is None else value)
        for name, value in record.headers
    )


PIECES: dict[str, _Piece] = {
    "t": lambda record, null: record.topic.encode(),
    "p": lambda record, null: b"%d" % record.partition,
    "o": lambda record, null: b"%d" % record.offset,
    "T": lambda record, null: b"%d" % record.timestamp_ms,
    "k": lambda record, null: null if record.key is None else record.key,
    "s": lambda record, null: null if record.value is None else record.value,
    "K": lambda record, null: _size(record.key),
    "S": lambda record, null: _size(record.value),
    "h": lambda record, null: _headers(record, null),
    "%": lambda record, null: b"%",
}
_PERCENT = re.compile(r"%(.?)", re.DOTALL)


def compile_format(text: str, null: str = "") -> Formatter:
    """A formatter for -f.

    Args:
        text: the format; see the module.
        null: printed for a null key, value or header value.

    Raises:
        ValueError: a percent or backslash escape that does not exist.
    """
    # Splitting by a group gives literal, letter, literal, letter, ..., literal.
    parts = _PERCENT.split(text)
    pieces: list[bytes | _Piece] = []
    for literal, letter in zip(parts[::2], [*parts[1::2], None], strict=True):
        pieces.append(unescape(literal))
        if letter is not None:
            if letter not in PIECES:
                raise ValueError(f"%{letter} is unknown; there are %{' %'.join(PIECES)}")
            pieces.append(PIECES[letter])
    plan = [piece for piece in pieces if piece != b""]
    null_bytes = os.fsencode(null)

    def formatter(record: "Record | ShareRecord") -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else piece(record, null_bytes) for piece in plan
        )

    return formatter


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def format_json(record: "Record | ShareRecord") -> bytes:
    """One JSON line, newline included."""
    facts: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    _put(facts, "key", record.key)
    _put(facts, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, object] = {"name": name}
        _put(header, "value", value)
        headers.append(header)
    facts["headers"] = headers
    if (deliveries := getattr(record, "delivery_count", None)) is not None:
        facts["delivery_count"] = deliveries
    return _encode(facts).encode() + b"\n"


def _put(facts: dict[str, object], name: str, data: bytes | None) -> None:
    """As text under its name, or as base64 under `<name>_base64`."""
    if data is None:
        facts[name] = None
        return
    try:
        facts[name] = data.decode()
    except UnicodeDecodeError:
        facts[f"{name}_base64"] = b64encode(data).decode()
