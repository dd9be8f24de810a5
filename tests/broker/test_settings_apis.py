"""Settings of topics and brokers as they are described and altered; what has none."""

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

from ..support.wire_client import (
    WireClient,
    connect,
)
from .conftest import serving


async def describe(
    client: WireClient, resource_type: int, name: str, keys: list[str] | None = None
) -> DescribeConfigsResponse:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    return await client.ask(request, DescribeConfigsResponse, 4)


async def test_a_topics_settings_say_where_they_come_from() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096")
        (row,) = (await describe(client, 2, "t")).results
        found = {one.name: one for one in row.configs}
        assert {"retention.bytes", "segment.bytes", "durability", "cleanup.policy"} <= found.keys()
        changed = found["segment.bytes"]
        assert (changed.value, changed.config_source) == ("4096", 1)
        assert [(one.value, one.source) for one in changed.synonyms] == [
            ("4096", 1),
            ("1048576", 5),
        ]
        assert changed.documentation
        assert found["durability"].config_source == 5


async def test_the_default_behind_a_largest_message_is_what_is_in_force_without_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", max_message_bytes="2000000")
        await client.create("both", max_message_bytes="2000000", segment_bytes="3000000")
        for name, default in (
            ("t", ("message.max.bytes", "1048576", 5)),
            ("both", ("max.message.bytes", "3000000", 5)),
        ):
            (row,) = (await describe(client, 2, name, ["max.message.bytes"])).results
            (found,) = row.configs
            synonyms = [(one.name, one.value, one.source) for one in found.synonyms]
            assert synonyms == [("max.message.bytes", "2000000", 1), default]


async def test_the_settings_of_all_topics_are_described_by_one_request() -> None:
    """As kafka-topics.sh --describe and MirrorMaker ask."""
    names = [f"t{n}" for n in range(1_200)]
    async with serving() as broker, connect(broker.address) as client:
        made = [
            CreateTopicsRequestTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[CreateTopicsRequestConfig(name="retention.ms", value=str(n % 2))],
            )
            for n, name in enumerate(names)
        ]
        await client.ask(CreateTopicsRequest(topics=made), CreateTopicsResponse, 5)
        asked = [
            DescribeConfigsRequestResource(
                resource_type=2, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        request = DescribeConfigsRequest(resources=asked)
        reply = await client.ask(request, DescribeConfigsResponse, 4)
        assert [row.resource_name for row in reply.results] == names
        for n, row in enumerate(reply.results):
            assert row.error_code == 0
            found = {one.name: one for one in row.configs}
            assert found["retention.ms"].value == str(n % 2)
            assert found["segment.bytes"].value == "1048576"


async def test_only_the_settings_asked_for_are_described() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        (row,) = (await describe(client, 2, "t", ["retention.ms"])).results
        assert [one.name for one in row.configs] == ["retention.ms"]


async def test_the_brokers_settings_are_described_under_kafkas_names_too() -> None:
    async with serving(partitions=7) as broker, connect(broker.address) as client:
        (row,) = (await describe(client, 4, "1")).results
        found = {one.name: one for one in row.configs}
        host, port = broker.address
        assert found["advertised.listeners"].value == f"PLAINTEXT://{host}:{port}"
        assert found["num.partitions"].value == found["partitions"].value == "7"
        assert all(one.documentation for one in row.configs)


async def test_the_synonyms_of_a_setting_of_the_broker_say_its_own_name() -> None:
    """By them a client knows Kafka's name of a setting that is there under its own."""
    async with serving(message_max_bytes=2_000_000) as broker, connect(broker.address) as client:
        for who in ("", "1"):
            change = IncrementalAlterConfigsRequestConfig(
                name="message.max.bytes", config_operation=0, value="3000000"
            )
            resource = IncrementalAlterConfigsRequestResource(
                resource_type=4, resource_name=who, configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            reply = await client.ask(request, IncrementalAlterConfigsResponse, 1)
            assert reply.responses[0].error_code == 0
        for who, count in (("", 1), ("1", 4)):
            (row,) = (await describe(client, 4, who)).results
            found = {one.name: one for one in row.configs}
            for name in ("message.max.bytes", "message_max_bytes"):
                assert [one.name for one in found[name].synonyms] == ["message_max_bytes"] * count
        assert found["ssl.key.password"].config_type == 9, "what may not be shown is a password"


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (2, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "77", ErrorCode.INVALID_REQUEST),
        (16, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_is_refused(
    resource_type: int, name: str, code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        (row,) = (await describe(client, resource_type, name)).results
        assert (row.error_code, bool(row.error_message)) == (code, True)


async def test_settings_are_changed_one_by_one() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096", retention_ms="5")

        words = []

        async def change(name: str, operation: int, value: str | None) -> int:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequestResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            IncrementalAlterConfigsRequestConfig(
                                name=name, config_operation=operation, value=value
                            )
                        ],
                    )
                ],
                validate_only=False,
            )
            reply = await client.ask(request, IncrementalAlterConfigsResponse, 1)
            words.append(reply.responses[0].error_message)
            return reply.responses[0].error_code

        assert await change("segment.ms", 0, "1000") == 0
        assert await change("retention.ms", 1, None) == 0
        assert await change("segment.bytes", 0, "many") == ErrorCode.INVALID_CONFIG
        assert await change("segment.bytes", 2, "1") == ErrorCode.INVALID_CONFIG
        assert words[-1] == "Can't APPEND to key segment.bytes because its type is not LIST."
        assert await change("segment.bytes", 3, "1") == ErrorCode.INVALID_CONFIG
        assert words[-1] == "Can't SUBTRACT to key segment.bytes because its type is not LIST."
        assert await change("cleanup.policy", 0, "compact,delete") == 0
        assert await change("cleanup.policy", 2, "compact") == 0  # it is there: as it was
        overrides = broker.core.topics.all["t"].config.overrides
        assert overrides["cleanup.policy"] == "compact,delete"
        assert await change("cleanup.policy", 1, None) == 0
        assert await change("cleanup.policy", 3, "delete") == 0
        assert broker.core.topics.all["t"].config.overrides["cleanup.policy"] == ""
        assert await change("cleanup.policy", 2, "compact") == 0
        assert broker.core.topics.all["t"].config.overrides["cleanup.policy"] == "compact"
        # What is empty at the end counts no more than in Apache Kafka 4.3.1.
        assert await change("cleanup.policy", 2, ",,") == 0
        assert await change("cleanup.policy", 2, "") == ErrorCode.INVALID_CONFIG
        assert await change("cleanup.policy", 2, ",delete") == ErrorCode.INVALID_CONFIG
        assert await change("cleanup.policy", 2, "compact,,delete") == ErrorCode.INVALID_CONFIG
        assert broker.core.topics.all["t"].config.overrides["cleanup.policy"] == "compact"
        assert await change("cleanup.policy", 2, "delete,,") == 0
        assert broker.core.topics.all["t"].config.overrides["cleanup.policy"] == "compact,delete"
        assert await change("cleanup.policy", 0, "compact,compact") == 0
        assert await change("cleanup.policy", 3, "compact,") == 0
        assert broker.core.topics.all["t"].config.overrides["cleanup.policy"] == "compact"
        assert await change("cleanup.policy", 1, None) == 0
        assert await change("segment.bytes", 0, None) == ErrorCode.INVALID_REQUEST
        assert words[-1] == "Null value not supported for : segment.bytes"
        assert await change("no.such", 0, "1") == ErrorCode.INVALID_CONFIG
        assert broker.core.topics.all["t"].config.overrides == {
            "segment.bytes": "4096",
            "segment.ms": "1000",
        }


@pytest.mark.parametrize("validate_only", [True, False])
async def test_settings_are_replaced_as_a_whole(validate_only: bool) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096")
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsRequestResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[AlterConfigsRequestConfig(name="retention.ms", value="5")],
                ),
                AlterConfigsRequestResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[AlterConfigsRequestConfig(name="lanes", value="5")],
                ),
            ],
            validate_only=validate_only,
        )
        reply = await client.ask(request, AlterConfigsResponse, 2)
        assert [row.error_code for row in reply.responses] == [0, ErrorCode.INVALID_REQUEST]
        expected = {"segment.bytes": "4096"} if validate_only else {"retention.ms": "5"}
        assert broker.core.topics.all["t"].config.overrides == expected


def replaced(name: str, *values: str) -> AlterConfigsRequestResource:
    return AlterConfigsRequestResource(
        resource_type=2,
        resource_name=name,
        configs=[AlterConfigsRequestConfig(name="retention.ms", value=one) for one in values],
    )


def set_one(name: str) -> IncrementalAlterConfigsRequestResource:
    one = IncrementalAlterConfigsRequestConfig(
        name="retention.ms", config_operation=0, value="1000"
    )
    return IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name=name, configs=[one]
    )


async def test_what_is_changed_twice_in_a_request_is_left_as_it_is() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.create("other")
        twice = IncrementalAlterConfigsRequest(
            resources=[set_one("t"), set_one("other"), set_one("t")], validate_only=False
        )
        reply = await client.ask(twice, IncrementalAlterConfigsResponse, 1)
        assert [one.error_code for one in reply.responses] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        legacy = AlterConfigsRequest(
            resources=[replaced("t", "1"), replaced("t", "2"), replaced("other", "3", "4")],
            validate_only=False,
        )
        answer = await client.ask(legacy, AlterConfigsResponse, 1)
        assert {one.error_code for one in answer.responses} == {ErrorCode.INVALID_REQUEST}
        topics = broker.core.topics.all
        assert topics["t"].config.overrides == {}
        assert topics["other"].config.overrides == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_settings_of_what_is_no_topic_are_refused(name: str, code: ErrorCode) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = IncrementalAlterConfigsRequest(resources=[set_one(name)], validate_only=False)
        reply = await client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert reply.responses[0].error_code == code
