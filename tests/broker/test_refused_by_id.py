"""Who names a topic by its id, and may do nothing with it, is not told its name."""

from collections.abc import Callable
from uuid import UUID

import pytest

from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_response
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsRequestTopic
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    ProduceRequest,
    ProduceRequestPartition,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_share_groups import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareRequestPartition,
    ShareRequestTopic,
)
from segbroker.protocol.schema import Message

from ..support.wire_client import WireClient, batch
from .authorization_case import GROUP, READ, TOPIC, codes
from .guarded import ALICE, BOB, allow, connect_from, guarded, rule
from .test_topic_ids import fetch_of, id_of, produce_of

NAME = "merger-of-acme"
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MEMBER = str(UUID(int=5))


def _produce_of_two(topic_id: UUID) -> ProduceRequest:
    request = produce_of(topic_id)
    rows = request.topic_data[0].partition_data
    rows.append(ProduceRequestPartition(index=1, records=batch(b"v")))
    return request


def _commit(topic_id: UUID) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[row])
    return OffsetCommitRequest(group_id="g", member_id="", topics=[topic])


def _committed(topic_id: UUID) -> OffsetFetchRequest:
    topic = OffsetFetchRequestGroupTopic(topic_id=topic_id, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])


def _share_fetch(topic_id: UUID) -> ShareFetchRequest:
    row = ShareRequestPartition(partition_index=0, acknowledgement_batches=[])
    return ShareFetchRequest(
        group_id="g",
        member_id=MEMBER,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=[ShareRequestTopic(topic_id=topic_id, partitions=[row])],
        forgotten_topics_data=[],
    )


def _acknowledge(topic_id: UUID) -> ShareAcknowledgeRequest:
    said = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    row = ShareRequestPartition(partition_index=0, acknowledgement_batches=[said])
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id=MEMBER,
        share_session_epoch=1,
        topics=[ShareRequestTopic(topic_id=topic_id, partitions=[row])],
    )


BY_ID: dict[str, Callable[[UUID], list[Message]]] = {
    "produce": lambda topic_id: [produce_of(topic_id)],
    "produce to two partitions": lambda topic_id: [_produce_of_two(topic_id)],
    "fetch": lambda topic_id: [fetch_of(topic_id)],
    "metadata": lambda topic_id: [
        MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    ],
    "offset commit": lambda topic_id: [_commit(topic_id)],
    "offset fetch": lambda topic_id: [_committed(topic_id)],
    "share fetch": lambda topic_id: [_share_fetch(topic_id)],
    # The session is that of the fetch.
    "share acknowledge": lambda topic_id: [_share_fetch(topic_id), _acknowledge(topic_id)],
    "delete": lambda topic_id: [
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequestTopic(name=None, topic_id=topic_id)], timeout_ms=1_000
        )
    ],
}


async def answers(client: WireClient, requests: list[Message]) -> tuple[bytes, set[int]]:
    """The replies to these, in the newest version of each, and the codes in them."""
    frames, found = b"", set[int]()
    for request in requests:
        key = ApiKey(request.message_key)
        await client.send(request, SERVED[key].max)
        frames += (frame := await client.receive_frame())
        found |= codes(decode_response(frame, key, SERVED[key].max)[1])
    return frames, found


@pytest.mark.parametrize("name", BY_ID)
async def test_who_names_a_topic_by_its_id_alone_is_not_told_its_name_in_a_refusal(
    name: str,
) -> None:
    async with guarded() as broker:
        topics = broker.core.topics
        await topics.create(NAME, 2, topics.topic_config({}))
        await allow(broker, *(rule(READ, GROUP, "g", host=host) for host in (ALICE, BOB)))
        async with connect_from(BOB, broker) as bob:
            said, found = await answers(bob, BY_ID[name](id_of(broker, NAME)))
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in found
    assert NAME.encode() not in said


@pytest.mark.parametrize("name", ["offset commit", "offset fetch"])
async def test_an_id_that_no_topic_has_is_told_to_be_one(name: str) -> None:
    async with guarded() as broker:
        await allow(broker, rule(READ, GROUP, "g", host=BOB))
        async with connect_from(BOB, broker) as bob:
            _, found = await answers(bob, BY_ID[name](UUID(int=7)))
    assert found - {0} == {ErrorCode.UNKNOWN_TOPIC_ID}


def committing(*topic_ids: UUID) -> OffsetCommitRequest:
    topics = [topic for one in topic_ids for topic in _commit(one).topics]
    return OffsetCommitRequest(group_id="g", member_id="", topics=topics)


async def test_of_a_commit_what_is_allowed_is_done_alone() -> None:
    version = SERVED[ApiKey.OFFSET_COMMIT].max
    async with guarded() as broker:
        topics = broker.core.topics
        for name in ("t", "u"):
            await topics.create(name, 1, topics.topic_config({}))
        both = [id_of(broker, name) for name in ("t", "u")]
        for host in (ALICE, BOB):
            await allow(broker, rule(READ, TOPIC, "t", host=host))
        await allow(broker, rule(READ, GROUP, "g", host=ALICE))
        async with connect_from(BOB, broker) as bob, connect_from(ALICE, broker) as alice:
            refused = await bob.ask(committing(*both), OffsetCommitResponse, version)
            assert codes_by_id(refused) == dict.fromkeys(both, GROUP_REFUSED)
            assert not broker.core.topics.manager.committed.get("g")
            older = OffsetFetchRequest(group_id="g", topics=None)
            told = await bob.ask(older, OffsetFetchResponse, 7)
            assert (told.error_code, told.topics) == (GROUP_REFUSED, [])
            reply = await alice.ask(committing(*both), OffsetCommitResponse, version)
            assert codes_by_id(reply) == {both[0]: 0, both[1]: TOPIC_REFUSED}
            for what in (rule(READ, TOPIC, "u", host=BOB), rule(READ, GROUP, "g", host=BOB)):
                await allow(broker, what)
            reply = await bob.ask(committing(*both), OffsetCommitResponse, version)
            assert codes_by_id(reply) == dict.fromkeys(both, 0)
            everything = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
            )
            newest = SERVED[ApiKey.OFFSET_FETCH].max
            (group,) = (await alice.ask(everything, OffsetFetchResponse, newest)).groups
            assert [topic.topic_id for topic in group.topics] == both[:1], "all that it may see"
            told = await alice.ask(older, OffsetFetchResponse, 7)
            assert [topic.name for topic in told.topics] == ["t"]


def codes_by_id(reply: OffsetCommitResponse) -> dict[UUID, int]:
    """Each topic once."""
    found = {topic.topic_id: topic.partitions[0].error_code for topic in reply.topics}
    assert len(found) == len(reply.topics)
    return found
