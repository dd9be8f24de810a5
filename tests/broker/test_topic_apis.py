"""Topics are created, deleted and grown, or refused one by one."""

from collections.abc import Sequence
from uuid import UUID

import pytest
import trio

from segbroker.broker.partitions import topics as topics_module
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
)
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.segments.directory.manager import NewTopic, Outcome
from segbroker.segments.errors import TopicExists

from ..support.waiting import DEADLINE_S
from ..support.wire_client import (
    WireClient,
    connect,
    fetch_request,
    values,
)
from .conftest import serving


def creation(
    name: str, partitions: int = 1, replicas: int = 1, **config: str
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[
            CreateTopicsRequestConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )


async def create(
    client: WireClient, *topics: CreateTopicsRequestTopic, validate_only: bool = False
) -> list[tuple[str, int]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    reply = await client.ask(request, CreateTopicsResponse, 7)
    return [(row.name, row.error_code) for row in reply.topics]


async def test_topics_are_created_or_refused_one_by_one() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("there")
        rows = await create(
            client,
            creation("ok"),
            creation("default", partitions=-1, replicas=-1),
            creation("there"),
            creation("a/b"),
            creation("none", partitions=0),
            creation("many", partitions=100_001),
            creation("copied", replicas=3),
            creation("odd", no_such_key="1"),
            creation("wrong", segment_bytes="many"),
            creation("twice"),
            creation("twice"),
            creation("__cluster_metadata"),
        )
        assert rows == [
            ("ok", ErrorCode.NONE),
            ("default", ErrorCode.NONE),
            ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("none", ErrorCode.INVALID_PARTITIONS),
            ("many", ErrorCode.INVALID_PARTITIONS),
            ("copied", ErrorCode.INVALID_REPLICATION_FACTOR),
            ("odd", ErrorCode.INVALID_CONFIG),
            ("wrong", ErrorCode.INVALID_CONFIG),
            ("twice", ErrorCode.INVALID_REQUEST),
            ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ]
        assert sorted(broker.core.topics.all) == ["default", "ok", "there"]
        assert broker.core.topics.all["default"].partitions == 4


async def test_of_several_mistakes_in_a_topic_kafkas_first_one_is_told() -> None:
    async with serving() as broker, connect(broker.address) as client:
        rows = await create(
            client,
            creation("a/b", partitions=0, no_such_key="1"),
            creation("odd", partitions=0, replicas=3, no_such_key="1"),
            creation("none", partitions=0, replicas=3),
            creation("zero", partitions=0, replicas=0),
            creation("negative", partitions=-2, replicas=-2),
        )
        assert rows == [
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("odd", ErrorCode.INVALID_CONFIG),
            ("none", ErrorCode.INVALID_PARTITIONS),
            ("zero", ErrorCode.INVALID_REPLICATION_FACTOR),
            ("negative", ErrorCode.INVALID_REPLICATION_FACTOR),
        ]


async def test_what_is_refused_is_said_in_kafkas_words() -> None:
    # Tools and frameworks look for these sentences; so do Kafka's own tests.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("there")
        valueless = creation("valueless")
        valueless.configs = [CreateTopicsRequestConfig(name="retention.bytes", value=None)]
        request = CreateTopicsRequest(
            topics=[creation("there"), creation("__cluster_metadata"), valueless]
        )
        reply = await client.ask(request, CreateTopicsResponse, 7)
        assert [row.error_message for row in reply.topics] == [
            "Topic 'there' already exists.",
            "Creation of internal topic __cluster_metadata is prohibited.",
            "Null value not supported for topic configs: retention.bytes",
        ]


async def test_what_is_about_the_name_is_said_first() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("there")
        rows = await create(
            client, creation("there", replicas=3), creation("a/b", replicas=3, partitions=0)
        )
        assert rows == [
            ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]


async def test_an_assignment_may_only_name_us() -> None:
    def assigned(name: str, *brokers: int) -> CreateTopicsRequestTopic:
        topic = creation(name, partitions=-1, replicas=-1)
        topic.assignments = [
            CreateTopicsRequestAssignment(partition_index=n, broker_ids=[one])
            for n, one in enumerate(brokers)
        ]
        return topic

    async with serving() as broker, connect(broker.address) as client:
        rows = await create(client, assigned("ok", 1, 1), assigned("wrong", 1, 2))
        assert rows == [("ok", 0), ("wrong", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
        assert broker.core.topics.all["ok"].partitions == 2


@pytest.mark.parametrize(
    ("indexes", "code"),
    [
        ([1, 0, 2], 0),
        ([0, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 1, 2, 3], ErrorCode.INVALID_PARTITIONS),
    ],
    ids=str,
)
async def test_an_assignment_is_of_partitions_from_0_on_and_of_no_more_than_there_may_be(
    indexes: list[int], code: int
) -> None:
    topic = creation("t", partitions=-1, replicas=-1)
    topic.assignments = [
        CreateTopicsRequestAssignment(partition_index=index, broker_ids=[1]) for index in indexes
    ]
    async with serving(partitions_max=3) as broker, connect(broker.address) as client:
        assert await create(client, topic) == [("t", code)]
        assert ("t" in broker.core.topics.all) == (code == 0)


async def test_validate_only_does_all_but_create() -> None:
    async with serving() as broker, connect(broker.address) as client:
        rows = await create(client, creation("ok"), creation("a/b"), validate_only=True)
        assert rows == [("ok", 0), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
        assert dict(broker.core.topics.all) == {}


@pytest.mark.parametrize("validate_only", [True, False])
async def test_no_more_partitions_are_asked_for_at_once_than_kafka_takes(
    *, validate_only: bool
) -> None:
    async with serving(partitions=2) as broker, connect(broker.address) as client:
        wanted = [creation(f"t{n}", partitions=-1, replicas=-1) for n in range(4_999)]
        rows = await create(
            client, *wanted, creation("a", 1), creation("b", 2), validate_only=validate_only
        )
        assert {code for _, code in rows} == {ErrorCode.POLICY_VIOLATION}
        assert len(rows) == len(wanted) + 2
        assert not broker.core.topics.all
        # As many as that are taken, and one that is refused for itself does not count.
        rows = await create(
            client, *wanted, creation("a", 2), creation("b", 10_001), validate_only=True
        )
        assert {code for _, code in rows[:-1]} == {0}
        assert rows[-1] == ("b", ErrorCode.INVALID_PARTITIONS)


async def test_a_topic_has_as_many_partitions_as_partitions_max_allows() -> None:
    async with serving(partitions_max=100_000) as broker, connect(broker.address) as client:
        assert await create(client, creation("large", 10_001)) == [("large", 0)]
        rows = await create(client, creation("most", 100_000), validate_only=True)
        assert rows == [("most", 0)]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name="large", count=10_002, assignments=None)],
            timeout_ms=9_000,
            validate_only=False,
        )
        reply = await client.ask(request, CreatePartitionsResponse, 1)
        assert [row.error_code for row in reply.results] == [0]
        assert broker.core.topics.all["large"].partitions == 10_002


async def test_a_topic_of_which_nobody_says_it_has_no_more_partitions_than_it_may() -> None:
    async with serving(partitions=4, partitions_max=3) as broker, connect(broker.address) as client:
        assert await create(client, creation("made", -1)) == [("made", 0)]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="asked")])
        reply = await client.ask(asked, MetadataResponse, 9)
        assert [row.error_code for row in reply.topics] == [0]
        assert {name: meta.partitions for name, meta in broker.core.topics.all.items()} == {
            "made": 3,
            "asked": 3,
        }


async def test_the_answer_holds_the_settings_and_never_null() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = CreateTopicsRequest(topics=[creation("t", segment_bytes="4096"), creation("a/b")])
        reply = await client.ask(request, CreateTopicsResponse, 5)
        good, bad = reply.topics
        assert good.configs is not None
        settings = {one.name: (one.value, one.config_source) for one in good.configs}
        assert settings["segment.bytes"] == ("4096", 1)
        assert settings["message.timestamp.type"] == ("CreateTime", 5)
        assert bad.configs == []


async def test_a_deleted_topic_is_gone_and_may_come_again_empty() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"old")
        old_id = broker.core.topics.all["t"].topic_id
        reply = await client.ask(
            DeleteTopicsRequest(topic_names=["t", "missing"], timeout_ms=1000),
            DeleteTopicsResponse,
            5,
        )
        assert [(row.name, row.error_code) for row in reply.responses] == [
            ("t", 0),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await client.produce("t", b"v")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.create("t")
        assert broker.core.topics.all["t"].topic_id != old_id
        assert (await client.produce("t", b"new")).base_offset == 0
        assert values(await client.fetch("t", 0)) == [b"new"]


async def test_topics_are_not_deleted_where_that_is_switched_off() -> None:
    async with serving(delete_topics=False) as broker, connect(broker.address) as client:
        await client.create("t")
        topic_id = broker.core.topics.all["t"].topic_id
        named = DeleteTopicsRequest(topic_names=["t", "missing"], timeout_ms=1000)
        for version, code in (
            (2, ErrorCode.INVALID_REQUEST),
            (5, ErrorCode.TOPIC_DELETION_DISABLED),
        ):
            reply = await client.ask(named, DeleteTopicsResponse, version)
            assert [(row.name, row.error_code) for row in reply.responses] == [
                ("t", code),
                ("missing", code),
            ]
        by_id = DeleteTopicsRequest(
            topics=[DeleteTopicsRequestTopic(name=None, topic_id=topic_id)], timeout_ms=1000
        )
        (row,) = (await client.ask(by_id, DeleteTopicsResponse, 6)).responses
        assert (row.name, row.topic_id, row.error_code) == (
            None,
            topic_id,
            ErrorCode.TOPIC_DELETION_DISABLED,
        )
        assert set(broker.core.topics.all) == {"t"}


async def test_a_topic_is_deleted_by_its_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topics = [
            DeleteTopicsRequestTopic(topic_id=broker.core.topics.all["t"].topic_id),
            DeleteTopicsRequestTopic(topic_id=UUID(int=9)),
        ]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
        reply = await client.ask(request, DeleteTopicsResponse, 6)
        assert [(row.name, row.error_code) for row in reply.responses] == [
            ("t", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert dict(broker.core.topics.all) == {}


async def test_what_is_not_said_clearly_is_not_deleted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in ("both", "twice", "same", "t"):
            await client.create(name)
        ids = {name: meta.topic_id for name, meta in broker.core.topics.all.items()}
        topics = [
            DeleteTopicsRequestTopic(name="both", topic_id=ids["both"]),
            DeleteTopicsRequestTopic(name="both", topic_id=UUID(int=9)),
            DeleteTopicsRequestTopic(name=None, topic_id=ZERO_UUID),
            DeleteTopicsRequestTopic(name="twice", topic_id=ZERO_UUID),
            DeleteTopicsRequestTopic(name="twice", topic_id=ZERO_UUID),
            DeleteTopicsRequestTopic(name="same", topic_id=ZERO_UUID),
            DeleteTopicsRequestTopic(name=None, topic_id=ids["same"]),
            DeleteTopicsRequestTopic(name="t", topic_id=ZERO_UUID),
        ]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
        reply = await client.ask(request, DeleteTopicsResponse, 6)
        assert [(row.name, row.error_code) for row in reply.responses] == [
            ("both", ErrorCode.INVALID_REQUEST),
            ("both", ErrorCode.INVALID_REQUEST),
            (None, ErrorCode.INVALID_REQUEST),
            ("twice", ErrorCode.INVALID_REQUEST),
            ("same", ErrorCode.INVALID_REQUEST),
            ("t", 0),
        ]
        by_name = DeleteTopicsRequest(topic_names=["twice", "twice"], timeout_ms=1000)
        reply = await client.ask(by_name, DeleteTopicsResponse, 5)
        assert [row.error_code for row in reply.responses] == [ErrorCode.INVALID_REQUEST]
        assert set(broker.core.topics.all) == {"both", "twice", "same"}


async def test_by_an_id_no_topic_is_deleted_that_has_its_name_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_module, "CHANGED_AT_ONCE", 1)
    async with (
        serving() as broker,
        connect(broker.address) as by_id,
        connect(broker.address) as by_name,
    ):
        topics = broker.core.topics
        busy = topics._administration

        async def until_waiting(count: int) -> None:
            with trio.fail_after(DEADLINE_S):
                while busy.statistics().tasks_waiting < count:
                    await trio.lowlevel.checkpoint()

        for name in ("first", "second", "t"):
            await by_name.create(name)
        old_id = topics.all["t"].topic_id
        ids = [topics.all[name].topic_id for name in ("first", "second", "t")]
        rows = [DeleteTopicsRequestTopic(topic_id=one) for one in ids]
        async with trio.open_nursery() as nursery:
            is_made = trio.Event()

            async def hold(*, task_status: trio.TaskStatus[None]) -> None:
                """Whoever has the administration while `t` is gone and asked for anew."""
                task_status.started()
                async with busy:
                    await is_made.wait()

            async with busy:
                await by_id.send(DeleteTopicsRequest(topics=rows, timeout_ms=1000), 6)
                await until_waiting(1)
                await by_name.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
                await until_waiting(2)
                await nursery.start(hold)
                await until_waiting(3)
            # "first" goes by its id, then "t" by its name; "second" waits behind who holds on.
            _, deleted = await by_name.receive(DeleteTopicsResponse, 5)
            assert [row.error_code for row in deleted.responses] == [0]
            request = CreateTopicsRequest(topics=[creation("t")])
            await by_name.send(request, 7)
            await until_waiting(2)
            is_made.set()
            _, created = await by_name.receive(CreateTopicsResponse, 7)
            assert [row.error_code for row in created.topics] == [0]
            _, reply = await by_id.receive(DeleteTopicsResponse, 6)
        assert [(row.name, row.topic_id, row.error_code) for row in reply.responses] == [
            ("first", ids[0], 0),
            ("second", ids[1], 0),
            (None, old_id, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert list(topics.all) == ["t"], "made anew, with another id"


async def test_a_fetch_that_waits_hears_of_the_deletion() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t")
        await a.send(fetch_request("t", 0, wait_ms=600_000), 12)
        while len(broker.core.deadlines) < 1:
            await trio.lowlevel.checkpoint()
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        await b.ask(request, DeleteTopicsResponse, 5)
        _, reply = await a.receive(FetchResponse, 12)
        row = reply.responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_may_grow_but_not_shrink() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u", partitions=2)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequestTopic(name="t", count=5, assignments=None),
                CreatePartitionsRequestTopic(name="u", count=2, assignments=None),
                CreatePartitionsRequestTopic(name="missing", count=2, assignments=None),
            ],
            timeout_ms=1000,
            validate_only=False,
        )
        reply = await client.ask(request, CreatePartitionsResponse, 3)
        assert [(row.name, row.error_code) for row in reply.results] == [
            ("t", 0),
            ("u", ErrorCode.INVALID_PARTITIONS),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await client.produce("t", b"v", partition=4)).error_code == 0


async def test_a_growth_that_is_only_tried_is_judged_as_one_that_is_done() -> None:
    wanted = {"t": (5, 3), "u": (2, 0), "v": (101, 99), "few": (4, 1), "missing": (3, 1)}
    one = CreatePartitionsRequestAssignment(broker_ids=[1])
    rows = [
        CreatePartitionsRequestTopic(name=name, count=count, assignments=[one] * assigned)
        for name, (count, assigned) in wanted.items()
    ]
    async with serving(partitions_max=100) as broker, connect(broker.address) as client:
        for name in ("t", "u", "v", "few"):
            await client.create(name, partitions=2)
        for is_tried, partitions in ((True, 2), (False, 5)):
            request = CreatePartitionsRequest(topics=rows, timeout_ms=1000, validate_only=is_tried)
            reply = await client.ask(request, CreatePartitionsResponse, 3)
            assert {row.name: row.error_code for row in reply.results} == {
                "t": 0,
                "u": ErrorCode.INVALID_PARTITIONS,
                "v": ErrorCode.INVALID_PARTITIONS,
                "few": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert broker.core.topics.all["t"].partitions == partitions


async def test_an_assignment_goes_with_no_count_of_either_kind() -> None:
    async with serving() as broker, connect(broker.address) as client:
        row = CreateTopicsRequestAssignment(
            partition_index=0, broker_ids=[broker.core.config.broker_id]
        )
        for partitions, replicas, code in (
            (-1, -1, 0),
            (1, -1, ErrorCode.INVALID_REQUEST),
            (-1, 1, ErrorCode.INVALID_REQUEST),
        ):
            topic = creation("t", partitions, replicas)
            topic.assignments = [row]
            assert await create(client, topic, validate_only=True) == [("t", code)]


async def test_no_topic_is_made_whose_name_differs_from_one_in_dots_and_underscores_only() -> None:
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    async with serving() as broker, connect(broker.address) as client:
        assert await create(client, creation("x.y")) == [("x.y", 0)]
        for is_tried in (True, False):
            alike = await create(client, creation("x_y"), creation("xy"), validate_only=is_tried)
            assert alike == [("x_y", refused), ("xy", 0)]
        asked = CreateTopicsRequest(topics=[creation("x_y"), creation("x.y")])
        reply = await client.ask(asked, CreateTopicsResponse, 7)
        assert [row.error_message for row in reply.topics] == [
            "Topic 'x_y' collides with existing topic: x.y",
            "Topic 'x.y' already exists.",
        ]
        for is_tried in (True, False):
            both = (creation("a_b.c"), creation("a.b_c"))
            assert await create(client, *both, validate_only=is_tried) == [
                ("a_b.c", 0),
                ("a.b_c", refused),
            ]
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="x_y")])
        told = await client.ask(wanted, MetadataResponse, 9)
        assert told.topics[0].error_code == refused
        await broker.core.topics.delete_all(["x.y"])
        assert await create(client, creation("x_y")) == [("x_y", 0)]


async def test_topics_that_are_asked_for_while_one_is_made_are_made_together() -> None:
    async with serving() as broker:
        topics, manager = broker.core.topics, broker.core.topics.manager
        create_topics = manager.create_topics
        together: list[int] = []

        def counting(wanted: Sequence[NewTopic]) -> list[Outcome]:
            together.append(len(wanted))
            return create_topics(wanted)

        manager.create_topics = counting  # type: ignore[method-assign]  # it counts
        existed: list[str] = []

        async def create(name: str) -> None:
            try:
                meta = await topics.create(name, 2, topics.topic_config({}))
                assert (meta.name, topics.get(name)) == (name, meta)
            except TopicExists:
                existed.append(name)

        names = [f"t{number}" for number in range(20)]
        async with trio.open_nursery() as nursery:
            for name in (*names, "t7"):
                nursery.start_soon(create, name)
        assert existed == ["t7"]
        assert sorted(topics.all) == sorted(names)
        assert sum(together) == len(names) + 1
        assert len(together) <= 2


async def test_who_gives_up_waiting_for_a_topic_has_none_made_later() -> None:
    async with serving() as broker:
        topics, given_up = broker.core.topics, trio.Event()

        async def administer(*, task_status: trio.TaskStatus[None]) -> None:
            async with topics._administration:
                task_status.started()
                await given_up.wait()

        async with trio.open_nursery() as nursery:
            await nursery.start(administer)
            with trio.move_on_after(0.01):
                await topics.create("unwanted", 1, topics.topic_config({}))
            given_up.set()
        await topics.create("wanted", 1, topics.topic_config({}))
        assert list(topics.all) == ["wanted"]
