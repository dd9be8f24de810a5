"""A state machine for Hypothesis: any steps in any order, cut off at any operation of the disk.

    arm(n)  ->  the n-th operation from here is the last one: one of the disks that a crash may
                leave after it is drawn, recovered and judged by the model, and the steps go on
                on that disk, with what was seen on it as the truth

The crash may hit a step, a recovery, or the recovery from that.  What the explorer does for every
image of a few scripts, this does for one image each of scripts that nobody wrote; every other one
is of those in which each file lacks something else.  Hypothesis makes a script that fails as short
as it can.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from segbroker.segments.errors import StorageError
from segbroker.segments.metadata.share_groups import RecordState
from segbroker.segments.settings.topic_config import Durability, TopicConfig

from .driver import Driver
from .explorer import Plan
from .images import Image, Images
from .invariants import violations
from .model import Life, PartitionModel
from .observing import RECOVERED_MS, TINY_WAL, Broker, Seen, SeenPartition

NAMES = ("a", "b")
CLASSES = ("fsync", "disk", "memory")
PARTITIONS_MAX = 2


class Crash(BaseException):
    """The machine is off: no handler of the product may stop it."""


class CrashMachine(RuleBasedStateMachine):
    """A DiskManager and what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.countdown = 0
        self.draw = 0
        self.image: Image | None = None
        self.crashes = 0
        self.driver = self._driver()
        self.driver.open()

    def _driver(self) -> Driver:
        driver = Driver(Plan(), "machine")
        driver.explorer.look = lambda: None  # type: ignore[method-assign]  # one image, not all
        driver.disk.on_change = self._operation
        driver.disk.on_sync = self._operation
        return driver

    def _operation(self, call: str, path: str) -> None:
        self.driver.explorer.refresh()
        if self.countdown:
            self.countdown -= 1
            if not self.countdown:
                self.image = self._image(self.draw)
                raise Crash

    def _image(self, draw: int) -> Image:
        """One of those that the explorer would build, or one of the many that it leaves out."""
        images = Images(self.driver.disk)
        if draw % 2:
            return images.drawn(Random(draw))
        listed = list(images.now())
        return listed[draw // 2 % len(listed)]

    def _step(self, work: Callable[[], object]) -> None:
        try:
            work()
            # The driver has said what the step promises; a topic may be gone meanwhile.
        except Crash:
            self._recover()

    def _recover(self) -> None:
        model = self.driver.model
        is_kill = True
        while self.image is not None:
            image, self.image = self.image, None
            self.crashes += 1
            is_kill = is_kill and image.is_kill
            before = self.driver
            self.driver = self._driver()
            self.driver.model = self.driver.explorer.model = model
            self.driver.number, self.driver.epochs = before.number, before.epochs
            self.driver.now_ms = max(before.now_ms, RECOVERED_MS)
            self.driver.disk.reboot(image.build())
            with suppress(Crash):
                session = Broker(TINY_WAL, self.driver.disk)
                seen = session.see()
        self.driver.manager = session.manager
        found = list(violations(model, seen, is_kill=is_kill))
        assert not found, found
        self._believe(seen)

    def _believe(self, seen: Seen) -> None:
        """What was seen is the truth from here on, and durable."""
        model = self.driver.model
        for name in [*model.topics]:
            topic = seen.topics.get(name)
            if topic is None:
                model.topics[name] = [None]
                continue
            (life, *_) = [
                one
                for one in model.topics[name]
                if one is not None and one.topic_id in (topic.topic_id, b"")
            ]
            overrides = dict(topic.overrides)
            durability = TopicConfig(overrides).durability
            pairs = zip(life.partitions, topic.partitions, strict=False)
            partitions = [_believed(old, new, durability) for old, new in pairs]
            model.topics[name] = [Life(partitions, len(partitions), [overrides], topic.topic_id)]
            self.driver.epochs[name] = max(self.driver.epochs.get(name, -1), topic.epoch)
        model.producer_ids = seen.next_producer_id
        model.sections = {seen.sections}
        model.changed()

    # What is there

    def _topics(self) -> list[str]:
        return [name for name, lives in self.driver.model.topics.items() if lives[0] is not None]

    def _place(self, which: int) -> tuple[str, int]:
        places = [
            (name, number)
            for name in sorted(self._topics())
            for number in range(self.driver.running.topics[name].partitions)
        ]
        return places[which % len(places)]

    # Rules

    @initialize(durability=st.sampled_from(CLASSES))
    def first(self, durability: str) -> None:
        self.driver.create("a", 1, durability=durability)

    @rule(operations=st.integers(1, 12), draw=st.integers(0, 800))
    def arm(self, operations: int, draw: int) -> None:
        self.countdown, self.draw = operations, draw

    @rule(name=st.sampled_from(NAMES), durability=st.sampled_from(CLASSES))
    def create(self, name: str, durability: str) -> None:
        if name not in self._topics():
            self._step(lambda: self.driver.create(name, 1, durability=durability))

    @precondition(lambda self: self._topics())
    @rule(
        which=st.integers(0, 3), count=st.integers(1, 3), size=st.sampled_from([16, 40, 200, 350])
    )
    def append(self, which: int, count: int, size: int) -> None:
        self._step(lambda: self.driver.append(*self._place(which), count, size=size))

    @precondition(lambda self: self._topics())
    @rule(which=st.integers(0, 3), records=st.integers(1, 2))
    def append_with_producer(self, which: int, records: int) -> None:
        topic, number = self._place(which)

        def work() -> None:
            known = self.driver.handler(topic, number)._log.producers._producers.get(7)
            sequence = known.batches[-1].last_sequence + 1 if known and known.batches else 0
            self.driver.append(topic, number, records=records, producer=(7, 0, sequence))

        self._step(work)

    @rule(by_ms=st.sampled_from([1_000, 31_000]))
    def tick(self, by_ms: int) -> None:
        self._step(lambda: self.driver.tick(by_ms=by_ms))

    @precondition(lambda self: self._topics())
    @rule(which=st.integers(0, 3), part=st.integers(0, 4))
    def delete_records(self, which: int, part: int) -> None:
        topic, number = self._place(which)

        def work() -> None:
            handler = self.driver.handler(topic, number)
            start, end = handler.log_start_offset, handler.high_watermark
            self.driver.delete_records(topic, number, start + (end - start) * part // 4)

        self._step(work)

    @precondition(lambda self: self._topics())
    @rule(which=st.integers(0, 3), durability=st.sampled_from(CLASSES))
    def alter(self, which: int, durability: str) -> None:
        topic, _ = self._place(which)
        self._step(lambda: self.driver.alter(topic, durability=durability))

    @precondition(lambda self: self._topics())
    @rule(which=st.integers(0, 3))
    def grow(self, which: int) -> None:
        topic, _ = self._place(which)
        if self.driver.running.topics[topic].partitions < PARTITIONS_MAX:
            self._step(lambda: self.driver.grow(topic, PARTITIONS_MAX))

    @precondition(lambda self: self._topics())
    @rule(which=st.integers(0, 3))
    def delete(self, which: int) -> None:
        topic, _ = self._place(which)
        self._step(lambda: self.driver.delete(topic))

    @precondition(lambda self: self._topics())
    @rule(
        group=st.sampled_from(("g", "h")),
        which=st.integers(0, 3),
        done=st.integers(0, 2),
        first=st.integers(0, 9),
        count=st.integers(1, 4),
        state=st.sampled_from((RecordState.AVAILABLE, RecordState.ACKNOWLEDGED)),
    )
    def share(
        self, group: str, which: int, done: int, first: int, count: int, state: RecordState
    ) -> None:
        topic, _ = self._place(which)

        def work() -> None:
            start = self.driver.share_start(group, topic) + done
            self.driver.share(group, topic, start, (start + first, start + first + count, state, 1))

        self._step(work)

    @precondition(lambda self: self._topics())
    @rule(group=st.sampled_from(("g", "h")), which=st.integers(0, 3), start=st.integers(0, 9))
    def set_share(self, group: str, which: int, start: int) -> None:
        topic, _ = self._place(which)
        self._step(lambda: self.driver.set_share(group, topic, start))

    @rule(group=st.sampled_from(("g", "h")), names=st.sets(st.sampled_from(NAMES)))
    def forget_share(self, group: str, names: set[str]) -> None:
        self._step(lambda: self.driver.forget_share(group, *sorted(names)))

    @rule()
    def checkpoint(self) -> None:
        self._step(self.driver.running.wal.checkpoint)

    @rule()
    def close_and_open(self) -> None:
        def work() -> None:
            self.driver.close()
            self.driver.open()

        self._step(work)

    @rule(draw=st.integers(0, 800))
    def crash_now(self, draw: int) -> None:
        self.image = self._image(draw)
        self._recover()

    def teardown(self) -> None:
        self.countdown = 0
        with suppress(StorageError):
            self.crash_now(0)


def _believed(model: PartitionModel, seen: SeenPartition, durability: Durability) -> PartitionModel:
    found = {item.base_offset for item in seen.items if not item.is_gap}
    gaps = [(item.base_offset, item.next_offset) for item in seen.items if item.is_gap]
    return replace(
        model,
        durability=durability,
        # What was deleted is not seen any more; its producer is remembered.
        sent=[s for s in model.sent if s.base_offset in found or s.next_offset <= seen.start],
        acked=seen.end,
        durable=seen.end,
        start_min=seen.start,
        start_max=seen.start,
        epoch_min=seen.epoch,
        lost=gaps,
    )
