"""What goes by age, bytes and records; what is refused; what a clock that jumps costs: nothing."""

import errno

import pytest
from structlog.testing import capture_logs

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.directory.age_clock import HOLD_MS, JUMP_MS, AgeClock, ClockFile
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.unopened import OPENS_MAX, PEEKS_MAX, Unopened
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import remove_tree
from segbroker.segments.errors import DiskFull, PartitionFull
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.metadata.ceilings import Done
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage
from .tools import SMALL, append, batch_of, offsets_in, read_from

DAY = 86_400_000
NOW = 1_700_000_000_000


def manager_on(disk: MemoryStorage, interval_ms: int = 0) -> DiskManager:
    manager = DiskManager(
        "/data", storage=disk, flushers=0, retention_interval_ms=interval_ms, now_ms=NOW
    )
    manager.open()
    return manager


def partition_on(
    disk: MemoryStorage, count: int = 0, *, interval_ms: int = 0, **settings: object
) -> tuple[DiskManager, DiskHandler]:
    """Two records per segment of 512 bytes, a minute between them, from NOW on.

    interval_ms: between two rounds that look at ages."""
    overrides = {key.replace("_", "."): str(value) for key, value in settings.items()}
    manager = manager_on(disk, interval_ms)
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, **overrides}))
    handler = manager.get_handler("t", 0)
    for n in range(count):
        write(handler, n)
    return manager, handler


def write(handler: DiskHandler, n: int, stamp: int | None = None) -> None:
    at = NOW + 60_000 * n if stamp is None else stamp
    append(handler, batch_of(b"%03d" % n + bytes(150), now_ms=at), NOW + 60_000 * n)


def state(handler: DiskHandler) -> tuple[int, int, GapReason | None]:
    return handler.log_start_offset, handler.evict_floor, handler.evict_reason


def files_of(disk: MemoryStorage) -> list[str]:
    names = disk.listdir("/data/topics/t/partition_0")
    return [name.removeprefix("t_partition_0_") for name in names if name.endswith(".log")]


def test_whole_segments_go_when_their_newest_record_is_too_old() -> None:
    # | 0 1 | 2 3 | 4 5 | 6 7     a minute apart, kept for an hour
    disk = MemoryStorage()
    manager, handler = partition_on(disk, 8, retention_ms=3_600_000)
    manager.housekeeping(NOW + 3_600_000 + 60_000)  # 1 is as old as may be
    assert state(handler) == (0, 0, None)
    manager.housekeeping(NOW + 3_600_000 + 60_001)
    assert state(handler) == (2, 2, GapReason.TTL)
    manager.housekeeping(NOW + 3_600_000 + 4 * 60_000)
    assert state(handler) == (4, 4, GapReason.TTL)
    assert files_of(disk)[0] == "segment_2.log"
    assert offsets_in(read_from(handler, 4)) == [4, 5, 6, 7]


def test_an_idle_segment_is_rolled_so_that_it_can_go() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, 7, retention_ms=3_600_000)
    manager.housekeeping(NOW + DAY)
    manager.housekeeping(NOW + DAY)
    assert state(handler) == (7, 7, GapReason.TTL)
    assert handler.size_bytes == 0
    write(handler, 7, NOW + DAY)
    manager.housekeeping(NOW + DAY)
    assert offsets_in(read_from(handler, 7)) == [7]


@pytest.mark.parametrize("again", ["closed", "killed", "power"])
def test_age_is_that_of_the_data_however_often_the_process_starts(again: str) -> None:
    disk = MemoryStorage()
    manager, _ = partition_on(disk, 7, retention_ms=3_600_000)
    for hour in (0.2, 0.4, 0.6, 0.8):
        if again == "closed":
            manager.close()
        else:
            disk = disk.after_kill() if again == "killed" else disk.after_power_cut()
        manager = manager_on(disk)
        handler = manager.get_handler("t", 0)
        manager.housekeeping(NOW + int(hour * 3_600_000))
        assert state(handler) == (0, 0, None)
    manager.housekeeping(NOW + 3_600_000 + 3 * 60_000)
    assert state(handler) == (2, 2, GapReason.TTL)


def test_as_much_stays_as_is_to_be_kept_and_no_whole_segment_more() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, 20, retention_bytes=1_000)
    manager.housekeeping(NOW)
    sizes = handler._log.sealed.sizes
    assert handler.size_bytes >= 1_000
    assert handler.size_bytes - sizes[0] < 1_000
    assert handler.evict_reason is GapReason.CAP
    assert handler.evict_floor == handler.log_start_offset > 0


def test_as_many_records_stay_as_are_to_be_kept() -> None:
    manager, handler = partition_on(MemoryStorage(), 21, retention_records=5)
    manager.housekeeping(NOW)
    assert state(handler) == (16, 16, GapReason.CAP)
    assert handler.records_count == 5


def test_room_is_made_without_waiting_for_the_next_round() -> None:
    _, handler = partition_on(MemoryStorage(), 40, retention_bytes=1_000)
    assert handler.size_bytes < 1_000 + 2 * 512
    assert handler.evict_reason is GapReason.CAP


def test_a_timestamp_from_the_future_keeps_and_never_deletes() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=3_600_000)
    for n in range(6):
        write(handler, n, NOW + 400 * DAY if n == 2 else None)
    manager.housekeeping(NOW + DAY)
    manager.housekeeping(NOW + DAY)
    assert state(handler) == (2, 2, GapReason.TTL)
    manager.housekeeping(NOW + 401 * DAY)
    manager.housekeeping(NOW + 401 * DAY)
    assert state(handler) == (6, 6, GapReason.TTL)


def test_records_without_a_timestamp_are_not_old() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=1)
    for n in range(6):
        write(handler, n, -1)
    manager.housekeeping(NOW + 400 * DAY)
    assert state(handler) == (0, 0, None)


def test_for_ever_is_for_ever() -> None:
    manager, handler = partition_on(MemoryStorage(), 6, retention_ms=-1)
    manager.housekeeping(NOW + 40_000 * DAY)
    assert state(handler) == (0, 0, None)


def test_a_topic_that_rejects_refuses_before_an_offset_is_assigned() -> None:
    manager, handler = partition_on(
        MemoryStorage(), 5, retention_records=6, retention_full_policy="reject", retention_ms=-1
    )
    two = batch_of(b"a", b"b", now_ms=NOW)
    with pytest.raises(PartitionFull, match=r"5 records are stored, 2 more .*records=6"):
        append(handler, two, NOW)
    assert handler.log_end_offset == 5
    write(handler, 5)
    with pytest.raises(PartitionFull, match="nothing was appended"):
        write(handler, 6)
    manager.housekeeping(NOW + DAY)
    assert state(handler) == (0, 0, None), "nothing goes to make room"
    assert handler.delete_records_before(3) == 3
    write(handler, 6)
    assert handler.log_end_offset == 7
    assert handler.evict_floor == 0


def test_a_topic_that_rejects_takes_records_again_when_old_ones_have_gone_by_age() -> None:
    manager, handler = partition_on(
        MemoryStorage(), 6, retention_bytes=1_350, retention_full_policy="reject"
    )
    with pytest.raises(PartitionFull, match="bytes are stored"):
        write(handler, 6)
    manager.housekeeping(NOW + 8 * DAY)
    manager.housekeeping(NOW + 8 * DAY)
    write(handler, 6, NOW + 8 * DAY)
    assert state(handler) == (6, 6, GapReason.TTL)


def test_a_batch_sent_again_is_answered_though_the_topic_is_full() -> None:
    _, handler = partition_on(
        MemoryStorage(), retention_records=2, retention_full_policy="reject", retention_ms=-1
    )
    sent = append(handler, batch_of(b"a", b"b", now_ms=NOW, producer=(7, 0, 0)), NOW)
    again = append(handler, batch_of(b"a", b"b", now_ms=NOW, producer=(7, 0, 0)), NOW)
    assert (again.base_offset, again.duplicate) == (sent.base_offset, True)


def test_settings_changed_later_count_from_then_on() -> None:
    manager, handler = partition_on(MemoryStorage(), 10)
    manager.alter_topic("t", {**SMALL.overrides, "retention.records": "4"})
    manager.housekeeping(NOW)
    assert state(handler) == (6, 6, GapReason.CAP)
    manager.alter_topic(
        "t", {**SMALL.overrides, "retention.records": "4", "retention.full.policy": "reject"}
    )
    with pytest.raises(PartitionFull):
        write(handler, 10)


def test_a_full_disk_keeps_nothing_that_may_go() -> None:
    disk = CrashingStorage()
    manager, handler = partition_on(disk, 7, retention_ms=3_600_000)
    manager.keep_house_now(NOW)
    disk.room = 0
    with pytest.raises(DiskFull):
        write(handler, 7)
    disk.room = 64  # a row of the manifest, nothing else
    manager.housekeeping(NOW + 3_600_000 + 4 * 60_000)
    assert state(handler) == (4, 4, GapReason.TTL)
    disk.room = None
    manager.housekeeping(NOW + 3_600_000 + 5 * 60_000)
    assert handler.read_only is None
    assert state(handler) == (4, 4, GapReason.TTL)


def test_ten_thousand_partitions_are_visited_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: list[int] = []

    def visit(self: DiskHandler, *_: object, **__: object) -> None:
        visits.append(self.partition)

    monkeypatch.setattr(DiskHandler, "keep_house", visit)
    manager = manager_on(MemoryStorage())
    manager.create_topic("t", 1_200, SMALL)
    for partition in range(1_200):
        manager.get_handler("t", partition)
    for expected in (500, 1_000, 1_200):
        manager.housekeeping(NOW)
        assert len(visits) == expected
    assert sorted(visits) == list(range(1_200))


def test_ages_are_looked_at_now_and_then_so_that_what_was_just_sent_can_be_read() -> None:
    # old data, replayed into a topic that keeps an hour of it: as in Kafka it does not stay
    manager, handler = partition_on(MemoryStorage(), 7, interval_ms=300_000, retention_ms=3_600_000)
    for second in range(0, 300, 20):
        manager.housekeeping(NOW + DAY + second * 1_000)
        assert state(handler) == (0, 0, None)
    manager.housekeeping(NOW + DAY + 300_000)
    assert state(handler)[0] > 0


# Partitions that nobody has opened


def closed_topic(disk: MemoryStorage, partitions: int, count: int = 7) -> None:
    manager = manager_on(disk)
    config = TopicConfig({**SMALL.overrides, "retention.ms": str(3_600_000)})
    manager.create_topic("t", partitions, config)
    for partition in range(partitions):
        for n in range(count):
            write(manager.get_handler("t", partition), n)
    manager.close()


def test_what_nobody_opens_goes_too_and_nothing_else_is_opened() -> None:
    disk = MemoryStorage()
    closed_topic(disk, 1)
    manager = manager_on(disk)
    for _ in range(3):
        manager.housekeeping(NOW + 1_800_000)
    assert not manager.handlers
    for _ in range(4):
        manager.housekeeping(NOW + DAY)
    assert state(manager.handlers["t", 0]) == (7, 7, GapReason.TTL)


class Unreadable(MemoryStorage):
    """Nobody opens a segment on it for a while: there are too many files open."""

    fails = True

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.fails and path.endswith(".log") and "/topics/" in path:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create, read_only=read_only)


def test_what_could_not_be_opened_is_tried_again_a_minute_later() -> None:
    disk = Unreadable()
    disk.fails = False
    closed_topic(disk, 1)
    disk.fails = True
    manager = manager_on(disk)
    with capture_logs() as told:
        for second in range(10):
            manager.housekeeping(NOW + DAY + 1_000 * second)
        assert [one["event"] for one in told].count("retention_not_possible") == 1
        disk.fails = False
        for second in range(60, 65):
            manager.housekeeping(NOW + DAY + 1_000 * second)
    assert state(manager.handlers["t", 0]) == (7, 7, GapReason.TTL)


class Faulty(MemoryStorage):
    """The manifest of a partition cannot be read for a while."""

    fails = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.fails and path.endswith(".manifest"):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().open(path, create=create, read_only=read_only)


def test_what_could_not_be_read_once_is_tried_again_a_minute_later() -> None:
    disk = Faulty()
    closed_topic(disk, 1)
    manager = manager_on(disk)
    disk.fails = True
    with capture_logs() as told:
        for second in range(10):
            manager.housekeeping(NOW + DAY + 1_000 * second)
        assert [one["event"] for one in told].count("retention_not_looked_at") == 1
        disk.fails = False
        for second in range(60, 75):
            manager.housekeeping(NOW + DAY + 1_000 * second)
    assert state(manager.handlers["t", 0]) == (7, 7, GapReason.TTL)


def test_what_is_missing_is_not_looked_for_again_and_again() -> None:
    disk = MemoryStorage()
    closed_topic(disk, 1)
    manager = manager_on(disk)
    remove_tree(disk, "/data/topics/t/partition_0")
    with capture_logs() as told:
        for second in range(200):
            manager.housekeeping(NOW + DAY + 1_000 * second)
    assert not [one for one in told if one["log_level"] != "info"]
    assert not manager.handlers


def test_unopened_partitions_are_looked_at_a_few_at_a_time_and_once() -> None:
    disk = MemoryStorage()
    closed_topic(disk, 2 * PEEKS_MAX, count=1)
    manager = manager_on(disk)
    reads: list[str] = []
    unopened = Unopened(disk, "/data")
    look = unopened._peek
    unopened._peek = lambda paths, config: (reads.append(paths.folder), look(paths, config))[1]  # type: ignore[method-assign, func-returns-value]
    for expected in (PEEKS_MAX, 2 * PEEKS_MAX, 2 * PEEKS_MAX, 2 * PEEKS_MAX):
        assert not unopened.step(manager.topics, lambda *_: False, NOW)
        assert len(reads) == expected
    due = [unopened.step(manager.topics, lambda *_: False, NOW + DAY) for _ in range(3)]
    assert [*map(len, due)] == [OPENS_MAX, OPENS_MAX, 0]
    assert {name for found in due for name in found} == {("t", n) for n in range(2 * PEEKS_MAX)}
    assert not Unopened(disk, "/data").step(manager.topics, lambda *_: False, None)


# The clock


def test_a_clock_that_jumps_deletes_nothing_for_an_hour() -> None:
    clock = AgeClock()
    assert clock.now(NOW, 0) == NOW
    assert clock.now(NOW + 1_000, 1_000) == NOW + 1_000
    jumped = NOW + 400 * DAY
    assert clock.now(jumped, 2_000) is None
    assert clock.hold == (400 * DAY - 2_000, HOLD_MS)
    assert clock.now(jumped + HOLD_MS - 1, 2_000 + HOLD_MS - 1) is None
    assert clock.now(jumped + HOLD_MS, 2_000 + HOLD_MS) == jumped + HOLD_MS
    assert clock.hold is None


def test_a_clock_that_is_set_right_again_is_believed_at_once() -> None:
    clock = AgeClock()
    clock.now(NOW, 0)
    assert clock.now(NOW + DAY, 1_000) is None
    assert clock.now(NOW + 2_000, 2_000) == NOW + 2_000
    assert clock.now(NOW - DAY, 3_000) == NOW - DAY


def test_small_steps_and_drift_are_no_jump() -> None:
    clock = AgeClock()
    for n in range(100):
        at = NOW + n * (1_000 + JUMP_MS)
        assert clock.now(at, n * 1_000) == at


def test_a_clock_that_is_wrong_at_the_start_is_noticed_by_what_was_saved() -> None:
    disk = MemoryStorage()
    disk.mkdir("/data")
    file = ClockFile(disk, "/data/clock")
    assert file.load() is None
    file.save(NOW)
    assert disk.open("/data/clock").size() == 16
    saved = ClockFile(disk, "/data/clock").load()
    assert saved == NOW
    assert AgeClock(saved).now(NOW + 400 * DAY, 7_000_000) is None
    assert AgeClock(saved).now(NOW + JUMP_MS, 7_000_000) == NOW + JUMP_MS
    disk.open("/data/clock").pwrite(b"\xff", 0)
    assert ClockFile(disk, "/data/clock").load() is None


def test_a_jump_of_the_clock_evicts_nothing_and_says_so() -> None:
    manager, handler = partition_on(MemoryStorage(), 8, retention_ms=3_600_000)
    manager.housekeeping(NOW, 0)
    for second in range(1, 5):
        manager.housekeeping(NOW + 400 * DAY, second * 1_000)
    assert state(handler) == (0, 0, None)
    manager.housekeeping(NOW + 5_000, 5_000)
    for second in range(2):
        manager.housekeeping(NOW + 400 * DAY, 6_000 + second + second * HOLD_MS)
    assert state(handler)[0] > 0


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_producer_is_known_when_the_segments_with_its_last_batch_are_gone(
    power_cut: bool,
) -> None:
    # | of the producer | 1 | 2 | ... | 6 |  ->  the last two stay; then the process dies
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_bytes=800)
    batch = batch_of(bytes(400), now_ms=NOW, producer=(7, 0, 0))
    assert append(handler, memoryview(bytearray(batch)), NOW).base_offset == 0
    for n in range(1, 7):
        write(handler, n)
    manager.keep_house_now(NOW + DAY)
    assert handler.log_start_offset > 0
    image = disk.after_power_cut() if power_cut else disk.after_kill()
    again = manager_on(image).get_handler("t", 0)
    assert again.log_start_offset == handler.log_start_offset
    repeated = append(again, batch, NOW + DAY)
    assert (repeated.base_offset, repeated.duplicate) == (0, True)


def test_what_readers_may_not_see_yet_does_not_go() -> None:
    # | 0 1 | 2 3 | ...   offsets from 2 on wait for their reservation
    manager, handler = partition_on(MemoryStorage(), 2, retention_bytes=600, durability="disk")
    ceiling = handler.ceiling
    assert ceiling is not None
    ceiling.settle(2)
    waiting: list[Done] = []
    ceiling._reserve = lambda _, done: waiting.append(done)
    for n in range(2, 20):
        write(handler, n)
    manager.keep_house_now(NOW + DAY)
    assert (handler.log_start_offset, handler.high_watermark) == (2, 2)
    assert read_from(handler, 2) == b"", "nothing is there yet"
    waiting[0](None)
    assert handler.high_watermark == 20
    manager.keep_house_now(NOW + DAY)
    assert state(handler) == (16, 16, GapReason.CAP)


@pytest.mark.parametrize("settings", [{"retention_records": 4}, {"retention_bytes": 800}])
def test_what_a_power_cut_may_take_is_not_counted(settings: dict[str, int]) -> None:
    # | 0 1 | 2 3 | 4 5     the last two are written, and nobody has asked for their sync
    disk = MemoryStorage()
    manager, handler = partition_on(disk, 4, **settings)
    handler.flushes_on_append = False
    write(handler, 4)
    write(handler, 5)
    manager.keep_house_now(NOW + DAY)
    assert (handler.log_start_offset, handler.high_watermark) == (0, 4)
    again = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (again.log_start_offset, again.log_end_offset) == (0, 4), "as many as are to be kept"
    handler.flush_soon()
    manager.keep_house_now(NOW + DAY)
    assert (handler.log_start_offset, handler.high_watermark) == (2, 6)


@pytest.mark.parametrize(
    ("settings", "total"),
    [({"retention_records": 2}, "stored_records"), ({"retention_bytes": 400}, "size_bytes")],
)
def test_what_is_written_while_retention_looks_is_not_counted(
    settings: dict[str, int], total: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # | 0 1 | 2     and 3, which nobody has asked to be synced, beside the look
    disk = MemoryStorage()
    _, handler = partition_on(disk, 3, **settings)
    handler.flushes_on_append = False
    count = getattr(PartitionLog, total).fget

    def written_meanwhile(log: PartitionLog) -> int:
        if log.log_end_offset == 3:
            write(handler, 3)
        stored: int = count(log)
        return stored

    monkeypatch.setattr(PartitionLog, total, property(written_meanwhile))
    handler.unlink_soon()
    monkeypatch.undo()
    assert (handler.log_start_offset, handler.high_watermark, handler.log_end_offset) == (0, 3, 4)
    again = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (again.log_start_offset, again.log_end_offset) == (0, 3), "as many as are to be kept"


def test_nothing_goes_by_age_either_that_readers_may_not_see_yet() -> None:
    manager, handler = partition_on(MemoryStorage(), 2, durability="disk")
    ceiling = handler.ceiling
    assert ceiling is not None
    ceiling.settle(2)
    waiting: list[Done] = []
    ceiling._reserve = lambda _, done: waiting.append(done)
    for n in range(2, 6):
        write(handler, n)
    manager.keep_house_now(NOW + 8 * DAY)
    assert (handler.log_start_offset, handler.high_watermark) == (2, 2)
    waiting[0](None)
    manager.keep_house_now(NOW + 8 * DAY)
    assert (handler.log_start_offset, handler.high_watermark) == (6, 6)
