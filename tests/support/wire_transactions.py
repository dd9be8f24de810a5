"""A transactional producer as thin as the protocol, and what readers see of its work."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trio

from segbroker.protocol.messages_core import (
    FetchResponse,
    FetchResponsePartition,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from segbroker.protocol.record_batch import encode_batch
from segbroker.protocol.vendor import VendorKey

from .waiting import DEADLINE_S
from .wire_client import WireClient, fetch_request, produce_request

NOW_MS = 1_700_000_000_000
V1, V2 = 1, 2
VERSIONS = pytest.mark.parametrize("version", [V1, V2])


@dataclass
class Tx:
    """A transactional producer as thin as the protocol, of version 1 or 2."""

    client: WireClient
    name: str
    version: int = V1
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    base_offset: int = -1
    """Of the last batch that was acknowledged."""

    async def init(self, timeout_ms: int = 60_000, **again: int) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, **again
        )
        reply = await self.client.ask(request, InitProducerIdResponse, 5)
        if not reply.error_code:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences.clear()
        return reply.error_code

    async def add(self, topic: str, *partitions: int) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestTopic(name=topic, partitions=list(partitions))
            ],
        )
        reply = await self.client.ask(request, AddPartitionsToTxnResponse, 3)
        (row,) = reply.results_by_topic_v3_and_below
        return [one.partition_error_code for one in row.results_by_partition]

    async def send(
        self,
        topic: str,
        *sent: bytes,
        partition: int = 0,
        version: int | None = None,
        transactional: bool = True,
    ) -> int:
        """One batch, in what is open; its error code."""
        if version is None:
            version = 12 if self.version == V2 else 8
            if self.version == V1:
                await self.add(topic, partition)
        sequence = self.sequences.get((topic, partition), 0)
        records = encode_batch(
            list(sent),
            timestamps_ms=NOW_MS,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        request = produce_request(topic, records, partition=partition)
        request.transactional_id = self.name if transactional else None
        reply = await self.client.ask(request, ProduceResponse, version)
        row = reply.responses[0].partition_responses[0]
        code = row.error_code
        if not code:
            self.base_offset = row.base_offset
            self.sequences[topic, partition] = sequence + len(sent)
        return code

    async def stage(self, group: str, topic: str, offset: int) -> int:
        """An offset of partition 0 that stands when this commits."""
        if self.version == V1:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            reply = await self.client.ask(added, AddOffsetsToTxnResponse, 3)
            if reply.error_code:
                return reply.error_code
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata="m"
                        )
                    ],
                )
            ],
        )
        version = 5 if self.version == V2 else 3
        staged = await self.client.ask(request, TxnOffsetCommitResponse, version)
        return staged.topics[0].partitions[0].error_code

    async def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        reply = await self.client.ask(request, EndTxnResponse, 5 if self.version == V2 else 3)
        if not reply.error_code and self.version == V2:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences.clear()
        return reply.error_code

    def prepared(self) -> dict[str, object]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


async def read(
    client: WireClient, topic: str, offset: int = 0, *, wait_ms: int = 0, **limits: int
) -> FetchResponsePartition:
    """What a reader of committed records is sent."""
    request = fetch_request(topic, offset, wait_ms=wait_ms, isolation_level=1, **limits)
    reply = await client.ask(request, FetchResponse, 12)
    return reply.responses[0].partitions[0]


async def stable_end(client: WireClient, topic: str) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)],
            )
        ],
    )
    reply = await client.ask(request, ListOffsetsResponse, 5)
    return reply.topics[0].partitions[0].offset


async def stands(client: WireClient, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    """(error code, offset) of partition 0."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestGroupTopic(name=topic, partition_indexes=[0])],
            )
        ],
        require_stable=stable,
    )
    reply = await client.ask(request, OffsetFetchResponse, 8)
    (row,) = reply.groups[0].topics[0].partitions
    return row.error_code, row.committed_offset


def aborted(row: FetchResponsePartition) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in row.aborted_transactions or []]


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not await true():  # noqa: ASYNC110 - the broker's own doing, over the wire
            await trio.sleep(0.01)


async def commit_batch(
    client: WireClient, query: str, batch: int, *prepared: Tx, **more: object
) -> dict[str, object]:
    body = {"query": query, "batch": batch, "transactions": [one.prepared() for one in prepared]}
    body |= more
    reply = await client.ask_vendor(VendorKey.COMMIT_BATCH, body)
    del reply["performance"]
    return reply


async def last_batch(client: WireClient, query: str) -> object:
    return (await client.ask_vendor(VendorKey.QUERY_STATE, {"query": query}))["last_batch"]


async def some(client: WireClient, version: int, *names: str) -> list[Tx]:
    """Transactions with a record each, left open."""
    found = [Tx(client, name, version) for name in names]
    for one in found:
        assert await one.init() == 0
        assert await one.send("t", one.name.encode()) == 0
    return found
