"""Files of the write-ahead log under names that are not theirs, and files that get none."""

import errno

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer, read_file
from segbroker.segments.wal.frames import FRAMES_BEGIN
from segbroker.segments.wal.journal import WalConfig

from .wal_writing import ROOT, SMALL, Writer, begun, content, replayed

FOLDER = f"{ROOT}/shard-00"
TWO_SHARDS = WalConfig(shards=2, file_bytes=8192, shard_bytes=4 * 8192)
NUMBER = 9_999_999_999_999_999_999
"""The highest that a name has room for."""


def test_a_file_of_another_shard_in_the_place_of_one_is_damage() -> None:
    # shard-00/wal-0.log is a copy of shard-01/wal-0.log: it has the right number, and a good header
    disk = MemoryStorage()
    wal, _ = begun(disk, TWO_SHARDS)
    writers = [Writer(wal, partition) for partition in range(8)]
    for writer in writers:
        writer.append(b"in both shards")
    assert len({id(writer.shard) for writer in writers}) == 2
    copied = read_file(disk, f"{ROOT}/shard-01/wal-0.log")
    disk.open(f"{FOLDER}/wal-0.log").pwrite(copied, 0)
    found = replayed(disk.after_kill(), TWO_SHARDS)
    assert [(one.path, one.durable) for one in found.missing] == [(f"{FOLDER}/wal-0.log", True)]
    assert found.unnamed == {0}
    for writer in writers:
        is_left = writer.shard is wal.shard_of(*writers[1].wal_key)
        assert content(found, writer.partition) == (b"in both shards" if is_left else b"")


class RefusingStorage(MemoryStorage):
    """A disk on which files are made, and then fail to become files of the log: at this call."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""

    def refuse(self, call: str, path: str) -> None:
        if call == self.refused:
            raise OSError(errno.EIO, "planted", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _RefusingFile(path, plain._inode, self)
        file.disk = self
        return file

    def rename(self, source: str, target: str) -> None:
        self.refuse("rename", target)
        super().rename(source, target)


class _RefusingFile(MemoryFile):
    disk: RefusingStorage
    has_header = False

    def pwrite(self, data: Buffer, position: int) -> int:
        if len(data) == FRAMES_BEGIN:
            self.has_header = True
            self.disk.refuse("pwrite", self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        if self.has_header:
            self.disk.refuse("fdatasync", self.path)
        super().fdatasync()


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "rename"])
def test_files_that_do_not_get_their_names_take_no_room(call: str) -> None:
    # Who writes asks for a file each time: each of these was left behind, and was not counted.
    disk = RefusingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(bytes(1_000))
    disk.refused = call
    for _ in range(20):
        writer.append(bytes(1_000))
    assert writer.failures
    files = [name for name in disk.listdir(FOLDER) if name.endswith(".log")]
    assert len(files) == wal.statistics().files <= SMALL.files_max, files
    disk.refused = ""
    writer.append(b"and then it has one")
    assert content(replayed(disk.after_power_cut())).endswith(b"and then it has one")


@pytest.mark.parametrize(
    "path",
    [
        *(f"{FOLDER}/{kind}-{NUMBER}.log" for kind in ("wal", "kept", "spent")),
        f"{ROOT}/shard-00.wal-{NUMBER}",
    ],
    ids=["wal", "kept", "spent", "marker"],
)
def test_a_number_that_no_file_can_have_is_not_counted_on_from(path: str) -> None:
    # The next one would not be looked for by a start: its name has a digit more.
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.close(empty=True)
    disk.open(path, create=True).pwrite(b"of somebody else", 0)
    wal, _ = begun(disk)
    Writer(wal).append(b"precious")
    assert content(replayed(disk.after_power_cut())) == b"precious"
