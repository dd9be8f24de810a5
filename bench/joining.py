"""Members that join one KIP-848 group; `python -m bench.joining [MEMBERS [ASSIGNOR]]`.

A broker in this process with 100 topics of 100 partitions; in a process of its own 100 connections,
over which members join one after the other and then say that they live until all have their share.
Meanwhile another connection asks for ApiVersions again and again.  Printed: how long it took, the
processor time of the event loop, its longest step (the same, and by the clock), and how long the
answers to the other connection took.
"""

import logging
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog
import trio

from segbroker.broker.address import join_address
from segbroker.broker.configuration.config import merge
from segbroker.broker.loop.long_lived import spare
from segbroker.broker.server import Broker
from segbroker.client import Admin
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_response, encode_request
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.schema import Message

TOPICS: Final = 100
PARTITIONS: Final = 100
CONNECTIONS: Final = 100
ROUNDS_MAX: Final = 20
PAUSE_S: Final = 1.1
"""Between two rounds of heartbeats: a little more than between two targets."""


class Steps(trio.abc.Instrument):
    """What the tasks of a loop take: in sum, and the longest step."""

    def __init__(self) -> None:
        self.work_s = self.longest_s = self.longest_work_s = 0.0
        self._began, self._work = time.perf_counter(), time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._work = time.perf_counter(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        work_s = time.thread_time() - self._work
        self.work_s += work_s
        self.longest_s = max(self.longest_s, time.perf_counter() - self._began)
        self.longest_work_s = max(self.longest_work_s, work_s)


class Asking:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = FrameReader(size_min=0)

    async def ask(self, request: Message, key: int, version: int) -> Message:
        await self._stream.send_all(b"".join(encode_request(request, version, 1, "bench")))
        while (frame := self._reader.next_frame()) is None:
            self._reader.receive_data(await self._stream.receive_some(1 << 16))
        return decode_response(bytes(frame), key, version)[1]


class Member:
    """One that does what it is told."""

    def __init__(self, number: int, assignor: str) -> None:
        self._id = f"member-{number:06}"
        self._assignor = assignor
        self.epoch = 0
        self._reads: dict[UUID, list[int]] = {}

    @property
    def count(self) -> int:
        """Partitions that it reads."""
        return sum(map(len, self._reads.values()))

    async def beat(self, asking: Asking) -> None:
        rows = [
            GroupTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in self._reads.items()
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self._id, member_epoch=self.epoch, topic_partitions=rows
        )
        if not self.epoch:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [f"t{n:03}" for n in range(TOPICS)]
            request.server_assignor = self._assignor
        key = ConsumerGroupHeartbeatResponse.message_key
        reply = await asking.ask(request, key, 0)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        assert not reply.error_code, reply
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self._reads = {
                one.topic_id: one.partitions for one in reply.assignment.topic_partitions
            }


async def _join(address: tuple[str, int], members: int, assignor: str) -> tuple[float, list[float]]:
    """How long until all have their share, and how long each answer to the other took."""
    pings: list[float] = []
    everybody = [Member(number, assignor) for number in range(members)]

    async def ping() -> None:
        async with await trio.open_tcp_stream(*address) as stream:
            asking = Asking(stream)
            while True:
                began = time.monotonic()
                await asking.ask(ApiVersionsRequest(), ApiVersionsResponse.message_key, 0)
                pings.append(time.monotonic() - began)
                await trio.sleep(0.001)

    async def beats(some: list[Member], asking: Asking) -> None:
        for one in some:
            await one.beat(asking)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ping)
        streams = [await trio.open_tcp_stream(*address) for _ in range(CONNECTIONS)]
        connections = [Asking(stream) for stream in streams]
        began = time.monotonic()
        for _ in range(ROUNDS_MAX):
            async with trio.open_nursery() as round_:
                for number, asking in enumerate(connections):
                    round_.start_soon(beats, everybody[number::CONNECTIONS], asking)
            is_dealt = sum(one.count for one in everybody) == TOPICS * PARTITIONS
            if is_dealt and len({one.epoch for one in everybody}) == 1:
                break
            await trio.sleep(PAUSE_S)
        took = time.monotonic() - began
        nursery.cancel_scope.cancel()
    return took, pings


def _client(address: tuple[str, int], members: int, assignor: str, end: Connection) -> None:
    end.send(trio.run(_join, address, members, assignor))


def _prepare(address: str) -> None:
    with Admin(address) as admin:
        for number in range(TOPICS):
            admin.create_topic(f"t{number:03}", partitions=PARTITIONS)


async def _measure(data: str, members: int, assignor: str) -> None:
    # A member speaks once in a round, however long that takes.
    patience = {"group_consumer_session_timeout_ms": 600_000}
    broker = Broker(merge({"data": data, "listen": "127.0.0.1:0", **patience}))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await trio.to_thread.run_sync(_prepare, join_address(*broker.address))
        nursery.start_soon(spare, broker.core.topics)  # as `segbroker serve` does
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        arguments = (broker.address, members, assignor, theirs)
        client = multiprocessing.get_context("spawn").Process(target=_client, args=arguments)
        client.start()
        took, pings = await trio.to_thread.run_sync(ours.recv)
        trio.lowlevel.remove_instrument(steps)
        await trio.to_thread.run_sync(client.join)
        broker.drain()
        nursery.cancel_scope.cancel()
    pings.sort()
    sys.stdout.write(
        f"{members} members, {assignor}: {took:.1f} s; the loop {steps.work_s:.2f} s, longest step "
        f"{steps.longest_work_s * 1000:.0f} ms ({steps.longest_s * 1000:.0f} by the clock); "
        f"answers p50 {pings[len(pings) // 2] * 1000:.1f}, "
        f"p99 {pings[len(pings) * 99 // 100] * 1000:.0f}, max {pings[-1] * 1000:.0f} ms\n"
    )


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    members = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    assignor = sys.argv[2] if len(sys.argv) > 2 else "uniform"
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_measure, str(Path(folder) / "data"), members, assignor)


if __name__ == "__main__":
    main()
