"""A log against a model of thirty lines, through every operation in any order.

The model is the list of batches, the start, and what each producer sent last.  Class `fsync`: what
was appended is durable when `append` returns, so a power cut changes nothing the model knows.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segbroker.protocol.record_batch import GapReason, decode_batch, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.deleting import evict, unlink_doomed
from segbroker.segments.log.sealing import seal
from segbroker.segments.partition.handler import DiskHandler

from ..support.extent import share
from .tools import SMALL, append, batch_of, read_from

pytestmark = pytest.mark.timeout(900)  # some seconds on a quiet machine

VALUES = st.lists(st.binary(max_size=120), min_size=1, max_size=3)
OFFSETS = st.integers(0, 60)
Batch = tuple[int, list[bytes]]


def batches_in(data: bytes | memoryview) -> list[Batch]:
    return [
        (read_header(batch).base_offset, [record.value or b"" for record in decode_batch(batch)])
        for batch in iter_batches(data)
    ]


class Model:
    """What a log must say."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.floor = 0

    @property
    def end(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else 0

    def append(self, values: list[bytes]) -> int:
        base = self.end
        self.batches.append((base, values))
        return base

    def truncate(self, offset: int) -> int:
        self.batches = [b for b in self.batches if b[0] + len(b[1]) <= offset]
        return self.end

    def from_offset(self, offset: int) -> list[Batch]:
        return [b for b in self.batches if b[0] + len(b[1]) > offset]


def check_read(found: list[Batch], size: int, expected: list[Batch], max_bytes: int) -> None:
    assert found == expected[: len(found)]
    assert bool(found) == bool(expected)
    assert size <= max_bytes or len(found) == 1


class PartitionMachine(RuleBasedStateMachine):
    """DiskHandler through DiskManager, with producers, restarts and power cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.sequences: dict[int, tuple[int, int, int]] = {}
        self.now_ms = 1_000
        self.disk = MemoryStorage()
        self._open(self.disk)
        self.manager.create_topic("t", 1, SMALL)

    def _open(self, disk: MemoryStorage) -> None:
        self.disk = disk
        self.manager = DiskManager("/data", storage=disk, flushers=0, now_ms=self.now_ms)
        self.manager.open()

    @property
    def handler(self) -> DiskHandler:
        return self.manager.get_handler("t", 0)

    @rule(values=VALUES)
    def append(self, values: list[bytes]) -> None:
        result = append(self.handler, batch_of(*values), self.now_ms)
        assert result.base_offset == self.model.append(values)

    @rule(values=VALUES, producer=st.integers(0, 1))
    def append_with_producer(self, values: list[bytes], producer: int) -> None:
        _, _, sequence = self.sequences.get(producer, (0, 0, 0))
        batch = batch_of(*values, now_ms=self.now_ms, producer=(producer, 0, sequence))
        result = append(self.handler, batch, self.now_ms)
        base = self.model.append(values)
        assert (result.base_offset, result.duplicate) == (base, False)
        self.sequences[producer] = (base, len(values), sequence + len(values))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def repeat_the_last_of_a_producer(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.sequences)))
        base, count, following = self.sequences[producer]
        batch = batch_of(
            *(count * [b"again"]), now_ms=self.now_ms, producer=(producer, 0, following - count)
        )
        result = append(self.handler, batch, self.now_ms)
        assert (result.base_offset, result.duplicate) == (base, True)

    @rule(offset=OFFSETS, max_bytes=st.integers(1, 3_000))
    def read(self, offset: int, max_bytes: int) -> None:
        if self.model.start <= offset <= self.model.end:
            data = read_from(self.handler, offset, max_bytes)
            check_read(batches_in(data), len(data), self.model.from_offset(offset), max_bytes)

    @rule(offset=OFFSETS)
    def delete_records(self, offset: int) -> None:
        if offset <= self.model.end:
            self.model.start = max(self.model.start, offset)
            assert self.handler.delete_records_before(offset) == self.model.start

    @rule(count=st.integers(1, 3))
    def evict(self, count: int) -> None:
        log = self.handler._log
        seal(log)
        if len(log.sealed):
            end = log.sealed.end_of(min(count, len(log.sealed)) - 1)
            if end > self.model.start:
                self.model.start = self.model.floor = end
            assert evict(log, count, GapReason.CAP) == self.model.start
            unlink_doomed(log, 1)

    @rule()
    def close_and_open(self) -> None:
        self.manager.close()
        self._open(self.disk)

    @rule()
    def kill(self) -> None:
        self._open(self.disk.after_kill())

    @rule()
    def cut_the_power(self) -> None:
        self._open(self.disk.after_power_cut())

    @rule()
    def lose_every_index(self) -> None:
        disk = self.disk.after_kill()
        folder = "/data/topics/t/partition_0"
        for name in disk.listdir(folder):
            if name.endswith(".index"):
                disk.unlink(f"{folder}/{name}")
        self._open(disk)

    @rule(ms=st.sampled_from([1, 60, 2_000]))
    def let_time_pass(self, ms: int) -> None:
        self.now_ms += ms
        self.manager.housekeeping(self.now_ms)
        self.manager.open_logs.open_max = 0
        self.manager.open_logs.park_surplus()

    @invariant()
    def the_floors_agree(self) -> None:
        handler = self.handler
        assert (handler.evict_floor, handler.log_start_offset) == (
            self.model.floor,
            self.model.start,
        )

    @invariant()
    def the_ends_agree(self) -> None:
        handler = self.handler
        assert handler.log_start_offset == self.model.start
        assert handler.log_end_offset == handler.high_watermark == self.model.end

    def teardown(self) -> None:
        self.manager.close()


class LibraryMachine(RuleBasedStateMachine):
    """SegmentedLog, with truncation."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self._open(MemoryStorage())

    def _open(self, disk: MemoryStorage) -> None:
        self.disk = disk
        self.log = SegmentedLog.open(disk, "/log", "t", SMALL, now_ms=1_000)

    @rule(values=VALUES)
    def append(self, values: list[bytes]) -> None:
        assert self.log.append(list(values), now_ms=1_000) == self.model.append(values)

    @rule(offset=OFFSETS, max_bytes=st.integers(1, 3_000))
    def read(self, offset: int, max_bytes: int) -> None:
        if self.model.start <= offset <= self.model.end:
            data = self.log.read(offset, max_bytes)
            check_read(batches_in(data), len(data), self.model.from_offset(offset), max_bytes)

    @rule(offset=OFFSETS)
    def truncate(self, offset: int) -> None:
        if self.model.start <= offset <= self.model.end:
            assert self.log.truncate(offset, now_ms=1_000) == self.model.truncate(offset)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self._open(self.disk)

    @rule()
    def cut_the_power(self) -> None:
        self._open(self.disk.after_power_cut())

    @rule()
    def kill(self) -> None:
        self._open(self.disk.after_kill())

    @invariant()
    def all_of_it_is_there(self) -> None:
        assert self.log.log_end_offset == self.model.end
        values = [value for _, batch in self.model.batches for value in batch]
        assert [record.value for record in self.log.stream()] == values


QUICK = settings(max_examples=share(150, 500), stateful_step_count=30, deadline=None)
TestPartitions = PartitionMachine.TestCase
TestPartitions.settings = QUICK
TestLibrary = LibraryMachine.TestCase
TestLibrary.settings = QUICK
