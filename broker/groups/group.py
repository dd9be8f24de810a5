"""One consumer group of the classic protocol: what its members ask, time passed in.

    join       waits until everybody who is known has joined, or the rebalance is out of time
    sync       the leader brings the assignments, the others wait for theirs
    heartbeat  alive; REBALANCE_IN_PROGRESS tells a member to join again

How a generation comes about and ends is in group_rounds.py.

| who | is dropped when |
|---|---|
| a member | its session ends: no heartbeat, no join and no sync under way for session_timeout |
| ... in PREPARING | it has not joined by the end of the rebalance (static ones by their session) |
| ... in COMPLETING, STABLE | it has joined and not synced by the end of the rebalance time |
| an id that was given to be joined with | it was not used for session_timeout |

A static member (`group.instance.id`) that comes back takes its old place under a new member id; a
client that still uses the old id is fenced.

Invariants: a partition has one owner per generation, because requests of an older generation are
refused everywhere, also after a restart; every join and sync is answered exactly once.
Source: Kafka's classic group coordinator and KIP-345 (static members), KIP-394 (ids first).
"""

from collections.abc import Mapping
from typing import Final

from segbroker.protocol.consumer_protocol import (
    assigned_partitions,
    decode_subscription,
    subscribed_topics,
)
from segbroker.protocol.errors import ErrorCode

from . import group_news
from .group_members import Joined, Joining, Member, OnJoined, OnSynced, Synced
from .group_rounds import Rounds, State

CONSUMER: Final = "consumer"
"""The protocol type whose members subscribe to topics."""


class Group(Rounds):
    """One group."""

    __slots__ = ()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, nor was given an id to join with."""
        return self.state is State.EMPTY and not self.roster.given

    # Joining

    def join(
        self, now_ms: int, joining: Joining, done: OnJoined, *, said_ms: int | None = None
    ) -> Member | None:
        """A member joins, or joins again; `done` is called once, now or later.

        said_ms: when it said so, if not now: an id that it is given is waited for from then on.
        Returns who may be waiting, for `abandon`.
        """
        code = self._refusal(joining)
        if code:
            done(Joined(code, joining.member_id))
            return None
        if joining.member_id in self.members:
            return self._join_again(now_ms, joining, done)
        if joining.member_id or joining.instance_id not in self.roster.by_instance:
            return self._join_new(now_ms, joining, done, now_ms if said_ms is None else said_ms)
        return self._take_over(now_ms, joining, done)

    def _refusal(self, joining: Joining) -> ErrorCode:
        member_id, instance_id = joining.member_id, joining.instance_id
        if self.members and joining.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not (joining.protocol_type and self.roster.has_common(joining)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if member_id and member_id not in self.roster.given:
            if code := self.roster.check(member_id, instance_id):
                return code
        elif member_id and self.roster.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        is_new = member_id not in self.members and instance_id not in self.roster.by_instance
        if is_new and len(self.members) >= self.size_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_new(
        self, now_ms: int, joining: Joining, done: OnJoined, said_ms: int
    ) -> Member | None:
        prefix = joining.instance_id or joining.client_id
        member_id = joining.member_id or self.new_member_id(prefix)
        if not joining.member_id and joining.wants_id_first and joining.instance_id is None:
            if len(self.roster.given) >= self.size_max:
                done(Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
                return None
            self.give(member_id, said_ms + joining.session_timeout_ms)
            done(Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return None
        self.roster.given.pop(member_id, None)
        member = self._add(now_ms, member_id, joining)
        member.on_joined = done
        self._tell(group_news.JOINED, "", member, joining.reason)
        self._has_newcomer = True
        self._prepare(now_ms, group_news.CAME, member, joining.reason)
        return member

    def give(self, member_id: str, until_ms: int) -> None:
        """Somebody may join with this id until then, and is waited for."""
        self.roster.given[member_id] = until_ms
        self._due(until_ms)

    def _add(self, now_ms: int, member_id: str, joining: Joining) -> Member:
        self.protocol_type = joining.protocol_type
        member = self.roster.add(member_id, joining)
        self._alive(now_ms, member)
        return member

    def _take_over(self, now_ms: int, joining: Joining, done: OnJoined) -> Member:
        """A static member came back and does not know its member id."""
        assert joining.instance_id is not None
        old = self.roster.vacate(joining.instance_id)
        member = self._add(now_ms, self.new_member_id(joining.instance_id), joining)
        member.assignment, member.held = old.assignment, old.held
        old.answer(ErrorCode.FENCED_INSTANCE_ID)
        self._tell(group_news.REMOVED, group_news.REPLACED, old)
        self._tell(group_news.JOINED, "", member, joining.reason)
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member.member_id
        member.on_joined = done
        if self.state is State.STABLE and self._is_alike(old, member):
            # Nothing changes for the others: the present generation goes on.
            skips = was_leader and joining.knows_skip
            self._join_when_recorded(member, joining.member_id, skip_assignment=skips)
        else:
            self._take_place(old.member_id, member, joining.member_id)
            self._prepare(now_ms, group_news.CAME, member, joining.reason)
        return member

    def _is_alike(self, old: Member, new: Member) -> bool:
        """Whether a generation goes on with a member in the place of another: the same protocol is
        chosen, and a consumer subscribes to the same.  What else it says is of its last life."""
        if self.elected != self.protocol:
            return False
        if self.protocol_type != CONSUMER:
            return True
        before, now = old.protocols[self.protocol], new.protocols[self.protocol]
        if subscribed_topics(before) != subscribed_topics(now):
            return False
        return not _owes_a_round(before, old.assignment)

    def _join_again(self, now_ms: int, joining: Joining, done: OnJoined) -> Member:
        member = self.members[joining.member_id]
        self._alive(now_ms, member)
        # The order says which one it likes best.
        is_same = [*member.protocols.items()] == [*joining.protocols.items()]
        has_generation = self.state is State.COMPLETING or (
            self.state is State.STABLE and member.member_id != self.leader
        )
        if is_same and has_generation:
            done(self._joined(member))  # its answer was lost
            return member
        if member.on_joined is not None:
            member.on_joined(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.roster.says(member, joining.protocols)
        member.session_timeout_ms = joining.session_timeout_ms
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        member.on_joined = done
        why = group_news.JOINED_AGAIN if is_same else group_news.RESUBSCRIBED
        self._prepare(now_ms, why, member, joining.reason)
        return member

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
    ) -> Member | None:
        """The leader brings the assignments, others ask; `done` is called once, now or later.

        Returns who may be waiting, for `abandon`.
        """
        code = self.check_member(member_id, instance_id, generation)
        if not code and protocol_type is not None and protocol_type != self.protocol_type:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # None was chosen yet where the members come out of a group of KIP-848's protocol.
        if not code and protocol is not None and self.protocol not in ("", protocol):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not code and self.state is State.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            done(Synced(code))
            return None
        member = self.members[member_id]
        self._alive(now_ms, member)
        self._unsynced.discard(member_id)
        if self.state is State.STABLE:
            done(self._synced(member))
            return member
        if member.on_synced is not None:
            member.on_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        member.on_synced = done
        if member_id == self.leader:
            self._deal_out(assignments)
        return member

    # Living and leaving

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What is wrong with a member that says it is of this generation."""
        code = self.roster.check(member_id, instance_id)
        if not code and generation != self.earlier.get(member_id, self.generation):
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
        self,
        now_ms: int,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit; generation -1: somebody who is no member.

        in_transaction: it may while the leader deals out, too; producers know no code for that.
        """
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        code = self.check_member(member_id, instance_id, generation)
        if code:
            return code
        if self.state is State.COMPLETING and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._alive(now_ms, self.members[member_id])
        return ErrorCode.NONE

    def leave(
        self,
        now_ms: int,
        member_id: str,
        instance_id: str | None,
        said: str = "",
        by: str | None = None,
    ) -> ErrorCode:
        """A member goes; a static one may be named by its instance alone.  said: why.  by: the
        client id of who asks; None: the member itself."""
        named = member_id
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
        member = self.members[member_id]
        self._drop(now_ms, member, group_news.why_gone(member.who, named, by), said)
        return ErrorCode.NONE

    def abandon(self, now_ms: int, member: Member | None, done: object) -> None:
        """The connection that waited with `done` is gone: from here on the session counts.

        member: as join or sync named it.  Of thousands, all may go at once.
        """
        if member is not None and done in (member.on_joined, member.on_synced):
            member.on_joined = member.on_synced = None
            self._alive(now_ms, member)

    def close(self, code: ErrorCode) -> None:
        """The group is deleted, or its broker ends: everybody who waits is told."""
        for member in tuple(self.members.values()):
            member.answer(code)
        self.state = State.DEAD


def _owes_a_round(said: bytes, assignment: bytes) -> bool:
    """Whether a member was to let go of partitions and, as it said what it had when it joined
    (cooperative assignors), to join again for those who get them: its next life knows nothing of
    that, and they would be read by nobody."""
    subscription = decode_subscription(said)
    kept = assigned_partitions(assignment) if assignment else []
    return (
        subscription is not None and kept is not None and not set(subscription.owned) <= set(kept)
    )
