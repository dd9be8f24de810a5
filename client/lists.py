"""Questions about many topics or groups: asked for so many at a time, however many there are.

An answer is as large as what it is about: the settings of a topic, with what they mean, take 20 kB,
a group with a thousand offsets some more.  So ASKED_MAX of them stay far below what a reply may
have, and a broker that answers goes on with others in between.  Each of these questions has the
time of a call (engine.Onward).
"""

from collections.abc import Iterable, Iterator
from typing import Final

ASKED_MAX: Final = 100


def in_pieces(names: Iterable[str]) -> Iterator[list[str]]:
    """Each once, at most ASKED_MAX at a time."""
    unique = list(dict.fromkeys(names))
    for begin in range(0, len(unique), ASKED_MAX):
        yield unique[begin : begin + ASKED_MAX]


def as_names(names: str | Iterable[str]) -> Iterable[str]:
    """What a caller gave: a text is one name."""
    return [names] if isinstance(names, str) else names
