"""A volume without room: what `/health/ready` and `broker status` say of it, and until when."""

import errno
import os

import trio

from segbroker.broker.readiness import why_not_ready
from segbroker.broker.server import Broker
from segbroker.cli.broker_status import concerns
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Space

from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from .conftest import Events, serving

NO_ROOM = f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"


class Volume(MemoryStorage):
    """Has room for so many files of the write-ahead log."""

    def __init__(self, wal_files: int) -> None:
        super().__init__()
        self.wal_files = wal_files
        self.free = 64 << 20

    def space(self, path: str) -> Space:
        return Space(128 << 20, self.free, None)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and "/wal/shard-00/" in path and not self.exists(path):
            if not self.wal_files:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.wal_files -= 1
        return super().open(path, create=create, read_only=read_only)


async def looks(client: WireClient) -> list[str]:
    return list(concerns(await client.ask_vendor(VendorKey.SERVER_INFO, {})))


async def until_ready(broker: Broker) -> None:
    with trio.fail_after(60):
        while await why_not_ready(broker.core):
            await trio.lowlevel.checkpoint()


async def test_a_log_that_never_had_room_for_a_file_needs_a_look_before_anybody_writes(
    events: Events,
) -> None:
    disk = Volume(wal_files=0)
    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):
        await becomes(lambda: bool(events.named("wal_file_not_made")))
        (why,) = await why_not_ready(broker.core)
        assert why.startswith(f"the write-ahead log cannot be written: {NO_ROOM}")
        (said,) = await looks(client)
        assert said.startswith(f"1 shard of the write-ahead log cannot be written: {NO_ROOM}")
        assert (await client.try_create("t"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert await why_not_ready(broker.core)
        disk.wal_files = 8
        await until_ready(broker)  # and nobody has written
        assert await looks(client) == []
        await client.create("t")


async def test_a_log_with_room_for_one_file_needs_a_look_from_when_that_is_full() -> None:
    disk = Volume(wal_files=1)
    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        assert await why_not_ready(broker.core) == []  # there is room in the file that it has
        written = 0
        with trio.fail_after(60):
            while (await client.produce("t", bytes(200_000))).error_code == ErrorCode.NONE:
                written += 1
        assert 1 < written < 6, "of 1 MiB"
        (why,) = [one for one in await why_not_ready(broker.core) if "write-ahead" in one]
        assert why.startswith(f"the write-ahead log cannot be written: {NO_ROOM}")
        assert any("write-ahead log cannot be written" in one for one in await looks(client))
        disk.wal_files = 8
        await until_ready(broker)
        assert await looks(client) == []
        row = await client.produce("t", bytes(200_000))
        assert row.error_code == ErrorCode.NONE
        assert row.base_offset >= written, "what was acknowledged is there"


async def test_a_full_volume_needs_a_look_though_every_partition_is_writable() -> None:
    disk = Volume(wal_files=8)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await looks(client) == []
        disk.free = 4_096
        assert await looks(client) == ["the volume is full: 4,096 bytes are free"]
        assert await why_not_ready(broker.core) == await looks(client)
