"""Whose turn it is to be cleaned: everyone's comes, whatever becomes of the others."""

import errno
from collections.abc import Generator

import pytest

from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.compaction import compacting
from segbroker.segments.compaction.cleaning import Cleaned, Limits, clean
from segbroker.segments.compaction.compacting import Compacting
from segbroker.segments.compaction.dirtiness import Dirt
from segbroker.segments.directory.cleaner import READS_MAX, Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.sealing import seal
from segbroker.segments.settings.topic_config import TopicConfig

from .compacted import COMPACT, NOW
from .tools import SMALL, append

BACKOFF_MS = 15_000


class Several:
    """A compacted topic of several partitions, and its cleaner."""

    def __init__(self, partitions: int) -> None:
        self.manager = DiskManager("/data", storage=MemoryStorage(), flushers=0, now_ms=NOW)
        self.manager.open()
        config = TopicConfig({**SMALL.overrides, **COMPACT})
        self.manager.create_topic("t", partitions, config)
        self.partitions = range(partitions)
        self.cleaner = Cleaner(self.manager, 1 << 30, 1 << 20, BACKOFF_MS)

    def compacting(self, partition: int) -> Compacting:
        return self.manager.get_handler("t", partition).compacting

    def write(self, partition: int, records: int = 2) -> None:
        """Records of one key, which lie in a sealed segment then."""
        handler = self.manager.get_handler("t", partition)
        for _ in range(records):
            batch = encode_batch([b"v"], keys=[b"k"], timestamps_ms=NOW)
            append(handler, memoryview(bytearray(batch)), NOW)
        with handler._log.append_lock:
            handler._log.roll(NOW)
        seal(handler._log)

    def cleanings(self) -> list[int]:
        return [self.compacting(partition).cleanings_count for partition in self.partitions]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Folders of the partitions whose cleaning fails."""
    folders: set[str] = set()

    def fail(log: PartitionLog, limits: Limits) -> Generator[int, None, Cleaned]:
        if log.paths.folder in folders:
            raise OSError(errno.EIO, "the disk fails here")
        return (yield from clean(log, limits))

    monkeypatch.setattr(compacting, "clean", fail)
    return folders


def test_partitions_that_cannot_be_cleaned_keep_no_other_from_it(failing: set[str]) -> None:
    several = Several(10)
    for partition in several.partitions:
        several.write(partition)
        if partition < 9:
            failing.add(several.manager.get_handler("t", partition)._log.paths.folder)
    for second in range(180):
        several.cleaner.step(NOW + 1_000 * second)
    assert several.cleanings() == [0] * 9 + [1]
    assert 9 < several.cleaner.statistics.failures <= 9 * 4, "tried again, and not all the time"


def test_a_partition_that_is_dirty_again_waits_for_those_that_were_dirty_with_it() -> None:
    several = Several(3)
    for partition in several.partitions:
        several.write(partition)
    several.cleaner.step(NOW)
    several.cleaner.step(NOW + 1_000)
    assert several.cleanings() == [1, 1, 1]
    several.cleaner.step(NOW + 2_000)
    assert not several.cleaner.is_running
    several.write(1)
    several.write(2)
    several.cleaner.reconfigure(1_000, 1 << 20, BACKOFF_MS)
    for second in range(20, 200):
        several.write(0, records=20)  # it is by far the dirtiest, also while it is cleaned
        several.cleaner.step(NOW + 1_000 * second)
    assert several.cleanings()[1:] == [2, 2]
    assert several.cleanings()[0] > 2


def test_one_look_is_enough_for_all_that_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    several = Several(60)
    for partition in several.partitions:
        several.write(partition)
    looks: list[int] = []
    wants = Compacting.wants

    def counted(self: Compacting, now_ms: int, age_ms: int | None) -> Dirt | None:
        looks.append(now_ms)
        return wants(self, now_ms, age_ms)

    monkeypatch.setattr(Compacting, "wants", counted)
    seconds = 0
    while several.cleanings() != [1] * 60:
        several.cleaner.step(NOW + 1_000 * seconds)
        seconds += 1
    assert len(looks) <= 3 * 60, "when it is found, when its turn has come, and at the end"


def test_what_is_gone_when_its_turn_has_come_is_passed_over() -> None:
    several = Several(2)
    for partition in several.partitions:
        several.write(partition)
    several.cleaner.step(NOW)
    assert several.cleaner.is_running, "it has found both, and read nothing yet"
    several.manager.delete_topic("t")
    config = TopicConfig({**SMALL.overrides, **COMPACT})
    several.manager.create_topic("t", 2, config)
    several.write(1)
    for second in range(1, 40):
        several.cleaner.step(NOW + 1_000 * second)
    assert several.cleanings() == [0, 1]


def test_a_step_is_as_short_where_segments_are_tiny() -> None:
    several = Several(1)
    for _ in range(40):
        several.write(0)
    steps = 0
    while several.cleanings() == [0]:
        several.cleaner.step(NOW + 1_000 * steps)
        steps += 1
    assert steps > 2 * 40 // READS_MAX, "each segment is read twice"
