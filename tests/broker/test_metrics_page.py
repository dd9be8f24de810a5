"""The numbers of the metrics page, held against what was done to the broker over the wire."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio

from segbroker.broker.address import join_address
from segbroker.broker.loop import large_requests, pace
from segbroker.broker.metrics import ages, gathering, of_topics
from segbroker.broker.metrics.of_groups import NAME_SIZE_MAX
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from segbroker.protocol.messages_core import ProduceResponse
from segbroker.protocol.messages_groups import OffsetCommitRequest, OffsetCommitResponse
from segbroker.protocol.messages_groups import (
    OffsetCommitRequestPartition as CommitPartition,
)
from segbroker.protocol.messages_groups import OffsetCommitRequestTopic as CommitTopic
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.scrape import Scraped, get, scrape
from ..support.waiting import becomes
from ..support.wire_client import WireClient, batch, connect, produce_request
from ..support.wire_groups import commit_of
from ..support.wire_settings import alter
from ..support.wire_transactions import NOW_MS, Tx
from .conftest import serving

PAGE: Final = "127.0.0.1:0"
STATES: Final = "segbroker_group_state"


def page_of(broker: Broker) -> str:
    assert broker.metrics_address is not None
    return join_address(*broker.metrics_address)


async def scraped(broker: Broker) -> Scraped:
    return await trio.to_thread.run_sync(scrape, page_of(broker))


async def commit(client: WireClient, group: str, topic: str, *offsets: int) -> None:
    """Have the group stand at these offsets of the first partitions."""
    rows = [
        CommitPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[CommitTopic(name=topic, partitions=rows)],
    )
    reply = await client.ask(request, OffsetCommitResponse, 8)
    assert not any(row.error_code for one in reply.topics for row in one.partitions)


@asynccontextmanager
async def served(
    *, metrics_rows_max: int = 1_000, housekeeping_interval_ms: int = 1_000, quota: int = 0
) -> AsyncIterator[tuple[Broker, WireClient]]:
    async with (
        serving(
            clock=time.perf_counter,
            metrics_listen=PAGE,
            metrics_rows_max=metrics_rows_max,
            housekeeping_interval_ms=housekeeping_interval_ms,
            quota_produce_bytes_per_second=quota,
        ) as broker,
        connect(broker.address) as client,
    ):
        yield broker, client


async def test_what_is_produced_and_fetched_is_counted_by_topic_and_in_all() -> None:
    async with served() as (broker, client):
        await client.create("a", partitions=2)
        await client.create("b")
        size = len(batch(b"v"))
        for partition in (0, 1, 1):
            await client.produce("a", b"v", partition=partition)
        await client.produce("b", b"v")
        assert (await client.fetch("a", 0, partition=1)).records
        page = await scraped(broker)
        assert page.of("segbroker_topic_produced_bytes_total", "topic") == {
            "a": 3 * size,
            "b": size,
        }
        assert page.of("segbroker_topic_fetched_bytes_total", "topic") == {"a": 2 * size, "b": 0}
        assert page.of("segbroker_topic_size_bytes", "topic") == {"a": 3 * size, "b": size}
        assert page.of("segbroker_topic_partitions", "topic") == {"a": 2, "b": 1}
        assert page.value("segbroker_produced_bytes_total") == 4 * size
        assert page.value("segbroker_fetched_bytes_total") == 2 * size
        ends = page.of("segbroker_partition_log_end_offset", "partition", topic="a")
        assert ends == {"0": 1, "1": 2}
        sizes = page.of("segbroker_partition_size_bytes", "partition", topic="a")
        assert sizes == {"0": size, "1": 2 * size}
        assert page.value("segbroker_topics") == 2
        assert page.value("segbroker_partitions") == page.value("segbroker_partitions_open") == 3


async def test_requests_and_bytes_are_those_of_the_connections_open_or_closed() -> None:
    async with served() as (broker, client):
        await client.create("t")
        async with connect(broker.address) as other:
            for _ in range(3):
                await other.produce("t", b"v")
        with trio.fail_after(60):
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        first = await scraped(broker)
        requests = first.of("segbroker_requests_total", "api")
        assert requests == {"CreateTopics": 1, "Produce": 3, "unknown": 0}
        assert first.value("segbroker_connections", listener="PLAINTEXT") == 1
        assert first.value("segbroker_connections_accepted_total") == 2
        correlation_id, frame = client.encode(CREATED_BEFORE, 8)
        await client.send_bytes(frame)
        reply = await client.receive_frame()
        assert reply[:4] == correlation_id.to_bytes(4, "big")
        second = await scraped(broker)
        received, sent = "segbroker_received_bytes_total", "segbroker_sent_bytes_total"
        assert second.value(received) - first.value(received) == len(frame)
        assert second.value(sent) - first.value(sent) == len(reply) + 4


CREATED_BEFORE: Final = OffsetCommitRequest(
    group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[]
)


async def test_the_most_connections_of_a_listener_are_those_that_it_can_have() -> None:
    async with (
        serving(metrics_listen=PAGE, connections_max=70) as broker,
        connect(broker.address) as client,
    ):
        own = "listener_name_plaintext_connections_max"
        for value, most in ((None, 70), ("7", 7), ("700", 70)):
            await alter(client, "1", **{own: value})
            page = await scraped(broker)
            assert page.value("segbroker_connections_max", listener="PLAINTEXT") == most
            assert page.value("segbroker_all_connections_max") == 70


async def test_each_row_of_an_answer_with_an_error_code_counts() -> None:
    async with served() as (broker, client):
        await client.create("t", partitions=1)
        for topic in ("nowhere", "t", "nowhere"):
            await client.fetch(topic, 77)
            await client.produce(topic, b"v", partition=9)
        assert (await client.try_create("t"))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        page = await scraped(broker)
        fetched = page.of("segbroker_errors_total", "error", api="Fetch")
        assert fetched == {"UNKNOWN_TOPIC_OR_PARTITION": 2, "OFFSET_OUT_OF_RANGE": 1}
        produced = page.of("segbroker_errors_total", "error", api="Produce")
        assert produced == {"UNKNOWN_TOPIC_OR_PARTITION": 3}
        created = page.of("segbroker_errors_total", "error", api="CreateTopics")
        assert created == {"TOPIC_ALREADY_EXISTS": 1}


async def test_what_is_not_served_is_counted_apart() -> None:
    async with served() as (broker, client):
        async with connect(broker.address) as other:
            await other.send_bytes(bytes.fromhex("0000000a 7fff 0000 00000007 0000"))
            assert await other.is_closed()
        page = await scraped(broker)
        assert page.value("segbroker_requests_total", api="unknown") == 1
        assert page.value("segbroker_connections_refused_total") == 1
        assert await client.fetch("t", 0)


async def test_a_group_is_as_far_behind_as_it_has_not_committed() -> None:
    async with served() as (broker, client):
        await client.create("t", partitions=3)
        for partition, count in ((0, 5), (1, 2)):
            for _ in range(count):
                await client.produce("t", b"v", partition=partition)
        await commit(client, "behind", "t", 1, 2, 0)
        page = await scraped(broker)
        lag = page.of("segbroker_group_lag_records", "partition", group="behind", topic="t")
        assert lag == {"0": 4, "1": 0}, "partition 2 is not open: nobody knows"
        assert page.value("segbroker_rows_left_out", rows="group_partitions") == 1
        seconds = page.of("segbroker_group_lag_seconds", "partition", group="behind", topic="t")
        assert seconds["1"] == 0
        assert seconds["0"] == pytest.approx(time.time() - 1_700_000_000, abs=120)
        assert page.value("segbroker_groups") == 1
        assert page.value("segbroker_group_members", group="behind") == 0
        assert page.value(STATES, group="behind", type="classic", state="Empty") == 1


async def test_the_age_of_what_is_read_next_is_read_once_as_long_as_the_group_stands_there() -> (
    None
):
    disk = GatedStorage()
    async with (
        serving(storage=disk, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        for _ in range(3):
            await client.produce("t", b"v")
        await commit(client, "g", "t", 1)
        first = (await scraped(broker)).of("segbroker_group_lag_seconds", "group")
        disk.reads.clear()
        again = (await scraped(broker)).of("segbroker_group_lag_seconds", "group")
        disk.reads.set()
        assert again["g"] == pytest.approx(first["g"], abs=60)


async def test_rows_are_bounded_and_the_page_says_how_many_are_left_out() -> None:
    async with served(metrics_rows_max=2) as (broker, client):
        for name in ("c", "a", "b"):
            await client.create(name, partitions=2)
            for partition in range(2):
                await client.produce(name, b"v", partition=partition)
            await commit(client, f"of-{name}", name, 0, 0)
        page = await scraped(broker)
        assert page.of("segbroker_topic_partitions", "topic") == {"a": 2, "b": 2}
        assert page.of("segbroker_partition_log_end_offset", "topic") == {"a": 1}
        assert set(page.of(STATES, "group")) == {"of-a", "of-b"}
        assert set(page.of("segbroker_group_lag_records", "group")) == {"of-a"}
        left_out = page.of("segbroker_rows_left_out", "rows")
        assert left_out == {
            "topics": 1, "partitions": 4, "groups": 1, "group_partitions": 2, "group_ages": 0,
        }  # fmt: skip
        assert page.value("segbroker_topics") == page.value("segbroker_groups") == 3
        assert page.value("segbroker_partitions") == 6


async def test_a_group_of_a_very_long_name_is_counted_and_has_no_row() -> None:
    longest = "g" * NAME_SIZE_MAX
    async with served() as (broker, client):
        await client.create("t")
        await client.produce("t", b"v")
        for name in (longest, longest + "g", "a" * 30_000):
            await commit(client, name, "t", 0)
        page = await scraped(broker)
        assert set(page.of(STATES, "group")) == {longest}
        assert set(page.of("segbroker_group_lag_records", "group")) == {longest}
        assert page.value("segbroker_groups") == 3
        assert page.value("segbroker_rows_left_out", rows="groups") == 2


async def test_what_is_left_out_counts_a_topic_that_grows_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (broker, client):
        await client.create("a")
        await client.create("b")
        grown = False

        class Growing(pace.Pace):
            async def step(self) -> None:
                nonlocal grown
                if not grown:  # a is looked at: how many partitions there are was asked before
                    grown = True
                    await broker.core.topics.grow_all({"b": 6})
                    for partition in range(6):
                        await client.produce("b", b"v", partition=partition)
                await super().step()

        monkeypatch.setattr(gathering, "Pace", Growing)
        page = await scraped(broker)
        assert grown
        assert set(page.of("segbroker_partition_size_bytes", "topic")) == {"b"}
        assert page.value("segbroker_rows_left_out", rows="partitions") == 1, "a has no row"


async def test_a_clock_that_is_set_back_takes_nothing_from_the_time_since_the_start() -> None:
    clock_ms = 1_700_000_000_000
    async with (
        serving(metrics_listen=PAGE, now_ms=lambda: clock_ms) as broker,
        connect(broker.address) as client,
    ):
        clock_ms -= 3_600_000
        page = await scraped(broker)
        assert page.value("segbroker_uptime_seconds") >= 0
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        assert isinstance(info["uptime_ms"], int)
        assert info["uptime_ms"] >= 0


async def test_a_clock_that_is_set_makes_no_transaction_older_or_younger() -> None:
    """It is aborted by the time that has passed, and an alert looks at how near that is."""
    now_ms = NOW_MS
    async with (
        serving(metrics_listen=PAGE, now_ms=lambda: now_ms) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init() == 0
        assert await tx.send("t", b"v") == 0
        for hours in (-10, 10):
            now_ms = NOW_MS + hours * 3_600_000
            age_s = (await scraped(broker)).value("segbroker_transactions_oldest_open_seconds")
            assert 0 <= age_s < 3_600


async def test_without_rows_the_numbers_of_the_broker_are_there() -> None:
    async with served(metrics_rows_max=0) as (broker, client):
        await client.create("t")
        await client.produce("t", b"v")
        await commit(client, "g", "t", 0)
        page = await scraped(broker)
        assert not page.of("segbroker_topic_partitions", "topic")
        assert not page.of(STATES, "group")
        assert page.value("segbroker_produced_bytes_total") == len(batch(b"v"))


async def test_nothing_is_opened_for_a_page_and_a_topic_has_its_size_all_the_same() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        for partition in range(2):
            await client.produce("t", b"v", partition=partition)
    async with serving(storage=disk, metrics_listen=PAGE) as broker:
        size = len(batch(b"v"))
        for _ in range(2):  # the second time it is known
            page = await scraped(broker)
            assert page.of("segbroker_topic_size_bytes", "topic") == {"t": 2 * size}
            assert page.value("segbroker_partitions_open") == 0
            assert not page.of("segbroker_partition_size_bytes", "topic")
            assert page.value("segbroker_rows_left_out", rows="partitions") == 2
        async with connect(broker.address) as client:
            await client.produce("t", b"v", partition=1)
        page = await scraped(broker)
        assert page.of("segbroker_topic_size_bytes", "topic") == {"t": 3 * size}
        assert page.of("segbroker_partition_size_bytes", "partition") == {"1": 2 * size}


async def test_the_size_of_a_topic_is_not_that_of_one_of_its_name_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_topics, "LOOKED_AT_MAX", 1)
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        for partition in range(2):
            await client.produce("t", b"v", partition=partition)
    async with (
        serving(storage=disk, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        known: list[dict[str, float]] = [{}, {"t": 2 * len(batch(b"v"))}]
        for expected in known:  # a page looks at one partition
            page = await scraped(broker)
            assert page.of("segbroker_topic_size_bytes", "topic") == expected
        await broker.core.topics.delete_all(["t"])
        await client.create("t", partitions=2)
        known = [{}, {"t": 0}]
        for expected in known:
            page = await scraped(broker)
            assert page.of("segbroker_topic_size_bytes", "topic") == expected


async def test_a_deleted_topic_has_no_rows_and_one_of_its_name_begins_at_nothing() -> None:
    async with served() as (broker, client):
        await client.create("t")
        await client.produce("t", b"v")
        await broker.core.topics.delete_all(["t"])
        page = await scraped(broker)
        assert not page.of("segbroker_topic_partitions", "topic")
        assert page.value("segbroker_produced_bytes_total") == len(batch(b"v"))
        await client.create("t")
        page = await scraped(broker)
        assert page.of("segbroker_topic_produced_bytes_total", "topic") == {"t": 0}


async def test_every_sync_of_the_wal_is_in_the_histogram() -> None:
    async with served() as (broker, client):
        await client.create("t")
        for _ in range(5):
            await client.produce("t", b"v")
        page = await scraped(broker)
        syncs = sum(page.of("segbroker_wal_syncs_total", "thread").values())
        assert syncs >= 6
        assert page.value("segbroker_wal_sync_seconds_count") == syncs
        buckets = page.of("segbroker_wal_sync_seconds_bucket", "le")
        assert list(buckets.values()) == sorted(buckets.values())
        assert buckets["+Inf"] == syncs
        assert 0 < page.value("segbroker_wal_sync_seconds_sum") < 60
        assert page.value("segbroker_wal_frames_total") >= syncs
        assert page.value("segbroker_wal_written_bytes_total") > 5 * len(batch(b"v"))


async def test_a_partition_that_fails_and_a_disk_that_fails_are_seen() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        disk.sync_error = OSError(5, "the test refuses it")
        assert (await client.produce("t", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        page = await scraped(broker)
        disk.sync_error = None
        assert page.value("segbroker_partitions_read_only") == 1
        assert page.value("segbroker_wal_shards_failed") == 1
        assert page.value("segbroker_ready") == 0
        errors = page.of("segbroker_errors_total", "error", api="Produce")
        assert errors == {"KAFKA_STORAGE_ERROR": 1}


async def test_what_retention_takes_is_counted_by_its_reason() -> None:
    async with served(housekeeping_interval_ms=20) as (broker, client):
        await client.create("t", segment_bytes="16384", retention_bytes="0")
        value = b"v" * 10_000
        for _ in range(4):
            await client.produce("t", value)
        with trio.fail_after(60):
            while True:
                page = await scraped(broker)
                evicted = page.of("segbroker_evicted_bytes_total", "reason")
                if evicted["cap"]:
                    break
        assert evicted["cap"] % len(batch(value)) == 0
        assert (evicted["ttl"], evicted["deleted"]) == (0, 0)
        start = page.value("segbroker_partition_log_start_offset", topic="t", partition="0")
        assert start == evicted["cap"] / len(batch(value))


async def test_a_client_over_its_quota_is_counted_as_throttled() -> None:
    async with served(quota=100) as (broker, client):
        await client.create("t")
        await client.produce("t", b"v" * 1_000)
        with trio.fail_after(60):
            while not (await scraped(broker)).value(
                "segbroker_requests_throttled_total", reason="quota"
            ):
                await trio.lowlevel.checkpoint()


async def test_every_family_is_there_from_the_first_page_on_in_both_formats() -> None:
    async with served() as (broker, _):
        plain = await scraped(broker)
        accepts = {"Accept": "application/openmetrics-text"}
        status, form, text = await trio.to_thread.run_sync(
            lambda: get(page_of(broker), "/metrics", **accepts)
        )
        assert status == 200
        assert form.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")
        told = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        stems = [name.removesuffix("_total").removesuffix("_info") for name in plain.families]
        assert [name.removesuffix("_info") for name in told] == stems


@pytest.mark.parametrize("topics", [1, 40])
async def test_the_loop_has_its_turn_after_a_bounded_number_of_looks(
    topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock in which a look takes 1 ms, whatever else the machine does."""
    partitions = 400 // topics
    async with served() as (broker, client):
        for number in range(topics):
            name = f"t{number:02}"
            await client.create(name, partitions=partitions)
            await broker.core.topics.open_all((name, index) for index in range(partitions))
            for group in range(3):
                await commit(client, f"g{number}-{group}", name, *[0] * partitions)
        looks = Looks()
        monkeypatch.setattr(pace, "time", looks)
        trio.lowlevel.add_instrument(looks)
        page = await scraped(broker)
        trio.lowlevel.remove_instrument(looks)
        monkeypatch.undo()
        assert len(page.of("segbroker_partition_size_bytes", "partition")) == partitions
        assert looks.all > 400 * 4, "each partition, and each place of each group"
        assert looks.most <= pace.STEP_S * 1000 + 2


class Looks(trio.abc.Instrument):
    """A clock that a look moves on, and how many there were in one step of a task."""

    def __init__(self) -> None:
        self.all = self.most = self._in_step = 0

    def perf_counter(self) -> float:
        self.all += 1
        self._in_step += 1
        self.most = max(self.most, self._in_step)
        return self.all / 1000

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._in_step = 0


async def test_what_comes_by_the_express_way_is_counted_as_by_any_other() -> None:
    frames, size = 200, len(batch(b"v"))
    for express in (True, False):
        async with (
            serving(express=express, metrics_listen=PAGE) as broker,
            connect(broker.address) as client,
        ):
            await client.create("t")
            await client.produce("t", b"v")
            before = await scraped(broker)
            sent = answered = 0
            for _ in range(frames):
                _, frame = client.encode(produce_request("t", batch(b"v")), 9)
                await client.send_bytes(frame)
                sent += len(frame)
                answered += len(await client.receive_frame()) + 4
            page = await scraped(broker)
            took = broker.express.requests if broker.express is not None else 0
            assert (took > frames // 2) == express
            for name, grown in (
                ("segbroker_received_bytes_total", sent),
                ("segbroker_sent_bytes_total", answered),
                ("segbroker_produced_bytes_total", frames * size),
            ):
                assert page.value(name) - before.value(name) == grown, name
            assert page.value("segbroker_requests_total", api="Produce") == frames + 1
            assert page.of("segbroker_topic_produced_bytes_total", "topic") == {
                "t": (frames + 1) * size
            }


async def test_error_codes_count_whatever_way_the_answer_takes() -> None:
    async with served() as (broker, client):
        rows = [
            CommitPartition(partition_index=n, committed_offset=0, committed_metadata="")
            for n in range(3_000)
        ]
        for count in (2, 3_000):  # an answer that waits for the disk; one that a lane makes
            reply = await client.ask(
                OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    topics=[CommitTopic(name="nowhere", partitions=rows[:count])],
                ),
                OffsetCommitResponse,
                8,
            )
            assert len(reply.topics[0].partitions) == count
        await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["nowhere"]})
        page = await scraped(broker)
        errors = page.of("segbroker_errors_total", "api", error="UNKNOWN_TOPIC_OR_PARTITION")
        assert errors == {"OffsetCommit": 3_002, "PartitionStatistics": 1}


async def test_a_batch_that_was_sent_twice_is_appended_and_counted_once() -> None:
    """What an idempotent producer does that has not heard the answer."""
    records = batch(b"v", producer=(7, 0, 0))
    async with served() as (broker, client):
        await client.create("t")
        for _ in range(3):
            reply = await client.ask(produce_request("t", records), ProduceResponse, 9)
            row = reply.responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, 0)
        page = await scraped(broker)
        assert page.value("segbroker_partition_size_bytes", topic="t", partition="0") == len(
            records
        )
        assert page.value("segbroker_topic_produced_bytes_total", topic="t") == len(records)
        assert page.value("segbroker_produced_bytes_total") == len(records)


async def roll_unprepared(broker: Broker, client: WireClient) -> None:
    """Fill segments of t faster than they are made ahead."""
    await client.produce("t", b"v")  # opens it
    handler = broker.core.topics.manager.handlers["t", 0]
    handler._rolling._making.is_asked = True  # as while the thread is busy
    for _ in range(8):
        await client.produce("t", b"v" * 10_000)
    handler._rolling._making.is_asked = False
    assert handler.rolls_unprepared


def counters_of(page: Scraped) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What may only grow, but for that of a topic."""
    return {
        (name, labels): value
        for (name, labels), value in page.rows.items()
        if page.families.get(name) == "counter" and "topic" not in dict(labels)
    }


async def test_what_deleted_topics_have_done_stays_counted() -> None:
    async with served() as (broker, client):
        await client.create("t", segment_bytes="16384")
        await roll_unprepared(broker, client)
        first = await scraped(broker)
        await broker.core.topics.delete_all(["t"])
        second = counters_of(await scraped(broker))
        assert "segbroker_rolls_unprepared_total" in {name for name, _ in second}
        for row, value in counters_of(first).items():
            assert second[row] >= value, row


async def test_no_counter_goes_back_when_a_partition_is_opened_again() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", segment_bytes="16384")
        await roll_unprepared(broker, client)
        disk.sync_error = OSError(5, "the test refuses it")
        assert (await client.produce("t", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        first = await scraped(broker)
        assert first.value("segbroker_partitions_read_only") == 1
        disk.sync_error = None
        with trio.fail_after(60):
            while (second := await scraped(broker)).value("segbroker_partitions_read_only"):
                await trio.lowlevel.checkpoint()
        for row, value in counters_of(first).items():
            assert second.rows[row] >= value, row
        topic = "segbroker_topic_produced_bytes_total"
        assert second.value(topic, topic="t") == first.value(topic, topic="t")


async def test_every_group_that_moves_has_an_age_again_after_a_few_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More groups than a page reads batches for, none of them where the page before saw it."""
    monkeypatch.setattr(ages, "READS_MAX", 2)
    groups = [f"g{number}" for number in range(5)]
    async with served() as (broker, client):
        await client.create("t")
        for _ in range(6):
            await client.produce("t", b"v")
        seen: list[str] = []
        for page_number in range(5):
            for group in groups:
                await commit(client, group, "t", page_number)
            page = await scraped(broker)
            told = page.of("segbroker_group_lag_seconds", "group")
            assert page.value("segbroker_rows_left_out", rows="group_ages") == 3
            assert len(told) == 2
            seen += told
        assert sorted(seen) == sorted(groups * 2), "each as often as any other"


async def test_the_age_of_a_topic_is_not_that_of_one_of_its_name_that_is_gone() -> None:
    async with served() as (broker, client):
        for timestamp_ms in (1_600_000_000_000, 1_700_000_000_000):
            await client.create("t")
            records = batch(b"v", timestamp_ms=timestamp_ms)
            await client.ask(produce_request("t", records), ProduceResponse, 9)
            await commit(client, "g", "t", 0)
            page = await scraped(broker)
            told = page.of("segbroker_group_lag_seconds", "group")
            assert told["g"] == pytest.approx(time.time() - timestamp_ms / 1000, abs=120)
            await broker.core.topics.delete_all(["t"])


async def test_what_was_deleted_in_front_of_a_group_has_no_age() -> None:
    stamps = (1_600_000_000_000, 1_700_000_000_000)
    async with served() as (broker, client):
        await client.create("t")
        for stamp in stamps:
            request = produce_request("t", batch(b"v", timestamp_ms=stamp))
            await client.ask(request, ProduceResponse, 9)
        await commit(client, "g", "t", 0)
        for offset, stamp in enumerate(stamps):
            partition = DeleteRecordsRequestPartition(partition_index=0, offset=offset)
            topic = DeleteRecordsRequestTopic(name="t", partitions=[partition])
            delete = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
            reply = await client.ask(delete, DeleteRecordsResponse, 2)
            assert reply.topics[0].partitions[0].low_watermark == offset
            page = await scraped(broker)
            told = page.of("segbroker_group_lag_seconds", "group")
            assert told["g"] == pytest.approx(time.time() - stamp / 1000, abs=120)


async def test_what_takes_room_and_what_waits_for_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1 << 20)
    partitions = 2_000
    disk = GatedStorage()
    async with (
        serving(storage=disk, metrics_listen=PAGE) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
    ):
        await first.create("t", partitions=partitions)
        disk.syncs.clear()
        try:
            for client in (first, second):
                await client.send(commit_of(*range(partitions)), 8)
            await becomes(lambda: len(broker.core.large_requests) == 1)
            numbers = await scraped(broker)
        finally:
            disk.syncs.set()
        assert numbers.value("segbroker_room_bytes", of="large_requests") > 1 << 20
        assert numbers.value("segbroker_room_bytes_max", of="large_requests") == 1 << 20
        assert numbers.value("segbroker_room_waiting", of="large_requests") == 1
        assert numbers.value("segbroker_room_waiting", of="long_answers") == 0
        for client in (first, second):
            with trio.fail_after(60):
                await client.receive(OffsetCommitResponse, 8)
        numbers = await scraped(broker)
        assert numbers.value("segbroker_room_bytes", of="large_requests") == 0
        assert numbers.value("segbroker_room_waiting", of="large_requests") == 0
