"""Topics by id on the wire: a topic made anew under its old name is another one."""

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import trio

from segbroker.broker.loop.pace import Pace
from segbroker.broker.partitions import topics as topics_of_broker
from segbroker.broker.producing.produce import ROWS_AT_ONCE
from segbroker.broker.server import Broker
from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchResponse,
    FetchResponseTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from segbroker.segments.directory.manager import TopicMeta

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import (
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from .conftest import serving

if TYPE_CHECKING:
    from _collections_abc import dict_values

FETCHES = range(13, SERVED[ApiKey.FETCH].max + 1)
NOBODY = UUID(int=7)


def id_of(broker: Broker, name: str = "t") -> UUID:
    return broker.core.topics.all[name].topic_id


async def recreated(client: WireClient, broker: Broker) -> UUID:
    """A topic `t` that is deleted and made anew; the id that it had before."""
    await client.create("t")
    old = id_of(broker)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    await client.ask(request, DeleteTopicsResponse, 3)
    await client.create("t")
    return old


def fetch_of(topic_id: UUID, **options: int) -> FetchRequest:
    request = fetch_request("", options.pop("offset", 0), **options)
    request.topics[0].topic_id = topic_id
    return request


def produce_of(topic_id: UUID, *, partition: int = 0) -> ProduceRequest:
    request = produce_request("", batch(b"v"), partition=partition)
    request.topic_data[0].topic_id = topic_id
    return request


async def fetched(client: WireClient, request: FetchRequest, version: int) -> FetchResponseTopic:
    reply = await client.ask(request, FetchResponse, version)
    (topic,) = reply.responses
    return topic


async def produced(client: WireClient, request: ProduceRequest) -> ProduceResponseTopic:
    reply = await client.ask(request, ProduceResponse, 13)
    (topic,) = reply.responses
    return topic


async def test_a_topic_is_written_by_its_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        topic = await produced(client, produce_of(id_of(broker)))
        (row,) = topic.partition_responses
        assert (topic.topic_id, row.error_code, row.base_offset) == (id_of(broker), 0, 1)


@pytest.mark.parametrize("version", FETCHES)
async def test_a_topic_is_read_by_its_id(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b")
        topic = await fetched(client, fetch_of(id_of(broker)), version)
        assert topic.topic_id == id_of(broker)
        assert values(topic.partitions[0]) == [b"a", b"b"]


@pytest.mark.parametrize("version", FETCHES)
async def test_a_partition_that_a_known_topic_has_not_is_an_unknown_partition(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topic = await fetched(client, fetch_of(id_of(broker), partition=7), version)
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = await produced(client, produce_of(id_of(broker), partition=7))
        code = rows.partition_responses[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_id_of_a_deleted_topic_is_unknown_though_its_name_lives_on() -> None:
    async with serving() as broker, connect(broker.address) as client:
        old = await recreated(client, broker)
        for topic_id in (old, NOBODY):
            topic = await fetched(client, fetch_of(topic_id), 13)
            assert topic.topic_id == topic_id
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            rows = await produced(client, produce_of(topic_id))
            assert rows.topic_id == topic_id
            assert rows.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        row = await client.fetch("t", 0)
        assert (row.error_code, row.high_watermark) == (0, 0)


async def test_a_fetch_that_waits_by_id_learns_that_its_topic_went() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)  # opens the partition
        await client.send(fetch_of(id_of(broker), wait_ms=600_000), 13)
        async with connect(broker.address) as other:
            with trio.fail_after(60):
                while not broker.core.topics.served["t", 0].fetches:
                    await trio.lowlevel.checkpoint()
                request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
                await other.ask(request, DeleteTopicsResponse, 3)
                _, reply = await client.receive(FetchResponse, 13)
        code = reply.responses[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("count", [0, ROWS_AT_ONCE])
async def test_what_waits_by_id_for_another_partition_is_not_for_a_topic_that_is_made_meanwhile(
    count: int,
) -> None:
    """count: further rows, by which a produce goes the way of large ones."""
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for name in ("t", "slow"):
            await client.create(name)
            await client.produce(name, b"old")
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as writer,
        connect(broker.address) as reader,
        connect(broker.address) as other,
    ):
        await other.fetch("t", 0)  # opens it
        old, slow = id_of(broker), id_of(broker, "slow")
        produce, fetch = produce_of(slow), fetch_of(slow)
        produce.topic_data += produce_of(old).topic_data + produce_of(NOBODY).topic_data * count
        fetch.topics += fetch_of(old).topics
        disk.reads.clear()
        await writer.send(produce, 13)
        await reader.send(fetch, 13)
        await becomes(lambda: broker.core.counters.requests == 3)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        await other.ask(request, DeleteTopicsResponse, 3)
        await other.create("t")
        await other.produce("t", b"new")
        disk.reads.set()
        _, produced = await writer.receive(ProduceResponse, 13)
        _, fetched = await reader.receive(FetchResponse, 13)
        codes = [topic.partition_responses[0].error_code for topic in produced.responses]
        assert codes[:2] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
        codes = [topic.partitions[0].error_code for topic in fetched.responses]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID]
        assert values(await other.fetch("t", 0)) == [b"new"]


async def test_many_topics_by_id_are_read_by_the_way_of_large_requests() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a")
        request = fetch_of(id_of(broker))
        request.topics += fetch_of(NOBODY).topics * 500
        reply = await client.ask(request, FetchResponse, 16)
        first, *others = reply.responses
        assert values(first.partitions[0]) == [b"a"]
        codes = {topic.partitions[0].error_code for topic in others}
        assert (len(others), codes) == (500, {ErrorCode.UNKNOWN_TOPIC_ID})


async def commit(client: WireClient, topic_id: UUID) -> tuple[UUID, int]:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(topic_id=topic_id, partitions=[row])],
    )
    reply = await client.ask(request, OffsetCommitResponse, 10)
    (topic,) = reply.topics
    return topic.topic_id, topic.partitions[0].error_code


async def stands(client: WireClient, *topic_ids: UUID) -> OffsetFetchResponseGroup:
    """Of all topics without ids."""
    topics = [
        OffsetFetchRequestGroupTopic(topic_id=topic_id, partition_indexes=[0])
        for topic_id in topic_ids
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics or None)
    reply = await client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 10)
    return reply.groups[0]


async def test_offsets_are_committed_and_fetched_by_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topic_id = id_of(broker)
        assert await commit(client, topic_id) == (topic_id, 0)
        for answer in (await stands(client, topic_id), await stands(client)):
            (topic,) = answer.topics
            (row,) = topic.partitions
            assert (topic.topic_id, row.committed_offset, row.error_code) == (topic_id, 5, 0)


async def test_offsets_of_an_id_that_no_topic_has_are_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        old = await recreated(client, broker)
        assert await commit(client, old) == (old, ErrorCode.UNKNOWN_TOPIC_ID)
        (topic,) = (await stands(client, old)).topics
        (row,) = topic.partitions
        assert (topic.topic_id, row.error_code) == (old, ErrorCode.UNKNOWN_TOPIC_ID)
        assert row.committed_offset == -1


async def test_offsets_are_not_those_of_a_topic_that_is_made_while_they_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        old = id_of(broker)
        async with connect(broker.address) as other:
            first_step = Pace.step

            async def step(_: Pace) -> None:
                monkeypatch.setattr(Pace, "step", first_step)
                deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
                await other.ask(deletion, DeleteTopicsResponse, 3)
                await other.create("t")
                assert await commit(other, id_of(broker)) == (id_of(broker), 0)

            monkeypatch.setattr(Pace, "step", step)
            (topic,) = (await stands(client, old)).topics
        (row,) = topic.partitions
        assert id_of(broker) != old
        assert (topic.topic_id, row.error_code) == (old, ErrorCode.UNKNOWN_TOPIC_ID)
        assert row.committed_offset == -1


class LookedAt(dict[str, TopicMeta]):
    """Topics of which `meanwhile` is asked, once, while somebody goes through them."""

    meanwhile: Callable[[], object] | None = None

    def values(self) -> "dict_values[str, TopicMeta]":
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().values()


async def test_a_topic_is_known_by_its_id_while_another_thread_goes_through_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_of_broker, "LAST_COUNT", 0)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topics = broker.core.topics
        topic_id = topics.all["t"].topic_id
        looked_at = LookedAt(topics.all)
        found: list[TopicMeta | None] = []
        looked_at.meanwhile = lambda: found.append(topics.by_id(topic_id))
        topics.manager.topics = MappingProxyType(looked_at)
        found.append(topics.by_id(topic_id))
        assert [meta and meta.name for meta in found] == ["t", "t"]


async def test_a_new_topic_is_known_by_its_id_without_going_through_all_others() -> None:
    """Who writes to thousands of topics by ids, each as it is made, would have all looked at."""

    def looked() -> None:
        raise AssertionError("all topics were gone through")

    async with serving() as broker, connect(broker.address) as client:
        topics = broker.core.topics
        for number in range(100):
            await client.create(f"t{number}")
        old = topics.all["t0"].topic_id
        assert topics.by_id(old) is topics.all["t0"]
        for number in range(100, 110):
            name = f"t{number}"
            await client.create(name)
            looked_at = LookedAt(topics.all)
            looked_at.meanwhile = looked
            topics.manager.topics = MappingProxyType(looked_at)
            assert topics.by_id(topics.all[name].topic_id) is topics.all[name]
            assert topics.by_id(old) is topics.all["t0"]
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        await client.ask(request, DeleteTopicsResponse, 3)
        assert topics.by_id(looked_at[name].topic_id) is None
