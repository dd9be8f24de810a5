"""Redis Streams: XADD pipelined, XREAD from the last id on."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from uuid import uuid4

from . import programs
from .base import Peer, free_port, process

_ENTRY = b"\r\n*2\r\n$1\r\nv\r\n$"  # between the id and the length of the value
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n")


def _command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class RedisWriter:
    def __init__(self, peer: "Redis", topic: str) -> None:
        self.socket = peer.connect()
        self._topic = topic.encode()

    def request(self, values: Sequence[bytes]) -> bytes:
        return b"".join([_command(b"XADD", self._topic, b"*", b"v", value) for value in values])

    def acked(self, data: bytes) -> int:
        assert b"-ERR" not in data, data
        assert b"-MISCONF" not in data, data
        return data.count(b"$")  # each reply is one bulk string, an id of digits


class RedisReader:
    def __init__(self, peer: "Redis", topic: str, size: int) -> None:
        self.socket = peer.connect()
        self._topic = topic.encode()
        self._entries_max = b"%d" % max(16, min(10_000, (1 << 20) // size))
        self._buffer = bytearray()
        self._expected = self._seen = self._scanned = 0
        self._ask(b"0-0")

    def _ask(self, last: bytes) -> None:
        words = (b"XREAD", b"COUNT", self._entries_max, b"BLOCK", b"0", b"STREAMS")
        self.socket.sendall(_command(*words, self._topic, last))

    def received(self, data: bytes) -> int:
        buffer = self._buffer
        buffer += data
        if not self._expected:
            head = _HEAD.match(buffer)
            if head is None:
                return 0
            self._expected = int(head[1])
        found = buffer.count(_ENTRY, self._scanned)
        self._seen += found
        if found:
            self._scanned = buffer.rfind(_ENTRY) + len(_ENTRY)
        if self._seen == self._expected:
            line = buffer.find(b"\r\n", self._scanned)
            end = line + 4 + int(buffer[self._scanned : line]) if line >= 0 else -1
            if line >= 0 and len(buffer) >= end:
                last_at = self._scanned - len(_ENTRY)
                last = bytes(buffer[buffer.rfind(b"\r\n", 0, last_at) + 2 : last_at])
                self._buffer = bytearray()
                self._expected = self._seen = self._scanned = 0
                self._ask(last)
        return found


class Redis(Peer):
    name = "Redis Streams"
    stored = "AOF, appendfsync everysec: acknowledged before the write"
    synced = "AOF, appendfsync always"

    @classmethod
    @contextmanager
    def start(cls, folder: Path, durable: bool) -> Iterator[Self]:
        program = programs.debian("redis-server", "redis-server")
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"v=([0-9.]+)", said)
        port = free_port()
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]
        command += ["--appendfsync", "always" if durable else "everysec"]
        with process(command, folder, port) as pid:
            yield cls(f"127.0.0.1:{port}", pid, found[1] if found else "")

    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        return f"bench-{uuid4().hex[:12]}"  # the first XADD makes it

    def writer(self, topic: str, partition: int = 0) -> RedisWriter:
        return RedisWriter(self, topic)

    def reader(self, topic: str, size: int) -> RedisReader:
        return RedisReader(self, topic, size)
