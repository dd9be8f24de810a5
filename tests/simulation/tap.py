"""What passes on the broker's connections: every request answered, in order, in time (I25).

Requests are counted when the broker has read their last byte, replies when their first byte is
accepted by the socket.  Each reply must carry the correlation id of the oldest unanswered request:
that is what clients rely on.  A connection that is closed owes nothing any more.

The workload sends no acks=0, so every request has a reply.  What members of groups ask and are told
is handed to ledger.py, and of share groups to share_ledger.py.
"""

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from .ledger import KEYS, Ledger
from .network import Network, SimSocket
from .share_ledger import KEYS as SHARE_KEYS
from .share_ledger import ShareLedger
from .world import World

_HEAD: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")
_ID: Final = struct.Struct(">i")


class Frames:
    """Bytes as they pass, cut into frames without their size."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The frames that are whole now."""
        held = self._held
        held += data
        frames = []
        while len(held) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(held)
            if len(held) < _SIZE.size + size:
                break
            frames.append(bytes(held[_SIZE.size : _SIZE.size + size]))
            del held[: _SIZE.size + size]
        return frames


class _Line:
    """One connection."""

    def __init__(self, world: World, sock: SimSocket, ledger: Ledger, shares: ShareLedger) -> None:
        self.world = world
        self.ledger = ledger
        self.shares = shares
        self.port = sock.remote[1]
        self.owed: deque[tuple[float, int, int]] = deque()  # since, api key, correlation id
        self._asked: dict[int, Callable[[bytes], None]] = {}
        self._requests = Frames()
        self._replies = Frames()
        sock.on_received = self._received
        sock.on_sent = self._sent

    def _received(self, data: bytes) -> None:
        for frame in self._requests.add(data):
            key, _, correlation_id = _HEAD.unpack_from(frame)
            if key in KEYS:
                asked = self.ledger.asked(frame)
                self._asked[correlation_id] = partial(self.ledger.answered, asked)
            elif key in SHARE_KEYS:
                said = self.shares.asked(frame, self.port)
                self._asked[correlation_id] = partial(self.shares.answered, said)
            self.world.trace("request", self.port, key, correlation_id)
            self.owed.append((self.world.now(), key, correlation_id))

    def _sent(self, data: bytes) -> None:
        for frame in self._replies.add(data):
            (correlation_id,) = _ID.unpack_from(frame)
            if correlation_id in self._asked:
                self._asked.pop(correlation_id)(frame)
            self.world.trace("reply", self.port, correlation_id)
            if not self.owed:
                self.world.violation(f"a reply {correlation_id} that nobody asked for")
                return
            since, key, expected = self.owed.popleft()
            if correlation_id != expected:
                self.world.violation(
                    f"reply {correlation_id} out of order, {expected} (api {key}) is due"
                )
            took = self.world.now() - since
            slowest = self.world.counts.get("slowest_reply_ms", 0)
            self.world.counts["slowest_reply_ms"] = max(slowest, int(took * 1000))


class Tap:
    """All connections of the broker."""

    def __init__(self, world: World, network: Network, limit_s: float) -> None:
        """limit_s: the longest that a request may wait for its reply on an open connection."""
        self._world = world
        self._limit_s = limit_s
        self.ledger = Ledger(world)
        self.shares = ShareLedger(world)
        self._lines: dict[SimSocket, _Line] = {}
        network.on_accepted = self._accepted

    def _accepted(self, sock: SimSocket) -> None:
        self._lines[sock] = _Line(self._world, sock, self.ledger, self.shares)

    def look(self) -> None:
        """Complain about requests that wait too long."""
        for sock, line in list(self._lines.items()):
            if sock.closed:
                del self._lines[sock]
            elif line.owed and self._world.now() - line.owed[0][0] > self._limit_s:
                since, key, correlation_id = line.owed.popleft()
                self._world.violation(
                    f"request {correlation_id} (api {key}) of connection {line.port} has waited "
                    f"{self._world.now() - since:.1f} s for its reply"
                )
