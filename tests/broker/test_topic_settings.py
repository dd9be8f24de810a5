"""Kafka's settings of topics: what they do here, or why there is nothing for them to do."""

import pytest

from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponse, ProduceResponsePartition
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.settings.inert_settings import INERT
from segbroker.segments.settings.topic_config import KEYS, Durability

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect, produce_request
from ..support.wire_settings import alter_all
from ..support.wire_transactions import until
from .conftest import serving
from .test_settings_apis import describe

NOW_MS = 1_700_000_000_000
# All settings of a topic of Apache Kafka 4.1: `kafka-configs --describe --all` on one.
OF_KAFKA = {
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages",
    "flush.ms", "follower.replication.throttled.replicas", "index.interval.bytes",
    "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
}  # fmt: skip


def test_every_setting_of_a_kafka_topic_works_or_says_why_it_has_nothing_to_do() -> None:
    works = {key.name for key in KEYS}
    assert works | set(INERT) >= OF_KAFKA
    assert not works & set(INERT)


async def test_tools_that_ask_for_a_setting_of_kafka_find_it_whether_it_was_set_or_not() -> None:
    # kafka-topics --describe --at-min-isr-partitions ends with a null pointer otherwise.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 1)
        (found,) = (await describe(client, 2, "t")).results
        rows = {row.name: row for row in found.configs}
        assert rows.keys() >= OF_KAFKA
        least = rows["min.insync.replicas"]
        assert (least.value, least.config_source) == ("1", 5)  # a default


async def sent(
    client: WireClient, times: list[int], codec: Codec = Codec.NONE
) -> ProduceResponsePartition:
    """Produce one batch with records of these times; the answer."""
    made = encode_batch([b"v"] * len(times), timestamps_ms=times, codec=codec)
    reply = await client.ask(produce_request("t", made), ProduceResponse, 9)
    return reply.responses[0].partition_responses[0]


async def send(client: WireClient, times: list[int], codec: Codec = Codec.NONE) -> int:
    """The code of it alone."""
    return (await sent(client, times, codec)).error_code


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_batch_is_refused_for_one_record_of_another_time(codec: Codec) -> None:
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "10"}
        await client.create("t", 1, **bounds)
        assert await send(client, [NOW_MS - 1_000, NOW_MS + 10], codec) == 0
        for wrong in (NOW_MS - 1_001, NOW_MS + 11, 0, -2):
            for times in ([wrong], [NOW_MS, wrong, NOW_MS]):
                assert await send(client, times, codec) == ErrorCode.INVALID_TIMESTAMP, times
        partition = await broker.core.topics.open("t", 0)
        assert partition is not None
        assert partition.handler.log_end_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_record_without_a_timestamp_is_within_every_bound(codec: Codec) -> None:
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "10"}
        await client.create("t", 1, **bounds)
        for times in ([-1], [-1, -1], [NOW_MS, -1, NOW_MS]):
            assert await send(client, times, codec) == 0, times
        answer = await sent(client, [-1, NOW_MS + 11, -1], codec)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [row.batch_index for row in answer.record_errors] == [1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("times", "named"),
    [([0, 11, 0, 12], [1, 3]), ([0, -1_001, 5], [1]), ([-2_000, 11], [0, 1]), ([-2_000], [0])],
)
async def test_records_of_another_time_are_named(
    codec: Codec, times: list[int], named: list[int]
) -> None:
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "10"}
        await client.create("t", 1, **bounds)
        row = await sent(client, [NOW_MS + each for each in times], codec)
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [one.batch_index for one in row.record_errors] == named
        assert "timestamp" in (row.record_errors[0].batch_index_error_message or "")


async def test_a_batch_that_opens_to_too_much_to_look_at_its_times_is_refused() -> None:
    # 20 MiB of records in some KiB: opened nowhere but where their times are asked for.
    made = encode_batch([bytes(1 << 20)] * 20, timestamps_ms=NOW_MS, codec=Codec.ZSTD)
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        await client.create("t", 1, message_timestamp_before_max_ms="1000")
        await client.create("u")
        for name, code in (("t", ErrorCode.MESSAGE_TOO_LARGE), ("u", ErrorCode.NONE)):
            reply = await client.ask(produce_request(name, made), ProduceResponse, 9)
            assert reply.responses[0].partition_responses[0].error_code == code
        # What its header says is enough, and its records are not named.
        made = encode_batch([bytes(1 << 20)] * 20, timestamps_ms=1, codec=Codec.ZSTD)
        reply = await client.ask(produce_request("t", made), ProduceResponse, 9)
        (row,) = reply.responses[0].partition_responses
        assert (row.error_code, row.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


async def test_any_time_is_taken_unless_somebody_says_otherwise() -> None:
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await send(client, [0, 1 << 50]) == 0


async def test_the_time_of_arrival_is_never_out_of_bounds() -> None:
    async with serving(now_ms=lambda: NOW_MS) as broker, connect(broker.address) as client:
        await client.create(
            "t", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="10"
        )
        assert await send(client, [1 << 50]) == 0


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"flush_messages": "1", "flush_ms": "1"}, 0),
        ({"durability": "disk", "flush_ms": "1000"}, 0),
        ({"durability": "disk", "flush_ms": "999"}, ErrorCode.INVALID_CONFIG),
        ({"durability": "disk", "flush_messages": "5"}, ErrorCode.INVALID_CONFIG),
        ({"durability": "memory", "flush_ms": "60000"}, ErrorCode.INVALID_CONFIG),
        ({"durability": "memory", "flush_ms": str(2**63 - 1)}, 0),
        ({"flush_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"compression_gzip_level": "9", "compression_zstd_level": "-7"}, 0),
        ({"compression_gzip_level": "10"}, ErrorCode.INVALID_CONFIG),
        ({"remote_storage_enable": "false", "local_retention_ms": "-2"}, 0),
        ({"remote_storage_enable": "true"}, ErrorCode.INVALID_CONFIG),
        ({"leader_replication_throttled_replicas": "*"}, 0),
        ({"follower_replication_throttled_replicas": "0:1,1:1"}, 0),
        ({"follower_replication_throttled_replicas": "all"}, ErrorCode.INVALID_CONFIG),
        ({"min_insync_replicas": "2"}, 0),
        ({"min_insync_replicas": "0"}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_asks_for_less_than_is_done_is_taken_and_what_asks_for_more_is_refused(
    settings: dict[str, str], code: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        made, message = await client.try_create("t", 1, **settings)
        assert made == code, message
        if not code:
            (row,) = (await describe(client, 2, "t")).results
            found = {one.name: one for one in row.configs}
            for key, value in settings.items():
                setting = found[key.replace("_", ".")]
                assert (setting.value, setting.config_source) == (value, 1)
                assert setting.documentation


async def test_settings_that_a_partition_could_not_follow_hold_when_the_disk_takes_it() -> None:
    """They are stored, which is described; what the partition needs besides could not be."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", 1)
        assert await send(client, [NOW_MS]) == 0
        disk.refused = b"ceilings"
        wanted = {"durability": "disk", "message.timestamp.type": "LogAppendTime"}
        code, why = await alter_all(client, "t", wanted, kind=2)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert why is not None
        assert "are stored" in why
        disk.refused = None
        handler = broker.core.topics.served["t", 0].handler
        await becomes(lambda: handler.config.durability is Durability.DISK)

        async def is_stamped() -> bool:  # it is read-only for a moment
            return (await sent(client, [NOW_MS])).log_append_time_ms >= 0

        await until(is_stamped)
        assert handler.ceiling is not None, "acknowledged before it is synced"
