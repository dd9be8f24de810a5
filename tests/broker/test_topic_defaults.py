"""Settings of the broker that hold for every topic which has none of its own, seen by clients."""

import socket
import struct

import trio

from segbroker.protocol import messages_admin as messages
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponse
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect, fetch_request, produce_request
from ..support.wire_settings import (
    BROKER,
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    SET_KEY,
    STATIC,
    alter,
    describe,
)
from ..support.wire_transactions import until
from .conftest import serving

NOW_MS = 1_700_000_000_000
TOPIC = 2
OVERRIDE = 1
RESET = struct.pack("ii", 1, 0)
"""Linger so, and a connection that is closed is reset."""

Layers = list[tuple[str, str | None, int]]


async def layers(client: WireClient, topic: str, setting: str) -> Layers:
    """What each place says of a setting of a topic, the one in force first."""
    row = (await describe(client, topic, kind=TOPIC))[setting]
    found = [(one.name, one.value, one.source) for one in row.synonyms]
    assert (row.value, row.config_source) == found[0][1:]
    return found


async def send(client: WireClient, topic: str, size: int) -> int:
    made = encode_batch([bytes(size)], timestamps_ms=NOW_MS)
    reply = await client.ask(produce_request(topic, made), ProduceResponse, 9)
    return reply.responses[0].partition_responses[0].error_code


async def test_topics_say_where_each_of_their_settings_is_from() -> None:
    async with (
        serving(log_retention_ms=70, message_max_bytes=2_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", 1, max_message_bytes="3000")
        started = ("log.retention.ms", "70", STATIC)
        default = ("log.retention.ms", "604800000", DEFAULT)
        assert await layers(client, "t", "retention.ms") == [started, default]
        assert await layers(client, "t", "max.message.bytes") == [
            ("max.message.bytes", "3000", OVERRIDE),
            ("message.max.bytes", "2000", STATIC),
            ("message.max.bytes", "1048576", DEFAULT),
        ]
        assert await layers(client, "t", "segment.ms") == [("log.roll.ms", "604800000", DEFAULT)]

        assert await alter(client, "", log__retention__ms="80") == (0, None)
        every = ("log.retention.ms", "80", DYNAMIC_DEFAULT)
        assert await layers(client, "t", "retention.ms") == [every, started, default]
        assert await alter(client, "1", log_retention_ms="90") == (0, None)
        own = ("log.retention.ms", "90", DYNAMIC_BROKER)
        assert await layers(client, "t", "retention.ms") == [own, every, started, default]
        for resource in ("", "1"):
            assert await alter(client, resource, log_retention_ms=None) == (0, None)
        assert await layers(client, "t", "retention.ms") == [started, default]


async def test_what_is_created_is_answered_with_what_holds_for_it() -> None:
    async with serving(log_cleanup_policy="compact") as broker, connect(broker.address) as client:
        request = messages.CreateTopicsRequest(
            topics=[
                messages.CreateTopicsRequestTopic(
                    name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            timeout_ms=9_000,
        )
        reply = await client.ask(request, messages.CreateTopicsResponse, 7)
        rows = {row.name: (row.value, row.config_source) for row in reply.topics[0].configs or []}
        assert rows["cleanup.policy"] == ("compact", STATIC)
        assert rows["retention.ms"] == ("604800000", DEFAULT)
        assert await send(client, "t", 10) == ErrorCode.INVALID_RECORD  # it has no key


async def test_a_topic_that_exists_follows_at_once_and_after_a_kill() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for name in ("t", "unopened"):
            await client.create(name, 1)
        assert await send(client, "t", 5_000) == 0
        assert await alter(client, "1", message__max__bytes="2000") == (0, None)
        for name in ("t", "unopened"):
            assert await send(client, name, 5_000) == ErrorCode.MESSAGE_TOO_LARGE
        killed = disk.after_kill()
    async with serving(storage=killed) as broker, connect(broker.address) as client:
        assert await send(client, "t", 5_000) == ErrorCode.MESSAGE_TOO_LARGE
        assert await alter(client, "1", message_max_bytes=None) == (0, None)
        assert await send(client, "t", 5_000) == 0


async def test_what_the_start_says_holds_from_that_start_on_and_no_longer() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", 1)
    for roll_ms in (9_000, 604_800_000):
        async with (
            serving(storage=disk, log_roll_ms=roll_ms) as broker,
            connect(broker.address) as client,
        ):
            assert (await layers(client, "t", "segment.ms"))[0][1] == str(roll_ms)


async def test_a_default_that_a_topic_cannot_have_is_not_said_of_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("small", 1, segment_bytes="4096")
        assert await alter(client, "1", message__max__bytes="8192") == (0, None)
        assert await layers(client, "small", "max.message.bytes") == [
            ("max.message.bytes", "4096", DEFAULT)
        ]
        assert await send(client, "small", 3_000) == 0
        assert await send(client, "small", 5_000) == ErrorCode.MESSAGE_TOO_LARGE


async def test_defaults_that_contradict_each_other_change_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 1)
        assert (await alter(client, "1", log__segment__bytes="4096"))[0] == 0
        code, message = await alter(client, "1", message__max__bytes="8192")
        assert code == ErrorCode.INVALID_REQUEST
        assert "exceeds segment.bytes=4096" in str(message)
        assert (await layers(client, "t", "max.message.bytes"))[0][1] == "4096"


async def test_a_setting_that_was_set_to_its_default_holds_though_another_would_follow() -> None:
    disk = MemoryStorage()
    large = 16 << 20
    async with (
        serving(storage=disk, log_segment_bytes=large) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", 1)
        followed = ("max.message.bytes", "16777216", DEFAULT)
        assert await layers(client, "t", "max.message.bytes") == [followed]
        assert await alter(client, "1", message__max__bytes="1048576") == (0, None)
        default = ("message.max.bytes", "1048576", DEFAULT)
        chosen = ("message.max.bytes", "1048576", DYNAMIC_BROKER)
        assert await layers(client, "t", "max.message.bytes") == [chosen, default]
        assert await send(client, "t", 2 << 20) == ErrorCode.MESSAGE_TOO_LARGE
    async with (
        serving(storage=disk, log_segment_bytes=large) as broker,
        connect(broker.address) as client,
    ):
        assert await layers(client, "t", "max.message.bytes") == [chosen, default]
        assert await alter(client, "1", message__max__bytes=None) == (0, None)
        assert await send(client, "t", 2 << 20) == 0


async def test_what_was_set_holds_for_topics_though_its_client_was_lost_meanwhile() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topics = broker.core.topics
        async with topics._administration:
            async with connect(broker.address) as lost:
                await lost.send(fetch_request("t", 0, wait_ms=600_000), 12)
                change = messages.IncrementalAlterConfigsRequest(
                    resources=[
                        messages.IncrementalAlterConfigsRequestResource(
                            resource_type=BROKER,
                            resource_name="1",
                            configs=[
                                messages.IncrementalAlterConfigsRequestConfig(
                                    name="log_retention_ms", config_operation=SET_KEY, value="90"
                                )
                            ],
                        )
                    ],
                    validate_only=False,
                )
                await lost.send(change, 1)
                with trio.fail_after(60):
                    while not topics._administration.statistics().tasks_waiting:
                        await trio.lowlevel.checkpoint()
                lost.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            await client.produce("t", b"v")  # its fetch is answered: it is found to be gone
        with trio.fail_after(60):
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        own = ("log.retention.ms", "90", DYNAMIC_BROKER)
        assert (await layers(client, "t", "retention.ms"))[0] == own
        assert topics.manager.topic_defaults["retention.ms"] == "90"


async def test_what_topics_could_not_be_told_holds_for_them_when_the_disk_takes_it() -> None:
    """It is described of the broker, with an error for who has set it: it stays no half."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", 1)
        disk.refused = b"topic_defaults_set"
        code, _ = await alter(client, "1", message_max_bytes="2000")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await describe(client, "1"))["message_max_bytes"].value == "2000"
        disk.refused = None

        async def is_refused() -> bool:
            return await send(client, "t", 3_000) == ErrorCode.MESSAGE_TOO_LARGE

        await until(is_refused)
        (first, *_) = await layers(client, "t", "max.message.bytes")
        assert first == ("message.max.bytes", "2000", DYNAMIC_BROKER)
