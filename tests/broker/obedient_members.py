"""Members of KIP-848 groups on the wire, for tests in which what they say is not the point."""

from uuid import UUID

from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)

from ..support.wire_client import WireClient
from ..support.wire_consumers import beat, joining


class Member:
    """One that does at once what it is told; `client` may be replaced when the broker was."""

    def __init__(self, client: WireClient, name: str, **says: object) -> None:
        self.client = client
        self.name = name
        self._says = says
        self.epoch = 0
        self.reads: dict[UUID, list[int]] = {}

    @property
    def _whole(self) -> ConsumerGroupHeartbeatRequest:
        """All that it says of itself, to join."""
        return joining(self.name, **self._says)

    async def join(self) -> ConsumerGroupHeartbeatResponse:
        return self._obey(await beat(self.client, self._whole))

    async def beat(self, *, full: bool = False) -> ConsumerGroupHeartbeatResponse:
        """Alive; full: also what it reads, and what it is subscribed to."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            instance_id=self._whole.instance_id,
        )
        request.topic_partitions = [
            GroupTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in self.reads.items()
        ]
        if full:
            whole = self._whole
            request.rebalance_timeout_ms = whole.rebalance_timeout_ms
            request.subscribed_topic_names = whole.subscribed_topic_names
            request.subscribed_topic_regex = whole.subscribed_topic_regex
        return self._obey(await beat(self.client, request))

    async def leave(self, epoch: int = -1) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=epoch,
            instance_id=self._whole.instance_id,
        )
        return (await beat(self.client, request)).error_code

    def _obey(self, reply: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if not reply.error_code:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.reads = {
                    one.topic_id: one.partitions for one in reply.assignment.topic_partitions
                }
        return reply


async def settled(*members: Member) -> None:
    """Everybody has what is its own."""
    for _ in range(4):
        for member in members:
            assert (await member.beat()).error_code == 0


async def joined(one: Member, two: Member) -> None:
    """Both are in the group, and have what is their own."""
    await one.join()
    await two.join()
    await settled(one, two)
