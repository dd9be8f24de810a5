"""A proxy with a door for each client, which does to the answers what a fault says.

    client --> door --> broker      as it is, but for the addresses in the answers, which are the
                |                   door's
                +-----> stranger    who is asked what is not to be done: a broker with nothing in
                                    it, whose answer has the rows of the question

One thread for all doors.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import trio

from segbroker.protocol.api_keys import ApiKey, is_vendor
from segbroker.protocol.errors import LocalProtocolError
from segbroker.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
    parse_request_header,
)
from segbroker.protocol.messages_core import ProduceRequest
from segbroker.protocol.schema import Message

from .deeds import Code, Cut, Deed, Emptied, Fault, Miscounted, Missing, Silent, apply

# What is answered without being asked of the broker, where it is answered with an error.
CHANGES: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
_START_S: Final = 60
_SIZE: Final = struct.Struct(">i")
_RESET: Final = struct.pack("ii", 1, 0)

Address = tuple[str, int]


@dataclass
class _Asked:
    """A request whose answer is due.

    Attributes:
        told: the answer, where the broker is not asked.
    """

    header: RequestHeader
    deed: Deed | None
    told: bytes | None = None


@dataclass
class Door:
    """The address of one client.

    Attributes:
        seen: requests, by api.
        happened: how often something was done that made a difference.
        open_count: connections.
        has_lied: the broker has done what it is told not to have done: no stranger had such a row.
    """

    board: "Switchboard"
    port: int
    fault: Fault | None
    seen: Counter[int] = field(default_factory=Counter)
    happened: int = 0
    open_count: int = 0
    has_lied: bool = False
    closes: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def heal(self) -> None:
        """All is well from now on."""
        self.fault = None

    def close(self) -> None:
        self.board.soon(self.closes)

    def _deed(self, key: int) -> Deed | None:
        """What is done to the answer of this request, which is the next of its api."""
        self.seen[key] += 1
        fault = self.fault
        return fault.of(self.seen[key]) if fault is not None and key == fault.key else None

    def _happens(self) -> None:
        self.happened += 1
        self.board.happens()

    async def serve(self, client: trio.SocketStream) -> None:
        self.open_count += 1
        try:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                async with await _reached(self.board.broker) as broker:
                    await self._pass(client, broker)
        finally:
            self.open_count -= 1
            with trio.CancelScope(shield=True):
                await client.aclose()

    async def _pass(self, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        give, take = trio.open_memory_channel[_Asked](1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, client, broker, take, nursery.cancel_scope)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while (frame := await _frame(client)) is not None:
                    asked = await self._asked(frame)
                    if isinstance(asked.deed, Cut) and asked.deed.where == "before":
                        self._happens()
                        _reset(client)
                        break
                    if asked.told is None:
                        await broker.send_all(_SIZE.pack(len(frame)) + frame)
                    if not _is_unanswered(frame, asked.header):
                        await give.send(asked)
            nursery.cancel_scope.cancel()

    async def _asked(self, frame: bytes) -> _Asked:
        header = parse_request_header(frame)
        deed = self._deed(header.api_key)
        asked = _Asked(header, deed)
        is_undone = isinstance(deed, Emptied | Missing) or (
            isinstance(deed, Code) and not deed.is_done
        )
        if is_undone and header.api_key in CHANGES:
            async with await _reached(self.board.stranger) as stranger:
                await stranger.send_all(_SIZE.pack(len(frame)) + frame)
                told = await _frame(stranger)
            # Where it has no such place, the broker may.
            if told is not None and self._meddled(told, asked)[1]:
                asked.told = told
        return asked

    async def _answer(
        self,
        client: trio.SocketStream,
        broker: trio.SocketStream,
        take: "trio.MemoryReceiveChannel[_Asked]",
        scope: trio.CancelScope,
    ) -> None:
        is_silent = False
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for asked in take:
                frame = await _frame(broker) if asked.told is None else asked.told
                if frame is None:
                    break
                deed = asked.deed
                is_silent = is_silent or isinstance(deed, Silent)
                if is_silent:  # for the rest of the connection: answers come in order
                    self._happens()
                    continue
                if isinstance(deed, Cut):
                    self._happens()
                    data = _SIZE.pack(len(frame)) + frame
                    if deed.where == "within":
                        await client.send_all(data[: max(1, int(len(data) * deed.share))])
                    _reset(client)
                    break
                data, has_happened = self._meddled(frame, asked)
                if has_happened:
                    self._happens()
                if has_happened and asked.told is None and isinstance(deed, Code):
                    self.has_lied = self.has_lied or not deed.is_done
                await client.send_all(data)
        scope.cancel()

    def _meddled(self, frame: bytes, asked: _Asked) -> tuple[bytes, bool]:
        """The answer as the client gets it, with its size, and whether it is another."""
        header, deed = asked.header, asked.deed
        plain = _SIZE.pack(len(frame)) + frame
        if is_vendor(header.api_key):
            return plain, False
        correlation_id, message = decode_response(frame, header.api_key, header.api_version)
        if isinstance(deed, Miscounted):
            correlation_id += deed.by
        _readdress(message, self.port)
        version = header.api_version
        if header.api_key == ApiKey.API_VERSIONS and frame[4:6] == b"\x00\x23":
            version = 0
        before = _encoded(message, header.api_key, version, correlation_id)
        if deed is None:
            return before, False
        apply(deed, message)
        try:
            after = _encoded(message, header.api_key, version, correlation_id)
        except LocalProtocolError:  # null where none may be
            return before, False
        return after, after != before or isinstance(deed, Miscounted)


def _encoded(message: Message, key: int, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_response(message, key, version, correlation_id))


def _readdress(message: Message, port: int) -> None:
    names = type(message).__slots__
    if "host" in names and "port" in names and message.port > 0:  # type: ignore[attr-defined]
        message.host, message.port = "127.0.0.1", port  # type: ignore[attr-defined]
    for field_ in type(message).fields():
        if field_.struct is not None:
            value = getattr(message, field_.name)
            for each in (value or ()) if field_.is_array else (value,):
                if each is not None:
                    _readdress(each, port)


def _is_unanswered(frame: bytes, header: RequestHeader) -> bool:
    if header.api_key != ApiKey.PRODUCE:
        return False
    request = decode_request(memoryview(frame), header)
    assert isinstance(request, ProduceRequest)
    return request.acks == 0


async def _reached(address: Address) -> trio.SocketStream:
    sock = trio.socket.socket()
    await sock.connect(address)
    return trio.SocketStream(sock)


async def _exactly(stream: trio.SocketStream, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


async def _frame(stream: trio.SocketStream) -> bytes | None:
    """The next one, without its size; None: the stream has ended."""
    head = await _exactly(stream, _SIZE.size)
    return None if head is None else await _exactly(stream, _SIZE.unpack(head)[0])


def _reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()


class Switchboard:
    """Doors to a broker.

    Attributes:
        happens: called, in the switchboard's thread, before the client hears of something done.
    """

    happens: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, broker: Address, stranger: Address) -> None:
        self.broker = broker
        self.stranger = stranger
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="switchboard", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_S), "the switchboard does not start"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._nursery is not None
        self.soon(self._nursery.cancel_scope.cancel)
        self._thread.join(_START_S)

    def soon(self, do: Callable[[], None]) -> None:
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(do)

    def door(self, fault: Fault | None) -> Door:
        """A new one.  From any thread but its own."""
        return trio.from_thread.run_sync(self._open, fault, trio_token=self._token)

    def _open(self, fault: Fault | None) -> Door:
        assert self._nursery is not None
        listener = trio.socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound at once: no name is looked up.
        listener._sock.bind(("127.0.0.1", 0))  # type: ignore[attr-defined]
        listener.listen()
        door = Door(self, listener.getsockname()[1], fault)
        scope = trio.CancelScope()
        door.closes = scope.cancel
        self._nursery.start_soon(self._listen, door, listener, scope)
        return door

    async def _listen(
        self, door: Door, listener: trio.socket.SocketType, scope: trio.CancelScope
    ) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                try:
                    while True:
                        sock, _ = await listener.accept()
                        nursery.start_soon(door.serve, trio.SocketStream(sock))
                finally:
                    listener.close()

    def _main(self) -> None:
        trio.run(self._run)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._ready.set()
            await trio.sleep_forever()
