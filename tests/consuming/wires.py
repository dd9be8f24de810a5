"""Commits as they leave a client, and what the broker answers; and faults of single connections.

Which member sends one is known by its client id.

| fault | what happens to one connection, or an answer |
|---|---|
| silence | nothing comes for longer than a session, or a request |
| cut_at | it is reset behind so many bytes |
| refuse | the next answers of a kind say that it was not done, whether it was or not |
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import (
    decode_request,
    decode_response,
    encode_response,
    parse_request_header,
)
from segbroker.protocol.messages_groups import OffsetCommitRequest, OffsetCommitResponse
from segbroker.protocol.schema import Message

from ..simulation.network import Address, Network, Pipe, SimSocket
from ..simulation.tap import Frames
from .judge import Group
from .written import Topic, Written

COMMIT: Final = OffsetCommitRequest.message_key
ROWS = list[tuple[Topic, int, int]]
_GROUP: Final = (14, 15, 16)
"""The coordinator loads, is not there, is another."""
REFUSED: Final[dict[int, tuple[int, ...]]] = {
    1: (-1, 3, 6, 56, 74, 75, 100),
    2: (-1, 3, 6, 74),
    3: (3, 5),
    8: (*_GROUP, 3, 22, 25, 27, 100, 113),
    9: (*_GROUP, 25, 88, 113),
    10: (15,),
    11: (*_GROUP, 25),
    12: (*_GROUP, 22, 25, 27),
    14: (*_GROUP, 22, 25, 27),
    68: (*_GROUP, 25, 110),
}
"""By api key: the error codes of this or another broker that may come there."""


class Wires(Network):
    """A network that looks at what passes."""

    group: Group
    written: Written

    def watch(self, group: Group, written: Written) -> None:
        """From now on."""
        self.group, self.written = group, written
        self.ours: list[SimSocket] = []
        self._asked: dict[tuple[int, int], tuple[str, int, ROWS]] = {}
        self._kinds: dict[tuple[int, int], tuple[int, int]] = {}
        self._refusing: list[tuple[int, int]] = []
        self.on_accepted = self._look_at_answers

    def connect(self, client: SimSocket, address: Address) -> None:
        self.ours.append(client)
        frames, port = Frames(), client.local[1]

        def sent(data: bytes) -> None:
            for frame in frames.add(data):
                header = parse_request_header(frame)
                if (header.client_id or "").startswith("m"):
                    kind = header.api_key, header.api_version
                    self._kinds[port, header.correlation_id] = kind
                if header.api_key == COMMIT:
                    message = decode_request(frame, header)
                    assert isinstance(message, OffsetCommitRequest)
                    name = header.client_id or ""
                    rows = list(self._rows(message))
                    self._asked[port, header.correlation_id] = name, header.api_version, rows
                    for topic, partition, offset in rows:
                        self.group.commits(name, topic, partition, offset)

        client.on_sent = sent
        super().connect(client, address)

    def _rows(self, message: OffsetCommitRequest) -> Iterator[tuple[Topic, int, int]]:
        for topic in message.topics:
            found = (
                self.written.present(topic.name)
                if topic.name
                else self.written.by_id(topic.topic_id)
            )
            if found is not None:
                for row in topic.partitions:
                    yield found, row.partition_index, row.committed_offset

    def _look_at_answers(self, server: SimSocket) -> None:
        frames, port = Frames(), server.remote[1]

        def sent(data: bytes) -> None:
            for frame in frames.add(data):
                correlation_id = int.from_bytes(frame[:4], "big")
                asked = self._asked.pop((port, correlation_id), None)
                if asked is None:
                    continue
                name, version, rows = asked
                _, message = decode_response(frame, COMMIT, version)
                assert isinstance(message, OffsetCommitResponse)
                codes = [row.error_code for topic in message.topics for row in topic.partitions]
                for (topic, partition, offset), code in zip(rows, codes, strict=False):
                    if code == ErrorCode.NONE:
                        self.group.accepted(name, topic, partition, offset)
                    else:
                        self.world.trace("not_committed", name, partition, offset, code)

        server.on_sent = sent

    # Faults

    def arrive(self, pipe: Pipe) -> None:
        if pipe.flight and pipe.reader is not None and not pipe.reset:
            when, data = pipe.flight[0]
            pipe.flight[0] = when, self._refused(pipe.reader.local[1], data)
        super().arrive(pipe)

    def _refused(self, port: int, data: bytes) -> bytes:
        if len(data) < 8 or int.from_bytes(data[:4], "big") != len(data) - 4:
            return data  # no whole answer
        correlation_id = int.from_bytes(data[4:8], "big")
        kind = self._kinds.pop((port, correlation_id), None)
        found = next((one for one in self._refusing if kind and one[0] == kind[0]), None)
        if kind is None or found is None:
            return data
        self._refusing.remove(found)
        _, message = decode_response(data[4:], *kind)
        _refuse(message, found[1])
        self.world.trace("refused", port, *found)
        return b"".join(map(bytes, encode_response(message, *kind, correlation_id)))

    def heal(self) -> None:
        """No more answers are refused."""
        self._refusing.clear()

    def strike(self, kind: str, random: Random) -> None:
        """See the module."""
        if kind == "refuse":
            for _ in range(random.choice((1, 1, 3))):
                key = random.choice(list(REFUSED))
                self._refusing += [(key, random.choice(REFUSED[key]))] * random.choice((1, 1, 2, 5))
            return
        servers = [server for server in self.sockets if server.tx is not None]
        if not servers:
            return
        server = random.choice(servers)
        if kind == "silence":
            assert server.tx is not None
            server.tx.last_at = self.world.now() + random.choice((0.7, 2.5, 7.0))
            return
        left = random.choice((1, 20, 200, 1_000))
        look: Callable[[bytes], None] | None = server.on_sent

        def count(data: bytes) -> None:
            nonlocal left
            if look is not None:
                look(data)
            left -= len(data)
            if left < 0 and not server.closed:
                self.at(self.world.now(), lambda: None if server.closed else self.cut(server))

        server.on_sent = count


def _refuse(message: Message, code: int) -> None:
    """Have each code of it say so."""
    for field in type(message).fields():
        value = getattr(message, field.name)
        if field.name == "error_code":
            message.error_code = code  # type: ignore[attr-defined]
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Message):
                _refuse(one, code)
