"""Leader epochs of a log whose manifest does not say them any more: by its batches, and what those
that are believed cost."""

from unittest.mock import patch

import pytest

from segbroker.protocol.record_batch import gap_reason, iter_batches, patch_batch, read_header
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.files.manifest import HEADER_SIZE as MANIFEST_HEADER_SIZE
from segbroker.segments.files.manifest import ROW_SIZE, RowKind, decode_manifest
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.recovery.epochs import _Chain, epochs_of
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, flip, manager_on, read_from

FOLDER = "/data/topics/t/partition_0"
MANIFEST = f"{FOLDER}/t_partition_0.manifest"
EPOCH_POSITION = 12


def partition_of(disk: MemoryStorage) -> DiskHandler:
    return manager_on(disk).get_handler("t", 0)


def seen(disk: MemoryStorage) -> list[tuple[int, int, str]]:
    """(base offset, leader epoch, reason of a gap) of every batch; the log is closed again."""
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    found: list[tuple[int, int, str]] = []
    offset = handler.log_start_offset
    while offset < handler.high_watermark:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            reason = gap_reason(header)
            name = "" if reason is None else reason.name.lower()
            found.append((header.base_offset, header.leader_epoch, name))
            offset = header.next_offset
    manager.close()
    return found


def records_of(found: list[tuple[int, int, str]]) -> set[int]:
    return {offset for offset, _, reason in found if not reason}


def two_epochs(segment_bytes: int) -> MemoryStorage:
    """A log of three records in epoch 0, a lost tail, and three records behind it in epoch 1."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    config = {**SMALL.overrides, "segment.bytes": str(segment_bytes), "durability": "disk"}
    manager.create_topic("t", 1, TopicConfig(config))
    handler = manager.get_handler("t", 0)
    for _ in range(3):
        append(handler, batch_of(b"x" * 57))
    handler.sync()
    append(handler, batch_of(b"not synced"))
    disk = disk.after_power_cut()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    for _ in range(3):
        append(handler, batch_of(b"x" * 57))
    manager.close()
    return disk


@pytest.mark.parametrize("segment_bytes", [100_000, 512])
@pytest.mark.parametrize("damaged", ["missing", *range(6)])
def test_an_epoch_that_begins_inside_a_segment_is_known_without_a_manifest(
    segment_bytes: int, damaged: str | int
) -> None:
    # Of the manifest, nothing or the rows in front of one.
    disk = two_epochs(segment_bytes)
    before = seen(disk)
    assert [epoch for _, epoch, _ in before] == [0, 0, 0, 1, 1, 1, 1]
    if isinstance(damaged, str):
        disk.unlink(MANIFEST)
        disk.fsync_dir(FOLDER)
    else:
        position = MANIFEST_HEADER_SIZE + damaged * ROW_SIZE + 20
        if position >= len(read_file(disk, MANIFEST)):
            pytest.skip("it has fewer rows")
        flip(disk, MANIFEST, position)
    assert seen(disk) == before
    assert seen(disk) == before, "not what the first start has written, either"
    handler = partition_of(disk)
    assert handler.leader_epoch == 1
    assert handler.end_offset_for_epoch(0) == (0, 3)


def test_without_a_manifest_no_record_of_an_earlier_epoch_is_lost() -> None:
    disk = two_epochs(100_000)
    before = seen(disk)
    disk.unlink(MANIFEST)
    disk.fsync_dir(FOLDER)
    for _ in range(2):
        assert seen(disk) == before


@pytest.mark.parametrize("mask", [1, 64])
@pytest.mark.parametrize("place", range(6))
def test_without_a_manifest_a_flipped_epoch_costs_its_batch_and_no_other(
    place: int, mask: int
) -> None:
    disk = two_epochs(100_000)
    path = f"{FOLDER}/t_partition_0_segment_0.log"
    batches = list(iter_batches(memoryview(read_file(disk, path))))
    before = seen(disk)
    flip(disk, path, sum(map(len, batches[:place])) + EPOCH_POSITION + 3, mask)
    disk.unlink(MANIFEST)
    disk.fsync_dir(FOLDER)
    found = seen(disk)
    assert records_of(before) - records_of(found) <= {before[place][0]}
    assert [epoch for _, epoch, _ in found] == sorted(epoch for _, epoch, _ in found)
    assert seen(disk) == found


def test_what_lies_in_an_epoch_that_is_known_speaks_against_a_flipped_one() -> None:
    whole = read_file(two_epochs(100_000), f"{FOLDER}/t_partition_0_segment_0.log")
    batches = list(iter_batches(memoryview(whole)))[:3]
    data = bytearray(b"".join(batches))
    assert epochs_of([(0, 0)], [memoryview(data)]) == [(0, 0)]
    data[len(batches[0]) + EPOCH_POSITION + 3] ^= 64
    assert epochs_of([(0, 0)], [memoryview(data)]) == [(0, 0)]


def test_a_flipped_offset_does_not_hide_the_epoch_behind_it() -> None:
    whole = read_file(two_epochs(100_000), f"{FOLDER}/t_partition_0_segment_0.log")
    batches = list(iter_batches(memoryview(whole)))
    behind = [batch for batch in batches if read_header(batch).leader_epoch]
    front = [batch for batch in batches if not read_header(batch).leader_epoch]
    wrong = bytearray(front[-1])
    wrong[4] ^= 64  # 2**30 offsets higher
    files = [memoryview(b"".join(front[:-1])), memoryview(wrong), memoryview(b"".join(behind))]
    epochs = [(0, 0), (1, read_header(behind[0]).base_offset)]
    assert epochs_of([], files) == epochs
    assert epochs_of([], files[1:])[-1] == epochs[-1]


def file_of(epoch: int, offsets: range) -> memoryview:
    """A segment whose batches begin there."""
    batches = [batch_of(*[b"x"] * offsets.step) for _ in offsets]
    for offset, batch in zip(offsets, batches, strict=True):
        patch_batch(batch, offset, epoch)
    return memoryview(b"".join(batches))


def test_a_copy_that_goes_on_where_a_file_ends_does_not_hide_the_epoch_that_begins_there() -> None:
    # | 0 .. 9 | 10, 12 .. 208, another's | 10 .. 309 of epoch 1 |
    files = [file_of(0, range(10)), file_of(0, range(10, 210, 2)), file_of(1, range(10, 310))]
    assert epochs_of([], files) == [(0, 0), (1, 10)]


def test_a_batch_that_goes_on_in_its_file_is_compared_with_no_other_way() -> None:
    # A manifest is lost, and the log has some hundred million batches.
    files = [file_of(0, range(100)), file_of(0, range(100, 200)), file_of(1, range(200, 300))]
    with patch.object(_Chain, "is_better", autospec=True, side_effect=_Chain.is_better) as looks:
        assert epochs_of([], files) == [(0, 0), (1, 200)]
    assert looks.call_count <= len(files) ** 2


def test_rows_of_epochs_are_in_front_of_what_they_speak_of() -> None:
    # What the tests above stand on: a manifest says the second epoch in a row of its own.
    manifest = decode_manifest(read_file(two_epochs(512), MANIFEST))
    assert manifest is not None
    kinds = [row.kind for row in manifest.rows]
    assert kinds.count(RowKind.EPOCH) == 2
