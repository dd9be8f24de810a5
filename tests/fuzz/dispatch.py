"""The fuzz target `dispatch`: any body, for any served api and version, to the real broker.

A whole broker in memory, real sockets.  An input chooses the api and the version; the rest is the
body behind a good header.  What must hold:

- who sends what decodes gets an answer of that api in that version, without a byte too many, or is
  made to wait where the request says how long (a fetch, a join); its connection stays
- who sends what does not decode loses the connection, and nobody else does
- nothing unforeseen is raised: the broker logs no `request_failed`, no failed group or reply

Deleting and creating under made-up names is part of it; no name is one of another input's.
"""

import atexit
import socket
from functools import cache
from typing import Any, Final

import structlog
from structlog.typing import EventDict

from segbroker.protocol.api_keys import SERVED, SERVED_VENDOR, ApiKey, request_class
from segbroker.protocol.errors import ProtocolError
from segbroker.protocol.headers import decode_request, decode_response, parse_request_header
from segbroker.protocol.messages_core import ProduceRequest
from segbroker.protocol.vendor import VendorKey, unpack
from segbroker.testing.embedded import EmbeddedBroker

CASES: Final[list[tuple[ApiKey | VendorKey, int]]] = [
    (key, version)
    for served in (SERVED, SERVED_VENDOR)
    for key, versions in served.items()
    for version in range(versions.min, versions.max + 1)
]
# They are answered when something happens, or after a time that the request names.
WAIT: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
UNFORESEEN: Final = frozenset(
    {
        "request_failed",
        "group_failed",
        "reply_failed",
        "lane_read_failed",
        "broker_failed",
        "deadline_failed",
        "flush_failed",
        "slot_not_abandoned",
        "slot_not_released",
    }
)
ANSWER_TIMEOUT_S: Final = 20.0
PATIENCE_S: Final = 0.02
CORRELATION_ID: Final = 0x5EED


class Watch:
    """A processor of log events that remembers what must not happen."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        if event.get("event") in UNFORESEEN:
            self.seen.append(dict(event))
        raise structlog.DropEvent


@cache
def served() -> tuple[EmbeddedBroker, Watch]:
    """The broker, started at the first input, and what watches its log."""
    broker = EmbeddedBroker(group_initial_rebalance_delay_ms=0).start()
    atexit.register(broker.stop)
    return broker, Watch()


def stop() -> None:
    """End the broker, if there is one."""
    if served.cache_info().currsize:
        served()[0].stop()
        served.cache_clear()


def frame(choice: int, body: bytes) -> tuple[ApiKey | VendorKey, int, bytes]:
    """The api, the version and the whole frame of an input."""
    key, version = CASES[choice % len(CASES)]
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + CORRELATION_ID.to_bytes(4, "big")
    header += b"\0\4fuzz"
    if key not in SERVED_VENDOR and version >= request_class(key).flexible_from:
        header += b"\0"
    return key, version, (len(header) + len(body)).to_bytes(4, "big") + header + body


def dispatch(data: bytes) -> None:
    key, version, sent = frame(int.from_bytes(data[:2], "big"), data[2:])
    broker, watch = served()
    host, _, port = broker.address.rpartition(":")
    structlog.configure(processors=[structlog.processors.format_exc_info, watch])
    is_good, has_answer = judge(key, sent[4:])
    with socket.create_connection((host, int(port))) as connection:
        waits = key in WAIT or not has_answer
        connection.settimeout(PATIENCE_S if waits else ANSWER_TIMEOUT_S)
        connection.sendall(sent)
        try:
            answer = receive(connection)
        except TimeoutError:
            assert waits, f"{key.name} {version} was not answered within {ANSWER_TIMEOUT_S} s"
            answer = None
    assert not watch.seen, f"{key.name} {version}: {watch.seen}"
    if answer is None:
        return
    if answer:
        assert is_good, f"{key.name} {version} answers what cannot be decoded"
        if key in SERVED_VENDOR:
            assert isinstance(unpack(answer[4:]), dict)
            assert int.from_bytes(answer[:4], "big") == CORRELATION_ID
        else:
            correlation_id, _ = decode_response(answer, key, version)
            assert correlation_id == CORRELATION_ID
    else:
        # To a produce that wants no answer, closing is the only way to say that it failed.
        closes = f"{key.name} {version} closes the connection on a good request"
        assert not is_good or not has_answer, closes


def judge(key: ApiKey | VendorKey, request: bytes) -> tuple[bool, bool]:
    """Whether a request decodes, and whether it wants an answer."""
    header = parse_request_header(request)
    try:
        if key in SERVED_VENDOR:
            unpack(request[header.body_position :])
            return True, True
        decoded = decode_request(request, header)
    except ProtocolError:
        return False, True
    return True, not (isinstance(decoded, ProduceRequest) and decoded.acks == 0)


def receive(connection: socket.socket) -> bytes:
    """A whole answer without its size; empty when the connection was closed."""
    size = exactly(connection, 4)
    return exactly(connection, int.from_bytes(size, "big")) if size else b""


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionResetError:
            piece = b""
        if not piece:
            assert not data, "an answer was cut off"
            return b""
        data += piece
    return data
