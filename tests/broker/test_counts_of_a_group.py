"""What a KIP-848 group counts as it changes is what a look at all of its members would find.

Steps at random: members of both protocols that come, subscribe otherwise, take their steps, lose
answers, leave, stay away, are taken over, expelled, or not heard of; topics and rights that change;
restarts.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import pytest

from segbroker.broker.groups.classic_members import join
from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat, ConsumerMember, Reconciled
from segbroker.broker.groups.group_members import Joining
from segbroker.broker.groups.member_epochs import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from segbroker.broker.refused import Refused
from segbroker.protocol.consumer_protocol import Subscription, encode_subscription
from segbroker.segments.metadata.consumer_groups import KeptGroup

from .group_topics import topics_of
from .test_consumer_group import SESSION_MS

STEPS = 120
REBALANCE_MS = 5_000
NAMES = ("", "a", "ab", "b", "bx")
PATTERNS = ("", ".*", "a|c", "b|c")


class Rights:
    """Of two viewers: which topics each may see."""

    def __init__(self) -> None:
        self.rules = {"v": "abc", "w": "ab"}


class Eyes:
    """Those of one of them."""

    def __init__(self, rights: Rights, viewer: str) -> None:
        self._rights, self._viewer = rights, viewer

    @property
    def rules(self) -> object:
        return self._rights.rules

    def __call__(self, name: str) -> bool:
        return name in self._rights.rules[self._viewer]


class Life:
    """A group, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rights = Rights()
        self.topics = topics_of(a=3, b=2)
        self.now_ms = 0
        self.numbers = 0
        self.group = self.made()

    def made(self) -> ConsumerGroup:
        large_min = self.random.choice((0, 1_000_000))
        return ConsumerGroup("g", SESSION_MS, 12, large_min=large_min)

    def one_of_them(self) -> ConsumerMember | None:
        members = self.group.members
        return members[self.random.choice(sorted(members))] if members else None

    def newcomer(self) -> tuple[str, str | None]:
        """An id, and an instance: new ones, or those of a member."""
        known = self.one_of_them()
        if known is not None and self.random.random() < 0.3:
            return known.member_id, known.instance_id
        self.numbers += 1
        return f"m{self.numbers}", self.random.choice((None, "i1", "i2"))

    def said(self, beat: Beat) -> None:
        """A heartbeat with another subscription, perhaps; its answer may be lost."""
        if beat.epoch == JOIN or self.random.random() < 0.3:
            beat = beat._replace(
                names=frozenset(self.random.choice(NAMES)),
                regex=self.random.choice((None, *PATTERNS)),
                assignor=self.random.choice((None, "range", "uniform")),
            )
        viewer = self.random.choice("vw")
        beat = beat._replace(
            rebalance_timeout_ms=REBALANCE_MS, viewer=viewer, may_see=Eyes(self.rights, viewer)
        )
        told = self.group.heartbeat(self.now_ms, beat, self.topics)
        if told.member_id in self.group.members and self.random.random() < 0.8:
            self.group.was_told(self.now_ms, told.member_id, told.assignment)

    # What may happen.

    def come(self) -> None:
        member_id, instance_id = self.newcomer()
        self.said(Beat(member_id, JOIN, instance_id, owned=frozenset()))

    def come_as_a_classic_member(self) -> None:
        member_id, instance_id = self.newcomer()
        self.group.given.setdefault(member_id, self.now_ms + SESSION_MS)
        subscribed = encode_subscription(Subscription(tuple(self.random.choice(NAMES))))
        joining = Joining(
            member_id,
            instance_id,
            client_id="",
            client_host="",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols={"range": subscribed},
            wants_id_first=False,
            knows_skip=True,
        )
        join(self.group, self.now_ms, joining, str, self.topics)

    def beat(self) -> None:
        if (one := self.one_of_them()) is not None:
            owned = self.random.choice((None, frozenset(one.assigned), frozenset()))
            epoch = self.random.choice((one.epoch, one.epoch, one.previous_epoch))
            self.said(Beat(one.member_id, epoch, one.instance_id, owned=owned))

    def leave(self) -> None:
        if (one := self.one_of_them()) is not None:
            epoch = self.random.choice((LEAVE, LEAVE_FOR_A_WHILE)) if one.instance_id else LEAVE
            self.said(Beat(one.member_id, epoch, one.instance_id))

    def expel(self) -> None:
        if (one := self.one_of_them()) is not None:
            self.group.expel(self.now_ms, one.member_id, None)

    def wait(self) -> None:
        self.now_ms += self.random.choice((1, 1_000, REBALANCE_MS, SESSION_MS // 2, SESSION_MS))
        self.group.tick(self.now_ms)

    def other_topics(self) -> None:
        self.topics = topics_of(**{name: self.random.randrange(1, 4) for name in self.some()})
        if self.random.random() < 0.5:
            self.group.look(self.topics)

    def other_rights(self) -> None:
        self.rights.rules = {viewer: self.some() for viewer in "vw"}

    def some(self) -> str:
        return "".join(name for name in "abc" if self.random.random() < 0.7)

    def restart(self) -> None:
        before = self.group
        if not before.members:
            return
        members = {
            name: (one.said, one.has(before.target.of(name)))
            for name, one in before.members.items()
        }
        assignor = before.target.assignor
        kept = KeptGroup(before.epoch, before.assignment_epoch, assignor, members)
        gone = frozenset(name for name in members if self.random.random() < 0.2)
        self.group = self.made()
        self.group.restore(self.now_ms, kept, gone, lambda viewer: Eyes(self.rights, viewer))

    def step(self) -> None:
        things: Mapping[Callable[[], None], int] = {
            self.come: 3,
            self.come_as_a_classic_member: 2,
            self.beat: 4,
            self.leave: 1,
            self.expel: 1,
            self.wait: 1,
            self.other_topics: 1,
            self.other_rights: 1,
            self.restart: 1,
        }
        (thing,) = self.random.choices(list(things), list(things.values()))
        self.now_ms += self.random.choice((0, 1, 1_000))
        try:
            thing()
        except Refused:
            return


@pytest.mark.parametrize("seed", range(60))
def test_what_is_counted_is_what_a_look_at_all_would_find(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
        group, target = life.group, life.group.target
        members = group.members.values()
        assert group._behind == {
            one.member_id
            for one in members
            if one.reconciled is not Reconciled.STABLE or one.epoch != group.assignment_epoch
        }
        subscribed = Counter(one.subscription for one in members)
        assert {said: same.count for said, same in target._said.items()} == subscribed
        assert all(one.names is target._said[one.subscription].names for one in members)
        assert all(one.in_order(()) == tuple(sorted(one.assigned)) for one in members)
        if members and target.is_ready:
            kinds = {target._kind(one.subscription) for one in members}
            nothing = {(frozenset[str](), frozenset[str]())}
            assert target._kinds - nothing == kinds - nothing
