"""Transactions over the wire, request by request, in the test's own loop."""

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
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
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.age_clock import JUMP_MS
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.memory import MemoryStorage
from segbroker.segments.transactions import TRANSACTION, State

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect, fetch_request, produce_request, values
from .conftest import Events, serving

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
        code = reply.responses[0].partition_responses[0].error_code
        if not code:
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
    with trio.fail_after(10):
        while not await true():  # noqa: ASYNC110 - the broker's own doing, over the wire
            await trio.sleep(0.01)


@VERSIONS
async def test_readers_of_committed_records_stop_at_what_is_open(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", version)
        await tx.init()
        await client.produce("t", b"plain")
        assert await tx.send("t", b"a", b"b") == 0
        await client.produce("t", b"behind")
        row = await read(client, "t")
        assert (values(row), row.last_stable_offset, row.high_watermark) == ([b"plain"], 1, 4)
        assert await stable_end(client, "t") == 1
        assert values(await client.fetch("t", 0)) == [b"plain", b"a", b"b", b"behind"]
        assert await tx.end(commit=True) == 0
        row = await read(client, "t")
        assert (row.last_stable_offset, row.high_watermark) == (5, 5)
        assert values(row)[:4] == [b"plain", b"a", b"b", b"behind"]
        assert aborted(row) == []


@VERSIONS
async def test_only_aborted_ranges_that_touch_what_is_sent_are_told(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", version)
        await tx.init()
        for commit in (False, True, False):
            assert await tx.send("t", b"v") == 0
            assert await tx.end(commit=commit) == 0
        producer_id = tx.producer_id
        assert aborted(await read(client, "t")) == [(producer_id, 0), (producer_id, 4)]
        assert aborted(await read(client, "t", 1)) == [(producer_id, 0), (producer_id, 4)]
        # The first range ended at offset 1: named here, it would hide the committed record.
        assert aborted(await read(client, "t", 2)) == [(producer_id, 4)]
        assert aborted(await read(client, "t", 6)) == []
        # One batch at a time: the second range lies behind what is sent.
        assert aborted(await read(client, "t", 0, partition_max_bytes=1)) == [(producer_id, 0)]


async def test_a_reader_that_waits_is_woken_by_the_commit() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as reader,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.send("t", b"v") == 0
        await reader.send(fetch_request("t", 0, wait_ms=30_000, isolation_level=1), 12)
        await trio.sleep(0.05)
        assert await tx.end(commit=True) == 0
        with trio.fail_after(5):
            _, reply = await reader.receive(FetchResponse, 12)
        assert values(reply.responses[0].partitions[0])[:1] == [b"v"]


@VERSIONS
async def test_a_batch_that_is_of_no_open_transaction_is_refused(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        tx = Tx(client, "tx", version)
        assert await tx.init() == await tx.init() == 0
        assert await tx.send("t", b"v", version=8) == ErrorCode.INVALID_TXN_STATE
        assert await tx.send("t", b"v", version=11) == ErrorCode.TRANSACTION_ABORTABLE
        assert await tx.send("t", b"v") == 0
        assert await tx.send("t", b"v", partition=1, version=8) == ErrorCode.INVALID_TXN_STATE
        code = await tx.send("t", b"v", version=8, transactional=False)
        assert code == ErrorCode.INVALID_TXN_STATE
        behind = Tx(client, "tx", version, tx.producer_id, tx.epoch - 1)
        assert await behind.send("t", b"v", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        other = Tx(client, "nobody", version, tx.producer_id, tx.epoch)
        assert await other.send("t", b"v", version=12) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await tx.end(commit=True) == 0
        assert values(await client.fetch("t", 0))[:1] == [b"v"]
        assert (await client.fetch("t", 0)).high_watermark == 2


async def test_unknown_partitions_keep_the_others_out() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.add("t", 0, 9) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await tx.end(commit=True) == ErrorCode.INVALID_TXN_STATE


@VERSIONS
async def test_offsets_stand_with_the_commit_and_are_unstable_before(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", version)
        await tx.init()
        assert await tx.stage("g", "t", 5) == 0
        unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await stands(client, "g", "t", stable=True) == unstable
        assert await stands(client, "g", "t", stable=False) == (0, -1)
        assert await tx.end(commit=False) == 0
        assert await stands(client, "g", "t", stable=True) == (0, -1)
        assert await tx.stage("g", "t", 6) == 0
        assert await tx.end(commit=True) == 0
        assert await stands(client, "g", "t", stable=True) == (0, 6)


async def test_offsets_of_a_topic_that_was_deleted_do_not_displace_those_of_its_successor() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.stage("g", "t", 5) == 0
        await broker.core.topics.delete("t")
        await client.create("t")
        later = Tx(client, "later")
        await later.init()
        assert await later.stage("g", "t", 6) == 0
        assert await later.end(commit=True) == 0
        assert await tx.end(commit=True) == 0
        assert await stands(client, "g", "t", stable=True) == (0, 6)


@VERSIONS
async def test_a_transaction_open_for_too_long_is_aborted_and_its_producer_fenced(
    version: int,
) -> None:
    async with (
        serving(housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx", version)
        assert await tx.init(timeout_ms=200) == 0
        assert await tx.send("t", b"v") == 0

        async def is_over() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_over)
        assert aborted(await read(client, "t")) == [(tx.producer_id, 0)]
        assert await tx.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await tx.send("t", b"v", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await tx.init() == 0
        assert await tx.send("t", b"w") == 0
        assert await tx.end(commit=True) == 0


async def test_a_timeout_longer_than_allowed_is_refused() -> None:
    async with (
        serving(transaction_max_timeout_ms=1_000) as broker,
        connect(broker.address) as client,
    ):
        tx = Tx(client, "tx")
        for timeout_ms in (1_001, 0, -1):
            assert await tx.init(timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await tx.init(1_000) == 0


async def test_ids_are_bounded_and_forgotten_when_nobody_uses_them() -> None:
    now_ms = NOW_MS
    async with (
        serving(
            now_ms=lambda: now_ms,
            housekeeping_interval_ms=10,
            transactional_ids_max=2,
            transactional_id_expiration_ms=1_000,
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        idle, busy, third = (Tx(client, name) for name in ("idle", "busy", "third"))
        assert await idle.init() == await busy.init() == 0
        assert await busy.send("t", b"v") == 0
        assert await third.init() == ErrorCode.POLICY_VIOLATION
        now_ms += 1_001

        async def has_room() -> bool:
            return await third.init() == 0

        await until(has_room)
        assert await idle.add("t", 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert await busy.end(commit=True) == 0


async def test_transactions_are_listed_by_state_producer_and_age() -> None:
    now_ms = NOW_MS
    async with serving(now_ms=lambda: now_ms) as broker, connect(broker.address) as client:
        await client.create("t")
        one, other = Tx(client, "one"), Tx(client, "other")
        assert await one.init() == await other.init() == 0
        assert await one.send("t", b"v") == 0
        now_ms += 500

        async def listed(states: list[str], ids: list[int], age_ms: int) -> list[str]:
            request = ListTransactionsRequest(
                state_filters=states, producer_id_filters=ids, duration_filter=age_ms
            )
            reply = await client.ask(request, ListTransactionsResponse, 1)
            assert reply.unknown_state_filters == [s for s in states if s == "Dreaming"]
            return sorted(row.transactional_id for row in reply.transaction_states)

        assert await listed([], [], -1) == ["one", "other"]
        assert await listed(["Ongoing", "Dreaming"], [], -1) == ["one"]
        assert await listed([], [other.producer_id], -1) == ["other"]
        assert await listed([], [], 499) == ["one"]
        assert await listed([], [], 500) == []


# A commit that cannot be finished yet


async def test_a_partition_that_cannot_be_written_holds_up_its_marker_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.coordinator.MARKERS_WAIT_SECONDS", 0.1)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.send("t", b"v") == 0
        assert await tx.send("t", b"w", partition=1) == 0
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        assert await tx.end(commit=True) == 0  # decided
        row = await read(client, "t")
        assert (values(row), row.last_stable_offset) == ([], 0)
        request = fetch_request("t", 0, partition=1, isolation_level=1)
        other = await client.ask(request, FetchResponse, 12)
        assert values(other.responses[0].partitions[0])[:1] == [b"w"]
        assert await tx.add("t", 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await tx.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await tx.end(commit=False) == ErrorCode.INVALID_TXN_STATE
        handler.read_only = None

        async def goes_on() -> bool:
            return await tx.add("t", 0) == [0]

        await until(goes_on)
        assert values(await read(client, "t"))[:1] == [b"v"]


async def test_the_opposite_of_a_decision_that_failed_waits_until_none_of_it_is_left() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.send("t", b"v") == 0
        disk.sync_error = OSError(5, "says the test")
        assert await tx.end(commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        # The event may be on the disk: an abort now could come to light beside it.
        assert await tx.end(commit=False) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await read(client, "t")).last_stable_offset == 0
        disk.sync_error = None

        async def is_decided() -> bool:
            return await tx.end(commit=False) == 0

        await until(is_decided)
        row = await read(client, "t")
        assert aborted(row) == [(tx.producer_id, 0)]
        assert row.last_stable_offset == row.high_watermark


async def test_a_full_topic_that_refuses_records_takes_markers() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", retention_records="1", retention_full_policy="reject")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.send("t", b"v") == 0
        assert (await client.produce("t", b"w")).error_code == ErrorCode.POLICY_VIOLATION
        assert await tx.end(commit=True) == 0
        assert values(await read(client, "t"))[:1] == [b"v"]


async def test_a_topic_of_batches_smaller_than_a_marker_takes_markers() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", max_message_bytes="70")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.send("t", b"v") == 0
        assert await tx.end(commit=True) == 0
        row = await read(client, "t")
        assert (values(row)[:1], row.last_stable_offset) == ([b"v"], 2)


# Many at once


async def commit_batch(
    client: WireClient, query: str, batch: int, *prepared: Tx
) -> dict[str, object]:
    body = {"query": query, "batch": batch, "transactions": [one.prepared() for one in prepared]}
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


@VERSIONS
async def test_a_batch_is_committed_once_with_all_of_its_transactions(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await last_batch(client, "q") is None
        tasks = await some(client, version, "a", "b")
        assert await commit_batch(client, "q", 0, *tasks) == {"committed": True, "repeated": False}
        assert await last_batch(client, "q") == 0
        # The answer was lost: asked again, nothing changes.
        assert await commit_batch(client, "q", 0, *tasks) == {"committed": True, "repeated": True}
        # The batch is run a second time: what it wrote is aborted.
        again = await some(client, version, "a", "b")
        assert await commit_batch(client, "q", 0, *again) == {"committed": True, "repeated": True}
        row = await read(client, "t")
        assert row.last_stable_offset == row.high_watermark == 8
        assert len(aborted(row)) == 2
        for one in again:  # whoever prepared it has to begin anew
            assert await one.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await commit_batch(client, "q", 1) == {"committed": True, "repeated": False}
        assert await last_batch(client, "q") == 1
        assert await last_batch(client, "another") is None


@VERSIONS
async def test_a_batch_with_a_transaction_that_is_not_open_changes_nothing(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        sound, gone = await some(client, version, "sound", "gone")
        assert await gone.end(commit=False) == 0
        fenced = Tx(client, "fenced", version)
        await fenced.init()
        before = Tx(client, "fenced", version, fenced.producer_id, fenced.epoch)
        await fenced.init()
        unknown = Tx(client, "unknown", version, 1, 1)
        for other, code in (
            (gone, ErrorCode.INVALID_TXN_STATE),
            (before, ErrorCode.PRODUCER_FENCED),
            (unknown, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ):
            reply = await commit_batch(client, "q", 0, sound, other)
            assert isinstance(reply["error"], dict)
            assert reply["error"]["code"] == code
        assert await last_batch(client, "q") is None
        assert (await read(client, "t")).last_stable_offset == 0
        assert await commit_batch(client, "q", 0, sound) == {"committed": True, "repeated": False}


async def test_a_batch_that_says_nonsense_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        good = {"transactional_id": "a", "producer_id": 1, "producer_epoch": 0}
        for body in (
            {"query": "", "batch": 0, "transactions": []},
            {"query": 5, "batch": 0, "transactions": []},
            {"query": "q", "batch": -1, "transactions": []},
            {"query": "q", "batch": True, "transactions": []},
            {"query": "q", "batch": 0, "transactions": None},
            {"query": "q", "batch": 0, "transactions": [{}]},
            {"query": "q", "batch": 0, "transactions": [good, good]},
            {"query": "q", "batch": 0, "transactions": [{**good, "producer_id": -1}]},
        ):
            reply = await client.ask_vendor(VendorKey.COMMIT_BATCH, body)
            assert isinstance(reply["error"], dict)
            assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST, body


async def test_a_query_is_forgotten_when_it_is_old() -> None:
    now_ms = NOW_MS
    async with (
        serving(
            now_ms=lambda: now_ms, housekeeping_interval_ms=10, transactional_id_expiration_ms=1_000
        ) as broker,
        connect(broker.address) as client,
    ):
        await commit_batch(client, "q", 7)
        now_ms += 1_001

        async def is_forgotten() -> bool:
            return await last_batch(client, "q") is None

        await until(is_forgotten)


async def test_a_clock_that_jumped_ahead_forgets_neither_ids_nor_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms, asked_count = NOW_MS, 0

    def clock() -> int:
        nonlocal asked_count
        asked_count += 1
        return now_ms

    monkeypatch.setattr("segbroker.broker.server.wall_ms", clock)  # nobody sets it on purpose
    async with (
        serving(
            now_ms=clock, housekeeping_interval_ms=10, transactional_id_expiration_ms=1_000
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init() == 0
        await commit_batch(client, "q", 7)

        async def rounds_passed() -> bool:
            return asked_count >= 20

        asked_count = 0
        await until(rounds_passed)
        now_ms += 2 * JUMP_MS
        asked_count = 0
        await until(rounds_passed)
        assert not broker.core.topics.manager.believes_clock
        assert await last_batch(client, "q") == 7
        assert await tx.add("t", 0) == [0]


async def test_a_query_whose_batch_is_on_its_way_is_not_forgotten_with_its_last_one() -> None:
    now_ms = NOW_MS
    disk = GatedStorage()
    async with (
        serving(storage=disk, now_ms=lambda: now_ms) as broker,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        await commit_batch(client, "q", 7)
        now_ms += 1_001
        disk.syncs.clear()
        coordinator = broker.core.transactions
        nursery.start_soon(coordinator.commit_batch, "q", 8, [])
        await wait_all_tasks_blocked()
        nursery.start_soon(coordinator.forget_queries, NOW_MS + 1)
        await wait_all_tasks_blocked()
        disk.syncs.set()

        async def is_committed() -> bool:
            return await last_batch(client, "q") == 8

        await until(is_committed)
        await coordinator.forget_queries(NOW_MS + 1)
        assert await is_committed()


async def test_who_waits_while_its_id_is_forgotten_has_it_anew() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init() == 0
        coordinator = broker.core.transactions
        async with coordinator.table.entries["tx"].lock:
            nursery.start_soon(coordinator.init, "tx", 60_000, -1, -1)
            await wait_all_tasks_blocked()
            coordinator.table.forget("tx")

        async def is_known() -> bool:
            return coordinator.table.get("tx") is not None

        await until(is_known)


# After a start


async def restarted(
    disk: MemoryStorage, check: Callable[[WireClient, Broker], Awaitable[None]]
) -> None:
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await check(client, broker)


@VERSIONS
async def test_decided_is_decided_when_the_process_dies_before_its_markers(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segbroker.broker.coordinator.MARKERS_WAIT_SECONDS", 0.1)
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        (tx,) = await some(client, version, "a")
        (query,) = await some(client, version, "b")
        assert await tx.stage("g", "t", 3) == 0
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        assert await tx.end(commit=True) == 0
        assert (await commit_batch(client, "q", 4, query))["committed"]
        assert (await read(client, "t")).last_stable_offset == 0
        image = disk.after_kill()
        handler.read_only = None

    async def check(client: WireClient, broker: Broker) -> None:
        async def is_whole() -> bool:
            return (await read(client, "t")).last_stable_offset == 4

        await until(is_whole)
        row = await read(client, "t")
        assert [value for value in values(row) if value in (b"a", b"b")] == [b"a", b"b"]
        assert aborted(row) == []
        assert await stands(client, "g", "t", stable=True) == (0, 3)
        assert await last_batch(client, "q") == 4
        again = Tx(client, "a", version, tx.producer_id, tx.epoch)
        assert await again.send("t", b"next") == 0

    await restarted(image, check)


@pytest.mark.parametrize(
    ("durability", "cut", "stays"),
    [
        ("fsync", True, True),
        ("disk", False, True),
        ("disk", True, False),
        ("memory", True, False),
        ("ephemeral", False, False),
    ],
)
async def test_what_is_open_after_a_start_goes_on_unless_records_of_it_may_be_gone(
    durability: str, cut: bool, stays: bool
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        await client.create("sound")
        (tx,) = await some(client, V1, "a")
        assert await tx.send("sound", b"s") == 0
        image = disk.after_power_cut() if cut else disk.after_kill()

    async def check(client: WireClient, broker: Broker) -> None:
        again = Tx(client, "a", V1, tx.producer_id, tx.epoch, dict(tx.sequences))
        if stays:
            assert await again.send("t", b"more") == 0
            assert await again.end(commit=True) == 0
            assert values(await read(client, "sound"))[:1] == [b"s"]
            return

        async def is_aborted() -> bool:
            return (await read(client, "sound")).last_stable_offset == 2

        await until(is_aborted)
        assert aborted(await read(client, "sound")) == [(tx.producer_id, 0)]
        assert await again.end(commit=True) == ErrorCode.PRODUCER_FENCED

    await restarted(image, check)


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_a_committed_transaction_is_whole_after_a_power_cut_in_every_class_that_keeps_records(
    durability: str,
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        (tx,) = await some(client, V1, "a")
        assert await tx.end(commit=True) == 0
        image = disk.after_power_cut()

    async def check(client: WireClient, broker: Broker) -> None:
        row = await read(client, "t")
        assert values(row)[:1] == [b"a"]
        assert row.last_stable_offset == row.high_watermark

    await restarted(image, check)


async def test_a_transaction_that_nobody_knows_of_is_ended_when_its_partition_is_opened() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        (tx,) = await some(client, V1, "a")
        # As after damage: the log has it open, the coordinator has not.
        known = broker.core.transactions.table.entries["a"].known
        assert known is not None
        row = known._replace(state=State.COMPLETE_COMMIT, partitions={})
        broker.core.topics.manager.record_soon(
            lambda error: None, TRANSACTION, id="a", row=row.pack()
        )
        await client.produce("t", b"x")
        image = disk.after_kill()

    async def check(client: WireClient, broker: Broker) -> None:
        async def is_over() -> bool:
            row = await read(client, "t")
            return row.last_stable_offset == row.high_watermark == 3

        await until(is_over)
        assert aborted(await read(client, "t")) == [(tx.producer_id, 0)]

    await restarted(image, check)


async def test_what_hangs_is_ended_when_a_log_was_opened_again_after_a_failure(
    events: Events,
) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await client.produce("t", b"before")
        partition = await broker.core.topics.open("t", 0)
        assert partition is not None
        # A transaction of which nobody knows, as a marker that was lost leaves it.
        hanging = encode_batch(
            [b"hangs"], timestamps_ms=NOW_MS, producer_id=77, producer_epoch=0, base_sequence=0,
            transactional=True,
        )  # fmt: skip
        partition.append(memoryview(bytearray(hanging)), check_batch(hanging), NOW_MS)
        await client.produce("t", b"behind it")
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        refused = await client.produce("t", b"lost")
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None
        with trio.fail_after(60):
            while partition.handler.transactions.open:  # noqa: ASYNC110 - looked at from outside
                await trio.sleep(0.02)
        assert [one["producer_id"] for one in events.named("transaction_hangs")] == [77]
