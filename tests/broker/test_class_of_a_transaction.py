"""Transactions in a topic that becomes `fsync` while they are open, and a power cut: what another
class had acknowledged before it was synced is not vouched for before the change is complete."""

import pytest
import trio

from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.transactions import DECIDED, State

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect, values
from ..support.wire_transactions import V2, Tx, aborted, read, stands, until
from .conftest import NOT_BY_ITSELF_MS, serving

DURABILITIES = pytest.mark.parametrize("durability", ["disk", "memory"])


async def becomes(broker: Broker, durability: str) -> None:
    config = IncrementalAlterConfigsRequestConfig(
        name="durability", config_operation=0, value=durability
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name="t", configs=[config]
    )
    async with connect(broker.address) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == 0, answer


async def is_never_committed(client: WireClient, tx: Tx) -> None:
    again = Tx(client, "a", V2, tx.producer_id, tx.epoch)

    async def is_fenced() -> bool:
        code = await again.end(commit=True)
        assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.PRODUCER_FENCED)
        return code == ErrorCode.PRODUCER_FENCED

    await until(is_fenced)
    assert await stands(client, "g", "sound", stable=True) == (0, -1)


async def killed_before_an_abort(image: MemoryStorage) -> MemoryStorage:
    """What a process leaves that has begun with this and whose decisions cannot be written."""
    disk = GatedStorage(image)
    disk.refused = DECIDED.encode()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.produce("t", b"of somebody else")
        killed = disk.after_kill()
        disk.refused = None
    return killed


@DURABILITIES
@pytest.mark.parametrize("asks", ["before", "behind", "never"])
@pytest.mark.parametrize("first", ["of-it", "of-fsync"])
@pytest.mark.parametrize("dies", [False, True])
async def test_what_a_power_cut_took_while_the_class_changed_is_never_committed_without_it(
    durability: str, asks: str, first: str, dies: bool
) -> None:
    """asks: when its producer wants it committed.  first: of which class the topic was at first: of
    what was `fsync` the write-ahead log has something, so a start opens it.  dies: the next
    process, too, when the partition is open and nothing is aborted."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability=durability if first == "of-it" else "fsync")
        await client.produce("t", b"of somebody else")
        await becomes(broker, durability)
        await client.create("sound")
        tx = Tx(client, "a", V2)
        assert await tx.init() == 0
        assert await tx.send("sound", b"s") == 0
        assert await tx.send("t", b"is not synced") == 0
        assert await tx.stage("g", "sound", 5) == 0
        is_held = disk.hold("/data/topics/t/")
        before, ended = Tx(client, "a", V2, tx.producer_id, tx.epoch), []

        async def end() -> None:
            ended.append(await tx.end(commit=True))

        async def is_decided_or_waits_for_the_disk() -> bool:
            transactions = broker.core.transactions
            known = transactions.table.get("a")
            assert known is not None
            waits = transactions._ledger._markers._syncing.borrowed_tokens > 0
            return known.state is not State.ONGOING or waits

        async with trio.open_nursery() as nursery:
            nursery.start_soon(becomes, broker, "fsync")
            await trio.to_thread.run_sync(is_held.wait)
            if asks == "before":
                nursery.start_soon(end)
                await until(is_decided_or_waits_for_the_disk)
            image = disk.after_power_cut()
            disk.release()
        if asks == "before":
            assert ended == [0]
            assert values(await read(client, "t"))[1:2] == [b"is not synced"]
    if dies:
        image = await killed_before_an_abort(image)
    async with (
        serving(storage=image, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):

        async def is_aborted() -> bool:
            return aborted(await read(client, "sound")) == [(tx.producer_id, 0)]

        if asks != "never":
            await is_never_committed(client, before)
        await until(is_aborted)
