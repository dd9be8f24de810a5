"""What a KIP-848 group knows by changes alone is what a look at everything would find."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest

from segbroker.broker.groups import topic_expressions
from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat, MaySee
from segbroker.broker.groups.member_epochs import JOIN, LEAVE
from segbroker.broker.groups.server_assignors import ASSIGNORS, DEFAULT
from segbroker.broker.groups.topic_regex import TopicRegex
from segbroker.segments.metadata.consumer_groups import KeptGroup

from .group_topics import Topic

PATTERNS = ("a.*", ".*1", "b[0-3]", ".*", "c?a.*")
NAMES = [letter + str(n) for letter in "abc" for n in range(5)]
VIEWERS = ("one", "two", "three")
UNKNOWN = ""
"""Who said it when there were no rules yet: sees nothing."""


class Rules:
    """Which topics each viewer may not see; another object when they change."""

    def __init__(self) -> None:
        self.hidden: Mapping[str, frozenset[str]] = dict.fromkeys(VIEWERS, frozenset[str]())

    def eyes(self, viewer: str) -> MaySee:
        return no_topic if viewer == UNKNOWN else Eyes(self, viewer)

    def hide(self, viewer: str, names: frozenset[str]) -> None:
        self.hidden = {**self.hidden, viewer: names}


def no_topic(name: str) -> bool:
    return False


class Eyes:
    """Those of one viewer."""

    def __init__(self, rules: Rules, viewer: str) -> None:
        self._all, self._viewer = rules, viewer

    @property
    def rules(self) -> object:
        return self._all.hidden

    def __call__(self, name: str) -> bool:
        return name not in self._all.hidden[self._viewer]


@dataclass
class Life:
    """A group, and what its members and the broker around it do."""

    random: Random
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g", 45_000, 100))
    rules: Rules = field(default_factory=Rules)
    topics: dict[str, Topic] = field(default_factory=dict)
    members: dict[str, tuple[frozenset[str], str, str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def topic_made(self) -> None:
        name = self.random.choice(NAMES)
        self.made += 1
        topic = Topic(UUID(int=self.made), self.random.randint(1, 3))
        self.topics = {**self.topics, name: topic}

    def topic_deleted(self) -> None:
        gone = self.random.choice(NAMES)
        self.topics = {name: one for name, one in self.topics.items() if name != gone}

    def topic_grown(self) -> None:
        name = self.random.choice(NAMES)
        if (topic := self.topics.get(name)) is not None:
            self.topics = {**self.topics, name: Topic(topic.topic_id, topic.partitions + 1)}

    def rules_changed(self) -> None:
        hidden = self.random.sample(NAMES, self.random.randint(0, 5))
        self.rules.hide(self.random.choice(VIEWERS), frozenset(hidden))

    def joined(self) -> None:
        self.made += 1
        self._says(f"m{self.made}")

    def resubscribed(self) -> None:
        if self.members:
            self._says(self.random.choice(list(self.members)))

    def _says(self, member_id: str) -> None:
        names = frozenset(self.random.sample(NAMES, self.random.choice([0, 0, 2])))
        says = names, self.random.choice(PATTERNS), self.random.choice((*VIEWERS, UNKNOWN))
        self.members[member_id] = says
        self.beat(member_id, says)

    def left(self) -> None:
        if self.members:
            gone = self.random.choice(list(self.members))
            self.group.heartbeat(0, Beat(gone, LEAVE), self.topics)
            del self.members[gone], self.epochs[gone]

    def heard(self) -> None:
        if self.members:
            self.beat(self.random.choice(list(self.members)))

    def committed(self) -> None:
        """Whoever may read a topic was asked about one by a commit."""
        is_read = self.group.target.reader()
        name = self.random.choice(NAMES)
        is_read(name, self.topics[name].topic_id if name in self.topics else UUID(int=0))

    def restarted(self) -> None:
        """By another broker, with what was written down; the rules may be others by then."""
        before = self.group
        assert not before.members or before.assignment_epoch <= before.epoch
        kept = KeptGroup(
            before.epoch,
            before.assignment_epoch,
            before.target.assignor,
            {
                name: (member.said, member.has(before.target.of(name)))
                for name, member in before.members.items()
            },
        )
        self.group = ConsumerGroup("g", 45_000, 100)
        self.group.restore(0, kept, frozenset(), self.rules.eyes)

    def beat(self, member_id: str, says: tuple[frozenset[str], str, str] | None = None) -> None:
        member = self.group.members.get(member_id)
        owned = frozenset[tuple[bytes, int]]() if member is None else frozenset(member.assigned)
        epoch = self.epochs.get(member_id, JOIN)
        if epoch == JOIN:  # so it is told while no target can be made: who joins says everything
            says = says or self.members[member_id]
        beat = Beat(member_id, epoch, owned=owned)
        if says is not None:
            names, regex, viewer = says
            eyes = self.rules.eyes(viewer)
            assignor = self.random.choice([None, *ASSIGNORS])
            beat = beat._replace(
                names=names, regex=regex, viewer=viewer, may_see=eyes, assignor=assignor
            )
        told = self.group.heartbeat(0, beat, self.topics)
        self.group.was_told(0, told.member_id, told.assignment)
        self.epochs[member_id] = told.epoch

    def settle(self) -> None:
        for _ in range(100):
            for member_id in self.members:
                self.beat(member_id)
            if self.group.state == "Stable" and self.group.target.knows_topics:
                return
        raise AssertionError("it does not settle")

    def subscribed(self, member_id: str) -> frozenset[str]:
        """What a look at everything finds."""
        names, regex, viewer = self.members[member_id]
        matches = TopicRegex(regex).matches
        sees = self.rules.eyes(viewer)
        return frozenset(one for one in self.topics if one in names or (matches(one) and sees(one)))

    def check(self) -> None:
        if not self.members:
            return
        self.settle()
        names = {topic.topic_id.bytes: name for name, topic in self.topics.items()}
        wanted = set[str]()
        has: list[tuple[bytes, int]] = []
        for member_id in self.members:
            subscribed = self.subscribed(member_id)
            wanted |= subscribed
            mine = self.group.members[member_id].assigned
            assert {names.get(topic_id, "gone") for topic_id, _ in mine} <= subscribed, member_id
            has += mine
        assert sorted(has) == sorted(
            (self.topics[name].topic_id.bytes, index)
            for name in wanted
            for index in range(self.topics[name].partitions)
        )
        is_uniform = self.group.target.assignor == DEFAULT
        if is_uniform and len({self.subscribed(one) for one in self.members}) == 1:
            sizes = [len(self.group.members[one].assigned) for one in self.members]
            assert max(sizes) - min(sizes) <= 1, "all subscribe to the same"


def lives(random: Random) -> Iterator[Life]:
    """One, after each few of its steps."""
    life = Life(random)
    steps = (
        *(life.topic_made, life.topic_made, life.topic_deleted, life.topic_grown),
        *(life.rules_changed, life.joined, life.resubscribed, life.left, life.heard),
        *(life.committed, life.restarted),
    )
    for _ in range(60):
        for _ in range(random.randint(1, 4)):
            random.choice(steps)()
        yield life


@pytest.mark.parametrize("seed", range(100))
def test_what_members_have_is_what_a_look_at_everything_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(topic_expressions, "LOOK_COST_MAX", random.choice([2, 20, 300_000]))
    monkeypatch.setattr(topic_expressions, "ASKS_MAX", random.choice([2, 7, 10_000]))
    for life in lives(random):
        life.check()


@pytest.mark.parametrize("seed", range(20))
def test_who_is_at_the_target_is_so_after_a_restart(seed: int) -> None:
    for life in lives(Random(seed)):
        life.check()
        epoch = life.group.epoch
        life.restarted()
        life.check()
        assert life.group.epoch == epoch or not life.members


def test_a_topic_comes_back_to_who_may_see_it_again_and_goes_from_who_may_not() -> None:
    life = Life(Random(0))
    life.topics = {name: Topic(UUID(int=n + 1), 2) for n, name in enumerate(("a1", "a2"))}
    for name, viewer in (("m1", "one"), ("m2", "two"), ("m3", UNKNOWN)):
        life.members[name] = frozenset[str](), "a.*", viewer
        life.beat(name, life.members[name])
    life.settle()
    for hidden in (frozenset({"a1", "a2"}), frozenset[str]()):
        life.rules.hide("one", hidden)
        life.check()
        counts = [len(life.group.members[name].assigned) for name in ("m1", "m2", "m3")]
        assert counts == ([0, 4, 0] if hidden else [2, 2, 0])


def test_a_topic_is_found_by_an_expression_that_had_to_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_expressions, "LOOK_COST_MAX", 1)  # one name, and it is over
    life = Life(Random(0))
    life.topics = {"b1": Topic(UUID(int=1), 1)}
    for name, regex in (("m1", "a.*"), ("m2", "b.*")):
        life.members[name] = frozenset[str](), regex, "one"
        life.beat(name, life.members[name])
    life.check()
    life.topics = {"b2": Topic(UUID(int=2), 1)}
    life.check()
    assert len(life.group.members["m2"].assigned) == 1
