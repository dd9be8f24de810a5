"""Metadata: topics by name and id, those made by being asked for, and the address that is told."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import pytest
import trio

from segbroker.broker.apis import metadata
from segbroker.broker.apis.metadata import NOT_ASKED
from segbroker.broker.core import Core
from segbroker.broker.loop.pace import Pace
from segbroker.protocol.acls import Operation, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from segbroker.segments.directory.manager import NewTopic, Outcome, TopicMeta

from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from .conftest import serving
from .guarded import ALICE, BOB, allow, connect_from, filled, guarded, rule


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(13))
async def test_metadata_is_served_in_every_version(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        reply = await client.ask(MetadataRequest(topics=named("t")), MetadataResponse, version)
        (node,) = reply.brokers
        assert (node.node_id, node.host, node.port) == (1, *broker.address)
        assert reply.controller_id == (1 if version >= 1 else -1)
        (topic,) = reply.topics
        assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
        assert {one.leader_id for one in topic.partitions} == {1}
        assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [1]


async def test_metadata_0_may_come_first_and_an_empty_list_means_all() -> None:
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("a")
            await client.create("b")
        async with connect(broker.address) as client:
            reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 0)
            assert sorted(str(topic.name) for topic in reply.topics) == ["a", "b"]


@pytest.mark.parametrize("version", [1, 5, 9, 12])
async def test_null_means_all_topics_and_empty_means_none(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a")
        every = await client.ask(MetadataRequest(topics=None), MetadataResponse, version)
        none = await client.ask(MetadataRequest(topics=[]), MetadataResponse, version)
        assert [topic.name for topic in every.topics] == ["a"]
        assert none.topics == []


async def test_all_topics_are_listed_once_for_all_who_ask_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list that was begun before somebody asked may lack what was made before he did."""
    made: list[str] = []
    goes_on, of_topic = trio.Event(), metadata._topic

    async def listed(core: Core, meta: TopicMeta, pace: Pace) -> MetadataResponseTopic:
        made.append(meta.name)
        await goes_on.wait()
        return await of_topic(core, meta, pace)

    seen: dict[str, dict[str | None, int]] = {}

    async def ask(who: str, client: WireClient, *, is_about_rights: bool = False) -> None:
        request = MetadataRequest(topics=None, include_topic_authorized_operations=is_about_rights)
        reply = await client.ask(request, MetadataResponse, 12)
        seen[who] = {one.name: one.topic_authorized_operations for one in reply.topics}

    monkeypatch.setattr(metadata, "_topic", listed)
    async with (
        guarded() as broker,
        connect_from(ALICE, broker) as first,
        connect_from(ALICE, broker) as second,
        connect_from(ALICE, broker) as third,
        connect_from(BOB, broker) as bob,
        trio.open_nursery() as nursery,
    ):
        await filled(broker)
        await allow(
            broker, *(rule(Operation.READ, ResourceType.TOPIC, name) for name in ("t", "late"))
        )
        await allow(broker, rule(Operation.READ, ResourceType.TOPIC, "t", host=BOB))
        nursery.start_soon(ask, "first", first)
        await becomes(lambda: made == ["t"])
        await broker.core.topics.create("late", 1, broker.core.topics.topic_config({}))
        nursery.start_soon(ask, "second", second)
        nursery.start_soon(ask, "bob", bob)
        nursery.start_soon(partial(ask, "third", third, is_about_rights=True))
        await becomes(lambda: len(broker.core.listing._waiting) == 3)
        goes_on.set()
    assert made == ["t", "t", "late"]
    assert seen["first"].keys() == seen["bob"].keys() == {"t"}
    rights = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert seen["second"] == {"t": NOT_ASKED, "late": NOT_ASKED}
    assert seen["third"] == {"t": rights, "late": rights}


async def test_an_unknown_topic_is_created_when_both_sides_allow() -> None:
    async with serving(partitions=3) as broker, connect(broker.address) as client:
        asked = MetadataRequest(topics=named("new"), allow_auto_topic_creation=False)
        refused = await client.ask(asked, MetadataResponse, 9)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        reply = await client.ask(MetadataRequest(topics=named("new")), MetadataResponse, 9)
        assert (reply.topics[0].error_code, len(reply.topics[0].partitions)) == (0, 3)


async def test_unknown_topics_of_one_request_are_created_together_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(auto_create_topics_max=4) as broker, connect(broker.address) as client:
        await client.create("there")
        manager = broker.core.topics.manager
        create, counts = manager.create_topics, []

        def counting(wanted: Sequence[NewTopic]) -> list[Outcome]:
            counts.append(len(wanted))
            return create(wanted)

        monkeypatch.setattr(manager, "create_topics", counting)
        names = ["a", "a/b", "there", "b.c", "b_c", "d", "e"]
        reply = await client.ask(MetadataRequest(topics=named(*names)), MetadataResponse, 9)
        assert [(topic.name, topic.error_code) for topic in reply.topics] == [
            ("a", 0),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("there", 0),
            ("b.c", 0),
            ("b_c", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("d", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("e", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert counts == [3]
        assert [len(topic.partitions) for topic in reply.topics] == [4, 0, 1, 4, 0, 0, 0]


async def test_an_unknown_topic_is_not_created_where_that_is_switched_off() -> None:
    async with serving(auto_create_topics=False) as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=named("new")), MetadataResponse, 1)
        assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_name_that_no_topic_can_have_is_said_to_be_invalid_where_none_is_created() -> None:
    async with serving(auto_create_topics=False) as broker, connect(broker.address) as client:
        asked = MetadataRequest(topics=named("with space", "..", "a" * 250, "new"))
        reply = await client.ask(asked, MetadataResponse, 9)
        assert [topic.error_code for topic in reply.topics] == [
            *[ErrorCode.INVALID_TOPIC_EXCEPTION] * 3,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_a_topic_of_kafkas_own_is_refused_and_not_made_empty() -> None:
    async with serving() as broker, connect(broker.address) as client:
        asked = MetadataRequest(topics=named("__consumer_offsets", "__transaction_state"))
        reply = await client.ask(asked, MetadataResponse, 12)
        codes = {topic.error_code for topic in reply.topics}
        assert codes == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert not broker.core.topics.all
        # Somebody who makes one on purpose, to copy a cluster, has it.
        await client.create("__consumer_offsets")
        reply = await client.ask(asked, MetadataResponse, 12)
        assert reply.topics[0].error_code == 0


async def test_metadata_by_topic_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topic_id = broker.core.topics.all["t"].topic_id
        for name in (None, ""):  # Java says the latter
            asked = [
                MetadataRequestTopic(name=name, topic_id=topic_id),
                MetadataRequestTopic(name=None, topic_id=UUID(int=7)),
            ]
            reply = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 12)
            assert [(topic.name, topic.error_code) for topic in reply.topics] == [
                ("t", 0),
                (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ]


async def test_authorized_operations_are_a_bit_set_only_when_asked_for() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = MetadataRequest(topics=named("t"))
        quiet = await client.ask(request, MetadataResponse, 8)
        assert quiet.cluster_authorized_operations == -(2**31)
        assert quiet.topics[0].topic_authorized_operations == -(2**31)
        request.include_cluster_authorized_operations = True
        request.include_topic_authorized_operations = True
        reply = await client.ask(request, MetadataResponse, 8)
        assert reply.cluster_authorized_operations == 0b1_1111_1010_0000
        assert reply.topics[0].topic_authorized_operations == 0b1101_1111_1000


async def test_the_advertised_address_is_told_with_the_bound_port_for_0() -> None:
    async with serving(advertised="broker.example:0") as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert (reply.brokers[0].host, reply.brokers[0].port) == (
            "broker.example",
            broker.address[1],
        )


async def test_who_listens_everywhere_tells_the_address_that_was_reached() -> None:
    async with (
        serving(listen="0.0.0.0:0", allow_anonymous_network=True) as broker,
        connect(("127.0.0.1", broker.address[1])) as client,
    ):
        reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert reply.brokers[0].host == "127.0.0.1"


async def test_who_listens_on_a_name_tells_that_name() -> None:
    async with serving(listen="localhost:0") as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert (reply.brokers[0].host, reply.brokers[0].port) == ("localhost", broker.address[1])
