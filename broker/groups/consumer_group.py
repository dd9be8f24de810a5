"""One consumer group of the KIP-848 protocol: a state machine, time and topics passed in.

There is one request: a heartbeat, which joins (epoch 0), says what is read and what is subscribed,
and leaves (-1; a static member that means to come back: -2).  The broker assigns.  Members of the
classic protocol may be in it too (classic_members.py): their JoinGroup comes here as a heartbeat.

    epoch              rises with every change of members, subscriptions or subscribed topics
    assignment_epoch   the epoch that the target was made for; made at the next heartbeat
    a member's epoch   the target it has taken up; a request with another one is fenced

    EMPTY        nobody            ASSIGNING    the target is older than the group
    RECONCILING  somebody is not at the target yet (consumer_members.py)       STABLE

A partition is given to a member only when nobody else has it or still has to let go of it.  So no
member stops for the others: one that keeps its partitions reads on.  A member that was told to let
go of a partition is dropped if it has not done so within its rebalance_timeout; so is a member
without a heartbeat for a session.

Targets of a group that is larger than LARGE_MIN are REST_MS apart: a thousand members that join one
after the other would take the loop for seconds.  Where somebody waits for an answer, a member of
the classic protocol, one is made at once.

| refused with | who |
|---|---|
| 25 UNKNOWN_MEMBER_ID | is no member: it joins again |
| 110 FENCED_MEMBER_EPOCH | is at another epoch: it joins again |
| 82 FENCED_INSTANCE_ID, 111 UNRELEASED_INSTANCE_ID | its instance is another member's |
| 81 GROUP_MAX_SIZE_REACHED | one too many |
| 128 INVALID_REGULAR_EXPRESSION | asks for what is none |
| 113 STALE_MEMBER_EPOCH | fetches offsets at another epoch: after a heartbeat again |
| | commits at another epoch, and did not read that partition from then until now |
| 22 ILLEGAL_GENERATION | the same, of a classic member: it joins again |
| 15 COORDINATOR_NOT_AVAILABLE | uses an older connection than before: it asks again |

Members outlive the broker: `unkept` names the members with changes that are not stored yet
(kept_consumers.py).  These are answered when the changes are durable; all others at once.

Invariants: `owners` holds each partition once, with the member that may read it; epochs only rise;
`due_ms` is never later than the next thing that has to happen; what was written down, and `unkept`
as it is now, are the group.
Source: KIP-848, KIP-1082 (members choose their ids), KIP-1251 (commits that are late).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.consumer_groups import KeptGroup

from ..loop.loop_clock import NEVER_MS
from ..refused import Refused, invalid_request
from . import group_news
from .consumer_members import Beat, ConsumerMember, MaySee, Reconciled, Told
from .consumer_target import Target, Topic
from .epochal_group import EpochalGroup
from .group_rounds import State
from .member_epochs import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from .server_assignors import Partition

LARGE_MIN: Final = 1_000_000
"""Members, times members and partitions together: what it costs that all of them join."""


@dataclass(slots=True, eq=False)
class ConsumerGroup(EpochalGroup[ConsumerMember]):
    """One group."""

    kind = "consumer"

    large_min: int = LARGE_MIN
    owners: dict[Partition, str] = field(default_factory=dict)
    target: Target = field(default_factory=Target)
    unkept: set[str] = field(default_factory=set)
    unsaid: set[str] = field(default_factory=set)
    """Those of `unkept` who say something else of themselves."""
    given: dict[str, int] = field(default_factory=dict)
    """Ids that classic members were given to join with, and until when each may be."""
    static: dict[str, str] = field(default_factory=dict)
    """The member that each instance is."""
    has_turned: bool = False
    """Whether the next heartbeat makes the target anew, also where nobody came."""
    _behind: set[str] = field(default_factory=set)
    """Who is not at the target, or does not have all of it."""

    @property
    def state(self) -> str:
        """Kafka's word for where the group stands."""
        if not self.members:
            return State.EMPTY.value
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Reconciling" if self._behind else State.STABLE.value

    @property
    def has_classic_alone(self) -> bool:
        """Whether there are members, and all of them speak the classic protocol."""
        return bool(self.members) and all(one.classic is not None for one in self.members.values())

    def restore(
        self,
        now_ms: int,
        kept: KeptGroup,
        gone: frozenset[str],
        may_see: Callable[[str], MaySee],
    ) -> None:
        """Go on with what was written down, of a new group: sessions begin anew.

        gone: ids of members that are not alive: a static one counts as away for a while, the
        others are dropped at the next tick.  may_see: what a viewer may see.
        """
        assert kept.is_sound, "nobody has what another has"
        self.epoch, self.assignment_epoch = kept.epoch, kept.assignment_epoch
        self.target.restore(
            kept.assignor, {name: has.target for name, (_, has) in kept.members.items()}
        )
        for member_id, (says, has) in kept.members.items():
            member = ConsumerMember.restored(member_id, says, has)
            self.members[member_id] = member
            if member.instance_id is not None:
                self.static[member.instance_id] = member_id
            self.owners.update(dict.fromkeys(has.assigned + has.revoking, member_id))
            self.target.come(member)
            self._stands(member)
            if member.regex:
                viewer = member.viewer
                self.target.take(self.target.compiled(member.regex), viewer, may_see(viewer))
            self.heard_of(now_ms, member)
            if member_id in gone and member.instance_id is not None:
                self._is_away(member)
            elif member_id in gone:
                member.session_ends_ms = now_ms
                self.due_at(now_ms)

    def _stands(self, member: ConsumerMember) -> None:
        """A member may have come to the target, or have gone from it."""
        if member.reconciled is Reconciled.STABLE and member.epoch == self.assignment_epoch:
            self._behind.discard(member.member_id)
        else:
            self._behind.add(member.member_id)

    def _changed(self, *member_ids: str, says: bool = False) -> None:
        """Of these something is to be written down."""
        self.unkept.update(member_ids)
        if says:
            self.unsaid.update(member_ids)

    # Heartbeats

    def heartbeat(self, now_ms: int, beat: Beat, topics: Mapping[str, Topic]) -> Told:
        """A member says where it is; what it is told.  Raises Refused.

        topics: all that there are, by name; the same object as long as nothing changed.
        """
        if beat.epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            return self._leave(now_ms, beat)
        regex = self.target.compiled(beat.regex) if beat.regex else None
        known, epoch = self.members.get(beat.member_id), self.epoch
        is_back = beat.epoch == JOIN and known is not None and known.epoch >= JOIN
        member = self._join(beat) if beat.epoch == JOIN else self._member(beat)
        if beat.classic is None:
            member.check_connection(beat.connection)
        has_missed = beat.epoch != member.epoch  # or joins
        if beat.connection != member.connection:  # the last answer may be lost with the other one
            member.connection, member.knows_assigned = beat.connection, False
        if regex is not None:
            self.target.take(regex, beat.viewer, beat.may_see)
        is_new, resubscribed = self.epoch != epoch, self._take_down(member, beat)
        others = self.target.look(topics, self.members.values(), resubscribed=resubscribed)
        if others or self.has_turned:
            self.epoch = epoch + 1  # once, also of a member that has just joined
        if self.epoch != epoch:
            why = group_news.RESUBSCRIBED if resubscribed else group_news.OTHER_TOPICS
            why = group_news.CAME if is_new else why
            why = group_news.TURNED if self.has_turned else why
            self._tell_rise(why, member.who, beat.reason)
            self.has_turned = False
        self._retarget(now_ms if member.classic is None else None)
        before = (member.epoch, member.reconciled)
        still_has = member.still_has(beat) if is_back else beat.owned
        changed = member.reconcile(
            self.target.of(member.member_id),
            self.assignment_epoch,
            beat.epoch,
            still_has,
            self.owners,
        )
        self._stands(member)
        if changed or before != (member.epoch, member.reconciled):
            self._changed(member.member_id)
            self._tell_settled()
        if changed:
            member.knows_assigned, member.revoking_ends_ms = False, None
            member.knows_to_let_go = False
        self.heard_of(now_ms, member)
        told = None
        if not member.knows_assigned or has_missed or beat.epoch == JOIN or beat.is_full:
            told = member.in_order(self.target.of(member.member_id))
        return Told(member.member_id, member.epoch, told)

    def was_told(
        self, now_ms: int, member_id: str, assignment: Collection[Partition] | None
    ) -> None:
        """The answer to a member leaves, which is when what it says is durable.

        From then on it has to let go in time: of who could not be told nothing is missed.
        """
        member = self.members[member_id]
        if assignment is None or set(assignment) != member.assigned:
            return  # an earlier answer, which waited: it has been told nothing of what is now
        member.knows_assigned = True
        if member.reconciled is Reconciled.REVOKING and member.revoking_ends_ms is None:
            member.revoking_ends_ms = now_ms + member.rebalance_timeout_ms
            self.due_at(member.revoking_ends_ms)

    def known(self, beat: Beat) -> ConsumerMember | None:
        """Who says it, as far as known: a static one that is back has another id."""
        return self.members.get(self.static.get(beat.instance_id or "", beat.member_id))

    def _join(self, beat: Beat) -> ConsumerMember:
        known = self.members.get(beat.member_id)
        if known is not None and known.instance_id == beat.instance_id:
            return known  # its answer was lost, or it begins again: its place is its own
        if known is not None:  # it has a place, and would take another one beside it
            raise invalid_request(f"{beat.member_id!r} is another instance")
        if beat.instance_id is not None and beat.instance_id in self.static:
            return self._take_over(self.members[self.static[beat.instance_id]], beat)
        self._check_place()
        member = ConsumerMember(beat.member_id, beat.instance_id)
        self.members[beat.member_id] = member
        self.target.come(member)
        if beat.instance_id is not None:
            self.static[beat.instance_id] = beat.member_id
        self._changed(beat.member_id, says=True)
        self.epoch += 1
        self._tell(group_news.JOINED, "", beat.who, beat.reason)
        return member

    def _take_over(self, old: ConsumerMember, beat: Beat) -> ConsumerMember:
        """A static member comes back under a new id: what the old one had is its own."""
        is_of_848 = old.classic is None and beat.classic is None
        if is_of_848 and old.epoch != LEAVE_FOR_A_WHILE:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance {old.instance_id!r} is held by member {old.member_id!r}",
            )
        member = ConsumerMember(
            beat.member_id,
            old.instance_id,
            names=old.names,
            regex=old.regex,
            viewer=old.viewer,
            assignor=old.assignor,
            assigned=old.assigned,
            since=dict.fromkeys(old.assigned, self.assignment_epoch),
        )
        for partition in old.revoking:
            del self.owners[partition]
        self.owners.update(dict.fromkeys(member.assigned, member.member_id))
        del self.members[old.member_id]
        self.members[member.member_id] = member
        self._behind.discard(old.member_id)
        assert old.instance_id is not None, "found by it"
        self.static[old.instance_id] = member.member_id
        self.target.given[member.member_id] = self.target.given.pop(old.member_id, ())
        self._changed(old.member_id, member.member_id, says=True)
        self._tell(group_news.REMOVED, group_news.REPLACED, old.who)
        self._tell(group_news.JOINED, "", beat.who, beat.reason)
        return member

    def _member(self, beat: Beat) -> ConsumerMember:
        if beat.instance_id is not None:
            self._check_instance(beat.member_id, beat.instance_id)
        member = self._known(beat.member_id)
        if member.classic is not None:
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {beat.member_id!r} has joined by the classic protocol",
            )
        self._check_epoch(member, beat)
        return member

    def _check_instance(self, member_id: str, instance_id: str) -> None:
        holder = self.static.get(instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no instance {instance_id!r}")
        if holder != member_id:
            raise Refused(
                ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id!r} is member {holder!r} now"
            )

    def expel(
        self,
        now_ms: int,
        member_id: str,
        instance_id: str | None,
        said: str = "",
        by: str | None = None,
    ) -> ErrorCode:
        """An administrator has a member leave, named by its id or by its instance.  said: why.
        by: its client id; None: the member itself, if it is a classic one.

        It is told at its next heartbeat that it is none, and may join again.  So does a classic
        member leave by itself.
        """
        if self.given.pop(member_id, None) is not None:
            return ErrorCode.NONE
        named = member_id
        if instance_id is not None:
            holder = self.static.get(instance_id, "")
            if member_id and holder and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = holder
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        why = group_news.EXPELLED
        if member.classic is not None:
            why = group_news.why_gone(member.who, named, by)
        self._drop(now_ms, [(member, why)], said)
        return ErrorCode.NONE

    def _check_epoch(self, member: ConsumerMember, beat: Beat) -> None:
        """Its epoch, or one that it may have been told last (member_epochs.py): then it does not
        say that it reads anything but what it has, or is to let go of."""
        if beat.epoch != member.epoch:
            has = member.assigned | member.revoking
            if not member.may_be_at(beat.epoch) or not (beat.owned or frozenset()) <= has:
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member {member.member_id!r} is at epoch {member.epoch}, not {beat.epoch}",
                )
        member.said_epoch = beat.epoch

    def _leave(self, now_ms: int, beat: Beat) -> Told:
        if beat.instance_id is not None:
            self._check_instance(beat.member_id, beat.instance_id)
        member = self._known(beat.member_id)
        if beat.epoch == LEAVE_FOR_A_WHILE:
            self._is_away(member)
            self._tell(group_news.AWAY, "", member.who)
        else:
            self._drop(now_ms, [(member, group_news.LEFT)])
        return Told(member.member_id, beat.epoch)

    def _is_away(self, member: ConsumerMember) -> None:
        """A static member has ended; its place is kept until its session ends."""
        for partition in member.revoking:
            del self.owners[partition]
        member.revoking.clear()
        member.revoking_ends_ms = member.acts_until_ms = None
        member.reconciled = Reconciled.STABLE
        member.epoch, member.previous_epoch, member.said_epoch = LEAVE_FOR_A_WHILE, LEAVE, 0
        self._stands(member)
        self._changed(member.member_id)

    # What is to be read, and by whom

    def _take_down(self, member: ConsumerMember, beat: Beat) -> bool:
        """What a member says of itself; whether it subscribes to something else."""
        before, subscription = member.said, member.subscription
        if resubscribed := member.says(beat):
            self.target.go(subscription)
            self.target.come(member)
        if member.said != before:
            self._changed(member.member_id, says=True)
        return resubscribed

    def look(self, topics: Mapping[str, Topic]) -> None:
        """Whether there are other topics than before, of those that are subscribed to."""
        if self.target.look(topics, self.members.values(), resubscribed=False):
            self.epoch += 1
            self._tell_rise(group_news.OTHER_TOPICS)

    def _retarget(self, now_ms: int | None) -> None:
        """now_ms: None where it cannot wait."""
        if self.epoch == self.assignment_epoch or not self.target.is_ready:
            return
        if now_ms is not None:
            count = len(self.members)
            is_large = count * (count + self.target.size) > self.large_min
            if not self._may_retarget(now_ms, is_large=is_large):
                return
        self._changed(*self.target.make(self.members))
        self.assignment_epoch = self.epoch
        self._behind = set(self.members)

    # Offsets

    def check_commit(self, member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
        """Whether this member may commit; epoch -1 without members: a tool.

        Who is at another epoch may commit some partitions all the same: `may_commit_late`.
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        if instance_id is not None and self.static.get(instance_id, member_id) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return self._check_at(member_id, epoch)

    def _check_at(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def may_commit_late(self, member_id: str, epoch: int, partition: Partition) -> bool:
        """Whether a member reads this now as at an earlier epoch, which has risen meanwhile.

        A member learns of a new epoch from a heartbeat, with a commit under way.  Where it has let
        go of nothing, nobody else read there: its commit is what it was, and is taken.  A classic
        member is at its generation or is to join again.
        """
        member = self.members.get(member_id)
        return member is not None and member.classic is None and member.has_read(partition, epoch)

    def knows_epochs(self, member_id: str) -> bool:
        """Whether this is a member of KIP-848's protocol, which commits as such."""
        member = self.members.get(member_id)
        return member is not None and member.classic is None

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this member may ask where the group stands; without an id anybody may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return self._check_at(member_id or "", epoch)

    # Time

    def heard_of(self, now_ms: int, member: ConsumerMember) -> None:
        """A member is alive."""
        if member.reconciled is not Reconciled.REVOKING:
            member.revoking_ends_ms = None
        if now_ms < member.heard_ms:
            return  # what it had said before, by a connection that it has given up since
        member.heard_ms = now_ms
        session_ms = self.session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        member.session_ends_ms = now_ms + session_ms
        self.due_at(member.session_ends_ms)

    def _drop(
        self, now_ms: int, leaving: Sequence[tuple[ConsumerMember, str]], said: str = ""
    ) -> None:
        """These have no place any more, each for its reason."""
        for member, why in leaving:
            for partition in (*member.assigned, *member.revoking):
                del self.owners[partition]
            self.target.go(member.subscription)
            self._behind.discard(member.member_id)
            del self.members[member.member_id]
            if member.instance_id is not None:
                del self.static[member.instance_id]
            self._changed(member.member_id, says=True)
            self.epoch += 1
            self._tell(group_news.REMOVED, why, member.who, said)
        self.target.resubscribe()
        member, why = leaving[-1]
        if not self._have_left(now_ms, why, member.who, said):
            self.target, self.assignment_epoch = Target(), self.epoch

    def tick(self, now_ms: int) -> None:
        """Do what is due: drop who was not heard of, and who does not do what it is to do."""
        for member_id in [one for one, ends_ms in self.given.items() if ends_ms <= now_ms]:
            del self.given[member_id]
        if late := [one for one in self.members.values() if one.ends_ms <= now_ms]:
            self._drop(now_ms, [(one, one.why_late(now_ms)) for one in late])
        self.due_ms = min(
            min((one.ends_ms for one in self.members.values()), default=NEVER_MS),
            min(self.given.values(), default=NEVER_MS),
        )

    def give(self, member_id: str, until_ms: int) -> None:
        """A classic member may join with this id until then."""
        self.given[member_id] = until_ms
        self.due_at(until_ms)

    def close(self, code: ErrorCode) -> None:
        """The group is deleted, or its broker ends.  Nobody waits for an answer here."""
        self.members.clear()
        self.unkept.clear()
        self.unsaid.clear()
