"""A manifest from any moment of a log's life, put back beside the files of its end.

    sends, seals, cleanings, deletions, kills, stops -> each manifest that there was -> in the place
                                                                                        of the last

Each record is served, or its file is whole in quarantine, and verify and the start tell of it.
Nothing that was deleted comes back.  The log ends where it ended, unless that was in such a file
and nothing else vouches for it.

    | closed | ........ | three in one | last |      the manifest is that of the close
    | closed | ........ | a copy |                   and nothing came behind it
"""

from random import Random

import pytest

from segbroker.protocol.record_batch import (
    GapReason,
    decode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file

from .compacted import Compacted
from .crash.explorer import silence
from .test_cleaned_and_damaged import PATHS, Said
from .tools import lose_wal

DOES = ("send", "send", "send", "send large", "seal", "clean", "delete", "stop", "kill")


def step(log: Compacted, chance: Random, number: int) -> None:
    match chance.choice(DOES):
        case "send":
            keys = [b"k%d" % chance.randrange(4) for _ in range(chance.randrange(1, 4))]
            log.send(*[(key, bytes(chance.randrange(1, 90))) for key in keys])
        case "send large":
            log.send((b"u%d" % number, bytes(chance.choice([200, 380]))))
        case "seal":
            log.seal()
        case "clean":
            log.clean()
        case "delete":
            handler = log.handler
            span = handler.log_end_offset - handler.log_start_offset
            handler.delete_records_before(handler.log_end_offset - chance.randrange(span + 1))
        case "stop":
            log.manager.close()
            log.open()
        case "kill":
            log.disk = log.disk.after_kill()
            log.open()


def served(log: Compacted) -> list[Said]:
    records = log.records(log.handler.log_start_offset)
    return [(record.offset, record.key, record.value) for record in records]


def lost(log: Compacted) -> set[int]:
    """What is told as lost."""
    found = set(range(log.handler.evict_floor))
    for batch in log.batches(log.handler.log_start_offset):
        header = read_header(batch)
        if gap_reason(header) not in (None, GapReason.DELETED):
            found.update(range(header.base_offset, header.next_offset))
    return found


def put_aside(log: Compacted) -> set[int]:
    """The records in quarantine."""
    folder = PATHS.quarantine
    names = log.disk.listdir(folder) if log.disk.exists(folder) else []
    batches = [
        one for name in names for one in iter_batches(read_file(log.disk, f"{folder}/{name}"))
    ]
    return {
        record.offset
        for batch in batches
        if not read_header(batch).is_control
        for record in decode_batch(batch)
    }


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("seed", [*range(40), 88, 163, 251, 404])
def test_no_manifest_of_an_earlier_moment_takes_a_record_without_a_word(
    seed: int, durability: str
) -> None:
    chance = Random(seed)
    log = Compacted(MemoryStorage(), durability=durability)
    manifests: dict[bytes, int] = {}
    for number in range(chance.randrange(6, 22)):
        step(log, chance, number)
        if log.handler.log_end_offset:
            manifests[bytes(read_file(log.disk, PATHS.manifest))] = number
    said, start, end = served(log), log.handler.log_start_offset, log.handler.log_end_offset
    if chance.random() < 0.4:
        log.manager.close()
    last = log.disk.after_kill()
    has_wal = chance.random() >= 0.6
    if not has_wal:
        lose_wal(last)
    with silence():
        for manifest, number in manifests.items():
            log.disk = last.after_kill()
            replace_file(log.disk, PATHS.manifest, manifest)
            told = [one for one in DirectoryChecker(log.disk, "/data", 0).check() if one.is_damage]
            log.open()
            found = served(log)
            missing = {offset for offset, _, _ in said} - {offset for offset, _, _ in found}
            assert missing <= put_aside(log), f"the manifest behind step {number}"
            assert told or not missing
            assert "quarantined" in {row.what for row in log.manager.report.rows} or not missing
            at = log.handler.log_end_offset
            assert {offset for offset in missing if offset < at} <= lost(log)
            assert all(offset >= start for offset, _, _ in found)
            assert at == end or (max(missing, default=-1) >= at and not has_wal)


def merged(durability: str) -> tuple[Compacted, bytes]:
    """A log that was closed behind its first segment and went on; the manifest of that moment.  A
    cleaning has made segment 3 of 1 to 3."""
    log = Compacted(MemoryStorage(), durability=durability)
    log.send((b"first", b"x"))
    log.manager.close()
    manifest = bytes(read_file(log.disk, PATHS.manifest))
    log.open()
    for offset in range(1, 5):
        log.seal()
        log.send((b"k%d" % (offset % 2), bytes(380)))
    log.clean()
    log.send((b"last", b"x"))
    present = map(PATHS.segment_number, log.disk.listdir(PATHS.folder))
    assert sorted(number for number in present if number is not None)[:2] == [0, 3]
    return log, manifest


@pytest.mark.parametrize("has_wal", [True, False])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_what_a_cleaning_made_of_several_is_served_behind_the_manifest_of_the_stop_before(
    durability: str, *, has_wal: bool
) -> None:
    log, manifest = merged(durability)
    said = served(log)
    log.disk = log.disk.after_kill()
    if not has_wal:
        lose_wal(log.disk)
    replace_file(log.disk, PATHS.manifest, manifest)
    assert not [one for one in DirectoryChecker(log.disk, "/data", 0).check() if one.is_damage]
    log.open()
    assert served(log) == said
    assert log.manager.report.rows == []


def test_a_segment_behind_a_close_of_which_nothing_says_whose_it_is_is_put_aside_and_told() -> None:
    log, manifest = merged("disk")
    said = served(log)
    log.disk = log.disk.after_kill()
    lose_wal(log.disk)
    replace_file(log.disk, PATHS.manifest, manifest)
    log.disk.unlink(PATHS.index(3))
    told = [one.path for one in DirectoryChecker(log.disk, "/data", 0).check() if one.is_damage]
    log.open()
    assert served(log) == said[:1]
    assert {offset for offset, _, _ in said[1:]} == put_aside(log)
    rows = [row for row in log.manager.report.rows if row.what == "quarantined"]
    assert [PATHS.log(number) for number in (3, 4, 5)] == told
    assert len(rows) == len(told)


def test_where_the_log_went_on_behind_a_close_a_segment_that_is_gone_costs_no_other() -> None:
    """| closed | k | - | k | last |, and the manifest is that of the close."""
    log, manifest = merged("disk")
    said = served(log)
    log.disk = log.disk.after_kill()
    lose_wal(log.disk)
    replace_file(log.disk, PATHS.manifest, manifest)
    log.disk.unlink(PATHS.log(4))
    log.open()
    assert served(log) == [record for record in said if record[0] != 4]
    assert lost(log) == {4}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_copy_that_somebody_made_takes_nothing_from_what_the_write_ahead_log_has(
    number: int,
) -> None:
    other = Compacted(MemoryStorage())
    for _ in range(8):
        other.send((b"other", b"x" * 40))
    copy = bytes(read_file(other.disk, PATHS.log(0)))
    log = Compacted(MemoryStorage())
    for _ in range(2):
        log.send((b"own", b"x"))
    said = served(log)
    log.disk = log.disk.after_kill()
    log.disk.unlink(PATHS.log(0))
    replace_file(log.disk, PATHS.log(number), copy)
    log.open()
    assert served(log)[:2] == said
