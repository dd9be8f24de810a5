"""Who may do what, request by request: two peers of one broker, told apart by their address.

127.0.0.1   alice here: rules name this host
127.0.0.2   bob: nobody has allowed him anything
"""

from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

import pytest
import trio

from segbroker.broker.apis.metadata import NOT_ASKED
from segbroker.broker.apis.streams_descriptions import streams_group_describe
from segbroker.broker.call import Call
from segbroker.broker.core import Core
from segbroker.broker.groups.streams_topology import TOPICS_MAX
from segbroker.broker.guards.authorized import GUARDS, OPEN
from segbroker.broker.recording import recorded
from segbroker.broker.requests import SLOW_ANSWERS
from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_consumer_groups as consumer_groups
from segbroker.protocol import messages_core as core
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_security as security
from segbroker.protocol import messages_share_groups as share_groups
from segbroker.protocol import messages_streams_groups as streams_groups
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.acls import Operation, PatternType, Permission
from segbroker.protocol.api_keys import SERVED, ApiKey, is_served
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import StorageError

from ..support.waiting import becomes
from ..support.wire_client import (
    Closed,
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_streams import StreamsMember, internal, statuses, subtopology
from ..support.wire_transactions import some, until
from .authorization_case import (
    ALL,
    ALTER,
    C31,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    G30,
    GROUP,
    OF_CLUSTER,
    READ,
    T29,
    TOPIC,
    TXN,
    WRITE,
    X53,
    Case,
    codes,
)
from .authorization_cases import ASKS_ABOUT_ITSELF, CASES, LISTS
from .authorization_cases_groups import OFFSETS
from .conftest import Events, serving
from .guarded import ALICE, BOB, allow, connect_from, filled, guarded, rule


def is_tried(case: Case) -> bool:
    """Whether the request is served; InitProducerId has a transactional form of its own."""
    if case.code == X53 and ApiKey.END_TXN not in SERVED:
        return False
    return is_served(case.request.message_key, case.version)


@pytest.mark.parametrize("name", CASES)
async def test_alice_can_and_bob_cannot(name: str, events: Events) -> None:
    case = CASES[name]()
    if not is_tried(case):
        pytest.skip("not served")
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, *(rule(*need) for need in case.needs))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            refused = codes(await bob.ask(CASES[name]().request, case.expected, case.version))
            assert refused & {T29, G30, C31, X53}, refused
            allowed = codes(await alice.ask(case.request, case.expected, case.version))
            assert not allowed & {T29, G30, C31, X53}, allowed
    assert {line["host"] for line in events.named("access_denied")} == {BOB}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case().needs)])
async def test_without_the_last_rule_the_code_says_what_is_missing(name: str) -> None:
    case = CASES[name]()
    if not is_tried(case):
        pytest.skip("not served")
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, *(rule(*need) for need in case.needs[:-1]))
        async with connect_from(ALICE, broker) as alice:
            refused = codes(await alice.ask(case.request, case.expected, case.version))
            assert case.code in refused, refused


# Another right than the one that is denied is enough: each of the two has a case.
ANOTHER_IS_ENOUGH = {
    "offset for leader epoch, by a broker",
    "a producer id for a topic",
    "a producer id for the cluster",
    "end a transaction in a partition",
    "end a transaction in a partition as a broker",
    "create topics anywhere",
}


# That there is no such group is told before it is told that a topic may not be read.
TOLD_OTHERWISE = {("delete the offsets of a share group", 0)}
CODES = {TOPIC: T29, GROUP: G30, TXN: X53, OF_CLUSTER[0]: C31}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (name, number)
        for name, case in CASES.items()
        for number in range(len(case().needs))
        if name not in ANOTHER_IS_ENOUGH and (name, number) not in TOLD_OTHERWISE
    ],
)
async def test_every_right_but_one_that_is_needed_is_not_enough(name: str, number: int) -> None:
    """Those that imply a lesser one, too: who may write may describe, and not read."""
    case = CASES[name]()
    if not is_tried(case):
        pytest.skip("not served")
    kinds = {TOPIC: "*", GROUP: "*", TXN: "*", OF_CLUSTER[0]: OF_CLUSTER[1]}
    need = case.needs[number]
    code = case.code if need is case.needs[-1] else CODES[need[1]]
    async with guarded() as broker:
        await filled(broker)
        if need[1] is not OF_CLUSTER[0]:
            del kinds[OF_CLUSTER[0]]
        everything = [rule(ALL, kind, some) for kind, some in kinds.items()]
        await allow(broker, *everything, rule(*need, permission=Permission.DENY))
        async with connect_from(ALICE, broker) as alice:
            refused = codes(await alice.ask(case.request, case.expected, case.version))
            assert code in refused, refused


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("produce in a transaction", X53),
        ("add partitions to a transaction", X53),
        ("add offsets to a transaction", X53),
        ("commit offsets in a transaction", X53),
        ("offset commit", G30),
        ("offset fetch", G30),
        ("consumer group heartbeat", G30),
        ("share group heartbeat", G30),
        ("describe the offsets of a share group", G30),
        ("alter the offsets of a share group", G30),
    ],
)
async def test_of_several_rights_that_are_missing_kafkas_first_one_is_told(
    name: str, code: ErrorCode
) -> None:
    case = CASES[name]()
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        await filled(broker)
        refused = codes(await bob.ask(case.request, case.expected, case.version))
        assert refused - {0} == {code}


def test_every_served_api_has_a_rule_and_a_case() -> None:
    tried = {case().request.message_key for case in CASES.values()}
    tried |= {cls.message_key for cls in LISTS | ASKS_ABOUT_ITSELF}
    for key in SERVED:
        assert key in GUARDS or key in OPEN, key.name
        assert key in tried or key in OPEN, key.name


def names(rows: Iterable[Any], field: str = "name") -> list[str]:
    return [getattr(row, field) for row in rows]


async def test_what_may_not_be_described_is_left_out_of_lists(events: Events) -> None:
    async with guarded(auto_create_topics=False) as broker:
        await filled(broker)
        await allow(broker, rule(READ, GROUP, "g"), rule(READ, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            commit = groups.OffsetCommitRequest(group_id="g", member_id="", topics=OFFSETS)
            assert codes(await alice.ask(commit, groups.OffsetCommitResponse, 7)) == {0}
            for client, topics, found in ((alice, ["t"], ["g"]), (bob, [], [])):
                everything = core.MetadataRequest(topics=None)
                reply = await client.ask(everything, core.MetadataResponse, 9)
                assert names(reply.topics) == topics
                listed = await client.ask(groups.ListGroupsRequest(), groups.ListGroupsResponse, 4)
                assert names(listed.groups, "group_id") == found
                oldest = core.MetadataRequest(topics=[])
                assert names((await client.ask(oldest, core.MetadataResponse, 0)).topics) == topics
                pages = admin.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=9)
                page = await client.ask(pages, admin.DescribeTopicPartitionsResponse, 0)
                assert names(page.topics) == topics
    assert not events.named("access_denied"), "nothing was asked for that is refused"


async def test_the_cursor_of_a_page_names_no_topic_that_may_not_be_described() -> None:
    async with guarded() as broker:
        for name in ("a", "hidden", "z"):
            await broker.core.topics.create(name, 1, broker.core.topics.topic_config({}))
        request = admin.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
        expected = admin.DescribeTopicPartitionsResponse
        async with connect_from(ALICE, broker) as alice:
            nothing = await alice.ask(request, expected, 0)
            assert (nothing.topics, nothing.next_cursor) == ([], None)
            await allow(broker, *(rule(DESCRIBE, TOPIC, name) for name in ("a", "z")))
            page = await alice.ask(request, expected, 0)
            assert page.next_cursor is not None
            assert (names(page.topics), page.next_cursor.topic_name) == (["a"], "z")


async def test_an_unauthorised_topic_looks_the_same_whether_it_exists_or_not() -> None:
    async with guarded() as broker:
        await filled(broker)
        async with connect_from(BOB, broker) as bob:
            for request in (
                lambda name: core.MetadataRequest(topics=[core.MetadataRequestTopic(name=name)]),
                lambda name: admin.DeleteTopicsRequest(topic_names=[name], timeout_ms=1),
            ):
                expected = (
                    core.MetadataResponse
                    if isinstance(request("t"), core.MetadataRequest)
                    else admin.DeleteTopicsResponse
                )
                known = codes(await bob.ask(request("t"), expected, 5))
                assert (
                    known
                    == codes(await bob.ask(request("no-such"), expected, 5))
                    == {29} | ({0} & known)
                )
        assert set(broker.core.topics.all) == {"t"}


async def test_a_topic_without_a_name_is_asked_about_where_requests_name_topics() -> None:
    """From the version on that names them by id, a name that is left out says nothing."""
    row = groups.OffsetFetchRequestGroupTopic(name="", partition_indexes=[0])
    offsets = groups.OffsetFetchRequest(
        groups=[groups.OffsetFetchRequestGroup(group_id="g", topics=[row])]
    )
    commit = groups.OffsetCommitRequest(group_id="g", member_id="", topics=OFFSETS)
    commit.topics = [
        groups.OffsetCommitRequestTopic(name="", partitions=one.partitions) for one in OFFSETS
    ]
    async with guarded() as broker:
        await allow(broker, rule(READ, GROUP, "g", host=BOB))
        async with connect_from(BOB, broker) as bob:
            for request, expected, version in (
                (fetch_request("", 0), core.FetchResponse, 4),
                (fetch_request("", 0), core.FetchResponse, 12),
                (offsets, groups.OffsetFetchResponse, 9),
                (commit, groups.OffsetCommitResponse, 9),
            ):
                told = codes(await bob.ask(request, expected, version))
                assert told - {0} == {T29}, (expected.__name__, version)
            nameless = [admin.DeleteTopicsRequestTopic(name="", topic_id=ZERO_UUID)]
            deletion = admin.DeleteTopicsRequest(topics=nameless, timeout_ms=1)
            kept = await bob.ask(deletion, admin.DeleteTopicsResponse, 6)
            assert [(row.name, row.error_code) for row in kept.responses] == [("", T29)]


@pytest.mark.parametrize(("version", "named"), [(1, ["t"]), (2, []), (7, [])])
async def test_offsets_of_a_refused_group_are_refused_at_one_place(
    version: int, named: list[str]
) -> None:
    """By partition, until there is a code of the whole."""
    rows = [groups.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = groups.OffsetFetchRequest(group_id="g", topics=rows)
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        refused = await bob.ask(request, groups.OffsetFetchResponse, version)
        assert names(refused.topics) == named
        assert codes(refused) - {0} == {G30}


async def test_a_denial_wins_over_every_permission_and_prefixes_and_stars_cover() -> None:
    async with guarded() as broker:
        topics = broker.core.topics
        for name in ("flights", "flights-secret", "cars"):
            await topics.create(name, 1, topics.topic_config({}))
        await allow(
            broker,
            rule(READ, TOPIC, "flights", pattern=PatternType.PREFIXED, principal="User:*"),
            rule(WRITE, TOPIC, "*", host="*"),
            rule(ALL, TOPIC, "flights-secret", host="*", permission=Permission.DENY),
        )
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            assert (await alice.fetch("flights", 0)).error_code == 0
            assert (await alice.fetch("flights-secret", 0)).error_code == T29
            assert (await alice.fetch("cars", 0)).error_code == T29
            assert (await bob.fetch("flights", 0)).error_code == T29
            assert (await bob.produce("cars", b"x")).error_code == 0
            assert (await bob.produce("flights-secret", b"x")).error_code == T29


async def test_a_change_of_the_rules_holds_for_the_next_request_and_after_a_restart() -> None:
    storage = MemoryStorage()
    async with guarded(storage=storage) as broker:
        await filled(broker)
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            assert (await bob.produce("t", b"x")).error_code == T29
            creation = security.CreateAclsRequest(
                creations=[
                    security.CreateAclsRequestCreation(
                        resource_type=int(TOPIC),
                        resource_name="t",
                        resource_pattern_type=3,
                        principal="User:ANONYMOUS",
                        host=BOB,
                        operation=int(WRITE),
                        permission_type=3,
                    )
                ]
            )
            assert codes(await alice.ask(creation, security.CreateAclsResponse, 3)) == {0}
            assert (await bob.produce("t", b"x")).error_code == 0
            deletion = security.DeleteAclsRequest(
                filters=[
                    security.DeleteAclsRequestFilter(
                        resource_type_filter=2,
                        resource_name_filter="t",
                        pattern_type_filter=2,
                        principal_filter=None,
                        host_filter=BOB,
                        operation=1,
                        permission_type=1,
                    )
                ]
            )
            deleted = await alice.ask(deletion, security.DeleteAclsResponse, 3)
            assert len(deleted.filter_results[0].matching_acls) == 1
            assert (await bob.produce("t", b"x")).error_code == T29
            assert codes(await alice.ask(creation, security.CreateAclsResponse, 1)) == {0}
    async with guarded(storage=storage) as broker, connect_from(BOB, broker) as bob:
        assert (await bob.produce("t", b"x")).error_code == 0


async def test_a_rule_is_about_a_host_however_it_is_written() -> None:
    async with guarded() as broker:
        await allow(broker, rule(ALL, *OF_CLUSTER))
        creation = security.CreateAclsRequestCreation(
            resource_type=int(TOPIC),
            resource_name="t",
            resource_pattern_type=3,
            principal="User:ANONYMOUS",
            host="::FFFF:127.0.0.2",
            operation=int(READ),
            permission_type=2,
        )
        request = security.CreateAclsRequest(creations=[creation])
        async with connect_from(ALICE, broker) as alice:
            assert codes(await alice.ask(request, security.CreateAclsResponse, 3)) == {0}
        assert broker.core.authorizer is not None
        assert list(broker.core.authorizer.rules.acls)[-1].host == BOB


async def test_a_fetch_that_waits_brings_nothing_that_is_not_allowed_any_more() -> None:
    async with guarded() as broker:
        await filled(broker)
        reads = rule(READ, TOPIC, "t")
        await allow(broker, reads, rule(WRITE, TOPIC, "t", host=BOB))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            await alice.send(fetch_request("t", 0, wait_ms=600_000), 12)
            while len(broker.core.deadlines) < 1:
                await trio.lowlevel.checkpoint()
            assert broker.core.authorizer is not None
            done = trio.Event()
            broker.core.authorizer.delete([reads], lambda error: done.set())
            await done.wait()
            assert (await bob.produce("t", b"x")).error_code == 0
            with trio.fail_after(60):
                _, reply = await alice.receive(core.FetchResponse, 12)
            row = reply.responses[0].partitions[0]
            assert (row.error_code, row.records, row.high_watermark) == (T29, b"", -1)


async def test_a_fetch_behind_one_that_waits_brings_nothing_that_is_not_allowed_any_more() -> None:
    """It was ready when it came, and is read when its turn comes: also what was sent since."""
    async with guarded() as broker:
        await filled(broker)
        topics = broker.core.topics
        await topics.create("empty", 1, topics.topic_config({}))
        reads = rule(READ, TOPIC, "t")
        writes = [rule(WRITE, TOPIC, name, host=BOB) for name in ("t", "empty")]
        await allow(broker, reads, rule(READ, TOPIC, "empty"), *writes)
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            assert (await bob.produce("t", b"before")).error_code == 0
            for name in ("empty", "t"):
                await alice.send(fetch_request(name, 0, wait_ms=600_000), 12)
            (connection,) = (one for one in broker._connections if one.peer.address[0] == ALICE)
            await becomes(lambda: len(connection.outbox) == 2)
            assert broker.core.authorizer is not None
            done = trio.Event()
            broker.core.authorizer.delete([reads], lambda error: done.set())
            await done.wait()
            for name in ("t", "empty"):
                assert (await bob.produce(name, b"since")).error_code == 0
            with trio.fail_after(60):
                _, first = await alice.receive(core.FetchResponse, 12)
                _, second = await alice.receive(core.FetchResponse, 12)
            assert values(first.responses[0].partitions[0]) == [b"since"]
            row = second.responses[0].partitions[0]
            assert (row.error_code, row.records, row.high_watermark) == (T29, b"", -1)


async def test_what_is_refused_opens_no_partition() -> None:
    async with guarded() as broker:
        await filled(broker)
        async with connect_from(BOB, broker) as bob:
            assert (await bob.fetch("t", 0)).error_code == T29
            assert (await bob.produce("t", b"x")).error_code == T29
        assert not broker.core.topics.served


async def test_bits_of_authorized_operations_are_those_that_the_rules_allow() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(READ, TOPIC, "t"), rule(DELETE, GROUP, "g"))
        await allow(broker, rule(ALTER, *OF_CLUSTER))
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            asked = core.MetadataRequest(
                topics=[core.MetadataRequestTopic(name="t")],
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
            reply = await alice.ask(asked, core.MetadataResponse, 9)
            assert reply.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
            assert reply.cluster_authorized_operations == 1 << ALTER | 1 << DESCRIBE
            reply = await bob.ask(asked, core.MetadataResponse, 9)
            assert reply.cluster_authorized_operations == 0
            described = await alice.ask(
                groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True),
                groups.DescribeGroupsResponse,
                4,
            )
            assert described.groups[0].authorized_operations == 1 << DELETE | 1 << DESCRIBE
            cluster = await alice.ask(
                admin.DescribeClusterRequest(include_cluster_authorized_operations=True),
                admin.DescribeClusterResponse,
                0,
            )
            assert cluster.cluster_authorized_operations == 1 << ALTER | 1 << DESCRIBE


async def test_who_does_not_ask_for_operations_is_told_none() -> None:
    async with guarded() as broker:
        await filled(broker)
        named = [rule(DESCRIBE, GROUP, name) for name in "cs"]
        reads = [rule(READ, GROUP, name) for name in "cs"]
        await allow(broker, rule(READ, TOPIC, "t"), *named, *reads, rule(ALTER, *OF_CLUSTER))
        async with connect_from(ALICE, broker) as alice:
            metadata = await alice.ask(
                core.MetadataRequest(topics=[core.MetadataRequestTopic(name="t")]),
                core.MetadataResponse,
                9,
            )
            assert metadata.topics[0].topic_authorized_operations == NOT_ASKED
            assert metadata.cluster_authorized_operations == NOT_ASKED
            cluster = await alice.ask(
                admin.DescribeClusterRequest(include_cluster_authorized_operations=False),
                admin.DescribeClusterResponse,
                0,
            )
            assert cluster.cluster_authorized_operations == NOT_ASKED
            said = share_groups.ShareGroupHeartbeatRequest(
                group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
            )
            shared = await alice.ask(said, share_groups.ShareGroupHeartbeatResponse, 1)
            assert shared.error_code == 0
            consumed = await alice.ask(
                consumer_joining(group_id="c"), consumer_groups.ConsumerGroupHeartbeatResponse, 1
            )
            assert consumed.error_code == 0
            for request, response, version in (
                (
                    groups.DescribeGroupsRequest(groups=["c"]),
                    groups.DescribeGroupsResponse,
                    4,
                ),
                (
                    consumer_groups.ConsumerGroupDescribeRequest(
                        group_ids=["c"], include_authorized_operations=False
                    ),
                    consumer_groups.ConsumerGroupDescribeResponse,
                    1,
                ),
                (
                    share_groups.ShareGroupDescribeRequest(
                        group_ids=["s"], include_authorized_operations=False
                    ),
                    share_groups.ShareGroupDescribeResponse,
                    1,
                ),
            ):
                reply: Any = await alice.ask(request, response, version)
                (row,) = reply.groups
                assert row.authorized_operations == NOT_ASKED, row


async def test_a_super_user_may_do_everything_and_without_rules_nobody_else() -> None:
    super_users = "User:admin; User:ANONYMOUS"
    async with guarded(super_users=super_users) as broker, connect_from(BOB, broker) as bob:
        await bob.create("made")
        assert (await bob.produce("made", b"x")).error_code == 0


async def test_an_open_world_is_closed_where_a_rule_is_about_the_resource() -> None:
    async with guarded(allow_everyone_if_no_acl_found=True) as broker:
        await filled(broker)
        async with connect_from(BOB, broker) as bob:
            assert (await bob.produce("t", b"x")).error_code == 0
            await allow(broker, rule(READ, TOPIC, "t"))
            assert (await bob.produce("t", b"x")).error_code == T29


async def test_in_an_open_world_idempotent_producers_need_no_rule_about_the_cluster() -> None:
    request = transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    async with guarded(allow_everyone_if_no_acl_found=True) as broker:
        await allow(broker, rule(ALTER, *OF_CLUSTER), rule(WRITE, TOPIC, "t"))
        async with connect_from(BOB, broker) as bob:
            reply = await bob.ask(request, transactions.InitProducerIdResponse, 2)
            assert codes(reply) == {0}, "there are topics that no rule is about"
            assert (await bob.produce("open", b"x")).error_code != T29
            await allow(broker, rule(WRITE, TOPIC, "*"))
            reply = await bob.ask(request, transactions.InitProducerIdResponse, 2)
            assert codes(reply) == {C31}


async def test_many_rules_of_long_names_are_kept_in_events_that_fit_the_log() -> None:
    long = "n" * 990
    asked = [
        security.CreateAclsRequestCreation(
            resource_type=int(TOPIC),
            resource_name=f"{n:05}{long}",
            resource_pattern_type=3,
            principal=f"User:{long}",
            host=long,
            operation=int(READ),
            permission_type=3,
        )
        for n in range(500)
    ]
    storage = MemoryStorage()
    for created in (asked, []):
        async with guarded(storage=storage, super_users="User:ANONYMOUS") as broker:
            async with connect_from(ALICE, broker) as alice:
                request = security.CreateAclsRequest(creations=created)
                reply = await alice.ask(request, security.CreateAclsResponse, 3)
                assert {row.error_code for row in reply.results} <= {0}
            assert broker.core.authorizer is not None
            assert len(broker.core.authorizer.rules.acls) == len(asked), "a MiB and a half"


async def test_a_refused_produce_without_acks_closes_its_connection() -> None:
    async with guarded() as broker:
        await filled(broker)
        async with connect_from(BOB, broker) as bob:
            await bob.send(produce_request("t", batch(b"x"), acks=0), 9)
            assert await bob.is_closed()
        assert broker.core.counters.produced_bytes == 0


async def test_a_coordinator_that_there_is_not_is_no_matter_of_transactional_ids() -> None:
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        for key_type in (2, 3):
            request = groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            reply = await bob.ask(request, groups.FindCoordinatorResponse, 6)
            assert reply.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_requests_of_our_own_need_rules_too() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(DESCRIBE, *OF_CLUSTER), rule(DESCRIBE, TOPIC, "t"))
        await allow(broker, rule(DESCRIBE, TXN, "q"))
        floors = {"partitions": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 0}]}
        gaps: dict[str, object] = {"topic": "t", "partition": 0}
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            for key, body in (
                (VendorKey.SERVER_INFO, {}),
                (VendorKey.PARTITION_STATISTICS, {"topics": ["t"]}),
                (VendorKey.GAPS, gaps),
                (VendorKey.QUERY_STATE, {"query": "q"}),
            ):
                assert "error" not in await alice.ask_vendor(key, dict(body))
                reply = await bob.ask_vendor(key, dict(body))
                assert reply["error"]["code"] in (T29, C31, X53)  # type: ignore[index]
            everything = await bob.ask_vendor(VendorKey.PARTITION_STATISTICS, {})
            assert everything["topics"] == {}
            reply = await alice.ask_vendor(VendorKey.FLOORS, dict(floors))
            first, second = cast(list[dict[str, Any]], reply["partitions"])
            assert (first["topic"], "error" in first) == ("t", False)
            assert (second["topic"], second["error"]["code"]) == ("u", T29)


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (VendorKey.FLOORS, {"partitions": [{}] * 20_001}),
        (VendorKey.PARTITION_STATISTICS, {"topics": ["t"] * 20_001}),
        (VendorKey.COMMIT_BATCH, {"query": "q", "batch": 1, "transactions": [{}] * 10_001}),
        (VendorKey.FORGET_TRANSACTIONS, {"query": "q", "transactional_ids": ["q"] * 10_001}),
    ],
)
async def test_a_list_that_is_too_long_is_not_asked_about_row_by_row(
    key: VendorKey, body: dict[str, Any], events: Events
) -> None:
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        await allow(broker, rule(WRITE, TXN, "q", host=BOB))
        reply = cast(Any, await bob.ask_vendor(key, body))
        assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST
    assert not events.named("access_denied")


async def test_names_of_a_batch_are_asked_about_with_their_prefix() -> None:
    rows = [{"transactional_id": "mine", "producer_id": 1, "producer_epoch": 0}]
    body = {"query": "mine", "batch": 1, "prefix": "not-", "transactions": rows}
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        await allow(broker, rule(WRITE, TXN, "mine", host=BOB))
        reply = cast(Any, await bob.ask_vendor(VendorKey.COMMIT_BATCH, body))
        assert reply["error"]["code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "'not-mine'" in reply["error"]["detail"]


async def test_others_that_end_with_a_batch_are_asked_about_too() -> None:
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        await filled(broker)
        await allow(broker, rule(WRITE, TOPIC, "t"), rule(WRITE, TXN, "q/0/0"))
        await allow(broker, rule(WRITE, TXN, "q", host=BOB))
        async with connect_from(ALICE, broker) as alice:
            (one,) = await some(alice, 1, "q/0/0")
            body = {"query": "q", "batch": 1, "transactions": [], "ends_others": True}
            reply = cast(Any, await bob.ask_vendor(VendorKey.COMMIT_BATCH, body))
            assert reply["error"]["code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert "'q/0/0'" in reply["error"]["detail"]
            assert await one.end(commit=True) == 0


async def test_others_that_begin_while_a_batch_waits_are_asked_about_too() -> None:
    """They end when the batch is committed, and not as of when it was asked for."""
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        await filled(broker)
        await allow(broker, rule(WRITE, TOPIC, "t"), rule(WRITE, TXN, "q/0/0"))
        await allow(broker, rule(WRITE, TXN, "q", host=BOB))
        replies: list[Any] = []
        body = {"query": "q", "batch": 1, "transactions": [], "ends_others": True}

        async def commit() -> None:
            replies.append(await bob.ask_vendor(VendorKey.COMMIT_BATCH, body))

        batches = broker.core.query_batches._batches
        async with connect_from(ALICE, broker) as alice:
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery, batches:  # another batch is committed
                    nursery.start_soon(commit)
                    await becomes(lambda: batches.statistics().tasks_waiting == 1)
                    (one,) = await some(alice, 1, "q/0/0")
            assert replies[0]["error"]["code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert "'q/0/0'" in replies[0]["error"]["detail"]
            assert broker.core.query_batches.last_batch("q") is None
            assert await one.end(commit=True) == 0


async def test_a_large_request_is_checked_as_a_small_one() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(DELETE, TOPIC, "t"))
        many = ["t", *(f"topic-{n}" for n in range(4_000))]
        async with connect_from(ALICE, broker) as alice:
            request = admin.DeleteTopicsRequest(topic_names=many, timeout_ms=1)
            reply = await alice.ask(request, admin.DeleteTopicsResponse, 3)
            found = {row.name: row.error_code for row in reply.responses}
            assert len(found) == len(many)
            assert found.pop("t") == 0
            assert set(found.values()) == {T29}


async def test_who_may_describe_is_told_that_there_is_nothing_to_delete() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(DESCRIBE, TOPIC, "t"), rule(DESCRIBE, TOPIC, "missing"))
        async with connect_from(ALICE, broker) as alice:
            names = ["t", "missing", "hidden"]
            wanted = {"t": T29, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "hidden": T29}
            by_name = [admin.DeleteTopicsRequestTopic(name=n, topic_id=ZERO_UUID) for n in names]
            for version, request in (
                (5, admin.DeleteTopicsRequest(topic_names=names, timeout_ms=1)),
                (6, admin.DeleteTopicsRequest(topics=by_name, timeout_ms=1)),
            ):
                reply = await alice.ask(request, admin.DeleteTopicsResponse, version)
                assert {row.name: row.error_code for row in reply.responses} == wanted


async def test_a_flood_of_refusals_is_counted_and_not_written_line_by_line(
    events: Events,
) -> None:
    async with guarded(audit_lines_max=5) as broker:
        async with connect_from(BOB, broker) as bob:
            for n in range(40):
                await bob.fetch(f"topic-{n % 20}", 0)
        denied = events.named("access_denied")
        assert [line["resource"] for line in denied] == [f"topic-{n}" for n in range(5)]
        first = {key: denied[0][key] for key in ("principal", "host", "operation", "resource_type")}
        assert first == {
            "principal": "User:ANONYMOUS",
            "host": BOB,
            "operation": "read",
            "resource_type": "topic",
        }
        assert broker.core.authorizer is not None
        broker.core.authorizer.audit.keep_house(trio.current_time() + 61)
        assert [line["count"] for line in events.named("access_repeated")] == [1] * 5
        assert [line["denied"] for line in events.named("access_omitted")] == [30]


async def test_names_that_are_made_up_are_neither_kept_nor_told_whole(events: Events) -> None:
    async with guarded() as broker, connect_from(BOB, broker) as bob:
        authorizer = broker.core.authorizer
        assert authorizer is not None
        for length in (200, 20_000):
            topic = core.MetadataRequestTopic(name="x" * length)
            request = core.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
            reply = await bob.ask(request, core.MetadataResponse, 5)
            assert reply.topics[0].error_code == T29
        assert max(len(key[-1]) for key in authorizer._cache) == 200
        told = [event["resource"] for event in events.named("access_denied")]
        assert told == ["x" * 200, "x" * 256 + "…"]


async def test_a_disk_that_fails_does_not_silence_the_audit_log(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(DiskManager, "housekeeping", fails)
    async with guarded(audit_lines_max=1, housekeeping_interval_ms=10) as broker:
        assert broker.core.authorizer is not None
        audit = broker.core.authorizer.audit
        audit.keep_house(trio.current_time())  # the window begins now
        async with connect_from(BOB, broker) as bob:
            for name in ("t", "u"):
                assert (await bob.fetch(name, 0)).error_code == T29
            audit._began -= 61
            before = len(events.named("housekeeping_failed"))
            with trio.fail_after(60):
                while len(events.named("housekeeping_failed")) < before + 2:
                    await trio.lowlevel.checkpoint()
        assert events.named("access_omitted")


async def test_what_is_allowed_is_audited_when_asked_for(events: Events) -> None:
    async with guarded(audit_allowed=True) as broker:
        await filled(broker)
        await allow(broker, rule(READ, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice:
            await alice.fetch("t", 0)
        assert [line["resource"] for line in events.named("access_allowed")] == ["t"]


async def test_what_a_right_to_the_cluster_allows_is_audited_too(events: Events) -> None:
    topic = admin.CreateTopicsRequestTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    epochs = core.OffsetForLeaderEpochRequest(
        topics=[core.OffsetForLeaderEpochRequestTopic(topic="t", partitions=[])]
    )
    made = core.MetadataRequest(topics=[core.MetadataRequestTopic(name="u")])
    asked: list[tuple[Operation, Message, type[Message], int]] = [
        (CREATE, admin.CreateTopicsRequest(topics=[topic]), admin.CreateTopicsResponse, 5),
        (CREATE, made, core.MetadataResponse, 5),
        (CLUSTER_ACTION, epochs, core.OffsetForLeaderEpochResponse, 3),
        (DESCRIBE, groups.ListGroupsRequest(), groups.ListGroupsResponse, 4),
        (
            ALTER,
            transactions.WriteTxnMarkersRequest(markers=[]),
            transactions.WriteTxnMarkersResponse,
            1,
        ),
    ]
    for operation, request, expected, version in asked:
        events.clear()
        async with guarded(audit_allowed=True) as broker:
            await allow(broker, rule(operation, *OF_CLUSTER), rule(DESCRIBE, TOPIC, "u"))
            async with connect_from(BOB, broker) as bob:
                await bob.ask(request, expected, version)
            assert not events.named("access_allowed")
            async with connect_from(ALICE, broker) as alice:
                await alice.ask(request, expected, version)
        on_cluster = [
            line["operation"]
            for line in events.named("access_allowed")
            if line["resource_type"] == "cluster"
        ]
        assert on_cluster == [operation.name.lower()], expected.__name__
        denied = [line["host"] for line in events.named("access_denied")]
        assert set(denied) <= {BOB}, "alice needed nothing else"


async def test_what_a_right_to_some_topic_allows_is_audited_too(events: Events) -> None:
    request = transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    async with guarded(audit_allowed=True) as broker:
        await allow(broker, rule(WRITE, TOPIC, "t"))
        for host in (BOB, ALICE):
            async with connect_from(host, broker) as client:
                await client.ask(request, transactions.InitProducerIdResponse, 1)
    (line,) = events.named("access_allowed")
    assert (line["host"], line["operation"]) == (ALICE, "write")
    assert (line["resource_type"], line["resource"]) == ("topic", "(any)")
    (line,) = events.named("access_denied")
    assert (line["host"], line["operation"]) == (BOB, "idempotent_write")


async def test_acl_apis_say_that_there_is_no_authorizer() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in ("describe acls", "create acls", "delete acls"):
            case = CASES[name]()
            reply = await client.ask(case.request, case.expected, case.version)
            assert ErrorCode.SECURITY_DISABLED in codes(reply)


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_name": "n" * 1_001},
        {"resource_type": 4},
        {"resource_pattern_type": 2},
        {"principal": "alice"},
        {"host": ""},
        {"operation": 1},
        {"operation": 0},
        {"permission_type": 1},
    ],
    ids=str,
)
async def test_a_rule_that_says_nothing_is_refused(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "x",
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    creations = [
        security.CreateAclsRequestCreation(**good | change),
        security.CreateAclsRequestCreation(**good),
    ]
    request = security.CreateAclsRequest(creations=creations)
    async with (
        guarded(super_users="User:ANONYMOUS") as broker,
        connect(broker.address) as client,
    ):
        reply = await client.ask(request, security.CreateAclsResponse, 2)
        assert [row.error_code for row in reply.results] == [ErrorCode.INVALID_REQUEST, 0]


async def test_an_api_without_a_rule_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES["heartbeat"]()
    async with guarded(super_users="User:ANONYMOUS") as broker:
        monkeypatch.delitem(GUARDS, case.request.message_key)
        async with connect(broker.address) as client:
            with pytest.raises(Closed):
                await client.ask(case.request, case.expected, case.version)


async def test_an_expression_finds_what_may_be_described_by_rules_that_came_later() -> None:
    async with guarded() as broker:
        await filled(broker)
        topics = broker.core.topics
        await topics.create("secret", 1, topics.topic_config({}))
        ids = {name: topics.all[name].topic_id for name in ("t", "secret")}
        await allow(broker, rule(READ, GROUP, "g"), rule(READ, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice:

            async def reads(epoch: int) -> tuple[int, set[UUID] | None]:
                request = consumer_groups.ConsumerGroupHeartbeatRequest(
                    group_id="g", member_id="member", member_epoch=epoch
                )
                if epoch == 0:
                    request.rebalance_timeout_ms, request.subscribed_topic_regex = 1_000, ".*"
                    request.topic_partitions = []
                reply = await alice.ask(request, consumer_groups.ConsumerGroupHeartbeatResponse, 1)
                assert reply.error_code == 0
                if reply.assignment is None:
                    return reply.member_epoch, None
                return reply.member_epoch, {
                    row.topic_id for row in reply.assignment.topic_partitions
                }

            epoch, found = await reads(0)
            assert found == {ids["t"]}
            assert await reads(epoch) == (epoch, None)
            await allow(broker, rule(READ, TOPIC, "secret"))
            assert await reads(epoch) == (epoch + 1, set(ids.values()))
            assert await reads(epoch + 1) == (epoch + 1, None)


async def test_an_expression_leaves_out_what_may_not_be_described_and_does_not_say_so() -> None:
    async with guarded() as broker:
        await filled(broker)
        topics = broker.core.topics
        await topics.create("secret", 1, topics.topic_config({}))
        ids = {name: topics.all[name].topic_id for name in ("t", "secret")}
        await allow(broker, rule(READ, GROUP, "g"), rule(READ, TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice:
            # "s.*" is answered as "nothing.*" is: an expression is no way to guess names.
            for expression, found in ((".*", {ids["t"]}), ("s.*", set()), ("nothing.*", set())):
                request = consumer_groups.ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id="member",
                    member_epoch=0,
                    rebalance_timeout_ms=1_000,
                    subscribed_topic_regex=expression,
                    topic_partitions=[],
                )
                reply = await alice.ask(request, consumer_groups.ConsumerGroupHeartbeatResponse, 1)
                assert reply.error_code == 0, expression
                assert reply.assignment is not None
                assert {row.topic_id for row in reply.assignment.topic_partitions} == found


async def test_internal_topics_are_made_for_who_may_create_them() -> None:
    async with guarded(group_streams_initial_rebalance_delay_ms=0) as broker:
        await filled(broker)
        await allow(broker, rule(READ, GROUP, "g"), rule(DESCRIBE, TOPIC, "t"))
        await allow(broker, rule(DESCRIBE, TOPIC, "log"))
        keeps = subtopology("0", "t", keeps=[internal("log")])
        async with connect_from(ALICE, broker) as alice:
            member = StreamsMember(alice, "m")
            (status,) = statuses(await member.join(keeps))
            assert status.status_code == 3
            assert status.status_detail.endswith("; Unauthorized to CREATE on topics log.")
            assert "log" not in broker.core.topics.all
            await allow(broker, rule(CREATE, TOPIC, "log"))
            await member.beat()

            async def is_made() -> bool:
                return (await member.beat()).status == []

            await until(is_made)
            assert "0" in member.active


async def test_who_may_make_no_internal_topic_is_asked_about_those_that_it_is_told(
    events: Events,
) -> None:
    async with guarded(audit_lines_max=1, group_streams_initial_rebalance_delay_ms=0) as broker:
        await filled(broker)
        await allow(broker, rule(READ, GROUP, "g"), rule(DESCRIBE, TOPIC, "*"))
        keeps = subtopology("0", "t", keeps=[internal(f"log-{n:03}") for n in range(500)])
        async with connect_from(ALICE, broker) as alice:
            member = StreamsMember(alice, "m")
            (status,) = statuses(await member.join(keeps))
            names = ", ".join(f"log-{n:03}" for n in range(10))
            assert status.status_detail.endswith(
                f"; Unauthorized to CREATE on topics {names}, ...."
            )
            assert broker.core.authorizer is not None
            broker.core.authorizer.audit.keep_house(trio.current_time() + 61)
            assert [line["denied"] for line in events.named("access_omitted")] == [10]


async def test_a_topology_of_too_many_topics_is_not_asked_about_topic_by_topic(
    events: Events,
) -> None:
    async with guarded() as broker:
        await allow(broker, rule(READ, GROUP, "g"))
        wide = subtopology("0", "t", writes=[f"sink-{n}" for n in range(TOPICS_MAX)])
        async with connect_from(ALICE, broker) as alice:
            reply = await StreamsMember(alice, "m").join(wide)
            assert reply.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not events.named("access_denied")


async def test_a_streams_group_that_goes_while_it_is_described_is_told_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(
            broker,
            rule(READ, GROUP, "g"),
            rule(DESCRIBE, TOPIC, "t"),
            rule(DESCRIBE, GROUP, "g", host=BOB),
        )
        async with connect_from(ALICE, broker) as alice:
            member = StreamsMember(alice, "m")
            assert (await member.join()).error_code == 0
            assert await member.leave() == 0

        async def and_goes(core: Core, call: Call[Any]) -> Message:
            reply = await streams_group_describe(core, call)
            await recorded(lambda done: core.groups.remove("g", done))
            return reply

        monkeypatch.setitem(SLOW_ANSWERS, ApiKey.STREAMS_GROUP_DESCRIBE, and_goes)
        request = streams_groups.StreamsGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=False
        )
        async with connect_from(BOB, broker) as bob:
            reply = await bob.ask(request, streams_groups.StreamsGroupDescribeResponse, 0)
        (row,) = reply.groups
        assert (row.error_code, row.topology) == (T29, None)


async def test_a_streams_group_is_described_to_who_may_describe_its_topics() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(
            broker,
            rule(READ, GROUP, "g"),
            rule(DESCRIBE, TOPIC, "t"),
            rule(DESCRIBE, GROUP, "g", host=BOB),
        )
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            assert (await StreamsMember(alice, "m").join()).error_code == 0
            for client, code, operations in ((alice, 0, 1 << 3 | 1 << 8), (bob, T29, None)):
                request = streams_groups.StreamsGroupDescribeRequest(
                    group_ids=["g", "h"], include_authorized_operations=True
                )
                reply = await client.ask(request, streams_groups.StreamsGroupDescribeResponse, 0)
                row, other = reply.groups
                assert (row.group_id, row.error_code) == ("g", code)
                assert (other.group_id, other.error_code) == ("h", G30)
                assert len(row.members) == (1 if not code else 0)
                if operations is not None:
                    assert row.authorized_operations == operations


async def test_a_share_group_is_described_to_who_may_describe_its_topics() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(
            broker,
            rule(READ, GROUP, "g"),
            rule(DESCRIBE, TOPIC, "t"),
            rule(DESCRIBE, GROUP, "g", host=BOB),
        )
        async with connect_from(ALICE, broker) as alice, connect_from(BOB, broker) as bob:
            joining = share_groups.ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
            )
            joined = await alice.ask(joining, share_groups.ShareGroupHeartbeatResponse, 1)
            assert joined.error_code == 0
            for client, code, operations in ((alice, 0, 1 << 3 | 1 << 8), (bob, T29, None)):
                request = share_groups.ShareGroupDescribeRequest(
                    group_ids=["g", "h"], include_authorized_operations=True
                )
                reply = await client.ask(request, share_groups.ShareGroupDescribeResponse, 1)
                row, other = reply.groups
                assert (row.group_id, row.error_code) == ("g", code)
                assert (other.group_id, other.error_code) == ("h", G30)
                assert len(row.members) == (1 if not code else 0)
                if operations is not None:
                    assert row.authorized_operations == operations
