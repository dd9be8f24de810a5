"""What is noted of the bytes that pass between librdkafka's members and a broker."""

import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from uuid import UUID

import pytest

from segbroker.protocol.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import encode_request, encode_response
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupAssignment,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message

from .ledger import Broken, Ledger
from .watched import Watched

GROUP = "g"
TOPIC = "played"
TOPIC_ID = UUID(int=1)
NOBODY = ("127.0.0.1", 9)


class Side:
    """A member and what the broker says to it, on one connection."""

    def __init__(self, watched: Watched, name: str) -> None:
        self.name = name
        self._watched = watched
        self._ids = count(1)
        self._socket = socket.socket()

    def close(self) -> None:
        self._socket.close()

    def asks(self, request: Message, version: int) -> int:
        number = next(self._ids)
        piece = b"".join(encode_request(request, version, number, self.name))
        self._watched._passes(self._socket, piece, is_reply=False)
        return number

    def hears(self, number: int, reply: Message, version: int) -> None:
        piece = b"".join(encode_response(reply, reply.message_key, version, number))
        for at in range(0, len(piece), 7):  # however it comes
            self._watched._passes(self._socket, piece[at : at + 7], is_reply=True)

    def beats(self, has: set[int] | None, epoch: int = 1) -> int:
        rows = GroupTopicPartitions(topic_id=TOPIC_ID, partitions=sorted(has or ()))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=epoch,
            topic_partitions=None if has is None else [rows],
        )
        return self.asks(request, 1)

    def told(self, number: int, partitions: set[int] | None, code: int = 0) -> None:
        rows = GroupTopicPartitions(topic_id=TOPIC_ID, partitions=sorted(partitions or ()))
        given = GroupAssignment(topic_partitions=[rows])
        reply = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_epoch=1,
            heartbeat_interval_ms=50,
            assignment=None if partitions is None else given,
        )
        self.hears(number, reply, 1)

    def is_given(self, partitions: set[int], has: set[int] | None = None, epoch: int = 1) -> None:
        self.told(self.beats(has, epoch), partitions)

    def is_placed(self, stands: int) -> None:
        self.hears_where(self.asks_where(), stands)

    def asks_where(self) -> int:
        topic = OffsetFetchRequestGroupTopic(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        return self.asks(OffsetFetchRequest(groups=[group]), 8)

    def hears_where(self, number: int, stands: int) -> None:
        row = OffsetFetchResponseGroupTopicPartition(
            partition_index=0, committed_offset=stands, metadata=""
        )
        answer = OffsetFetchResponseGroupTopic(name=TOPIC, partitions=[row])
        reply = OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=GROUP, topics=[answer])]
        )
        self.hears(number, reply, 8)

    def commits(self, offset: int) -> int:
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=self.name,
            generation_id_or_member_epoch=1,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )
        return self.asks(request, 9)

    def stored(self, number: int, code: int = 0) -> None:
        row = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        answer = OffsetCommitResponseTopic(name=TOPIC, partitions=[row])
        self.hears(number, OffsetCommitResponse(topics=[answer]), 9)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(GROUP)


@pytest.fixture
def sides(ledger: Ledger) -> Iterator[tuple[Watched, Side, Side]]:
    with Watched(NOBODY, [ledger], "rewinding") as watched:
        one, two = Side(watched, "one"), Side(watched, "two")
        yield watched, one, two
        one.close()
        two.close()


Sides = tuple[Watched, Side, Side]


def test_two_members_that_are_given_one_partition_are_noticed(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    assert watched.failure is None
    two.is_given({0})
    assert isinstance(watched.failure, Broken)
    assert "two is told that it has 0, which one has" in str(watched.failure)
    (tale,) = watched.failure.__notes__
    assert [line.split()[1] for line in tale.splitlines()] == ["one", "one", "two", "two"]


def test_a_partition_is_free_only_when_its_member_has_said_that_it_let_go(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.told(one.beats({0}), set())
    one.told(one.beats(None), None)
    two.is_given({0})
    assert isinstance(watched.failure, Broken)


def test_what_a_member_has_given_back_others_may_be_given(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.told(one.beats({0}), set())
    one.beats(set())
    two.is_given({0})
    assert watched.failure is None


def test_a_member_that_is_refused_has_nothing_any_more(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.told(one.beats({0}), None, ErrorCode.FENCED_MEMBER_EPOCH)
    two.is_given({0})
    assert watched.failure is None


def test_what_is_answered_behind_the_leaving_of_a_member_gives_it_nothing(sides: Sides) -> None:
    watched, one, two = sides
    number = one.beats(None)
    one.beats(None, epoch=-1)
    one.told(number, {0})
    two.is_given({0})
    assert watched.failure is None


def test_what_was_asked_on_one_connection_and_seen_behind_the_leaving_on_another_gives_nothing(
    sides: Sides,
) -> None:
    """The proxy has seen them in this order, and the broker in the other one."""
    watched, one, two = sides
    with closing(Side(watched, "one")) as other:
        one.beats(None, epoch=-1)
        other.is_given({0})
        two.is_given({0})
        assert watched.failure is None
        two.beats(None, epoch=-1)
        one.is_given({0}, has=set(), epoch=0)  # it is back
        two.is_given({0}, has=set(), epoch=0)
    assert "two is told that it has 0, which one has" in str(watched.failure)


def test_an_answer_that_a_member_has_given_up_with_its_connection_gives_it_nothing(
    sides: Sides,
) -> None:
    watched, one, two = sides
    number = one.beats(None)
    with closing(Side(watched, "one")) as again:
        anew = again.beats(set())
        one.told(number, {0})
        again.told(anew, set())
        two.is_given({0})
        assert watched.failure is None
        two.told(two.beats({0}), set())
        two.beats(set())
        again.is_given({0}, has=set())
    two.is_given({0})
    assert "two is told that it has 0, which one has" in str(watched.failure)


def test_what_a_member_has_not_come_to_yet_is_its_own_when_it_says_so(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.told(one.beats(set()), None)
    one.told(one.beats({0}), None)
    two.is_given({0})
    assert isinstance(watched.failure, Broken)


def test_a_step_back_of_who_has_the_partition_is_noticed(sides: Sides, ledger: Ledger) -> None:
    watched, one, _ = sides
    one.is_given({0})
    one.is_placed(-1)
    one.stored(one.commits(21))
    assert watched.failure is None
    one.stored(one.commits(5))
    assert "one moved 0 back to 5 from 21" in str(watched.failure)
    assert (ledger.counts["commits"], ledger.counts["unjudged"]) == (2, 0)


def test_who_may_read_again_what_it_has_read_takes_the_group_with_it(
    sides: Sides, ledger: Ledger
) -> None:
    watched, one, two = sides
    one.name = "rewinding-1"
    one.is_given({0})
    one.is_placed(-1)
    one.stored(one.commits(21))
    one.stored(one.commits(5))
    one.is_placed(5)
    assert watched.failure is None
    assert ledger.counts["unjudged"] == 0
    two.is_placed(4)
    assert "0 stands at 4, was at 5" in str(watched.failure)


def test_where_the_group_stood_before_a_tenure_places_nobody(sides: Sides, ledger: Ledger) -> None:
    watched, one, _ = sides
    number = one.asks_where()
    one.is_given({0})
    one.hears_where(number, -1)
    one.stored(one.commits(21))
    assert watched.failure is None
    assert ledger.counts["unjudged"] == 1


def test_a_position_before_what_was_acknowledged_is_noticed(sides: Sides) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.is_placed(-1)
    one.stored(one.commits(21))
    two.is_placed(20)
    assert "0 stands at 20, was at 21" in str(watched.failure)


def test_a_commit_of_who_does_not_have_the_partition_is_not_judged(
    sides: Sides, ledger: Ledger
) -> None:
    watched, one, two = sides
    one.is_given({0})
    one.is_placed(-1)
    one.stored(one.commits(21))
    two.stored(two.commits(5))
    two.is_placed(5)
    one.stored(one.commits(22))
    two.stored(two.commits(1), ErrorCode.STALE_MEMBER_EPOCH)
    assert watched.failure is None
    counts = ledger.counts
    assert (counts["commits"], counts["unjudged"], counts["refused"]) == (3, 1, 1)


def test_a_commit_of_who_is_not_placed_yet_is_not_judged(sides: Sides, ledger: Ledger) -> None:
    watched, one, _ = sides
    one.is_given({0})
    one.stored(one.commits(21))
    assert watched.failure is None
    assert ledger.counts["unjudged"] == 1


def test_a_commit_that_is_answered_behind_the_end_of_a_tenure_is_not_judged(
    sides: Sides, ledger: Ledger
) -> None:
    watched, one, _ = sides
    one.is_given({0})
    one.is_placed(-1)
    number = one.commits(21)
    one.told(one.beats({0}), set())
    one.beats(set())
    one.stored(number)
    assert watched.failure is None
    assert ledger.counts["unjudged"] == 1


def test_two_members_of_one_classic_generation_are_noticed(sides: Sides) -> None:
    watched, one, two = sides
    for side in (one, two):
        said = encode_subscription(Subscription((TOPIC,)))
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            member_id=side.name,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=said)],
        )
        joined = JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="one", member_id=side.name, members=[]
        )
        side.hears(side.asks(join, 5), joined, 5)
        sync = SyncGroupRequest(
            group_id=GROUP, generation_id=1, member_id=side.name, assignments=[]
        )
        answer = SyncGroupResponse(assignment=encode_assignment([(TOPIC, 0)]))
        side.hears(side.asks(sync, 3), answer, 3)
    assert isinstance(watched.failure, Broken)
