"""Failures of the write-ahead log: writes, syncs, mistakes of ours; what fails, the way back."""

import errno
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import WalFile
from segbroker.segments.wal.frames import FRAMES_BEGIN, OVERHEAD, Frame
from segbroker.segments.wal.journal import Wal

from ..support.gated_storage import GatedStorage
from .crash.observing import see_handler
from .crash.recording import Fault, RecordingStorage
from .tools import append, batch_of
from .wal_writing import (
    ROOT,
    SMALL,
    TOPIC,
    FailingStorage,
    Writer,
    at_once,
    begun,
    content,
    replayed,
    until,
)


def test_a_failed_sync_acks_nothing_and_is_never_tried_again() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    one, two = Writer(wal, 1), Writer(wal, 2)
    one.append(b"kept")
    disk.fail_sync = errno.EIO
    one.append(b"lost")
    disk.fail_sync = 0
    disk.calls.clear()
    two.append(b"late")
    assert (one.durable, two.durable) == (4, 0)
    assert one.failures[0].errno == two.failures[0].errno == errno.EIO
    assert disk.calls == [], "neither written nor synced"
    with pytest.raises(OSError, match="planted"):
        wal.control(b"event")()
    wal.revive()
    two.append(b"more")
    wal.control(b"event")()
    assert ("fdatasync", f"{ROOT}/shard-00/wal-0.log") not in disk.calls, "that one never again"


def test_after_a_write_without_space_the_shard_goes_on_in_another_file() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    assert writer.failures[0].errno == errno.ENOSPC
    shard = wal.shard_of(TOPIC, 0)
    disk.fail_write = 0
    disk.calls.clear()
    shard.revive()
    assert ("fdatasync", f"{ROOT}/shard-00/wal-0.log") not in disk.calls
    writer.append(b"more")
    assert writer.durable == 12
    found = replayed(disk.after_power_cut())
    assert content(found) == b"keptmore"
    assert not found.missing, "what was given up is not missed"


def test_frames_that_are_lost_behind_a_failure_that_passed_are_missed() -> None:
    # |kept|lost|  a full disk   | given up, one | two | three |   in the next file; two is gone
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    disk.fail_write = 0
    wal.shard_of(TOPIC, 0).revive()
    for data in (b"111", b"222", b"333"):
        writer.append(data)
    file = disk.open(f"{ROOT}/shard-00/wal-1.log")
    file.pwrite(bytes(OVERHEAD + 3), FRAMES_BEGIN + 2 * OVERHEAD + 3)
    found = replayed(disk)
    assert content(found) == b"kept111333"
    (missing,) = found.missing
    assert (missing.frames, missing.durable) == (1, True)


def test_a_file_that_failed_is_not_used_again() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    disk.fail_write = 0
    wal.shard_of(TOPIC, 0).revive()
    assert writer.checkpoints == 0
    wal.checkpoint()
    assert writer.checkpoints == 1
    assert disk.listdir(f"{ROOT}/shard-00") == ["wal-1.log", "wal-2.log"]


def test_a_failed_file_is_given_up_once_however_often_it_takes_to_get_another() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    for _ in range(3):  # the first one has the file that was made ahead
        with pytest.raises(OSError, match="planted"):
            wal.revive()
        writer.append(b"lost, too")
    disk.fail_write = 0
    wal.revive()
    assert writer.shard.full_count == 2
    wal.checkpoint()
    writer.append(b"more")
    assert content(replayed(disk.after_power_cut())) == b"more"


def test_of_a_file_that_could_not_be_made_it_is_said_once_how_much_room_it_needs() -> None:
    # Every refused write asks for the file anew.
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    disk.fail_write = errno.ENOSPC
    with capture_logs() as logs:
        for _ in range(3):
            writer.append(b"no file")
        disk.fail_write = errno.EIO
        writer.append(b"no file for another reason")
        disk.fail_write = 0
        writer.append(b"written")
    told = [line for line in logs if line["event"].startswith("wal_file_")]
    first, second, last = told
    assert first["event"] == second["event"] == "wal_file_not_made"
    assert first["bytes"] == SMALL.file_bytes
    assert last["event"] == "wal_file_made"


class Mistaken(Writer):
    """Has a mistake in it."""

    is_mistaken = True

    def take_frames(self) -> tuple[list[Frame], int]:
        if self.is_mistaken:
            raise ValueError("a mistake")
        return super().take_frames()


def test_an_event_that_waits_beside_a_mistake_of_ours_is_refused() -> None:
    disk = GatedStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")()
    first, mistaken = Writer(wal, 1), Mistaken(wal)
    told: list[OSError | None] = []
    disk.syncs.clear()
    first.append(b"holds the writer up")
    until(lambda: not first.wal_queued)
    mistaken.append(b"never written")
    wal.control_soon(b"event", told.append)
    disk.syncs.set()
    until(lambda: bool(told))
    assert "a mistake" in str(told[0])
    wal.stop()
    wal.close(empty=False)
    assert b"event" not in replayed(disk).control


def test_beside_events_that_are_refused_for_want_of_a_snapshot_records_are_written() -> None:
    disk = GatedStorage()
    room: list[str] = []

    def snapshot() -> None:
        if not room:
            raise OSError(errno.ENOSPC, "no room for a snapshot")

    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once, snapshot=snapshot)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")()
    first, second, mistaken = Writer(wal, 1), Writer(wal, 2), Mistaken(wal)
    mistaken.append(b"12345")
    until(lambda: bool(mistaken.failures))
    wal.revive()
    told: list[OSError | None] = []
    disk.syncs.clear()
    first.append(b"holds the writer up")
    until(lambda: not first.wal_queued)
    wal.control_soon(b"refused", told.append)
    second.append(b"goes on")
    disk.syncs.set()
    until(lambda: bool(told) and second.durable > 0)
    assert ["no room for a snapshot" in str(one) for one in told] == [True], "and told once"
    assert not second.failures
    room.append("some")
    wal.control(b"written")()
    wal.stop()
    wal.close(empty=False)
    found = replayed(disk)
    assert found.control == [b"the file is there", b"written"]
    assert content(found, 2) == b"goes on"
    assert not found.missing


def test_a_mistake_of_ours_fails_everybody_who_waits_and_nobody_waits_for_ever() -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")()
    mistaken, other = Mistaken(wal), Writer(wal, 1)
    mistaken.append(b"never written")
    until(lambda: bool(mistaken.failures))
    assert "a mistake" in str(mistaken.failures[0])
    other.append(b"refused")
    until(lambda: bool(other.failures))
    with pytest.raises(OSError, match="a mistake"):
        wal.control(b"refused")()
    wal.stop()
    wal.close(empty=False)
    assert content(replayed(disk), 1) == b""


def test_a_partition_that_has_not_heard_of_a_failure_writes_nothing_behind_it() -> None:
    # 1 fails, hears of it and is opened again; 0, which failed with it, hears of it later
    disk = RecordingStorage()
    soon: list[Callable[[], None]] = []
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, call_soon=soon.append)
    manager.open()
    manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
    late, told = (manager.get_handler("t", number) for number in range(2))
    for handler in (late, told):
        append(handler, batch_of(b"kept"))
    disk.faults.append(Fault("fdatasync", "wal-0.log", 0))
    disk.counts[0] = 0
    for handler in (told, late):
        append(handler, batch_of(b"lost"))
    while told.read_only is None:
        soon.pop(0)()
    assert late.read_only is None
    told.attend(1_000)
    assert not told.wants_attention, "it is writable again, and so is the shard"
    append(late, batch_of(b"behind what was lost"))
    while soon:
        soon.pop(0)()
    assert (late.high_watermark, told.high_watermark) == (1, 2)
    assert late.read_only is not None
    again = DiskManager("/data", storage=disk.after_power_cut(), flushers=0, now_ms=1_000)
    again.open()
    seen = see_handler(again.get_handler("t", 0))
    assert (len(seen.items), seen.end) == (1, 1), "no gap for what nobody was promised"


def test_who_was_about_to_be_written_beside_a_mistake_is_written_after_it() -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")()
    mistaken = Mistaken(wal)
    mistaken.append(b"12345")
    until(lambda: bool(mistaken.failures))
    mistaken.is_mistaken = False
    wal.revive()
    mistaken.append(b"67890")
    wal.control(b"behind it")()
    assert mistaken.durable == 10
    wal.stop()
    wal.close(empty=False)
    assert content(replayed(disk.after_power_cut())) == b"1234567890"


def test_what_rode_beside_a_mistake_of_ours_rides_with_the_next_group() -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")()
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    mistaken = Mistaken(wal)
    mistaken.append(b"12345")
    until(lambda: bool(mistaken.failures))
    wal.revive()
    wal.control(b"behind it")()
    wal.stop()
    wal.close(empty=False)
    found = replayed(disk.after_power_cut()).partitions
    assert [end.base_offset for end in found.get((TOPIC, 5), [])] == [77]


def test_who_waited_behind_a_mistake_of_ours_may_ask_again() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    mistaken, behind = Mistaken(wal, 1), Writer(wal, 2)
    behind.pending.add(b"12345", 0, 0, 0, 5, 1)
    behind.end, behind.wal_queued = 5, True
    with behind.shard._writing:
        behind.shard._commit_all([mistaken, behind], at_once)
    assert len(behind.failures) == 1
    wal.revive()
    behind.append(b"67890")
    assert behind.durable == 10
    assert content(replayed(disk.after_power_cut()), 2) == b"1234567890"


def test_a_shard_that_has_gone_on_in_another_file_does_not_lack_one_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had, and there was room for one since, and for no more."""
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(bytes(100))
    files = writer.shard._files
    prepare, room = files.prepare, [1]

    def prepared() -> WalFile:
        if not room:
            raise OSError(errno.ENOSPC, "planted")
        room.pop()
        return prepare()

    monkeypatch.setattr(files, "prepare", prepared)
    while not writer.failures:
        writer.append(bytes(1_500))
    assert wal.statistics().shards_failed == 1
    room.append(1)
    wal.revive()  # has the file made
    assert wal.statistics().shards_failed == 0
    disk.fail_write = errno.EIO
    writer.append(b"fits")
    assert isinstance(writer.shard.failure, OSError)
    disk.fail_write = 0
    wal.revive()
    assert wal.statistics().shards_failed == 0
    before = writer.durable
    writer.append(b"goes on")
    assert writer.durable > before
