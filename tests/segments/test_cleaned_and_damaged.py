"""What a cleaning took does not come back when the segment that it wrote is damaged, though the
write-ahead log still has it: not even where the cleaning was ended before it said how far it got.
Put where it once stood, it would make another segment of it, of which nothing is believed.

| a a b c | a a ... |  ->  | gap, b c | a a ... |   the clean point stays at 0, and the first rots
"""

import pytest

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.errors import CorruptSegment

from .compacted import Compacted
from .tools import flip

LOG_0 = "/data/topics/t/partition_0/t_partition_0_segment_0.log"


def half_cleaned() -> Compacted:
    """Three segments; the first was written anew, and the cleaning came no further."""
    log = Compacted(MemoryStorage())
    for number in range(3):
        for key in (b"a", b"a", b"b%d" % number, b"c%d" % number):
            log.send((key, bytes(30)))
        log.seal()
    size = len(read_file(log.disk, LOG_0))
    running = log.handler.compacting.clean(log.now_ms, log.now_ms, 1 << 20)
    while len(read_file(log.disk, LOG_0)) == size:
        assert next(running, None) is not None, "it goes on"
    running.close()
    assert log.handler.compacting.clean_offset == 0
    return log


@pytest.mark.parametrize("then", ["in use", "killed"])
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_what_a_cleaning_took_does_not_come_back(policy: str, then: str) -> None:
    log = half_cleaned()
    if policy != "compact":
        log.manager.alter_topic("t", {**log.config.overrides, "cleanup.policy": policy})
    if then == "killed":
        log.disk = log.disk.after_kill()
    for position in (30, len(read_file(log.disk, LOG_0)) - 10):  # in the gap, and in c
        flip(log.disk, LOG_0, position)
    if then == "killed":
        log.open()
    log.handler.check_segment(CorruptSegment(LOG_0, 0, "what the scrub found"))
    assert [record.offset for record in log.records()] == [2, *range(4, 12)], "b was whole"
    assert not [row for row in log.manager.report.rows if row.what == "replayed"]
