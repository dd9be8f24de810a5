"""Where recovery draws its lines: how far away a file may be, what of a manifest is believed."""

import pytest

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.files.manifest import HEADER, MAGIC, VERSION, Row, RowKind
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.ready import AHEAD_MAX
from segbroker.segments.settings.topic_config import TopicConfig

from .test_survey import PATHS, disk_with, gaps_of, open_log, record
from .tools import SMALL, flip, values_of


@pytest.mark.parametrize("hole", [AHEAD_MAX, AHEAD_MAX + 1])
def test_an_empty_file_may_be_as_far_away_as_files_are_made_ahead(hole: int) -> None:
    disk = disk_with(3)  # in segment 0
    replace_file(disk, PATHS.log(1 + hole), b"")
    with open_log(disk) as log:
        assert values_of(log) == [record(number) for number in range(3)]
        assert log.append([record(3)], now_ms=0) == 3
    assert disk.exists("/log/quarantine") == (hole > AHEAD_MAX)


@pytest.mark.parametrize("base_offset", [AHEAD_MAX + 1, AHEAD_MAX])
def test_a_file_further_away_is_believed_if_every_missing_one_may_have_had_an_offset(
    base_offset: int,
) -> None:
    # segments 1 ... 17 are missing; who comes behind them begins that many offsets higher, or not
    hole = AHEAD_MAX + 1
    disk = disk_with(3)
    content = b""
    for offset in (base_offset, base_offset + 1):
        batch = bytearray(encode_batch([record(offset)], timestamps_ms=1_000))
        batch[:8] = offset.to_bytes(8, "big")
        batch[12:16] = bytes(4)  # leader epoch
        content += batch
    replace_file(disk, PATHS.log(1 + hole), content)
    with open_log(disk) as log:
        gaps = [(begin, end) for begin, end, _ in gaps_of(log)]
        if base_offset >= hole:
            assert (gaps, log.log_end_offset) == ([(3, base_offset)], base_offset + 2)
            assert values_of(log)[3:] == [record(base_offset), record(base_offset + 1)]
        else:
            assert (gaps, log.log_end_offset) == ([], 3)
    assert disk.exists("/log/quarantine") == (base_offset < hole)


@pytest.mark.parametrize(("magic", "version"), [(b"SBMX", VERSION), (MAGIC, VERSION + 1)])
def test_a_manifest_of_another_kind_is_not_read_though_its_checksum_is_right(
    magic: bytes, version: int
) -> None:
    disk = disk_with(20, closed=True)
    head = HEADER.pack(magic, version, 0, 1_000, 0, 0)[:24]
    lies = Row(RowKind.START, number=1, base_offset=7, end_offset=7, records=1)
    replace_file(disk, PATHS.manifest, head + xxh3_64(head).to_bytes(8, "big") + lies.encode())
    with open_log(disk) as log:
        assert log.log_start_offset == 0
        assert values_of(log) == [record(number) for number in range(20)]


@pytest.mark.parametrize("policy", ["refuse", "readonly"])
def test_a_log_of_the_library_says_by_its_own_name_that_it_is_damaged(policy: str) -> None:
    disk = disk_with(20, closed=True)
    flip(disk, PATHS.log(3), 70)
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    with pytest.raises(PartitionReadOnly, match="partition 0 of topic 't'"):
        SegmentedLog.open(disk, "/log", "t", config, now_ms=1_000).append([b"x"], now_ms=1_000)


def test_what_is_missing_in_front_of_the_first_file_behind_the_manifest_is_a_gap() -> None:
    # 0 .. 14 are sealed | 15 | 16 | 17 |   and the first batch of the last file is gone
    disk = disk_with(18)
    content = read_file(disk, PATHS.log(3))
    replace_file(disk, PATHS.log(3), content[88:])
    for _ in range(2):
        with open_log(disk) as log:
            assert [(begin, end) for begin, end, _ in gaps_of(log)] == [(15, 16)]
            assert values_of(log) == [record(n) for n in range(18) if n != 15]


def test_a_file_of_the_right_size_and_place_with_other_records_is_not_what_was_closed() -> None:
    disks = []
    for values in ([b"x" * 27], [b"y" * 10, b"z" * 10]):
        disk = MemoryStorage()
        with open_log(disk) as log:
            log.append(values, now_ms=1_000)
        disks.append(disk)
    disk, other = disks
    foreign = read_file(other, PATHS.log(0))
    assert len(foreign) == len(read_file(disk, PATHS.log(0)))
    replace_file(disk, PATHS.log(0), foreign)
    for _ in range(2):
        with open_log(disk) as log:
            assert values_of(log) == []
            assert [(begin, end) for begin, end, _ in gaps_of(log)] == [(0, 1)]
    (kept,) = disk.listdir("/log/quarantine")
    assert read_file(disk, f"/log/quarantine/{kept}") == foreign


def test_an_empty_last_segment_whose_file_a_copy_left_out_is_made_again() -> None:
    disk = disk_with(3)
    with open_log(disk) as log:
        opened = log._log
        with opened.append_lock:
            opened.roll(0)
    last = PATHS.log(opened.active.number)
    assert read_file(disk, last) == b""
    disk.unlink(last)
    disk.fsync_dir("/log")
    for _ in range(2):
        with open_log(disk) as log:
            assert log.append([b"more"], now_ms=0) == log.log_end_offset - 1
        disk = disk.after_power_cut()
    with open_log(disk) as log:
        assert values_of(log) == [*(record(number) for number in range(3)), b"more", b"more"]
        assert gaps_of(log) == []
