"""DiskManager and DiskHandler: topics, visibility, idempotence, failures."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from segbroker.protocol.record_batch import read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import (
    DataDirectoryLocked,
    DiskFull,
    InvalidConfig,
    InvalidProducerEpoch,
    InvalidTopicName,
    OutOfOrderSequence,
    PartitionReadOnly,
    TopicExists,
    UnknownTopic,
)
from segbroker.segments.files.manifest import decode_manifest, encode_manifest
from segbroker.segments.names import owner_of, partition_paths
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import Durability, TopicConfig

from .crashing import CrashingStorage
from .tools import SMALL, append, batch_of, flip, offsets_in, read_from

DISK = TopicConfig({**SMALL.overrides, "durability": "disk"})


def manager_on(
    disk: MemoryStorage, call_soon: Callable[[Callable[[], None]], object] | None = None
) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, call_soon=call_soon, now_ms=1_000)
    manager.open()
    return manager


def partition_on(disk: MemoryStorage, config: TopicConfig = SMALL) -> DiskHandler:
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    return manager.get_handler("t", 0)


def test_files_are_where_the_layout_says(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path)) as manager:
        manager.create_topic("flights", 2, SMALL)
        append(manager.get_handler("flights", 1), batch_of(b"a"))
    folder = tmp_path / "topics" / "flights" / "partition_1"
    assert sorted(p.name for p in folder.iterdir()) == [
        "flights_partition_1.manifest",
        "flights_partition_1.producers",
        "flights_partition_1_segment_0.log",
    ]
    assert (tmp_path / "LOCK").exists()
    assert [p.name for p in (tmp_path / "meta").iterdir()] == ["snapshot-2.msgpack"]


def test_the_files_of_a_topic_with_the_longest_name_have_a_short_form_of_it(
    tmp_path: Path,
) -> None:
    names = ["n" * 248 + "1", "n" * 248 + "2"]
    with DiskManager(str(tmp_path)) as manager:
        for name in names:
            manager.create_topic(name, 1, SMALL)
            handler = manager.get_handler(name, 0)
            for _ in range(40):
                append(handler, batch_of(name[-1:].encode() * 100))
    folders = [tmp_path / "topics" / name / "partition_0" for name in names]
    stems = [{file.name[:200] for file in folder.iterdir()} for folder in folders]
    assert [len(each) for each in stems] == [1, 1]
    assert stems[0] != stems[1], "side by side they can be told apart"
    # What nobody knows any more is put aside under such a name, too.
    (tmp_path / "topics" / names[1]).rename(tmp_path / "topics" / ("m" * 249))
    with DiskManager(str(tmp_path)) as manager:
        for n in range(40):
            assert offsets_in(read_from(manager.get_handler(names[0], 0), n))[0] == n
    (aside,) = (tmp_path / "quarantine").iterdir()
    assert aside.name.startswith("m" * 183 + "~")


def test_a_manifest_tells_its_topic_also_where_one_of_an_earlier_version_did_not() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    owner = owner_of(manager.create_topic("t", 2, SMALL).topic_id, 1)
    append(manager.get_handler("t", 1), batch_of(b"a"))
    manager.close()
    path = partition_paths("/data", "t", 1).manifest
    told = decode_manifest(read_file(disk, path))
    assert told is not None
    assert told.owner == owner
    for other in (0, owner + 1):  # of an earlier version; put back from a topic before this one
        replace_file(disk, path, encode_manifest(1_000, told.rows, other))
        manager = manager_on(disk)
        assert offsets_in(read_from(manager.get_handler("t", 1), 0)) == [0]
        manager.close()
        again = decode_manifest(read_file(disk, path))
        assert again is not None
        assert again.owner == owner


def test_the_first_opening_by_this_version_goes_on_vouching_for_a_log_that_was_closed() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    for _ in range(3):
        append(manager.get_handler("t", 0), batch_of(b"a"))
    manager.close()
    paths = partition_paths("/data", "t", 0)
    told = decode_manifest(read_file(disk, paths.manifest))
    assert told is not None
    replace_file(disk, paths.manifest, encode_manifest(1_000, told.rows))
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).log_end_offset == 3
    dead = disk.after_kill()
    flip(dead, paths.log(0), len(read_file(dead, paths.log(0))) - 5)
    handler = manager_on(dead).get_handler("t", 0)
    assert handler.log_end_offset == 3, "a gap for the third, not its offset for another"


def test_a_data_directory_has_one_owner(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path)), pytest.raises(DataDirectoryLocked):
        DiskManager(str(tmp_path)).open()
    with DiskManager(str(tmp_path)):
        pass


def test_topics_ids_and_settings_survive_a_power_cut() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    meta = manager.create_topic("t", 3, DISK)
    manager.alter_topic("t", {"segment.bytes": "2048"})
    manager.create_partitions("t", 5)
    assert manager.allocate_producer_ids(10) == range(10)
    again = manager_on(disk.after_power_cut())
    assert again.cluster_id == manager.cluster_id
    assert again.topics["t"].topic_id == meta.topic_id
    assert again.topics["t"].partitions == 5
    assert again.topics["t"].config.segment_bytes == 2048
    assert again.allocate_producer_ids(1) == range(10, 11)


def test_a_topic_made_again_starts_above_the_epoch_of_its_predecessor() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    first = manager.create_topic("t", 1, SMALL)
    append(manager.get_handler("t", 0), batch_of(b"old"))
    manager.delete_topic("t")
    assert disk.listdir("/data/topics") == []
    manager = manager_on(disk.after_power_cut())
    second = manager.create_topic("t", 1, SMALL)
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.topic_id != second.topic_id
    handler = manager.get_handler("t", 0)
    assert (handler.leader_epoch, handler.log_end_offset) == (1, 0)
    append(handler, batch_of(b"new"))
    assert handler.end_offset_for_epoch(0) == (0, 0)
    assert handler.end_offset_for_epoch(1) == (1, 1)
    assert handler.end_offset_for_epoch(2) == (-1, -1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "ä", "a b", "~x", "x" * 250])
def test_names_that_could_leave_their_directory_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        manager_on(MemoryStorage()).create_topic(name, 1, SMALL)


def test_topics_that_are_or_are_not_there_are_told() -> None:
    manager = manager_on(MemoryStorage())
    manager.create_topic("x" * 249, 1, SMALL)
    with pytest.raises(TopicExists):
        manager.create_topic("x" * 249, 1, SMALL)
    with pytest.raises(UnknownTopic):
        manager.delete_topic("y")
    with pytest.raises(UnknownTopic):
        manager.get_handler("x" * 249, 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"segment.bites": "1"}, "segment.bites=1: there is no such topic setting"),
        ({"segment.ms": "soon"}, "segment.ms=soon: is not a whole number"),
        (
            {"max.message.bytes": "2000000", "segment.bytes": "1048576"},
            "max.message.bytes=2000000: exceeds segment.bytes=1048576; .* leave that out",
        ),
        ({"max.message.bytes": "2 MB"}, "max.message.bytes=2 MB: is not a whole number of bytes"),
        ({"cleanup.policy": "compress"}, "cleanup.policy=compress: is none of delete, compact"),
        ({"min.cleanable.dirty.ratio": "2"}, r"min.cleanable.dirty.ratio=2: is outside \[0, 1\]"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms=2: exceeds max.compaction.lag.ms=1",
        ),
        (
            {"durability": "ephemeral", "cleanup.policy": "compact"},
            "cleanup.policy=compact: an ephemeral topic",
        ),
        ({"durability": "paper"}, "durability=paper: is none of ephemeral, memory, disk, fsync"),
        ({"durability": "ephemeral", "retention.bytes": "-1"}, "retention.bytes=-1: an ephemeral"),
    ],
)
def test_settings_are_refused_with_key_and_value(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        TopicConfig.parse(overrides)


def test_the_defaults_are_one_mebibyte_and_fsync() -> None:
    config = TopicConfig()
    assert (config.segment_bytes, config.max_message_bytes) == (1 << 20, 1 << 20)
    assert config.durability is Durability.FSYNC
    assert TopicConfig({"segment.bytes": "4096"}).max_message_bytes == 4096
    assert TopicConfig({"max.message.bytes": "4096"}).segment_bytes == 1 << 20
    assert TopicConfig({"max.message.bytes": "10000000"}).segment_bytes == 10_000_000
    assert all(setting.is_default and setting.documentation for setting in config.describe())


def test_fsync_records_are_visible_when_the_loop_hears_of_the_sync() -> None:
    soon: list[Callable[[], None]] = []
    manager = manager_on(MemoryStorage(), soon.append)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    moved: list[int] = []
    handler.on_high_watermark = lambda h: moved.append(h.high_watermark)
    append(handler, batch_of(b"a", b"b"))
    assert (handler.high_watermark, handler.log_end_offset) == (0, 2)
    assert handler.plan_read(0, 100) is None
    for task in soon:
        task()
    assert moved == [2]
    assert offsets_in(read_from(handler, 0)) == [0]


def test_disk_records_are_visible_at_once_and_synced_on_the_tick() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, DISK)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a"))
    assert handler.high_watermark == 1
    recovered = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert recovered.end_offset_for_epoch(0) == (0, 0)
    manager.housekeeping(2_000)
    recovered = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert recovered.end_offset_for_epoch(0) == (0, 1)


def test_an_idle_segment_is_rolled_by_age() -> None:
    manager = manager_on(MemoryStorage())
    config = TopicConfig({"segment.ms": "500"})
    manager.create_topic("t", 1, config)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a"), 1_000)
    manager.housekeeping(1_499)
    assert handler.segments_count == 1
    manager.housekeeping(1_500)
    assert handler.segments_count == 2


def test_log_append_time_is_written_and_answered() -> None:
    config = TopicConfig({"message.timestamp.type": "LogAppendTime"})
    handler = partition_on(MemoryStorage(), config)
    result = append(handler, batch_of(b"a", now_ms=5), 7_000)
    assert result.log_append_time_ms == 7_000
    assert handler.offset_for_timestamp(6) == (0, 7_000)


@pytest.mark.parametrize("stamps", ["LogAppendTime", "CreateTime"])
def test_what_is_told_of_the_time_of_a_batch_is_what_stands_in_the_log(stamps: str) -> None:
    """Also where the topic is changed right before the batch is appended."""
    other = {"LogAppendTime": "CreateTime", "CreateTime": "LogAppendTime"}[stamps]
    handler = partition_on(MemoryStorage(), TopicConfig({"message.timestamp.type": other}))
    opened = handler._log
    free = opened.append_lock

    class ChangedMeanwhile:
        """Somebody changes the topic right before it is had."""

        def __enter__(self) -> None:
            opened.append_lock = free
            handler.reconfigure(TopicConfig({"message.timestamp.type": stamps}), handler.ceiling)
            free.acquire()

        def __exit__(self, *raised: object) -> None:
            free.release()

    opened.append_lock = ChangedMeanwhile()  # type: ignore[assignment]  # asked for nothing else
    result = append(handler, batch_of(b"a", now_ms=5, producer=(7, 0, 0)), 7_000)
    header = read_header(read_from(handler, 0))
    assert header.is_log_append_time == (stamps == "LogAppendTime")
    assert result.log_append_time_ms == (header.max_timestamp if header.is_log_append_time else -1)
    ((_, producer),) = handler.producers()
    assert producer.last_ms == header.max_timestamp


def test_reads_never_pass_the_high_watermark() -> None:
    handler = partition_on(MemoryStorage())
    for _ in range(10):
        append(handler, batch_of(b"x" * 60))
    for up_to in range(1, 11):
        plan = handler.plan_read(0, 1 << 20, up_to=up_to)
        assert plan is not None
        buffer = memoryview(bytearray(plan.size_max))
        early = offsets_in(buffer[: plan.read_nowait(buffer) or 0])
        assert early == list(range(len(early)))  # what is open and cached, in order
        assert len(early) <= up_to
        assert offsets_in(buffer[: plan.read(buffer)]) == list(range(up_to))
        plan.release()


def test_a_plan_says_whether_there_is_more_behind_it() -> None:
    handler = partition_on(MemoryStorage())
    for n in range(20):
        append(handler, batch_of(b"x" * (40 + 37 * n % 200)))
    assert handler.segments_count > 4
    for offset in range(20):
        read_from(handler, offset)  # which loads the indexes
    for offset, up_to in ((a, b) for b in range(1, 21) for a in range(b)):
        for limit in (1, 200, 513, 1_000, 1 << 20):
            plan = handler.plan_read(offset, limit, up_to=up_to)
            assert plan is not None
            buffer = memoryview(bytearray(plan.size_max))
            is_all = offsets_in(buffer[: plan.read(buffer)])[-1] == up_to - 1
            plan.release()
            # The first block is planned as a whole, and cut to the limit when it is read.
            assert plan.is_cut is not is_all or (plan.size_max > limit and not is_all)


def test_deleted_records_stay_deleted() -> None:
    disk = MemoryStorage()
    handler = partition_on(disk)
    for _ in range(10):
        append(handler, batch_of(b"x" * 60))
    assert handler.delete_records_before(4) == 4
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (handler.log_start_offset, handler.log_end_offset) == (4, 10)


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_start_inside_the_only_segment_or_a_batch_costs_no_record_behind_it(
    start: int, is_closed: bool
) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig())
    handler = manager.get_handler("t", 0)
    for _ in range(3):
        append(handler, batch_of(b"a", b"b"))
    assert handler.delete_records_before(start) == start
    if is_closed:
        manager.close()
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (handler.log_start_offset, handler.log_end_offset) == (start, 6)
    assert offsets_in(read_from(handler, start)) == [0, 2, 4][start // 2 :]
    assert append(handler, batch_of(b"c")).base_offset == 6


# Idempotence


def test_a_repeated_batch_is_answered_with_its_first_offset() -> None:
    handler = partition_on(MemoryStorage())
    for sequence in range(7):
        append(handler, batch_of(b"a", producer=(9, 0, sequence)))
    for sequence in range(2, 7):
        again = append(handler, batch_of(b"a", producer=(9, 0, sequence)))
        assert (again.base_offset, again.last_offset, again.duplicate) == (sequence, sequence, True)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 1, expected 7"):
        append(handler, batch_of(b"a", producer=(9, 0, 1)))
    assert handler.log_end_offset == 7


def test_sequences_and_epochs_follow_the_rules() -> None:
    handler = partition_on(MemoryStorage())
    append(handler, batch_of(b"a", producer=(9, 3, 70)))  # nothing known: any sequence
    with pytest.raises(OutOfOrderSequence):
        append(handler, batch_of(b"a", producer=(9, 3, 72)))
    with pytest.raises(OutOfOrderSequence):
        append(handler, batch_of(b"a", producer=(9, 4, 1)))
    append(handler, batch_of(b"a", producer=(9, 4, 0)))
    with pytest.raises(InvalidProducerEpoch):
        append(handler, batch_of(b"a", producer=(9, 3, 71)))


def test_a_sequence_goes_on_at_zero_after_its_greatest() -> None:
    handler = partition_on(MemoryStorage())
    append(handler, batch_of(b"a", b"b", producer=(9, 0, 2**31 - 2)))
    assert not append(handler, batch_of(b"c", producer=(9, 0, 0))).duplicate


@pytest.mark.parametrize("closed", [True, False])
def test_producers_survive_a_restart(closed: bool) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for sequence in range(12):
        append(handler, batch_of(b"x" * 50, producer=(9, 0, sequence)))
    if closed:
        manager.close()
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    again = append(handler, batch_of(b"x" * 50, producer=(9, 0, 11)))
    assert (again.base_offset, again.duplicate) == (11, True)
    assert append(handler, batch_of(b"x" * 50, producer=(9, 0, 12))).base_offset == 12


# Failures


def test_after_a_failed_sync_nothing_is_acked_written_or_synced_until_it_was_opened_anew() -> None:
    disk = CrashingStorage()
    handler = partition_on(disk)
    failures: list[str] = []
    handler.on_failure = lambda h, error: failures.append(str(error))
    append(handler, batch_of(b"a"))
    disk.sync_fails = True
    append(handler, batch_of(b"b"))
    assert handler.high_watermark == 1
    assert len(failures) == 1
    disk.sync_fails = False
    before = len(disk.operations)
    with pytest.raises(PartitionReadOnly):
        append(handler, batch_of(b"c"))
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    assert len(disk.operations) == before
    assert offsets_in(read_from(handler, 0)) == [0]


@pytest.mark.parametrize("room", range(0, 75, 5))
def test_a_full_disk_refuses_writes_serves_reads_and_recovers(room: int) -> None:
    disk = CrashingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a"))
    disk.room = room
    failed = batch_of(b"b" * 20)
    with pytest.raises(DiskFull) as caught:
        append(handler, failed)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert offsets_in(read_from(handler, 0)) == [0]
    disk.room = None
    manager.housekeeping(5_000)
    assert handler.read_only is None
    assert append(handler, batch_of(b"b")).base_offset == 1
    assert offsets_in(read_from(handler, 0)) == [0, 1]


def test_damaged_metadata_opens_nothing() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    manager.close()
    path = "/data/meta/snapshot-2.msgpack"
    for position in range(disk.open(path).size()):
        image = disk.after_kill()
        flip(image, path, position)
        if 6 <= position < 8:
            continue  # reserved
        with pytest.raises(Exception, match="snapshot-2"):
            manager_on(image)


def test_flushers_group_many_appends_and_end_with_everything_durable(tmp_path: Path) -> None:
    done = threading.Event()
    with DiskManager(str(tmp_path)) as manager:
        manager.create_topic("t", 4, SMALL)
        handlers = [manager.get_handler("t", p) for p in range(4)]

        def moved(_: DiskHandler) -> None:
            if all(h.high_watermark == 200 for h in handlers):
                done.set()

        for handler in handlers:
            handler.on_high_watermark = moved
        for _ in range(200):
            for handler in handlers:
                append(handler, batch_of(b"x" * 30))
        assert done.wait(30)
    with DiskManager(str(tmp_path)) as manager:
        handler = manager.get_handler("t", 2)
        seen: list[int] = []
        while data := read_from(handler, len(seen)):
            seen += offsets_in(data)
        assert seen == list(range(200))


def test_open_files_are_bounded(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path), flushers=0, open_files_max=3) as manager:
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for _ in range(60):
            append(handler, batch_of(b"x" * 100))
        offset = 0
        while data := read_from(handler, offset, 300):
            offset = offsets_in(data)[-1] + 1
        assert offset == 60
        assert manager.statistics().open_files <= 3
