"""One bit flipped in one byte of one file of a data directory.

    at rest   flipped, then opened: what a disk does to a file over the years
    in use    opened and read, then flipped under the open broker, then read again and opened again

Of every flip: noticed or harmless, at most one batch lost and a gap in its place, no wrong byte
handed out, no record lost without a word.  A damaged snapshot of the metadata refuses the whole
directory: nothing says any more what exists, and guessing could remove it.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import StorageError
from segbroker.segments.wal.replay import Replay, replay

from .damage import (
    ROOT,
    Verdict,
    World,
    disk_with,
    examine,
    files_of,
    kinds_of,
    manager_on,
    partition_of,
    read_out,
    sample,
)


@dataclass
class Tally:
    """How flips of one kind of file came out."""

    flips: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def join(self, other: "Tally") -> None:
        """Count what another process has found, too."""
        self.flips += other.flips
        self.outcomes += other.outcomes
        self.findings += other.findings

    def add(self, what: str, verdict: Verdict, *, refusal_allowed: bool) -> None:
        """Judge one flip."""
        self.flips += 1
        self.outcomes[verdict.outcome] += 1
        self.findings += [f"{what}: {violation}" for violation in verdict.violations]
        if verdict.refused and not refusal_allowed:
            self.findings.append(f"{what}: refused: {verdict.refused}")
        if verdict.lost > 1 and not verdict.refused:
            self.findings.append(f"{what}: {verdict.lost} batches lost")


def flipped(content: bytes, position: int, bit: int) -> bytes:
    """`content` with that bit of that byte the other way round."""
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return bytes(changed)


def flip(
    world: World,
    random: Random,
    per_file: int,
    *,
    in_use: bool = False,
    kinds: Collection[str] | None = None,
    part: tuple[int, int] = (0, 1),
    only_bit: int | None = None,
) -> dict[str, Tally]:
    """Flip a bit in `per_file` bytes of each file (of these kinds), spread evenly; tallies by
    kind of file.

    part: (k, n) for every n-th of them, from the k-th on, so that n processes share the work.
    only_bit: this bit of each byte; None: one that chance draws.
    """
    tallies: dict[str, Tally] = {}
    plain_wal = _wal_of(disk_with(world.files))
    unharmed: Verdict | None = None
    for number, (path, position, kind) in enumerate(positions(world, random, per_file)):
        bit = random.randrange(8) if only_bit is None else only_bit
        if (kinds is not None and kind not in kinds) or number % part[1] != part[0]:
            continue
        tally = tallies.setdefault(kind, Tally())
        what = f"{path} byte {position} bit {bit}"
        partition = partition_of(path)
        only = None if partition is None else [partition]
        if in_use:
            if partition is None:
                continue
            verdict = _in_use(world, path, position, bit)
        else:
            content = flipped(world.files[path], position, bit)
            disk = disk_with({**world.files, path: content})
            if kind == "wal" and _wal_of(disk) == plain_wal:
                # Nobody but the replay reads these files, and it finds what it found without.
                unharmed = verdict = unharmed or examine(world, disk, only)
            else:
                verdict = examine(world, disk, only)
        tally.add(what, verdict, refusal_allowed=kind == "snapshot")
    return tallies


def _wal_of(disk: MemoryStorage) -> Replay:
    """What a start reads of the write-ahead log."""
    return replay(disk, f"{ROOT}/wal")


def positions(world: World, random: Random, per_file: int) -> Iterator[tuple[str, int, str]]:
    """(path, byte, kind of file)."""
    for path, kind in sorted(kinds_of(world.files).items()):
        for position in sample(random, per_file, len(world.files[path])):
            yield path, position, kind


def _in_use(world: World, path: str, position: int, bit: int) -> Verdict:
    """Open and read, flip, read again; what is read then, and by the next opening."""
    partition = partition_of(path)
    assert partition is not None, "a file of a partition"
    disk = disk_with(world.files)
    batches = world.batches[partition]
    with manager_on(disk) as manager:
        handler = manager.get_handler(*partition)
        read_out(handler, handler.high_watermark)
        file = disk.open(path)
        file.pwrite(flipped(world.files[path], position, bit)[position : position + 1], position)
        file.close()
        found = read_out(handler, handler.high_watermark, batches)
        verdict = Verdict()
        for offset, data in found.batches.items():
            if batches[offset].data != data:
                verdict.violations.append(f"another batch at offset {offset}, in use")
        for offset in batches.keys() - found.batches.keys():
            if not found.accounts_for(offset, batches[offset].next_offset):
                verdict.violations.append(f"offset {offset} is lost without a word, in use")
        try:
            manager.close()
        except* StorageError as group:
            verdict.violations.append(f"closing: {group!r}")
    after = examine(world, disk_with(files_of(disk)), [partition])
    after.violations += verdict.violations
    after.gaps += verdict.gaps
    return after
