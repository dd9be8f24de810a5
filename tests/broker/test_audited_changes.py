"""Who changed what others may do: lines of the log."""

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import pytest
from trio.testing import wait_all_tasks_blocked

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_security as security
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.schema import Message
from segbroker.segments.metadata.credentials import credentials_of

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.waiting import becomes
from ..support.wire_client import connect, fetch_request, software
from .authorization_case import ALTER, OF_CLUSTER, READ, T29, TOPIC
from .conftest import Events, serving
from .guarded import ALICE, BOB, allow, connect_from, guarded, rule
from .test_quotas import alter, alteration
from .test_rules_in_force import creating

T56: Final = ErrorCode.KAFKA_STORAGE_ERROR
AT_ONCE: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset instead of an end."""


async def test_who_changes_rules_quotas_or_users_is_in_the_log_with_what_was_changed(
    events: Events,
) -> None:
    asked = {"asked_by": "User:ANONYMOUS", "asked_from": ALICE}

    def told(name: str) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in line.items() if key not in ("event", "level")}
            for line in events.named(name)
        ]

    creation = security.CreateAclsRequestCreation(
        resource_type=TOPIC,
        resource_name="t\n2026-01-01 [info] access_rule_deleted",
        resource_pattern_type=PatternType.PREFIXED,
        principal="User:bob",
        host="*",
        operation=READ,
        permission_type=Permission.DENY,
    )
    create = security.CreateAclsRequest(creations=[creation, creation])
    deletion = security.DeleteAclsRequestFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    delete = security.DeleteAclsRequest(filters=[deletion, deletion])
    salted = bytes(64)
    upsertion = security.AlterUserScramCredentialsRequestUpsertion(
        name="carol", mechanism=2, iterations=4_096, salt=b"salt", salted_password=salted
    )
    users = security.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER), rule(Operation.ALTER_CONFIGS, *OF_CLUSTER))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            for client in (bob, alice, alice):
                await client.ask(create, security.CreateAclsResponse, 3)
            for client in (bob, alice, alice):
                await client.ask(delete, security.DeleteAclsResponse, 3)
            for rate in (1_000.0, 1_000.0, None):
                await alter(bob, {"user": "carol"}, producer_byte_rate=rate)
                await alter(alice, {"user": "carol"}, producer_byte_rate=rate)
            for client in (bob, alice):
                await client.ask(users, security.AlterUserScramCredentialsResponse, 0)
    what = {
        "permission": "deny",
        "principal": "User:bob",
        "host": "*",
        "operation": "read",
        "resource_type": "topic",
        "pattern": "prefixed",
        "resource": creation.resource_name,
    }
    assert told("access_rule_created") == [what | asked]
    assert told("access_rule_deleted") == [what | asked]
    assert told("quota_changed") == [
        {"entity": {"user": "carol"}, "values": {"producer_byte_rate": 1_000.0}, **asked},
        {"entity": {"user": "carol"}, "values": {}, **asked},
    ]
    assert told("user_altered") == [{"user": "carol", "set": 1, "deleted": 0, **asked}]


async def test_who_changes_topics_or_deletes_records_is_in_the_log(events: Events) -> None:
    asked = {"asked_by": "User:ANONYMOUS", "asked_from": "127.0.0.1"}

    def told(name: str) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in line.items() if key not in ("event", "level")}
            for line in events.named(name)
        ]

    naming = MetadataRequest(topics=[MetadataRequestTopic(name="made")])
    growing = admin.CreatePartitionsRequest(
        topics=[admin.CreatePartitionsRequestTopic(name="t", count=2, assignments=None)],
        timeout_ms=0,
        validate_only=False,
    )
    config = admin.IncrementalAlterConfigsRequestConfig(
        name="retention.ms", config_operation=0, value="60000"
    )
    resource = admin.IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    altering = admin.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    rows = [
        admin.DeleteRecordsRequestPartition(partition_index=index, offset=offset)
        for index, offset in ((0, 2), (1, 0), (7, 1))
    ]
    deleting = admin.DeleteRecordsRequest(
        topics=[admin.DeleteRecordsRequestTopic(name="t", partitions=rows)], timeout_ms=0
    )
    async with serving(auto_create_topics=True) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.ask(naming, MetadataResponse, 5)
        await client.ask(growing, admin.CreatePartitionsResponse, 1)
        await client.ask(altering, admin.IncrementalAlterConfigsResponse, 1)
        for _ in range(3):
            await client.produce("t", b"v")
        for _ in range(2):  # the second deletes nothing
            await client.ask(deleting, admin.DeleteRecordsResponse, 1)
        gone = admin.DeleteTopicsRequest(topic_names=["t", "none"], topics=[], timeout_ms=0)
        await client.ask(gone, admin.DeleteTopicsResponse, 4)
        count = broker.core.config.partitions_by_default
    made = {"durability": "fsync", **asked}
    assert told("topic_created") == [
        {"topic": "t", "partitions": 1, **made},
        {"topic": "made", "partitions": count, **made},
    ]
    assert told("partitions_created") == [{"topic": "t", "partitions": 2, **asked}]
    (altered,) = told("topic_altered")
    assert altered["overrides"]["retention.ms"] == "60000"
    assert asked.items() <= altered.items()
    assert told("records_deleted") == [{"topics": ["t"], "partitions": 1, **asked}]
    assert told("topic_deleted") == [{"topic": "t", **asked}]


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"), [(8, "1", "root", "ERROR"), (4, "", "log_level", "error")]
)
async def test_who_silences_the_log_is_the_last_that_it_says(
    events: Events, kind: int, name: str, key: str, value: str
) -> None:
    config = admin.IncrementalAlterConfigsRequestConfig(name=key, config_operation=0, value=value)
    resource = admin.IncrementalAlterConfigsRequestResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = admin.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    async with guarded() as broker:
        await allow(broker, rule(Operation.ALTER_CONFIGS, *OF_CLUSTER))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            for _ in range(2):
                reply = await alice.ask(request, admin.IncrementalAlterConfigsResponse, 1)
                assert reply.responses[0].error_code == 0
            assert (await bob.fetch("t", 0)).error_code == T29
    assert not events.named("access_denied"), "as it was asked for"
    (changed,) = events.named("log_level_changed")
    assert changed["log_level"] == "error"
    asked = changed if kind == 8 else events.named("settings_changed")[0]
    assert (asked["asked_by"], asked["asked_from"]) == ("User:ANONYMOUS", ALICE)


async def test_who_changes_rules_or_quotas_is_in_the_log_also_when_it_is_gone(
    events: Events,
) -> None:
    """A client that has given up is cut off in the middle of its request; what it has changed by
    then stands, and so does the line about it."""
    disk = GatedStorage()
    names = {"t0", "t1", "t2"}
    rules = [rule(READ, TOPIC, name, host="*") for name in names]
    create = creating(*rules)
    delete = security.DeleteAclsRequest(
        filters=[
            security.DeleteAclsRequestFilter(
                resource_type_filter=TOPIC,
                resource_name_filter=None,
                pattern_type_filter=PatternType.ANY,
                principal_filter=None,
                host_filter="*",
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
        ]
    )

    async def leaves(request: Message, version: int) -> None:
        """Ask for records that do not come, and for this; be gone while the disk has it."""
        async with connect_from(ALICE, broker) as alice:
            await alice.ask(software("test"), ApiVersionsResponse, 3)
            (connection,) = broker._connections
            disk.syncs.clear()
            _, wait = alice.encode(fetch_request("t", 0, wait_ms=10_000), 4)
            _, change = alice.encode(request, version)
            await alice.send_bytes(wait + change)
            await becomes(lambda: not connection.is_waiting)
            alice.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        await passes(10)
        await becomes(lambda: connection._ended)  # what came first was answered to nobody
        await wait_all_tasks_blocked()
        disk.syncs.set()
        await becomes(lambda: not broker._connections)

    def told(name: str) -> set[str]:
        assert {line["asked_from"] for line in events.named(name)} <= {ALICE}
        return {line["resource"] for line in events.named(name)}

    async with serving(storage=disk, authorizer="acl") as broker:
        access = broker.core.authorizer
        assert access is not None
        kept = [
            rule(ALTER, *OF_CLUSTER),
            rule(Operation.ALTER_CONFIGS, *OF_CLUSTER),
            rule(READ, TOPIC, "t"),
        ]
        await allow(broker, *kept)
        topics = broker.core.topics
        await topics.create("t", 1, topics.topic_config({}))
        await leaves(create, 3)
        await becomes(lambda: set(access.rules.acls) == {*kept, *rules})
        assert told("access_rule_created") == names
        await leaves(delete, 3)
        await becomes(lambda: set(access.rules.acls) == set(kept))
        assert told("access_rule_deleted") == names
        await leaves(alteration({"user": "carol"}, producer_byte_rate=1_000.0), 1)
        await becomes(lambda: list(broker.core.all_quotas.rows) == [(("user", "carol"),)])
        (line,) = events.named("quota_changed")
        assert line["entity"] == {"user": "carol"}
        assert line["asked_from"] == ALICE


async def test_which_users_have_changed_is_told_and_in_the_log_also_when_others_could_not_be(
    events: Events,
) -> None:
    """Who is set is written before who is deleted; of one user both are one change."""
    disk = GatedStorage()
    upsertions = [
        security.AlterUserScramCredentialsRequestUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=4_096,
            salt=b"salt",
            salted_password=bytes(32 * mechanism),
        )
        for name, mechanism in (("carol", 1), ("dave", 1), ("carol", 2))
    ]
    deletions = [
        security.AlterUserScramCredentialsRequestDeletion(name=name, mechanism=1)
        for name in ("carol", "dave")
    ]
    async with serving(storage=disk) as broker, connect(broker.address) as client:

        async def alter_user(
            *upserted: security.AlterUserScramCredentialsRequestUpsertion,
            deleted: Sequence[security.AlterUserScramCredentialsRequestDeletion] = (),
        ) -> dict[str, int]:
            request = security.AlterUserScramCredentialsRequest(
                deletions=list(deleted), upsertions=list(upserted)
            )
            reply = await client.ask(request, security.AlterUserScramCredentialsResponse, 0)
            return {row.user: row.error_code for row in reply.results}

        assert await alter_user(*upsertions[:2]) == {"carol": 0, "dave": 0}
        disk.refused = b"user_unset"
        found = await alter_user(upsertions[2], deleted=deletions)
        assert found == {"carol": 0, "dave": T56}
        content = broker.core.authentication.content
        assert {1} == set(credentials_of(content, "dave"))
        assert {2} == set(credentials_of(content, "carol"))
    lines = events.named("user_altered")
    told = [(line["user"], line["set"], line["deleted"]) for line in lines]
    assert told == [("carol", 1, 0), ("dave", 1, 0), ("carol", 1, 1)]
