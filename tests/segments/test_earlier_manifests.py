"""A manifest from any moment of a log's life, put back beside the files of its end.

    sends, seals, cleanings, deletions, kills, stops -> each manifest that there was -> in the place
                                                                                        of the last

Each record is served, or its file is whole in quarantine, and a gap tells of it.  Nothing that was
deleted comes back.  The log ends where it ended, unless that was in such a file and nothing else
vouches for it.
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
@pytest.mark.parametrize("seed", [*range(40), 163])
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
            log.open()
            found = served(log)
            missing = {offset for offset, _, _ in said} - {offset for offset, _, _ in found}
            assert missing <= put_aside(log), f"the manifest behind step {number}"
            at = log.handler.log_end_offset
            assert {offset for offset in missing if offset < at} <= lost(log)
            assert all(offset >= start for offset, _, _ in found)
            assert at == end or (max(missing, default=-1) >= at and not has_wal)
