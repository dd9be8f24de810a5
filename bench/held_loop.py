"""How long single large requests hold the event loop; `python -m bench.held_loop`.

A broker in this process, and a thread that sends it one request after the other.  Printed for each:
its bytes and those of the answer, the longest step of any task of the loop meanwhile, and all of
them together, in processor time of the loop's thread; how often a lane was visited for a batch.
The last are about a topic of 100,000 partitions.
"""

import logging
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import structlog
import trio

from segbroker.broker.address import join_address
from segbroker.broker.configuration.config import merge
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.loop.long_lived import spare
from segbroker.broker.server import Broker
from segbroker.client import Admin
from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_admin import DeleteTopicsRequest
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_core import (
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from segbroker.protocol.record_batch import encode_batch
from segbroker.protocol.schema import Message

from .joining import Steps

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NAMES: Final = 3_800
"""So many are less than 16 KiB."""
BATCHES: Final = 262_000
COMPRESSED: Final = 1_000
PARTITIONS: Final = 100_000


class Visits(Lanes):
    """Lanes that count."""

    __slots__ = ()
    count = 0

    async def compute(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        Visits.count += 1
        return await super().compute(function, *args)


def _produce(topic: str, batches: list[bytes | None]) -> ProduceRequest:
    rows = [ProduceRequestPartition(index=n, records=one) for n, one in enumerate(batches)]
    topics = [ProduceRequestTopic(name=topic, partition_data=rows)]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)


def _requests(*, is_guarded: bool) -> list[tuple[str, Message, int]]:
    if is_guarded:
        names = [f"{n:x}" for n in range(NAMES)]
        deletion = DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        return [
            ("rights to 3,800 groups", DescribeGroupsRequest(groups=names), 5),
            ("rights to 3,800 topics", deletion, 5),
        ]
    small = _produce("gzip", [])
    batch = encode_batch([b'{"user":"u1","page":"/p/1.html"}'], timestamps_ms=1)
    for _ in range(COMPRESSED):
        row = ProduceRequestPartition(index=0, records=batch)
        small.topic_data[0].partition_data.append(row)
    return [
        ("Produce of 262,000 batches", _produce("none", [None] * BATCHES), 9),
        ("Produce of 1,000 batches to be compressed", small, 9),
        *_wide(),
    ]


def _wide() -> list[tuple[str, Message, int]]:
    """About a topic of PARTITIONS."""
    rows = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=0, committed_metadata="")
        for n in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name="wide", partitions=rows)]
    commit = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    member = ConsumerGroupHeartbeatRequest(
        group_id="h",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["wide"],
        topic_partitions=[],
    )
    return [
        ("Metadata", MetadataRequest(topics=None), 9),
        ("OffsetCommit", commit, 8),
        ("OffsetFetch", OffsetFetchRequest(groups=[group]), 8),
        ("ConsumerGroupHeartbeat of the only member", member, 1),
    ]


def _ask(address: tuple[str, int], request: Message, version: int) -> tuple[int, int]:
    """In a thread: bytes of the request, and of its answer."""
    frame = b"".join(encode_request(request, version, 1, "bench"))
    with socket.create_connection(address) as sock, sock.makefile("rb") as stream:
        sock.sendall(frame)
        (size,) = struct.unpack(">i", stream.read(4))
        return len(frame), len(stream.read(size))


async def _measure(data: str, is_guarded: bool) -> None:
    authorizer = "acl" if is_guarded else "none"
    settings = {"data": data, "listen": "127.0.0.1:0", "authorizer": authorizer}
    settings["partitions_max"] = str(PARTITIONS)
    broker = Broker(merge({**settings, "auto_create_topics": False}))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        nursery.start_soon(spare, broker.core.topics)  # as `segbroker serve` does
        if not is_guarded:
            await trio.to_thread.run_sync(_prepare, join_address(*broker.address))
        broker.core.lanes.__class__ = Visits
        for name, request, version in _requests(is_guarded=is_guarded):
            steps, before = Steps(), Visits.count
            trio.lowlevel.add_instrument(steps)
            sent, got = await trio.to_thread.run_sync(_ask, broker.address, request, version)
            trio.lowlevel.remove_instrument(steps)
            sys.stdout.write(
                f"{name}: {sent:,} bytes, answer {got:,}; longest step "
                f"{steps.longest_work_s * 1000:.0f} ms, all {steps.work_s * 1000:.0f} ms, "
                f"{Visits.count - before} visits\n"
            )
        broker.drain()
        nursery.cancel_scope.cancel()


def _prepare(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topic("gzip", config={"compression.type": "gzip"})
        admin.create_topic("wide", partitions=PARTITIONS)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for is_guarded in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            trio.run(_measure, str(Path(folder) / "data"), is_guarded)


if __name__ == "__main__":
    main()
