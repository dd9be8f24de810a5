"""EIO from the N-th sync of a scenario, for every N; then the power goes.

    scenario  = a seed: topics of two classes, appends, deletions, rolls, housekeeping, restarts
    N = 1 ...   the N-th fdatasync fails, on a simulated disk on which what a failed sync was asked
                for is never durable, whatever a later one says; everybody goes on as they can; the
                power is cut at a moment of the seed's; recovery; everything is read

Of each: no descriptor is synced again after it failed (I12); what is acknowledged is read while
the broker lives; what class `fsync` has acknowledged is there afterwards, what `disk` has is there
or in a gap; nothing is there that was not sent.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import PartitionReadOnly, StorageError, UnknownTopic
from segbroker.segments.settings.topic_config import TopicConfig
from tests.simulation.disk import Disk, Mount
from tests.simulation.history import Key
from tests.simulation.threads import Threads
from tests.simulation.verdict import read_log
from tests.simulation.world import World

STEPS_COUNT: Final = 30
SEGMENT_BYTES: Final = 2_048
CLASSES: Final = ("fsync", "fsync", "disk")


class FailingDisk(Disk):
    """A disk whose N-th fdatasync fails, once; N = 0: none."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.syncs = 0
        super().__init__(world)

    @property
    def sync_errors(self) -> int:
        self.syncs += 1
        return int(self.syncs == self.number)

    @sync_errors.setter
    def sync_errors(self, value: int) -> None:
        pass


@dataclass
class Site:
    """A data directory, who has it open, and what was acknowledged."""

    seed: int
    number: int
    acked: dict[Key, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    sent: dict[Key, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    deleted_before: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    classes: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"failing syncs {self.seed}")
        self.world = World(self.seed)
        self.disk = FailingDisk(self.world, self.number)
        self.now_ms = 1_000_000
        self.manager: DiskManager | None = None
        self.values = 0

    def open(self) -> None:
        """Raises StorageError, OSError."""
        mount = Mount(self.disk, Threads(self.world, 0.0))
        manager = DiskManager("/data", storage=mount, flushers=0, now_ms=self.now_ms)
        manager.open()
        self.manager = manager

    def leave(self, *, closes: bool) -> None:
        """As a process that ends in order, or dies."""
        manager, self.manager = self.manager, None
        if manager is not None and closes:
            try:
                manager.close()
            except* (StorageError, OSError):
                pass  # it says so; what it could not sync is not vouched for
        self.disk.locks.clear()

    def step(self) -> None:
        """One thing of the seed's."""
        random = self.random
        draw = random.random()
        self.now_ms += random.choice((1, 100, 2_000))
        names = sorted(self.classes)
        if self.manager is None:
            self.open()
        elif not names or draw < 0.06:
            self._create(f"t{len(names)}")
        elif draw < 0.80:
            self._append(random.choice(names), random.randint(0, 1))
        elif draw < 0.86:
            self._delete_records(random.choice(names), random.randint(0, 1))
        elif draw < 0.94:
            self.manager.housekeeping(self.now_ms)
        else:
            self.leave(closes=draw < 0.97)

    def _create(self, name: str) -> None:
        assert self.manager is not None
        durability = self.random.choice(CLASSES)
        config = TopicConfig({"durability": durability, "segment.bytes": str(SEGMENT_BYTES)})
        self.manager.create_topic(name, 2, config)
        self.classes[name] = durability

    def _append(self, topic: str, partition: int) -> None:
        assert self.manager is not None
        self.values += 1
        value = b"%d." % self.values + b"x" * self.random.randint(0, 600)
        batch = memoryview(bytearray(encode_batch([value], timestamps_ms=self.now_ms)))
        key = (topic, partition)
        handler = self.manager.get_handler(*key)
        self.sent[key].add(value)
        result = handler.append(batch, check_batch(batch), self.now_ms)
        if handler.high_watermark > result.base_offset:
            self.acked[key][result.base_offset] = value
        elif handler.read_only is None:
            self.problems.append(f"{key}: neither acknowledged nor refused")

    def _delete_records(self, topic: str, partition: int) -> None:
        assert self.manager is not None
        handler = self.manager.get_handler(topic, partition)
        before = self.random.randint(handler.log_start_offset, handler.high_watermark)
        key = (topic, partition)
        self.deleted_before[key] = max(self.deleted_before[key], before)
        handler.delete_records_before(before)

    def check(self, when: str, *, after_power_cut: bool) -> None:
        """Everything that is there, against what was acknowledged."""
        assert self.manager is not None
        for (topic, partition), acked in sorted(self.acked.items()):
            key = (topic, partition)
            final = read_log(self.manager.get_handler(topic, partition))
            there = dict(final.rows)
            for offset, value in acked.items():
                if offset < self.deleted_before[key] or there.get(offset) == value:
                    continue
                told = any(a <= offset < b for a, b, _ in final.gaps)
                if not (after_power_cut and self.classes[topic] == "disk" and told):
                    self.problems.append(f"{when}, {key}: {offset} is acknowledged and not there")
            for offset, value in there.items():
                if value not in self.sent[key]:
                    self.problems.append(f"{when}, {key}: {offset} was never sent")


def fail_at(seed: int, number: int) -> Site:
    """The scenario of a seed with its N-th sync failing; what is wrong stands in `problems`."""
    site = Site(seed, number)
    for _ in range(STEPS_COUNT):
        # Refused, or not to be opened now: everything else is a bug.
        with suppress(StorageError, PartitionReadOnly, UnknownTopic, OSError):
            site.step()
    count = site.disk.syncs
    site.disk.number = 0
    if site.manager is not None:
        site.check("while it runs", after_power_cut=False)
    site.leave(closes=site.random.random() < 0.3)
    site.disk.cut_power()
    site.open()
    site.check("after the power cut", after_power_cut=True)
    site.leave(closes=True)
    site.problems += site.world.violations
    site.disk.syncs = count
    return site


def syncs_of(seed: int) -> int:
    """How many syncs the scenario has when none fails."""
    return fail_at(seed, 0).disk.syncs
