"""What an answer has beside the code of a refusal, as Apache Kafka fills it in."""

from typing import Any

import pytest

from segbroker.broker.recording import recorded
from segbroker.broker.server import Broker
from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_consumer_groups as consumer_groups
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_placement as placement
from segbroker.protocol.acls import Operation
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.segments.metadata.acls import Acl

from ..support.wire_consumers import joining
from .authorization_case import (
    C31,
    CREATE,
    DELETE,
    DESCRIBE,
    G30,
    GROUP,
    READ,
    T29,
    TOPIC,
    TXN,
    X53,
)
from .authorization_cases_groups import OFFSETS
from .guarded import ALICE, allow, connect_from, filled, guarded, rule
from .test_topic_ids import id_of

NOT_TOLD = -(2**31)


async def _take_away(broker: Broker, gone: Acl) -> None:
    assert broker.core.authorizer is not None
    authorizer = broker.core.authorizer
    assert await recorded(lambda done: authorizer.delete([gone], done)) is None


async def test_each_partition_of_an_election_says_that_it_is_refused() -> None:
    """Version 0 has no other place for the code."""
    asked = placement.ElectLeadersRequestTopic(topic="t", partitions=[0, 1])
    request = placement.ElectLeadersRequest(topic_partitions=[asked], timeout_ms=1000)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        for version in (0, 2):
            reply = await alice.ask(request, placement.ElectLeadersResponse, version)
            (row,) = reply.replica_election_results
            assert row.topic == "t"
            found = [(one.partition_id, one.error_code) for one in row.partition_result]
            assert found == [(0, C31), (1, C31)]


async def test_each_partition_that_is_not_moved_says_so() -> None:
    part = placement.AlterPartitionReassignmentsRequestPartition(partition_index=3)
    topic = placement.AlterPartitionReassignmentsRequestTopic(name="t", partitions=[part])
    request = placement.AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        reply = await alice.ask(request, placement.AlterPartitionReassignmentsResponse, 0)
        (row,) = reply.responses
        assert (row.name, row.partitions[0].partition_index) == ("t", 3)
        assert row.partitions[0].error_code == C31


async def test_a_topic_named_twice_is_wrong_for_everybody() -> None:
    topic = admin.CreateTopicsRequestTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        request = admin.CreateTopicsRequest(topics=[topic, topic])
        reply = await alice.ask(request, admin.CreateTopicsResponse, 7)
        assert [row.error_code for row in reply.topics] == [ErrorCode.INVALID_REQUEST]


async def test_a_topic_that_is_to_grow_twice_is_wrong_for_everybody_and_does_not_grow() -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        rows = [
            admin.CreatePartitionsRequestTopic(name=name, count=count, assignments=None)
            for name, count in (("t", 2), ("t", 3), ("nowhere", 2), ("nowhere", 2), ("once", 2))
        ]
        request = admin.CreatePartitionsRequest(topics=rows, timeout_ms=1000, validate_only=False)
        reply = await alice.ask(request, admin.CreatePartitionsResponse, 3)
        invalid = ErrorCode.INVALID_REQUEST
        found = [(row.name, row.error_code) for row in reply.results]
        assert found == [("t", invalid), ("nowhere", invalid), ("once", T29)]
        assert broker.core.topics.all["t"].partitions == 1


async def test_a_member_that_may_not_join_is_given_no_id_and_no_epoch() -> None:
    join = groups.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        member_id="stranger",
        protocol_type="consumer",
        protocols=[],
    )
    beat = consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="stranger", member_epoch=5
    )
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        for version, name in ((5, ""), (9, None)):
            joined = await alice.ask(join, groups.JoinGroupResponse, version)
            found = joined.error_code, joined.member_id, joined.protocol_name
            assert found == (G30, "", name)
        answer = await alice.ask(beat, consumer_groups.ConsumerGroupHeartbeatResponse, 1)
        assert (answer.error_code, answer.member_id, answer.member_epoch) == (G30, None, 0)


async def test_of_a_group_that_is_not_there_no_rights_are_told() -> None:
    request = groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(DESCRIBE, GROUP, "g"))
        for version, rights in ((5, 1 << DESCRIBE), (6, NOT_TOLD)):
            (row,) = (await alice.ask(request, groups.DescribeGroupsResponse, version)).groups
            assert row.authorized_operations == rights


async def test_a_refused_topic_is_told_on_the_page_where_it_stands() -> None:
    def at(name: str) -> admin.DescribeTopicPartitionsCursor:
        return admin.DescribeTopicPartitionsCursor(topic_name=name, partition_index=0)

    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        await allow(broker, rule(DESCRIBE, TOPIC, "t"))
        asked = [
            admin.DescribeTopicPartitionsRequestTopic(name=name) for name in ("s", "t", "u", "t2")
        ]
        for begin, found in (
            (None, {"s": T29, "t": 0, "t2": T29, "u": T29}),
            ("t", {"t": 0, "t2": T29, "u": T29}),
            ("t2", {"t2": T29, "u": T29}),
            ("u", {"u": T29}),
            ("v", dict.fromkeys(("s", "t", "u", "t2"), ErrorCode.INVALID_REQUEST)),
        ):
            request = admin.DescribeTopicPartitionsRequest(
                topics=asked,
                response_partition_limit=10,
                cursor=None if begin is None else at(begin),
            )
            answer = await alice.ask(request, admin.DescribeTopicPartitionsResponse, 0)
            assert {row.name: row.error_code for row in answer.topics} == found
            assert len(answer.topics) == len(found)
            assert answer.next_cursor is None


async def test_who_may_make_a_topic_and_not_read_its_settings_is_told_none() -> None:
    rows = [
        admin.CreateTopicsRequestTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in ("t", "new")
    ]
    request = admin.CreateTopicsRequest(topics=rows, validate_only=True)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        # To describe the topic is not enough: that is to describe its partitions.
        await allow(broker, *(rule(operation, TOPIC, "*") for operation in (CREATE, DESCRIBE)))

        async def told() -> dict[str, tuple[int, int, int, bool]]:
            reply = await alice.ask(request, admin.CreateTopicsResponse, 7)
            return {
                row.name: (
                    row.error_code,
                    row.topic_config_error_code,
                    row.num_partitions,
                    bool(row.configs),
                )
                for row in reply.topics
            }

        exists = (ErrorCode.TOPIC_ALREADY_EXISTS, 0, -1, False)
        assert await told() == {"t": exists, "new": (0, T29, -1, False)}
        await allow(broker, rule(Operation.DESCRIBE_CONFIGS, TOPIC, "new"))
        assert await told() == {"t": exists, "new": (0, 0, 1, True)}


async def test_who_may_describe_a_topic_is_told_the_name_of_its_id_that_is_not_deleted() -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        topic_id = id_of(broker, "t")
        row = admin.DeleteTopicsRequestTopic(name=None, topic_id=topic_id)
        request = admin.DeleteTopicsRequest(topics=[row], timeout_ms=1_000)
        for name in (None, "t"):
            (refused,) = (await alice.ask(request, admin.DeleteTopicsResponse, 6)).responses
            found = (refused.name, refused.topic_id, refused.error_code)
            assert found == (name, topic_id, T29)
            await allow(broker, rule(DESCRIBE, TOPIC, "t"))
        by_name = admin.DeleteTopicsRequest(
            topics=[admin.DeleteTopicsRequestTopic(name="t", topic_id=ZERO_UUID)], timeout_ms=1_000
        )
        (refused,) = (await alice.ask(by_name, admin.DeleteTopicsResponse, 6)).responses
        assert (refused.name, refused.topic_id) == ("t", ZERO_UUID), "ids are not told either"
        await allow(broker, rule(DELETE, TOPIC, "t"))
        (deleted,) = (await alice.ask(request, admin.DeleteTopicsResponse, 6)).responses
        assert (deleted.name, deleted.topic_id, deleted.error_code) == ("t", topic_id, 0)
        assert broker.core.topics.get("t") is None


async def test_an_offset_is_deleted_by_who_may_read_its_topic() -> None:
    reading = rule(READ, TOPIC, "t")
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        await allow(broker, rule(READ, GROUP, "g"), rule(DELETE, GROUP, "g"), reading)
        commit = groups.OffsetCommitRequest(group_id="g", member_id="", topics=OFFSETS)
        await alice.ask(commit, groups.OffsetCommitResponse, 7)
        part = groups.OffsetDeleteRequestPartition(partition_index=0)
        topic = groups.OffsetDeleteRequestTopic(name="t", partitions=[part])
        request = groups.OffsetDeleteRequest(group_id="g", topics=[topic])

        async def told() -> tuple[int, list[int]]:
            reply = await alice.ask(request, groups.OffsetDeleteResponse, 0)
            return reply.error_code, [row.error_code for row in reply.topics[0].partitions]

        await _take_away(broker, reading)
        await allow(broker, rule(DESCRIBE, TOPIC, "t"))
        assert await told() == (0, [T29])
        assert "t" in broker.core.groups.topics("g")
        await allow(broker, reading)
        assert await told() == (0, [0])
        assert "t" not in broker.core.groups.topics("g")


async def test_a_page_of_topics_tells_what_may_be_done_with_each() -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        await allow(broker, rule(READ, TOPIC, "t"))
        for topics in ([admin.DescribeTopicPartitionsRequestTopic(name="t")], []):
            request = admin.DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=10
            )
            (row,) = (await alice.ask(request, admin.DescribeTopicPartitionsResponse, 0)).topics
            assert row.topic_authorized_operations == 1 << READ | 1 << DESCRIBE


async def test_what_is_refused_has_no_offset() -> None:
    """0 is one."""
    part = admin.DeleteRecordsRequestPartition(partition_index=0, offset=0)
    deletion = admin.DeleteRecordsRequest(
        topics=[admin.DeleteRecordsRequestTopic(name="t", partitions=[part])], timeout_ms=1_000
    )
    one = groups.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    old = groups.OffsetFetchRequest(group_id="g", topics=[one])
    of_group = groups.OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])
    new = groups.OffsetFetchRequest(
        groups=[groups.OffsetFetchRequestGroup(group_id="g", topics=[of_group])]
    )
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        deleted = await alice.ask(deletion, admin.DeleteRecordsResponse, 2)
        (row,) = deleted.topics[0].partitions
        assert (row.low_watermark, row.error_code) == (-1, T29)
        await allow(broker, rule(READ, GROUP, "g"))
        single = await alice.ask(old, groups.OffsetFetchResponse, 7)
        several = await alice.ask(new, groups.OffsetFetchResponse, 9)
        for (where,) in (single.topics[0].partitions, several.groups[0].topics[0].partitions):
            assert (where.committed_offset, where.error_code) == (-1, T29)


async def test_beside_the_error_of_a_group_no_topic_is_told_of() -> None:
    rows = [
        groups.OffsetDeleteRequestTopic(
            name="t", partitions=[groups.OffsetDeleteRequestPartition(partition_index=0)]
        )
    ]
    request = groups.OffsetDeleteRequest(group_id="g", topics=rows)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await filled(broker)
        await allow(broker, rule(DELETE, GROUP, "g"))
        reply = await alice.ask(request, groups.OffsetDeleteResponse, 0)
        assert (reply.error_code, reply.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_a_group_is_described_to_who_may_describe_what_it_reads_and_is_to_read() -> None:
    """Its member gives up `t`, and is to have `u`."""
    request = consumer_groups.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=True
    )
    expected = consumer_groups.ConsumerGroupDescribeResponse
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        for name in ("t", "u"):
            await topics.create(name, 1, topics.topic_config({}))
        both = [rule(DESCRIBE, TOPIC, name) for name in ("t", "u")]
        await allow(broker, rule(READ, GROUP, "g"), *both)
        beat: type[Any] = consumer_groups.ConsumerGroupHeartbeatResponse
        joined = await alice.ask(joining(), beat, 1)
        moved = joining(
            member_epoch=joined.member_epoch, subscribed_topic_names=["u"], topic_partitions=None
        )
        assert (await alice.ask(moved, beat, 1)).error_code == 0
        assert (await alice.ask(request, expected, 1)).groups[0].error_code == 0
        for one in both:
            await _take_away(broker, one)
            (row,) = (await alice.ask(request, expected, 1)).groups
            assert (row.error_code, row.members) == (T29, []), one
            await allow(broker, one)


@pytest.mark.parametrize("protocols", ["classic", "classic,share"])
async def test_that_there_is_no_protocol_of_consumers_is_told_to_everybody(protocols: str) -> None:
    async with (
        guarded(group_protocols=protocols) as broker,
        connect_from(ALICE, broker) as alice,
    ):
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        beat = await alice.ask(joining(), consumer_groups.ConsumerGroupHeartbeatResponse, 1)
        assert beat.error_code == unsupported
        request = consumer_groups.ConsumerGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=True
        )
        told = await alice.ask(request, consumer_groups.ConsumerGroupDescribeResponse, 1)
        assert [row.error_code for row in told.groups] == [unsupported]


async def test_a_coordinator_is_told_to_who_may_describe_what_it_coordinates() -> None:
    """A right to a group is none to a transactional id of its name, and the other way round."""
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(DESCRIBE, GROUP, "g"), rule(DESCRIBE, TXN, "x"))
        for kind, name, code in ((0, "g", 0), (0, "x", G30), (1, "x", 0), (1, "g", X53)):
            old = groups.FindCoordinatorRequest(key=name, key_type=kind)
            new = groups.FindCoordinatorRequest(coordinator_keys=[name], key_type=kind)
            single: Any = await alice.ask(old, groups.FindCoordinatorResponse, 3)
            (row,) = (await alice.ask(new, groups.FindCoordinatorResponse, 4)).coordinators
            where = (-1, "", -1) if code else (broker.core.config.broker_id, *broker.address)
            for one in (single, row):
                assert (one.error_code, one.node_id, one.host, one.port) == (code, *where)
