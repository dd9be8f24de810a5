"""Plain producers on the express way while the disk fails, fills up and loses its power.

Real sockets, a disk in memory.  A seed draws what is sent, which calls fail, and when the power
goes; not the interleaving, which is the machine's.  Every value is sent once and never again.

| at each power cut, and at the end | |
|---|---|
| acknowledged before | is there, under its offset |
| there | was sent to this partition, and is there once |
| after the faults | every partition takes records again, and everybody is answered |
"""

import errno
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import trio

from segbroker.broker.server import Broker
from segbroker.protocol.messages_core import ProduceResponse
from segbroker.protocol.record_batch import decode_batch, iter_batches, read_header
from segbroker.protocol.schema import records_view
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer

from ..support.wire_client import Closed, WireClient, batch, connect, produce_request
from .conftest import serving

PARTITIONS = 2
PRODUCERS = 5
ROUNDS = 40
CUTS_MAX = 8
Place = tuple[int, int]
"""Partition and offset."""


class FaultyDisk(MemoryStorage):
    """Of the next writes and syncs a share fails, as long as `error` says how."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.error = 0
        self.failed = 0
        self._rng = rng

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _FaultyFile(path, plain._inode, self)
        file.disk = self
        return file

    def call(self, path: str) -> None:
        if self.error and self._rng.random() < 0.3:
            self.failed += 1
            raise OSError(self.error, "planted", path)

    @contextmanager
    def failing(self, error: int) -> Iterator[None]:
        self.error = error
        try:
            yield
        finally:
            self.error = 0


class _FaultyFile(MemoryFile):
    disk: FaultyDisk

    def pwrite(self, data: Buffer, position: int) -> int:
        self.disk.call(self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        if self.disk.error != errno.ENOSPC:  # a full disk syncs what it has
            self.disk.call(self.path)
        super().fdatasync()


@dataclass
class Seen:
    """What producers did and were told."""

    sent: dict[bytes, int] = field(default_factory=dict)
    acked: dict[Place, bytes] = field(default_factory=dict)
    refused: int = 0
    lost: int = 0
    faults: int = 0
    """Stretches of time in which some call failed."""
    cuts: list[tuple[MemoryStorage, dict[Place, bytes]]] = field(default_factory=list)


async def _produce(name: str, broker: Broker, rng: random.Random, seen: Seen) -> None:
    """Rounds of a few requests at once; connections that are closed are made again."""
    number = 0
    while number < ROUNDS or not seen.faults:
        try:
            async with connect(broker.address, client_id=name) as client:
                while number < ROUNDS or not seen.faults:
                    number += 1
                    refused = seen.refused
                    await _round(f"{name}/{number}", client, rng, seen)
                    pause_s = 0.1 if seen.refused > refused else rng.choice((0, 0.002, 0.01))
                    await trio.sleep(pause_s)
        except (Closed, OSError, trio.BrokenResourceError):
            seen.lost += 1


async def _round(name: str, client: WireClient, rng: random.Random, seen: Seen) -> None:
    asked: list[tuple[int, int, bytes]] = []
    for place in range(rng.choice((1, 3, 20))):
        value = f"{name}/{place}".encode() + bytes(rng.choice((0, 10, 400)))
        partition = rng.randrange(PARTITIONS)
        seen.sent[value] = partition
        request = produce_request("t", batch(value), partition=partition)
        asked.append((await client.send(request, 9), partition, value))
    for expected, partition, value in asked:
        with trio.fail_after(60):
            correlation_id, reply = await client.receive(ProduceResponse, 9)
        assert correlation_id == expected, "a reply to something else"
        row = reply.responses[0].partition_responses[0]
        if row.error_code:
            seen.refused += 1
        else:
            assert (partition, row.base_offset) not in seen.acked, "one offset for two records"
            seen.acked[partition, row.base_offset] = value


async def _nemesis(disk: FaultyDisk, rng: random.Random, seen: Seen) -> None:
    """Faults, each with a power cut in it or behind it, or neither."""
    while True:
        await trio.sleep(rng.uniform(0.01, 0.1))
        before, failed = len(seen.acked), disk.failed
        with disk.failing(rng.choice((errno.EIO, errno.EIO, errno.ENOSPC))):
            await trio.sleep(rng.uniform(0.005, 0.03))
            if rng.random() < 0.5:
                _cut_power(disk, seen)
        seen.faults += disk.failed > failed
        with trio.move_on_after(5):  # it takes records again
            while len(seen.acked) < before + 5:  # noqa: ASYNC110 - no event tells it
                await trio.sleep(0.01)
        if rng.random() < 0.3:
            _cut_power(disk, seen)


def _cut_power(disk: FaultyDisk, seen: Seen) -> None:
    if len(seen.cuts) < CUTS_MAX:
        acked = dict(seen.acked)  # first: what was told by now has to be there
        seen.cuts.append((disk.after_power_cut(), acked))


async def _content(client: WireClient) -> dict[Place, bytes]:
    """Every record of every partition, read back."""
    found: dict[Place, bytes] = {}
    for partition in range(PARTITIONS):
        offset = 0
        row = await client.fetch("t", offset, partition=partition)
        while row.high_watermark > offset:
            for one in iter_batches(records_view(row.records or b"")):
                header = read_header(one)
                if not header.is_control:
                    for record in decode_batch(one):
                        assert record.value is not None
                        found[partition, record.offset] = record.value
                offset = header.next_offset
            row = await client.fetch("t", offset, partition=partition)
    return found


def _judge(found: dict[Place, bytes], acked: dict[Place, bytes], seen: Seen) -> None:
    missing = {place: value for place, value in acked.items() if found.get(place) != value}
    assert not missing, "acknowledged, and not there under its offset"
    times: defaultdict[bytes, int] = defaultdict(int)
    for (partition, _), value in found.items():
        assert seen.sent[value] == partition, "nobody sent this here"
        times[value] += 1
    assert max(times.values(), default=1) == 1, "a record is there twice"


@pytest.mark.parametrize("seed", range(1, 4))
async def test_what_the_express_way_acknowledged_survives_faults_and_power_cuts(seed: int) -> None:
    rng = random.Random(seed)
    disk, seen = FaultyDisk(random.Random(-seed)), Seen()
    async with serving(storage=disk, housekeeping_interval_ms=100) as broker:
        async with connect(broker.address) as admin:
            await admin.create("t", partitions=PARTITIONS, durability="fsync")
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_nemesis, disk, rng, seen)
                async with trio.open_nursery() as producing:
                    for number in range(PRODUCERS):
                        own = random.Random(f"{seed}/{number}")
                        producing.start_soon(_produce, f"p{number}", broker, own, seen)
                nursery.cancel_scope.cancel()
        disk.error = 0
        with trio.fail_after(120):
            async with connect(broker.address) as client:
                for partition in range(PARTITIONS):
                    await _takes_again(client, partition, seen)
                _judge(await _content(client), seen.acked, seen)
        way = broker.express
        assert way is not None
        assert way.requests > 0, "nothing went the express way"
    assert seen.faults
    assert seen.acked
    seen.cuts.append((disk.after_power_cut(), dict(seen.acked)))
    for image, acked in seen.cuts:
        async with serving(storage=image) as again, connect(again.address) as client:
            _judge(await _content(client), acked, seen)


async def _takes_again(client: WireClient, partition: int, seen: Seen) -> None:
    """Whatever failed comes back by itself."""
    number = 0
    while True:
        value = f"calm/{partition}/{number}".encode()
        seen.sent[value] = partition
        row = await client.produce("t", value, partition=partition)
        if not row.error_code:
            seen.acked[partition, row.base_offset] = value
            return
        number += 1
        await trio.sleep(0.05)
