"""What a share group's member makes of a broker that fails, or says what none should."""

import re
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import anyio
import pytest

from segbroker.client import (
    AcknowledgeFailed,
    AsyncShareConsumer,
    BrokerUnreachable,
    BusyError,
    ConnectionLost,
    CorruptBatch,
    FailedAcknowledgement,
    Gap,
    GapError,
    InvalidRecordState,
    SegbrokerError,
    ShareConsumer,
    ShareRecord,
    TimedOut,
    thread_driver,
)
from segbroker.client import unserved as unserved_partitions
from segbroker.client.acknowledging import Failures
from segbroker.client.errors import (
    GroupAuthorizationFailed,
    LeaderNotAvailable,
    PeerError,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnsupportedByBroker,
)
from segbroker.client.thread_driver import ThreadDriver
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsResponse, MetadataResponseBroker
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.record_batch import GapReason, gap_batches

from ..support.waiting import DEADLINE_S, until, within_one_of
from .conftest import Run
from .replaying import TOPIC, Replaying, Request, metadata, versions
from .scripted_shares import (
    ANSWER,
    PATIENT,
    TOPIC_ID,
    OfPartition,
    Script,
    batch,
    decode,
    offsets,
    poll,
    working,
)
from .test_interrupted import Interrupting


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


def test_behind_an_error_nothing_is_locked_before_somebody_asks() -> None:
    """Who has got it may be away for long, and others could not have the records."""
    script = Script(OfPartition(ErrorCode.TOPIC_AUTHORIZATION_FAILED), (batch(0, 1), [(0, 0, 1)]))
    with working(script) as consumer:
        with pytest.raises(TopicAuthorizationFailed):
            consumer.poll(timeout_ms=60_000)
        beat_count = len(script.beats)
        until(lambda: len(script.beats) > beat_count + 20)
        assert len(script.fetched) == 1
        assert offsets(poll(consumer)) == [0]


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


@pytest.mark.parametrize("is_listening", [False, True])
@pytest.mark.parametrize(
    ("of", "name", "late"),
    [
        pytest.param(Failures, "to_tell", True, id="behind"),
        pytest.param(FailedAcknowledgement, "__new__", False, id="within"),
    ],
)
def test_what_ctrl_c_keeps_from_being_told_is_told_by_the_next_poll(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str, late: bool, is_listening: bool
) -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    told: list[FailedAcknowledgement] = []
    options = {"on_failed": told.extend} if is_listening else {}
    with working(script, explicit=True, acknowledge_interval_ms=0, **options) as consumer:
        consumer.accept(*poll(consumer))
        until(lambda: bool(consumer._reading.failures))
        Interrupting(monkeypatch, of, name, 0, late)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=50)
        try:
            consumer.poll(timeout_ms=50)
        except AcknowledgeFailed as exc:
            told += exc.failed
        assert [(each.kind, each.offsets) for each in told] == [("accept", (0, 1))]
        assert consumer.poll(timeout_ms=50) == [], "once"


def test_what_a_commit_that_ctrl_c_ended_would_have_raised_is_raised_by_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with working(script) as consumer:
        poll(consumer)
        Interrupting(monkeypatch, ThreadDriver, "wait", 0, False)
        with pytest.raises(KeyboardInterrupt):
            consumer.commit()
        until(lambda: consumer._reading.lanes.is_settled)
        with pytest.raises(AcknowledgeFailed):
            consumer.poll(timeout_ms=50)


def test_what_a_commit_that_was_cancelled_would_have_raised_is_raised_by_the_next_poll(
    run: Run,
) -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]

    async def main(address: str) -> None:
        async with AsyncShareConsumer(address, TOPIC, group="g", **PATIENT) as consumer:
            assert await consumer.poll(timeout_ms=60_000)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await consumer.commit()
            while not consumer._reading.lanes.is_settled:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            with pytest.raises(AcknowledgeFailed):
                await consumer.poll(timeout_ms=50)

    with Replaying(script.answers) as server:
        run(main, server.address)


@pytest.mark.parametrize(
    "empty",
    [
        ShareAcknowledgeResponse(responses=[], node_endpoints=[]),
        ShareFetchResponse(**ANSWER, responses=[]),
    ],
)
def test_what_a_broker_says_nothing_of_does_not_hold(
    empty: ShareAcknowledgeResponse | ShareFetchResponse,
) -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    with working(script) as consumer:
        consumer.accept(*poll(consumer))
        script.answers[ApiKey(empty.message_key)] = lambda request: request.answer(empty)
        is_fetched = isinstance(empty, ShareFetchResponse)
        ask = partial(consumer.poll, timeout_ms=60_000) if is_fetched else consumer.commit
        with pytest.raises(AcknowledgeFailed, match="did not say what became of it") as caught:
            ask()
    assert [each.offsets for each in caught.value.failed] == [(0, 1)]


def test_what_the_broker_cannot_take_now_is_said_again() -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    with working(script) as consumer:
        poll(consumer)
        consumer.commit()
        assert len(script.acknowledged) == 4
        assert script.said == {0: 1, 1: 1}


def test_what_the_broker_cannot_take_for_long_is_said_less_and_less_often() -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.REQUEST_TIMED_OUT] * 5
    with working(script) as consumer:
        poll(consumer)
        consumer.commit()
        assert len(script.said_at) == 6
        # At least half of 50 ms, doubled each time.
        assert script.said_at[5] - script.said_at[4] >= 0.4
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


def test_a_partition_whose_leader_is_another_broker_by_now() -> None:
    first = Script((batch(0, 2), [(0, 1, 1)]), OfPartition(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    second = Script((batch(1, 2), [(1, 2, 1)]))
    first.verdicts = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with Replaying(first.answers) as one, Replaying(second.answers) as two:

        def both(request: Request) -> bytes:
            other = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=two.port)
            leader = 2 if len(first.fetched) > 1 else 1
            whole = metadata(request, port=one.port, leader_id=leader, more=(other,))
            whole.topics[0].topic_id = TOPIC_ID
            return request.answer(whole)

        first.answers[ApiKey.METADATA] = second.answers[ApiKey.METADATA] = both
        with ShareConsumer(one.address, TOPIC, group="g", **PATIENT) as consumer:
            assert offsets(poll(consumer)) == [0, 1]
            with pytest.raises(AcknowledgeFailed):
                poll(consumer)
            assert offsets(poll(consumer)) == [1, 2]
            consumer.commit()
    assert second.said == {1: 1, 2: 1}
    assert first.acknowledged[-1][0] == second.acknowledged[-1][0] == -1, "both sessions end"


def test_a_partition_that_nobody_serves_is_said_when_that_has_gone_on_for_long() -> None:
    """As to other consumers; and what it is read when it is back."""

    def is_said(within_ms: int) -> None:
        script = Script((batch(0, 1), [(0, 0, 1)]))
        leaders = [-1]

        def unserved(request: Request) -> bytes:
            whole = metadata(request, leader_id=leaders[-1])
            whole.topics[0].topic_id = TOPIC_ID
            (row,) = whole.topics[0].partitions
            row.replica_nodes, row.offline_replicas = [1], [1] if row.leader_id < 0 else []
            return request.answer(whole)

        script.answers[ApiKey.METADATA] = unserved
        with working(script, api_timeout_ms=within_ms) as consumer:
            with pytest.raises(LeaderNotAvailable, match="clicks-0: no broker serves the part"):
                poll(consumer)
            leaders.append(1)
            until(lambda: offsets(consumer.poll(timeout_ms=50)) == [0])

    within_one_of((2_000, 15_000), is_said)


def test_a_partition_that_is_not_served_ends_no_reading_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says it, long after a caller of that partition alone would have heard it."""

    def ends_none(within_ms: int) -> None:
        monkeypatch.setattr(unserved_partitions, "TOLD_AFTER_MS", 3 * within_ms)
        caplog.clear()
        script = Script((batch(0, 1), [(0, 0, 1)]))
        script.partitions = (0, 1)
        offline = [[1]]

        def half(request: Request) -> bytes:
            whole = metadata(request, partitions=(0, 1))
            whole.topics[0].topic_id = TOPIC_ID
            lost = whole.topics[0].partitions[1]
            lost.offline_replicas = offline[-1]
            lost.leader_id = -1 if lost.offline_replicas else 1
            return request.answer(whole)

        script.answers[ApiKey.METADATA] = half
        got: list[int] = []

        def heard(text: str) -> bool:
            got.extend(offsets(consumer.poll(timeout_ms=50)))
            return text in caplog.text

        with working(script, api_timeout_ms=within_ms) as consumer:
            until(lambda: heard("clicks-1 cannot be read, still trying: share fetch"))
            offline.append([])
            until(lambda: heard("clicks-1 can be read again"))
            assert got == [0]

    within_one_of((500, 10_000), ends_none)


def test_the_last_partition_that_is_served_may_be_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long the others have not been served."""

    def may_be_away(within_ms: int) -> None:
        monkeypatch.setattr(unserved_partitions, "TOLD_AFTER_MS", within_ms + 500)
        caplog.clear()
        script = Script((batch(0, 1), [(0, 0, 1)]))
        script.partitions = (0, 1)
        away = {1}

        def some(request: Request) -> bytes:
            whole = metadata(request, partitions=(0, 1))
            whole.topics[0].topic_id = TOPIC_ID
            for row in whole.topics[0].partitions:
                row.replica_nodes, row.offline_replicas = [1], [1] * (row.partition_index in away)
                row.leader_id = -1 if row.offline_replicas else 1
            return request.answer(whole)

        script.answers[ApiKey.METADATA] = some
        with working(script, api_timeout_ms=within_ms) as consumer:
            until(
                lambda: consumer.poll(timeout_ms=50) == [] and "clicks-1 cannot be" in caplog.text
            )
            began = time.monotonic()
            away.add(0)
            with pytest.raises(LeaderNotAvailable, match="no broker serves the partition"):
                until(lambda: bool(consumer.poll(timeout_ms=50)))
            assert time.monotonic() - began >= within_ms / 1000

    within_one_of((2_000, 15_000), may_be_away)


def test_an_error_of_one_partition_that_does_not_pass_is_raised() -> None:
    refused = OfPartition(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with working(Script(refused, (batch(0, 1), [(0, 0, 1)]))) as consumer:
        with pytest.raises(TopicAuthorizationFailed, match="clicks-0"):
            poll(consumer)
        assert offsets(poll(consumer)) == [0]


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


def test_what_was_accepted_is_not_to_be_renewed() -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    with working(script, explicit=True) as consumer:
        records = poll(consumer)
        consumer.accept(*records)
        with pytest.raises(AcknowledgeFailed, match="renew"):
            consumer.renew(*records)
        consumer.commit()
        assert script.said == {0: 1}


def test_the_end_says_what_was_said_and_gives_the_rest_back() -> None:
    script = Script((batch(0, 4), [(0, 3, 1)]))
    with working(script) as consumer:
        list(islice(consumer, 3))
    assert script.acknowledged[-1] == (-1, {0: 1, 1: 1})
    assert script.beats[-1] == -1


def test_who_leaves_says_so_to_the_coordinator_that_its_group_has_by_then() -> None:
    """Else a partition that is its own alone would be nobody's, for a session."""
    script = Script((batch(0, 1), [(0, 0, 1)]))
    left: list[int] = []

    def beat(request: Request) -> bytes:
        if decode(request, ShareGroupHeartbeatRequest).member_epoch != -1:
            return script._beat(request)
        left.append(ErrorCode.NONE if left else ErrorCode.NOT_COORDINATOR)
        reply = ShareGroupHeartbeatResponse(
            error_code=left[-1], member_epoch=-1, heartbeat_interval_ms=0
        )
        return request.answer(reply)

    script.answers[ApiKey.SHARE_GROUP_HEARTBEAT] = beat
    with working(script) as consumer:
        poll(consumer)
    assert left == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]


def test_what_is_refused_at_the_end_is_raised() -> None:
    script = Script((batch(0, 3), [(0, 2, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with pytest.raises(AcknowledgeFailed) as caught, working(script) as consumer:
        list(islice(consumer, 3))
    assert [(each.kind, each.offsets) for each in caught.value.failed] == [("accept", (0, 1))]


def test_what_is_refused_at_the_end_is_told_or_noted_on_what_ends_it() -> None:
    told: list[FailedAcknowledgement] = []
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with working(script, on_failed=told.extend) as consumer:
        list(islice(consumer, 2))
    assert [(each.kind, each.offsets) for each in told] == [("accept", (0,))]
    script = Script((batch(0, 2), [(0, 1, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]
    with pytest.raises(ZeroDivisionError) as caught, working(script) as consumer:  # noqa: PT012
        consumer.reject(*poll(consumer))
        raise ZeroDivisionError
    assert "reject of clicks-0, 2 offsets from 0 to 1" in caught.value.__notes__[0]


def test_what_is_not_answered_at_the_end_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_driver, "GOODBYE_MS", 200)
    script = Script((batch(0, 2), [(0, 1, 1)]))
    silent: Callable[[Request], bytes | None] = lambda request: None  # noqa: E731
    script.answers[ApiKey.SHARE_ACKNOWLEDGE] = silent
    with pytest.raises(AcknowledgeFailed) as caught, working(script) as consumer:
        consumer.accept(*poll(consumer))
    (failed,) = caught.value.failed
    assert (failed.kind, failed.offsets) == ("accept", (0, 1))
    assert isinstance(failed.error, TimedOut)


def test_what_is_said_while_the_last_answer_is_on_its_way_does_not_hold_and_is_raised() -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]))
    answer = script.answers[ApiKey.SHARE_ACKNOWLEDGE]
    records: list[ShareRecord] = []

    def say(request: Request) -> bytes | None:
        consumer.accept(records[1])  # as a thread that is still at work
        return answer(request)

    with (  # noqa: PT012
        pytest.raises(AcknowledgeFailed) as caught,
        working(script, explicit=True) as consumer,
    ):
        records += poll(consumer)
        consumer.accept(records[0])
        script.answers[ApiKey.SHARE_ACKNOWLEDGE] = say
    assert script.acknowledged == [(-1, {0: 1})]
    assert [(each.kind, each.offsets) for each in caught.value.failed] == [("accept", (1,))]


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_what_is_refused_at_the_end_is_raised_on_an_event_loop(loop: str) -> None:
    script = Script((batch(0, 1), [(0, 0, 1)]))
    script.verdicts = [ErrorCode.INVALID_RECORD_STATE]

    async def scenario(address: str) -> None:
        async with AsyncShareConsumer(address, TOPIC, group="g", **PATIENT) as consumer:
            consumer.accept(await anext(aiter(consumer)))

    with Replaying(script.answers) as server, pytest.raises(AcknowledgeFailed):
        anyio.run(scenario, server.address, backend=loop)


def test_all_that_does_not_hold_is_told_however_much_it_is() -> None:
    count = 10_500
    script = Script((batch(0, count), [(0, count - 1, 1)]))
    with working(script, explicit=True, held_count=2 * count) as consumer:
        records = consumer.poll(count, 60_000)
        consumer.accept(records[0])
        script.verdicts = [None]
        with pytest.raises(AcknowledgeFailed):
            consumer.commit()
        with pytest.raises(AcknowledgeFailed, match=f"{count - 1} acknowledgements") as caught:
            consumer.release(*records[1:])
    (failed,) = caught.value.failed
    assert failed.offsets == tuple(range(1, count))


def test_a_lock_that_ends_while_the_broker_is_silent_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_driver, "GOODBYE_MS", 100)

    def has_ended(lock_ms: int) -> None:
        monkeypatch.setitem(ANSWER, "acquisition_lock_timeout_ms", lock_ms)
        asked = threading.Event()
        script = Script((batch(0, 2), [(0, 1, 1)]))
        silent: Callable[[Request], bytes | None] = lambda request: asked.set()  # noqa: E731
        script.answers[ApiKey.SHARE_ACKNOWLEDGE] = silent
        told: list[FailedAcknowledgement] = []
        options = {"max_hold_ms": 0, "on_failed": told.extend, "acknowledge_interval_ms": 1}
        with working(script, explicit=True, **options) as consumer:
            (record,) = consumer.poll(1, timeout_ms=10_000)
            consumer.accept(record)
            assert asked.wait(DEADLINE_S)
            until(lambda: not consumer._reading.lanes.held_count)
            assert consumer.poll(timeout_ms=0) == [], "the second one may be somebody else's"

    within_one_of((500, 15_000), has_ended)


MADE_WRONGLY: dict[str, tuple[dict[str, Any], str]] = {
    "no group": ({"group": ""}, "group='' is not the name of a group"),
    "a way to acquire": ({"acquire": "all"}, "acquire='all' is not 'batches' or 'records'"),
    "no records": ({"acquire_count": 0}, "acquire_count=0 is not a whole number >= 1"),
    "too many bytes": ({"acquire_bytes": 1 << 31}, "acquire_bytes=2147483648 is above"),
    "a time to hold": ({"max_hold_ms": -1}, "max_hold_ms=-1 is not a whole number >= 0"),
    "a word about gaps": ({"on_gap": "tell"}, "on_gap='tell' is not 'raise', 'yield' or 'skip'"),
    "a listener": ({"on_failed": 1}, "1 cannot be called with a list of what failed"),
    "Java's name": ({"max_poll_records": 5}, "did you mean acquire_count?"),
    "librdkafka's name": ({"group_id": "g"}, "did you mean group?"),
    "where to begin": ({"start": "start"}, "it is a setting of the group, share.auto.offset.reset"),
    "a name of nothing": ({"colour": 1}, "help(ShareConsumer) lists them"),
}


@pytest.mark.parametrize("mistake", MADE_WRONGLY)
def test_what_no_share_consumer_can_be_made_of_is_said(mistake: str) -> None:
    options, sentence = MADE_WRONGLY[mistake]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        ShareConsumer("127.0.0.1:1", TOPIC, **{"group": "g", **options})


USED_WRONGLY: dict[str, tuple[Callable[[ShareConsumer[Any]], object], str]] = {
    "a text of topics": (lambda c: c.subscribe("t"), "topics='t' is a str"),
    "no topics": (lambda c: c.subscribe([]), "a member of a share group needs one"),
    "a list of records": (
        lambda c: c.accept([]),  # type: ignore[arg-type]
        "a list is no ShareRecord; several are given one by one",
    ),
    "seconds to poll": (lambda c: c.poll(1.0), "the time is timeout_ms="),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", USED_WRONGLY)
def test_what_no_share_consumer_can_do_is_said_and_it_goes_on(mistake: str) -> None:
    do, sentence = USED_WRONGLY[mistake]
    with working(Script((batch(0, 1), [(0, 0, 1)]))) as consumer:
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
            do(consumer)
        assert offsets(poll(consumer)) == [0]


def test_nothing_to_read() -> None:
    script = Script()
    with (
        Replaying(script.answers) as server,
        ShareConsumer(server.address, group="g") as consumer,
        pytest.raises(TypeError, match="nothing to read: give topics"),
    ):
        consumer.poll()


def test_one_thread_at_a_time() -> None:
    script = Script((batch(0, 3), [(0, 2, 1)]))
    with working(script) as consumer:
        loop = iter(consumer)
        next(loop)
        other = threading.Thread(target=lambda: consumer.poll(timeout_ms=100))
        other.start()
        other.join()
        with pytest.raises(BusyError):
            next(loop)


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
