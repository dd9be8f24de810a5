"""The fetching of one range, by an executor, from a broker that does what the test says."""

from types import GeneratorType
from typing import Protocol

import pytest

from segbroker.client.errors import PeerError
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchRequest, FetchResponse
from segbroker.protocol.messages_core import FetchResponseAbortedTransaction as Aborted
from segbroker.protocol.record_batch import GapReason, gap_batches
from segbroker.spark import fetching
from segbroker.spark.errors import DataLoss, SourceError, SourceUnavailable
from segbroker.spark.fetching import RangeFetcher, Task
from segbroker.spark.loss import Lost
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.options import SourceOptions, parse_options

from ...support.waiting import until, within_one_of
from ..batches import batch, end_marker
from ..jar import JarReader
from ..scripted_broker import TOPIC, Fault, ScriptedBroker, fetched, with_peer_gone

LOG = [batch(10 * n, [b"%d" % (10 * n + i) for i in range(10)]) for n in range(5)]


def two_at_a_time(request: FetchRequest) -> FetchResponse:
    """The batch that holds the offset and the one after it, as a real log would give them."""
    first = request.topics[0].partitions[0].fetch_offset // 10
    return fetched(*LOG[first : first + 2], high_watermark=50)


def options_of(broker: ScriptedBroker, **more: str) -> SourceOptions:
    host, port = broker.address
    given = {"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}
    return parse_options({**given, **more}, streaming=True)


class Read(Protocol):
    def __call__(self, broker: ScriptedBroker, start: int, end: int, **more: str) -> list[int]: ...


@pytest.fixture
def read(reader: JarReader | None) -> Read:
    """Offsets of the records in [start, end) that a task hands out, by either reader."""

    def offsets(broker: ScriptedBroker, start: int, end: int, **more: str) -> list[int]:
        task = Task(OffsetRange(TOPIC, 0, start, end), broker.address)
        options = options_of(broker, **more)
        if reader is not None:
            return [row.offset for row in reader.read(options, task)]
        found = [
            offset for each in RangeFetcher(options, task).batches() for offset in each.offsets()
        ]
        return [offset for offset in found if start <= offset < end]

    return offsets


def test_a_range_is_read_whole_and_the_next_fetch_is_sent_before_the_records_are_taken() -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 3, 47), broker.address)
        batches = RangeFetcher(options_of(broker), task).batches()
        assert next(batches).header.base_offset == 0
        assert [each.header.base_offset for each in batches] == [10, 20, 30, 40]
        assert broker.fetches == [3, 20, 40]


def test_what_lies_behind_the_range_is_neither_fetched_nor_handed_out(read: Read) -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        assert read(broker, 0, 20) == list(range(20))
        assert broker.fetches == [0]


def test_a_connection_is_kept_for_the_next_task(read: Read) -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        read(broker, 0, 50)
        read(broker, 0, 50)
        assert broker.connections_count == 1


def test_a_connection_on_which_the_broker_hung_up_meanwhile_is_closed() -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 0, 50), broker.address)
        assert len(list(RangeFetcher(options_of(broker), task).batches())) == 5
        kept = fetching.LINKS[broker.address, "segbroker-spark", None]
        with_peer_gone(broker.peers[0])
        until(lambda: not kept.is_idle)
        assert kept.is_open, "nobody has looked"
        assert len(list(RangeFetcher(options_of(broker), task).batches())) == 5
        assert not kept.is_open
        assert broker.connections_count == 2


def test_a_connection_with_a_reply_on_its_way_is_not_kept(read: Read) -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 0, 50), broker.address)
        batches = RangeFetcher(options_of(broker), task).batches()
        assert isinstance(batches, GeneratorType)
        next(batches)
        batches.close()  # what a LIMIT does
        assert (broker.address, "segbroker-spark", None) not in fetching.LINKS
        assert read(broker, 0, 50) == list(range(50))


def test_a_lost_connection_is_made_again_and_no_record_comes_twice(read: Read) -> None:
    hang_ups = [20, 40]

    def script(request: FetchRequest) -> FetchResponse | Fault:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset in hang_ups:
            hang_ups.remove(offset)
            return Fault.HANG_UP
        return two_at_a_time(request)

    with ScriptedBroker(script).running() as broker:
        assert read(broker, 0, 50) == list(range(50))
        assert not hang_ups


def test_a_reply_without_partitions_which_a_quota_made_is_asked_for_again(read: Read) -> None:
    """Apache Kafka answers so where the client has a debt, and reads on when that is paid off."""
    replies = [FetchResponse(throttle_time_ms=1, responses=[])] * 2

    def script(request: FetchRequest) -> FetchResponse:
        return replies.pop() if broker.fetches[-1] == 20 and replies else two_at_a_time(request)

    with ScriptedBroker(script).running() as broker:
        assert read(broker, 0, 50) == list(range(50))
    assert broker.fetches == [0, 20, 20, 20, 40]
    assert broker.connections_count == 1


def test_a_client_that_is_throttled_for_too_long_is_told_so(read: Read) -> None:
    def is_said(within_ms: int) -> None:
        with (
            ScriptedBroker(lambda _: FetchResponse(responses=[])).running() as broker,
            pytest.raises(
                SourceUnavailable,
                match=rf"at offset 7: no progress within {within_ms} ms"
                r" \(kafkaConsumer\.pollTimeoutMs\); last: the client has a quota",
            ),
        ):
            read(broker, 7, 50, **{"kafkaConsumer.pollTimeoutMs": str(within_ms)})

    within_one_of((300, 12_000), is_said)


def test_a_moved_leader_is_looked_up_again() -> None:
    def not_here(request: FetchRequest) -> FetchResponse:
        return fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with (
        ScriptedBroker(two_at_a_time).running() as new,
        ScriptedBroker(not_here).running() as old,
    ):
        task = Task(OffsetRange(TOPIC, 0, 0, 50), old.address)
        fetcher = RangeFetcher(options_of(new), task)
        assert sum(len(each) for each in fetcher.batches()) == 50
        assert old.fetches == [0]


def test_a_gap_and_a_control_batch_move_on_without_records(read: Read) -> None:
    log = [
        *gap_batches(0, 7, GapReason.DELETED, 0, 0),
        batch(7, [b"seven"]),
        end_marker(8, 5, committed=True),
        batch(9, [b"nine"]),
    ]
    with ScriptedBroker(lambda _: fetched(*log)).running() as broker:
        assert read(broker, 0, 10) == [7, 9]


def test_a_gap_in_the_log_ends_a_strict_query_and_is_a_row_for_who_asks(read: Read) -> None:
    (gap,) = gap_batches(10, 20, GapReason.CORRUPTION, 0, 0)
    reply = fetched(LOG[0], gap, LOG[2], high_watermark=30)
    with ScriptedBroker(lambda _: reply).running() as broker:
        with pytest.raises(DataLoss, match=r"\[10, 20\) are lost, the log has a gap there \(recor"):
            read(broker, 0, 30)
        task = Task(OffsetRange(TOPIC, 0, 0, 30), broker.address)
        options = options_of(broker, failOnDataLoss="false", includeGaps="true")
        _, lost, _ = RangeFetcher(options, task).batches_and_losses()
        assert isinstance(lost, Lost)
        assert (lost.start, lost.end, lost.word) == (10, 20, "corruption")


def test_a_range_of_nothing_but_a_gap_ends(read: Read) -> None:
    (gap,) = gap_batches(0, 100, GapReason.DELETED, 0, 0)
    with ScriptedBroker(lambda _: fetched(gap)).running() as broker:
        assert read(broker, 0, 100) == []


def test_committed_reading_leaves_out_aborted_transactions(read: Read) -> None:
    log = [
        batch(0, [b"aborted"], producer_id=5),
        batch(1, [b"committed"], producer_id=6),
        end_marker(2, 5, committed=False),
        batch(3, [b"committed after the abort"], producer_id=5),
        end_marker(4, 5, committed=True),
        end_marker(5, 6, committed=True),
    ]
    reply = fetched(*log, aborted=[Aborted(producer_id=5, first_offset=0)])
    with ScriptedBroker(lambda _: reply).running() as broker:
        more = {"kafka.isolation.level": "read_committed"}
        assert read(broker, 0, 6, **more) == [1, 3]
    with ScriptedBroker(lambda _: fetched(*log)).running() as broker:
        assert read(broker, 0, 6) == [0, 1, 3]


def out_of_range(request: FetchRequest) -> FetchResponse:
    if request.topics[0].partitions[0].fetch_offset < 20:
        return fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    return two_at_a_time(request)


def test_records_that_age_out_while_the_task_runs_are_data_loss(read: Read) -> None:
    with (
        ScriptedBroker(out_of_range, log_start=20, log_end=50).running() as broker,
        pytest.raises(
            DataLoss,
            match=r"topic 'clicks' partition 0: offsets \[0, 20\) are lost, the log now starts",
        ),
    ):
        read(broker, 0, 50)


def test_without_failing_what_is_left_is_read(read: Read) -> None:
    with ScriptedBroker(out_of_range, log_start=20, log_end=50).running() as broker:
        assert read(broker, 0, 50, failOnDataLoss="false") == list(range(20, 50))
        assert read(broker, 0, 15, failOnDataLoss="false") == []


def test_a_connection_that_the_broker_closed_while_a_task_read_is_not_a_try(read: Read) -> None:
    """It asks where the log is, and much later again: `idle_timeout_ms` may be over by then."""

    def script(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset == 10:
            broker.log_start = 20
            with_peer_gone(broker.peers[1])
        if offset < broker.log_start:
            return fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return two_at_a_time(request)

    broker = ScriptedBroker(script, log_start=10, log_end=50)
    options = {"failOnDataLoss": "false", "fetchOffset.numRetries": "0"}
    with broker.running():
        assert read(broker, 0, 50, **options) == list(range(20, 50))


def test_a_log_that_ends_before_the_range_is_data_loss_after_a_grace(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SHORT_LOG_GRACE_MS", 100)
    with (
        ScriptedBroker(two_at_a_time, log_end=50).running() as broker,
        pytest.raises(DataLoss, match=r"offsets \[50, 60\) are lost, the log now ends at 50"),
    ):
        read(broker, 40, 60)


def test_a_broker_that_never_answers_ends_the_task_with_a_sentence(read: Read) -> None:
    def is_said(within_ms: int) -> None:
        more = {"kafka.request.timeout.ms": str(within_ms // 6)}
        more["kafkaConsumer.pollTimeoutMs"] = str(within_ms)
        with (
            ScriptedBroker(lambda _: Fault.SILENCE).running() as broker,
            pytest.raises(
                SourceUnavailable,
                match=rf"topic 'clicks' partition 0 at offset 0: no progress within {within_ms} ms"
                r" \(kafkaConsumer.pollTimeoutMs\); last: .* did not answer in time",
            ),
        ):
            read(broker, 0, 50, **more)

    within_one_of((300, 12_000), is_said)


def test_a_broker_that_is_away_ends_the_task_with_its_place_and_its_own_deadline(
    read: Read,
) -> None:
    with ScriptedBroker(two_at_a_time).running() as broker:
        pass

    def is_said(within_ms: int) -> None:
        # The deadline of the driver's questions is not the task's, also where it is shorter.
        more = {
            "kafka.default.api.timeout.ms": "100",
            "kafkaConsumer.pollTimeoutMs": str(within_ms),
        }
        with pytest.raises(
            SourceUnavailable,
            match=rf"^topic 'clicks' partition 0 at offset 7: no progress within {within_ms} ms"
            r" \(kafkaConsumer\.pollTimeoutMs\); last: 127\.0\.0\.1:\d+ cannot be reached",
        ):
            read(broker, 7, 50, **more)

    within_one_of((600, 10_000), is_said)


def test_a_damaged_batch_is_an_error_with_its_place(read: Read) -> None:
    damaged = bytearray(LOG[0])
    damaged[-1] ^= 1
    with (
        ScriptedBroker(lambda _: fetched(bytes(damaged))).running() as broker,
        pytest.raises(SourceError, match="partition 0, batch at offset 0: CRC-32C"),
    ):
        read(broker, 0, 10)


def test_a_small_range_asks_for_few_bytes(read: Read) -> None:
    sizes: list[int] = []

    def script(request: FetchRequest) -> FetchResponse:
        sizes.append(request.topics[0].partitions[0].partition_max_bytes)
        return two_at_a_time(request)

    with ScriptedBroker(script).running() as broker:
        read(broker, 0, 50)
        read(broker, 0, 3)
    # The rest of the range at a KiB per record until the first reply says better.
    assert sizes[0] == (16 << 10) + 50 * 1152
    assert sizes[1] < 20_000
    assert sizes[-1] == (16 << 10) + 3 * 1152


# What a broker may say of a partition, or of a whole fetch, that another try may not meet.
PASSING = (
    *(ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    *(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REPLICA_NOT_AVAILABLE),
    ErrorCode.KAFKA_STORAGE_ERROR,
    *(ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
    *(ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    *(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
)


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
def test_an_error_that_passes_is_waited_for(read: Read, code: ErrorCode) -> None:
    codes = [code]

    def script(request: FetchRequest) -> FetchResponse:
        return fetched(error_code=codes.pop()) if codes else two_at_a_time(request)

    with ScriptedBroker(script).running() as broker:
        assert read(broker, 0, 50) == list(range(50))


def test_an_error_that_will_not_pass_is_not_tried_again(read: Read) -> None:
    denied = fetched(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with (
        ScriptedBroker(lambda _: denied).running() as broker,
        pytest.raises(SourceUnavailable, match="Not allowed on this topic"),
    ):
        read(broker, 0, 50)
    assert broker.fetches == [0]
    assert not PeerError.retryable
