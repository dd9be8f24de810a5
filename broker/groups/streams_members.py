"""A member of a streams group, what it says and what it is told, and how it is reconciled.

    STABLE       has the tasks that it should have, at the epoch of the target
    REVOKING     was told to let go of some tasks and has not said yet that it did; it stays at its
                 epoch, so nobody else can have them
    WAITING      has let go, is at the target's epoch, and waits for tasks that others have not let
                 go of: an active task that somebody does, any task of which its own process has
                 another copy

    target       what it should have
    assigned     what it was told that it has
    revoking     what it was told to let go of, and may still do

Warm-up tasks are in the protocol; Kafka's assignor gives none, and neither does this one.

Invariant: `assigned` and `revoking` of all members together hold each task as an active one at most
once, and each task once in a process: what Holders has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from . import group_news
from .consumer_members import Reconciled
from .consumer_target import Topic
from .group_news import Who
from .member_epochs import JOIN, MemberEpochs
from .streams_topology import Topology
from .task_assignor import NO_TASKS, Task, Tasks, Worker


class Endpoint(NamedTuple):
    """Where an instance answers interactive queries."""

    host: str
    port: int


TopicPartitions: TypeAlias = dict[str, list[int]]


class AtEndpoint(NamedTuple):
    """What an instance has, by topic."""

    endpoint: Endpoint
    active: TopicPartitions
    standby: TopicPartitions


class Says(NamedTuple):
    """What a member says of itself.  Times are in ms."""

    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    rebalance_timeout_ms: int = 0
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()


_SAYS_NOTHING: Final = Says()


class StreamsBeat(NamedTuple):
    """What a heartbeat says.  None, and -1: as before."""

    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    shuts_down: bool = False
    connection: int = 0
    """The number of that by which it says so."""

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, None, self.client_id, self.client_host)


class Holders:
    """Who has which task, given or still to be let go of."""

    __slots__ = ("_copies", "_doing")

    def __init__(self) -> None:
        self._doing: dict[Task, tuple[str, str]] = {}
        self._copies: dict[Task, dict[str, str]] = {}

    def does(self, task: Task) -> str | None:
        """The member that does a task."""
        holder = self._doing.get(task)
        return None if holder is None else holder[0]

    def is_in(self, process_id: str, task: Task) -> bool:
        """Whether a process has a task in one way or the other."""
        holder = self._doing.get(task)
        is_active = holder is not None and holder[1] == process_id
        return is_active or process_id in self._copies.get(task, ())

    def take(self, member_id: str, process_id: str, tasks: Tasks) -> None:
        """A member has these from now on."""
        for task in tasks.active:
            assert task not in self._doing, "one member does a task"
            self._doing[task] = member_id, process_id
        for task in tasks.standby:
            mine = self._copies.setdefault(task, {})
            assert process_id not in mine, "a process has one copy"
            mine[process_id] = member_id

    def release(self, process_id: str, tasks: Tasks) -> None:
        """Whoever of a process had these has let go of them."""
        for task in tasks.active:
            del self._doing[task]
        for task in tasks.standby:
            mine = self._copies[task]
            del mine[process_id]
            if not mine:
                del self._copies[task]


def plus(one: Tasks, other: Tasks) -> Tasks:
    """What is in either."""
    return Tasks(one.active | other.active, one.standby | other.standby)


def minus(one: Tasks, other: Tasks) -> Tasks:
    """What is in the first alone."""
    return Tasks(one.active - other.active, one.standby - other.standby)


def touches(one: Tasks, other: Tasks) -> bool:
    """Whether something is in both."""
    return bool(one.active & other.active or one.standby & other.standby)


@dataclass(slots=True, eq=False)
class StreamsMember(MemberEpochs):
    """One member."""

    member_id: str
    said: Says = _SAYS_NOTHING
    reconciled: Reconciled = Reconciled.STABLE
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    since: dict[Task, int] = field(default_factory=dict)
    """The epoch at which it was given each active task that it has, or may still do."""
    knows_assigned: bool = False
    """Whether it was told of `assigned` as it is; else its next heartbeat is answered by that."""
    knows_endpoints: bool = False
    """Whether it was told who has which partitions by this broker, and since when it joined."""
    session_ends_ms: int = 0
    revoking_ends_ms: int | None = None
    """Until when it has to let go; None: it has, or was not told to by this broker."""
    at_endpoint: tuple[Tasks, Mapping[str, Topic], AtEndpoint] | None = None
    """What its endpoint has, and of which tasks and topics that was made (streams_endpoints.py)."""

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, None, self.said.client_id, self.said.client_host)

    @property
    def ends_ms(self) -> int:
        """When it is dropped, if nothing is heard of it."""
        if self.revoking_ends_ms is None:
            return self.session_ends_ms
        return min(self.session_ends_ms, self.revoking_ends_ms)

    def why_late(self, now_ms: int) -> str:
        """Which of them it was, as it is told of."""
        is_session = self.session_ends_ms <= now_ms
        return group_news.SESSION_ENDED if is_session else group_news.NOT_LET_GO

    def worker(self, target: Tasks) -> Worker:
        """As the assignor sees it."""
        return Worker(self.member_id, self.said.process_id, target)

    def says(self, beat: StreamsBeat) -> Says:
        """What it says of itself with this heartbeat: who joins says everything."""
        before = _SAYS_NOTHING if beat.epoch == JOIN else self.said
        said = before._replace(client_id=beat.client_id, client_host=beat.client_host)
        told: dict[str, Any] = {
            "rack_id": beat.rack_id,
            "process_id": beat.process_id,
            "endpoint": beat.endpoint,
            "tags": beat.tags,
        }
        if beat.rebalance_timeout_ms >= 0:
            told["rebalance_timeout_ms"] = beat.rebalance_timeout_ms
        if beat.topology is not None:
            told["topology_epoch"] = beat.topology.epoch
        return said._replace(**{name: value for name, value in told.items() if value is not None})

    def has_done(self, task: Task, epoch: int) -> bool:
        """Whether it did this at an epoch that was its own, and has not let go of it since."""
        since = self.since.get(task)
        return since is not None and since <= epoch <= self.epoch

    def reconcile(
        self, target: Tasks, target_epoch: int, owned: Tasks | None, holders: Holders
    ) -> bool:
        """One step towards the target; whether `assigned` changed.

        owned: what it says that it has; None when it does not say.
        """
        if self.reconciled is Reconciled.STABLE and self.epoch == target_epoch:
            return False
        if self.reconciled is Reconciled.REVOKING:
            if owned is None or touches(owned, self.revoking):
                return False  # it still has what it is to let go of
            self._let_go(self.revoking, holders)
            self.revoking = NO_TASKS
        before = self.assigned
        surplus = minus(self.assigned, target)
        if surplus != NO_TASKS and (owned is None or touches(owned, surplus)):
            self.assigned, self.revoking = minus(self.assigned, surplus), surplus
            self.reconciled = Reconciled.REVOKING
            return True
        self._let_go(surplus, holders)
        self.assigned = minus(self.assigned, surplus)
        free = self._free(minus(target, self.assigned), holders)
        holders.take(self.member_id, self.said.process_id, free)
        self.assigned = plus(self.assigned, free)
        self.since.update(dict.fromkeys(free.active, target_epoch))
        is_complete = self.assigned == target
        self.reconciled = Reconciled.STABLE if is_complete else Reconciled.WAITING
        self.move_to(target_epoch)
        return self.assigned != before

    def let_go_of_all(self, holders: Holders) -> None:
        """It has no place any more."""
        self._let_go(plus(self.assigned, self.revoking), holders)
        self.assigned = self.revoking = NO_TASKS

    def _let_go(self, tasks: Tasks, holders: Holders) -> None:
        holders.release(self.said.process_id, tasks)
        for task in tasks.active:
            self.since.pop(task, None)

    def _free(self, wanted: Tasks, holders: Holders) -> Tasks:
        """Those that nobody has who is in the way."""
        process_id = self.said.process_id
        active = frozenset(
            task
            for task in wanted.active
            if holders.does(task) is None and not holders.is_in(process_id, task)
        )
        standby = frozenset(
            task for task in wanted.standby - active if not holders.is_in(process_id, task)
        )
        return Tasks(active, standby)


def by_subtopology(tasks: Iterable[Task]) -> Mapping[str, list[int]]:
    """Tasks as they travel: their numbers by subtopology, in order."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        found.setdefault(name, []).append(number)
    return found
