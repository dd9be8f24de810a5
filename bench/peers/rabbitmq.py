"""RabbitMQ streams, over the stream protocol of its plugin.

    size u32 | key u16 | version u16 | [correlation id u32] | body        strings: i16 size, bytes

A request's answer has the key with the top bit set, the correlation id and a code (1: done).
A confirm means that the leader wrote the record; RabbitMQ never syncs a stream before it.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack_from
from typing import Self
from uuid import uuid4

from . import programs
from .base import Peer, free_port, process
from .sockets import RECEIVE_SIZE

_DECLARE_PUBLISHER, _PUBLISH, _CONFIRM, _SUBSCRIBE, _DELIVER, _CREDIT = 1, 2, 3, 7, 8, 9
_CREATE, _PEER_PROPERTIES, _SASL_HANDSHAKE, _SASL_AUTHENTICATE, _TUNE, _OPEN = (
    13,
    17,
    18,
    19,
    20,
    21,
)
_CREDITS = 50
_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def _string(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


def _frame(key: int, body: bytes) -> bytes:
    return pack(">IHH", 4 + len(body), key, 1) + body


class _Frames:
    """Whole frames out of a stream of bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def split(self, data: bytes) -> list[memoryview]:
        self._buffer += data
        position, whole = 0, memoryview(bytes(self._buffer))
        found = []
        while len(whole) - position >= 4:
            end = position + 4 + int.from_bytes(whole[position : position + 4], "big")
            if end > len(whole):
                break
            found.append(whole[position + 4 : end])
            position = end
        del self._buffer[:position]
        return found


class _Connection:
    """An open connection to the virtual host /."""

    def __init__(self, peer: "RabbitMQ") -> None:
        self.socket = peer.connect()
        self.frames = _Frames()
        self._call(_PEER_PROPERTIES, pack(">I", 0))
        self._call(_SASL_HANDSHAKE, b"")
        self.socket.sendall(
            _frame(
                _SASL_AUTHENTICATE,
                pack(">I", 1) + _string("PLAIN") + pack(">I", 12) + b"\0guest\0guest",
            )
        )
        while _TUNE not in self._keys():
            pass
        self.socket.sendall(_frame(_TUNE, pack(">II", 1 << 20, 0)))
        self._call(_OPEN, _string("/"))

    def _keys(self) -> list[int]:
        data = self.socket.recv(RECEIVE_SIZE)
        assert data, "RabbitMQ closed the connection"
        return [unpack_from(">H", frame)[0] for frame in self.frames.split(data)]

    def _call(self, key: int, body: bytes) -> None:
        self.socket.sendall(_frame(key, pack(">I", 1) + body))
        while True:
            data = self.socket.recv(RECEIVE_SIZE)
            assert data, "RabbitMQ closed the connection"
            for frame in self.frames.split(data):
                if unpack_from(">H", frame)[0] == key | 0x8000:
                    (code,) = unpack_from(">H", frame, 8)
                    assert code == 1, f"request {key} was answered with code {code}"
                    return

    call = _call


class RabbitWriter(_Connection):
    def __init__(self, peer: "RabbitMQ", topic: str) -> None:
        super().__init__(peer)
        self._id = 0
        self.call(_DECLARE_PUBLISHER, b"\0" + _string("") + _string(topic))

    def request(self, values: Sequence[bytes]) -> bytes:
        first, self._id = self._id, self._id + len(values)
        parts = [pack(">BI", 0, len(values))]
        for n, value in enumerate(values, first):
            data = pack(">I", len(value))  # AMQP 1.0: one data section, a long binary
            parts.append(pack(">QI", n, len(value) + 8) + b"\0Su\xb0" + data + value)
        return _frame(_PUBLISH, b"".join(parts))

    def acked(self, data: bytes) -> int:
        count = 0
        for frame in self.frames.split(data):
            (key,) = unpack_from(">H", frame)
            assert key == _CONFIRM, f"frame {key}"
            count += unpack_from(">I", frame, 5)[0]
        return count


class RabbitReader(_Connection):
    def __init__(self, peer: "RabbitMQ", topic: str) -> None:
        super().__init__(peer)
        first = pack(">HHI", 1, _CREDITS, 0)  # from the first record on; credits; no properties
        self.socket.sendall(_frame(_SUBSCRIBE, pack(">IB", 1, 0) + _string(topic) + first))

    def received(self, data: bytes) -> int:
        records = chunks = 0
        for frame in self.frames.split(data):
            if unpack_from(">H", frame)[0] == _DELIVER:
                records += unpack_from(">I", frame, 9)[0]
                chunks += 1
        if chunks:
            self.socket.sendall(_frame(_CREDIT, pack(">BH", 0, chunks)))
        return records


def _machine_of(group: int) -> int:
    """The Erlang machine among the processes of the start script's group."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # it has just ended
        if "(beam.smp)" in text and int(text.rpartition(")")[2].split()[2]) == group:
            return int(stat.parent.name)
    return group


class RabbitMQ(Peer):
    name = "RabbitMQ streams"
    stored = "written by the leader, never synced before the confirm"
    synced = ""

    @classmethod
    @contextmanager
    def start(cls, folder: Path, durable: bool) -> Iterator[Self]:
        program = programs.debian(_PROGRAM, "rabbitmq-server")
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
            capture_output=True,
            text=True,
        ).stdout
        found = re.match(r"[0-9.]+", said)
        port, amqp, dist, epmd = (free_port() for _ in range(4))
        (folder / "rabbit.conf").write_text(
            f"stream.listeners.tcp.1 = 127.0.0.1:{port}\nlisteners.tcp.1 = 127.0.0.1:{amqp}\n"
        )
        (folder / "plugins").write_text("[rabbitmq_stream].\n")
        environment = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }
        try:
            with process([program], folder, port, environment) as script:
                yield cls(f"127.0.0.1:{port}", _machine_of(script), found[0] if found else "")
        finally:  # Erlang's port mapper, started by the node on a port of its own, outlives it
            quiet = {**os.environ, "ERL_EPMD_PORT": str(epmd)}
            subprocess.run(["epmd", "-kill"], env=quiet, capture_output=True)

    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        name = f"bench-{uuid4().hex[:12]}"
        connection = _Connection(self)
        connection.call(_CREATE, _string(name) + pack(">I", 0))
        connection.socket.shutdown(socket.SHUT_RDWR)
        connection.socket.close()
        return name

    def writer(self, topic: str, partition: int = 0) -> RabbitWriter:
        return RabbitWriter(self, topic)

    def reader(self, topic: str, size: int) -> RabbitReader:
        return RabbitReader(self, topic)
