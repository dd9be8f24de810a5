"""Who of a share group reads which partition, decided here: the assignor `simple`.

Several members may have one partition: they are given different records of it.

    sharing   so many members has each partition: members / partitions, rounded up
    room      so many partitions has each member: sharing * partitions / members, give or take one

Who had a partition keeps it where that leaves the numbers even.  Where all members subscribe to the
same topics their partitions are dealt out together, else topic by topic, as in Kafka.

Invariants, for each set of members and partitions that are dealt out together: every partition is
somebody's, every member has one; none has more than its room, no partition more members than its
sharing.  The same group gives the same assignment.

Limit: dealt out topic by topic, each topic has at least as many places as readers.  Where that is
more than PLACES_MAX in all, each partition has one member instead, as evenly as `uniform` does it,
and who would have nothing shares one.

Costs: linear in members and partitions, or in places.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from .server_assignors import Assignment, Partition, Subscriber, TopicId, readers_of, uniform

SIMPLE: Final = "simple"
PLACES_MAX: Final = 20_000
"""Some 50 ms of dealing out."""


def simple(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    """Even numbers, few moves.  counts: partitions of each topic.  previous: who had what."""
    if not subscribers:
        return {}
    topics = subscribers[0].topics
    members = [one.member_id for one in subscribers]
    if all(one.topics is topics or one.topics == topics for one in subscribers):
        return _dealt(members, _partitions(sorted(topics & counts.keys()), counts), previous)
    readers_by_topic = readers_of(subscribers, counts)
    if sum(max(len(of), counts[topic]) for topic, of in readers_by_topic.items()) > PLACES_MAX:
        return _sparse(subscribers, counts, previous)
    had: dict[TopicId, dict[str, list[Partition]]] = {}
    for member in members:
        for partition in previous.get(member, ()):
            had.setdefault(partition[0], {}).setdefault(member, []).append(partition)
    found: dict[str, list[Partition]] = {member: [] for member in members}
    for topic, readers in readers_by_topic.items():
        dealt = _dealt(readers, _partitions([topic], counts), had.get(topic, {}))
        for member, mine in dealt.items():
            found[member] += mine
    return {member: tuple(mine) for member, mine in found.items()}


def _sparse(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    """Each partition is one member's; who has none that way has one that another has, too."""
    found = uniform(subscribers, counts, previous)
    for place, one in enumerate(subscribers):
        topics = () if found[one.member_id] else sorted(one.topics & counts.keys())
        if some := [topic for topic in topics if counts[topic]]:
            topic = some[place % len(some)]
            found[one.member_id] = ((topic, place % counts[topic]),)
    return found


def _partitions(topics: Sequence[TopicId], counts: Mapping[TopicId, int]) -> list[Partition]:
    return [(topic, index) for topic in topics for index in range(counts[topic])]


def _dealt(
    members: Sequence[str],
    partitions: Sequence[Partition],
    previous: Mapping[str, Sequence[Partition]],
) -> Assignment:
    """These partitions among these members, all of whom may have any of them."""
    if not (members and partitions):
        return dict.fromkeys(members, ())
    sharing = -(-len(members) // len(partitions))
    least, extra = divmod(sharing * len(partitions), len(members))
    free = dict.fromkeys(partitions, sharing)
    had = {one: [p for p in previous.get(one, ()) if p in free] for one in members}
    # Who has most has the larger rooms: it gives away less.
    order = sorted(members, key=lambda one: (-len(had[one]), one))
    room = {one: least + (place < extra) for place, one in enumerate(order)}
    # Dictionaries, not sets: what is dealt in order is nearly sorted then.
    has: dict[str, dict[Partition, None]] = {one: {} for one in members}
    for one in order:
        for partition in had[one]:
            if free[partition] and len(has[one]) < room[one]:
                has[one][partition] = None
                free[partition] -= 1
    _fill(has, room, free)
    return {one: tuple(sorted(mine)) for one, mine in has.items()}


def _fill(
    has: Mapping[str, dict[Partition, None]],
    room: Mapping[str, int],
    free: Mapping[Partition, int],
) -> None:
    """Give what is free to those who have room, in turn."""
    waiting = deque(one for one in has if len(has[one]) < room[one])
    for partition, places in free.items():
        passed = []  # who has it already
        while places and waiting:
            member = waiting.popleft()
            if partition in has[member]:
                passed.append(member)
                continue
            has[member][partition] = None
            places -= 1
            if len(has[member]) < room[member]:
                waiting.append(member)
        waiting.extendleft(reversed(passed))
