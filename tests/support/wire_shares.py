"""One member of a share group on a raw connection: its session, and what it acknowledges."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from segbroker.protocol.messages_share_groups import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchRequestForgottenTopic,
    ShareFetchResponse,
    ShareFetchResponsePartition,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareRequestPartition,
    ShareRequestTopic,
)
from segbroker.protocol.record_batch import decode_batch, iter_batches
from segbroker.protocol.schema import records_view

from .wire_client import WireClient

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = -1
VERSION = 2
_GROUP, _SET = 32, 0


class Given(NamedTuple):
    """A record that a member was given."""

    partition: int
    offset: int
    value: bytes | None
    deliveries: int


Said = tuple[int, int, Sequence[int]]
"""First and last offset, and the types."""


async def topic_id(client: WireClient, topic: str) -> UUID:
    """The id of a topic."""
    reply = await client.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, 12
    )
    return reply.topics[0].topic_id


async def set_on_group(client: WireClient, group: str, **settings: str) -> None:
    """Settings of a group, with _ for the dot."""
    configs = [
        IncrementalAlterConfigsRequestConfig(
            name=key.replace("_", "."), config_operation=_SET, value=value
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=_GROUP, resource_name=group, configs=configs
    )
    reply = await client.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        IncrementalAlterConfigsResponse,
        1,
    )
    assert reply.responses[0].error_code == 0, reply.responses[0].error_message


class Sharing:
    """A member's session."""

    def __init__(
        self, client: WireClient, group: str, topic: UUID, member: str | None = None
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.member = member or str(uuid4())
        self.epoch = 0
        self.reply: ShareFetchResponse | None = None

    async def fetch(self, *partitions: int, **asked: Any) -> list[Given]:  # noqa: ANN401
        """The records that it is given; the whole reply is in `reply`.  asked: as of `begin`."""
        await self.begin(*partitions, **asked)
        return await self.end()

    async def begin(
        self,
        *partitions: int,
        said: Mapping[int, Iterable[Said]] | None = None,
        forgotten: Sequence[int] = (),
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        strict: bool = False,
        renew: bool = False,
        epoch: int | None = None,
    ) -> None:
        """Send it."""
        rows: dict[int, list[Said]] = {index: [] for index in partitions}
        rows |= {index: list(batches) for index, batches in (said or {}).items()}
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=int(strict),
            is_renew_ack=renew,
            topics=[
                ShareRequestTopic(
                    topic_id=self.topic,
                    partitions=[
                        ShareRequestPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=list(types),
                                )
                                for first, last, types in batches
                            ],
                        )
                        for index, batches in rows.items()
                    ],
                )
            ]
            if rows
            else [],
            forgotten_topics_data=[
                ShareFetchRequestForgottenTopic(topic_id=self.topic, partitions=list(forgotten))
            ]
            if forgotten
            else [],
        )
        await self.client.send(request, VERSION)

    async def end(self) -> list[Given]:
        """Receive the answer."""
        _, self.reply = await self.client.receive(ShareFetchResponse, VERSION)
        if not self.reply.error_code:
            self.epoch += 1
        return [given for row in self.rows.values() for given in _given(row)]

    @property
    def rows(self) -> dict[int, ShareFetchResponsePartition]:
        """The partitions of the last reply."""
        assert self.reply is not None
        return {
            row.partition_index: row for topic in self.reply.responses for row in topic.partitions
        }

    def code(self) -> ErrorCode:
        """Of the whole reply."""
        assert self.reply is not None
        return ErrorCode.of(self.reply.error_code)

    async def say(
        self,
        said: Mapping[int, Iterable[Said]],
        *,
        epoch: int | None = None,
        renew: bool = False,
    ) -> tuple[ErrorCode, dict[int, ErrorCode]]:
        """Acknowledge without fetching: the codes of the reply, and of its partitions."""
        request = self.saying(said, epoch=epoch, renew=renew)
        reply = await self.client.ask(request, ShareAcknowledgeResponse, VERSION)
        if not reply.error_code:
            self.epoch += 1
        return ErrorCode.of(reply.error_code), {
            row.partition_index: ErrorCode.of(row.error_code)
            for topic in reply.responses
            for row in topic.partitions
        }

    def saying(
        self,
        said: Mapping[int, Iterable[Said]],
        *,
        epoch: int | None = None,
        renew: bool = False,
    ) -> ShareAcknowledgeRequest:
        """The request of `say`."""
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                ShareRequestTopic(
                    topic_id=self.topic,
                    partitions=[
                        ShareRequestPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=list(types),
                                )
                                for first, last, types in batches
                            ],
                        )
                        for index, batches in said.items()
                    ],
                )
            ],
        )


def _given(row: ShareFetchResponsePartition) -> Iterable[Given]:
    """The records that were acquired: who has not got one does not look at it."""
    records = {
        offset: value
        for batch in iter_batches(records_view(row.records or b""))
        for offset, value in _values(batch)
    }
    for acquired in row.acquired_records:
        for offset in range(acquired.first_offset, acquired.last_offset + 1):
            if offset in records:
                yield Given(row.partition_index, offset, records[offset], acquired.delivery_count)


def _values(batch: memoryview) -> Iterable[tuple[int, bytes | None]]:
    for record in decode_batch(batch).records():
        yield record.offset, None if record.value is None else bytes(record.value)


def sharing(member: str = "m", epoch: int = 0, **changes: object) -> ShareGroupHeartbeatRequest:
    request = ShareGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None if epoch else ["t"],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


async def beat(
    client: WireClient, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    return await client.ask(request, ShareGroupHeartbeatResponse, 1)


async def listed(
    client: WireClient, *, types: tuple[str, ...] = (), states: tuple[str, ...] = ()
) -> list[tuple[str, str, str, str]]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    reply = await client.ask(request, ListGroupsResponse, 5)
    return [
        (one.group_id, one.protocol_type, one.group_state, one.group_type) for one in reply.groups
    ]


async def delete(client: WireClient, name: str = "g") -> int:
    request = DeleteGroupsRequest(groups_names=[name])
    reply = await client.ask(request, DeleteGroupsResponse, 2)
    return reply.results[0].error_code
