"""Quotas of what is changed: partitions made and deleted, by whom they are asked for."""

from segbroker.broker.access.quota_rules import MUTATIONS
from segbroker.broker.access.quotas import MUTATION_BURST_S
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

from ..support.wire_client import WireClient, connect
from .conftest import serving
from .test_quotas import alter
from .test_topic_apis import creation

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
MANY = 30
"""Partitions, more than a quota of 1 per second has saved up."""
assert MANY > MUTATION_BURST_S


async def create(client: WireClient, version: int, *names: str) -> tuple[list[int], int]:
    request = CreateTopicsRequest(topics=[creation(name, MANY) for name in names])
    reply = await client.ask(request, CreateTopicsResponse, version)
    return [row.error_code for row in reply.topics], reply.throttle_time_ms


async def grow(client: WireClient, version: int, *names: str) -> tuple[list[int], int]:
    asked = [
        CreatePartitionsRequestTopic(name=name, count=2 * MANY, assignments=None) for name in names
    ]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=0, validate_only=False)
    reply = await client.ask(request, CreatePartitionsResponse, version)
    return [row.error_code for row in reply.results], reply.throttle_time_ms


async def delete(client: WireClient, version: int, *names: str) -> tuple[list[int], int]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=0)
    reply = await client.ask(request, DeleteTopicsResponse, version)
    return [row.error_code for row in reply.responses], reply.throttle_time_ms


def is_within(throttle_ms: int, owed: float) -> bool:
    """Whether a client is told to wait for what it owes of 1 partition per second."""
    return 1000 * (owed - 10) < throttle_ms <= 1000 * owed


async def test_who_has_used_up_a_quota_of_changes_is_refused_by_each_api_that_can_say_it() -> None:
    async with serving(partitions_max=100) as broker, connect(broker.address) as admin:
        await admin.create("t", MANY)
        await admin.create("u", MANY)
        for name, change, version, topics in (
            ("create", create, 6, ("a", "b")),
            ("grow", grow, 3, ("t", "u")),
            ("delete", delete, 5, ("t", "u")),
        ):
            assert await alter(admin, {"client-id": name}, **{MUTATIONS: 1.0}) == 0
            async with connect(broker.address, name) as client:
                # Whoever owes nothing may, however much it is; what comes next may not.
                codes, throttle_ms = await change(client, version, *topics)
                assert codes == [0, REFUSED], name
                grown = MANY if name != "delete" else 2 * MANY
                assert is_within(throttle_ms, grown - MUTATION_BURST_S), name
            async with connect(broker.address, name) as client:
                codes, throttle_ms = await change(client, version, topics[1])
                assert codes == [REFUSED], "the allowance is not the connection's"
                assert throttle_ms > 0
        for topic, partitions in (("a", MANY), ("b", 0), ("t", 0), ("u", MANY)):
            meta = broker.core.topics.get(topic)
            assert (0 if meta is None else meta.partitions) == partitions


async def test_what_is_refused_costs_nothing() -> None:
    """Or who asks again and again would never be served."""
    async with serving(partitions_max=100) as broker, connect(broker.address) as admin:
        assert await alter(admin, {"client-id": "c"}, **{MUTATIONS: 1.0}) == 0
        for number in range(4):
            async with connect(broker.address, "c") as client:
                codes, throttle_ms = await create(client, 6, f"t{number}")
                assert codes == [REFUSED if number else 0]
                assert throttle_ms <= 1000 * (MANY - MUTATION_BURST_S)


async def test_what_is_not_there_costs_nothing_to_delete() -> None:
    async with serving(partitions_max=100) as broker, connect(broker.address) as admin:
        await admin.create("t", MANY)
        assert await alter(admin, {"client-id": "c"}, **{MUTATIONS: 1.0}) == 0
        async with connect(broker.address, "c") as client:
            codes, _ = await delete(client, 5, "missing", "t")
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


async def test_a_growth_costs_what_it_adds() -> None:
    async with serving(partitions_max=100) as broker, connect(broker.address) as admin:
        await admin.create("t", MANY)
        await admin.create("u", 1)
        assert await alter(admin, {"client-id": "c"}, **{MUTATIONS: 1.0}) == 0
        async with connect(broker.address, "c") as client:
            asked = [
                CreatePartitionsRequestTopic(name=name, count=count, assignments=None)
                for name, count in (("t", MANY + 1), ("u", 2))
            ]
            request = CreatePartitionsRequest(topics=asked, timeout_ms=0, validate_only=False)
            reply = await client.ask(request, CreatePartitionsResponse, 3)
            assert [row.error_code for row in reply.results] == [0, 0], "two of the eleven"


async def test_in_an_older_version_a_change_is_made_and_its_client_waits() -> None:
    async with serving(partitions_max=100) as broker, connect(broker.address) as admin:
        await admin.create("t", MANY)
        await admin.create("u", MANY)
        for name, change, version, topics, amount in (
            ("create", create, 5, ("a", "b"), MANY),
            ("grow", grow, 2, ("t", "u"), MANY),
            ("delete", delete, 4, ("t", "u"), 2 * MANY),
        ):
            assert await alter(admin, {"client-id": name}, **{MUTATIONS: 1.0}) == 0
            async with connect(broker.address, name) as client:
                codes, throttle_ms = await change(client, version, *topics)
                assert codes == [0, 0], name
                assert is_within(throttle_ms, 2 * amount - MUTATION_BURST_S), name


async def test_a_topic_that_is_asked_for_is_made_when_the_quota_allows_it_again() -> None:
    async with (
        serving(partitions=MANY) as broker,
        connect(broker.address, "c") as client,
        connect(broker.address) as admin,
    ):
        assert await alter(admin, {"client-id": "c"}, **{MUTATIONS: 1.0}) == 0

        async def ask(name: str) -> tuple[int, int]:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
            reply = await client.ask(request, MetadataResponse, 9)
            return reply.topics[0].error_code, reply.throttle_time_ms

        assert await ask("t") == (0, 0)
        # Its connection goes on: it may be busy with topics that there are.
        assert await ask("u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert await ask("t") == (0, 0)
        assert await alter(admin, {"client-id": "c"}, **{MUTATIONS: None}) == 0
        assert await ask("u") == (0, 0)
