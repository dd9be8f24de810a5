"""A log is opened again after a failed sync while the loop has not heard yet what the WAL has done.

    append -> synced by the WAL -> `wal_synced` waits for the loop, which does something else
           -> a sync of the segment fails, its pages are gone -> opened again, in a lane

What the WAL has synced was promised, whether the loop knows or not; what it still has in its queue
will not be.
"""

from collections.abc import Callable
from typing import TypeAlias

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import StorageError
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import Frame

from .test_failures import TreacherousStorage, readable, write
from .tools import manager_on

Loop: TypeAlias = list[Callable[[], None]]
"""What waits for the loop."""


def begun(disk: TreacherousStorage) -> tuple[DiskManager, DiskHandler, Loop]:
    """A partition, and what waits for the loop from the beginning."""
    loop: Loop = []
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, call_soon=loop.append)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({}))
    return manager, manager.get_handler("t", 0), loop


def fail_and_recover(
    disk: TreacherousStorage, manager: DiskManager, handler: DiskHandler, loop: Loop
) -> None:
    """A sync of the segment fails, and the disk is sound from then on."""
    disk.fails = ("segment_",)
    assert not handler.wal_checkpoint()
    disk.fails = ()
    for second in range(5, 100):
        manager.housekeeping(second * 1_000)
    for job in loop:
        job()


def test_what_the_wal_has_synced_is_not_cut_though_the_loop_hears_of_it_late() -> None:
    disk = TreacherousStorage(forgets=True)
    manager, handler, loop = begun(disk)
    for number in range(3):
        write(handler, number)
    told: list[int] = []
    handler.on_high_watermark = lambda one: told.append(one.high_watermark)
    fail_and_recover(disk, manager, handler, loop)
    assert told[-1] == 3, "acknowledged"
    for image in (disk.after_kill(), disk.after_power_cut()):
        assert readable(manager_on(image).get_handler("t", 0)) == [0, 1, 2]


def test_what_was_acknowledged_before_the_wal_failed_as_well_is_not_cut() -> None:
    disk = TreacherousStorage(forgets=True)
    manager, handler, loop = begun(disk)
    write(handler, 0)
    write(handler, 1)
    disk.fails = ("/wal-",)
    write(handler, 2)  # given up
    disk.fails = ()
    fail_and_recover(disk, manager, handler, loop)
    assert handler.high_watermark == 2
    for image in (disk.after_kill(), disk.after_power_cut()):
        assert readable(manager_on(image).get_handler("t", 0))[:2] == [0, 1]


def test_what_was_still_in_the_queue_moves_no_high_watermark() -> None:
    # The writer takes it behind the opening, and in front of the BARRIER: nothing is left of it.
    disk = TreacherousStorage(forgets=True)
    manager, handler, loop = begun(disk)
    write(handler, 0)
    handler.sync()
    for job in loop:
        job()
    loop.clear()
    handler.flushes_on_append = False
    for number in range(1, 4):
        write(handler, number)
    journaling = handler._journaling
    wal, shard = manager.wal, journaling._shard
    barrier = wal.barrier

    def with_the_queue(topic_id: bytes, partition: int, end: Frame | None = None) -> None:
        shard._put(journaling)
        barrier(topic_id, partition, end)

    wal.barrier = with_the_queue  # type: ignore[method-assign]
    fail_and_recover(disk, manager, handler, loop)
    assert handler.read_only is None
    assert (handler.log_end_offset, handler.high_watermark) == (1, 1)
    write(handler, 9)
    assert handler.high_watermark == 1, "nobody has synced it"
    handler.flush_soon()
    loop[-1]()
    assert handler.high_watermark == 2


def test_a_log_of_which_promised_bytes_are_gone_waits_for_a_restart() -> None:
    disk = TreacherousStorage(forgets=True)
    manager, handler, loop = begun(disk)
    write(handler, 0)
    fail_and_recover(disk, manager, handler, loop)
    assert isinstance(handler.read_only, StorageError)
    again = manager_on(disk.after_kill()).get_handler("t", 0)
    assert readable(again) == [0]
    write(again, 1)
    assert again.high_watermark == 2
