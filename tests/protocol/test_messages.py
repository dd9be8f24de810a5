from uuid import UUID

import pytest

from segbroker.protocol.errors import ErrorCode, LocalProtocolError, UnsupportedVersion
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    GroupAssignment,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    LeaderIdAndEpoch,
    ListOffsetsRequestTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_share_groups import (
    AcknowledgementBatch,
    ShareFetchRequest,
    ShareFetchRequestForgottenTopic,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareRequestPartition,
    ShareRequestTopic,
)
from segbroker.protocol.schema import Message, records_view

from .random_messages import message_classes

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_the_defaults_are_those_of_kafka() -> None:
    request = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, topics=[], rack_id="")
    assert request.max_bytes == 0x7FFFFFFF
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.cluster_id is None


def test_a_field_that_a_version_has_not_is_left_out_and_comes_back_as_its_default() -> None:
    topic = MetadataRequestTopic(name="t", topic_id=TOPIC_ID)
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    encoded = b"".join(request.encode(1))
    assert encoded == bytes.fromhex("00000001 0001 74")
    decoded, _ = MetadataRequest.decode(encoded, 1)
    assert decoded == MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert decoded.allow_auto_topic_creation is True


def test_default_lists_are_not_shared() -> None:
    first = ProduceResponsePartition(index=0, base_offset=1)
    second = ProduceResponsePartition(index=0, base_offset=1)
    first.record_errors.append(None)  # type: ignore[arg-type]
    assert second.record_errors == []


def test_messages_are_equal_by_value_and_print_as_they_are_written() -> None:
    topic = FetchRequestTopic(topic="t", partitions=[])
    assert topic == FetchRequestTopic(topic="t", partitions=[])
    assert topic != FetchRequestTopic(topic="u", partitions=[])
    assert topic != MetadataRequestTopic(name="t")
    asked = ListOffsetsRequestTopic(name="t", partitions=[])
    assert repr(asked) == "ListOffsetsRequestTopic(name='t', partitions=[])"


def test_a_message_has_only_the_fields_of_its_table() -> None:
    topic = FetchRequestTopic(topic="t", partitions=[])
    with pytest.raises(AttributeError):
        topic.name = "u"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchRequestTopic(topic="t")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9),
        (MetadataRequest(topics=[MetadataRequestTopic(name="a" * 32_768)]), 1),
        (MetadataRequest(topics=[MetadataRequestTopic(name="a" * 32_768)]), 9),
        (MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), 1),
        (MetadataRequest(topics=[MetadataRequestTopic(name=7)]), 1),  # type: ignore[arg-type]
        (
            FetchRequest(replica_id=1 << 31, max_wait_ms=0, min_bytes=0, topics=[], rack_id=""),
            4,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_value_that_the_wire_cannot_carry_is_our_fault(message: Message, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        message.encode(version)


def test_an_unknown_version_cannot_be_encoded() -> None:
    with pytest.raises(UnsupportedVersion, match="known are 0 to 13"):
        MetadataRequest(topics=None).encode(14)


def test_every_message_has_a_docstring_and_every_field_a_type() -> None:
    classes = list(message_classes())
    assert len(classes) == 126
    for cls in classes:
        assert cls.__doc__, cls.__name__
        assert len(cls.fields()) == len(cls.__slots__)


def test_error_codes_may_be_given_by_name() -> None:
    partition = ProduceResponsePartition(
        index=0, error_code=ErrorCode.CORRUPT_MESSAGE, base_offset=-1
    )
    topic = ProduceResponseTopic(name="t", partition_responses=[partition])
    encoded = b"".join(ProduceResponse(responses=[topic]).encode(3))
    assert ProduceResponse.decode(encoded, 3)[0].responses[0].partition_responses[0].error_code == 2


def test_records_view_is_the_view_itself_or_one_of_what_was_given() -> None:
    view = memoryview(b"abc")
    assert records_view(view) is view
    assert bytes(records_view(None)) == b""
    assert bytes(records_view(b"abc")) == b"abc"
    assert bytes(records_view([b"ab", memoryview(b"c")])) == b"abc"


def test_decoding_at_a_position_says_where_the_message_ends() -> None:
    encoded = b"".join(MetadataRequest(topics=None).encode(1))
    assert MetadataRequest.decode(b"xx" + encoded + b"yy", 1, 2)[1] == 2 + len(encoded)


# KIP-848 by hand, because kafka-python has not got it.


def test_a_consumer_group_heartbeat_request_written_out() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=3,
        rebalance_timeout_ms=5,
        subscribed_topic_names=["t"],
        subscribed_topic_regex="r",
        topic_partitions=[GroupTopicPartitions(topic_id=TOPIC_ID, partitions=[1, 2])],
    )
    expected = bytes.fromhex(
        "02 67  02 6d  00000003  00  00  00000005"  # g m 3, no instance, no rack, timeout
        "02 02 74"  # one name
        "02 72"  # the expression, from version 1 on
        "00"  # no assignor
        "02 00112233445566778899aabbccddeeff 03 00000001 00000002 00"  # id, partitions, tags
        "00"
    )
    assert b"".join(request.encode(1)) == expected
    assert ConsumerGroupHeartbeatRequest.decode(expected, 1) == (request, len(expected))


def test_a_consumer_group_heartbeat_response_written_out() -> None:
    response = ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=5,
        assignment=GroupAssignment(
            topic_partitions=[GroupTopicPartitions(topic_id=TOPIC_ID, partitions=[1])]
        ),
    )
    expected = bytes.fromhex(
        "00000000 0000 00  02 6d  00000003 00000005"
        "01"  # there is an assignment
        "02 00112233445566778899aabbccddeeff 02 00000001 00"
        "00 00"  # tags of the assignment, of the response
    )
    assert b"".join(response.encode(0)) == expected
    assert ConsumerGroupHeartbeatResponse.decode(expected, 0) == (response, len(expected))


def test_a_consumer_group_describe_response_written_out() -> None:
    member = ConsumerGroupDescribeResponseMember(
        member_id="m",
        member_epoch=1,
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        assignment=DescribedAssignment(topic_partitions=[]),
        target_assignment=DescribedAssignment(topic_partitions=[]),
        member_type=1,
    )
    group = ConsumerGroupDescribeResponseGroup(
        group_id="g",
        group_state="s",
        group_epoch=1,
        assignment_epoch=2,
        assignor_name="a",
        members=[member],
    )
    expected = bytes.fromhex(
        "00000000  02"
        "0000 00 02 67 02 73 00000001 00000002 02 61"
        "02"
        "02 6d 00 00 00000001 02 63 02 68 01 00"
        "01 00  01 00"  # two empty assignments, no null mark before either
        "01 00"
        "80000000 00"
        "00"
    )
    response = ConsumerGroupDescribeResponse(groups=[group])
    assert b"".join(response.encode(1)) == expected
    assert ConsumerGroupDescribeResponse.decode(expected, 1) == (response, len(expected))


# KIP-932 likewise.


def test_a_share_fetch_request_written_out() -> None:
    batch = AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1, 2])
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=3,
        max_wait_ms=4,
        min_bytes=5,
        max_bytes=6,
        max_records=7,
        batch_size=8,
        topics=[
            ShareRequestTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    ShareRequestPartition(partition_index=9, acknowledgement_batches=[batch])
                ],
            )
        ],
        forgotten_topics_data=[ShareFetchRequestForgottenTopic(topic_id=TOPIC_ID, partitions=[9])],
    )
    head = "02 67  02 6d  00000003 00000004 00000005 00000006 00000007 00000008"
    tail = (
        "02 00112233445566778899aabbccddeeff"
        "02 00000009"
        "02 0000000000000001 0000000000000002 03 01 02 00"
        "00 00"
        "02 00112233445566778899aabbccddeeff 02 00000009 00"
        "00"
    )
    for version, between in ((1, ""), (2, "00 00")):  # the acquire mode, whether some are renewed
        expected = bytes.fromhex(head + between + tail)
        assert b"".join(request.encode(version)) == expected
        assert ShareFetchRequest.decode(expected, version) == (request, len(expected))


def test_a_share_fetch_response_written_out() -> None:
    partition = ShareFetchResponsePartition(
        partition_index=1,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=3),
        records=b"rr",
        acquired_records=[
            ShareFetchResponseAcquiredRecords(first_offset=4, last_offset=5, delivery_count=6)
        ],
    )
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=7,
        responses=[ShareFetchResponseTopic(topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=[],
    )
    expected = bytes.fromhex(
        "00000000 0000 00 00000007"
        "02 00112233445566778899aabbccddeeff"
        "02 00000001 0000 00 0000 00 00000002 00000003 00"
        "03 7272"
        "02 0000000000000004 0000000000000005 0006 00"
        "00 00"
        "01 00"
    )
    assert b"".join(response.encode(1)) == expected
    assert ShareFetchResponse.decode(expected, 1)[1] == len(expected)


def test_a_partition_of_a_fetch_request_written_out_in_three_versions() -> None:
    partition = FetchRequestPartition(partition=1, fetch_offset=5, partition_max_bytes=9)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchRequestTopic(topic="t", partitions=[partition])],
        rack_id="",
    )
    assert b"".join(request.encode(4)) == bytes.fromhex(
        "ffffffff 000001f4 00000001 7fffffff 00  00000001 0001 74 00000001"
        "00000001 0000000000000005 00000009"
    )
    assert b"".join(request.encode(11)) == bytes.fromhex(
        "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff  00000001 0001 74 00000001"
        "00000001 ffffffff 0000000000000005 ffffffffffffffff 00000009"
        "00000000 0000"
    )
    assert b"".join(request.encode(12)) == bytes.fromhex(
        "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff  02 02 74 02"
        "00000001 ffffffff 0000000000000005 ffffffff ffffffffffffffff 00000009 00"
        "00 01 01 00"
    )


def test_metadata_of_version_0_has_no_controller() -> None:
    response = MetadataResponse(brokers=[], topics=[], controller_id=7)
    assert b"".join(response.encode(0)) == bytes(8)
