"""One consumer group of the classic protocol: a state machine, time passed in.

    EMPTY -> PREPARING -> COMPLETING -> STABLE
      ^         ^  |          |           |      a member joins anew, changes, leaves or vanishes:
      |         +--+----------+-----------+      back to PREPARING
      +------------+ nobody is left              DEAD: deleted, forgotten by whoever has it

    join       waits until everybody who is known has joined, or the rebalance is out of time
    sync       the leader brings the assignments, the others wait for theirs
    heartbeat  alive; REBALANCE_IN_PROGRESS tells a member to join again

| who | is dropped when |
|---|---|
| a member | its session ends: no heartbeat, no join and no sync under way for session_timeout |
| ... in PREPARING | it has not joined by the end of the rebalance (static ones by their session) |
| ... in COMPLETING | it has not synced by the end of the rebalance time |
| an id that was given to be joined with | it was not used for session_timeout |

A static member (`group.instance.id`) that comes back takes its old place under a new member id;
who still uses the old one is fenced.  Generations rise by one with each rebalance that ends.

Invariants: one owner per generation, for an older one is refused everywhere; every join and sync
is answered exactly once; `due_ms` is never later than the next thing that has to happen.
Source: Kafka's classic group coordinator and KIP-345 (static members), KIP-394 (ids first).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from segbroker.protocol.errors import ErrorCode

from .assignor_choice import candidates, vote
from .group_members import Joined, Joining, Member, Members, OnJoined, OnSynced, Synced

NEVER_MS: Final = 1 << 62


class State(Enum):
    """Where a group stands; the value is Kafka's word for it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, eq=False)
class Group:
    """One group."""

    group_id: str
    new_member_id: Callable[[str], str]
    initial_delay_ms: int
    size_max: int
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    roster: Members = field(default_factory=Members)
    empty_since_ms: int = 0
    due_ms: int = NEVER_MS
    _rebalance_ends_ms: int = NEVER_MS
    _is_first: bool = False

    @property
    def members(self) -> dict[str, Member]:
        """Everybody with a place, by member id."""
        return self.roster.by_id

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, nor was given an id to join with."""
        return self.state is State.EMPTY and not self.roster.given

    # Joining

    def join(self, now_ms: int, joining: Joining, done: OnJoined) -> None:
        """A member joins, or joins again; `done` is called once, now or later."""
        code = self._refusal(joining)
        if code:
            done(Joined(code, joining.member_id))
        elif joining.member_id in self.members:
            self._join_again(now_ms, joining, done)
        elif joining.member_id or joining.instance_id not in self.roster.by_instance:
            self._join_new(now_ms, joining, done)
        else:
            self._take_over(now_ms, joining, done)

    def _refusal(self, joining: Joining) -> ErrorCode:
        member_id, instance_id = joining.member_id, joining.instance_id
        if self.members and joining.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not joining.protocols or not joining.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        others = self.roster.others(member_id, instance_id)
        if not candidates([joining.protocols, *(member.protocols for member in others)]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if member_id and self.roster.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id and not self.roster.is_known(member_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_new = member_id not in self.members and instance_id not in self.roster.by_instance
        if is_new and len(self.members) >= self.size_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_new(self, now_ms: int, joining: Joining, done: OnJoined) -> None:
        prefix = joining.instance_id or joining.client_id
        member_id = joining.member_id or self.new_member_id(prefix)
        if not joining.member_id and joining.wants_id_first and joining.instance_id is None:
            if len(self.roster.given) >= self.size_max:
                done(Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
                return
            self.roster.given[member_id] = now_ms + joining.session_timeout_ms
            self._due(self.roster.given[member_id])
            done(Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self.roster.given.pop(member_id, None)
        member = self._add(now_ms, member_id, joining)
        member.on_joined = done
        self._prepare(now_ms)

    def _add(self, now_ms: int, member_id: str, joining: Joining) -> Member:
        if not self.members:
            self.protocol_type = joining.protocol_type
        member = self.roster.add(member_id, joining)
        self._alive(now_ms, member)
        return member

    def _take_over(self, now_ms: int, joining: Joining, done: OnJoined) -> None:
        """A static member came back and does not know its member id."""
        assert joining.instance_id is not None
        old = self.members.pop(self.roster.by_instance[joining.instance_id])
        member = self._add(now_ms, self.new_member_id(joining.instance_id), joining)
        member.assignment = old.assignment
        old.answer(ErrorCode.FENCED_INSTANCE_ID)
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member.member_id
        unchanged = old.protocols.get(self.protocol) == joining.protocols.get(self.protocol)
        if self.state is State.STABLE and unchanged:
            # Nothing changes for the others: the present generation goes on.
            done(self._joined(member, skip_assignment=was_leader and joining.knows_skip))
            return
        member.on_joined = done
        self._prepare(now_ms)

    def _join_again(self, now_ms: int, joining: Joining, done: OnJoined) -> None:
        member = self.members[joining.member_id]
        self._alive(now_ms, member)
        is_same = member.protocols == joining.protocols
        has_generation = self.state is State.COMPLETING or (
            self.state is State.STABLE and member.member_id != self.leader
        )
        if is_same and has_generation:
            done(self._joined(member))  # its answer was lost
            return
        if member.on_joined is not None:
            member.on_joined(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = joining.protocols
        member.session_timeout_ms = joining.session_timeout_ms
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        member.on_joined = done
        self._prepare(now_ms)

    # Rebalancing

    def _prepare(self, now_ms: int) -> None:
        """Begin a rebalance, or look whether the one under way is complete."""
        if self.state is not State.PREPARING:
            was_empty = self.state is State.EMPTY
            for member in self.members.values():
                member.assignment = b"" if self.state is State.COMPLETING else member.assignment
                if member.on_synced is not None:
                    on_synced, member.on_synced = member.on_synced, None
                    on_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
            self.state = State.PREPARING
            self._is_first = was_empty and self.initial_delay_ms > 0
            wait_ms = self.initial_delay_ms if self._is_first else self.roster.rebalance_ms()
            self._rebalance_ends_ms = now_ms + wait_ms
            self._due(self._rebalance_ends_ms)
        self._complete_if_all(now_ms)

    def _complete_if_all(self, now_ms: int) -> None:
        if self._is_first or self.roster.given:
            return
        if all(member.on_joined is not None for member in self.members.values()):
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """The rebalance ends: who has joined is a member of the next generation."""
        self._is_first = False
        for member in [m for m in self.members.values() if m.on_joined is None]:
            if member.instance_id is None:
                self.roster.remove(member)
        self.generation += 1
        joined = [member for member in self.members.values() if member.on_joined is not None]
        if not joined:
            if self.members:  # static ones, until their sessions end
                self._rebalance_ends_ms = now_ms + max(1, self.roster.rebalance_ms())
                self._due(self._rebalance_ends_ms)
                return
            self._become_empty(now_ms)
            return
        self.state = State.COMPLETING
        self.protocol = vote([member.protocols for member in self.members.values()])
        leader = self.members.get(self.leader)
        if leader is None or leader.on_joined is None:
            self.leader = joined[0].member_id
        self._rebalance_ends_ms = now_ms + self.roster.rebalance_ms()
        self._due(self._rebalance_ends_ms)
        for member in joined:
            self._alive(now_ms, member)
        for member in joined:
            on_joined, member.on_joined = member.on_joined, None
            assert on_joined is not None
            on_joined(self._joined(member))

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        is_leader = member.member_id == self.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            tuple(
                (one.member_id, one.instance_id, one.protocols[self.protocol])
                for one in self.members.values()
            )
            if is_leader
            else (),
            skip_assignment,
        )

    def _become_empty(self, now_ms: int) -> None:
        self.state = State.EMPTY
        self.protocol = self.leader = ""
        self.empty_since_ms = now_ms
        self._rebalance_ends_ms = NEVER_MS

    # Syncing

    def sync(
        self,
        now_ms: int,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        done: OnSynced,
    ) -> None:
        """The leader brings the assignments, others ask; `done` is called once, now or later."""
        code = self.check_member(member_id, instance_id, generation)
        if not code and protocol_type is not None and protocol_type != self.protocol_type:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not code and protocol is not None and protocol != self.protocol:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not code and self.state is State.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            done(Synced(code))
            return
        member = self.members[member_id]
        self._alive(now_ms, member)
        if self.state is State.STABLE:
            done(self._synced(member))
            return
        if member.on_synced is not None:
            member.on_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        member.on_synced = done
        if member_id != self.leader:
            return
        self.state = State.STABLE
        self._rebalance_ends_ms = NEVER_MS
        for one in self.members.values():
            one.assignment = assignments.get(one.member_id, b"")
        for one in self.members.values():
            if one.on_synced is not None:
                on_synced, one.on_synced = one.on_synced, None
                self._alive(now_ms, one)
                on_synced(self._synced(one))
            # Who has not asked yet has its session to do so.

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # Living and leaving

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What is wrong with a member that says it is of this generation."""
        code = self.roster.check(member_id, instance_id)
        if not code and generation != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

    def heartbeat(
        self, now_ms: int, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """A member is alive; what it is to know."""
        code = self.check_member(member_id, instance_id, generation)
        if code:
            return code
        self._alive(now_ms, self.members[member_id])
        if self.state is State.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, now_ms: int, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Whether this member may commit; generation -1: somebody who is no member."""
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        code = self.check_member(member_id, instance_id, generation)
        if code:
            return code
        if self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._alive(now_ms, self.members[member_id])
        return ErrorCode.NONE

    def leave(self, now_ms: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """A member goes; a static one may be named by its instance alone."""
        if instance_id is not None:
            known = self.roster.by_instance.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and member_id != known:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = known
        if self.roster.given.pop(member_id, None) is not None:
            if self.state is State.PREPARING:
                self._complete_if_all(now_ms)
            return ErrorCode.NONE
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._drop(now_ms, self.members[member_id])
        return ErrorCode.NONE

    def _drop(self, now_ms: int, member: Member) -> None:
        self.roster.remove(member)
        if self.state is State.PREPARING:
            self._complete_if_all(now_ms)
        elif not self.members:
            self.generation += 1
            self._become_empty(now_ms)
        else:
            self._prepare(now_ms)

    def abandon(self, now_ms: int, done: object) -> None:
        """The connection that waited with `done` is gone: from here on the session counts."""
        for member in self.members.values():
            if done in (member.on_joined, member.on_synced):
                member.on_joined = member.on_synced = None
                self._alive(now_ms, member)

    def close(self, code: ErrorCode) -> None:
        """The group is deleted, or its broker ends: everybody who waits is told."""
        for member in tuple(self.members.values()):
            member.answer(code)
        self.state = State.DEAD

    # Time

    def _alive(self, now_ms: int, member: Member) -> None:
        member.session_ends_ms = now_ms + member.session_timeout_ms
        self._due(member.session_ends_ms)

    def _due(self, at_ms: int) -> None:
        self.due_ms = min(self.due_ms, at_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        for member_id in [one for one, ends in self.roster.given.items() if ends <= now_ms]:
            del self.roster.given[member_id]
        for member in tuple(self.members.values()):
            if member.is_waiting:
                self._alive(now_ms, member)
            elif member.session_ends_ms <= now_ms and member.member_id in self.members:
                self._drop(now_ms, member)
        if self.state is State.PREPARING:
            if self._rebalance_ends_ms <= now_ms:
                self._complete(now_ms)
            else:
                self._complete_if_all(now_ms)
        elif self.state is State.COMPLETING and self._rebalance_ends_ms <= now_ms:
            for member in [m for m in self.members.values() if m.on_synced is None]:
                if member.member_id in self.members and self.state is State.COMPLETING:
                    self.roster.remove(member)
            if self.members:
                self._prepare(now_ms)
            else:
                self.generation += 1
                self._become_empty(now_ms)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """The exact time of the next thing to do."""
        self.due_ms = min(
            self._rebalance_ends_ms,
            min(self.roster.given.values(), default=NEVER_MS),
            min((m.session_ends_ms for m in self.members.values()), default=NEVER_MS),
        )
