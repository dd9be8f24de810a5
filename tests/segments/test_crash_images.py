"""No acked record is lost on any disk that a power cut may leave, and no loss is silent.

Scenarios of at most twelve records; at each of their operations every image of crash_images is
recovered, checked, appended to, cut off once more and read again.  The harness is proved by
planting bugs: each sync left out must be noticed.
"""

from collections.abc import Callable

import pytest

from segbroker.protocol.record_batch import read_header
from segbroker.segments.log import SegmentedLog
from segbroker.segments.memory import MemoryStorage
from segbroker.segments.storage import Storage
from segbroker.segments.topic_config import TopicConfig

from .crash_images import RecordingStorage
from .tools import SMALL, values_of

DISK = TopicConfig({**SMALL.overrides, "durability": "disk"})


def open_log(disk: Storage, config: TopicConfig = SMALL) -> SegmentedLog:
    return SegmentedLog.open(disk, "/log", "t", config, now_ms=1_000)


def value(number: int) -> bytes:
    return b"record %03d " % number + b"x" * (number % 3 * 60)


class Scenario:
    """What has been acked so far, and what may be there."""

    def __init__(self, disk: RecordingStorage, config: TopicConfig) -> None:
        self.disk = disk
        self.config = config
        self.images = 0
        self.acked = 0
        self.sent = 0
        self.start = 0
        disk.on_operation = self.check_all

    def append(self, log: SegmentedLog, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            log.append([value(self.sent - 1)], now_ms=1_000 + self.sent)
            if self.config.durability.value == "fsync":
                self.acked = self.sent

    def check_all(self, disk: RecordingStorage) -> None:
        for image in disk.images():
            self.images += 1
            self.check(image)

    def check(self, image: MemoryStorage) -> None:
        log = open_log(image, self.config)
        end = log.log_end_offset
        assert self.acked <= end <= self.sent
        assert log.log_start_offset <= self.start
        accounted = log.log_start_offset
        for batch in log.batches():
            header = read_header(batch)
            assert header.base_offset == accounted  # a record or a gap: nothing is silent
            assert not (header.is_control and header.base_offset < self.acked)
            accounted = header.next_offset
        assert accounted == end
        for record in log.stream():
            assert record.value == value(record.offset)
        before = values_of(log)
        assert log.append([b"more"], now_ms=2_000) == end
        log.sync()
        again = open_log(image.after_power_cut(), self.config)
        assert values_of(again) == [*before, b"more"]


def grow(scenario: Scenario) -> None:
    """Three segments, closed in order, opened again."""
    log = open_log(scenario.disk, scenario.config)
    scenario.append(log, 6)
    log.close()
    scenario.acked = scenario.sent  # closing syncs
    log = open_log(scenario.disk, scenario.config)
    scenario.append(log, 3)


def delete(scenario: Scenario) -> None:
    """Old segments go while new ones come."""
    log = open_log(scenario.disk, scenario.config)
    scenario.append(log, 7)
    scenario.start = scenario.sent
    log.expire(1_004, now_ms=2_000)
    scenario.append(log, 2)
    log.close()


def sync_late(scenario: Scenario) -> None:
    """Several segments with nothing synced in between."""
    log = open_log(scenario.disk, scenario.config)
    scenario.append(log, 5)
    log.sync()
    scenario.acked = scenario.sent
    scenario.append(log, 5)
    log.close()


@pytest.mark.parametrize("config", [SMALL, DISK], ids=["fsync", "disk"])
@pytest.mark.parametrize("script", [grow, delete, sync_late])
def test_nothing_acked_is_lost_on_any_disk_a_power_cut_may_leave(
    script: Callable[[Scenario], None], config: TopicConfig
) -> None:
    scenario = Scenario(RecordingStorage(), config)
    script(scenario)
    assert scenario.images > 200


@pytest.mark.parametrize(
    "broken",
    [("fdatasync", "_0.log"), ("fdatasync", "_1.log"), ("fsync_dir", "/log")],
)
def test_a_sync_that_is_left_out_is_noticed(broken: tuple[str, str]) -> None:
    scenario = Scenario(RecordingStorage(broken), SMALL)
    with pytest.raises(AssertionError):
        grow(scenario)
