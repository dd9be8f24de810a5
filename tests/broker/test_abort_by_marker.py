"""WriteTxnMarkers: an administrator ends what a producer has open in a partition."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.metadata.transactions import State

from ..support.wire_client import WireClient, connect, values
from ..support.wire_transactions import NOW_MS, V1, VERSIONS, Tx, aborted, read, some, stands, until
from .conftest import NOT_BY_ITSELF_MS, Events, serving


async def abort(
    client: WireClient,
    producer_id: int,
    epoch: int,
    *,
    topic: str = "t",
    partitions: tuple[int, ...] = (0,),
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int | None = None,
) -> list[int]:
    """Ask for markers in partitions of a topic; their codes.

    transaction_version: None in a version of the request that does not say it.
    """
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequestMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[WriteTxnMarkersRequestTopic(name=topic, partition_indexes=[*partitions])],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version or 0,
            )
        ]
    )
    reply = await client.ask(
        request, WriteTxnMarkersResponse, 1 if transaction_version is None else 2
    )
    (marker,) = reply.markers
    (row,) = marker.topics
    assert (marker.producer_id, row.name) == (producer_id, topic)
    return [one.error_code for one in row.partitions]


async def hung(broker: Broker, producer_id: int, epoch: int = 0) -> None:
    """A transaction of which nobody knows, as a marker that was lost leaves it."""
    partition = await broker.core.topics.open("t", 0)
    assert partition is not None
    batch = encode_batch(
        [b"hangs"], timestamps_ms=NOW_MS, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=0, transactional=True,
    )  # fmt: skip
    partition.append(memoryview(bytearray(batch)), check_batch(batch), NOW_MS)


@VERSIONS
async def test_a_transaction_that_is_known_is_aborted_in_all_partitions_and_its_producer_fenced(
    version: int, events: Events
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for topic in ("t", "u"):
            await client.create(topic)
        (tx,) = await some(client, version, "a")
        assert await tx.send("u", b"u") == 0
        assert await tx.stage("g", "t", 3) == 0
        for _ in range(2):  # the answer was lost: asked again, it is the same
            assert await abort(client, tx.producer_id, tx.epoch) == [0]
        (event,) = events.named("transaction_aborted_on_demand")
        assert (event["transactional_id"], event["partitions"]) == ("a", 2)
        image = disk.after_kill()
    for storage in (disk, image):
        async with serving(storage=storage) as broker, connect(broker.address) as client:
            for topic in ("t", "u"):
                row = await read(client, topic)
                assert row.last_stable_offset == row.high_watermark == 2
                assert aborted(row) == [(tx.producer_id, 0)]
            assert await stands(client, "g", "t", stable=True) == (0, -1)
            again = Tx(client, "a", version, tx.producer_id, tx.epoch, dict(tx.sequences))
            assert await again.end(commit=True) == ErrorCode.PRODUCER_FENCED
            assert await again.send("t", b"w", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
            # It may begin anew, and nothing that is asked again ends what it has open then.
            assert await again.init() == 0
            assert await again.send("t", b"new") == 0
            assert await abort(client, tx.producer_id, tx.epoch) == [
                ErrorCode.INVALID_PRODUCER_EPOCH
            ]
            assert await again.end(commit=True) == 0


async def test_what_hangs_is_ended_in_its_partition_and_nowhere_else() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await hung(broker, 77, epoch=4)
        await client.produce("t", b"behind it")
        assert (await read(client, "t")).last_stable_offset == 0
        assert await abort(client, 77, 3) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await abort(client, 77, 4, commit=True) == [ErrorCode.INVALID_REQUEST]
        assert await abort(client, 78, 4) == [0], "nothing of it is open"
        assert (await read(client, "t")).last_stable_offset == 0
        # As Kafka's tool asks where no marker has said a coordinator's epoch yet: 0, or -1.
        assert await abort(client, 77, 4, coordinator_epoch=-1) == [0]
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        row = await read(client, "t")
        assert row.last_stable_offset == row.high_watermark == 3
        assert aborted(row) == [(77, 0)]
        assert await abort(client, 77, 4) == [0], "as after the first time"
        assert (await read(client, "t")).high_watermark == 3


@pytest.mark.parametrize(
    ("transaction_version", "epoch", "code"),
    [
        (0, 4, ErrorCode.NONE),
        (1, 4, ErrorCode.NONE),
        (2, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, ErrorCode.NONE),
        (2, 32_767, ErrorCode.NONE),
    ],
)
async def test_the_marker_of_a_transaction_of_version_2_has_an_epoch_above_it(
    transaction_version: int, epoch: int, code: ErrorCode
) -> None:
    """KIP-1228; there is none above the last one."""
    of = 32_767 if epoch == 32_767 else 4
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await hung(broker, 77, epoch=of)
        for _ in range(2):  # the second time as after the first
            codes = await abort(client, 77, epoch, transaction_version=transaction_version)
            assert codes == [code]
        row = await read(client, "t")
        assert row.last_stable_offset == (0 if code else row.high_watermark)


async def test_what_cannot_be_aborted_is_said_partition_by_partition() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        (tx,) = await some(client, V1, "a")
        assert await tx.end(commit=True) == 0
        codes = await abort(
            client, tx.producer_id, tx.epoch, partitions=(0, 1, 2, 0), coordinator_epoch=-1
        )
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert codes == [fenced, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        unknown = await abort(client, tx.producer_id, tx.epoch, topic="nowhere")
        assert unknown == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_what_is_being_committed_is_not_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        (tx,) = await some(client, V1, "a")
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        assert await tx.end(commit=True) == 0
        codes = await abort(client, tx.producer_id, tx.epoch)
        assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS]
        handler.read_only = None

        async def is_whole() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_whole)
        assert aborted(await read(client, "t")) == []


async def test_a_marker_that_cannot_be_written_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await hung(broker, 77)
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        with monkeypatch.context() as patched:
            patched.setattr("segbroker.broker.apis.marker_apis.WAIT_SECONDS", 0.1)
            assert await abort(client, 77, 0) == [ErrorCode.REQUEST_TIMED_OUT]
        handler.read_only = None
        assert await abort(client, 77, 0) == [0]


async def test_a_marker_that_comes_late_does_not_abort_what_its_producer_has_begun_since() -> None:
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        (tx,) = await some(client, V1, "a")
        # As after damage: the log has it open, the coordinator has not.
        table = broker.core.transactions.table
        known = table.entries["a"].known
        assert known is not None
        table.stands(table.entries["a"], known._replace(state=State.COMPLETE_ABORT, partitions={}))
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        codes: list[int] = []
        async with connect(broker.address) as other, trio.open_nursery() as nursery:

            async def ask() -> None:
                codes.extend(await abort(other, tx.producer_id, tx.epoch))

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.05)
            assert await tx.add("t", 0) == [0]
            handler.read_only = None
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "it is open: to be asked again"
        assert await tx.send("t", b"b") == 0
        assert await tx.end(commit=True) == 0
        row = await read(client, "t")
        assert aborted(row) == []
        assert b"b" in values(row)
