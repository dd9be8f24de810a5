"""All shards of the write-ahead log together, and groups that several ask for at once."""

import errno

import pytest
from structlog.testing import capture_logs

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.wal.frames import Frame, FrameType
from segbroker.segments.wal.group import Request
from segbroker.segments.wal.journal import Wal, WalConfig

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
)

FOLDER = f"{ROOT}/shard-00"
TWO_SHARDS = WalConfig(shards=2, file_bytes=8192, shard_bytes=4 * 8192)
EVENT = Frame(FrameType.CONTROL, payload=b"event")
BARRIER = Frame(FrameType.BARRIER, TOPIC, 9)


def batches(payload: bytes) -> Frame:
    return Frame(FrameType.BATCHES, TOPIC, 1, 0, 0, 0, 1, payload, end_offset=len(payload))


def writers(wal: Wal) -> list[Writer]:
    """One of each of two shards."""
    found = {id(one.shard): one for one in (Writer(wal, number) for number in range(20))}
    shards = [wal.shard_of(TOPIC, number) for number in range(20)]
    return sorted(found.values(), key=lambda one: shards.index(one.shard))


@pytest.mark.parametrize("asked", [[EVENT, BARRIER], [BARRIER, EVENT]])
def test_a_file_has_events_whatever_else_was_asked_for_in_their_group(asked: list[Frame]) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    seen: list[list[bytes]] = []
    wal.snapshot = lambda: seen.append(replayed(disk).control)
    writer = Writer(wal)
    with writer.shard._writing:
        writer.shard._commit([Request([frame], None) for frame in asked], at_once)
    while disk.exists(f"{FOLDER}/wal-0.log"):
        writer.append(bytes(1_000))
    assert seen == [[b"event"]], "a snapshot came before the event went"


def test_what_a_start_kept_is_not_overwritten_by_what_a_checkpoint_keeps() -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once)
    wal.open()
    wal.keep({(TOPIC, 1): [batches(b"of the start")]}, {})
    wal.absorbed()
    failed, other = Writer(wal, 2), Writer(wal, 3)
    failed.can_checkpoint = False
    failed.append(b"of the checkpoint")
    while len([name for name in disk.listdir(FOLDER) if name.startswith("kept-")]) < 2:
        other.append(bytes(1_000))
        assert other.end < 100_000, "the first one is gone"
    found = replayed(disk.after_power_cut()).partitions
    assert [bytes(one.payload) for one in found[TOPIC, 1]] == [b"of the start"]
    assert [bytes(one.payload) for one in found[TOPIC, 2]] == [b"of the checkpoint"]


@pytest.mark.parametrize("shard", [0, 1])
def test_space_that_one_shard_gives_back_counts(shard: int) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, TWO_SHARDS)
    writers(wal)[shard].append(b"one")
    wal.close(empty=True)
    wal = Wal(disk, ROOT, TWO_SHARDS, threaded=False, call_soon=at_once)
    wal.open()
    assert [wal.give_space_back() for _ in range(2)] == [True, False]


def test_of_shards_that_cannot_go_on_the_first_says_why_and_all_are_tried() -> None:
    class Refusing(FailingStorage):
        refused = -1

        def random_bytes(self, size: int) -> bytes:  # what a new file begins with
            if self.refused >= 0:
                self.refused += 1
                raise OSError(errno.ENOSPC, f"file {self.refused}")
            return super().random_bytes(size)

    disk = Refusing()
    wal, _ = begun(disk, TWO_SHARDS)
    for writer in writers(wal):
        writer.append(b"kept.")
    disk.fail_sync = errno.EIO
    for writer in writers(wal):
        writer.append(b"lost!")
    disk.fail_sync = 0
    assert wal.statistics().shards_failed == 2
    for shard in wal._shards:
        shard.supply.release()
    disk.refused = 0
    with pytest.raises(OSError, match="file 1"):
        wal.revive()
    assert disk.refused == 2


class Remembering(MemoryStorage):
    """Knows every file that was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        self.opened.append(file)
        return file


def test_a_wal_that_is_closed_has_no_file_open_whatever_it_did() -> None:
    disk = Remembering()
    for _ in range(2):  # the second one finds free files, and a kept one
        wal, _ = begun(disk)
        failed, other = Writer(wal, 1), Writer(wal, 2)
        failed.can_checkpoint = False
        failed.append(b"kept")
        while not any(name.startswith("kept-") for name in disk.listdir(FOLDER)):
            other.append(bytes(1_000))
        wal.stop()
        wal.close(empty=False)
    assert len(disk.opened) > 20
    assert not [file.path for file in disk.opened if not file._closed]


def test_more_than_ten_files_are_read_in_the_order_of_their_numbers() -> None:
    class Shuffled(MemoryStorage):
        def listdir(self, path: str) -> list[str]:
            return sorted(super().listdir(path), reverse=True)  # a disk has no order

    disk = Shuffled()
    wal, _ = begun(disk, WalConfig(file_bytes=8192, shard_bytes=30 * 8192))
    writer = Writer(wal)
    expected = b""
    while not disk.exists(f"{FOLDER}/wal-11.log"):
        writer.append(bytes([65 + len(expected) // 1_000]) * 1_000)
        expected += bytes([65 + len(expected) // 1_000]) * 1_000
    for image in (disk, disk.after_power_cut()):
        found = replayed(image)
        assert content(found) == expected
        assert not found.missing


class Refused(Writer):
    """Its checkpoint fails, each with an error of its own."""

    def wal_checkpoint(self) -> bool:
        raise OSError(1 + self.partition, "refused")


def test_checkpoints_that_fail_in_two_shards_for_two_reasons_are_told_once_of_each() -> None:
    wal, _ = begun(MemoryStorage(), TWO_SHARDS)
    for one in writers(wal):
        refused = Refused(wal, one.partition)
        while not refused.shard.full:
            refused.append(bytes(1_000))
    with capture_logs() as lines:
        for _ in range(3):
            wal.checkpoint()
    assert [line["event"] for line in lines] == ["wal_checkpoint_failed"] * 2
