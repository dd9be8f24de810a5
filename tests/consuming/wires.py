"""Commits as they leave a client, and what the broker answers; and faults of single connections.

Which member sends one is known by its client id.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_request, decode_response, parse_request_header
from segbroker.protocol.messages_groups import OffsetCommitRequest, OffsetCommitResponse

from ..simulation.network import Address, Network, SimSocket
from ..simulation.tap import Frames
from .judge import Group
from .written import Topic, Written

COMMIT: Final = OffsetCommitRequest.message_key
ROWS = list[tuple[Topic, int, int]]


class Wires(Network):
    """A network that looks at what passes."""

    group: Group
    written: Written

    def watch(self, group: Group, written: Written) -> None:
        """From now on."""
        self.group, self.written = group, written
        self.ours: list[SimSocket] = []
        self._asked: dict[tuple[int, int], tuple[str, int, ROWS]] = {}
        self.on_accepted = self._look_at_answers

    def connect(self, client: SimSocket, address: Address) -> None:
        self.ours.append(client)
        frames, port = Frames(), client.local[1]

        def sent(data: bytes) -> None:
            for frame in frames.add(data):
                header = parse_request_header(frame)
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

    def strike(self, kind: str, random: Random) -> None:
        """One connection is silent for a while, or is cut behind so many bytes."""
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
