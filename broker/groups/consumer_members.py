"""A member of a KIP-848 group, what it says and what it is told, and how it is reconciled.

    STABLE       has all that it should have, at the epoch of the target
    REVOKING     was told to let go of some partitions and has not said yet that it did;
                 it stays at its epoch, so nobody else can have them
    WAITING      has let go, is at the target's epoch, and waits for partitions that others
                 have not let go of

A classic member of such a group takes a step with each JoinGroup (classic_members.py).

    target         what it should have
    assigned       what it was told that it has
    revoking       what it was told to let go of, and may still read

Invariant: `assigned` and `revoking` of all members together hold each partition at most once
(the group's `owners`).  That is what makes one owner per partition at every moment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from segbroker.segments.metadata.consumer_groups import Classic, Has, Says

from . import group_news
from .group_news import Who
from .member_epochs import JOIN, MemberEpochs
from .server_assignors import Partition, Subscriber, TopicId


class Reconciled(Enum):
    """How far a member is with its target."""

    STABLE = "stable"
    REVOKING = "revoking"
    WAITING = "waiting"


MaySee: TypeAlias = Callable[[str], bool]


class Sight(NamedTuple):
    """An expression in somebody's eyes."""

    pattern: str
    viewer: str


Subscription: TypeAlias = tuple[frozenset[str], Sight | None]
"""Names, and an expression: what a member subscribes to, as it says it."""


def every_topic(name: str) -> bool:
    """There are no access rules."""
    return True


class Beat(NamedTuple):
    """What a member says.  None: as before.  Times are in ms."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    names: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Partition] | None = None
    may_see: MaySee = every_topic
    """Which topics an expression of it can match."""
    viewer: str = ""
    """Whose eyes these are: who sees the same has the same."""
    classic: Classic | None = None
    """What a member of the classic protocol says, whose JoinGroup this is."""
    generation: int | None = None
    """Of which that says that it has what it has; None: it cannot say so."""
    reason: str = ""
    """Why that joins, in its own words."""
    connection: int = 0
    """The number of that by which it says so."""

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after a lost answer: then it is told everything."""
        says_topics = self.names is not None or self.regex is not None
        return self.rebalance_timeout_ms >= 0 and says_topics and self.owned is not None


class Told(NamedTuple):
    """What a member is told.  assignment: None when it has not changed."""

    member_id: str
    epoch: int
    assignment: tuple[Partition, ...] | None = None


@dataclass(slots=True, eq=False)
class ConsumerMember(MemberEpochs):
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    names: frozenset[str] = frozenset()
    regex: str = ""
    viewer: str = ""
    assignor: str | None = None
    classic: Classic | None = None
    reconciled: Reconciled = Reconciled.STABLE
    assigned: set[Partition] = field(default_factory=set)
    revoking: set[Partition] = field(default_factory=set)
    since: dict[Partition, int] = field(default_factory=dict)
    """The epoch at which it was given each that it has, or at which it took it over.

    Who was restored out of what an older version wrote down: its epoch then."""
    knows_assigned: bool = False
    """Whether it was told of `assigned` as it is; else its next heartbeat is answered by that."""
    connection: int = 0
    """By which it was heard of last: answers may be lost with that."""
    session_ends_ms: int = 0
    heard_ms: int = 0
    revoking_ends_ms: int | None = None
    """Until when it has to let go; None: it has, or was not told to by this broker."""
    acts_until_ms: int | None = None
    """Until when a classic member has to join again, as it was told, or to sync."""
    has_to_join: bool = False
    """Which of both."""
    has_synced: bool = False
    """Whether a classic member has asked for its partitions since it joined."""
    knows_to_let_go: bool = False
    """Whether a classic member that revokes was heard of after it was told so."""
    _subscriber: Subscriber | None = None
    _in_order: tuple[Partition, ...] | None = None
    """`assigned`, sorted: it is told and written down; None: nobody has asked since it changed."""

    @classmethod
    def restored(cls, member_id: str, says: Says, has: Has) -> "ConsumerMember":
        """As it was written down."""
        return cls(
            member_id,
            **says._asdict(),
            epoch=has.epoch,
            previous_epoch=has.previous_epoch,
            reconciled=Reconciled(has.state),
            assigned=set(has.assigned),
            revoking=set(has.revoking),
            since=dict(has.since_each),
        )

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    @property
    def ends_ms(self) -> int:
        """When it is dropped, if nothing is heard of it."""
        ends_ms = self.session_ends_ms
        if self.revoking_ends_ms is not None:
            ends_ms = min(ends_ms, self.revoking_ends_ms)
        return ends_ms if self.acts_until_ms is None else min(ends_ms, self.acts_until_ms)

    def why_late(self, now_ms: int) -> str:
        """Which of them it was, as it is told of."""
        if self.session_ends_ms <= now_ms:
            return group_news.SESSION_ENDED
        if self.revoking_ends_ms is not None and self.revoking_ends_ms <= now_ms:
            return group_news.NOT_LET_GO
        return group_news.NOT_JOINED if self.has_to_join else group_news.NOT_SYNCED

    @property
    def said(self) -> Says:
        """What it says of itself, as it is written down."""
        return Says(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.names,
            self.regex,
            self.viewer,
            self.assignor,
            self.classic,
        )

    def in_order(self, target: tuple[Partition, ...]) -> tuple[Partition, ...]:
        """What is assigned to it, sorted: mostly it is the target, which nearly is, and to sort a
        hundred thousand in the order of a set takes the loop ten times as long."""
        if self._in_order is None:
            mine = list(filter(self.assigned.__contains__, target))
            whole = mine if len(mine) == len(self.assigned) else self.assigned
            self._in_order = tuple(sorted(whole))
        return self._in_order

    def has(self, target: tuple[Partition, ...]) -> Has:
        """Where it stands, as it is written down."""
        assigned, revoking = self.in_order(target), tuple(sorted(self.revoking))
        since: tuple[int, ...] = ()
        if not {self.epoch}.issuperset(self.since.values()):
            since = tuple(map(self.since.__getitem__, assigned + revoking))
        return Has(
            self.epoch,
            self.previous_epoch,
            self.reconciled.value,
            assigned,
            revoking,
            tuple(sorted(target)),
            since if since.count(self.epoch) < len(since) else (),
        )

    def says(self, beat: Beat) -> bool:
        """Take over what a heartbeat says; whether its subscription changed.

        Who joins says everything: what it leaves out is not as it was, but none.
        """
        if beat.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = beat.rebalance_timeout_ms
        self.client_id, self.client_host = beat.client_id, beat.client_host
        before = (self.names, self.sight, self.assignor)
        if beat.epoch == JOIN:
            beat = beat._replace(names=beat.names or frozenset(), regex=beat.regex or "")
            self.rack_id = self.assignor = None
        if beat.rack_id is not None:
            self.rack_id = beat.rack_id
        if beat.names is not None and beat.names != self.names:
            self.names = beat.names  # else the one that others of the group have, too
        if beat.regex is not None:
            self.regex, self.viewer = beat.regex, beat.viewer
        if beat.assignor is not None:
            self.assignor = beat.assignor
        self.classic, self.acts_until_ms = beat.classic, None
        return before != (self.names, self.sight, self.assignor)

    def in_full(self, beat: Beat) -> Beat:
        """A heartbeat, and what it leaves as it was, as far as that are texts."""
        if beat.epoch == JOIN:
            return beat
        return beat._replace(
            instance_id=self.instance_id,
            rack_id=self.rack_id if beat.rack_id is None else beat.rack_id,
            regex=self.regex if beat.regex is None else beat.regex,
        )

    @property
    def sight(self) -> Sight | None:
        """Its expression as it sees it; None: it has none."""
        return Sight(self.regex, self.viewer) if self.regex else None

    @property
    def subscription(self) -> Subscription:
        """What it subscribes to."""
        return self.names, self.sight

    def subscriber(self, topics: frozenset[TopicId]) -> Subscriber:
        """As an assignor sees it; the same object as long as nothing changed."""
        known = self._subscriber
        if known is None or (known.topics is not topics and known.topics != topics):
            order = self.instance_id or self.member_id
            known = self._subscriber = Subscriber(self.member_id, order, topics)
        return known

    def still_has(self, beat: Beat) -> frozenset[Partition] | None:
        """What a member that joins again still has, as far as that can be believed; None: not.

        Its request may be one that came late.  A member of KIP-848 says that it reads nothing.  A
        classic one says what it has, and is believed if it says of which generation and is there.
        If not, it has at least let go of what it knows that it is to let go of.
        """
        if beat.classic is None or beat.owned is None:
            return None
        if beat.generation in (None, self.epoch):
            return beat.owned
        return beat.owned | self.assigned if self.knows_to_let_go else None

    def has_read(self, partition: Partition, epoch: int) -> bool:
        """Whether it read this at an epoch that was its own, and has not let go of it since."""
        has = partition in self.assigned or partition in self.revoking
        return has and self.since[partition] <= epoch <= self.epoch

    def reconcile(
        self,
        target: tuple[Partition, ...],
        target_epoch: int,
        said: int,
        owned: frozenset[Partition] | None,
        owners: dict[Partition, str],
    ) -> bool:
        """One step towards the target; whether `assigned` changed.

        said: the epoch of its heartbeat.  owned: what it says that it reads; None when it does not
        say.  owners: of all partitions.
        """
        if self.reconciled is Reconciled.STABLE and self.epoch == target_epoch:
            return False
        if self.reconciled is Reconciled.REVOKING and (owned is None or owned & self.revoking):
            return False  # it still has what it is to let go of
        before, self._in_order = frozenset(self.assigned), None
        for partition in self.revoking:
            del owners[partition]
        self.revoking.clear()
        wanted = frozenset(target)
        surplus = self.assigned - wanted
        if said > 0:  # what it was given at a later epoch than it says, it has not heard of
            unheard = {one for one in surplus if self.since[one] > said}
            self.assigned -= unheard
            surplus -= unheard
            for partition in unheard:
                del owners[partition]
        if surplus and (owned is None or owned & surplus):
            self.assigned -= surplus
            self.revoking |= surplus
            self.reconciled = Reconciled.REVOKING
            return True
        for partition in surplus:
            del owners[partition]
        # By operations of whole sets: they go by hashes that are there, and a member may have a
        # hundred thousand.
        free, kept = wanted.difference(owners), self.assigned & wanted
        self.assigned = kept | free
        self.since = {one: self.since[one] for one in kept} | dict.fromkeys(free, target_epoch)
        owners.update(dict.fromkeys(free, self.member_id))
        is_complete = len(self.assigned) == len(wanted)
        self.reconciled = Reconciled.STABLE if is_complete else Reconciled.WAITING
        self.move_to(target_epoch)
        return self.assigned != before
