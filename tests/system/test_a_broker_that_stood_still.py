"""A daemon that was stopped and goes on: what clients sent meanwhile counts."""

import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import trio

from segbroker.protocol.messages_admin import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from segbroker.protocol.messages_groups import HeartbeatRequest, HeartbeatResponse

from ..support.daemon import running
from ..support.waiting import until
from ..support.wire_client import connect
from ..support.wire_groups import WireMember

# Long enough for a machine that stands still by itself, for a second or two, as well.
SESSION_MS = 3_000
WITHOUT_RDHUP = "import select; del select.POLLRDHUP; import segbroker.broker.peers.replies"
STOPPED_S = 4.2
STOPPED_MS = 4_000


def to_create(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequestTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=10_000,
        validate_only=False,
    )


def heartbeat_of(member: WireMember) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.member_id
    )


async def test_members_whose_heartbeats_wait_stay_and_one_that_was_silent_is_gone(
    tmp_path: Path,
) -> None:
    flags = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1")
    with running(tmp_path / "data", *flags) as daemon:

        def removals(group: str) -> list[dict[str, Any]]:
            told = daemon.events("group_member_removed")
            return [one for one in told if one["group"] == group]

        async with AsyncExitStack() as stack:
            members = []
            for name in ("silent", "gone", "renewed", "a", "b", "c"):
                client = await stack.enter_async_context(connect(daemon.host_and_port))
                member = WireMember(client, group=name, session_timeout_ms=SESSION_MS)
                assert (await member.join()).error_code == 0
                members.append(member)
            silent, gone, renewed, *alive = members
            assert (await renewed.deal()).error_code == 0
            stays, comes = [
                WireMember(
                    await stack.enter_async_context(connect(daemon.host_and_port)),
                    group="slow",
                    rebalance_timeout_ms=STOPPED_MS,
                )
                for _ in range(2)
            ]
            assert (await stays.join()).error_code == 0
            assert (await stays.deal()).error_code == 0
            back = WireMember(
                await stack.enter_async_context(connect(daemon.host_and_port)),
                group="back",
                session_timeout_ms=STOPPED_MS,
            )
            assert (await back.join()).error_code == 0
            made = await back.client.ask(to_create("committed", 1), CreateTopicsResponse, 5)
            assert not made.topics[0].error_code
            for one in members:  # the first of them joined a while ago
                assert not (
                    await one.client.ask(heartbeat_of(one), HeartbeatResponse, 3)
                ).error_code
            daemon.process.send_signal(signal.SIGSTOP)
            for one in (gone, renewed, *alive):
                await one.client.send(heartbeat_of(one), 3)
            # What it sent first is read late, when it has been heard of by another connection.
            await back.client.send(to_create("slow", 200), 5)
            await back.client.send(heartbeat_of(back), 3)
            await back.client.stream.aclose()
            await comes.client.send(comes.to_join(), 3)
            await comes.client.stream.aclose()
            await gone.client.stream.aclose()  # as librdkafka does, which joins as another then
            await renewed.client.stream.aclose()
            async with trio.open_nursery() as nursery:

                async def come_back() -> None:
                    again = await stack.enter_async_context(connect(daemon.host_and_port))
                    assert not (
                        await again.ask(heartbeat_of(back), HeartbeatResponse, 3)
                    ).error_code

                async def commit_again() -> None:
                    """librdkafka repeats what it had committed, by its next connection."""
                    again = await stack.enter_async_context(connect(daemon.host_and_port))
                    renewed.client = again
                    assert not await renewed.commit("committed", 1)

                nursery.start_soon(come_back)
                nursery.start_soon(commit_again)
                await trio.sleep(STOPPED_S)
                daemon.process.send_signal(signal.SIGCONT)
            for one in alive:
                _, answer = await one.client.receive(HeartbeatResponse, 3)
                assert answer.error_code == 0
            until(lambda: all(removals(one.group) for one in (silent, gone, renewed)))
        for one in (silent, gone, renewed):
            (removed,) = removals(one.group)
            assert (removed["member"], removed["reason"]) == (one.member_id, "session ended")
        times = [
            datetime.fromisoformat(removals(one.group)[0]["timestamp"]) for one in (gone, renewed)
        ]
        assert abs(times[1] - times[0]) < timedelta(seconds=1), (
            "no session more for who has given up"
        )
        assert not removals("back"), "it was heard of since"
        assert not removals("slow"), "it has its whole time to join again"
        assert any(one["ms"] > SESSION_MS for one in daemon.events("loop_stood_still"))


def test_a_broker_runs_where_poll_does_not_tell_of_half_a_connection() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_RDHUP], check=True)
