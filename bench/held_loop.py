"""How long single large requests hold the event loop; `python -m bench.held_loop`.

A broker in this process, and a thread that sends it one request after the other.  Printed for each:
its bytes and those of the answer, the longest step of any task of the loop meanwhile, and all of
them together, in processor time of the loop's thread; how often a lane was visited for a batch.
The last are about a topic of 100,000 partitions, and the settings of 10,000 groups.
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
from segbroker.broker.apis.config_admin import GROUP
from segbroker.broker.configuration.config import merge
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.loop.long_lived import spare
from segbroker.broker.server import Broker
from segbroker.client import Admin
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import decode_response, encode_request
from segbroker.protocol.messages_admin import (
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
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
from segbroker.protocol.messages_share_groups import ShareGroupHeartbeatRequest
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
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
GROUPS: Final = 10_000
READ: Final = 15_000
"""In each partition that is fetched, of one record each: 1 MiB."""
READ_PARTITIONS: Final = 16


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


def _fetch(isolation_level: int) -> FetchRequest:
    rows = [
        FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(READ_PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=READ_PARTITIONS << 20,
        isolation_level=isolation_level,
        topics=[FetchRequestTopic(topic="committed", partitions=rows)],
    )


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
        ("Fetch of 240,000 batches", _fetch(isolation_level=0), 12),
        ("Fetch of 240,000 batches, read_committed", _fetch(isolation_level=1), 12),
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
    one = [OffsetCommitRequestTopic(name="wide", partitions=rows[:1])]
    again = OffsetCommitRequest(group_id="g", member_id="", topics=one)
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
        ("OffsetCommit of one of them", again, 8),
        ("OffsetFetch", OffsetFetchRequest(groups=[group]), 8),
        ("ConsumerGroupHeartbeat of the only member", member, 1),
        (
            "ConsumerGroupDescribe of it",
            ConsumerGroupDescribeRequest(group_ids=["h"], include_authorized_operations=False),
            1,
        ),
        (
            "ShareGroupHeartbeat of the only member",
            ShareGroupHeartbeatRequest(
                group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["wide"]
            ),
            1,
        ),
        ("settings of 10,000 groups", _settings(), 1),
    ]


def _settings() -> Message:
    setting = IncrementalAlterConfigsRequestConfig(
        name="consumer.session.timeout.ms", config_operation=0, value="50000"
    )
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=GROUP, resource_name=f"g-{n}", configs=[setting]
            )
            for n in range(GROUPS)
        ],
        validate_only=False,
    )


def _ask(address: tuple[str, int], request: Message, version: int) -> tuple[int, bytes]:
    """In a thread: how large the request is, and its answer."""
    frame = b"".join(encode_request(request, version, 1, "bench"))
    with socket.create_connection(address) as sock, sock.makefile("rb") as stream:
        sock.sendall(frame)
        (size,) = struct.unpack(">i", stream.read(4))
        return len(frame), stream.read(size)


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
            await trio.to_thread.run_sync(_fill, broker.address)
        broker.core.lanes.__class__ = Visits
        for name, request, version in _requests(is_guarded=is_guarded):
            steps, before = Steps(), Visits.count
            trio.lowlevel.add_instrument(steps)
            sent, got = await trio.to_thread.run_sync(_ask, broker.address, request, version)
            trio.lowlevel.remove_instrument(steps)
            sys.stdout.write(
                f"{name}: {sent:,} bytes, answer {len(got):,}; longest step "
                f"{steps.longest_work_s * 1000:.0f} ms, all {steps.work_s * 1000:.0f} ms, "
                f"{Visits.count - before} visits\n"
            )
        broker.drain()
        nursery.cancel_scope.cancel()


def _prepare(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topic("gzip", config={"compression.type": "gzip"})
        admin.create_topic("wide", partitions=PARTITIONS)
        admin.create_topic("committed", partitions=READ_PARTITIONS)


def _fill(address: tuple[str, int]) -> None:
    """Batches of a transaction that is aborted."""
    init = InitProducerIdRequest(transactional_id="bench", transaction_timeout_ms=60_000)
    _, answer = _ask(address, init, 4)
    _, given = decode_response(answer, ApiKey.INIT_PRODUCER_ID, 4)
    assert isinstance(given, InitProducerIdResponse), "as asked"
    who = given.producer_id, given.producer_epoch
    partitions = AddPartitionsToTxnRequestTopic(
        name="committed", partitions=[*range(READ_PARTITIONS)]
    )
    _ask(
        address,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="bench",
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[partitions],
        ),
        3,
    )
    for n in range(READ_PARTITIONS):
        rows = [
            ProduceRequestPartition(
                index=n,
                records=encode_batch(
                    [b"v"],
                    timestamps_ms=1,
                    producer_id=who[0],
                    producer_epoch=who[1],
                    base_sequence=sequence,
                    transactional=True,
                ),
            )
            for sequence in range(READ)
        ]
        request = ProduceRequest(
            transactional_id="bench",
            acks=-1,
            timeout_ms=60_000,
            topic_data=[ProduceRequestTopic(name="committed", partition_data=rows)],
        )
        _ask(address, request, 8)
    end = EndTxnRequest(
        transactional_id="bench", producer_id=who[0], producer_epoch=who[1], committed=False
    )
    _ask(address, end, 3)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for is_guarded in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            trio.run(_measure, str(Path(folder) / "data"), is_guarded)


if __name__ == "__main__":
    main()
