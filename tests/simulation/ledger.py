"""What the broker tells members of groups, and what it takes from them, as it passes on the wire.

| rule | broken when | |
|---|---|---|
| one owner | a member is given a partition that another has in the same generation | I15 |
| fenced | a commit is taken that came after somebody else was given the partition | I15 |
| no way back | a commit is taken, or a position told, below what stood when it came | I16 |

A request is judged by what had been answered when its last byte came; a broker that was started
anew knows no members, so owners are of one incarnation.  Nobody seeks in a run.
"""

from dataclasses import dataclass, field
from typing import Final

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.headers import decode_request, decode_response, parse_request_header
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message

from .world import World

# OffsetCommit, OffsetFetch, SyncGroup.
KEYS: Final = frozenset({8, 9, 14})

Place = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True)
class Asked:
    """A request, and how things stood when it came."""

    api_key: int
    api_version: int
    message: Message
    incarnation: int
    stands: dict[Place, int]
    owners: dict[Place, str]


@dataclass
class Ledger:
    """See the module."""

    world: World
    incarnation: int = 0
    stands: dict[Place, int] = field(default_factory=dict)
    owners: dict[Place, str] = field(default_factory=dict)
    _given: dict[tuple[int, int, Place], str] = field(default_factory=dict)

    def restarted(self) -> None:
        """The broker has been started anew."""
        self.incarnation += 1
        self.owners = {}

    def asked(self, frame: bytes) -> Asked:
        """A request has come."""
        header = parse_request_header(frame)
        message = decode_request(frame, header)
        return Asked(
            header.api_key,
            header.api_version,
            message,
            self.incarnation,
            dict(self.stands),
            dict(self.owners),
        )

    def answered(self, asked: Asked, frame: bytes) -> None:
        """Its answer leaves."""
        _, reply = decode_response(frame, asked.api_key, asked.api_version)
        match asked.message, reply:
            case SyncGroupRequest() as request, SyncGroupResponse() as response:
                self._given_to(asked, request, response)
            case OffsetCommitRequest() as request, OffsetCommitResponse() as response:
                self._taken(asked, request, response)
            case OffsetFetchRequest(), OffsetFetchResponse() as response:
                self._told(asked, response)

    def _given_to(
        self, asked: Asked, request: SyncGroupRequest, response: SyncGroupResponse
    ) -> None:
        if response.error_code or asked.incarnation != self.incarnation:
            return
        for topic, partition in assigned_partitions(response.assignment) or ():
            place = (request.group_id, topic, partition)
            key = (self.incarnation, request.generation_id, place)
            other = self._given.setdefault(key, request.member_id)
            if other != request.member_id:
                self.world.violation(
                    f"two owners: {place} of generation {request.generation_id} is given to "
                    f"{request.member_id} and to {other}"
                )
            self.owners[place] = request.member_id
            self.world.trace("given", *place, request.member_id)

    def _taken(
        self, asked: Asked, request: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> None:
        taken = {
            (topic.name, partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if not partition.error_code
        }
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.name, partition.partition_index) not in taken:
                    continue
                place = (request.group_id, topic.name, partition.partition_index)
                offset = partition.committed_offset
                self.world.trace("committed", *place, offset)
                owner = asked.owners.get(place, request.member_id)
                if owner != request.member_id:
                    self.world.violation(
                        f"not fenced: {request.member_id} commits {place}, which {owner} has"
                    )
                if offset < asked.stands.get(place, -1):
                    self.world.violation(
                        f"moved back: {place} is committed at {offset}, "
                        f"it stood at {asked.stands[place]}"
                    )
                self.stands[place] = max(offset, self.stands.get(place, 0))

    def _told(self, asked: Asked, response: OffsetFetchResponse) -> None:
        for group in response.groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    place = (group.group_id, topic.name, partition.partition_index)
                    if partition.error_code:
                        continue
                    # A commit whose answer was lost may have been taken: it stands once it is told.
                    offset = partition.committed_offset
                    if offset > self.stands.get(place, -1):
                        self.stands[place] = offset
                    least = asked.stands.get(place, -1)
                    if offset < least:
                        self.world.violation(
                            f"forgotten: {place} is told to stand at {offset}, it stood at {least}"
                        )
