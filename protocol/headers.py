"""Request and response headers, and whole frames with them.

    request   size i32 | api_key i16 | api_version i16 | correlation_id i32 | client_id string?
              | tag section (flexible requests)                                       | body
    response  size i32 | correlation_id i32
              | tag section (flexible, but never ApiVersions)                         | body

`client_id` keeps its int16 length in flexible requests (KIP-482).  Bytes behind a request's body
are tolerated: librdkafka 2.16 sends three with Metadata 13.

Frames to send are lists of parts, the size included: to be written in order, record bytes by
reference.  The body of segbroker's own keys is a msgpack map (vendor.py).

Invariant: whatever the bytes, decoding answers or raises RemoteProtocolError; only a version that
is not known here raises UnsupportedVersion (the broker has asked `api_keys.is_served` by then).
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from . import limits
from .api_keys import (
    ApiKey,
    is_flexible,
    request_class,
    response_class,
    response_header_version,
)
from .errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from .fields import Part
from .primitives import Buffer, repaired_text, skip_tags
from .schema import Message
from .vendor import pack

__all__ = [
    "RequestHeader",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_vendor_request",
    "encode_vendor_response",
    "frame_size",
    "parse_correlation_id",
    "parse_request_header",
]

_REQUEST: Final = Struct(">hhih")  # api key, version, correlation id, size of the client id
_FRAME_REQUEST: Final = Struct(">ihhi")
_FRAME_RESPONSE: Final = Struct(">ii")
_SIZE: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_REFUSED: Final = _SHORT.pack(ErrorCode.UNSUPPORTED_VERSION)


class RequestHeader(NamedTuple):
    """What stands before a request's body; `body_position` is where that begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame (without its size).  Raises RemoteProtocolError.

    Any api key and version passes: whether they are served is the caller's next question.  The
    tag section of a flexible request is skipped where the version is known to be flexible.
    """
    if len(frame) < _REQUEST.size:
        raise RemoteProtocolError(f"request of {len(frame)} bytes, a header has {_REQUEST.size}")
    key, version, correlation_id, size = _REQUEST.unpack_from(frame)
    position = _REQUEST.size
    client_id = None
    if size >= 0:
        begin, position = position, position + size
        if position > len(frame):
            raise RemoteProtocolError(f"client id of {size} bytes, {len(frame) - begin} left")
        try:
            client_id = str(frame[begin:position], "utf-8")
        except UnicodeDecodeError:
            client_id = repaired_text(frame[begin:position])
    elif size != -1:
        raise RemoteProtocolError(f"client id of {size} bytes")
    if is_flexible(key, version):
        position = _skip_header_tags(frame, position)
    return RequestHeader(key, version, correlation_id, client_id, position)


def _skip_header_tags(frame: Buffer, position: int) -> int:
    try:
        count = frame[position]
        position += 1
        return skip_tags(frame, position, count, len(frame)) if count else position
    except IndexError as exc:
        raise RemoteProtocolError("frame ends inside its header") from exc


def decode_request(frame: Buffer, header: RequestHeader, items_max: int | None = None) -> Message:
    """The body of a request; bytes behind it are tolerated.

    items_max: how many items it may have, at most REQUEST_ITEMS_COUNT_MAX.

    Raises RemoteProtocolError, of these TooManyItems beyond a limit, UnsupportedVersion.
    """
    cls = request_class(header.api_key)
    position = header.body_position
    message, _ = cls.decode(frame, header.api_version, position, items_max=items_max)
    return message


def encode_request(
    message: Message, api_version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """The parts of a whole request frame.  Raises LocalProtocolError, UnsupportedVersion."""
    head = _request_head(message.message_key, api_version, correlation_id, client_id)
    if message.is_flexible(api_version):
        head.append(0)
    return _sized(message.encode(api_version, head))


def encode_vendor_request(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    body: Mapping[str, Any],
) -> list[Part]:
    """The parts of a request with a msgpack body."""
    head = _request_head(api_key, api_version, correlation_id, client_id)
    head += pack(body)
    return _sized([head])


def _request_head(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    head = bytearray(_FRAME_REQUEST.pack(0, api_key, api_version, correlation_id))
    if client_id is None:
        head += _SHORT.pack(-1)
    else:
        name = client_id.encode()
        if len(name) > limits.CLIENT_ID_SIZE_MAX:
            raise LocalProtocolError(
                f"client id of {len(name)} bytes, limit {limits.CLIENT_ID_SIZE_MAX}"
            )
        head += _SHORT.pack(len(name)) + name
    return head


def encode_response(
    message: Message, api_key: int, api_version: int, correlation_id: int
) -> list[Part]:
    """The parts of a whole response frame.  Raises LocalProtocolError, UnsupportedVersion."""
    head = bytearray(_FRAME_RESPONSE.pack(0, correlation_id))
    if response_header_version(api_key, api_version):
        head.append(0)
    return _sized(message.encode(api_version, head))


def encode_vendor_response(body: Mapping[str, Any], correlation_id: int) -> list[Part]:
    """The parts of a response with a msgpack body."""
    head = bytearray(_FRAME_RESPONSE.pack(0, correlation_id))
    head += pack(body)
    return _sized([head])


def frame_size(parts: list[Part]) -> int:
    """The bytes of a frame in parts, size field included."""
    return sum(map(len, parts))


def _sized(parts: list[Part]) -> list[Part]:
    size = frame_size(parts) - _SIZE.size
    if size > limits.FRAME_SIZE_MAX:
        raise LocalProtocolError(f"frame of {size} bytes, limit {limits.FRAME_SIZE_MAX}")
    head = parts[0]
    assert isinstance(head, bytearray), "the head of a frame is where its size goes"
    _SIZE.pack_into(head, 0, size)
    return parts


def parse_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response frame (without its size)."""
    if len(frame) < _SIZE.size:
        raise RemoteProtocolError(f"response of {len(frame)} bytes, a header has {_SIZE.size}")
    correlation_id: int = _SIZE.unpack_from(frame)[0]
    return correlation_id


def decode_response(frame: Buffer, api_key: int, api_version: int) -> tuple[int, Message]:
    """The correlation id and the message of a response frame.

    Raises RemoteProtocolError, UnsupportedVersion.  A server that refuses the version of an
    ApiVersions request answers in version 0 whatever was asked: such a response (error 35 in its
    first field, where every version has it) is decoded as version 0.
    """
    correlation_id = parse_correlation_id(frame)
    position = _SIZE.size
    if response_header_version(api_key, api_version):
        position = _skip_header_tags(frame, position)
    elif api_key == ApiKey.API_VERSIONS and frame[position : position + 2] == _REFUSED:
        api_version = 0
    message, _ = response_class(api_key).decode(frame, api_version, position)
    return correlation_id, message
