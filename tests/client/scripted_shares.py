"""A scripted broker of share groups: it hands out what a test says, and keeps what was said to it.

    script = Script((batch(0, 3), [(0, 2, 1)]))
    with working(script) as consumer: ...

A fetch is answered with records and with what of them is locked: first and last offset, and how
often they were handed out.
"""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from segbroker.client import ShareConsumer
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import decode_request, parse_request_header
from segbroker.protocol.messages_consumer_groups import GroupAssignment, GroupTopicPartitions
from segbroker.protocol.messages_core import LeaderIdAndEpoch
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.record_batch import encode_batch

from .replaying import TOPIC, Answer, Replaying, Request, metadata, versions

TOPIC_ID = UUID(int=7)
# Of who waits for no deadline: a server that stands still for a moment is no finding, and what was
# said goes with what is asked next, however late that is.
PATIENT: dict[str, Any] = {
    "request_timeout_ms": 60_000,
    "connect_timeout_ms": 60_000,
    "acknowledge_interval_ms": 600_000,
}
LOCK_MS = 30_000

# Offsets and delivery count, both ends included.
Spans = list[tuple[int, int, int]]


def batch(first: int, count: int) -> bytes:
    """Values b"0", b"1" ... by their offsets."""
    values = [b"%d" % offset for offset in range(first, first + count)]
    data = bytearray(encode_batch(values, timestamps_ms=1))
    struct.pack_into(">q", data, 0, first)
    return bytes(data)


@dataclass(frozen=True)
class OfPartition:
    """An error code that is that of the partition alone."""

    code: int


class Script:
    """See the module."""

    def __init__(self, *fetches: "tuple[bytes, Spans] | OfPartition | int | None") -> None:
        """fetches: what each fetch is answered, in order: records and what of them is locked, an
        error code, or None: the connection ends.  Then there is nothing more."""
        self.fetches = list(fetches)
        # (session epoch, what was said: offset -> kind)
        self.fetched: list[tuple[int, dict[int, int]]] = []
        self.acknowledged: list[tuple[int, dict[int, int]]] = []
        # When something was said with nothing else, in seconds.
        self.said_at: list[float] = []
        self.beats: list[int] = []
        # Those that the member is given; only the first is ever fetched.
        self.partitions: tuple[int, ...] = (0,)
        # What is answered to what was said next: error codes; None: the connection ends.
        self.verdicts: list[int | None] = []
        self.beat_codes: list[int] = []
        self.answers: dict[int, Answer] = {
            ApiKey.API_VERSIONS: lambda request: request.answer(versions(request)),
            ApiKey.METADATA: self._metadata,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._beat,
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
        }

    def _metadata(self, request: Request) -> bytes:
        whole = metadata(request)
        whole.topics[0].topic_id = TOPIC_ID
        return request.answer(whole)

    def _beat(self, request: Request) -> bytes:
        asked = decode(request, ShareGroupHeartbeatRequest)
        self.beats.append(asked.member_epoch)
        code = self.beat_codes.pop(0) if self.beat_codes else 0
        given = GroupTopicPartitions(topic_id=TOPIC_ID, partitions=list(self.partitions))
        return request.answer(
            ShareGroupHeartbeatResponse(
                error_code=code,
                member_id=asked.member_id,
                member_epoch=3,
                heartbeat_interval_ms=50,
                assignment=None
                if asked.member_epoch
                else GroupAssignment(topic_partitions=[given]),
            )
        )

    def _fetch(self, request: Request) -> bytes | None:
        asked = decode(request, ShareFetchRequest)
        said = said_in(asked)
        self.fetched.append((asked.share_session_epoch, said))
        next_one: Any = self.fetches.pop(0) if self.fetches else (b"", [])
        verdict = self.verdicts.pop(0) if said and self.verdicts else 0
        if next_one is None or verdict is None:
            raise ConnectionError
        if isinstance(next_one, int):
            return request.answer(ShareFetchResponse(**ANSWER, error_code=next_one, responses=[]))
        error = 0
        if isinstance(next_one, OfPartition):
            error, next_one = next_one.code, (b"", [])
        records, spans = next_one
        if not records and not said:
            threading.Event().wait(min(0.1, asked.max_wait_ms / 1000))
        row = ShareFetchResponsePartition(
            partition_index=0,
            error_code=error,
            acknowledge_error_code=verdict,
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            records=records,
            acquired_records=[
                ShareFetchResponseAcquiredRecords(
                    first_offset=first, last_offset=last, delivery_count=count
                )
                for first, last, count in spans
            ],
        )
        topic = ShareFetchResponseTopic(topic_id=TOPIC_ID, partitions=[row])
        return request.answer(ShareFetchResponse(**ANSWER, responses=[topic]))

    def _acknowledge(self, request: Request) -> bytes | None:
        asked = decode(request, ShareAcknowledgeRequest)
        said = said_in(asked)
        self.acknowledged.append((asked.share_session_epoch, said))
        if said:
            self.said_at.append(time.monotonic())
        verdict = self.verdicts.pop(0) if said and self.verdicts else 0
        if verdict is None:
            raise ConnectionError
        row = ShareAcknowledgeResponsePartition(
            partition_index=0,
            error_code=verdict,
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        )
        topic = ShareAcknowledgeResponseTopic(topic_id=TOPIC_ID, partitions=[row])
        return request.answer(
            ShareAcknowledgeResponse(responses=[topic] if said else [], node_endpoints=[])
        )

    @property
    def said(self) -> dict[int, int]:
        """All that was said, the last of each offset."""
        return {o: kind for _, said in self.fetched + self.acknowledged for o, kind in said.items()}


ANSWER: dict[str, Any] = {"acquisition_lock_timeout_ms": LOCK_MS, "node_endpoints": []}


def decode(request: Request, kind: type[Any]) -> Any:  # noqa: ANN401
    decoded = decode_request(request.frame, parse_request_header(request.frame))
    assert isinstance(decoded, kind)
    return decoded


def said_in(asked: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[int, int]:
    said: dict[int, int] = {}
    for topic in asked.topics:
        for partition in topic.partitions:
            for row in partition.acknowledgement_batches:
                count = row.last_offset - row.first_offset + 1
                kinds = row.acknowledge_types
                kinds = kinds * count if len(kinds) == 1 else kinds
                assert len(kinds) == count
                said.update(zip(range(row.first_offset, row.last_offset + 1), kinds, strict=True))
    return said


@contextmanager
def working(script: Script, **options: Any) -> Iterator[ShareConsumer[Any]]:  # noqa: ANN401
    with (
        Replaying(script.answers) as server,
        ShareConsumer(server.address, TOPIC, group="g", **{**PATIENT, **options}) as consumer,
    ):
        yield consumer


def poll(consumer: ShareConsumer[Any]) -> list[Any]:
    """Until there is something."""
    for _ in range(100):
        if records := consumer.poll(timeout_ms=1_000):
            return records
    raise AssertionError("nothing came")


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]
