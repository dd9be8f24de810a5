"""What a share group's member makes of a broker that fails, or says what none should.

The broker is a script: it hands out what a test says, and keeps what was said to it.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from segbroker.client import (
    AcknowledgeFailed,
    BrokerUnreachable,
    ConnectionLost,
    CorruptBatch,
    FailedAcknowledgement,
    Gap,
    GapError,
    InvalidRecordState,
    SegbrokerError,
    ShareConsumer,
    ShareRecord,
)
from segbroker.client.errors import (
    GroupAuthorizationFailed,
    PeerError,
    ShareSessionNotFound,
    UnsupportedByBroker,
)
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_request, parse_request_header
from segbroker.protocol.messages_core import ApiVersionsResponse
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponseLeader,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponseLeader,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatResponseAssignment,
    ShareGroupHeartbeatResponseTopicPartition,
)
from segbroker.protocol.record_batch import GapReason, encode_batch, gap_batches

from .replaying import TOPIC, Answer, Replaying, Request, metadata, versions

TOPIC_ID = UUID(int=7)
SOON: dict[str, Any] = {"request_timeout_ms": 2_000, "connect_timeout_ms": 2_000}
LOCK_MS = 30_000

# Offsets and delivery count, both ends included.
Spans = list[tuple[int, int, int]]


def batch(first: int, count: int) -> bytes:
    """Values b"0", b"1" ... by their offsets."""
    values = [b"%d" % offset for offset in range(first, first + count)]
    data = bytearray(encode_batch(values, timestamps_ms=1))
    struct.pack_into(">q", data, 0, first)
    return bytes(data)


class Script:
    """See the module."""

    def __init__(self, *fetches: "tuple[bytes, Spans] | int | None") -> None:
        """fetches: what each fetch is answered, in order: records and what of them is locked, an
        error code, or None: the connection ends.  Then there is nothing more."""
        self.fetches = list(fetches)
        # (session epoch, what was said: offset -> kind)
        self.fetched: list[tuple[int, dict[int, int]]] = []
        self.acknowledged: list[tuple[int, dict[int, int]]] = []
        self.beats: list[int] = []
        # What is answered to what was said next: error codes; None: the connection ends.
        self.verdicts: list[int | None] = []
        self.beat_codes: list[int] = []
        self.answers: dict[int, Answer] = {
            ApiKey.API_VERSIONS: lambda request: request.answer(versions(request)),
            ApiKey.METADATA: self._metadata,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._beat,
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
        }

    def _metadata(self, request: Request) -> bytes:
        whole = metadata(request)
        whole.topics[0].topic_id = TOPIC_ID
        return request.answer(whole)

    def _beat(self, request: Request) -> bytes:
        asked = decode(request, ShareGroupHeartbeatRequest)
        self.beats.append(asked.member_epoch)
        code = self.beat_codes.pop(0) if self.beat_codes else 0
        given = ShareGroupHeartbeatResponseTopicPartition(topic_id=TOPIC_ID, partitions=[0])
        return request.answer(
            ShareGroupHeartbeatResponse(
                error_code=code,
                member_id=asked.member_id,
                member_epoch=3,
                heartbeat_interval_ms=50,
                assignment=None
                if asked.member_epoch
                else ShareGroupHeartbeatResponseAssignment(topic_partitions=[given]),
            )
        )

    def _fetch(self, request: Request) -> bytes | None:
        asked = decode(request, ShareFetchRequest)
        said = said_in(asked)
        self.fetched.append((asked.share_session_epoch, said))
        next_one: Any = self.fetches.pop(0) if self.fetches else (b"", [])
        verdict = self.verdicts.pop(0) if said and self.verdicts else 0
        if next_one is None or verdict is None:
            raise ConnectionError
        if isinstance(next_one, int):
            return request.answer(ShareFetchResponse(**ANSWER, error_code=next_one, responses=[]))
        records, spans = next_one
        if not records and not said:
            threading.Event().wait(min(0.1, asked.max_wait_ms / 1000))
        row = ShareFetchResponsePartition(
            partition_index=0,
            acknowledge_error_code=verdict,
            current_leader=ShareFetchResponseLeader(leader_id=-1, leader_epoch=-1),
            records=records,
            acquired_records=[
                ShareFetchResponseAcquiredRecords(
                    first_offset=first, last_offset=last, delivery_count=count
                )
                for first, last, count in spans
            ],
        )
        topic = ShareFetchResponseTopic(topic_id=TOPIC_ID, partitions=[row])
        return request.answer(ShareFetchResponse(**ANSWER, responses=[topic]))

    def _acknowledge(self, request: Request) -> bytes | None:
        asked = decode(request, ShareAcknowledgeRequest)
        said = said_in(asked)
        self.acknowledged.append((asked.share_session_epoch, said))
        verdict = self.verdicts.pop(0) if said and self.verdicts else 0
        if verdict is None:
            raise ConnectionError
        row = ShareAcknowledgeResponsePartition(
            partition_index=0,
            error_code=verdict,
            current_leader=ShareAcknowledgeResponseLeader(leader_id=-1, leader_epoch=-1),
        )
        topic = ShareAcknowledgeResponseTopic(topic_id=TOPIC_ID, partitions=[row])
        return request.answer(
            ShareAcknowledgeResponse(responses=[topic] if said else [], node_endpoints=[])
        )

    @property
    def said(self) -> dict[int, int]:
        """All that was said, the last of each offset."""
        return {o: kind for _, said in self.fetched + self.acknowledged for o, kind in said.items()}


ANSWER: dict[str, Any] = {"acquisition_lock_timeout_ms": LOCK_MS, "node_endpoints": []}


def decode(request: Request, kind: type[Any]) -> Any:  # noqa: ANN401
    decoded = decode_request(request.frame, parse_request_header(request.frame))
    assert isinstance(decoded, kind)
    return decoded


def said_in(asked: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[int, int]:
    said: dict[int, int] = {}
    for topic in asked.topics:
        for partition in topic.partitions:
            for row in partition.acknowledgement_batches:
                count = row.last_offset - row.first_offset + 1
                kinds = row.acknowledge_types
                kinds = kinds * count if len(kinds) == 1 else kinds
                assert len(kinds) == count
                said.update(zip(range(row.first_offset, row.last_offset + 1), kinds, strict=True))
    return said


@contextmanager
def working(script: Script, **options: Any) -> Iterator[ShareConsumer[Any]]:  # noqa: ANN401
    with (
        Replaying(script.answers) as server,
        ShareConsumer(server.address, TOPIC, group="g", **{**SOON, **options}) as consumer,
    ):
        yield consumer


def poll(consumer: ShareConsumer[Any]) -> list[Any]:
    """Until there is something."""
    for _ in range(100):
        if records := consumer.poll(timeout_ms=1_000):
            return records
    raise AssertionError("nothing came")


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


def test_only_what_is_locked_is_handed_out() -> None:
    script = Script((batch(0, 6), [(1, 2, 1), (4, 4, 3)]))
    with working(script) as consumer:
        records = poll(consumer)
        assert [(r.offset, r.delivery_count) for r in records] == [(1, 1), (2, 1), (4, 3)]
        consumer.commit()
        assert script.said == {1: 1, 2: 1, 4: 1}


def test_an_offset_without_a_record_is_said_to_be_a_gap() -> None:
    # Two batches were compacted away between, and one before.
    script = Script((batch(2, 2) + batch(6, 2), [(0, 7, 1)]))
    with working(script) as consumer:
        assert offsets(poll(consumer)) == [2, 3, 6, 7]
        consumer.commit()
        assert script.said == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 0, 6: 1, 7: 1}


def test_what_was_cut_off_is_released() -> None:
    script = Script((batch(0, 3) + batch(3, 3)[:40], [(0, 5, 1)]))
    with working(script) as consumer:
        assert offsets(poll(consumer)) == [0, 1, 2]
        consumer.commit()
        assert script.said == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2}


def test_a_damaged_batch_is_told_and_released() -> None:
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    script = Script((batch(0, 3) + bytes(damaged) + batch(6, 1), [(0, 6, 1)]))
    with working(script) as consumer:
        with pytest.raises(CorruptBatch, match="batch at offset 3"):
            poll(consumer)
        assert offsets(poll(consumer)) == [0, 1, 2, 6]
        consumer.commit()
        assert script.said == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 1}


def lossy() -> Script:
    lost = b"".join(map(bytes, gap_batches(3, 6, GapReason.TTL, 5, 0)))
    return Script((batch(0, 3) + lost + batch(6, 1), [(0, 6, 1)]))


def test_what_was_lost_is_raised_in_its_place() -> None:
    script = lossy()
    seen: list[int] = []
    with working(script) as consumer:
        loop = iter(consumer)
        seen += offsets(list(islice(loop, 3)))
        with pytest.raises(GapError, match="expired") as caught:
            next(loop)
        assert caught.value.gap == Gap(TOPIC, 0, 3, 6, "ttl")
        assert consumer.lost_counts == {(TOPIC, 0): 3}
        assert next(iter(consumer)).offset == 6
        assert seen == [0, 1, 2]
        consumer.commit()
        assert script.said == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 1}


def test_what_was_lost_may_be_among_the_records_or_left_out() -> None:
    with working(lossy(), on_gap="yield") as consumer:
        items = poll(consumer)
        assert offsets([i for i in items if isinstance(i, ShareRecord)]) == [0, 1, 2, 6]
        assert items[3] == Gap(TOPIC, 0, 3, 6, "ttl")
    with working(lossy(), on_gap="skip") as consumer:
        assert offsets(poll(consumer)) == [0, 1, 2, 6]
        assert consumer.lost_counts == {(TOPIC, 0): 3}
    with working(lossy()) as consumer:
        assert offsets(poll(consumer)) == [0, 1, 2], "what goes wrong is for the next poll"
        with pytest.raises(GapError):
            consumer.poll()
        assert offsets(poll(consumer)) == [6]


def test_locks_that_no_broker_gives() -> None:
    script = Script((batch(0, 3), [(0, 1 << 40, 1)]))
    with working(script) as consumer, pytest.raises(PeerError, match="limit 1048576"):
        poll(consumer)


def test_what_the_broker_refuses_is_raised() -> None:
    script = Script((batch(0, 3), [(0, 2, 1)]))
    with working(script) as consumer:
        records = poll(consumer)
        script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
        consumer.release(records[1])
        with pytest.raises(AcknowledgeFailed) as caught:
            consumer.commit()
        assert [(each.kind, each.offsets) for each in caught.value.failed] == [
            ("accept", (0, 2)),
            ("release", (1,)),
        ]
        assert all(isinstance(each.error, InvalidRecordState) for each in caught.value.failed)
        assert consumer.poll(timeout_ms=50) == [], "once"


def test_what_the_broker_refuses_is_raised_by_the_next_poll_or_told() -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with working(script) as consumer:
        poll(consumer)
        with pytest.raises(AcknowledgeFailed):
            poll(consumer)
    told: list[FailedAcknowledgement] = []
    script = Script((batch(0, 1), [(0, 0, 1)]), (batch(1, 1), [(1, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with working(script, on_failed=told.extend) as consumer:
        poll(consumer)
        assert offsets(poll(consumer)) == [1]
        assert [(each.kind, each.offsets) for each in told] == [("accept", (0,))]


def test_what_the_broker_cannot_take_now_is_said_again() -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT]
    with working(script) as consumer:
        poll(consumer)
        consumer.commit()
        assert len(script.acknowledged) == 3
        assert script.said == {0: 1, 1: 1}


def test_a_lost_connection_is_told_of_what_was_under_way_and_a_new_session_begins() -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]), (batch(2, 1), [(2, 2, 1)]))
    with working(script) as consumer:
        poll(consumer)
        script.verdicts = [None]
        with pytest.raises(AcknowledgeFailed) as caught:
            consumer.commit()
        assert isinstance(caught.value.failed[0].error, ConnectionLost)
        assert offsets(poll(consumer)) == [2]
        assert [epoch for epoch, _ in script.fetched] == [0, 0]


def test_what_waits_is_nobodys_when_the_connection_is_lost() -> None:
    script = Script((batch(0, 3), [(0, 2, 1)]), (batch(1, 2), [(1, 2, 2)]))
    with working(script) as consumer:
        loop = iter(consumer)
        assert next(loop).offset == 0
        script.verdicts = [None]
        consumer.accept(next(loop))
        with pytest.raises(AcknowledgeFailed):
            consumer.commit()
        again = next(iter(consumer))
        assert (again.offset, again.delivery_count) == (1, 2), "not the third of before"


def test_a_session_that_the_broker_does_not_know_begins_anew() -> None:
    script = Script(
        (batch(0, 1), [(0, 0, 1)]), ErrorCode.SHARE_SESSION_NOT_FOUND, (batch(1, 1), [(1, 1, 1)])
    )
    with working(script) as consumer:
        poll(consumer)
        with pytest.raises(AcknowledgeFailed) as caught:
            poll(consumer)
        assert isinstance(caught.value.failed[0].error, ShareSessionNotFound)
        assert offsets(poll(consumer)) == [1]
        assert [epoch for epoch, _ in script.fetched] == [0, 1, 0]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_member_that_the_group_does_not_know_joins_again(code: ErrorCode) -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    with working(script) as consumer:
        poll(consumer)
        script.beat_codes = [code]
        script.fetches = []
        while script.beats.count(0) < 2:
            assert consumer.poll(timeout_ms=50) == []
        script.fetches = [(batch(1, 1), [(1, 1, 1)])]
        assert offsets(poll(consumer)) == [1]


def test_a_refused_member_hears_why_and_tries_again_when_it_comes_back() -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    script.beat_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with working(script) as consumer:
        with pytest.raises(GroupAuthorizationFailed, match="share group 'g'"):
            poll(consumer)
        assert offsets(poll(consumer)) == [0]


def without(script: Script, *keys: ApiKey, newest: int | None = None) -> Script:
    """It does not know these apis; or only up to a version."""

    def answer(request: Request) -> bytes:
        whole = versions(request)
        assert isinstance(whole, ApiVersionsResponse)
        for row in list(whole.api_keys):
            if row.api_key in keys:
                if newest is None:
                    whole.api_keys.remove(row)
                else:
                    row.max_version = newest
        return request.answer(whole)

    script.answers[ApiKey.API_VERSIONS] = answer
    return script


def test_a_broker_without_share_groups() -> None:
    script = without(Script(), ApiKey.SHARE_GROUP_HEARTBEAT)
    with (
        working(script) as consumer,
        pytest.raises(UnsupportedByBroker, match="this broker has no share groups"),
    ):
        poll(consumer)


def test_a_broker_that_cannot_renew() -> None:
    keys = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
    script = without(Script((batch(0, 1), [(0, 0, 1)])), *keys, newest=1)
    with working(script, explicit=True) as consumer:
        (record,) = poll(consumer)
        consumer.renew(record)
        with pytest.raises(AcknowledgeFailed, match="cannot renew the locks"):
            consumer.commit()


def test_renewals_travel_alone() -> None:
    script = Script((batch(0, 3), [(0, 2, 1)]))
    with working(script, explicit=True) as consumer:
        records = poll(consumer)
        consumer.renew(records[0])
        consumer.accept(records[1])
        consumer.commit()
        assert [said for _, said in script.acknowledged] == [{0: 4}, {1: 1}]


def test_the_end_says_what_was_said_and_gives_the_rest_back() -> None:
    script = Script((batch(0, 4), [(0, 3, 1)]))
    with working(script) as consumer:
        list(islice(consumer, 3))
    assert script.acknowledged[-1] == (-1, {0: 1, 1: 1})
    assert script.beats[-1] == -1


def test_nobody_answers() -> None:
    script = Script()
    silent: Callable[[Request], bytes | None] = lambda request: None  # noqa: E731
    script.answers[ApiKey.SHARE_FETCH] = silent
    with (
        working(script, api_timeout_ms=500, request_timeout_ms=300) as consumer,
        pytest.raises(BrokerUnreachable),
    ):
        poll(consumer)


def test_it_ends_though_nobody_answers() -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    silent: Callable[[Request], bytes | None] = lambda request: None  # noqa: E731
    with pytest.raises(KeyboardInterrupt), working(script) as consumer:  # noqa: PT012
        poll(consumer)
        script.answers[ApiKey.SHARE_ACKNOWLEDGE] = silent
        script.answers[ApiKey.SHARE_GROUP_HEARTBEAT] = silent
        raise KeyboardInterrupt


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    with (
        pytest.raises(SegbrokerError),
        ShareConsumer(f"127.0.0.1:{port}", TOPIC, group="g", connect_timeout_ms=300),
    ):
        pass
