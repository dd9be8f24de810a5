"""The rules over what the members of a group were handed, were told and committed.

| rule | broken when a member |
|---|---|
| order | is handed a record at or below one that it had in the same assignment, and nobody sought |
| nothing skipped | is handed one past another, or commits past one, that nobody has processed |
| what is in hand | ... also where it has it in hand, and neither came back nor committed |
| no way back | has a commit taken below the last one, and neither sought nor said so |
| its own | is handed a record of a partition that it was not given, or was told to have lost |
| ... | has a commit of such a one sent that it asks for |
| position | is told another one than where it goes on |
| paused | is handed a record of a partition that it has paused |
| pairs | is told that it has what it has, or that it has not what it has not |
| committed | of committed records gets one that was aborted |
| told | goes on in another topic of the name, and should have been told |
| once | of a seed in which nothing goes wrong: processes what was processed |
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from segbroker.client import Record, TopicPartition

from ..simulation.world import World
from .written import Place, State, Topic, Written

Key = tuple[str, int, int]
"""The name of a topic, which of those that had it, and the partition."""
END: Final = 1 << 62


class Group:
    """What is known of a group."""

    def __init__(self, world: World, written: Written, *, is_calm: bool) -> None:
        self.world = world
        self.written = written
        self.is_calm = is_calm
        self.stands: dict[Key, int] = {}
        self.processed: dict[Key, set[int]] = defaultdict(set)
        self._passed: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.views: dict[str, View] = {}
        self.beyond: set[Key] = set()
        """Where somebody went behind the end: the next one is told, or not, that it is lost."""

    def passes(self, key: Key, low: int, high: int) -> None:
        """Somebody means to pass over these."""
        self._passed[key].append((low, high))

    def missing(
        self, topic: Topic, partition: int, high: int, *, committed: bool, low: int = 0
    ) -> int | None:
        """The first offset in [low, high) that is due and that nobody has processed."""
        key = topic.name, topic.ordinal, partition
        processed, passed = self.processed[key], self._passed[key]
        for offset in topic.due(partition, low, high, committed=committed):
            if offset in processed or any(low <= offset < end for low, end in passed):
                continue
            return offset
        return None

    # Commits, as they pass on the wire.

    def commits(self, name: str, topic: Topic, partition: int, offset: int) -> None:
        """One leaves a member."""
        view = self.views.get(name)
        if view is None:
            return
        key = topic.name, topic.ordinal, partition
        self.world.trace("commits", name, key, offset)
        if (key, offset) == view.foreign:
            self.world.violation(f"{name} commits {offset} of {key}, which is not its own")
        view.begins_at(topic, key, offset)
        view.may_reset(topic, key, self.stands.get(key, 0), offset)
        missing = self.missing(topic, partition, offset, committed=view.committed)
        if missing is not None:
            self.world.violation(
                f"{name} commits {offset} of {key}: nobody has processed {missing}"
            )
        if key in self.stands and offset >= view.lowest.get(key, END):
            self.stands[key] = min(offset, self.stands[key])

    def accepted(self, name: str, topic: Topic, partition: int, offset: int) -> None:
        """The broker has stored it."""
        view = self.views.get(name)
        if view is None:
            return
        key = topic.name, topic.ordinal, partition
        self.world.trace("committed", name, key, offset)
        stands = self.stands.get(key, 0)
        may_be = key in self.beyond or offset >= view.lowest.get(key, END)
        if offset < stands and not may_be:
            self.world.violation(f"{name} moves {key} back to {offset} from {stands}")
        self.stands[key] = offset


@dataclass
class Stretch:
    """A partition as a member has it, from when it was told so."""

    topic: Topic | None = None
    next: int | None = None
    """Where it goes on; None: where the group stands."""
    is_loose: bool = False
    """It was sent somewhere, and where it came to is not known."""
    sought: int = 0
    """While it is loose: so far it may pass over records."""
    is_told: bool = False
    """That the topic is another."""
    is_paused: bool = False


@dataclass
class View:
    """One life of a member, as it sees things."""

    name: str
    group: Group
    options: dict[str, Any]
    has: dict[Place, Stretch] = field(default_factory=dict)
    in_hand: list[tuple[Key, int]] = field(default_factory=list)
    lowest: dict[Key, int] = field(default_factory=dict)
    """The lowest offset that it means to be at."""
    last: dict[Key, int] = field(default_factory=dict)
    """Of all that it was ever handed."""
    foreign: tuple[Key, int] | None = None
    """What it asks to be committed, and has not."""
    _left: dict[Place, Stretch] = field(default_factory=dict)
    """What it had last: of that its last commit comes when it was told that it goes."""

    def __post_init__(self) -> None:
        self.group.views[self.name] = self
        self._world = self.group.world
        self._written = self.group.written

    @property
    def committed(self) -> bool:
        """Whether it wants only what is committed."""
        return bool(self.options["isolation"] == "read_committed")

    def _complain(self, text: str) -> None:
        self._world.violation(f"{self.name} {text}")

    # What it is told.

    def assigned(self, partitions: Iterable[Place]) -> None:
        """It has these."""
        for tp in partitions:
            self._world.trace("assigned", self.name, *tp)
            if tp in self.has:
                self._complain(f"is told that it has {tp}, which it has")
            self.has[tp[0], tp[1]] = Stretch()

    def loses(self, partitions: Iterable[Place], how: str) -> None:
        """It does not have these any more."""
        for tp in partitions:
            self._world.trace(how, self.name, *tp)
            if tp not in self.has:
                self._complain(f"is told that {tp} is {how}, which it has not")
            if (stretch := self.has.pop((tp[0], tp[1]), None)) is not None:
                self._left[tp[0], tp[1]] = stretch

    def told_gap(self, tp: Place, reason: str) -> None:
        """That records are not there."""
        self._world.trace("gap", self.name, *tp, reason)
        stretch = self.has.get(tp)
        if stretch is None:
            self._complain(f"is told of a gap in {tp}, which it has not")
        elif reason == "recreated":
            stretch.is_told = True
        elif (key := self.key_of(tp)) is not None:
            self._goes_down(key, 0)  # somebody was behind the end

    def key_of(self, tp: Place) -> Key | None:
        """Of the topic that it reads there."""
        stretch = self.has.get(tp)
        topic = stretch.topic if stretch is not None else None
        topic = topic or self._written.present(tp[0])
        return None if topic is None else (topic.name, topic.ordinal, tp[1])

    # What it is handed.

    def handed(self, record: Record) -> None:
        """A record."""
        tp = record.topic, record.partition
        self._world.trace("handed", self.name, *tp, record.offset, record.value)
        value = record.value or b""
        topic = self._written.senders.get(value)
        stretch = self.has.get(tp)
        if topic is None or topic.name != record.topic:
            self._complain(f"is handed {value!r}, which nobody has sent to {tp}")
            return
        what = f"{tp} {record.offset} ({value!r})"
        if stretch is None:
            self._complain(f"is handed {what}, which is not its own")
            return
        if stretch.is_paused:
            self._complain(f"is handed {what}, which is paused")
        self._look_at(record, topic, what)
        key = topic.name, topic.ordinal, record.partition
        self._goes_on(stretch, topic, key, record.offset, what)
        stretch.topic, stretch.next = topic, record.offset + 1
        stretch.is_loose = stretch.is_told = False
        self.in_hand.append((key, record.offset))
        self.last[key] = record.offset

    def _look_at(self, record: Record, topic: Topic, what: str) -> None:
        value = record.value or b""
        known = topic.rows.get(record.partition, {}).get(record.offset)
        if known is not None and known[0] != value:
            self._complain(f"is handed {what}, where {known[0]!r} stands")
        if self.committed and self._written.states.get(value) is State.ABORTED:
            self._complain(f"is handed {what}, which is aborted")

    def _goes_on(self, stretch: Stretch, topic: Topic, key: Key, offset: int, what: str) -> None:
        partition = key[2]
        if stretch.is_loose:
            self._lands(stretch, topic, key, offset)
            self._goes_down(key, offset)
            missing = self.group.missing(
                topic, partition, offset, committed=self.committed, low=stretch.sought
            )
            if missing is not None:
                self._complain(f"is handed {what}, behind {stretch.sought}, without {missing}")
            return
        was = stretch.topic
        if was is not None and was is not topic:
            if topic.ordinal < was.ordinal:
                self._complain(f"is handed {what} of a topic that is gone")
            elif not stretch.is_told and self.options["on_gap"] != "skip":
                self._complain(f"is handed {what} of another topic, and was not told so")
            stretch.next = 0
        if stretch.next is None:
            self.begins_at(topic, key, offset)
            self.may_reset(topic, key, self.group.stands.get(key, 0), offset)
            missing = self.group.missing(topic, partition, offset, committed=self.committed)
            if missing is not None:
                self._complain(f"begins with {what}: nobody has processed {missing}")
            return
        if offset < stretch.next:
            self._complain(f"is handed {what}, and was to go on at {stretch.next}")
        if self.may_reset(topic, key, stretch.next, offset):
            return
        due = topic.due(partition, stretch.next, offset, committed=self.committed)
        if (skipped := next(due, None)) is not None:
            self._complain(f"is handed {what}, and was not handed {skipped}")

    def begins_at(self, topic: Topic, key: Key, offset: int) -> None:
        """It begins, or commits, here: at the end, where the group does not stand anywhere, or
        where it was sent, which may have been found in another topic of the name."""
        place = key[0], key[2]
        stretch = self.has.get(place) or self._left.get(place)
        if stretch is not None and stretch.is_loose:
            self._lands(stretch, topic, key, offset)
        if key not in self.group.stands and self.options["start"] == "end":
            stretch = self.has.get((key[0], key[2]))
            if stretch is None or stretch.next is None:
                self.group.passes(key, 0, offset)

    def _lands(self, stretch: Stretch, topic: Topic, key: Key, offset: int) -> None:
        """Where it was sent it has come to this: what it passes over is no more than it asked."""
        if not self.may_reset(topic, key, stretch.sought, offset):
            self.group.passes(key, 0, min(offset, stretch.sought))

    def may_reset(self, topic: Topic, key: Key, was: int, offset: int) -> bool:
        """It was below the start of the log, and goes on at its end: whether that may be."""
        if self.options["on_reset"] != "end" or was >= topic.trimmed.get(key[2], 0):
            return False
        self.group.passes(key, 0, offset)
        return True

    def processes(self, is_so: Callable[[Key, int], bool] = lambda *_: True) -> None:
        """It has done what it was handed, or that of it of which `is_so`."""
        left = []
        for key, offset in self.in_hand:
            if not is_so(key, offset):
                left.append((key, offset))
                continue
            done = self.group.processed[key]
            if self.group.is_calm and offset in done:
                self._complain(f"processes {key} {offset} once more")
            done.add(offset)
        self.in_hand = left

    def stands_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """It was told where it goes on."""
        for tp, position in positions.items():
            stretch = self.has.get((tp.topic, tp.partition))
            if stretch is None or stretch.next is None or stretch.is_loose:
                continue
            topic = stretch.topic or self._written.present(tp.topic)
            if topic is None or topic is not self._written.present(tp.topic):
                continue
            due = topic.due(tp.partition, stretch.next, position, committed=self.committed)
            what = f"is told that it goes on at {position} of {tp}, and was at {stretch.next}"
            if position < stretch.next or (
                next(due, None) is not None and self.options["on_reset"] != "end"
            ):
                self._complain(what)

    # Where it goes.

    def pauses(self, partitions: Iterable[Place], *, is_so: bool = True) -> None:
        """Of these it wants nothing, or wants it again."""
        for tp in partitions:
            if (stretch := self.has.get((tp[0], tp[1]))) is not None:
                stretch.is_paused = is_so

    def seeks(self, tp: Place, to: int, *, is_sure: bool = False) -> None:
        """It goes on there, is_sure: for sure; else in a topic, or at an offset, that is not known,
        and passes over what is below `to` at most."""
        stretch = self.has[tp]
        key = self.key_of(tp)
        self._world.trace("seeks", self.name, *tp, to, is_sure)
        # What was on its way to be committed when it was sent elsewhere once more may come yet.
        stretch.sought = max(to, stretch.sought if stretch.is_loose else 0)
        stretch.is_loose, stretch.next = not is_sure, to if is_sure else None
        if key is not None:
            self._goes_down(key, to if is_sure else 0)
            if is_sure:
                self.group.passes(key, 0, to)
        # What it had in hand of it, it has done.
        self.processes(lambda of, _: of == key)

    def _goes_down(self, key: Key, offset: int) -> None:
        self.lowest[key] = min(offset, self.lowest.get(key, END))

    def says(self, key: Key, offset: int) -> None:
        """It means the group to stand there."""
        self._goes_down(key, offset)
