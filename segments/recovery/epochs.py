"""Which leader epochs a log was in, by its batches: where the manifest does not say all of them.

    batches    0 0 0 64 0 0 1 1 0 1 1        the epoch lies outside of a batch's checksum
    epochs     (0, from the 1st), (1, from the 7th)

Epochs rise.  Of all the ways to pass over some batches so that those of the others do, the one that
passes over the fewest is believed; who scans with what comes out finds the others damaged.  So one
flipped bit costs its batch, and neither those in front of it nor those behind it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from segbroker.protocol.record_batch import BatchHeader, read_header

from ..decisions import Epochs, Tail, base_offset_of, scan


class _Chain(NamedTuple):
    """Batches that are believed, by the last epoch that began among them."""

    batches: int
    epoch: int
    begin: int
    before: "_Chain | None"


def epochs_of(known: Epochs, files: Sequence[memoryview]) -> list[tuple[int, int]]:
    """The leader epochs of a log: those that are `known`, and later ones by these files of it."""
    last, begin = known[-1] if known else (-1, -1)
    best: dict[int, _Chain] = {}
    for epoch, base_offset, batches in _runs(files):
        if epoch < last or base_offset < begin:
            continue
        fits = [chain for chain in best.values() if chain.epoch <= epoch]
        before = max(fits, key=lambda chain: chain.batches, default=None)
        if before is None:
            best[epoch] = _Chain(batches, epoch, base_offset, None)
        elif before.epoch == epoch:
            best[epoch] = before._replace(batches=before.batches + batches)
        else:
            best[epoch] = _Chain(before.batches + batches, epoch, base_offset, before)
    chain = max(best.values(), key=lambda chain: chain.batches, default=None)
    found: list[tuple[int, int]] = []
    while chain is not None:
        found.append((chain.epoch, chain.begin))
        chain = chain.before
    if found and not known and base_offset_of(files[0]) is None:
        found[-1] = found[-1][0], 0  # also in what is lost in front of it
    return [*known, *(one for one in reversed(found) if one[0] > last)]


def _runs(files: Iterable[memoryview]) -> Iterator[tuple[int, int, int]]:
    """(epoch, base offset of the first, how many) of batches behind each other with one epoch."""
    first: BatchHeader | None = None
    count = 0
    for data in files:
        for header in _headers(data):
            if first is not None and header.leader_epoch != first.leader_epoch:
                yield first.leader_epoch, first.base_offset, count
                first, count = None, 0
            first = first or header
            count += 1
    if first is not None:
        yield first.leader_epoch, first.base_offset, count


def _headers(data: memoryview) -> Iterator[BatchHeader]:
    """Those of the valid batches in a file, whatever lies between them."""
    offset: int | None = None
    position = 0
    while True:
        found = scan(data, offset, position)
        for _, header in found.batches:
            yield header
        if found.tail is not Tail.HOLE:
            return
        position, offset = found.resume, read_header(data, found.resume).base_offset
