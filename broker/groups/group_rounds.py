"""How a generation of a classic group comes about, and who keeps it.

    EMPTY -> PREPARING -> COMPLETING -> STABLE
      ^         ^  |          |           |      a member joins anew, changes, leaves or vanishes:
      |         +--+----------+-----------+      back to PREPARING
      +------------+ nobody is left              DEAD: deleted, forgotten by whoever has it

    PREPARING    until everybody who is known has joined, or the rebalance is out of time; in a
                 group that was empty until nobody has come for initial_delay_ms (KIP-134)
    COMPLETING   the leader deals out, then the generation is recorded: durable before anybody
                 hears of it, so that no crash brings an older one back that others have succeeded
    STABLE       recorded: everybody has its assignment, or asks for it within the same time

| what comes while a generation is being recorded | then |
|---|---|
| its leader once more | it waits with the others |
| a rebalance begins: a member joins, leaves, vanishes, the time is up | the outcome is void |
| it cannot be recorded | nobody has anything; waiting members are told; a rebalance begins |

A client that takes a static member's place is answered when its new id is recorded, and a rebalance
does not end before that: after a crash the place is still its own.  In a stable group the present
generation is recorded with the id; in a rebalance, the last one that was recorded.  If that fails,
the client is refused, does not learn its id, and asks again.
An empty group is recorded without a wait.  Generations rise by one with each rebalance that ends.

Invariants: every join and sync is answered exactly once; `due_ms` is never later than the next
thing that has to happen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.generations import Generation

from ..loop.loop_clock import NEVER_MS
from . import group_news
from .assignor_choice import vote
from .group_members import Joined, Member, Members, Synced
from .group_news import News, Tell, untold

_SEATING_MS: Final = 100
"""A rebalance that is out of time while a place is being recorded looks again after that."""

OnRecorded: TypeAlias = Callable[[int, ErrorCode], None]
"""Told the time, and why it is not durable: at once or later, in the order of the recording."""
Record: TypeAlias = Callable[[Generation, OnRecorded], None]


class State(Enum):
    """Where a group stands; the value is Kafka's word for it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, eq=False)
class Rounds:
    """The state of one group, and what happens to it without being asked for."""

    group_id: str
    new_member_id: Callable[[str], str]
    initial_delay_ms: int
    size_max: int
    record: Record
    tell: Tell = untold
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    roster: Members = field(default_factory=Members)
    earlier: dict[str, int] = field(default_factory=dict)
    """The generation of each member that is at another one: so they come out of a group of
    KIP-848's protocol, and stay until the first rebalance ends."""
    empty_since_ms: int = 0
    due_ms: int = NEVER_MS
    _rebalance_ends_ms: int = NEVER_MS
    _is_first: bool = False
    """Whether the rebalance is that of a group that was empty, which waits for newcomers."""
    _first_ends_ms: int = 0
    """Until when, however many come."""
    _has_newcomer: bool = False
    """Whether somebody came since it began to wait, or was last put off."""
    _last: Generation = field(default_factory=lambda: Generation(0))
    """What was recorded last."""
    _seating: int = 0
    """How many places that changed hands are being recorded."""
    _dealt: int = -1
    """The last generation whose assignments were brought."""
    _missing: list[Member] = field(default_factory=list)
    """Who had not joined when everybody was last looked at, but for some who have since."""
    _unsynced: set[str] = field(default_factory=set)
    """Who was told of this generation and has not asked for its assignment yet."""

    @property
    def members(self) -> dict[str, Member]:
        """Everybody with a place, by member id."""
        return self.roster.by_id

    @property
    def elected(self) -> str:
        """The protocol of a generation that would begin now."""
        return vote([member.protocols for member in self.members.values()], self.protocol)

    def kept(self) -> Generation:
        """This generation, as it is recorded."""
        members = tuple(member.kept() for member in self.members.values())
        return Generation(self.generation, self.protocol_type, self.protocol, self.leader, members)

    def kept_last(self) -> Generation:
        """What was to be recorded last, durable or not; nobody is in it where nothing was."""
        if self._last.number:
            return self._last
        return Generation(self.generation, self.protocol_type)

    def restore(self, now_ms: int, kept: Generation, gone: frozenset[str]) -> None:
        """Go on with a generation that was recorded, of a new group: sessions begin anew.

        gone: ids of members whose session has ended already.  A generation without a leader is that
        of a group that was of KIP-848's protocol: its members have to share out what they read.
        """
        assert self.state is State.EMPTY, "nobody has joined"
        assert kept.members, "somebody is in it"
        self.state, self._last = State.STABLE, kept
        self.generation, self.protocol_type, self.protocol, self.leader = kept[:4]
        self.earlier = dict(kept.earlier)
        for one in kept.members:
            member = self.roster.restore(one)
            self._alive(now_ms, member)
            if member.member_id in gone:
                member.session_ends_ms = now_ms
                self._due(now_ms)
        if not self.leader:
            self._prepare(now_ms, group_news.TURNED)

    def _tell(self, event: str, why: str = "", who: Member | None = None, said: str = "") -> None:
        of = None if who is None else who.who
        self.tell(News(event, self.generation, len(self.members), why, of, said))

    # Preparing

    def _prepare(self, now_ms: int, why: str, who: Member | None = None, said: str = "") -> None:
        """Begin a rebalance, or look whether the one under way is complete.

        why, who, said: what it begins for, as it is told of.
        """
        if self.state is not State.PREPARING:
            self._tell(group_news.BEGAN, why, who, said)
            was_empty = self.state is State.EMPTY
            for member in self.members.values():
                member.assignment = b""  # `held` is what it has
                if member.on_synced is not None:
                    on_synced, member.on_synced = member.on_synced, None
                    on_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
            self.state = State.PREPARING
            self._is_first = was_empty and self.initial_delay_ms > 0
            self._first_ends_ms = now_ms + self.roster.rebalance_ms()
            self._has_newcomer = False
            wait_ms = self.initial_delay_ms if self._is_first else self.roster.rebalance_ms()
            self._rebalance_ends_ms = now_ms + wait_ms
            self._due(self._rebalance_ends_ms)
            if was_empty and not self.initial_delay_ms and not self._seating:
                self._complete(now_ms)  # without a wait for who was given an id, as behind one
                return
        self._complete_if_all(now_ms)

    def _complete_if_all(self, now_ms: int) -> None:
        if self._is_first or self.roster.given or self._seating:
            return
        if self._is_all_here():
            self._complete(now_ms)

    def _is_all_here(self) -> bool:
        """Whether everybody has joined: asked with each that joins, of thousands.  So all are
        looked at only when those are here, or gone, that were not when they were last."""
        missing = self._missing
        while missing:
            member = missing[-1]
            if member.on_joined is None and self.members.get(member.member_id) is member:
                return False
            missing.pop()
        missing += (member for member in self.members.values() if member.on_joined is None)
        return not missing

    def _complete(self, now_ms: int) -> None:
        """The rebalance ends: who has joined is a member of the next generation."""
        self._is_first = False
        for member in [m for m in self.members.values() if m.on_joined is None]:
            if member.instance_id is None:
                self._remove(member, group_news.NOT_JOINED)
        joined = [member for member in self.members.values() if member.on_joined is not None]
        if not self.members:
            self._become_empty(now_ms)
            return
        if not joined:  # static ones, until their sessions end: this generation is still theirs
            self._rebalance_ends_ms = now_ms + max(1, self.roster.rebalance_ms())
            self._due(self._rebalance_ends_ms)
            return
        self.generation += 1
        self.earlier.clear()
        self.state = State.COMPLETING
        self.protocol = self.elected
        leader = self.members.get(self.leader)
        if leader is None or leader.on_joined is None:
            self.leader = joined[0].member_id
        self._rebalance_ends_ms = now_ms + self.roster.rebalance_ms()
        self._due(self._rebalance_ends_ms)
        self._unsynced = {member.member_id for member in joined}
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
        """Nobody is left; this counts as a generation."""
        assert not self.members, "nobody is left"
        self.generation += 1
        self.state = State.EMPTY
        self.protocol = self.leader = ""
        self.empty_since_ms = now_ms
        self._rebalance_ends_ms = NEVER_MS
        self._tell(group_news.EMPTY)
        # Were it lost, members that are gone would be missed for a session after a restart.
        self._record(self.kept(), _nobody_waits)

    # Completing

    def _deal_out(self, assignments: Mapping[str, bytes]) -> None:
        """The leader has brought the assignments: they hold when they are recorded."""
        if self._dealt == self.generation:
            return
        generation = self._dealt = self.generation
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")

        def recorded(now_ms: int, code: ErrorCode) -> None:
            if self.state is not State.COMPLETING or self.generation != generation:
                return  # a rebalance has begun meanwhile, and everybody was told
            if code:
                self._not_recorded(now_ms, code)
            else:
                self._become_stable(now_ms)

        self._record(self.kept(), recorded)

    def _become_stable(self, now_ms: int) -> None:
        self.state = State.STABLE
        self._tell(group_news.STABLE)
        for member in self.members.values():
            member.held = member.assignment
            if member.on_synced is not None:
                on_synced, member.on_synced = member.on_synced, None
                self._alive(now_ms, member)
                on_synced(self._synced(member))
            # Who has not asked yet has the rest of the rebalance time to do so.

    def _not_recorded(self, now_ms: int, code: ErrorCode) -> None:
        for member in self.members.values():
            if member.on_synced is not None:
                on_synced, member.on_synced = member.on_synced, None
                self._alive(now_ms, member)
                on_synced(Synced(code))
        self._prepare(now_ms, group_news.NOT_RECORDED)

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _join_when_recorded(self, member: Member, asked_as: str, *, skip_assignment: bool) -> None:
        """A member has taken a place in the present generation: it is told when that is recorded.

        asked_as: the member id of its request, for the answer if it cannot be.
        """
        self._seat(self.kept(), member, asked_as, skip_assignment=skip_assignment)

    def _take_place(self, old: str, member: Member, asked_as: str) -> None:
        """A place changes hands in a rebalance: what is written down follows, before it is told.

        asked_as: as above.
        """
        last, new = self._last, member.member_id
        if all(one.member_id != old for one in last.members):
            return
        places = tuple(
            one._replace(member_id=new) if one.member_id == old else one for one in last.members
        )
        leader = new if last.leader == old else last.leader
        self._seat(last._replace(leader=leader, members=places), member, asked_as)

    def _seat(
        self, kept: Generation, member: Member, asked_as: str, *, skip_assignment: bool = False
    ) -> None:
        """Write a place down; no round ends before it is, or its id would be lost in a crash."""
        done = member.on_joined
        self._seating += 1

        def recorded(now_ms: int, code: ErrorCode) -> None:
            self._seating -= 1
            decided = bool(code) or self.state is State.STABLE  # else the round answers it
            if decided and done is not None and member.on_joined is done:
                member.on_joined = None
                self._alive(now_ms, member)
                if code:
                    done(Joined(code, asked_as))
                else:
                    done(self._joined(member, skip_assignment=skip_assignment))
            if self.state is State.PREPARING:
                self._complete_if_all(now_ms)

        self._record(kept, recorded)

    def _record(self, kept: Generation, told: OnRecorded) -> None:
        self._last = kept
        self.record(kept, told)

    # Leaving, and time

    def _remove(self, member: Member, why: str, said: str = "") -> None:
        self.roster.remove(member)
        self._tell(group_news.REMOVED, why, member, said)

    def _drop(self, now_ms: int, member: Member, why: str, said: str = "") -> None:
        self._remove(member, why, said)
        if self.state is State.PREPARING:
            self._complete_if_all(now_ms)
        elif not self.members:
            self._become_empty(now_ms)
        else:
            self._prepare(now_ms, why, member, said)

    def _alive(self, now_ms: int, member: Member) -> None:
        if now_ms < member.heard_ms:
            return  # what it had said before, by a connection that it has given up since
        member.heard_ms = now_ms
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
                self._drop(now_ms, member, group_news.SESSION_ENDED)
        if self.state is State.PREPARING:
            if self._rebalance_ends_ms > now_ms:
                self._complete_if_all(now_ms)
            elif self._seating:
                self._rebalance_ends_ms = now_ms + _SEATING_MS
            elif self._is_first and self._has_newcomer and now_ms < self._first_ends_ms:
                self._has_newcomer = False
                ends_ms = now_ms + self.initial_delay_ms
                self._rebalance_ends_ms = min(ends_ms, self._first_ends_ms)
            else:
                self._complete(now_ms)
        elif self.state is State.STABLE and self._rebalance_ends_ms <= now_ms:
            self._rebalance_ends_ms = NEVER_MS
            for member in [m for m in self.members.values() if m.member_id in self._unsynced]:
                self._drop(now_ms, member, group_news.NOT_SYNCED)
        elif self.state is State.COMPLETING and self._rebalance_ends_ms <= now_ms:
            late = [m for m in self.members.values() if m.member_id in self._unsynced]
            for member in late:
                self._remove(member, group_news.NOT_SYNCED)
            if self.members:
                why = group_news.NOT_SYNCED if late else group_news.NOT_RECORDED
                self._prepare(now_ms, why)
            else:
                self._become_empty(now_ms)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """The exact time of the next thing to do."""
        self.due_ms = min(
            self._rebalance_ends_ms,
            min(self.roster.given.values(), default=NEVER_MS),
            min((m.session_ends_ms for m in self.members.values()), default=NEVER_MS),
        )


def _nobody_waits(now_ms: int, code: ErrorCode) -> None:
    """That a group is empty is recorded again by who keeps the house, if it was not."""
