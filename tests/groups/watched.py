"""What clients' members are told, and say, by the bytes that pass: a proxy before the broker.

    member --- request --> proxy: noted, then passed on --> broker
           <-- reply ----- proxy: passed on, noted before <--

So what is noted of a request precedes what the broker makes of it, and what is noted of a reply
what its member does then.  Members are told apart by their client ids: one for each life.  What is
noted goes to the ledger of the group:

    told        an assignment: SyncGroup's, or the heartbeat's of the consumer protocol
    let go      a request that says what a member has (JoinGroup, the heartbeat) without what it was
                told, by the newer protocol only; one that leaves; a refusal of the member
    placed      where the group stands in a partition was answered since it was told of that

A commit is judged where its sender has the partition and is placed in it.  librdkafka hands its
application an assignment of the consumer protocol that it has given back already, and then commits
what it does not have: that is not judged.  And when others of its partitions go, it may read again
what it has read, without asking where the group stands, and commit that: its own seek.

What a member was told and does not say to have binds nobody until it does: it may not have come to
it yet, or have missed being told otherwise.

A member of our client has two connections, and what it says on both is noted in any order.  So
what is answered to who has left and not joined again tells it nothing, however it was asked; nor
does an answer that comes when its member has asked again: it was given up, with its connection.
"""

import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.consumer_protocol import assigned_partitions, decode_subscription
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    parse_correlation_id,
    parse_request_header,
)
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message
from tests.support.cutting_proxy import CuttingProxy

from .ledger import Ledger, Sent

SESSION_S: Final = {"classic": 6.0, "consumer": 45.0}
"""By protocol.  A member may be late on a machine that is busy."""
TOLD_MAX: Final = 300
"""Requests and replies, of all groups, that are told with a failure: those before it."""
NOTED: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
    }
)
OUT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


@dataclass
class _Member:
    """One life of one.

    told: what it was told last.
    has: of that what it said to have, or may have come to since; and what it had before and has not
        given up.
    placed: where it was told since then from where to read.
    tenures: how often each partition was given, and given up.
    is_asking: its last heartbeat is not answered.
    era: how often it has joined, left, or given up an answer; what it had asked before is answered
        to who it was.
    has_left: since it joined last.
    """

    name: str
    ledger: Ledger
    told: set[int] = field(default_factory=set)
    has: set[int] = field(default_factory=set)
    placed: set[int] = field(default_factory=set)
    tenures: dict[int, int] = field(default_factory=dict)
    is_asking: bool = False
    era: int = 0
    has_left: bool = False

    def beats(self) -> None:
        """What a lost answer said is not known: it is told once more."""
        if self.is_asking:
            self.told = set()
            self.era += 1
        self.is_asking = True

    def joins(self) -> None:
        self.era += 1
        self.has_left = False

    def is_told(self, partitions: set[int], generation: int | None = None) -> None:
        for new in partitions - self.has:
            self.placed.discard(new)
            self._turns(new)
        self.told = partitions
        self._claim(partitions | self.has, generation)

    def says(self, partitions: set[int]) -> None:
        """It has these, and no others."""
        self.lets_go(self.has - partitions)
        if again := (self.told & partitions) - self.has:
            self._claim(self.has | again)

    def lets_go(self, partitions: set[int]) -> None:
        self.has -= partitions
        for partition in partitions:
            self._turns(partition)
        self.ledger.let_go(self.name, partitions)

    def leaves(self) -> None:
        self.has_left = True
        self.is_out()

    def is_out(self) -> None:
        self.told = set()
        self.lets_go(set(self.has))

    def _turns(self, partition: int) -> None:
        self.tenures[partition] = self.tenures.get(partition, 0) + 1

    def _claim(self, partitions: set[int], generation: int | None = None) -> None:
        self.has = set(partitions)
        self.ledger.told(self.name, partitions, generation)


@dataclass
class _Asked:
    """A request that has passed, and what held then."""

    header: RequestHeader
    request: Message
    member: _Member
    asked_s: float
    era: int = -1
    sent: list[tuple[Sent, int]] = field(default_factory=list)
    """Commits, and the tenure of the sender in each partition."""
    least: dict[int, int] = field(default_factory=dict)
    """Where the group stood, and the tenures of who asks for that."""
    tenures: dict[int, int] = field(default_factory=dict)


@dataclass
class _Wire:
    requests: FrameReader = field(default_factory=lambda: FrameReader(size_min=0))
    replies: FrameReader = field(default_factory=lambda: FrameReader(size_min=0))
    asked: dict[int, _Asked] = field(default_factory=dict)


class Watched(CuttingProxy):
    """See the module.  failure: a rule that was broken, or what it stumbled over, and what had
    passed before."""

    def __init__(self, target: tuple[str, int], ledgers: Iterable[Ledger], rewinding: str) -> None:
        """rewinding: how the names begin of members that read again what they have read."""
        super().__init__(target)
        self._rewinding = rewinding
        self.failure: BaseException | None = None
        self._ledgers: Mapping[str, Ledger] = {ledger.group: ledger for ledger in ledgers}
        self._members: dict[tuple[str, str], _Member] = {}
        self._wires: dict[socket.socket, _Wire] = {}
        self._noting = threading.Lock()
        self._passed: deque[tuple[float, str, int, Message]] = deque(maxlen=TOLD_MAX)
        """When, of whom, by which connection."""

    def _passes(self, client: socket.socket, piece: bytes, *, is_reply: bool) -> None:
        with self._noting:
            wire = self._wires.setdefault(client, _Wire())
            reader = wire.replies if is_reply else wire.requests
            reader.receive_data(piece)
            try:
                while (frame := reader.next_frame()) is not None:
                    (self._note_reply if is_reply else self._note_request)(wire, bytes(frame))
            except BaseException as exc:  # raised by who plays
                if self.failure is None:
                    exc.add_note(self._tale())
                    self.failure = exc

    def _tale(self) -> str:
        rows = (f"{at_s:.3f} {name} #{wire} {what}" for at_s, name, wire, what in self._passed)
        return "\n".join(rows)

    # Requests.

    def _note_request(self, wire: _Wire, frame: bytes) -> None:
        header = parse_request_header(frame)
        if header.api_key not in NOTED:
            return
        request = decode_request(frame, header)
        group = _group_of(request)
        if group not in self._ledgers:
            return
        name = header.client_id or ""
        member = self._members.setdefault((group, name), _Member(name, self._ledgers[group]))
        self._passed.append((monotonic(), name, id(wire), request))
        asked = wire.asked[header.correlation_id] = _Asked(header, request, member, monotonic())
        match asked.request:
            case ConsumerGroupHeartbeatRequest() as beat:
                member.beats()
                if beat.member_epoch < 0:
                    member.leaves()
                elif beat.member_epoch == 0:
                    member.joins()
                if beat.topic_partitions is not None:
                    rows = beat.topic_partitions
                    member.says({one for row in rows for one in row.partitions})
            case JoinGroupRequest() as join:
                said = decode_subscription(join.protocols[0].metadata)
                assert said is not None
                member.joins()
                member.lets_go(member.has - {partition for _, partition in said.owned})
            case LeaveGroupRequest():
                member.leaves()
            case OffsetFetchRequest():
                asked.least = member.ledger.all_stands()
                asked.tenures = dict(member.tenures)
            case OffsetCommitRequest() as commit:
                for row in (row for topic in commit.topics for row in topic.partitions):
                    one = row.partition_index
                    is_judged = one in member.has and one in member.placed
                    sent = member.ledger.sending(
                        member.name,
                        one,
                        row.committed_offset,
                        is_judged=is_judged,
                        may_rewind=member.name.startswith(self._rewinding),
                    )
                    asked.sent.append((sent, member.tenures.get(one, 0)))
        asked.era = member.era

    # Replies.

    def _note_reply(self, wire: _Wire, frame: bytes) -> None:
        asked = wire.asked.pop(parse_correlation_id(frame), None)
        if asked is None:
            return
        header, member = asked.header, asked.member
        _, reply = decode_response(frame, header.api_key, header.api_version)
        self._passed.append((monotonic(), member.name, id(wire), reply))
        match asked.request, reply:
            case ConsumerGroupHeartbeatRequest(), ConsumerGroupHeartbeatResponse():
                member.is_asking &= asked.era != member.era
                is_in = self._is_in(member, reply.error_code, "consumer", asked)
                if is_in and reply.assignment is not None:
                    topics = reply.assignment.topic_partitions
                    member.is_told({one for topic in topics for one in topic.partitions})
            case JoinGroupRequest(), JoinGroupResponse():
                self._is_in(member, reply.error_code, "classic", asked)
            case SyncGroupRequest() as sync, SyncGroupResponse():
                if self._is_in(member, reply.error_code, "classic", asked):
                    pairs = assigned_partitions(reply.assignment) or []
                    member.is_told({one for _, one in pairs}, sync.generation_id)
            case HeartbeatRequest(), HeartbeatResponse():
                self._is_in(member, reply.error_code, "classic", asked)
            case OffsetFetchRequest(), OffsetFetchResponse():
                for one, offset in _stands(reply):
                    member.ledger.fetched(one, max(0, offset), asked.least.get(one, 0))
                    if asked.tenures.get(one, 0) == member.tenures.get(one, 0):
                        member.placed.add(one)
            case OffsetCommitRequest(), OffsetCommitResponse():
                rows = [row for topic in reply.topics for row in topic.partitions]
                for (sent, tenure), row in zip(asked.sent, rows, strict=True):
                    if row.error_code:
                        member.ledger.refused()
                        continue
                    sent.is_judged &= tenure == member.tenures.get(sent.partition, 0)
                    member.ledger.accepted(member.name, sent)

    def _is_in(self, member: _Member, code: int, protocol: str, asked: _Asked) -> bool:
        """Whether an answer says that it is a member, and its session goes on; a refusal of the
        member is taken note of."""
        if asked.era != member.era or member.has_left:
            return False
        if code in OUT:
            member.is_out()
        is_in = code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if is_in:
            member.ledger.answered(member.name, SESSION_S[protocol], asked.asked_s)
        return code == ErrorCode.NONE


def _group_of(request: Message) -> str:
    if isinstance(request, OffsetFetchRequest) and request.groups:
        return request.groups[0].group_id
    return str(getattr(request, "group_id"))  # noqa: B009  # each of NOTED has one


def _stands(reply: OffsetFetchResponse) -> list[tuple[int, int]]:
    """(partition, offset) of what was answered without an error."""
    if reply.error_code or any(group.error_code for group in reply.groups):
        return []
    rows = [
        (row.partition_index, row.committed_offset, row.error_code)
        for topic in reply.topics
        for row in topic.partitions
    ]
    rows += [
        (row.partition_index, row.committed_offset, row.error_code)
        for group in reply.groups
        for topic in group.topics
        for row in topic.partitions
    ]
    return [(one, offset) for one, offset, code in rows if not code]
