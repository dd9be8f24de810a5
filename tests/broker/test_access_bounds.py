"""Answers about what is guarded: of one request no more than it may ask, and all of that."""

import threading
from collections.abc import Callable, Iterable

import pytest
import trio

from segbroker.broker.access import authorizer
from segbroker.broker.access.authorizer import Authorizer
from segbroker.broker.apis import acl_apis
from segbroker.broker.server import Broker
from segbroker.protocol.acls import PatternType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from segbroker.protocol.messages_core import ListOffsetsRequest, ListOffsetsRequestTopic
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_security import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from segbroker.protocol.messages_transactions import DescribeTransactionsRequest
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.metadata.acls import Acl, acls_of

from ..support.wire_client import WireClient
from .authorization_case import ALTER, DESCRIBE, GROUP, OF_CLUSTER, READ, T29, TOPIC, WRITE
from .guarded import ALICE, allow, connect_from, filled, guarded, rule

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


async def test_a_group_that_is_named_twice_is_told_what_it_may_not_read_the_first_time() -> None:
    def asked(*topics: str) -> OffsetFetchRequestGroup:
        rows = [OffsetFetchRequestGroupTopic(name=name, partition_indexes=[0]) for name in topics]
        return OffsetFetchRequestGroup(group_id="g", topics=rows)

    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(DESCRIBE, GROUP, "g"), rule(DESCRIBE, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice:
            for again in ([asked("t")], [asked("hidden")], [asked("other")]):
                request = OffsetFetchRequest(groups=[asked("t", "hidden"), *again])
                reply = await alice.ask(request, OffsetFetchResponse, 8)
                first, second = reply.groups
                assert [(row.name, row.partitions[0].error_code) for row in first.topics] == [
                    ("t", 0),
                    ("hidden", T29),
                ]
                assert (second.error_code, second.topics) == (ErrorCode.INVALID_REQUEST, [])


def by(name: str | None, pattern_type: int = ANY) -> DeleteAclsRequestFilter:
    return DeleteAclsRequestFilter(
        resource_type_filter=int(TOPIC),
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


async def test_an_answer_to_many_filters_has_a_bounded_number_of_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_apis, "MATCHES_MAX", 10)
    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        await allow(broker, *(rule(READ, TOPIC, f"t{n}") for n in range(4)))
        async with connect_from(ALICE, broker) as alice:
            request = DeleteAclsRequest(filters=[by("t3"), by(None), by(None), by(None), by("t0")])
            reply = await alice.ask(request, DeleteAclsResponse, 3)
        found = [(row.error_code, len(row.matching_acls)) for row in reply.filter_results]
        refused = (ErrorCode.POLICY_VIOLATION, 0)
        assert found == [(0, 1), (0, 4), (0, 4), refused, (0, 1)]
        assert broker.core.authorizer is not None
        assert len(broker.core.authorizer.rules.acls) == 1, "what was found is gone all the same"


def creation(topic: str) -> CreateAclsRequestCreation:
    return CreateAclsRequestCreation(
        resource_type=int(TOPIC),
        resource_name=topic,
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=int(READ),
        permission_type=3,
    )


async def create(broker: Broker, topics: Iterable[str], host: str = ALICE) -> list[int]:
    """Make a rule about each; the codes of the answer."""
    request = CreateAclsRequest(creations=[creation(topic) for topic in topics])
    async with connect_from(host, broker) as client:
        reply = await client.ask(request, CreateAclsResponse, 3)
    return [row.error_code for row in reply.results]


async def test_a_rule_that_is_there_takes_no_room_when_it_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_apis, "ACLS_MAX", 4)
    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        assert await create(broker, ["a", "b"]) == [0, 0]
        too_many = ErrorCode.POLICY_VIOLATION
        assert await create(broker, ["a", "c", "c", "d", "b"]) == [0, 0, 0, too_many, 0]
        assert await create(broker, ["c", "b", "a"]) == [0, 0, 0]


async def test_rules_that_several_make_at_the_same_time_have_one_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_apis, "ACLS_MAX", 10)
    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        async with trio.open_nursery() as nursery:
            for n in range(8):
                nursery.start_soon(create, broker, [f"{n}-{m}" for m in range(5)])
        assert broker.core.authorizer is not None
        assert len(broker.core.authorizer.rules.acls) == 10


async def test_one_rule_more_or_less_is_not_a_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER), rule(READ, TOPIC, "t"))
        monkeypatch.setattr(authorizer, "acls_of", None)  # what reads them all
        await allow(broker, rule(DESCRIBE, TOPIC, "more"))
        async with connect_from(ALICE, broker) as alice:
            reply = await alice.ask(DeleteAclsRequest(filters=[by("t")]), DeleteAclsResponse, 3)
        assert not reply.filter_results[0].error_code
        monkeypatch.undo()
        in_force = broker.core.authorizer
        assert in_force is not None
        kept = acls_of(broker.core.topics.manager.section("acls"))
        assert list(in_force.rules.acls) == list(kept)
        assert [one.resource_name for one in kept] == ["kafka-cluster", "more"]


async def test_a_filter_finds_rules_by_name_however_it_names_them() -> None:
    rules = [
        rule(READ, TOPIC, "orders"),
        rule(WRITE, GROUP, "orders"),
        rule(READ, TOPIC, "ord", pattern=PatternType.PREFIXED),
        rule(READ, TOPIC, "*"),
        rule(READ, TOPIC, "other"),
    ]
    wanted = {
        ("orders", LITERAL): ["orders"],
        ("orders", ANY): ["orders"],
        ("orders", PREFIXED): [],
        ("ord", ANY): ["ord"],
        ("ord", PREFIXED): ["ord"],
        ("*", LITERAL): ["*"],
        ("orders", MATCH): ["orders", "ord", "*"],
        (None, PREFIXED): ["ord"],
        (None, ANY): ["orders", "ord", "*", "other"],
    }
    for (name, pattern_type), names in wanted.items():
        async with guarded() as broker:
            await allow(broker, rule(ALTER, *OF_CLUSTER), *rules)
            async with connect_from(ALICE, broker) as alice:
                assert sorted(await described(alice, name, pattern_type)) == sorted(names)
                request = DeleteAclsRequest(filters=[by(name, pattern_type)])
                (row,) = (await alice.ask(request, DeleteAclsResponse, 3)).filter_results
            assert [acl.resource_name for acl in row.matching_acls] == names


async def described(client: WireClient, name: str | None, pattern_type: int) -> list[str]:
    """The names of the resources that DescribeAcls finds by the filter that `by` makes."""
    asked = by(name, pattern_type)
    request = DescribeAclsRequest(
        resource_type_filter=asked.resource_type_filter,
        resource_name_filter=asked.resource_name_filter,
        pattern_type_filter=asked.pattern_type_filter,
        principal_filter=asked.principal_filter,
        host_filter=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )
    reply = await client.ask(request, DescribeAclsResponse, 3)
    assert not reply.error_code
    return [resource.resource_name for resource in reply.resources]


async def test_who_asks_for_the_rules_of_one_name_has_no_others_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    is_about = acl_apis._is_about

    def counted(acl: Acl, name: str | None, pattern_type: int) -> bool:
        looked.append(acl.resource_name)
        return is_about(acl, name, pattern_type)

    async with guarded() as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        await allow(broker, *(rule(READ, TOPIC, f"t-{n}") for n in range(500)))
        monkeypatch.setattr(acl_apis, "_is_about", counted)
        async with connect_from(ALICE, broker) as alice:
            assert await described(alice, "t-7", LITERAL) == ["t-7"]
    assert looked == ["t-7"]


NAMES = 2_000


def named(what: str) -> tuple[Message, int]:
    """A request of less than 16 KiB with so many names."""
    names = [f"{n:x}" for n in range(NAMES)]
    match what:
        case "groups":
            return DescribeGroupsRequest(groups=names), 5
        case "topics":
            return DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5
        case "transactions":
            return DescribeTransactionsRequest(transactional_ids=names), 0
        case _:
            topics = [ListOffsetsRequestTopic(name=name, partitions=[]) for name in names]
            return ListOffsetsRequest(replica_id=-1, topics=topics), 6


class Asked:
    """How often the loop asked for a right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_loop = self.all = 0
        for name in ("allows", "would_allow"):
            monkeypatch.setattr(Authorizer, name, self._counted(getattr(Authorizer, name)))

    def _counted(self, real: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*args: object) -> bool:
            self.all += 1
            self.on_loop += threading.current_thread() is threading.main_thread()
            return real(*args)

        return counted


@pytest.mark.parametrize("what", ["groups", "topics", "transactions", "offsets"])
async def test_the_rights_to_many_short_names_are_not_asked_for_on_the_loop(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        asked = Asked(monkeypatch)
        request, version = named(what)
        assert len(alice.encode(request, version)[1]) < 16 << 10
        await alice.send(request, version)
        assert await alice.receive_frame()
    assert asked.all >= NAMES
    assert asked.on_loop < 10


async def test_the_rights_to_all_topics_are_not_asked_for_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of a few bytes is about all that there are."""
    async with guarded() as broker:
        topics = broker.core.topics
        for name in ("a", "b", "c"):
            await topics.create(name, 1, topics.topic_config({}))
        await allow(broker, rule(DESCRIBE, TOPIC, "a"), rule(DESCRIBE, TOPIC, "c"))
        async with connect_from(ALICE, broker) as alice:
            asked = Asked(monkeypatch)
            request = DescribeTopicPartitionsRequest(topics=[])
            reply = await alice.ask(request, DescribeTopicPartitionsResponse, 0)
    assert [topic.name for topic in reply.topics] == ["a", "c"]
    assert asked.all >= 3
    assert not asked.on_loop


async def test_what_may_be_done_with_many_groups_is_not_asked_for_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each group all operations, of those that are few enough to be asked for one right."""
    names = [f"{n:x}" for n in range(490)]
    async with guarded() as broker:
        await allow(broker, rule(DESCRIBE, GROUP, "*"))
        async with connect_from(ALICE, broker) as alice:
            asked = Asked(monkeypatch)
            request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
            reply = await alice.ask(request, DescribeGroupsResponse, 5)
    assert [row.authorized_operations for row in reply.groups] == [1 << DESCRIBE] * len(names)
    assert asked.all > 5 * len(names)
    assert asked.on_loop <= len(names)


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (VendorKey.PARTITION_STATISTICS, {}),
        (VendorKey.PARTITION_STATISTICS, {"topics": ["t"] * NAMES}),
        (VendorKey.FLOORS, {"partitions": [{"topic": "t", "partition": 0}] * NAMES}),
    ],
)
async def test_the_rights_to_what_our_own_requests_name_are_not_asked_for_on_the_loop(
    key: int, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(DESCRIBE, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice:
            asked = Asked(monkeypatch)
            reply = await alice.ask_vendor(key, body)
    assert "error" not in reply
    assert asked.all > 0
    assert not asked.on_loop
