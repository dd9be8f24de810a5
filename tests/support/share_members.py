"""Members of share groups that say that they are there, and fetch nothing."""

from uuid import uuid4

import trio

from segbroker.protocol.messages_share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from .wire_client import WireClient, connect

JOIN, LEAVE = 0, -1


async def say(
    client: WireClient, group: str, member: str, epoch: int, *topics: str
) -> ShareGroupHeartbeatResponse:
    """One heartbeat."""
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=list(topics) or None,
    )
    return await client.ask(request, ShareGroupHeartbeatResponse, 1)


def join(address: str, group: str, topic: str, count: int = 1) -> list[str]:
    """So many members join, and stay as long as their session; their ids."""
    host, _, port = address.rpartition(":")
    members = [str(uuid4()) for _ in range(count)]

    async def joined() -> None:
        async with connect((host, int(port))) as client:
            for member in members:
                reply = await say(client, group, member, JOIN, topic)
                assert reply.error_code == 0, reply.error_message
                await say(client, group, member, reply.member_epoch)

    trio.run(joined)
    return members


def leave(address: str, group: str, members: list[str]) -> None:
    """They go."""
    host, _, port = address.rpartition(":")

    async def left() -> None:
        async with connect((host, int(port))) as client:
            for member in members:
                await say(client, group, member, LEAVE)

    trio.run(left)
