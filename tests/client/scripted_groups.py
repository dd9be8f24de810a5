"""A scripted broker of one consumer group of KIP-848, with one member: over sockets, in real time.

    script = Script(instance_id=None)
    with Replaying(script.answers) as server, Consumer(server.address, TOPIC, group="g", ...):
        script.verdicts = [ErrorCode.FENCED_MEMBER_EPOCH]

It has one partition with COUNT records, gives it to who joins, and refuses who is at another epoch.
What the next heartbeats are answered instead a test says: an error code, or None: they are heard,
and the connection ends behind them.
"""

import struct
import threading
from typing import Any
from uuid import UUID

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_request, parse_request_header
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupAssignment,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import FetchRequest
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
)
from segbroker.protocol.record_batch import encode_batch

from ..support.waiting import DEADLINE_S
from .replaying import Answer, Request, fetched, metadata

TOPIC_ID = UUID(int=7)
COUNT = 20
INTERVAL_MS = 20


class Script:
    """See the module."""

    def __init__(self) -> None:
        self.verdicts: list[ErrorCode | None] = []
        # What commits are refused with, next.
        self.commit_verdicts: list[ErrorCode] = []
        # Heartbeats are answered while this is set; and who left, by epoch.
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.beats: list[ConsumerGroupHeartbeatRequest] = []
        self.epoch = 0
        self.committed = -1
        # Each commit that was taken, with the epoch of the member that made it.
        self.commits: list[tuple[int, int]] = []
        self.answers: dict[int, Answer] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._beat,
            ApiKey.OFFSET_FETCH: self._stands,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.FETCH: self._fetch,
        }

    @property
    def left(self) -> list[int]:
        """The epochs by which a member has left."""
        return [beat.member_epoch for beat in self.beats if beat.member_epoch < 0]

    def _metadata(self, request: Request) -> bytes:
        whole = metadata(request)
        whole.topics[0].topic_id = TOPIC_ID
        return request.answer(whole)

    def _beat(self, request: Request) -> bytes:
        asked = _decoded(request, ConsumerGroupHeartbeatRequest)
        self.beats.append(asked)
        if asked.member_epoch >= 0:
            assert self.may_answer.wait(DEADLINE_S)
        code: ErrorCode | None = ErrorCode.NONE
        if self.verdicts and asked.member_epoch >= 0:
            code = self.verdicts.pop(0)
        elif asked.member_epoch > 0 and asked.member_epoch != self.epoch:
            code = ErrorCode.FENCED_MEMBER_EPOCH
        if not code and asked.member_epoch == 0:
            self.epoch += 1
        if code is None:
            raise ConnectionError
        given = None
        if asked.rebalance_timeout_ms >= 0:  # it says all
            row = GroupTopicPartitions(topic_id=TOPIC_ID, partitions=[0])
            given = GroupAssignment(topic_partitions=[row])
        return request.answer(
            ConsumerGroupHeartbeatResponse(
                error_code=code,
                error_message="as the test says" if code else None,
                member_id=asked.member_id,
                member_epoch=self.epoch,
                heartbeat_interval_ms=INTERVAL_MS,
                assignment=None if code else given,
            )
        )

    def _stands(self, request: Request) -> bytes:
        asked = _decoded(request, OffsetFetchRequest)
        row = OffsetFetchResponseGroupTopicPartition(
            partition_index=0, committed_offset=self.committed, metadata=""
        )
        (topic,) = asked.groups[0].topics
        answer = OffsetFetchResponseGroupTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=[row]
        )
        group = OffsetFetchResponseGroup(group_id="g", topics=[answer])
        return request.answer(OffsetFetchResponse(groups=[group]))

    def _commit(self, request: Request) -> bytes:
        asked = _decoded(request, OffsetCommitRequest)
        (topic,) = asked.topics
        (row,) = topic.partitions
        code = self.commit_verdicts.pop(0) if self.commit_verdicts else ErrorCode.NONE
        if asked.generation_id_or_member_epoch != self.epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH
        if not code:
            self.committed = row.committed_offset
            self.commits.append((asked.generation_id_or_member_epoch, row.committed_offset))
        answer = OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=code)],
        )
        return request.answer(OffsetCommitResponse(topics=[answer]))

    def _fetch(self, request: Request) -> bytes:
        asked = _decoded(request, FetchRequest)
        rows = [row for topic in asked.topics for row in topic.partitions]
        offset = rows[0].fetch_offset if rows else COUNT
        if offset >= COUNT:
            threading.Event().wait(min(0.05, asked.max_wait_ms / 1000))
        reply = fetched(_records(offset), high_watermark=COUNT)
        reply.responses[0].topic_id = TOPIC_ID
        return request.answer(reply)


def _records(first: int) -> bytes:
    """The rest of the log, in batches of one record."""
    log = b""
    for offset in range(first, COUNT):
        data = bytearray(encode_batch([b"%d" % offset], timestamps_ms=1))
        struct.pack_into(">q", data, 0, offset)
        log += data
    return log


def _decoded(request: Request, kind: type[Any]) -> Any:  # noqa: ANN401
    decoded = decode_request(request.frame, parse_request_header(request.frame))
    assert isinstance(decoded, kind)
    return decoded
