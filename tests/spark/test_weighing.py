"""How many offsets make so many bytes, by a fetch of the driver's."""

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchRequest, FetchResponse
from segbroker.protocol.record_batch import GapReason, gap_batches
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.weighing import PROBE_BYTES

from .batches import batch, end_marker
from .scripted_broker import TOPIC, ScriptedBroker, fetched


def test_a_driver_that_is_throttled_asks_again_what_records_weigh() -> None:
    """Apache Kafka's reply to a client that is over its quota has no partition."""
    of_ten = batch(0, [bytes(100)] * 10)
    replies = [fetched(of_ten), FetchResponse(throttle_time_ms=1, responses=[])]

    def script(_: FetchRequest) -> FetchResponse:
        return replies.pop()

    with ScriptedBroker(script, log_end=1_000).running() as broker:
        assert end_within(broker, 30 * len(of_ten) // 10) == 30


def test_a_driver_asks_the_leader_that_there_is_now_what_records_weigh() -> None:
    """As if they weighed nothing, all that there is came in one batch."""
    of_ten = batch(0, [bytes(100)] * 10)
    asked: list[str] = []

    def before(_: FetchRequest) -> FetchResponse:
        asked.append("before")
        return fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def now(_: FetchRequest) -> FetchResponse:
        asked.append("now")
        return fetched(of_ten)

    def leaders() -> list[tuple[str, int]]:
        return [second.address if asked else first.address]

    first = ScriptedBroker(before, log_end=1_000, leaders=leaders)
    second = ScriptedBroker(now, log_end=1_000, leaders=leaders)
    with first.running(), second.running():
        assert end_within(second, 30 * len(of_ten) // 10) == 30
    assert asked == ["before", "now"]


def end_within(broker: ScriptedBroker, bytes_max: int) -> int:
    """Where a first batch of so many bytes ends that begins at 0."""
    host, port = broker.address
    given = {
        "kafka.bootstrap.servers": f"{host}:{port}",
        "subscribe": TOPIC,
        "maxBytesPerTrigger": str(bytes_max),
    }
    reader = SegbrokerDataSource(given).streamReader(StructType())
    try:
        found: int = reader.latestOffset({TOPIC: {"0": 0}}, ReadMaxBytes(bytes_max))[TOPIC]["0"]
    finally:
        reader.stop()
    return found


GAP = 1_000_000
# Batches that fit into a small fetch, or of which there is room for none behind another one.
SIZES = {"small": 100, "large": 10_000}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("begins", ["with a gap", "with the end of a transaction", "behind a hole"])
def test_what_has_no_records_has_no_size(size: str, begins: str) -> None:
    """As if it were light, records behind it came by the gigabyte."""
    (gap,) = gap_batches(0, GAP, GapReason.TTL, 0, 0)
    front = {"with a gap": gap, "behind a hole": b""}
    front["with the end of a transaction"] = end_marker(GAP - 1, 5, committed=True)
    records = [batch(GAP + 10 * n, [bytes(SIZES[size])] * 10) for n in range(3)]

    def script(request: FetchRequest) -> FetchResponse:
        has_front = request.topics[0].partitions[0].fetch_offset < GAP and front[begins]
        first, *rest = [front[begins], *records] if has_front else records
        size = len(first)
        return fetched(first, *(n for n in rest if (size := size + len(n)) < PROBE_BYTES))

    with ScriptedBroker(script, log_end=2 * GAP).running() as broker:
        assert end_within(broker, 30 * len(records[0]) // 10) == GAP + 30


def test_a_gap_between_records_does_not_make_them_lighter() -> None:
    records = [batch(n, [bytes(100)] * 10) for n in (0, 10 + GAP)]
    (gap,) = gap_batches(10, 10 + GAP, GapReason.CORRUPTION, 0, 0)
    reply = fetched(records[0], gap, records[1])
    with ScriptedBroker(lambda _: reply, log_end=2 * GAP).running() as broker:
        assert end_within(broker, 30 * len(records[0]) // 10) == 30


def test_a_log_with_nothing_but_a_gap_left_is_passed_over() -> None:
    (gap,) = gap_batches(0, GAP, GapReason.CAP, 0, 0)
    with ScriptedBroker(lambda _: fetched(gap), log_end=GAP).running() as broker:
        assert end_within(broker, 1) == GAP
        assert len(broker.fetches) == 1
