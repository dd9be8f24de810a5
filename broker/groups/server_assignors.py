"""Who reads which partition, decided by the broker (KIP-848): the assignors `uniform` and `range`.

uniform   everybody has as many partitions as anybody, give or take one, as far as subscriptions
          allow; who had a partition keeps it where that leaves the numbers even
range     of each topic its subscribers, in the order of their names, have a range of the
          partitions; of topics of one size that all subscribe to, everybody has the same numbers

Both are pure functions of their arguments: the same group gives the same assignment.  Each
partition of a subscribed topic has exactly one owner, who is subscribed to it.

Costs: uniform is linear in partitions and members where all subscribe to the same topics, which
most groups do; else in partitions, and in topics times different subscriptions, times the logarithm
of the members.  So is range.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

TopicId: TypeAlias = bytes
Partition: TypeAlias = tuple[TopicId, int]
Assignment: TypeAlias = dict[str, tuple[Partition, ...]]
_Heap: TypeAlias = list[tuple[int, int, str]]
BALANCE_ROUNDS_MAX: Final = 10


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    order: str
    """What it is sorted by: its instance id, so that a static member's place stays; else its id."""
    topics: frozenset[TopicId]


Assignor: TypeAlias = Callable[
    [Sequence[Subscriber], Mapping[TopicId, int], Mapping[str, tuple[Partition, ...]]], Assignment
]


def uniform(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    """Even numbers, few moves.  counts: partitions of each topic.  previous: who had what."""
    if not subscribers:
        return {}
    first = subscribers[0].topics
    if all(one.topics is first or one.topics == first for one in subscribers):
        return _even(subscribers, counts, previous)
    return _least_loaded(subscribers, counts, previous)


def _even(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    wanted = [
        (topic, index)
        for topic in sorted(subscribers[0].topics & counts.keys())
        for index in range(counts[topic])
    ]
    left = set(wanted)
    least, extra = divmod(len(wanted), len(subscribers))
    kept: Assignment = {}
    for one in subscribers:
        mine = previous.get(one.member_id, ())
        if mine and not left.issuperset(mine):
            mine = tuple([partition for partition in mine if partition in left])
        if len(mine) > least:
            mine = mine[: least + bool(extra)]
            extra -= bool(extra)
        kept[one.member_id] = mine
        left.difference_update(mine)
    free = filter(left.__contains__, wanted)
    for member_id, mine in kept.items():
        room = least + bool(extra)
        if len(mine) < room:
            # Who is below `least` is filled up to it in any case: there is enough for that.
            extra -= bool(extra)
            kept[member_id] = (*mine, *islice(free, room - len(mine)))
    return kept


def _least_loaded(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    readers = readers_of(subscribers, counts)
    has: dict[str, list[Partition]] = {one.member_id: [] for one in subscribers}
    taken: set[Partition] = set()
    for one in subscribers:
        for partition in previous.get(one.member_id, ()):
            topic, index = partition
            exists = topic in one.topics and index < counts.get(topic, 0)
            if exists and partition not in taken:
                has[one.member_id].append(partition)
                taken.add(partition)
    loads = _Loads(has, readers)
    # The topics with the fewest readers first: the others can make up for them.
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):
        for index in range(counts[topic]):
            if readers[topic] and (topic, index) not in taken:
                has[loads.least(topic)].append((topic, index))
    for _ in range(BALANCE_ROUNDS_MAX):
        if not _move_some(has, loads):
            break
    return {member_id: tuple(mine) for member_id, mine in has.items()}


def readers_of(
    subscribers: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> dict[TopicId, list[str]]:
    """Who reads each topic, in the order of the subscribers; one list for all that the same read.

    There are as many kinds of subscribers as of subscriptions, mostly few.
    """
    kinds: dict[frozenset[TopicId], int] = {}
    for one in subscribers:
        kinds.setdefault(one.topics, len(kinds))
    by_kinds: dict[tuple[int, ...], list[str]] = {}
    readers: dict[TopicId, list[str]] = {}
    for topic in sorted(counts):
        of = tuple([kind for topics, kind in kinds.items() if topic in topics])
        if of not in by_kinds:
            chosen = frozenset(of)
            by_kinds[of] = [one.member_id for one in subscribers if kinds[one.topics] in chosen]
        readers[topic] = by_kinds[of]
    return readers


class _Loads:
    """Who of a topic's readers has the least; the first of those, in the order of the readers.

    A heap per list of readers, in which each stands with a number that is not above what it has:
    `least` raises what is too low, `lowered` has to be called when somebody gave something away.
    """

    def __init__(
        self, has: Mapping[str, list[Partition]], readers: Mapping[TopicId, list[str]]
    ) -> None:
        self._has = has
        self._heaps: dict[TopicId, _Heap] = {}
        self._places: dict[str, list[tuple[_Heap, int]]] = {}
        shared: dict[int, _Heap] = {}
        for topic, members in readers.items():
            heap = shared.get(id(members))
            if heap is None:
                heap = [(len(has[member]), place, member) for place, member in enumerate(members)]
                heapify(heap)
                shared[id(members)] = heap
                for place, member in enumerate(members):
                    self._places.setdefault(member, []).append((heap, place))
            self._heaps[topic] = heap

    def least(self, topic: TopicId) -> str:
        heap = self._heaps[topic]
        while True:
            load, place, member = heap[0]
            if load == len(self._has[member]):
                return member
            heapreplace(heap, (len(self._has[member]), place, member))

    def lowered(self, member: str) -> None:
        for heap, place in self._places[member]:
            heappush(heap, (len(self._has[member]), place, member))


def _move_some(has: dict[str, list[Partition]], loads: _Loads) -> bool:
    """Move partitions from those who have many, what they were given last first; False when nothing
    is left to move."""
    moved = False
    fewest, is_recent = 0, False  # a look at all of them: only when something was moved since
    for member_id in sorted(has, key=lambda member: -len(has[member])):
        mine = has[member_id]
        count, kept = len(mine), []
        if not is_recent:
            fewest, is_recent = min(map(len, has.values())), True
        for partition in reversed(mine):
            if count >= fewest + 2:
                least = loads.least(partition[0])
                if len(has[least]) + 1 < count:
                    has[least].append(partition)
                    count, is_recent = count - 1, False
                    continue
                if not is_recent:
                    fewest, is_recent = min(map(len, has.values())), True
            kept.append(partition)
        if len(kept) < len(mine):
            has[member_id] = kept[::-1]
            loads.lowered(member_id)  # once: of its own topics it takes none while it gives
            moved = True
    return moved


def ranges(
    subscribers: Sequence[Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, tuple[Partition, ...]],
) -> Assignment:
    """Topic by topic, a range for each.  previous does not matter: the order of names decides."""
    has: dict[str, list[Partition]] = {one.member_id: [] for one in subscribers}
    ordered = sorted(subscribers, key=lambda one: one.order)
    for topic, readers in readers_of(ordered, counts).items():
        first = 0
        for place, member_id in enumerate(readers[: counts[topic]]):
            each, extra = divmod(counts[topic], len(readers))
            size = each + (place < extra)
            has[member_id] += [(topic, index) for index in range(first, first + size)]
            first += size
    return {member_id: tuple(mine) for member_id, mine in has.items()}


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": ranges}
DEFAULT: Final = "uniform"
