"""Which transactional ids an expression matches, as a list of transactions is asked for (KIP-1152).

The expressions are those of topic_regex.py.  Ids may have any character, an expression has those of
ASCII: of the others each is one that `.`, `[^a]` and `\\W` take.

Limits: MATCH_COST_MAX of looking for one request, enough for 100,000 ids of 25 characters, and a
second or two of a lane by the dearest expression; PATTERN_SIZE_MAX characters of an id, a longer
one is not matched.
"""

from collections.abc import Collection
from typing import Final

from ..groups.topic_regex import PATTERN_SIZE_MAX, InvalidRegex, TopicRegex

MATCH_COST_MAX: Final = 3_000_000
_OTHER: Final = "\N{REPLACEMENT CHARACTER}"
_ALPHABET: Final = frozenset(map(chr, range(128))) | {_OTHER}


def matching(pattern: str, ids: Collection[str]) -> frozenset[str]:
    """Those of `ids` that match as a whole.  Raises InvalidRegex."""
    if not pattern.isascii():
        raise InvalidRegex("only characters of ASCII are taken")
    regex = TopicRegex(pattern, _ALPHABET)
    found = set()
    for one in ids:
        if regex.cost > MATCH_COST_MAX:
            raise InvalidRegex(f"{len(ids)} transactional ids are too many for it")
        if len(one) <= PATTERN_SIZE_MAX and regex.matches(_told(one)):
            found.add(one)
    return frozenset(found)


def _told(one: str) -> str:
    return one if one.isascii() else "".join(c if c.isascii() else _OTHER for c in one)
