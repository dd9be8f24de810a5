"""Consumer groups: how long many members take to join, and how long a rebalance stops a group.

The members are raw connections of this process, so their own time is in the figures, and on a
machine of two cores it is about half of them.

    group_join    from the first request to the moment that every member has its partitions: with
                  JoinGroup and SyncGroup, and with the heartbeats of KIP-848 (every 100 ms)
    pause         one of the members leaves or joins.  From the last JoinGroup of the round, which
                  the broker has to wait for, to a member's answer with its partitions
    commits       many groups commit one after the other, and all that they committed is kept: the
                  broker's processor for each, and how long another connection waits for an answer
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_response, encode_request
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message

from . import peers
from .machine import cpu_seconds
from .report import Entry, Row, latency
from .servers import segbroker

MEMBERS = 500
PAUSED = 20
ROUNDS = 60
BEAT_S = 0.1
DEADLINE_S = 120
COMMITTING = 20_000
COMMITTED = 10
COMMITTERS = 16
PING_S = 0.005
METADATA = bytes(100)

M = TypeVar("M", bound=Message)


class _Wire:
    """One connection, one request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = FrameReader()

    async def ask(self, request: Message, expected: type[M], version: int) -> M:
        await self._stream.send_all(b"".join(encode_request(request, version, 1, "bench")))
        while (frame := self._reader.next_frame()) is None:
            data = await self._stream.receive_some(1 << 16)
            assert data, "the broker closed the connection"
            self._reader.receive_data(data)
        _, message = decode_response(bytes(frame), expected.message_key, version)
        assert isinstance(message, expected)
        return message


@asynccontextmanager
async def _connected(address: tuple[str, int], count: int) -> AsyncIterator[list[_Wire]]:
    async with AsyncExitStack() as stack:
        yield [
            _Wire(await stack.enter_async_context(await trio.open_tcp_stream(*address)))
            for _ in range(count)
        ]


class _Classic:
    """A member of a classic group."""

    def __init__(self, wire: _Wire, group: str) -> None:
        self.wire = wire
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.joined_s = 0.0

    async def join(self) -> None:
        """Until it has its partitions; a round that others broke off begins again."""
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
            )
            self.joined_s = time.perf_counter()
            reply = await self.wire.ask(request, JoinGroupResponse, 5)
            self.member_id = reply.member_id
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            assert reply.error_code == 0, ErrorCode.of(reply.error_code)
            self.generation = reply.generation_id
            shares = [
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=METADATA)
                for one in reply.members
            ]
            synced = await self.wire.ask(
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    assignments=shares,
                ),
                SyncGroupResponse,
                3,
            )
            if synced.error_code == 0:
                return
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    async def is_rebalancing(self) -> bool:
        """A heartbeat; whether it has to join again."""
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        code = (await self.wire.ask(request, HeartbeatResponse, 3)).error_code
        assert code in (0, ErrorCode.REBALANCE_IN_PROGRESS), ErrorCode.of(code)
        return code != 0

    async def leave(self) -> None:
        members = [LeaveGroupRequestMember(member_id=self.member_id)]
        request = LeaveGroupRequest(group_id=self.group, members=members)
        await self.wire.ask(request, LeaveGroupResponse, 3)
        self.member_id = ""


async def _settle(members: list[_Classic]) -> None:
    """All join, again and again, until all are of one generation."""
    done = trio.Event()

    async def live(member: _Classic) -> None:
        await member.join()
        while not done.is_set():
            if len({one.generation for one in members}) == 1:
                done.set()
            elif await member.is_rebalancing():
                await member.join()
            else:
                await trio.sleep(0.005)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(live, member)


async def join_classic(address: tuple[str, int], count: int) -> float:
    """Seconds until all are of one generation and have their partitions."""
    generations: dict[int, int] = {}
    everybody = trio.Event()

    async def live(number: int, member: _Classic) -> None:
        while True:
            await member.join()
            generations[number] = member.generation
            if len(generations) == count and len(set(generations.values())) == 1:
                everybody.set()
            while not everybody.is_set():
                with trio.move_on_after(BEAT_S):
                    await everybody.wait()
                if await member.is_rebalancing():
                    break
            else:
                return

    async with _connected(address, count) as wires:
        began = time.perf_counter()
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                for number, wire in enumerate(wires):
                    nursery.start_soon(live, number, _Classic(wire, "classic"))
                await everybody.wait()
                took = time.perf_counter() - began
                nursery.cancel_scope.cancel()
    return took


async def join_consumers(address: tuple[str, int], topic: str, count: int) -> float:
    """Seconds until each of `count` members reads one of as many partitions."""
    reads = [0] * count
    everybody = trio.Event()

    async def live(number: int, wire: _Wire) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="consumers",
            member_id=f"m{number}",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        owned: list[GroupTopicPartitions] = []
        while True:
            reply = await wire.ask(request, ConsumerGroupHeartbeatResponse, 1)
            assert reply.error_code == 0, reply.error_message
            if reply.assignment is not None:
                owned = [
                    GroupTopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                    for one in reply.assignment.topic_partitions
                ]
                reads[number] = sum(len(one.partitions) for one in owned)
                if min(reads) == max(reads) == 1:
                    everybody.set()
            with trio.move_on_after(BEAT_S):
                await everybody.wait()
            request = ConsumerGroupHeartbeatRequest(
                group_id="consumers",
                member_id=f"m{number}",
                member_epoch=reply.member_epoch,
                topic_partitions=owned,
            )

    async with _connected(address, count) as wires:
        began = time.perf_counter()
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                for number, wire in enumerate(wires):
                    nursery.start_soon(live, number, wire)
                await everybody.wait()
                took = time.perf_counter() - began
                nursery.cancel_scope.cancel()
    return took


async def pauses(address: tuple[str, int], count: int, rounds: int) -> list[float]:
    """Of each round and member: seconds from the last JoinGroup to its partitions."""
    found: list[float] = []

    async def again(member: _Classic, ended: dict[_Classic, float]) -> None:
        with trio.fail_after(DEADLINE_S):
            while not await member.is_rebalancing():
                pass
        await member.join()
        ended[member] = time.perf_counter()

    async def come(member: _Classic, ended: dict[_Classic, float]) -> None:
        await member.join()
        ended[member] = time.perf_counter()

    async with _connected(address, count) as wires:
        members = [_Classic(wire, "paused") for wire in wires]
        await _settle(members)
        stay, comes = members[:-1], members[-1]
        for number in range(rounds):
            ended: dict[_Classic, float] = {}
            if number % 2 == 0:
                await comes.leave()
            async with trio.open_nursery() as nursery:
                for member in stay:
                    nursery.start_soon(again, member, ended)
                if number % 2:
                    nursery.start_soon(come, comes, ended)
            last_s = max(member.joined_s for member in ended)
            found += [at - last_s for at in ended.values()]
    return found


async def commits(address: tuple[str, int], topic: str, groups: int) -> list[float]:
    """`groups` groups commit COMMITTED offsets each; seconds of the answers to somebody else."""
    found: list[float] = []
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=0, committed_metadata=None
        )
        for index in range(COMMITTED)
    ]
    left = iter(range(groups))

    async def commit(wire: _Wire, numbers: Iterator[int]) -> None:
        for number in numbers:
            request = OffsetCommitRequest(
                group_id=f"committing-{number}",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
            )
            reply = await wire.ask(request, OffsetCommitResponse, 8)
            assert not any(row.error_code for row in reply.topics[0].partitions)

    async def ping(wire: _Wire) -> None:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        while True:
            began = time.perf_counter()
            await wire.ask(request, ApiVersionsResponse, 3)
            found.append(time.perf_counter() - began)
            await trio.sleep(PING_S)

    async with (
        _connected(address, COMMITTERS + 1) as (pinging, *committing),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ping, pinging)
        async with trio.open_nursery() as all_of_them:
            for wire in committing:
                all_of_them.start_soon(commit, wire, left)
        nursery.cancel_scope.cancel()
    return found


def rows(quick: bool = False) -> list[Entry]:
    """500 members of each protocol join; a group of 20 is rebalanced; 20,000 groups commit."""
    count, rounds = (MEMBERS // 20, 4) if quick else (MEMBERS, ROUNDS)
    groups = COMMITTING // 20 if quick else COMMITTING
    flags = ("--group-consumer-heartbeat-interval-ms", str(int(BEAT_S * 1000)))
    with (
        TemporaryDirectory(prefix="segbroker-bench-") as folder,
        segbroker(*flags, data=Path(folder, "data")) as server,
    ):
        ours = peers.Segbroker(server.address, server.pid)
        address = ours.host_and_port
        topic = ours.create_topic(partitions=count)
        classic = trio.run(partial(join_classic, address, count))
        consumers = trio.run(partial(join_consumers, address, topic, count))
        paused = trio.run(partial(pauses, address, PAUSED, rounds))
        began, before = time.perf_counter(), cpu_seconds(server.pid)
        waited = trio.run(partial(commits, address, topic, groups))
        took, spent = time.perf_counter() - began, cpu_seconds(server.pid) - before
    goal = f"< 2 s ({MEMBERS} members)"
    return [
        Row(f"group_join: {count} members, JoinGroup", "–", f"{classic:.2f} s", goal=goal),
        Row(f"group_join: {count} members, KIP-848", "–", f"{consumers:.2f} s", goal=goal),
        Row(
            f"rebalance of {PAUSED} members: pause beyond the slowest JoinGroup",
            "–",
            latency(paused),
            goal="p99 ≤ 100 ms",
        ),
        Row(
            f"{groups:,} groups commit {COMMITTED} offsets each: answers to another client",
            "fsync",
            latency(waited),
            server=f"{spent * 1e6 / groups:.0f} µs of its processor a commit, "
            f"{groups / took:,.0f} commits/s",
        ),
    ]
