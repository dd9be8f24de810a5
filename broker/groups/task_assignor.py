"""Who of a streams group does which task, decided here: the assignor `sticky`.

    active     does the task: one member
    standby    keeps a copy of its state, to go on with it: on other processes, so many as
               streams.num.standby.replicas says, or as there are processes for it
    process    an instance of the application; each of its threads is a member

| | who is first |
|---|---|
| active | who did it, while it has room; who has a copy; the process with the fewest tasks |
| standby | who had the copy or did the task, while it has room; the process with the fewest |

The fewest for its members, that is.

Room: of active tasks each member has as many as the others, give or take one, and so it has of
those with a state, which are dealt out first: they are what costs memory.  Who did most has the
larger share.

Invariants: every task is active with one member; numbers of active tasks differ by one at most, of
those with a state too; of one task no process has two; the same group gives the same assignment,
and one that is even already stays as it is.

Costs: linear in tasks and their copies.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple, TypeAlias

Task: TypeAlias = tuple[str, int]
"""A subtopology, and the number of the partitions that it reads of each source topic."""


class Tasks(NamedTuple):
    """Of one member."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()


NO_TASKS: Final = Tasks()


class Worker(NamedTuple):
    """A member as the assignor sees it, with the tasks that it was to have so far."""

    member_id: str
    process_id: str
    previous: Tasks


@dataclass(slots=True)
class _Dealing:
    """Tasks that are being dealt out."""

    workers: Sequence[Worker]
    active: dict[str, set[Task]] = field(default_factory=dict)
    standby: dict[str, set[Task]] = field(default_factory=dict)
    process_of: dict[str, str] = field(default_factory=dict)
    members_of: dict[str, list[str]] = field(default_factory=dict)
    """By process."""
    load: Counter[str] = field(default_factory=Counter)
    """Tasks of each process."""

    def __post_init__(self) -> None:
        for one in self.workers:
            self.active[one.member_id] = set()
            self.standby[one.member_id] = set()
            self.process_of[one.member_id] = one.process_id
            self.members_of.setdefault(one.process_id, []).append(one.member_id)

    def fill(self, process_id: str) -> tuple[float, str]:
        """How much a process has to do: for each of its members."""
        return self.load[process_id] / len(self.members_of[process_id]), process_id

    def count(self, member_id: str) -> int:
        """How many tasks a member has."""
        return len(self.active[member_id]) + len(self.standby[member_id])

    def give(self, member_id: str, task: Task) -> None:
        """It is to do it."""
        self.active[member_id].add(task)
        self.load[self.process_of[member_id]] += 1

    def give_copy(self, member_id: str, task: Task) -> None:
        """It is to keep a copy."""
        self.standby[member_id].add(task)
        self.load[self.process_of[member_id]] += 1


def sticky(
    workers: Sequence[Worker], tasks: Mapping[str, int], stateful: frozenset[str], standbys: int
) -> dict[str, Tasks]:
    """Even numbers, few moves.

    Args:
        tasks: how many each subtopology has.
        stateful: the subtopologies with a state.
        standbys: copies of each task with a state.
    """
    workers = sorted(workers)
    if not workers:
        return {}
    dealing = _Dealing(workers)
    every = [(name, number) for name in sorted(tasks) for number in range(tasks[name])]
    _deal_active(dealing, [one for one in every if one[0] in stateful])
    _deal_active(dealing, [one for one in every if one[0] not in stateful])
    if standbys > 0:
        _deal_standbys(dealing, [one for one in every if one[0] in stateful], standbys)
    return {
        member_id: Tasks(frozenset(mine), frozenset(dealing.standby[member_id]))
        for member_id, mine in dealing.active.items()
    }


def _deal_active(dealing: _Dealing, tasks: Sequence[Task]) -> None:
    """Deal out tasks, to those who have as many of others as the numbers of all of them allow."""
    count = len(tasks) + sum(map(len, dealing.active.values()))
    least, extra = divmod(count, len(dealing.workers))
    free = dict.fromkeys(tasks)
    had = {
        one.member_id: sorted(task for task in one.previous.active if task in free)
        for one in dealing.workers
    }
    has = {member_id: len(mine) for member_id, mine in dealing.active.items()}
    rank = {one: place for some in dealing.members_of.values() for place, one in enumerate(some)}
    order = sorted(
        had, key=lambda one: (has[one] <= least, -has[one] - len(had[one]), rank[one], one)
    )
    room = {one: least + (place < extra) - has[one] for place, one in enumerate(order)}
    for member_id in order:
        for task in had[member_id]:
            if room[member_id] and task in free:
                _take(dealing, member_id, task, room, free)
    copies: dict[Task, list[str]] = {}
    for one in dealing.workers:
        for task in one.previous.standby:
            copies.setdefault(task, []).append(one.member_id)
    for task in list(free):
        able = [member_id for member_id in copies.get(task, ()) if room[member_id]]
        if able:
            best = min(able, key=lambda one: (dealing.fill(dealing.process_of[one]), one))
            _take(dealing, best, task, room, free)
    heap = [
        dealing.fill(process_id)
        for process_id, members in dealing.members_of.items()
        if any(room[one] for one in members)
    ]
    heapify(heap)
    able_of = {
        process_id: [(len(dealing.active[one]), one) for one in members if room[one]]
        for process_id, members in dealing.members_of.items()
    }
    for some in able_of.values():
        heapify(some)
    for task in list(free):
        _, process_id = heappop(heap)
        count, best = heappop(able_of[process_id])
        _take(dealing, best, task, room, free)
        if room[best]:
            heappush(able_of[process_id], (count + 1, best))
        if able_of[process_id]:
            heappush(heap, dealing.fill(process_id))


def _take(
    dealing: _Dealing,
    member_id: str,
    task: Task,
    room: dict[str, int],
    free: dict[Task, None],
) -> None:
    dealing.give(member_id, task)
    room[member_id] -= 1
    del free[task]


def _deal_standbys(dealing: _Dealing, tasks: Sequence[Task], standbys: int) -> None:
    copies = min(standbys, len(dealing.members_of) - 1)
    holders: dict[Task, list[str]] = {task: [] for task in tasks}
    for one in dealing.workers:
        for task in (*one.previous.standby, *one.previous.active):
            if task in holders:
                holders[task].append(one.member_id)
    doing = {task: one for one, mine in dealing.active.items() for task in mine}
    everything = len(doing) + copies * len(tasks)
    share = -(-everything // len(dealing.workers))
    has = {task: {dealing.process_of[doing[task]]} for task in tasks}
    for task in tasks:
        for member_id in holders[task]:
            process_id = dealing.process_of[member_id]
            if len(has[task]) > copies or process_id in has[task]:
                continue
            if dealing.count(member_id) < share:
                dealing.give_copy(member_id, task)
                has[task].add(process_id)
    heap = [dealing.fill(process_id) for process_id in dealing.members_of]
    heapify(heap)
    members_of = {
        process_id: [(dealing.count(one), one) for one in members]
        for process_id, members in dealing.members_of.items()
    }
    for some in members_of.values():
        heapify(some)
    for task in tasks:
        passed = []  # processes that have it already
        while len(has[task]) <= copies:
            least = heappop(heap)
            process_id = least[1]
            if process_id in has[task]:
                passed.append(least)
                continue
            count, best = members_of[process_id][0]
            heapreplace(members_of[process_id], (count + 1, best))
            dealing.give_copy(best, task)
            has[task].add(process_id)
            passed.append(dealing.fill(process_id))
        for entry in passed:
            heappush(heap, entry)
