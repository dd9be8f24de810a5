"""Dealing partitions out evenly while everyone keeps as much as it can.

    1  claims      what a member had stays with it; of two who claim one, the later generation's
    2  quotas      all want the same topics: each gets n // m or one more; what is above goes back
       balance     else: what is free goes to who has least, then partitions move along the
                   shortest path from a member with more to one with at least two fewer
    3  the rest    is dealt in turn

Balanced means: there is no member, and no chain of members that could hand partitions on to each
other, from which one with at least two fewer could get one.

Cost: with equal subscriptions linear in partitions and members.  Pure; the same input gives the
same answer.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .records import TopicPartition, grouped


class Claimant(NamedTuple):
    """A member: what it wants, what it had, and in which generation."""

    member_id: str
    topics: frozenset[str]
    owned: Sequence[TopicPartition]
    generation: int


Dealt = dict[str, list[TopicPartition]]


def deal_out_sticky(members: Sequence[Claimant], counts: Mapping[str, int]) -> Dealt:
    """Each member's partitions."""
    wanted = sorted({topic for member in members for topic in member.topics})
    partitions = [
        TopicPartition(topic, number) for topic in wanted for number in range(counts.get(topic, 0))
    ]
    kept = _claims(members, counts)
    taken = {tp for owned in kept.values() for tp in owned}
    free = [tp for tp in partitions if tp not in taken]
    if len({member.topics for member in members}) <= 1:
        _by_quota(kept, free)
    else:
        _by_balance(kept, free, members)
    return {member_id: sorted(owned) for member_id, owned in kept.items()}


def _claims(members: Sequence[Claimant], counts: Mapping[str, int]) -> Dealt:
    """What everyone may keep."""
    best: dict[TopicPartition, tuple[int, str]] = {}
    disputed: set[TopicPartition] = set()
    for member in members:
        for tp in member.owned:
            if tp.topic not in member.topics or not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            rival = best.get(tp)
            if rival is None or rival[0] < member.generation:
                best[tp] = member.generation, member.member_id
                disputed.discard(tp)
            elif rival[0] == member.generation and rival[1] != member.member_id:
                # Two owners in one generation: one of them is wrong, nobody knows which.
                disputed.add(tp)
    kept: Dealt = {member.member_id: [] for member in members}
    for tp, (_, member_id) in sorted(best.items()):
        if tp not in disputed:
            kept[member_id].append(tp)
    return kept


def _by_quota(kept: Dealt, free: list[TopicPartition]) -> None:
    if not kept:
        return
    least, more = divmod(sum(map(len, kept.values())) + len(free), len(kept))
    for owned in kept.values():
        quota = least
        if len(owned) > least and more:
            quota, more = least + 1, more - 1
        free += owned[quota:]
        del owned[quota:]
    turn = deque(sorted(free))
    for owned in kept.values():
        while len(owned) < least:
            owned.append(turn.popleft())
    for owned in kept.values():
        if turn and len(owned) == least:
            owned.append(turn.popleft())
    assert not turn, "the quotas add up to all partitions"


def _by_balance(kept: Dealt, free: list[TopicPartition], members: Sequence[Claimant]) -> None:
    readers = grouped((topic, member.member_id) for member in members for topic in member.topics)
    fresh = set(free)
    for tp in sorted(free, key=lambda tp: (len(readers[tp.topic]), tp)):
        least = min(readers[tp.topic], key=lambda member_id: len(kept[member_id]))
        kept[least].append(tp)
    while path := _improvement(kept, readers):
        for giver, topic, taker in path:
            mine = [tp for tp in kept[giver] if tp.topic == topic]
            moved = next((tp for tp in mine if tp in fresh), mine[-1])
            kept[giver].remove(moved)
            kept[taker].append(moved)
            fresh.add(moved)


def _improvement(kept: Dealt, readers: Mapping[str, list[str]]) -> list[tuple[str, str, str]]:
    """(giver, topic, taker) along a shortest path to a member with at least two fewer, or []."""
    fewest = min(map(len, kept.values()), default=0)
    for start in sorted(kept, key=lambda member_id: -len(kept[member_id])):
        most = len(kept[start])
        if most < fewest + 2:
            return []
        came: dict[str, tuple[str, str]] = {}
        ahead = deque([start])
        while ahead:
            giver = ahead.popleft()
            for topic in dict.fromkeys(tp.topic for tp in kept[giver]):
                for taker in readers[topic]:
                    if taker == start or taker in came:
                        continue
                    came[taker] = giver, topic
                    if len(kept[taker]) <= most - 2:
                        return _path(came, start, taker)
                    ahead.append(taker)
    return []


def _path(came: Mapping[str, tuple[str, str]], start: str, end: str) -> list[tuple[str, str, str]]:
    """The steps, the last first: whoever hands on has got its own then, or does not need it."""
    steps = []
    while end != start:
        giver, topic = came[end]
        steps.append((giver, topic, end))
        end = giver
    return steps
