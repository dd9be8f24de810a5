"""Rules over the wire: in force when they are durable, found by what they say, bounded in bytes."""

import errno
from collections.abc import Collection
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.protocol import messages_security as security
from segbroker.protocol.acls import Operation, PatternType, Permission
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.acls import TEXT_SIZE_MAX, Acl

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import WireClient
from .authorization_case import ALL, ALTER, OF_CLUSTER, READ, T29, TOPIC, WRITE
from .conftest import Events
from .guarded import ALICE, BOB, allow, connect_from, filled, guarded, rule


def creating(*rules: Acl) -> security.CreateAclsRequest:
    return security.CreateAclsRequest(
        creations=[
            security.CreateAclsRequestCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in rules
        ]
    )


def deleting(**more: Any) -> security.DeleteAclsRequest:  # noqa: ANN401
    asked: dict[str, Any] = {
        "resource_type_filter": int(TOPIC),
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    return security.DeleteAclsRequest(filters=[security.DeleteAclsRequestFilter(**asked | more)])


async def codes_of_creation(client: WireClient, *rules: Acl) -> list[int]:
    reply = await client.ask(creating(*rules), security.CreateAclsResponse, 3)
    return [row.error_code for row in reply.results]


async def deleted(client: WireClient, **filter_: Any) -> int:  # noqa: ANN401
    """How many rules a filter has found."""
    reply = await client.ask(deleting(**filter_), security.DeleteAclsResponse, 3)
    (row,) = reply.filter_results
    assert row.error_code == 0
    return len(row.matching_acls)


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_change_of_rules_is_in_force_when_it_is_durable(is_made: bool) -> None:
    """What a crash may take back is nothing that anybody was allowed, or denied, by."""
    disk = GatedStorage()
    right = rule(READ, TOPIC, "t", host=BOB)
    async with guarded(storage=disk) as broker:
        await filled(broker)
        await allow(broker, rule(ALTER, *OF_CLUSTER), *([] if is_made else [right]))
        async with (
            connect_from(ALICE, broker) as alice,
            connect_from(BOB, broker) as bob,
            trio.open_nursery() as nursery,
        ):
            before, after = (T29, 0) if is_made else (0, T29)
            assert (await bob.fetch("t", 0)).error_code == before
            disk.syncs.clear()
            try:
                if is_made:
                    nursery.start_soon(codes_of_creation, alice, right)
                else:
                    nursery.start_soon(deleted, alice)
                manager = broker.core.topics.manager
                await becomes(lambda: manager.why_unsettled is not None or _is_changing(broker))
                await wait_all_tasks_blocked()
                assert (await bob.fetch("t", 0)).error_code == before
            finally:
                disk.syncs.set()
        async with connect_from(BOB, broker) as bob:
            assert (await bob.fetch("t", 0)).error_code == after


def _is_changing(broker: Any) -> bool:  # noqa: ANN401
    return any(not connection.is_waiting for connection in broker._connections)


async def test_rules_are_found_by_the_address_and_the_operation_that_they_name() -> None:
    """ALL is an operation of its own in a filter, as in Kafka: not every one."""
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(
            broker,
            rule(ALTER, *OF_CLUSTER),
            rule(READ, TOPIC, "t", host="::1"),
            rule(READ, TOPIC, "t", host="10.0.0.1"),
            rule(ALL, TOPIC, "t", host="10.0.0.2"),
            rule(READ, TOPIC, "t", host="fe80::1"),
            rule(READ, TOPIC, "t", host="fe80::2%eth0"),  # as 0.5.10 kept it
        )
        assert await deleted(alice, host_filter="fe80::1%eth0") == 1
        assert await deleted(alice, host_filter="fe80::2%eth0") == 1
        assert await deleted(alice, operation=ALL) == 1
        assert await deleted(alice, host_filter="0:0::0001") == 1
        assert await deleted(alice, host_filter="::ffff:10.0.0.1") == 1
        assert await deleted(alice) == 0


async def test_names_of_rules_are_bounded_in_bytes() -> None:
    long = "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * (TEXT_SIZE_MAX // 2)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        fits, exceeds = (rule(WRITE, TOPIC, name) for name in (long, long + "x"))
        assert await codes_of_creation(alice, fits, exceeds) == [0, ErrorCode.INVALID_REQUEST]


async def test_a_rule_that_stands_is_not_told_to_be_made(events: Events) -> None:
    right = rule(READ, TOPIC, "t")
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        for _ in range(2):
            assert await codes_of_creation(alice, right, right) == [0, 0]
    assert len(events.named("access_rule_created")) == 1


async def test_what_was_denied_once_is_not_told_again(events: Events) -> None:
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        assert broker.core.authorizer is not None
        audit = broker.core.authorizer.audit
        for name in ("t", "u", "u"):
            assert (await bob.fetch(name, 0)).error_code == T29
        audit.keep_house(trio.current_time() + 61)
    (line,) = events.named("access_repeated")
    assert (line["resource"], line["count"]) == ("u", 1)


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_change_of_rules_that_is_not_durable_is_told_to_be_none(
    is_made: bool, events: Events
) -> None:
    disk = GatedStorage()
    right = rule(READ, TOPIC, "t", host=BOB)
    async with guarded(storage=disk) as broker:
        await filled(broker)
        await allow(broker, rule(ALTER, *OF_CLUSTER), *([] if is_made else [right]))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            before = T29 if is_made else 0
            assert (await bob.fetch("t", 0)).error_code == before
            disk.sync_error = OSError(errno.EIO, "the disk is broken")
            if is_made:
                found = await codes_of_creation(alice, right)
            else:
                reply = await alice.ask(deleting(), security.DeleteAclsResponse, 3)
                found = [one.error_code for one in reply.filter_results[0].matching_acls]
            disk.sync_error = None
            assert found == [ErrorCode.KAFKA_STORAGE_ERROR]
            assert (await bob.fetch("t", 0)).error_code == before
    assert not events.named("access_rule_created")
    assert not events.named("access_rule_deleted")


async def test_a_rule_that_was_refused_is_gone_for_good_once_nothing_is_left_to_delete() -> None:
    """Its event may be on the disk: who takes it away to be sure is not told that there is none,
    and finds it in force behind a kill."""
    disk = GatedStorage()
    async with guarded(storage=disk) as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        disk.sync_error = OSError(errno.EIO, "planted")
        right = rule(READ, TOPIC, "t", host=BOB)
        assert await codes_of_creation(alice, right) == [ErrorCode.KAFKA_STORAGE_ERROR]
        reply = await alice.ask(deleting(), security.DeleteAclsResponse, 3)
        (row,) = reply.filter_results
        if not row.error_code:
            assert right not in await rules_behind(disk)
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None
        assert await deleted(alice) == 0
        assert right not in await rules_behind(disk)


async def rules_behind(disk: MemoryStorage) -> Collection[Acl]:
    """Which rules there are behind a kill."""
    async with guarded(storage=disk.after_kill()) as broker:
        assert broker.core.authorizer is not None
        return broker.core.authorizer.rules.acls


async def test_a_rule_on_its_way_is_waited_for_by_who_deletes_it() -> None:
    """Who asked for it has given up; it does not come behind the answer that there is none."""
    disk = GatedStorage()
    right = rule(READ, TOPIC, "t", host=BOB)
    async with guarded(storage=disk) as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        manager = broker.core.topics.manager
        events = manager.last_seq
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            try:
                async with connect_from(ALICE, broker) as other:
                    await other.send(creating(right), 3)
                    await becomes(lambda: manager.last_seq > events)
                nursery.start_soon(deleted, alice)
                await wait_all_tasks_blocked()
            finally:
                disk.syncs.set()
        assert await codes_of_creation(alice, rule(WRITE, TOPIC, "t")) == [0], "behind both"
        assert broker.core.authorizer is not None
        assert right not in broker.core.authorizer.rules.acls
