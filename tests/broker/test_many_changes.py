"""Requests that change hundreds of things: each is right or wrong alone, one sync is for many.

The number of syncs counts, not the time: on a disk that takes 5 ms for each, a thousand one after
the other would hold a client for longer than many wait.
"""

from random import Random
from typing import Any

import pytest
import trio

from segbroker.broker.apis import user_apis
from segbroker.broker.server import Broker
from segbroker.protocol import (
    messages_admin,
    messages_groups,
    messages_quotas,
    messages_security,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.directory.manager import NewTopic
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.control import Event, apply, apply_all
from segbroker.segments.metadata.metadata import Metadata
from segbroker.segments.metadata.metadata_log import MetadataLog
from segbroker.segments.settings.topic_config import TopicConfig

from ..support.wire_client import WireClient, connect
from ..support.wire_groups import WireMember
from ..support.wire_settings import DELETE_KEY, GROUP, SET_KEY
from .conftest import serving
from .group_names import group_names

COUNT = 300
SYNCS_MAX = 30


async def syncs(client: WireClient) -> int:
    info: Any = await client.ask_vendor(VendorKey.SERVER_INFO, {})
    return int(info["wal"]["syncs"])


def entry(name: str, rate: float | None) -> messages_quotas.AlterClientQuotasRequestEntry:
    return messages_quotas.AlterClientQuotasRequestEntry(
        entity=[messages_quotas.ClientQuotaEntity(entity_type="user", entity_name=name)],
        ops=[
            messages_quotas.AlterClientQuotasRequestOp(
                key="producer_byte_rate", value=rate or 0.0, remove=rate is None
            )
        ],
    )


async def alter_quotas(
    client: WireClient, *entries: messages_quotas.AlterClientQuotasRequestEntry
) -> list[int]:
    request = messages_quotas.AlterClientQuotasRequest(entries=list(entries), validate_only=False)
    reply = await client.ask(request, messages_quotas.AlterClientQuotasResponse, 1)
    return [row.error_code for row in reply.entries]


def rates(broker: Broker) -> dict[str | None, float]:
    return {
        entity[0][1]: values["producer_byte_rate"]
        for entity, values in broker.core.all_quotas.rows.items()
    }


async def test_quotas_of_many_entities_are_stored_by_one_sync() -> None:
    storage = MemoryStorage()
    names = [f"u{number}" for number in range(COUNT)]
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        before = await syncs(client)
        codes = await alter_quotas(
            client, *(entry(name, -1 if name == "u7" else 5) for name in names)
        )
        assert codes == [ErrorCode.INVALID_REQUEST if name == "u7" else 0 for name in names]
        assert await alter_quotas(client, entry("u0", None), entry("u1", 9)) == [0, 0]
        assert await syncs(client) - before < SYNCS_MAX
        expected = dict.fromkeys(names, 5.0) | {"u1": 9.0}
        del expected["u7"], expected["u0"]
        assert rates(broker) == expected
    async with serving(storage=storage) as broker:
        assert rates(broker) == expected


async def test_one_address_in_two_spellings_is_one_entity_changed_one_after_the_other() -> None:
    def of(host: str, key: str) -> messages_quotas.AlterClientQuotasRequestEntry:
        return messages_quotas.AlterClientQuotasRequestEntry(
            entity=[messages_quotas.ClientQuotaEntity(entity_type="ip", entity_name=host)],
            ops=[messages_quotas.AlterClientQuotasRequestOp(key=key, value=3.0, remove=False)],
        )

    async with serving() as broker, connect(broker.address) as client:
        first, second = "10.0.0.1", "::ffff:10.0.0.1"
        key = "connection_creation_rate"
        assert await alter_quotas(client, of(first, key), of(second, key)) == [0, 0]
        assert broker.core.all_quotas.rows == {(("ip", first),): {key: 3.0}}


async def test_many_users_are_stored_by_a_few_syncs() -> None:
    names = [f"u{number}" for number in range(COUNT)]
    async with serving() as broker, connect(broker.address) as client:
        before = await syncs(client)
        request = messages_security.AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                messages_security.AlterUserScramCredentialsRequestUpsertion(
                    name=name,
                    mechanism=1,
                    iterations=1 if name == "u7" else 4096,
                    salt=b"s",
                    salted_password=b"p" * 32,
                )
                for name in names
            ],
        )
        reply = await client.ask(request, messages_security.AlterUserScramCredentialsResponse, 0)
        wrong = ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert [row.error_code for row in reply.results] == [
            wrong if name == "u7" else 0 for name in names
        ]
        request = messages_security.AlterUserScramCredentialsRequest(
            deletions=[
                messages_security.AlterUserScramCredentialsRequestDeletion(name=name, mechanism=1)
                for name in names
            ],
            upsertions=[],
        )
        assert len(broker.core.authentication.content["users"]) == COUNT - 1
        reply = await client.ask(request, messages_security.AlterUserScramCredentialsResponse, 0)
        gone = ErrorCode.RESOURCE_NOT_FOUND
        assert [row.error_code for row in reply.results] == [
            gone if name == "u7" else 0 for name in names
        ]
        assert await syncs(client) - before < SYNCS_MAX
        assert not broker.core.authentication.content["users"]


async def test_settings_of_many_groups_are_stored_by_one_sync() -> None:
    storage = MemoryStorage()
    names = [f"g{number}" for number in range(COUNT)]
    key, wrong = "consumer.session.timeout.ms", ErrorCode.INVALID_CONFIG

    async def alter(client: WireClient, **values: str | None) -> list[int]:
        request = messages_admin.IncrementalAlterConfigsRequest(
            resources=[
                messages_admin.IncrementalAlterConfigsRequestResource(
                    resource_type=GROUP,
                    resource_name=name,
                    configs=[
                        messages_admin.IncrementalAlterConfigsRequestConfig(
                            name=key,
                            config_operation=DELETE_KEY if value is None else SET_KEY,
                            value=value,
                        )
                    ],
                )
                for name, value in values.items()
            ],
            validate_only=False,
        )
        reply = await client.ask(request, messages_admin.IncrementalAlterConfigsResponse, 1)
        return [row.error_code for row in reply.responses]

    async with serving(storage=storage) as broker, connect(broker.address) as client:
        before = await syncs(client)
        codes = await alter(client, **{name: "x" if name == "g7" else "50000" for name in names})
        assert codes == [wrong if name == "g7" else 0 for name in names]
        assert await alter(client, g0=None, g1="55000") == [0, 0]
        assert await syncs(client) - before < SYNCS_MAX
        expected = {name: {key: "50000"} for name in names if name not in ("g0", "g7")}
        expected["g1"] = {key: "55000"}
        settings = broker.core.group_settings
        assert {one: settings.set_on(one) for one in settings.groups()} == expected
    async with serving(storage=storage) as broker:
        settings = broker.core.group_settings
        assert {one: settings.set_on(one) for one in settings.groups()} == expected


async def test_requests_side_by_side_make_no_more_users_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_apis, "USERS_MAX", 3)
    codes: list[int] = []

    async def add(client: WireClient, *names: str) -> None:
        request = messages_security.AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                messages_security.AlterUserScramCredentialsRequestUpsertion(
                    name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
                )
                for name in names
            ],
        )
        reply = await client.ask(request, messages_security.AlterUserScramCredentialsResponse, 0)
        codes.extend(row.error_code for row in reply.results)

    async with (
        serving() as broker,
        connect(broker.address) as one,
        connect(broker.address) as other,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(add, one, "a", "b")
            nursery.start_soon(add, other, "c", "d")
        assert len(broker.core.authentication.content["users"]) == 3
        assert sorted(codes) == [0, 0, 0, ErrorCode.POLICY_VIOLATION]


async def test_groups_that_are_deleted_together_share_their_syncs() -> None:
    names = [f"g{number}" for number in range(COUNT)]
    async with serving(group_kept_empty_ms=3_600_000) as broker, connect(broker.address) as client:
        await client.create("t")
        for name in names:
            assert await WireMember(client, group=name).commit("t", 5) == 0
        before = await syncs(client)
        request = messages_groups.DeleteGroupsRequest(groups_names=[*names, "never", names[0]])
        reply = await client.ask(request, messages_groups.DeleteGroupsResponse, 2)
        gone = ErrorCode.GROUP_ID_NOT_FOUND
        assert [row.group_id for row in reply.results] == [*names, "never", names[0]]
        assert [row.error_code for row in reply.results] == [*[0] * COUNT, gone, gone]
        assert await syncs(client) - before < SYNCS_MAX
        assert not group_names(broker.core.groups)


async def test_settings_of_many_topics_are_changed_by_a_few_syncs() -> None:
    storage = MemoryStorage()
    names = [f"t{number}" for number in range(COUNT)]
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        await broker.core.topics.create_all([NewTopic(name, 1, TopicConfig()) for name in names])
        await client.produce("t1", b"open")
        before = await syncs(client)
        codes = await alter_topics(
            client,
            topic("t0", "retention.ms", "5"),
            topic("never", "retention.ms", "5"),
            *(topic(name, "retention.ms", "x" if name == "t7" else "5") for name in names[1:]),
            topic("t0", "retention.ms", "6"),
        )
        twice, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wrong = [ErrorCode.INVALID_CONFIG if name == "t7" else 0 for name in names[1:]]
        assert codes == [twice, unknown, *wrong, twice]
        assert await syncs(client) - before < SYNCS_MAX
        expected = dict.fromkeys(names, 5) | {"t0": 604_800_000, "t7": 604_800_000}
        assert retentions(broker) == expected
        served = broker.core.topics.served_partition("t1", 0)
        assert served is not None
        assert served.handler.config.retention_ms == 5
    async with serving(storage=storage) as broker:
        assert retentions(broker) == expected


def topic(name: str, key: str, value: str) -> messages_admin.IncrementalAlterConfigsRequestResource:
    return messages_admin.IncrementalAlterConfigsRequestResource(
        resource_type=2,
        resource_name=name,
        configs=[
            messages_admin.IncrementalAlterConfigsRequestConfig(
                name=key, config_operation=0, value=value
            )
        ],
    )


async def alter_topics(
    client: WireClient,
    *resources: messages_admin.IncrementalAlterConfigsRequestResource,
    validate_only: bool = False,
) -> list[int]:
    request = messages_admin.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )
    reply = await client.ask(request, messages_admin.IncrementalAlterConfigsResponse, 1)
    assert [row.resource_name for row in reply.responses] == [
        one.resource_name for one in resources
    ]
    return [row.error_code for row in reply.responses]


def retentions(broker: Broker) -> dict[str, int]:
    return {name: meta.config.retention_ms for name, meta in broker.core.topics.all.items()}


async def test_topics_that_are_changed_together_fail_together_where_their_sync_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in "ab":
            await client.create(name)
        wanted = topic("a", "retention.ms", "5"), topic("b", "retention.ms", "5")
        grown = [
            messages_admin.CreatePartitionsRequestTopic(name=name, count=3, assignments=None)
            for name in "ab"
        ]
        request = messages_admin.CreatePartitionsRequest(
            topics=grown, timeout_ms=9_000, validate_only=False
        )
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        with monkeypatch.context() as patched:
            patched.setattr(MetadataLog, "record_all", _fails)
            assert await alter_topics(client, *wanted) == [failed, failed]
            reply = await client.ask(request, messages_admin.CreatePartitionsResponse, 1)
            assert [row.error_code for row in reply.results] == [failed, failed]
        assert set(retentions(broker).values()) == {604_800_000}
        assert set(partitions(broker).values()) == {1}
        assert await alter_topics(client, *wanted) == [0, 0]
        reply = await client.ask(request, messages_admin.CreatePartitionsResponse, 1)
        assert [row.error_code for row in reply.results] == [0, 0]


def _fails(log: object, kind: str, several: object) -> None:
    raise OSError(28, "no space left")


async def test_what_cannot_be_changed_is_refused_also_where_it_is_only_tried() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for validate_only in (True, False):
            wanted = topic("t", "durability", "ephemeral")
            codes = await alter_topics(client, wanted, validate_only=validate_only)
            assert codes == [ErrorCode.INVALID_CONFIG]


async def test_many_topics_grow_by_a_few_syncs() -> None:
    storage = MemoryStorage()
    names = [f"t{number}" for number in range(COUNT)]
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        await broker.core.topics.create_all([NewTopic(name, 2, TopicConfig()) for name in names])
        before = await syncs(client)
        request = messages_admin.CreatePartitionsRequest(
            topics=[
                messages_admin.CreatePartitionsRequestTopic(
                    name=name, count=1 if name == "t7" else 3, assignments=None
                )
                for name in ("never", *names)
            ],
            timeout_ms=9_000,
            validate_only=False,
        )
        reply = await client.ask(request, messages_admin.CreatePartitionsResponse, 1)
        assert [row.error_code for row in reply.results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            *(ErrorCode.INVALID_PARTITIONS if name == "t7" else 0 for name in names),
        ]
        assert await syncs(client) - before < SYNCS_MAX
        expected = {name: 2 if name == "t7" else 3 for name in names}
        assert partitions(broker) == expected
        assert (await client.produce("t1", b"v", partition=2)).error_code == 0
    async with serving(storage=storage) as broker:
        assert partitions(broker) == expected


def partitions(broker: Broker) -> dict[str, int]:
    return {name: meta.partitions for name, meta in broker.core.topics.all.items()}


def test_a_run_of_changes_is_what_they_are_one_by_one() -> None:
    random = Random(7)
    for _ in range(50):
        events = [_event(random, seq) for seq in range(1, 30)]
        state = Metadata("cluster")
        for event in events:
            state = apply(state, event)
        together = apply_all(Metadata("cluster"), events)
        assert together.sections == state.sections
        assert together.topics == state.topics
        assert together.encode() == state.encode()


def _event(random: Random, seq: int) -> Event:
    name = random.choice("abcde")
    known = {"name": name, "id": random.choice(b"12").to_bytes(16)}
    match random.randrange(6):
        case 0:
            values = {"request_rate": random.random()} if random.random() < 0.7 else {}
            return Event(seq, "quotas_set", {"entity": [["user", name]], "values": values})
        case 1:
            return Event(seq, "topic_altered", {**known, "config": {"retention.ms": str(seq)}})
        case 2:
            return Event(seq, "partitions_grown", {**known, "partitions": seq})
        case 3:
            return Event(seq, "topic_created", {**known, "partitions": 1, "config": {}, "epoch": 0})
        case 4:
            rows = [[random.choice((1, 2)), 4096, b"salt", b"stored", b"server"]]
            return Event(seq, "user_set", {"name": name, "rows": rows})
        case _:
            gone = random.choice(([1], [2], [1, 2], None))
            return Event(seq, "user_unset", {"name": name, "mechanisms": gone})
