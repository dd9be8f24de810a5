"""A TCP proxy that cuts connections where a test wants it: a network that fails, on one machine.

    client <--> proxy <--> broker

`cut_replies(n)`: the next connection passes n pieces of bytes from the broker on; the one
after is swallowed and the connection reset: the request was done, the answer never came.
`cut_reply_to(api key)`: the same for the reply to the next request of that kind, whichever
connection it comes on.
`cut_all()` resets what is open now.
`swallow()`: what the broker says from now on is counted, and passed to nobody.  `go_away()` ends
that, and resets what is open and who comes until `come_back()`.
`hold()`: what the client says is left where it is, until `release()`.  `hold_at(api key)`: from
the next request of that kind on.
`reply_delay_s`: so long each piece from the broker is held up.
`_passes`, for who derives from it: a piece is about to be passed on.
Threads, blocking sockets: slow and simple.
"""

import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

PIECE_BYTES = 1 << 16
HEAD_BYTES = 6
"""Of a request: its size and its api key."""


class CuttingProxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        """May be set until somebody comes."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._replies_left: list[int] = []
        self._lock = threading.Lock()
        self.cuts = 0
        self.swallowed = 0
        """How many pieces."""
        self._is_deaf = self._is_away = False
        self.reply_delay_s = 0.0
        self._may_take = threading.Event()
        self._may_take.set()
        self._held_key: int | None = None
        self._cut_key: int | None = None
        self._doomed: set[socket.socket] = set()
        """Connections to the broker whose next reply is not passed on."""
        self.is_held = threading.Event()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_away = True
        # shutdown wakes the accept; close alone would not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.release()
        self.cut_all()
        for thread in self._threads:
            thread.join(10)

    def cut_replies(self, *pieces: int) -> None:
        """Each number is for one connection: after so many pieces from the broker it is reset."""
        with self._lock:
            self._replies_left.extend(pieces)

    def cut_reply_to(self, api_key: int) -> None:
        self._cut_key = api_key

    def cut_no_more(self) -> None:
        """What was to be cut is not."""
        with self._lock:
            self._replies_left.clear()
        self._cut_key = None

    def swallow(self) -> None:
        self.swallowed = 0
        self._is_deaf = True

    def hold(self) -> None:
        self._may_take.clear()
        self.is_held.set()

    def hold_at(self, api_key: int) -> None:
        self._held_key = api_key

    def release(self) -> None:
        self.is_held.clear()
        self._may_take.set()

    def go_away(self) -> None:
        self._is_away = True
        self.cut_all()
        self._is_deaf = False

    def come_back(self) -> None:
        self._is_away = False

    def cut_all(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for sock in sockets:
            _reset(sock)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_away:
                _reset(client)
                continue
            try:
                broker = socket.create_connection(self.target)
            except OSError:  # it is being killed, or begun again
                _reset(client)
                continue
            with self._lock:
                if is_away := self._is_away:  # since a moment ago
                    _reset(client)
                    _reset(broker)
                else:
                    self._sockets |= {client, broker}
                    limit = self._replies_left.pop(0) if self._replies_left else None
            if is_away:
                continue
            self._start(self._copy, client, broker, None)
            self._start(self._copy, broker, client, limit, True)

    def _copy(
        self, source: socket.socket, sink: socket.socket, limit: int | None, is_reply: bool = False
    ) -> None:
        requests = _Requests()
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                if is_reply and self._is_deaf:
                    self.swallowed += 1
                    continue
                if limit is not None:
                    limit -= 1
                if is_reply and (source in self._doomed or (limit is not None and limit < 0)):
                    self.cuts += 1
                    break
                if is_reply and self.reply_delay_s:
                    time.sleep(self.reply_delay_s)
                if not is_reply:
                    keys = requests.begun(data)
                    if self._cut_key in keys:
                        self._cut_key = None
                        self._doomed.add(sink)
                    if self._held_key in keys:
                        self._held_key = None
                        self.hold()
                    self._may_take.wait()
                self._passes(sink if is_reply else source, data, is_reply=is_reply)
                sink.sendall(data)
        for sock in (source, sink):
            _reset(sock)
        with self._lock:
            self._sockets -= {source, sink}
            self._doomed -= {source, sink}

    def _passes(self, client: socket.socket, piece: bytes, *, is_reply: bool) -> None:
        """Of the connection of this client; both directions may call at the same time."""


class _Requests:
    """What a client says, however it comes: in a piece may be several requests, or part of one."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def begun(self, piece: bytes) -> set[int]:
        """Api keys of the requests of which this is the begin."""
        found = set()
        while piece:
            if not self._left:
                size = HEAD_BYTES - len(self._head)
                self._head, piece = self._head + piece[:size], piece[size:]
                if len(self._head) == HEAD_BYTES:
                    size, key = struct.unpack(">ih", self._head)
                    found.add(key)
                    self._head, self._left = b"", max(0, size - 2)
            size = min(self._left, len(piece))
            self._left, piece = self._left - size, piece[size:]
        return found


def _reset(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes the other thread that receives from it, then resets.
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
