"""Members of streams groups on raw connections, which do as they are told."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseStatus,
    StreamsGroupKeyValue,
    StreamsGroupTaskIds,
    StreamsGroupTopicInfo,
)

from .wire_client import WireClient

Owned = dict[str, list[int]]
"""Numbers of tasks by subtopology."""

ROUNDS_MAX: Final = 20


def internal(name: str, **configs: str) -> StreamsGroupTopicInfo:
    """A topic of the application's own."""
    return StreamsGroupTopicInfo(
        name=name,
        partitions=0,
        replication_factor=0,
        topic_configs=[
            StreamsGroupKeyValue(key=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def subtopology(
    name: str,
    *sources: str,
    writes: Iterable[str] = (),
    reads: Iterable[StreamsGroupTopicInfo] = (),
    keeps: Iterable[StreamsGroupTopicInfo] = (),
    together: Iterable[StreamsGroupHeartbeatRequestCopartitionGroup] = (),
) -> StreamsGroupHeartbeatRequestSubtopology:
    """What is read together."""
    return StreamsGroupHeartbeatRequestSubtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=list(keeps),
        repartition_sink_topics=list(writes),
        repartition_source_topics=list(reads),
        copartition_groups=list(together),
    )


def counting(source: str = "t") -> list[StreamsGroupHeartbeatRequestSubtopology]:
    """Words are written to a repartition topic, and counted from there with a state."""
    return [
        subtopology("0", source, writes=["again"]),
        subtopology(
            "1",
            reads=[internal("again", cleanup_policy="delete")],
            keeps=[internal("log", cleanup_policy="compact")],
        ),
    ]


def joining(
    member: str = "m",
    *subtopologies: StreamsGroupHeartbeatRequestSubtopology,
    epoch: int = 0,
    **changes: object,
) -> StreamsGroupHeartbeatRequest:
    """What a member says that joins."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=30_000,
        topology=StreamsGroupHeartbeatRequestTopology(
            epoch=epoch, subtopologies=list(subtopologies or [subtopology("0", "t")])
        ),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def beating(member: str, epoch: int, **changes: object) -> StreamsGroupHeartbeatRequest:
    """What a member says that lives, or leaves."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, endpoint_information_epoch=0
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


async def beat(
    client: WireClient, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Ask."""
    return await client.ask(request, StreamsGroupHeartbeatResponse, 0)


async def described(client: WireClient, name: str = "g") -> StreamsGroupDescribeResponseGroup:
    """What is told of a group."""
    request = StreamsGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    reply = await client.ask(request, StreamsGroupDescribeResponse, 0)
    return reply.groups[0]


def statuses(
    reply: StreamsGroupHeartbeatResponse,
) -> list[StreamsGroupHeartbeatResponseStatus]:
    """What is the matter with a group."""
    assert reply.status is not None
    return reply.status


def owned(rows: Iterable[StreamsGroupTaskIds] | None) -> Owned:
    """Tasks as they were told."""
    return {row.subtopology_id: list(row.partitions) for row in rows or ()}


def rows_of(tasks: Owned) -> list[StreamsGroupTaskIds]:
    """Tasks as they are told."""
    return [
        StreamsGroupTaskIds(subtopology_id=name, partitions=numbers)
        for name, numbers in tasks.items()
    ]


@dataclass
class StreamsMember:
    """One that does as it is told, at once."""

    client: WireClient
    name: str
    process: str = ""
    epoch: int = 0
    active: Owned = field(default_factory=dict)
    standby: Owned = field(default_factory=dict)

    async def join(
        self, *subtopologies: StreamsGroupHeartbeatRequestSubtopology
    ) -> StreamsGroupHeartbeatResponse:
        """Begin."""
        self.active, self.standby = {}, {}
        request = joining(self.name, *subtopologies, process_id=self.process or self.name)
        return self.hear(await beat(self.client, request))

    async def beat(self, **changes: object) -> StreamsGroupHeartbeatResponse:
        """Say what it has."""
        request = beating(self.name, self.epoch)
        request.active_tasks, request.standby_tasks = rows_of(self.active), rows_of(self.standby)
        request.warmup_tasks = []
        for name, value in changes.items():
            setattr(request, name, value)
        return self.hear(await beat(self.client, request))

    def hear(self, reply: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
        """Do as it is told."""
        if reply.error_code == 0:
            self.epoch = reply.member_epoch
            if reply.active_tasks is not None:
                self.active, self.standby = owned(reply.active_tasks), owned(reply.standby_tasks)
        return reply

    async def leave(self) -> int:
        """End."""
        return (await beat(self.client, beating(self.name, -1))).error_code


async def settled(*members: StreamsMember) -> None:
    """Everybody beats until the group is stable."""
    for _ in range(ROUNDS_MAX):
        for one in members:
            reply = await one.beat()
            assert reply.error_code == 0, reply
        row = await described(members[0].client)
        if row.group_state == "Stable":
            return
    raise AssertionError(row)
