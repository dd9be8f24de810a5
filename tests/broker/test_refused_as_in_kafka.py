"""What an answer has beside the code of a refusal, as Apache Kafka fills it in."""

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_consumer_groups as consumer_groups
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_placement as placement
from segbroker.protocol.errors import ErrorCode

from .authorization_case import C31, DESCRIBE, G30, GROUP, T29, TOPIC
from .test_authorization import ALICE, allow, connect_from, filled, guarded, rule

NOT_TOLD = -(2**31)


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
    def at(name: str) -> admin.DescribeTopicPartitionsRequestCursor:
        return admin.DescribeTopicPartitionsRequestCursor(topic_name=name, partition_index=0)

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
            ("v", {}),
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
