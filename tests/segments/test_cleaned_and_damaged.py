"""What a cleaning took does not come back when the segment that it wrote is damaged, though the
write-ahead log still has it: not even where the cleaning was ended before it said how far it got.
Put where it once stood, it would make another segment of it, of which nothing is believed.

| a a b c | a a ... |  ->  | gap, b c | a a ... |   the clean point stays at 0, and the first rots

Nor when the manifest is damaged, or gone, that says which segments became one: the file that has
the offsets of several stands for them.
"""

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import CorruptSegment
from segbroker.segments.files.manifest import ROW_SIZE
from segbroker.segments.names import partition_paths
from segbroker.segments.recovery.known import read_known

from .compacted import Compacted
from .tools import flip, lose_wal

PATHS = partition_paths("/data", "t", 0)
ALL = 7
"""Segments that two cleanings unlink: of those who are killed before that, all are there."""
Said = tuple[int, bytes | None, bytes | None]

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


def merged(in_front: int, back: int, *, has_wal: bool) -> tuple[Compacted, list[Said]]:
    """A log of which a cleaning has made several segments one, twice, and what it says; killed.

    in_front: segments that it left alone.  back: so many of those that were unlinked are there.
    """
    log = Compacted(MemoryStorage())
    for number in range(in_front):
        log.send((b"once%d" % number, bytes(400)))
    for number in range(9):
        once = [(b"x%d" % number, b"")] if number in (0, 3, 5) else []
        log.send((b"k%d" % (number % 2), bytes(150)), *once)
        log.seal()
    names = [name for name in log.disk.listdir(PATHS.folder) if name.endswith(".log")]
    files = {name: read_file(log.disk, f"{PATHS.folder}/{name}") for name in names}
    log.clean_sealed()
    log.send((b"new", bytes(150)))
    said = what_it_says(log)
    log.disk = log.disk.after_kill()
    if not has_wal:
        lose_wal(log.disk)
    gone = [name for name in names if not log.disk.exists(f"{PATHS.folder}/{name}")]
    assert len(gone) == ALL
    for name in gone[len(gone) - back :]:
        replace_file(log.disk, f"{PATHS.folder}/{name}", files[name])
    return log, said


def what_it_says(log: Compacted) -> list[Said]:
    return [(record.offset, record.key, record.value) for record in log.records()]


def check_whole(log: Compacted, said: list[Said]) -> None:
    """Nothing is lost, and nothing has come back."""
    log.open()
    assert what_it_says(log) == said
    assert log.handler.log_start_offset == 0
    told = {row.what for row in log.manager.report.rows}
    assert not told & {"gap", "quarantined", "repaired"}
    log.check()
    log.clean()
    log.check()


@pytest.mark.parametrize("has_wal", [True, False])
@pytest.mark.parametrize("back", [0, 1, ALL])
@pytest.mark.parametrize("row", [2, 3, 4], ids=["second swap", "first swap", "a segment"])
@pytest.mark.parametrize("in_front", [0, 1])
def test_a_damaged_row_of_a_manifest_takes_nothing_of_what_became_one_segment(
    in_front: int, row: int, back: int, has_wal: bool
) -> None:
    log, said = merged(in_front, back, has_wal=has_wal)
    end = len(read_file(log.disk, PATHS.manifest))
    flip(log.disk, PATHS.manifest, end - row * ROW_SIZE + 30)
    check_whole(log, said)


@pytest.mark.parametrize("has_wal", [True, False])
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("rows", [*range(1, 6), 11])  # of the last none has its file
@pytest.mark.parametrize("in_front", [0, 1])
def test_a_manifest_that_is_cut_between_rows_takes_nothing_of_what_became_one_segment(
    in_front: int, rows: int, back: int, has_wal: bool
) -> None:
    # It is whole by itself, but some of the segments that it speaks of are gone.
    log, said = merged(in_front, back, has_wal=has_wal)
    content = read_file(log.disk, PATHS.manifest)
    replace_file(log.disk, PATHS.manifest, content[: -rows * ROW_SIZE])
    check_whole(log, said)


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_the_manifest_of_the_last_stop_put_back_takes_nothing_of_what_was_cleaned_since(
    end: str, *, goes_on: bool
) -> None:
    log = Compacted(MemoryStorage())
    for number in range(9):
        once = [(b"x%d" % number, b"")] if number in (0, 3, 5) else []
        log.send((b"k%d" % (number % 2), bytes(150)), *once)
        log.seal()
    for number in range(3):  # in segments that no cleaning joins to others
        log.send((b"once%d" % number, bytes(400)))
    log.manager.close()
    before = read_file(log.disk, PATHS.manifest)
    log.open()
    if goes_on:
        log.send((b"new", bytes(150)))
    log.clean_sealed()
    said = what_it_says(log)
    if end == "closed":
        log.manager.close()
    log.disk = log.disk.after_kill()
    replace_file(log.disk, PATHS.manifest, before)
    check_whole(log, said)


@pytest.mark.parametrize("end", ["killed", "closed"])
@pytest.mark.parametrize("alone", ["in front", "at the stop"])
def test_the_manifest_of_the_last_stop_put_back_takes_nothing_of_what_was_written_anew_alone(
    alone: str, end: str
) -> None:
    log = Compacted(MemoryStorage())
    if alone == "in front":  # too much is left of it for another beside it
        log.send((b"k0", b""), (b"once", bytes(420)))
        log.seal()
    for number in range(6):
        log.send((b"k%d" % (number % 2), bytes(150)), (b"x%d" % number, b""))
        log.seal()
    if alone == "at the stop":
        log.send((b"k0", b""), (b"once", bytes(200)))
    log.manager.close()
    before = read_file(log.disk, PATHS.manifest)
    log.open()
    log.send((b"k0", bytes(300)))
    log.seal()
    log.send((b"new", bytes(150)))
    log.clean_sealed()
    said = what_it_says(log)
    if end == "closed":
        log.manager.close()
    log.disk = log.disk.after_kill()
    replace_file(log.disk, PATHS.manifest, before)
    check_whole(log, said)


@pytest.mark.parametrize("has_wal", [True, False])
@pytest.mark.parametrize("back", [1, 2])
@pytest.mark.parametrize("in_front", [0, 1])
def test_a_manifest_that_is_lost_while_segments_are_unlinked_takes_nothing_either(
    in_front: int, back: int, has_wal: bool
) -> None:
    log, said = merged(in_front, back, has_wal=has_wal)
    log.disk.unlink(PATHS.manifest)
    check_whole(log, said)


def test_segments_that_came_back_leave_the_rows_of_a_torn_manifest_believed() -> None:
    # Else all behind the cleaned one would be read, and written again, at the start.
    log, said = merged(1, 2, has_wal=True)
    whole = read_known(log.disk, PATHS)
    assert whole is not None
    content = read_file(log.disk, PATHS.manifest)
    replace_file(log.disk, PATHS.manifest, content + bytes(ROW_SIZE // 2))
    torn = read_known(log.disk, PATHS)
    assert torn is not None
    assert (torn.size, whole.size) == (0, len(content))
    assert torn.sealed.rows() == whole.sealed.rows()
    check_whole(log, said)


class Opened(MemoryStorage):
    """A disk that knows which files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.opened.append(path)
        return super().open(path, create=create, read_only=read_only)


def test_no_segment_of_a_row_is_opened_where_each_has_its_file() -> None:
    disk = Opened()
    log = Compacted(disk)
    for number in range(9):
        log.send((b"k%d" % number, bytes(400)))
    log.seal()
    log.manager.close()
    known = read_known(disk, PATHS)
    assert known is not None
    sealed = {PATHS.log(number) for number in known.sealed.numbers}
    assert len(sealed) == 9
    disk.opened.clear()
    log.open()
    assert log.handler.log_end_offset == 9
    assert not sealed.intersection(disk.opened)


def test_a_segment_that_has_no_file_is_no_reason_to_doubt_the_manifest() -> None:
    log, _ = merged(1, 0, has_wal=True)
    whole = read_known(log.disk, PATHS)
    assert whole is not None
    log.disk.unlink(PATHS.log(whole.sealed.numbers[0]))
    found = read_known(log.disk, PATHS)
    assert found is not None
    assert (found.size, found.is_cut) == (whole.size, False)
    assert found.sealed.rows() == whole.sealed.rows()


@pytest.mark.parametrize("has_wal", [True, False])
def test_a_segment_that_waits_for_its_name_is_there(has_wal: bool) -> None:
    """Recovery gives it its name anew, and is killed; what came behind it in the manifest was torn
    by the power cut before."""
    log = Compacted(MemoryStorage())
    for number in range(3):
        log.send((b"k%d" % (number % 2), bytes(150)))
        log.seal()
    log.clean_sealed()
    log.send((b"new", bytes(150)))
    said = what_it_says(log)
    log.disk = log.disk.after_kill()
    if not has_wal:
        lose_wal(log.disk)
    known = read_known(log.disk, PATHS)
    assert known is not None
    assert known.swapped is not None
    assert known.sealed.numbers[0] == known.swapped.number
    log.disk.rename(PATHS.log(known.swapped.number), PATHS.cleaned(known.swapped.number))
    content = read_file(log.disk, PATHS.manifest)
    replace_file(log.disk, PATHS.manifest, content + b"half a row".ljust(ROW_SIZE, b"\0"))
    waiting = read_known(log.disk, PATHS)
    assert waiting is not None
    assert (waiting.log_start_offset, waiting.pending) == (0, known.swapped.number)
    check_whole(log, said)


def test_zeros_are_no_segment_that_stands_for_others() -> None:
    """A power cut leaves them at the end, which says nothing of offset 0; and a kill, a segment
    that waits for its name."""
    log = Compacted(MemoryStorage())
    for keys in ("ab", "aa"):
        for key in keys:
            log.send((key.encode(), bytes(150)))
        log.seal()
    log.clean_sealed()
    said = what_it_says(log)
    log.disk = log.disk.after_kill()
    lose_wal(log.disk)
    known = read_known(log.disk, PATHS)
    assert known is not None
    assert known.swapped is not None
    number = known.swapped.number
    assert list(known.sealed.numbers) == [0, number]
    log.disk.rename(PATHS.log(number), PATHS.cleaned(number))
    replace_file(log.disk, PATHS.log(number + 1), bytes(170))
    check_whole(log, said)
