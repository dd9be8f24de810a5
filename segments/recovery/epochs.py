"""Which leader epochs a log was in, by its batches: where the manifest does not say all of them.

    batches    0 0 0 64 0 0 1 1 0 1 1        the epoch lies outside of a batch's checksum
    epochs     (0, from the 1st), (1, from the 7th)

Epochs and offsets rise.  Of all the ways to pass over some batches so that those of the others do,
the one that passes over the fewest is believed; who scans with what comes out finds the others
damaged.  So one flipped bit costs its batch, and neither those in front of it nor those behind it;
and the file of another log with lower offsets, which stands behind ours, costs nothing.  A batch
that goes on where the one in front of it in its file ends is passed over with that one, or not.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import BatchHeader, read_header

from ..decisions import Epochs, Tail, base_offset_of, scan

CHAINS_MAX: Final = 64
"""Ways that are followed at a time: each takes more batches that are damaged, or another's."""


class _Chain(NamedTuple):
    """Batches that are believed, by the last epoch that began among them; `end`: of the last."""

    batches: int
    epoch: int
    begin: int
    end: int
    before: "_Chain | None"

    def is_better(self, other: "_Chain") -> bool:
        """Whether all that fits behind the other fits behind this one, which has not fewer."""
        return self.batches >= other.batches and self.epoch <= other.epoch and self.end <= other.end


def epochs_of(known: Epochs, files: Sequence[memoryview], least: int = 0) -> list[tuple[int, int]]:
    """The leader epochs of a log: those that are `known`, and later ones by these files of it.

    least: the offset that is due where the first of them begins; what is below is not this log's.
    """
    last, begin = known[-1] if known else (-1, -1)
    begin = max(begin, least)
    chains: list[_Chain] = []  # the most batches first, then the lowest epoch
    for place, header in chain.from_iterable(enumerate(_headers(data)) for data in files):
        epoch, base_offset, end = header.leader_epoch, header.base_offset, header.next_offset
        if epoch < last or base_offset < begin:
            continue
        fits = (one for one in chains if one.epoch <= epoch and one.end <= base_offset)
        before = next(fits, None)
        if before is None:
            longer = _Chain(1, epoch, base_offset, end, None)
        elif before.epoch == epoch:
            longer = before._replace(batches=before.batches + 1, end=end)
            if place and before is chains[0] and before.end == base_offset:
                chains[0] = longer  # nearly all: it goes on in its file, and is its log's
                continue
        else:
            longer = _Chain(before.batches + 1, epoch, base_offset, end, before)
        if not any(one.is_better(longer) for one in chains):
            chains = [one for one in chains if not longer.is_better(one)]
            insort(chains, longer, key=lambda one: (-one.batches, one.epoch))
            del chains[CHAINS_MAX:]
    found: list[tuple[int, int]] = []
    believed = chains[0] if chains else None
    while believed is not None:
        found.append((believed.epoch, believed.begin))
        believed = believed.before
    if found and not known and base_offset_of(files[0]) is None:
        found[-1] = found[-1][0], 0  # also in what is lost in front of it
    return [*known, *(one for one in reversed(found) if one[0] > last)]


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
