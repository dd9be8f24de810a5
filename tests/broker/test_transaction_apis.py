"""Transactions over the wire, request by request, in the test's own loop."""

from functools import partial

import pytest
import trio

from segbroker.broker.apis.offset_store import METADATA_SIZE_MAX
from segbroker.broker.configuration.logs import NAME_TOLD_MAX
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchResponse
from segbroker.protocol.messages_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionReadOnly

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.waiting import becomes
from ..support.wire_client import connect, fetch_request, values
from ..support.wire_transactions import (
    NOW_MS,
    V2,
    VERSIONS,
    Tx,
    aborted,
    read,
    stable_end,
    stands,
    until,
)
from .conftest import NOT_BY_ITSELF_MS, Events, serving


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
        await reader.send(fetch_request("t", 0, wait_ms=600_000, isolation_level=1), 12)
        await trio.sleep(0.05)
        assert await tx.end(commit=True) == 0
        with trio.fail_after(60):
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


@pytest.mark.parametrize("member", [("", -1), ("nobody", 3)])
@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_offsets_of_a_group_that_takes_no_part_cost_the_transaction_not_the_producer(
    version: int, code: int, member: tuple[str, int]
) -> None:
    """Clients take INVALID_TXN_STATE for the end of the producer; from 4 on they know a code for
    the end of the transaction alone.  Who says to be a member is asked whether it is one when it
    takes part."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="unadded",
            member_id=member[0],
            generation_id=member[1],
            producer_id=tx.producer_id,
            producer_epoch=tx.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=7, committed_metadata="m"
                        )
                    ],
                )
            ],
        )

        async def code_of_it() -> int:
            reply = await client.ask(request, TxnOffsetCommitResponse, version)
            return reply.topics[0].partitions[0].error_code

        assert await code_of_it() == code, "nothing is open"
        assert await tx.send("t", b"v") == 0
        assert await code_of_it() == code, "another part is open"
        assert await tx.end(commit=False) == 0
        assert await tx.stage("unadded", "t", 8) == 0
        assert await tx.end(commit=True) == 0
        assert await stands(client, "unadded", "t", stable=True) == (0, 8)


async def test_partitions_that_do_not_fit_an_event_are_too_many(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        own = "long" * 1_000
        tx = Tx(client, own, V2)
        await tx.init()
        names = [f"{n:t<249}" for n in range(5_000)]
        assert broker.core.topics.manager.event_size_max < 5_000 * 249
        add = partial(broker.core.transactions.add, own, tx.producer_id, tx.epoch)
        assert await add({name: [0] for name in names}) is ErrorCode.INVALID_REQUEST
        (line,) = events.named("transaction_not_recorded")
        (named,) = line["transactional_ids"]
        assert named == own[:NAME_TOLD_MAX] + "…", "no line is as long as a client wants it"
        assert await add({names[0]: [0]}) is ErrorCode.NONE, "the transaction goes on"


async def test_offsets_that_do_not_fit_an_event_are_refused_and_the_transaction_goes_on() -> None:
    disk = MemoryStorage()
    topic, partitions = "t" * 200, 300
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create(topic, partitions)
        assert partitions * METADATA_SIZE_MAX > broker.core.topics.manager.event_size_max
        tx = Tx(client, "tx", V2)
        await tx.init()
        assert await tx.stage("g", topic, 1) == 0
        rows = [
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=2,
                committed_metadata="m" * METADATA_SIZE_MAX,
            )
            for index in range(partitions)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=tx.producer_id,
            producer_epoch=tx.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        reply = await client.ask(request, TxnOffsetCommitResponse, 5)
        codes = {row.error_code for row in reply.topics[0].partitions}
        assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert await tx.end(commit=True) == 0
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, "g", topic, stable=True) == (0, 1)


async def test_the_rest_of_a_transaction_is_refused_where_its_topic_was_made_anew() -> None:
    """Committed without its first records it would be half of a transaction."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", V2)
        await tx.init()
        assert await tx.send("t", b"first") == 0
        await broker.core.topics.delete_all(["t"])
        await client.create("t")
        assert await tx.send("t", b"second") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await tx.end(commit=False) == 0
        assert await tx.send("t", b"again") == 0
        assert await tx.send("t", b"and on") == 0
        assert await tx.end(commit=True) == 0
        assert values(await read(client, "t"))[:2] == [b"again", b"and on"]


async def test_offsets_of_a_topic_that_was_deleted_do_not_displace_those_of_its_successor() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx")
        await tx.init()
        assert await tx.stage("g", "t", 5) == 0
        await broker.core.topics.delete_all(["t"])
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
        assert await tx.init(timeout_ms=60_000) == 0
        assert await tx.send("t", b"v") == 0
        await passes(60)

        async def is_over() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_over)
        assert aborted(await read(client, "t")) == [(tx.producer_id, 0)]
        assert await tx.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await tx.send("t", b"v", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await tx.init() == 0
        assert await tx.send("t", b"w") == 0
        assert await tx.end(commit=True) == 0


@VERSIONS
async def test_a_producer_goes_on_behind_the_abort_of_what_was_open_for_too_long(
    version: int,
) -> None:
    disk = MemoryStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx", version)
        assert await tx.init(timeout_ms=60_000) == 0
        assert await tx.send("t", b"v") == 0
        await passes(60)

        async def is_over() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_over)
        old = {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
        assert await tx.send("t", b"late", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        image = disk.after_kill()
        if version == V2:  # as the Java client: it aborts
            assert await tx.end(commit=False) == 0
        else:  # as ours
            assert await tx.init(**old) == 0
        assert tx.epoch == old["producer_epoch"] + 1
        assert await tx.send("t", b"w") == 0
        assert await tx.end(commit=True) == 0
        row = await read(client, "t")
        assert (values(row)[:3:2], aborted(row)) == ([b"v", b"w"], [(tx.producer_id, 0)])
    async with serving(storage=image) as broker, connect(broker.address) as client:
        again = Tx(client, "tx", version)
        assert await again.init(**old) == 0
        assert again.epoch == old["producer_epoch"] + 1
        # Only as long as nobody else came.
        assert await Tx(client, "tx", version).init() == 0
        assert await again.init(**old) == ErrorCode.PRODUCER_FENCED


async def test_a_timeout_longer_than_allowed_is_refused() -> None:
    async with (
        serving(transaction_max_timeout_ms=1_000) as broker,
        connect(broker.address) as client,
    ):
        tx = Tx(client, "tx")
        for timeout_ms in (1_001, 0, -1):
            assert await tx.init(timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await tx.init(1_000) == 0


async def test_ids_that_do_not_fit_one_event_are_forgotten_all_the_same() -> None:
    now_ms = NOW_MS
    async with (
        serving(
            now_ms=lambda: now_ms,
            housekeeping_interval_ms=10,
            transactional_id_expiration_ms=1_000,
        ) as broker,
        connect(broker.address) as client,
    ):
        names = [f"{number:030000}" for number in range(40)]
        for name in names:
            assert await Tx(client, name).init() == 0
        assert sum(map(len, names)) > broker.core.topics.manager.event_size_max
        now_ms += 1_001
        await becomes(lambda: not broker.core.transactions.table.entries)


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


async def test_of_an_id_that_nobody_has_a_producer_may_begin_with_any_producer_id() -> None:
    """One whose id has expired goes on anew with what it had; @platformatic/kafka begins with 0."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        other, tx = Tx(client, "other"), Tx(client, "tx")
        assert await other.init() == 0
        assert await tx.init(producer_id=other.producer_id, producer_epoch=7) == 0
        assert (tx.producer_id != other.producer_id, tx.epoch) == (True, 0)
        assert await tx.send("t", b"v") == 0
        assert await tx.end(commit=True) == 0
        # Of one that somebody has, it has to be the right one.
        code = await Tx(client, "tx").init(producer_id=other.producer_id, producer_epoch=0)
        assert code == ErrorCode.PRODUCER_FENCED


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


async def test_transactions_are_listed_by_an_expression_for_their_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in ("sink-1-0", "sink-1-12", "Sink-2", "größe 1", "x" * 1_001):
            assert await Tx(client, name).init() == 0

        async def listed(pattern: str | None) -> tuple[int, set[str]]:
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
            )
            reply = await client.ask(request, ListTransactionsResponse, 2)
            return reply.error_code, {row.transactional_id for row in reply.transaction_states}

        everything = {"sink-1-0", "sink-1-12", "Sink-2", "größe 1", "x" * 1_001}
        assert await listed(None) == await listed("") == (0, everything)
        # The whole id has to match.
        assert await listed("sink") == (0, set())
        assert await listed(r"sink-\d-\d+") == (0, {"sink-1-0", "sink-1-12"})
        assert await listed("(?i)sink.*") == (0, {"sink-1-0", "sink-1-12", "Sink-2"})
        assert await listed(r"gr[^a-z]\We\s1") == (0, {"größe 1"})
        assert await listed(".*") == (0, everything - {"x" * 1_001})
        for wrong in ("(", "größe.*"):
            assert await listed(wrong) == (ErrorCode.INVALID_REGULAR_EXPRESSION, set())
        monkeypatch.setattr("segbroker.broker.transactions.id_pattern.MATCH_COST_MAX", 20)
        assert await listed(".*") == (ErrorCode.INVALID_REGULAR_EXPRESSION, set())


# A commit that cannot be finished yet


async def test_a_partition_that_cannot_be_written_holds_up_its_marker_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
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

        async def is_read() -> bool:
            other = await client.ask(request, FetchResponse, 12)
            return values(other.responses[0].partitions[0])[:1] == [b"w"]

        await until(is_read)
        assert await tx.add("t", 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await tx.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await tx.end(commit=False) == ErrorCode.INVALID_TXN_STATE
        handler.read_only = None

        async def goes_on() -> bool:
            return await tx.add("t", 0) == [0]

        await until(goes_on)
        assert values(await read(client, "t"))[:1] == [b"v"]


@VERSIONS
async def test_who_goes_on_anew_while_its_abort_is_held_up_is_not_fenced(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx", version)
        await tx.init()
        assert await tx.send("t", b"v") == 0
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        old = {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
        with monkeypatch.context() as patched:
            patched.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
            for _ in range(2):  # a client library asks until it is done
                assert await tx.init(**old) == ErrorCode.CONCURRENT_TRANSACTIONS
        handler.read_only = None

        async def goes_on() -> bool:
            code = await tx.init(**old)
            assert code in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
            return code == 0

        await until(goes_on)
        assert await tx.send("t", b"w") == 0
        assert await tx.end(commit=True) == 0
        row = await read(client, "t")
        assert aborted(row) == [(tx.producer_id, 0)]
        assert values(row)[:3:2] == [b"v", b"w"]


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


async def test_a_batch_whose_partition_cannot_be_added_now_is_asked_for_again() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx", V2)
        await tx.init()
        disk.sync_error = OSError(5, "says the test")
        assert await tx.send("t", b"v") == ErrorCode.NOT_ENOUGH_REPLICAS
        tx.sequences["t", 0] = 1
        assert await tx.send("t", b"overtakes") == ErrorCode.NOT_ENOUGH_REPLICAS
        disk.sync_error = None

        async def send(sequence: int, value: bytes) -> bool:
            tx.sequences["t", 0] = sequence
            code = await tx.send("t", value)
            assert code in (0, ErrorCode.NOT_ENOUGH_REPLICAS)
            return code == 0

        await until(lambda: send(0, b"v"))
        await until(lambda: send(1, b"w"))
        assert await tx.end(commit=True) == 0
        assert values(await read(client, "t"))[:2] == [b"v", b"w"]


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


@VERSIONS
async def test_who_begins_anew_has_nothing_open_and_the_timeout_that_it_asked_for_last(
    version: int,
) -> None:
    """Also where its epoch is the one that the abort of what it had open has given it, and where it
    asks a second time because it has not heard the answer."""

    async def described() -> tuple[str, int]:
        asked = DescribeTransactionsRequest(transactional_ids=["tx"])
        told = await client.ask(asked, DescribeTransactionsResponse, 0)
        (row,) = told.transaction_states
        return row.transaction_state, row.transaction_timeout_ms

    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", version)
        await tx.init(60_000)
        assert await tx.send("t", b"left open") == 0
        known = {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
        for timeout_ms in (50_000, 40_000):
            assert await tx.init(timeout_ms, **known) == 0
            assert tx.epoch == known["producer_epoch"] + 1
            assert await described() == ("Empty", timeout_ms)
        assert aborted(await read(client, "t")) == [(known["producer_id"], 0)]
