"""Transactions and a broker that was started again: killed, cut off from power, after a failure."""

import errno
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from segbroker.broker.loop.loop_clock import monotonic_ms
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import DeleteGroupsRequest, DeleteGroupsResponse
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionReadOnly, StorageError
from segbroker.segments.metadata.metadata import IN_DOUBT
from segbroker.segments.metadata.transactions import DECIDED, TRANSACTION, State
from segbroker.segments.settings.topic_config import Durability

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect, values
from ..support.wire_transactions import (
    NOW_MS,
    V1,
    V2,
    VERSIONS,
    Tx,
    aborted,
    commit_batch,
    last_batch,
    read,
    some,
    stands,
    until,
)
from .conftest import NOT_BY_ITSELF_MS, Events, serving


async def restarted(
    disk: MemoryStorage, check: Callable[[WireClient, Broker], Awaitable[None]]
) -> None:
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await check(client, broker)


@VERSIONS
async def test_decided_is_decided_when_the_process_dies_before_its_markers(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    disk = MemoryStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
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


async def check_not_committed(tx: Tx, client: WireClient, broker: Broker) -> None:
    """A commit of what the producer had open before is refused, or not made yet."""
    again = Tx(client, tx.name, V1, tx.producer_id, tx.epoch, dict(tx.sequences))
    assert await again.end(commit=True) in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.PRODUCER_FENCED,
    )


@VERSIONS
@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
async def test_what_is_open_when_the_machine_is_started_anew_in_good_order_goes_on(
    version: int, durability: str
) -> None:
    """The stop has synced all of it, and has said so."""
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        tx = Tx(client, "a", version)
        assert await tx.init() == 0
        assert await tx.send("t", b"one") == 0

    async def check(client: WireClient, broker: Broker) -> None:
        assert broker.core.topics.manager.is_new_boot
        again = Tx(client, "a", version, tx.producer_id, tx.epoch, dict(tx.sequences))
        assert await again.send("t", b"two") == 0
        assert await again.end(commit=True) == 0
        row = await read(client, "t")
        assert values(row)[:2] == [b"one", b"two"]
        assert aborted(row) == []

    await restarted(disk.after_power_cut(), check)


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_an_older_version_has_open_is_torn_by_a_power_cut_also_if_the_next_start_dies(
    durability: str,
) -> None:
    """Its row does not say of which boot it is."""
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        await client.create("sound")
        tx = Tx(client, "a", V1)
        assert await tx.init() == 0
        assert await tx.send("sound", b"s") == 0
        assert await tx.send("t", b"gone") == 0
        known = broker.core.transactions.table.entries["a"].known
        assert known is not None
        outcomes: list[OSError | None] = []
        broker.core.topics.manager.record_soon(
            outcomes.append, TRANSACTION, id="a", row=known.pack()[:-1]
        )

        async def is_written() -> bool:
            return outcomes == [None]

        await until(is_written)
        image = disk.after_power_cut()
    DiskManager("/data", storage=image, flushers=0).open()  # and killed before the abort

    await restarted(image.after_kill(), partial(check_not_committed, tx))


@pytest.mark.parametrize("durability", ["disk", "memory"])
@pytest.mark.parametrize("lost", ["all", "some"])
@pytest.mark.parametrize("dies", [False, True])
async def test_what_lost_records_with_a_failed_sync_is_never_committed_without_them(
    durability: str, lost: str, dies: bool
) -> None:
    """Their pages are gone as well, so the partition waits for a restart; in the same boot.  dies:
    also the process that writes the gap, before it has aborted the transaction."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability=durability)
        await client.create("sound")
        tx = Tx(client, "a", V2)
        assert await tx.init() == 0
        assert await tx.send("sound", b"s") == 0
        assert await client.produce("t", b"of somebody else")
        if lost == "some":
            assert await tx.send("t", b"kept") == 0
        handler = broker.core.topics.served["t", 0].handler
        await trio.to_thread.run_sync(handler.sync)
        known = broker.core.transactions.table.get("a")
        assert known is not None
        assert await broker.core.transactions.add("a", *known.key, {"t": [0]}) == 0
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        size = handler.size_bytes
        assert await tx.send("t", b"gone") == 0
        gone = handler.size_bytes - size
        with pytest.raises(PartitionReadOnly):
            await trio.to_thread.run_sync(handler.sync)
        disk.open("/data/topics/t/partition_0/t_partition_0_segment_0.log").pwrite(
            bytes(gone), size
        )
        disk.sync_error = None

        assert not await trio.to_thread.run_sync(handler.try_recover, NOW_MS)
        key = broker.core.topics.all["t"].topic_id, 0

        async def is_known() -> bool:
            ceiling = broker.core.topics.manager._known.ceiling(key)
            return ceiling is not None and ceiling.boot == IN_DOUBT

        await until(is_known)
        image = disk.after_kill()
    if dies:
        manager = DiskManager("/data", storage=image, flushers=0)
        manager.open()
        manager.get_handler("t", 0)
        assert manager.report.counts["gap"] == 1
        image = image.after_kill()

    async def check(client: WireClient, broker: Broker) -> None:
        again = Tx(client, "a", V2, tx.producer_id, tx.epoch, dict(tx.sequences))

        async def is_fenced() -> bool:
            code = await again.end(commit=True)
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.PRODUCER_FENCED)
            return code == ErrorCode.PRODUCER_FENCED

        async def is_aborted() -> bool:
            row = await read(client, "sound")
            return row.last_stable_offset == row.high_watermark

        await until(is_fenced)
        await until(is_aborted)
        assert aborted(await read(client, "sound")) == [(tx.producer_id, 0)]

    await restarted(image, check)


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_records_that_are_lost_when_the_class_becomes_fsync_are_not_committed_without(
    durability: str,
) -> None:
    """A partition cannot follow, for its sync has failed; then the power does."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability=durability)
        await client.create("sound")
        tx = Tx(client, "a", V1)
        assert await tx.init() == 0
        assert await tx.send("sound", b"s") == 0
        assert await tx.send("t", b"gone") == 0
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        with pytest.raises(PartitionReadOnly):
            await trio.to_thread.run_sync(broker.core.topics.served["t", 0].handler.sync)
        disk.sync_error = None
        manager = broker.core.topics.manager
        with pytest.raises(StorageError):
            await trio.to_thread.run_sync(manager.alter_topic, "t", {"durability": "fsync"})
        assert manager.topics["t"].config.durability is Durability.FSYNC
        assert await tx.end(commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        image = disk.after_power_cut()

    await restarted(image, partial(check_not_committed, tx))


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_a_power_cut_has_torn_stays_torn_when_the_class_becomes_fsync(
    durability: str,
) -> None:
    """Also where the process that was told of it dies before its abort is written."""
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        await client.create("sound")
        tx = Tx(client, "a", V1)
        assert await tx.init() == 0
        assert await tx.send("sound", b"s") == 0
        assert await tx.send("t", b"gone") == 0
        image = disk.after_power_cut()
    manager = DiskManager("/data", storage=image, flushers=0)
    manager.open()
    manager.alter_topic("t", {"durability": "fsync"})

    await restarted(image.after_kill(), partial(check_not_committed, tx))


@VERSIONS
@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_begins_behind_a_power_cut_has_lost_nothing(
    version: int, durability: str
) -> None:
    """Though it is what has the partition opened, and the gap written."""
    before = MemoryStorage()
    async with serving(storage=before) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        await client.produce("t", b"lost")
        image = before.after_power_cut()

    async def check(client: WireClient, broker: Broker) -> None:
        tx = Tx(client, "a", version)
        assert await tx.init() == 0
        assert await tx.send("t", b"one") == 0
        broker.core.transaction_upkeep.keep_house(NOW_MS)
        assert await tx.send("t", b"two") == 0
        assert await tx.end(commit=True) == 0
        handler = broker.core.topics.served["t", 0].handler
        assert handler.transactions.aborted == []

    await restarted(image, check)


@pytest.mark.parametrize("dies", [False, True])
async def test_what_may_be_torn_is_aborted_before_anybody_commits_it_also_where_the_abort_failed(
    dies: bool, events: Events
) -> None:
    before = MemoryStorage()
    async with serving(storage=before) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")
        await client.create("sound")
        (tx,) = await some(client, V1, "a")
        assert await tx.send("sound", b"s") == 0
        disk = GatedStorage(before.after_power_cut())
    disk.refused = DECIDED.encode()

    async def is_fenced(client: WireClient) -> None:
        again = Tx(client, "a", V1, tx.producer_id, tx.epoch, dict(tx.sequences))

        async def is_refused() -> bool:
            code = await again.end(commit=True)
            assert code, "half of it is gone"
            return code == ErrorCode.PRODUCER_FENCED

        async def is_aborted() -> bool:
            row = await read(client, "sound")
            return row.last_stable_offset == row.high_watermark

        await until(is_refused)
        await until(is_aborted)
        assert aborted(await read(client, "sound")) == [(tx.producer_id, 0)]

    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):

        async def has_failed() -> bool:
            return bool(events.named("transaction_not_recorded"))

        await until(has_failed)
        assert "a" in events.named("transaction_not_recorded")[0]["transactional_ids"]
        again = Tx(client, "a", V1, tx.producer_id, tx.epoch, dict(tx.sequences))
        assert await again.end(commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        image = disk.after_kill()
        disk.refused = None
        if not dies:
            await is_fenced(client)
    if dies:  # in the same boot of the machine: this start loses nothing more
        async with serving(storage=image) as broker, connect(broker.address) as client:
            await is_fenced(client)


async def test_what_may_be_torn_is_so_also_after_offsets_of_it_were_deleted(
    events: Events,
) -> None:
    before = MemoryStorage()
    async with serving(storage=before) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")
        (tx,) = await some(client, V2, "a")
        assert await tx.stage("g", "t", 5) == 0
        assert await tx.stage("h", "t", 5) == 0
        disk = GatedStorage(before.after_power_cut())
    disk.refused = DECIDED.encode()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):

        async def has_failed() -> bool:
            return bool(events.named("transaction_not_recorded"))

        async def is_answered() -> bool:
            request = DeleteGroupsRequest(groups_names=["g"])
            reply = await client.ask(request, DeleteGroupsResponse, 2)
            code = reply.results[0].error_code
            assert code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return not code or len(events.named("transaction_not_recorded")) > 2

        await until(has_failed)
        await until(is_answered)
        image = disk.after_kill()
        disk.refused = None

    async def check(client: WireClient, broker: Broker) -> None:
        again = Tx(client, "a", V2, tx.producer_id, tx.epoch)
        assert await again.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await stands(client, "h", "t", stable=True) == (0, -1)

    await restarted(image, check)  # in the same boot of the machine


async def test_a_transaction_whose_time_is_over_is_aborted_soon_after_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.transactions.transaction_upkeep.GRACE_MS", 10)
    disk = MemoryStorage()
    # A producer that is gone, and a broker that is killed more often than the timeout is long.
    async with (
        serving(storage=disk, now_ms=lambda: NOW_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx", V2)
        assert await tx.init(timeout_ms=600_000) == 0
        assert await tx.send("t", b"v") == 0
        image = disk.after_kill()
    for later_ms in (300_000, -300_000):  # half of it; by a clock that was set back, nothing
        clock = partial(int, NOW_MS + later_ms)
        async with serving(storage=image, now_ms=clock) as broker:
            left_ms = broker.core.transactions.table.open["tx"].deadline_ms - monotonic_ms()
            assert 600_000 - max(0, later_ms) - 60_000 < left_ms <= 600_000 - max(0, later_ms)
            image = image.after_kill()
    async with (
        serving(
            storage=image, now_ms=lambda: NOW_MS + 600_001, housekeeping_interval_ms=10
        ) as broker,
        connect(broker.address) as client,
    ):

        async def is_over() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_over)
        assert aborted(await read(client, "t")) == [(tx.producer_id, 0)]


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
