"""A page of the write-ahead log is lost where no number of a frame says so: at the head of a file,
or in front of the first frame that is left.  It is told, and no offset is given again unseen."""

import pytest

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager, NewTopic
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import PAGE, read_file
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.frames import FRAMES_BEGIN, OVERHEAD, Frame, FrameType, header_of
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.kept import write_kept
from segbroker.segments.wal.scanning import scan_file

from .wal_writing import ROOT, Writer, content, replayed
from .wal_writing import begun as writing

FOLDER = "/data/wal/shard-00"
CONFIG = WalConfig(file_bytes=1 << 16, shard_bytes=4 << 16)
BEFORE_THE_SYNC = {"durability": "disk"}


def wal_file(disk: MemoryStorage, place: int = 0) -> str:
    """The files in use, the oldest first."""
    return f"{FOLDER}/wal-{list_files(disk, FOLDER)['wal'][place]}.log"


def opened(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, wal=CONFIG, now_ms=1_000)
    manager.open()
    return manager


def begun() -> tuple[MemoryStorage, DiskManager]:
    """Topics `t` and `v`, which the write-ahead log says nothing about any more, and `d`."""
    disk = MemoryStorage()
    manager = opened(disk)
    fsync = [NewTopic(name, 1, TopicConfig({"durability": "fsync"})) for name in "tv"]
    manager.create_topics([*fsync, NewTopic("d", 1, TopicConfig(BEFORE_THE_SYNC))])
    manager.close()
    return disk, opened(disk)


def append(manager: DiskManager, topic: str, size: int) -> None:
    batch = memoryview(bytearray(encode_batch([b"r" * size], timestamps_ms=1_000)))
    manager.get_handler(topic, 0).append(batch, check_batch(batch), 1_000)


def without_page(disk: MemoryStorage, begin: int, place: int = 0) -> DiskManager:
    cut = disk.after_power_cut()
    cut.open(wal_file(disk, place)).pwrite(bytes(PAGE), begin)
    return opened(cut)


def epoch(manager: DiskManager, topic: str) -> int:
    return manager.get_handler(topic, 0).leader_epoch


def damaged(manager: DiskManager) -> int:
    return manager.report.counts["wal_damaged"]


def without_headers(disk: MemoryStorage, place: int = 0, kept: str = "") -> DiskManager:
    """Its first page and its last are lost."""
    cut = disk.after_power_cut()
    file = cut.open(kept or wal_file(disk, place))
    end = file.size()
    file.pwrite(bytes(PAGE), 0)
    file.pwrite(bytes(min(PAGE, end - FRAMES_BEGIN)), max(end - PAGE, FRAMES_BEGIN))
    return opened(cut)


@pytest.mark.parametrize("page", ["first", "last"])
@pytest.mark.parametrize("file", [0, 1])
def test_one_page_that_has_a_header_of_a_file_costs_nothing(file: int, page: str) -> None:
    disk, manager = begun()
    for _ in range(5):
        append(manager, "t", 7)
    append(manager, "d", 7)
    manager.create_topics([NewTopic("u", 1, TopicConfig({}))])
    place = 0 if page == "first" else CONFIG.file_bytes - PAGE
    after = without_page(disk, place, file)
    assert not {"wal_damaged", "wal_torn"} & after.report.counts.keys()
    assert after.get_handler("t", 0).high_watermark == 5
    assert after.get_handler("u", 0).high_watermark == 0
    assert [epoch(after, name) for name in "tv"] == [0, 0]
    append(after, "t", 7)
    assert after.get_handler("t", 0).high_watermark == 6


def test_a_file_that_is_used_again_has_no_header_of_its_earlier_use_at_its_end() -> None:
    disk = MemoryStorage()
    wal, _ = writing(disk)
    writer = Writer(wal)
    for number in range(100):
        writer.append(bytes([number]) * 1000)
    assert not any(name.startswith("wal-0") for name in disk.listdir(f"{ROOT}/shard-00"))
    found = replayed(disk)
    for name in disk.listdir(f"{ROOT}/shard-00"):
        if name.startswith("wal-"):
            disk.open(f"{ROOT}/shard-00/{name}").pwrite(bytes(FRAMES_BEGIN), 0)
    assert content(replayed(disk)) == content(found) != b""


@pytest.mark.parametrize(
    ("size", "left"), [(CONFIG.file_bytes - 1, 5), (FRAMES_BEGIN + 1_000, 4), (FRAMES_BEGIN, 0)]
)
def test_a_file_that_was_cut_short_is_told_whatever_it_had_there(size: int, left: int) -> None:
    disk, manager = begun()
    for _ in range(5):
        append(manager, "t", 7)
    cut = disk.after_power_cut()
    cut.open(wal_file(cut)).truncate(size)
    texts = [one.text for one in DirectoryChecker(cut, "/data", 1_000).check() if one.is_damage]
    end = CONFIG.file_bytes - 40
    expected = [f"all frames in bytes {size} to {end} are damaged"] if size < end else []
    assert texts == expected
    after = opened(cut)
    assert damaged(after) == len(expected)
    assert [epoch(after, name) for name in "tv"] == [len(expected)] * 2
    assert after.get_handler("t", 0).high_watermark == left


@pytest.mark.parametrize("file", [0, 1])
def test_a_file_whose_header_is_gone_is_told_and_what_it_acknowledged_has_another_epoch(
    file: int,
) -> None:
    # 0 has the records; 1 is ready and has none, which nobody can know
    disk, manager = begun()
    for _ in range(5):
        append(manager, "t", 7)
    manager.create_topics([NewTopic("u", 1, TopicConfig({}))])
    assert not damaged(opened(disk.after_power_cut()))
    after = without_headers(disk, file)
    assert damaged(after) == 1
    assert after.get_handler("t", 0).high_watermark == (0 if file == 0 else 5)
    assert [epoch(after, name) for name in "tv"] == [1, 1]


def test_kept_frames_whose_header_is_gone_are_told_of_every_partition() -> None:
    disk, manager = begun()
    meta = manager.topics["t"]
    payload = encode_batch([b"kept"], timestamps_ms=1_000)
    frame = Frame(FrameType.BATCHES, meta.topic_id.bytes, payload=payload, end_offset=1)
    write_kept(disk, FOLDER, 7, [frame])
    assert not damaged(opened(disk.after_power_cut()))
    after = without_headers(disk, kept=f"{FOLDER}/kept-7.log")
    assert damaged(after) == 1
    assert [epoch(after, name) for name in "tv"] == [1, 1]


def test_no_offset_below_a_reservation_of_which_the_header_is_gone_is_given_again() -> None:
    disk, manager = begun()
    append(manager, "d", 7)
    after = without_headers(disk)
    assert damaged(after) == 1
    assert after.get_handler("d", 0).log_end_offset > 1
    assert epoch(after, "d") == 2


def hole_in_front() -> tuple[MemoryStorage, DiskManager]:
    """Five records of `t` and one of `v` begin in the first page of the frames, a group each."""
    disk, manager = begun()
    for _ in range(5):
        append(manager, "t", 7)
    append(manager, "v", 3_500)
    return disk, manager


@pytest.mark.parametrize("later", [1, 8])
def test_a_hole_in_front_of_the_first_frame_is_told_if_its_group_came_later(later: int) -> None:
    disk, manager = hole_in_front()
    for _ in range(later):
        append(manager, "v", 1_000)
    assert not damaged(opened(disk.after_power_cut()))
    after = without_page(disk, FRAMES_BEGIN)
    assert damaged(after) >= 1
    assert after.get_handler("t", 0).high_watermark == 0
    assert [epoch(after, name) for name in "tv"] == [1, 1]


def test_reservations_that_stood_in_the_hole_are_taken_as_made() -> None:
    disk, manager = begun()
    append(manager, "d", 7)
    append(manager, "v", 5_000)
    append(manager, "v", 1_000)
    assert not damaged(opened(disk.after_power_cut()))
    after = without_page(disk, FRAMES_BEGIN)
    assert damaged(after) >= 1
    assert after.get_handler("d", 0).log_end_offset > 1
    assert epoch(after, "d") == 2


def test_a_frame_that_names_itself_and_its_group_is_no_hole() -> None:
    disk, manager = hole_in_front()
    append(manager, "v", 1_000)
    cut = disk.after_power_cut()
    cut.open(wal_file(cut)).pwrite(bytes(64), FRAMES_BEGIN)  # its trailer is whole
    after = opened(cut)
    assert damaged(after) == 1
    assert epoch(after, "v") == 0, "nobody but t lost anything"


def test_a_hole_in_the_only_group_may_be_a_torn_write_and_begins_an_epoch_and_says_so() -> None:
    # | t | v | in one group, acknowledged; the page is lost in which all of t but an end stands
    disk, manager = begun()
    size = 2_000 + PAGE + 20 - OVERHEAD - len(encode_batch([b"r" * 2_000], timestamps_ms=1_000))
    frames = []
    for name, value in (("t", b"r" * size), ("v", b"r")):
        topic_id = manager.topics[name].topic_id.bytes
        payload = encode_batch([value], timestamps_ms=1_000)
        frames.append(Frame(FrameType.BATCHES, topic_id, payload=payload, end_offset=1))
    manager.wal.shard_of(frames[0].topic_id, 0).write(frames)
    whole = opened(disk.after_power_cut())
    assert [epoch(whole, name) for name in "tv"] == [0, 0]
    assert not whole.report.counts["wal_torn"]
    cut = disk.after_power_cut()
    cut.open(wal_file(cut)).pwrite(bytes(PAGE), FRAMES_BEGIN)
    path = wal_file(cut)
    (said,) = [one for one in DirectoryChecker(cut, "/data", 1_000).check() if one.path == path]
    assert not said.is_damage
    assert "torn by a power cut, and then told to nobody, or damaged" in said.text
    assert "begin a leader epoch" in said.action
    after = without_page(disk, FRAMES_BEGIN)
    assert [epoch(after, name) for name in "tv"] == [1, 1]
    assert [after.get_handler(name, 0).high_watermark for name in "tv"] == [0, 1]
    assert not damaged(after)
    (row,) = [row for row in after.report.rows if row.what == "wal_torn"]
    assert row.path == wal_file(disk)
    assert row.reason.endswith("torn and told to nobody, or damaged")


def test_every_page_that_is_lost_in_front_of_a_later_group_is_told() -> None:
    disk, manager = hole_in_front()
    for _ in range(8):
        append(manager, "v", 1_000)
    cut = disk.after_power_cut()
    content = bytes(read_file(cut, wal_file(cut)))
    header = header_of(content)
    assert header is not None
    last = scan_file(memoryview(content), header).positions[-1]
    for begin in range(FRAMES_BEGIN, last // PAGE * PAGE, PAGE):
        after = without_page(disk, begin)
        assert damaged(after) >= 1
        for name, end in (("t", 5), ("v", 9)):
            handler = after.get_handler(name, 0)
            assert handler.high_watermark >= end or handler.leader_epoch >= 1, (begin, name)
