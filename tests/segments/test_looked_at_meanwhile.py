"""An operator has looked (on.corruption=gap) at the moment in which damage is found, or while the
disk does not let what marks it be removed."""

import errno
from collections import deque
from collections.abc import Callable

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import CorruptSegment, PartitionDamaged
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crash.recording import Fault, RecordingStorage
from .test_damage import FOLDER, LOG_1, readable
from .tools import SMALL, append, as_after_a_checkpoint, batch_of, flip

MARK = f"{FOLDER}/t_partition_0.damaged"
GAP = {**SMALL.overrides, "on.corruption": "gap"}


def partition_on(
    disk: MemoryStorage, config: TopicConfig
) -> tuple[DiskManager, DiskHandler, deque[Callable[[], object]]]:
    """Of fifteen batches, and what the loop has yet to hear."""
    told: deque[Callable[[], object]] = deque()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, call_soon=told.append)
    manager.open()
    manager.create_topic("t", 1, config)
    handler = manager.get_handler("t", 0)
    as_after_a_checkpoint(manager)
    for number in range(15):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    hear(told)
    as_after_a_checkpoint(manager)
    return manager, handler, told


def hear(told: deque[Callable[[], object]]) -> None:
    while told:
        told.popleft()()


@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_who_has_looked_before_the_loop_heard_of_the_damage_may_write(policy: str) -> None:
    disk = MemoryStorage()
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    manager, handler, told = partition_on(disk, config)
    flip(disk, LOG_1, 200)
    handler.check_segment(CorruptSegment(LOG_1, 0, "what the scrub found"))
    manager.alter_topic("t", GAP)
    hear(told)
    assert handler.read_only is None
    assert append(handler, batch_of(b"more")).base_offset == 15
    hear(told)
    assert 15 in readable(handler)


def test_a_mark_that_cannot_be_removed_keeps_nobody_from_writing() -> None:
    disk = RecordingStorage()
    manager, handler, told = partition_on(disk, SMALL)
    manager.set_topic_defaults({"on.corruption": "readonly"})
    flip(disk, LOG_1, 200)
    handler.check_segment(CorruptSegment(LOG_1, 0, "what the scrub found"))
    hear(told)
    assert isinstance(handler.read_only, PartitionDamaged)
    disk.faults.append(Fault("unlink", ".damaged", 0, errno.EIO, lasts=True))
    disk.counts[0] = 0
    manager.set_topic_defaults({"on.corruption": "gap"})
    hear(told)
    assert disk.counts[0] > 0, "the failure was met"
    assert append(handler, batch_of(b"more")).base_offset == 15
    assert disk.exists(MARK)
    again = DiskManager("/data", storage=disk.after_kill(), flushers=0, now_ms=1_000)
    again.open()
    assert append(again.get_handler("t", 0), batch_of(b"more")).base_offset == 16
    assert not again.storage.exists(MARK)
