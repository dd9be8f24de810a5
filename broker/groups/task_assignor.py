"""Who of a streams group does which task, decided here: the assignor `sticky`.

    active     does the task: one member
    standby    keeps a copy of its state, to go on with it: on other processes, so many as
               streams.num.standby.replicas says, or as there are processes for it
    process    an instance of the application; each of its threads is a member

| | who is first |
|---|---|
| active | who did it, while it has room; who has a copy, too; the process with the fewest tasks |
| standby | who had the copy or did the task, while it has room; of the other processes, in turn, |
| | the one with the fewest |

The fewest for its members, that is.  In turn: the copies of what one process does are on as many
others as there are, so that these can go on with all of it, each within its room, when it is gone.

Room: of active tasks each member has as many as the others, give or take one, and so it has of
those with a state, which are dealt out first: they are what costs memory.  Who did most has the
larger share, then who has a copy of what is left.

Who had the copies fills its room with those that others could have had, and the rest may be what
only it can have.  So copies are moved in the end, until nobody has two tasks more than somebody who
can have one of its copies.  Where that is so already, all copies stay, also those beyond the room.

Invariants: every task is active with one member; numbers of active tasks differ by one at most, of
those with a state too; numbers of tasks by no more than who can have which copy demands; of one
task no process has two; the same group gives the same assignment, and one that is even already
stays as it is.

Costs: linear in tasks and their copies.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

Task: TypeAlias = tuple[str, int]
"""A subtopology, and the number of the partitions that it reads of each source topic."""


class Tasks(NamedTuple):
    """Of one member."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()


NO_TASKS: Final = Tasks()
MOVE_ROUNDS_MAX: Final = 10


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

    def take_copy(self, member_id: str, task: Task) -> None:
        """It is not to keep a copy."""
        self.standby[member_id].remove(task)
        self.load[self.process_of[member_id]] -= 1

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


@dataclass(slots=True)
class _Room:
    """How many tasks more each member takes: `left`, and some of them one beyond that, the first to
    want it; who has it is in `larger`."""

    left: dict[str, int]
    larger: set[str]
    larger_max: int

    def is_there(self, member_id: str) -> bool:
        """Whether a member takes another one."""
        return bool(self.left[member_id]) or self._may_be_larger(member_id)

    def _may_be_larger(self, member_id: str) -> bool:
        return member_id not in self.larger and len(self.larger) < self.larger_max

    def take(self, member_id: str) -> None:
        """It does."""
        if self.left[member_id]:
            self.left[member_id] -= 1
        else:
            self.larger.add(member_id)

    def settle(self, order: Iterable[str]) -> None:
        """Say who has the larger shares that nobody has wanted."""
        for member_id in order:
            if self._may_be_larger(member_id):
                self.larger.add(member_id)
                self.left[member_id] += 1


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
    order = sorted(had, key=lambda one: (-has[one] - len(had[one]), rank[one], one))
    larger = {one for one in order if has[one] > least}
    room = _Room({one: max(0, least - has[one]) for one in order}, larger, extra)
    for member_id in order:
        for task in had[member_id]:
            if task in free and room.is_there(member_id):
                _take(dealing, member_id, task, room, free)
    copies: dict[Task, list[str]] = {}
    for one in dealing.workers:
        for task in one.previous.standby:
            copies.setdefault(task, []).append(one.member_id)
    for task in list(free):
        able = [member_id for member_id in copies.get(task, ()) if room.is_there(member_id)]
        if able:
            best = min(able, key=lambda one: (dealing.fill(dealing.process_of[one]), one))
            _take(dealing, best, task, room, free)
    room.settle(order)
    heap = [
        dealing.fill(process_id)
        for process_id, members in dealing.members_of.items()
        if any(room.left[one] for one in members)
    ]
    heapify(heap)
    able_of = {
        process_id: [(len(dealing.active[one]), one) for one in members if room.left[one]]
        for process_id, members in dealing.members_of.items()
    }
    for some in able_of.values():
        heapify(some)
    for task in list(free):
        _, process_id = heappop(heap)
        count, best = heappop(able_of[process_id])
        _take(dealing, best, task, room, free)
        if room.left[best]:
            heappush(able_of[process_id], (count + 1, best))
        if able_of[process_id]:
            heappush(heap, dealing.fill(process_id))


def _take(
    dealing: _Dealing, member_id: str, task: Task, room: _Room, free: dict[Task, None]
) -> None:
    dealing.give(member_id, task)
    room.take(member_id)
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
    _keep_copies(dealing, holders, has, copies, everything)
    is_whole = all(len(some) > copies for some in has.values())
    if is_whole and next(_movable(dealing, _Fewest(dealing), has), None) is None:
        return  # what some have beyond the share nobody else can have
    for member_id, kept in dealing.standby.items():
        for task in list(kept):
            dealing.take_copy(member_id, task)
            has[task].remove(dealing.process_of[member_id])
    _keep_copies(dealing, holders, has, copies, share)
    fewest = _Fewest(dealing)
    done_by: dict[str, list[Task]] = {}
    for task in tasks:
        done_by.setdefault(dealing.process_of[doing[task]], []).append(task)
    for mine in done_by.values():
        _deal_copies(dealing, fewest, has, mine, copies)
    for _ in range(MOVE_ROUNDS_MAX):
        if not _move_copies(dealing, fewest, has):
            break


def _keep_copies(
    dealing: _Dealing,
    holders: Mapping[Task, Sequence[str]],
    has: Mapping[Task, set[str]],
    copies: int,
    room: int,
) -> None:
    """Leave copies with those who have the state, while they have fewer tasks than `room`."""
    for task, members in holders.items():
        for member_id in members:
            process_id = dealing.process_of[member_id]
            if len(has[task]) > copies or process_id in has[task]:
                continue
            if dealing.count(member_id) < room:
                dealing.give_copy(member_id, task)
                has[task].add(process_id)


class _Fewest:
    """Which process has the fewest tasks for its members, and which member of it.

    A heap of processes and one of members for each; what has changed since stays in them until it
    comes to the top.
    """

    def __init__(self, dealing: _Dealing) -> None:
        self._dealing = dealing
        self._out: set[str] = set()
        self._processes = [dealing.fill(process_id) for process_id in dealing.members_of]
        heapify(self._processes)
        self._members = {
            process_id: [(dealing.count(one), one) for one in members]
            for process_id, members in dealing.members_of.items()
        }
        for some in self._members.values():
            heapify(some)

    def changed(self, member_id: str) -> None:
        """A member has one more or one less."""
        process_id = self._dealing.process_of[member_id]
        heappush(self._members[process_id], (self._dealing.count(member_id), member_id))
        if process_id not in self._out:
            heappush(self._processes, self._dealing.fill(process_id))

    def pop(self) -> str | None:
        """Take out the process with the fewest; None: all are out."""
        while self._processes:
            entry = heappop(self._processes)
            _, process_id = entry
            if process_id not in self._out and entry == self._dealing.fill(process_id):
                self._out.add(process_id)
                return process_id
        return None

    def push(self, processes: Iterable[str]) -> None:
        """Put these back."""
        for process_id in processes:
            self._out.remove(process_id)
            heappush(self._processes, self._dealing.fill(process_id))

    def outside(self, processes: Collection[str]) -> str:
        """The member with the fewest in the process with the fewest; not of these, of which there
        are others."""
        passed = []
        while True:
            process_id = self.pop()
            assert process_id is not None, "there are others"
            passed.append(process_id)
            if process_id not in processes:
                self.push(passed)
                return self.within(process_id)

    def within(self, process_id: str) -> str:
        """The member with the fewest in a process."""
        heap = self._members[process_id]
        while heap[0][0] != self._dealing.count(heap[0][1]):
            heappop(heap)
        return heap[0][1]


def _deal_copies(
    dealing: _Dealing,
    fewest: _Fewest,
    has: Mapping[Task, set[str]],
    tasks: Sequence[Task],
    copies: int,
) -> None:
    """Deal out the copies that are missing of what one process does, to the others in turn.

    has: the processes that have each task.
    """
    times = Counter(process_id for task in tasks for process_id in has[task])
    turn = 0
    passed: list[str] = []
    for task in tasks:
        while len(has[task]) <= copies:
            process_id = fewest.pop()
            if process_id is None:  # all had their turn
                turn = max(turn + 1, min(times[one] for one in passed if one not in has[task]))
                fewest.push(passed)
                passed = []
                continue
            passed.append(process_id)
            if process_id not in has[task] and times[process_id] <= turn:
                member_id = fewest.within(process_id)
                dealing.give_copy(member_id, task)
                has[task].add(process_id)
                fewest.changed(member_id)
    fewest.push(passed)


def _move_copies(dealing: _Dealing, fewest: _Fewest, has: Mapping[Task, set[str]]) -> bool:
    """Move them; whether any was."""
    moved = False
    for member_id, task, other in _movable(dealing, fewest, has):
        dealing.take_copy(member_id, task)
        dealing.give_copy(other, task)
        has[task].remove(dealing.process_of[member_id])
        has[task].add(dealing.process_of[other])
        fewest.changed(member_id)
        fewest.changed(other)
        moved = True
    return moved


def _movable(
    dealing: _Dealing, fewest: _Fewest, has: Mapping[Task, set[str]]
) -> Iterator[tuple[str, Task, str]]:
    """Copies to be moved, who has each and who is to have it: from those who have most, those first
    that they would have to begin.  Each is moved before the next is looked for.  has: the processes
    that have each task.
    """
    counts = {one.member_id: dealing.count(one.member_id) for one in dealing.workers}
    previous = {one.member_id: one.previous for one in dealing.workers}
    least = min(counts.values())
    found: dict[tuple[str, frozenset[str]], str | None] = {}
    """Until something is moved: of thousands that nobody else can have most are on the same."""

    def look(member_id: str, processes: frozenset[str]) -> str | None:
        key = member_id, processes
        if key not in found:
            found[key] = _who_has_less(dealing, fewest, member_id, processes)
        return found[key]

    for member_id in sorted(counts, key=lambda one: (-counts[one], one)):
        if counts[member_id] < least + 2:
            break
        known = previous[member_id].active | previous[member_id].standby
        for task in sorted(dealing.standby[member_id], key=lambda one: (one in known, one)):
            other = look(member_id, frozenset(has[task]))
            if other is not None:
                yield member_id, task, other
                found.clear()
            elif look(member_id, frozenset()) is None:
                break


def _who_has_less(
    dealing: _Dealing, fewest: _Fewest, member_id: str, has: Collection[str]
) -> str | None:
    """Who can have a copy of a member that has at least two tasks more: one of its own process,
    where the state is, or of one that has no part of the task; None: nobody."""
    able = [fewest.within(dealing.process_of[member_id])]
    if len(has) < len(dealing.members_of):
        able.append(fewest.outside(has))
    less = (one for one in able if dealing.count(one) + 2 <= dealing.count(member_id))
    return next(less, None)
