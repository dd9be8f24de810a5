"""Which assignor a classic group uses: one that all members have, and most of them like best.

A member offers several, the best first; who brings none that the others have too cannot join.
The same rule elects among any protocols of a group: Kafka Connect's, Schema Registry's.
"""

from collections.abc import Mapping, Sequence


def candidates(offers: Sequence[Mapping[str, bytes]]) -> list[str]:
    """The protocols that everybody has, in the order of the first."""
    return [name for name in offers[0] if all(name in offer for offer in offers[1:])]


def vote(offers: Sequence[Mapping[str, bytes]], present: str) -> str:
    """The candidate that most members like best; of equals the present one, or the earlier."""
    votes = dict.fromkeys(candidates(offers), 0)
    for offer in offers:
        votes[next(name for name in offer if name in votes)] += 1
    return max(votes, key=lambda name: (votes[name], name == present))
