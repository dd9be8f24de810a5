"""The same members and faults as in simulated_groups, by the protocol of KIP-848.

The broker's real rules of such a group, on the world's clock.  A restart leaves the members in, as
what they are is written down; their connections end.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from segbroker.broker.apis.member_rows import by_topic
from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedTopicPartitions,
    GroupAssignment,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetFetchRequestGroup,
)
from segbroker.protocol.schema import Message

from .simulated_groups import TOPIC, GroupWorld, SimulatedMember

SESSION_MS = 45_000
INTERVAL_MS = 5_000


class SizedTopic(NamedTuple):
    """A topic as a group sees it."""

    topic_id: UUID
    partitions: int


class ConsumerGroupWorld(GroupWorld):
    """See the module."""

    group: ConsumerGroup

    def _new_group(self) -> ConsumerGroup:
        self._topics: dict[str, SizedTopic] = {}
        # Topics that are others than the brokers say as yet.
        self.newer_ids: dict[str, UUID] = {}
        # What the next heartbeats are refused with.
        self.beat_refusals: list[ErrorCode] = []
        # So many of the next are heard, and not answered.
        self.unanswered = 0
        # All that were heard.
        self.beats: list[ConsumerGroupHeartbeatRequest] = []
        return ConsumerGroup("g", SESSION_MS, 1_000)

    def start(self, *assignors: str, **options: Any) -> SimulatedMember:  # noqa: ANN401
        """The broker assigns, and says how often it wants to hear of a member."""
        options.pop("heartbeat_interval_ms", None)
        return self._begin({"group_protocol": "consumer", **options})

    def restart(self) -> None:
        for member in self.members:
            self.cut(member)

    def expel(self, member_id: str) -> None:
        self.group.expel(self.now_ms, member_id, None)

    def _answer_group(
        self, request: Message, reply: Callable[[Message], None], client_id: str
    ) -> bool:
        if isinstance(request, ConsumerGroupDescribeRequest):
            reply(ConsumerGroupDescribeResponse(groups=[self._described_by_target()]))
            return True
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return super()._answer_group(request, reply, client_id)
        self.beats.append(request)
        if self.beat_refusals:
            reply(_refusal(self.beat_refusals.pop(0), "as the test says"))
            return True
        try:
            answer = self._beat(request)
            if self.unanswered:
                self.unanswered -= 1
            else:
                reply(answer)
        except Refused as exc:
            reply(_refusal(exc.code, exc.message))
        return True

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        names, owned = request.subscribed_topic_names, None
        if request.topic_partitions is not None:
            owned = frozenset(
                (topic.topic_id.bytes, partition)
                for topic in request.topic_partitions
                for partition in topic.partitions
            )
        beat = Beat(
            request.member_id,
            request.member_epoch,
            request.instance_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            names=None if names is None else frozenset(names),
            assignor=request.server_assignor,
            owned=owned,
        )
        told = self.group.heartbeat(self.now_ms, beat, self._all_topics())
        if request.member_epoch >= 0:
            self.group.was_told(self.now_ms, told.member_id, told.assignment)
        given = None
        if told.assignment is not None:
            given = GroupAssignment(
                topic_partitions=[
                    GroupTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(told.assignment)
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=told.member_id,
            member_epoch=told.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=given,
        )

    def _described_by_target(self) -> ConsumerGroupDescribeResponseGroup:
        group = self.group
        members = [
            ConsumerGroupDescribeResponseMember(
                member_id=one.member_id,
                member_epoch=one.epoch,
                client_id=one.client_id,
                client_host=one.client_host,
                subscribed_topic_names=sorted(one.names),
                assignment=DescribedAssignment(
                    topic_partitions=_described_topics((*one.assigned, *one.revoking))
                ),
                target_assignment=DescribedAssignment(
                    topic_partitions=_described_topics(group.target.of(one.member_id))
                ),
            )
            for one in group.members.values()
        ]
        return ConsumerGroupDescribeResponseGroup(
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.target.assignor,
            members=members,
        )

    def _all_topics(self) -> dict[str, SizedTopic]:
        """The same object as long as nothing changed."""
        cluster = self.cluster
        topics = {
            name: SizedTopic(self.newer_ids.get(name, cluster.topic_ids[name]), len(partitions))
            for name, partitions in cluster.topics.items()
        }
        if topics != self._topics:
            self._topics = topics
        return self._topics

    def _may_commit(self, request: OffsetCommitRequest) -> Callable[[UUID, int], ErrorCode]:
        member_id, epoch = request.member_id, request.generation_id_or_member_epoch
        code = self.group.check_commit(member_id, epoch, request.group_instance_id)

        def may(topic_id: UUID, partition: int) -> ErrorCode:
            is_late = code == ErrorCode.STALE_MEMBER_EPOCH
            if is_late and self.group.may_commit_late(
                member_id, epoch, (topic_id.bytes, partition)
            ):
                return ErrorCode.NONE
            return code

        return may

    def _may_ask(self, group: OffsetFetchRequestGroup) -> ErrorCode:
        return self.group.check_fetch(group.member_id, group.member_epoch)


def _described_topics(
    partitions: Iterable[tuple[bytes, int]],
) -> list[DescribedTopicPartitions]:
    return [
        DescribedTopicPartitions(topic_id=topic_id, topic_name=TOPIC, partitions=indexes)
        for topic_id, indexes in by_topic(partitions)
    ]


def _refusal(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
