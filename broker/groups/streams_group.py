"""One streams group (KIP-1071): a state machine, time and topics passed in.

An application of Kafka Streams is a group, each thread of it a member.  There is one request: a
heartbeat, which joins (epoch 0, with the topology), says which tasks a member has, and leaves (-1).
The broker assigns (task_assignor.py) and says which internal topics are to be made.

    epoch              rises with every change of members, of what they say, of the topics in the
                       topology, and of the number of standbys
    assignment_epoch   the epoch that the target was made for; made at the next heartbeat
    a member's epoch   the target it has taken up; a request with another one is fenced

    EMPTY     nobody       NOT READY     topics are missing or do not fit (streams_topics.py)
    ASSIGNING the target is older than the group
    RECONCILING  somebody is not at the target yet (streams_members.py)          STABLE

The first target of a group that was empty is made initial_delay_ms after its first member joined,
so that threads and instances that start together are dealt with together.  Targets of a group that
is larger than SMALL_MAX are REST_MS apart: each takes the loop for longer, and hundreds of members
that join one after the other would take it for as many.  A task is given to a
member only when nobody else has it or is still to let go of it.  Who was told to let go and has not
done so for its rebalance timeout since is dropped; so is who was not heard of for a session.

| refused with | who |
|---|---|
| 25 UNKNOWN_MEMBER_ID | is no member: it joins again |
| 110 FENCED_MEMBER_EPOCH | is at another epoch: it joins again |
| 81 GROUP_MAX_SIZE_REACHED | one too many |
| 42 INVALID_REQUEST | has another topology of the same epoch, or tasks that there are not |
| 130 STREAMS_INVALID_TOPOLOGY | has one that no topics can serve |
| 113 STALE_MEMBER_EPOCH | fetches or commits offsets at another epoch: after a heartbeat again |
| 15 COORDINATOR_NOT_AVAILABLE | uses an older connection than before: it asks again |

Members outlive the broker: `unkept` names those of whom something changed since it was written down
(kept_streams.py).  Who is in it is answered when that is durable; all others at once.

Invariants: `holders` has each task as an active one once; epochs only rise; `due_ms` is never later
than the next thing that has to happen; what was written down, and `unkept` as it is now, are the
group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.streams_groups import KeptStreams

from ..loop.loop_clock import NEVER_MS
from ..refused import Refused, invalid_request
from . import group_news
from .consumer_members import Reconciled
from .consumer_target import Topic
from .epochal_group import EpochalGroup
from .group_rounds import State
from .member_epochs import JOIN, LEAVE
from .server_assignors import Partition
from .streams_members import Holders, StreamsBeat, StreamsMember, plus
from .streams_topics import Said, Status
from .streams_topology import Topology
from .streams_work import Work, check_tasks
from .task_assignor import NO_TASKS, Tasks, sticky

FIRST_EPOCH: Final = 2
"""Of a group that somebody joins for the first time, as in Kafka."""
UNASSIGNED_EPOCH: Final = 1
"""Of a member that waits for the first target."""
SMALL_MAX: Final = 500
"""Members, tasks and copies together of a group whose target is always made at once: some ms."""


class StreamsTold(NamedTuple):
    """What a member is told.  tasks: None when they have not changed."""

    member_id: str
    epoch: int
    tasks: Tasks | None = None
    statuses: tuple[Said, ...] = ()


@dataclass(slots=True, eq=False)
class StreamsGroup(EpochalGroup[StreamsMember]):
    """One group."""

    kind = "streams"

    standbys: int = 0
    initial_delay_ms: int = 0
    work: Work = field(default_factory=Work)
    holders: Holders = field(default_factory=Holders)
    target: dict[str, Tasks] = field(default_factory=dict)
    endpoint_epoch: int = 0
    """Rises when what an instance with an endpoint has may be another; not written down."""
    unkept: set[str] = field(default_factory=set)
    is_making_topics: bool = False
    """Whether internal topics are on their way (apis/internal_topics.py)."""
    not_made: str = ""
    """Which of them could not be made, and why; as it is told."""
    _delayed_until_ms: int | None = None
    """When the first target is made; None: it was, or nobody waits for it."""
    _shut_down_by: str | None = None
    _assigned_standbys: int = 0
    """As many as the epoch knows of."""
    _outdated: str = ""
    """Why the epoch rises at the next heartbeat: what was restored is not for what there is now."""

    @property
    def state(self) -> str:
        """Kafka's word for where the group stands."""
        if not self.members:
            return State.EMPTY.value
        if not self.work.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.reconciled is not Reconciled.STABLE or member.epoch != self.assignment_epoch:
                return "Reconciling"
        return State.STABLE.value

    @property
    def topology(self) -> Topology | None:
        """That of its members; None: nobody was in it yet."""
        return self.work.topology

    def count_on(self, kept: KeptStreams) -> None:
        """Go on without members, with the topology and the epochs that were written down."""
        self.epoch, self.assignment_epoch = kept.epoch, kept.assignment_epoch
        if kept.topology is not None:
            self.work.topology = Topology.of_row(kept.topology)

    def restore(
        self,
        now_ms: int,
        topology: Topology | None,
        members: Mapping[str, tuple[StreamsMember, Tasks]],
        gone: frozenset[str],
        topics: Mapping[str, Topic],
    ) -> None:
        """Go on with what was written down, of a new group with epochs: sessions begin
        anew.  Raises Refused for a topology that no topics can serve.

        members: each with its target.  gone: ids of those that are not alive: they are dropped at
        the next tick.
        """
        self._assigned_standbys = self.standbys
        if topology is not None:
            self.work.restore(topology, topics)
        for member_id, (member, target) in members.items():
            self.members[member_id], self.target[member_id] = member, target
            has = plus(member.assigned, member.revoking)
            self.holders.take(member_id, member.said.process_id, has)
            self._heard_of(now_ms, member)
            if member_id in gone:
                member.session_ends_ms = now_ms
                self.due_at(now_ms)
        if self.members and self.epoch == self.assignment_epoch:
            self._outdated = self._what_changed()

    def _what_changed(self) -> str:
        """Since the target was made, and no heartbeat has found it yet; or ""."""
        tasks, stateful = self.work.tasks, self.work.stateful
        every = {(name, number) for name, count in tasks.items() for number in range(count)}
        if every != {task for mine in self.target.values() for task in mine.active}:
            return group_news.OTHER_TOPICS
        copies = Counter(task for mine in self.target.values() for task in mine.standby)
        processes = {member.said.process_id for member in self.members.values()}
        wanted = min(self.standbys, len(processes) - 1)
        is_other = any(copies[task] != wanted for task in every if task[0] in stateful)
        return group_news.OTHER_STANDBYS if is_other else ""

    # Heartbeats

    def heartbeat(self, now_ms: int, beat: StreamsBeat, topics: Mapping[str, Topic]) -> StreamsTold:
        """A member says where it is; what it is told.  Raises Refused.

        topics: all that there are, by name; the same object as long as nothing changed.
        """
        if beat.epoch == LEAVE:
            return self._leave(now_ms, beat)
        known = self.members.get(beat.member_id)
        member = self._joining(known, beat) if beat.epoch == JOIN else self._at_epoch(known, beat)
        member.check_connection(beat.connection)
        topology = self.work.agreed(beat.topology)
        found = self.work.look(topology, topics)
        check_tasks(found, beat.owned)
        # Nothing is refused from here on.
        # Who is a member has what it has: that it would join may have been said long ago.
        still_has = None if beat.epoch == JOIN and known is not None else beat.owned
        has_missed = beat.epoch not in (JOIN, member.epoch)
        where = member.said.endpoint
        why = self._take_down(now_ms, member, beat)
        if self.work.take(topology, found, topics):
            why = why or group_news.OTHER_TOPICS
        self._rise(why or self._outdated, member)
        self._retarget(now_ms)
        changed = self._step(now_ms, member, still_has)
        self._heard_of(now_ms, member)
        if beat.shuts_down:
            self._shut_down_by = member.member_id
        if changed:
            member.knows_assigned, member.revoking_ends_ms = False, None
        if beat.epoch == JOIN:
            member.knows_endpoints = False
        if where != member.said.endpoint or (where is not None and (changed or beat.epoch == JOIN)):
            self.endpoint_epoch += 1
        differs = beat.owned is not None and beat.owned != member.assigned
        is_told = beat.epoch == JOIN or has_missed or differs or not member.knows_assigned
        tasks = member.assigned if is_told else None
        return StreamsTold(member.member_id, member.epoch, tasks, self._statuses(now_ms, member))

    def _joining(self, known: StreamsMember | None, beat: StreamsBeat) -> StreamsMember:
        if known is not None:
            return known  # its answer was lost, or it begins again: its place is its own
        self._check_place()
        return StreamsMember(beat.member_id)

    def _at_epoch(self, known: StreamsMember | None, beat: StreamsBeat) -> StreamsMember:
        """Its epoch, or one that it may have been told last (member_epochs.py): then it does not
        say that it has anything but its tasks, and those that it is to let go of."""
        member = known or self._known(beat.member_id)
        if beat.process_id not in (None, member.said.process_id):
            raise invalid_request("a member stays in its process")
        if beat.epoch != member.epoch:
            has = plus(member.assigned, member.revoking)
            if not member.may_be_at(beat.epoch) or not _is_within(beat.owned or NO_TASKS, has):
                size = "greater" if beat.epoch > member.epoch else "smaller"
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"The streams group member has a {size} member epoch ({beat.epoch}) than the "
                    f"one known by the group coordinator ({member.epoch}). The member must abandon "
                    "all its partitions and rejoin.",
                )
        member.said_epoch = beat.epoch
        return member

    def _take_down(self, now_ms: int, member: StreamsMember, beat: StreamsBeat) -> str:
        """What a member says of itself; why the epoch rises for it, or ""."""
        why = ""
        if member.member_id not in self.members:
            if not self.members and self.initial_delay_ms:
                self._delayed_until_ms = now_ms + self.initial_delay_ms
                self.due_at(self._delayed_until_ms)
            self.members[member.member_id] = member
            self._tell(group_news.JOINED, "", beat.who)
            why = group_news.CAME
        before = member.said
        said = member.says(beat)
        if said.process_id != before.process_id:
            member.let_go_of_all(self.holders)  # it begins again, in another process
            member.epoch, member.previous_epoch, member.said_epoch = 0, -1, 0
            member.reconciled = Reconciled.STABLE
        member.said = said
        if said != before:
            self.unkept.add(member.member_id)
            why = why or group_news.RESUBSCRIBED
        return why

    def _rise(self, why: str, member: StreamsMember) -> None:
        """The epoch rises, for this reason or for another number of standbys; or for none."""
        if self.standbys != self._assigned_standbys:
            self._assigned_standbys = self.standbys
            why = why or group_news.OTHER_STANDBYS
        if why:
            self._outdated = ""
            self.epoch = self.epoch + 1 if self.epoch else FIRST_EPOCH
            self.unkept.add(member.member_id)
            self._tell_rise(why, member.who)

    def _retarget(self, now_ms: int) -> None:
        if self.epoch == self.assignment_epoch or self._is_delayed(now_ms):
            return
        size = len(self.members) + sum(self.work.tasks.values()) * (1 + self.standbys)
        if not self._may_retarget(now_ms, is_large=size > SMALL_MAX):
            return
        before = self.target
        if self.work.is_ready:
            workers = [
                one.worker(before.get(one.member_id, NO_TASKS)) for one in self.members.values()
            ]
            self.target = sticky(workers, self.work.tasks, self.work.stateful, self.standbys)
        else:
            self.target = dict.fromkeys(self.members, NO_TASKS)
        self.assignment_epoch = self.epoch
        self.unkept.update(
            one for one, mine in self.target.items() if mine != before.get(one, NO_TASKS)
        )

    def _is_delayed(self, now_ms: int) -> bool:
        return self._delayed_until_ms is not None and now_ms < self._delayed_until_ms

    def _step(self, now_ms: int, member: StreamsMember, owned: Tasks | None) -> bool:
        """A member takes a step towards its target; whether its tasks changed."""
        target, epoch = self.target.get(member.member_id, NO_TASKS), self.assignment_epoch
        if self._is_delayed(now_ms):
            target, epoch = NO_TASKS, max(UNASSIGNED_EPOCH, self.assignment_epoch)
        before = (member.epoch, member.reconciled)
        changed = member.reconcile(target, epoch, owned, self.holders)
        if changed or before != (member.epoch, member.reconciled):
            self.unkept.add(member.member_id)
            self._tell_settled()
        return changed

    def _statuses(self, now_ms: int, member: StreamsMember) -> tuple[Said, ...]:
        assert self.topology is not None, "somebody is in it"
        found = []
        if member.said.topology_epoch < self.topology.epoch:
            told = (
                f"The member's topology epoch {member.said.topology_epoch} is behind the group's "
                f"topology epoch {self.topology.epoch}."
            )
            found.append(Said(Status.STALE_TOPOLOGY, told))
        if self.epoch > self.assignment_epoch:
            what = "initial rebalance delay" if self._is_delayed(now_ms) else "assignment interval"
            told = f"Assignment delayed due to the configured {what}."
            found.append(Said(Status.ASSIGNMENT_DELAYED, told))
        if self.work.configured.problem is not None:
            found.append(self.work.configured.problem)
        if self._shut_down_by is not None:
            told = (
                f"Streams group member {self._shut_down_by} encountered a fatal error and requested"
                " a shutdown for the entire application."
            )
            found.append(Said(Status.SHUTDOWN_APPLICATION, told))
        return tuple(found)

    def _leave(self, now_ms: int, beat: StreamsBeat) -> StreamsTold:
        member = self._known(beat.member_id)
        if beat.shuts_down:
            self._shut_down_by = member.member_id
        self._drop(now_ms, [(member, group_news.LEFT)])
        return StreamsTold(member.member_id, beat.epoch)

    def was_told(self, now_ms: int, member_id: str, tasks: Tasks | None) -> None:
        """The answer to a member leaves, which is when what it says is durable.

        From then on it has to let go in time: of who could not be told nothing is missed.
        """
        member = self.members[member_id]
        member.knows_endpoints = True
        if tasks is None or tasks != member.assigned:
            return  # an earlier answer, which waited: it has been told nothing of what is now
        member.knows_assigned = True
        if member.reconciled is Reconciled.REVOKING and member.revoking_ends_ms is None:
            member.revoking_ends_ms = now_ms + member.said.rebalance_timeout_ms
            self.due_at(member.revoking_ends_ms)

    # Offsets

    def check_commit(self, member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
        """Whether this member may commit; epoch -1 without members: a tool.

        Who is at another epoch may commit some partitions all the same: `may_commit_late`.
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        return self._check_at(member_id, epoch)

    def _check_at(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def may_commit_late(self, member_id: str, epoch: int, partition: Partition) -> bool:
        """Whether a member does the task of a partition now as at an earlier epoch, which has risen
        meanwhile."""
        member = self.members.get(member_id)
        subtopology = self.work.reader_of(partition[0])
        if member is None or subtopology is None:
            return False
        return member.has_done((subtopology, partition[1]), epoch)

    def knows_epochs(self, member_id: str) -> bool:
        """Whether this is a member, which commits as such."""
        return member_id in self.members

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this member may ask where the group stands; without an id anybody may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return self._check_at(member_id or "", epoch)

    def reads(self, topic: str) -> bool:
        """Whether the application reads a topic, or may: while anybody is in it."""
        return bool(self.members) and self.work.reads(topic)

    # Time

    def _heard_of(self, now_ms: int, member: StreamsMember) -> None:
        if member.reconciled is not Reconciled.REVOKING:
            member.revoking_ends_ms = None
        member.session_ends_ms = now_ms + self.session_timeout_ms
        self.due_at(member.session_ends_ms)

    def _drop(self, now_ms: int, leaving: Sequence[tuple[StreamsMember, str]]) -> None:
        """These have no place any more, each for its reason."""
        for member, why in leaving:
            member.let_go_of_all(self.holders)
            del self.members[member.member_id]
            self.target.pop(member.member_id, None)
            self.unkept.add(member.member_id)
            self.epoch += 1
            if member.said.endpoint is not None:
                self.endpoint_epoch += 1
            self._tell(group_news.REMOVED, why, member.who)
        member, why = leaving[-1]
        if not self._have_left(now_ms, why, member.who):
            self._shut_down_by = self._delayed_until_ms = None

    def tick(self, now_ms: int) -> None:
        """Do what is due: the first target; drop who was not heard of, or does not let go."""
        if late := [one for one in self.members.values() if one.ends_ms <= now_ms]:
            self._drop(now_ms, [(one, one.why_late(now_ms)) for one in late])
        if self._delayed_until_ms is not None and not self._is_delayed(now_ms):
            self._delayed_until_ms = None
            self._retarget(now_ms)
        ends_ms = min((one.ends_ms for one in self.members.values()), default=NEVER_MS)
        self.due_ms = min(ends_ms, self._delayed_until_ms or NEVER_MS)

    def close(self, code: ErrorCode) -> None:
        """The group is deleted, or its broker ends.  Nobody waits for an answer here."""
        self.members.clear()
        self.unkept.clear()


def _is_within(owned: Tasks, assigned: Tasks) -> bool:
    return owned.active <= assigned.active and owned.standby <= assigned.standby
