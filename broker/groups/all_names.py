"""The names of all groups, of which there may be a hundred thousand: gone over bit by bit.

A group is in one place or in several: in memory, with offsets, written down with its members.  Each
place is a collection that nobody changes any more: a copy, or a map of the metadata.  To put all of
them into one set, or in order, would hold the loop for a tenth of a second.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from ..loop.pace import Pace

SORTED_AT_ONCE: Final = 1_000
"""A third of a millisecond."""


def each_once(places: Sequence[Collection[str]]) -> Iterator[str | None]:
    """Every name that is in one of them, in their order; None where one comes again: whoever goes
    over them may give way there, too."""
    for number, names in enumerate(places):
        before = places[:number]
        for name in names:
            yield None if any(name in one for one in before) else name


async def in_order(places: Iterable[Iterable[str]], pace: Pace) -> Iterator[str]:
    """Every name that is in one of them once, sorted; what is left of that is done for the next."""
    pieces = []
    for names in places:
        rest = iter(names)
        while some := sorted(islice(rest, SORTED_AT_ONCE)):
            pieces.append(some)
            await pace.step()
    return _without_repetition(merge(*pieces))


def _without_repetition(names: Iterable[str]) -> Iterator[str]:
    last = None
    for name in names:
        if name != last:
            yield name
        last = name
